"""Whether a fetched file is the log that was promised: by size and checksum, by the
first download, by what it looks like.
"""

import gzip
import hashlib
import html
import json
import lzma
import re
import zipfile
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lastitem.data.download.local_files import Source, printable
from lastitem.data.readers.unpacking import GZIP, ZIP
from lastitem.errors import InputError
from lastitem.files import read_json, write_json

TITLED = 1 << 16  # bytes in which the title of a page is looked for
_ANSWER = 1 << 12  # bytes that an error in JSON stays below
_DAMAGES = (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
_BLOCK = 1 << 18


#: What is known of a file: bytes and sha256; of a fetched one also source and address.
Found = dict[str, Any]


class SourceError(Exception):
    """One source failed; the next one is tried."""


def verify(source: Source, path: Path, address: str = "", records: Path | None = None) -> Found:
    """Hold a file to what is known of it; with ``records``, where nothing is published,
    to the first download from ``address``.

    Parameters
    ----------
    source : ``bytes`` and ``sha256`` where known; other keys do not matter.
    records : JSON file of first downloads, see
        :data:`lastitem.data.download.local_files.RECORDS`; made if it is not there.

    Returns
    -------
    bytes, sha256 of the file.

    Raises
    ------
    SourceError if it is not what was promised, is cut off or damaged, or is no data at
    all; InputError if ``records`` is damaged.
    """
    with path.open("rb") as file:
        head = file.read(TITLED)
        if kind := not_data(head, whole=len(head) < TITLED):
            raise not_the_file(kind, head)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256")
    found = {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}
    if any(source.get(key, value) != value for key, value in found.items()):
        compared = ", ".join(
            f"{key} is {found[key]}, expected {source[key]}" for key in found if key in source
        )
        raise SourceError(f"{compared}: the file was changed at its source or damaged on the way")
    if "sha256" not in source:
        _check_archive(head, path)
        if records is not None:
            _hold_to_record(address, found, records)
    return found


def not_data(head: bytes, content_type: str = "", whole: bool = False) -> str | None:
    """What the beginning of a file, or the ``whole`` of it, shows it to be, if that is
    no log.
    """
    if not head:
        return "an empty file"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n\f").lower()
    # Some servers say text/html of whatever they serve, a log, too: but that does not
    # begin with a tag, and has more than a line.
    tag = (
        rb"<|[^\n]*$"
        if content_type == "text/html"
        else rb"<(!--|(!doctype|html|head|body|title|meta|script)\b)"
    )
    if re.match(tag, start):
        return "a web page"
    if start.startswith(b"version https://git-lfs"):
        return "the pointer of a file that Git LFS keeps elsewhere"
    if (
        whole
        and len(head) < _ANSWER
        and re.fullmatch(rb'\{\s*"(error|errors|message)"\s*:[^\n]*', start.strip())
    ):
        return "the answer of a server"
    return "an XML document" if start.startswith((b"<?xml", b"<error>")) else None


def not_the_file(kind: str, head: bytes) -> SourceError:
    """What to say of something of this kind, with the title or message that its
    beginning holds.
    """
    text = head.decode("utf-8", "replace")
    match = re.search(r"(?is)<(title|message)\b[^>]*>(.*?)</\1", text)
    said = match[2] if match else text if text.lstrip().startswith("{") else ""
    title = " ".join(html.unescape(said).split())[:200]
    saying = f" that says {title!r}" if title else ""
    return SourceError(f"what is there is {kind}{saying}, not the data")


def _check_archive(head: bytes, path: Path) -> None:
    """Read a compressed file to its end, keeping nothing: without a checksum only that
    shows whether all of it is there.
    """
    try:
        if head.startswith(GZIP):
            with gzip.open(path) as file:
                while file.read(_BLOCK):
                    pass
        elif head.startswith(ZIP):
            with zipfile.ZipFile(path) as archive:
                if damaged := archive.testzip():
                    raise zipfile.BadZipFile(f"member {damaged!r} is damaged")
    except RuntimeError:
        # Encrypted, or packed by a method that Python does not know: for the reader
        # to report.
        pass
    except _DAMAGES as error:
        kind = "gzip file" if head.startswith(GZIP) else "zip archive"
        raise SourceError(f"the {kind} is cut off or damaged ({error})") from None


def _hold_to_record(address: str, found: Found, path: Path) -> None:
    """Compare a file with its first download, or record it as that."""
    records = read_json(path) if path.exists() else {}
    try:
        first = records.get(address)
        if first and not found.items() <= first.items():
            entry = json.dumps(address, ensure_ascii=False)
            compared = ", ".join(f"{key} is {found[key]}, was {first[key]}" for key in found)
            raise SourceError(
                f"{compared} at the first download on {first['date']}: the file was changed at its"
                " source or damaged on the way. If the change is known and meant, delete the entry"
                f" {entry} of {printable(path)}, or the file"
            )
    except (AttributeError, KeyError, TypeError):
        raise InputError(
            f"{printable(path)}: not what was recorded of first downloads; delete the file to have"
            " it made anew"
        ) from None
    if not first:
        today = {"date": datetime.now(UTC).isoformat(timespec="seconds")}
        write_json(path, records | {address: found | today})
