"""One file over HTTP: interrupted transfers are resumed, in this process or in a later
one, and shares are asked for their links.
"""

import fcntl
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, BinaryIO

import requests
from requests import Response
from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError

from lastitem.data.download.local_files import RECORDS, Source, address_of, printable
from lastitem.data.download.verification import (
    TITLED,
    Found,
    SourceError,
    not_data,
    not_the_file,
    verify,
)
from lastitem.errors import InputError
from lastitem.files import cannot_write, write_json
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


class Partial:
    """The part of a file that has arrived, under a hidden name, with a note by which a
    later process can resume.

    The file is open and locked until :meth:`close`, so that two processes never write
    the same one.
    """

    def __init__(self, out: Path) -> None:
        self.out, self.path = out, out.with_name(f".{out.name}.download")
        self._note = out.with_name(f".{out.name}.download.json")
        self._file = self._open()

    def _open(self) -> BinaryIO:
        while True:
            try:
                # Unbuffered: what was received is in the file, also if this process is
                # killed the next moment.
                file = self.path.open("ab", buffering=0)
            except OSError as error:
                raise cannot_write(printable(self.out), error) from None
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                raise InputError(
                    f"{printable(self.out)}: another process is downloading it; wait for that one"
                    " to end"
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
            note = json.loads(self._note.read_bytes())
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

    def finish(self) -> None:
        """Give the whole, verified file its name."""
        self._note.unlink(missing_ok=True)
        os.replace(self.path, self.out)

    def close(self) -> None:
        """Let go of the file and its lock; an empty one is removed."""
        # After finish() the hidden name is free, and may be another process's already.
        if self.size == 0 and self._is_current(self._file):
            self.clear()
            self.path.unlink()
        self._file.close()


def download(dataset: str, source: Source, partial: Partial) -> Found:
    """Bring the whole, verified file into ``partial``; first downloads are recorded
    beside its ``out``.

    Attempts end after :data:`ATTEMPTS` in a row that bring no new byte.

    Parameters
    ----------
    dataset : name for messages.
    source : with ``url`` or ``share``, see
        :func:`lastitem.data.download.sources.fetch_first`.

    Returns
    -------
    bytes, sha256 of the file.

    Raises
    ------
    SourceError if the source does not deliver what it promises.
    """
    furthest, fruitless, backoff = partial.size, 0, BACKOFF_SECONDS
    while True:
        try:
            return _attempt(dataset, source, partial)
        except TemporaryError as error:
            fruitless = 0 if partial.size > furthest else fruitless + 1
            furthest = max(furthest, partial.size)
            if fruitless == ATTEMPTS:
                raise
            seconds = max(backoff, min(error.retry_after, MAXIMUM_RETRY_AFTER_SECONDS))
            print(
                f"{dataset}: {address_of(source)}: {error}; trying again in {seconds:g} s",
                file=sys.stderr,
            )
            time.sleep(seconds)
            backoff = min(2 * backoff, MAXIMUM_BACKOFF_SECONDS)


def _attempt(dataset: str, source: Source, partial: Partial) -> Found:
    resumed = _transfer(dataset, source, partial)
    try:
        return verify(source, partial.path, address_of(source), partial.out.with_name(RECORDS))
    except SourceError as error:
        partial.clear()
        if resumed:
            # The parts may be of different versions of the file, or one was damaged
            # when the machine went down.
            raise TemporaryError(f"{error} (parts of it came earlier; they are dropped)") from None
        raise


def _transfer(dataset: str, source: Source, partial: Partial) -> bool:
    """Append what is missing, or fetch all; tell whether earlier bytes were kept.

    The server is asked for the rest only if it can be told to send all in case the file
    has changed, or if a checksum will tell.
    """
    note, start = partial.note(), partial.size
    validator = note.get("validator")
    if note.get("address") != address_of(source) or not (validator or "sha256" in source):
        start = 0
    # Content-Length counts encoded bytes; a file that is itself compressed must arrive
    # as it is.
    headers: dict[str, Any] = {"Accept-Encoding": "identity"}
    if start:
        # Of None requests makes no header.
        headers |= {"Range": f"bytes={start}-", "If-Range": validator or None}
    address = _ask_share(**source["share"]) if "share" in source else source["url"]
    with _answer(address, headers=headers) as response:
        status = response.status_code
        blocks = iter(lambda: response.raw.read1(_BLOCK, decode_content=False), b"")
        if start and status in (206, 416):
            known = note.get("bytes") or source.get("bytes")
            if not _goes_on(response, partial, known, validator):
                return True
            print(f"{dataset}: going on from byte {start:,}", file=sys.stderr)
            total = _content_range(response)[1] or note.get("bytes")
        elif status == 200:
            start, total = 0, _number(response.headers.get("Content-Length"))
            head = _take(blocks, _JUDGED)
            content_type = response.headers.get("Content-Type", "").partition(";")[0]
            if kind := not_data(head, content_type.strip().lower()):
                raise not_the_file(kind, head + _take(blocks, TITLED - len(head)))
            # For If-Range; a weak entity tag does not promise the same bytes.
            validator = response.headers.get("ETag", "")
            if not validator.startswith('"'):
                validator = response.headers.get("Last-Modified")
            partial.begin(address=address_of(source), validator=validator, bytes=total)
            partial.append(head)
        else:
            came_by = f" (redirected to {response.url})" if response.history else ""
            raise SourceError(_status(response) + came_by)
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


def _goes_on(
    response: Response, partial: Partial, known: int | None, validator: str | None
) -> bool:
    """Whether an answer to a request for the rest brings more bytes; False if all of
    them are there. Any other answer drops what is there: a TemporaryError.
    """
    start = partial.size
    first, total = _content_range(response)
    # A server that did not hold the file to the validator tells so by what it sends.
    header = "ETag" if validator and validator.startswith('"') else "Last-Modified"
    changed = validator is not None and response.headers.get(header, validator) != validator
    if response.status_code == 416:
        if start == (total or partial.note().get("bytes")) and not changed:
            return False
        fault = f"the server has no byte {start:,} to go on from"
    elif first == start and total in (None, known or total) and not changed:
        return True
    else:
        fault = (
            f"asked to go on from byte {start:,} of {known or 'unknown'}, the server sent another"
            f" part or version (Content-Range: {response.headers.get('Content-Range')})"
        )
    partial.clear()
    raise TemporaryError(f"{fault}; starting anew")


@contextmanager
def _answer(address: str, **options: Any) -> Iterator[Response]:
    """Ask a server; every fault of the connection, also while the answer is read,
    becomes a SourceError.
    """
    try:
        with requests.get(
            address, stream=True, timeout=(CONNECT_SECONDS, READ_SECONDS), **options
        ) as response:
            if response.status_code == 429 or response.status_code >= 500:
                retry_after = _seconds(response.headers.get("Retry-After"))
                raise TemporaryError(_status(response), retry_after)
            yield response
    except (requests.RequestException, HTTPError) as error:
        raise _explained(error) from None


def _explained(error: Exception) -> SourceError:
    cause = error.args[0] if error.args and isinstance(error, requests.ConnectionError) else error
    if isinstance(error, ValueError):
        return SourceError(
            f"it is, or leads to, an address that cannot be used; http and https can ({error})"
        )
    if isinstance(error, requests.TooManyRedirects):
        return SourceError(
            f"it is redirected in a circle, or more than {requests.models.DEFAULT_REDIRECT_LIMIT}"
            " times"
        )
    if isinstance(cause, requests.ReadTimeout | ReadTimeoutError):
        return TemporaryError(f"no data came within {READ_SECONDS} s")
    if isinstance(error, requests.ConnectionError) and not isinstance(cause, ProtocolError):
        # Given up at once, so that the next source gets its turn.
        return SourceError(f"the host cannot be reached ({getattr(cause, 'reason', cause)})")
    if isinstance(cause, HTTPError | requests.exceptions.ChunkedEncodingError):
        return TemporaryError(f"the transfer broke off ({cause.args[0] if cause.args else cause})")
    return SourceError(str(error))


def _status(response: Response) -> str:
    return f"HTTP status {response.status_code} {response.reason or ''}".rstrip()


def _content_range(response: Response) -> tuple[int | None, int | None]:
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
        left = parsedate_to_datetime(retry_after or "") - datetime.now(UTC)
        return max(0, math.ceil(left.total_seconds()))
    except (TypeError, ValueError):
        return 0


def _take(blocks: Iterator[bytes], size: int) -> bytes:
    taken = b""
    while len(taken) < size and (block := next(blocks, b"")):
        taken += block
    return taken


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
