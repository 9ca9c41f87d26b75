"""Which local files a dataset may come from, and whether they have changed; light
enough to be imported while a Snakefile is parsed.
"""

import json
import os
import re
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: What a config says of one source of a log, and of all sources of it, by name.
Source = Mapping[str, Any]
Sources = Mapping[str, Source]

#: Files beside a downloaded log that the downloader writes itself.
LOG, PROVENANCE, RECORDS, FINGERPRINTS = "raw", "raw.json", "checksums.json", "origins.json"
#: A hard link keeps the log, and a note what is known of it, because Snakemake deletes
#: the outputs of a download before a rerun.
KEPT, KEPT_NOTE = ".raw.kept", ".raw.kept.json"

#: What a web address may hold to let its reader in: a user name and password, and parts
#: of its query such as a signature or a token.
_LOGIN = r"(?<=://)[^/@\s\"']+@"
_KEY = (
    r"(?i)([?&](?:x-(?:amz|goog)-[^=&\s]*"
    r"|[^=&\s]*(?:sig|token|key|secret|passw|credential|auth)[^=&\s]*|expires)=)[^&#\s\"']+"
)


def without_password(text: str) -> str:
    """A text with web addresses, less the user names, passwords, signatures and tokens
    in them.
    """
    return re.sub(_KEY, r"\1***", re.sub(_LOGIN, "", text))


def address_of(source: Source) -> str:
    """What a source is known by: in messages, in the provenance, in the note of a
    partial file, in the recorded checksums.
    """
    if "package" in source:
        return f"package {source['package']}"
    if "generated" in source:
        return f"generated {json.dumps(source['generated'])}"
    if "by_hand" in source:
        return "{page} {file}".format_map(source["by_hand"])
    if "share" in source:
        return "{key} {file}".format_map(source["share"])
    return without_password(source["url"])


def on_disk(text: str) -> Path:
    """A path from a config, ~ expanded: names there are Unicode, names on disk are
    bytes, UTF-8 whatever the locale is.
    """
    return Path(os.fsdecode(text.encode("utf-8", "surrogateescape"))).expanduser()


def printable(path: Path) -> str:
    """A path as it can be printed and recorded, whatever the bytes of its name are."""
    return os.fsencode(path).decode("utf-8", "replace")


def by_hand_file(source: Source, folder: Path) -> Path | None:
    """Where a source's file is looked for before it is downloaded; None if it has no
    name of its own.
    """
    if "by_hand" in source:
        name = source["by_hand"]["file"]
    elif "share" in source:
        name = source["share"]["file"].rpartition("/")[2]
    elif "url" in source:
        name = urllib.parse.unquote(urllib.parse.urlsplit(source["url"]).path.rpartition("/")[2])
    else:
        return None
    file = folder / on_disk(name)
    # A percent-decoded name may hold a slash; and our own files were not put there by
    # hand.
    ours = ("", ".", "..", LOG, PROVENANCE, RECORDS, FINGERPRINTS, KEPT, KEPT_NOTE)
    return file if file.parent == folder and name not in ours else None


def fingerprints(sources: Sources, folder: Path) -> dict[str, str]:
    """Size and time of change of each local file that the sources name, and of each
    that was put by hand into the folder.

    A file that has gone keeps the fingerprint under which it was last taken (the
    downloader notes it): what was made of it stays.
    """
    try:
        remembered = json.loads((folder / FINGERPRINTS).read_bytes())
    except (OSError, ValueError):
        remembered = {}
    found = {}
    for source in sources.values():
        file = on_disk(source["path"]) if "path" in source else by_hand_file(source, folder)
        if file is None:
            continue
        name = printable(file)
        try:
            state = file.stat()
            found[name] = f"{state.st_size} bytes, {state.st_mtime_ns} ns"
        except OSError:
            if name in remembered:
                found[name] = str(remembered[name])
    return found
