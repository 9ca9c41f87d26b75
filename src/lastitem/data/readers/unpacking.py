"""What a file is packed in, and of which format its content is."""

import codecs
import gzip
import io
import re
import struct
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from lastitem.errors import InputError

#: First bytes of a gzip file and of a zip archive (with members, or empty).
GZIP, ZIP = b"\x1f\x8b", (b"PK\x03\x04", b"PK\x05\x06")
_OTHER_COMPRESSIONS = {
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"(\xb5/\xfd": "zstd",
    b"7z\xbc\xaf": "7-Zip",
    b"Rar!": "RAR",
    b"\x04\x22M\x18": "lz4",
}
_BUFFER = 1 << 20


@contextmanager
def unpacked(path: Path, member: str | None) -> Iterator[tuple[IO[bytes], io.BufferedReader]]:
    """Open a file and take off gzip and zip, also one inside the other.

    Parameters
    ----------
    member : which file of a zip archive; needed only if there are several.

    Returns
    -------
    the file itself, whose position tells how much of it is read; its unpacked content.

    Raises
    ------
    InputError if the file cannot be opened, is packed in another way, or has no such
    member.
    """
    with ExitStack() as stack:
        try:
            file: Any = stack.enter_context(path.open("rb", buffering=_BUFFER))
        except OSError as error:
            raise InputError((error.strerror or str(error)).lower()) from None
        stream = file
        while (magic := stream.peek(8)[:8]).startswith((GZIP, *ZIP)):
            inner: Any = (
                gzip.GzipFile(fileobj=stream, mode="rb")
                if magic.startswith(GZIP)
                else _member_of(stream, member, stack)
            )
            stream = io.BufferedReader(stack.enter_context(inner), _BUFFER)
        for start, name in _OTHER_COMPRESSIONS.items():
            if magic.startswith(start):
                raise InputError(
                    f"is compressed with {name}; gzip, zip and plain files are read, so"
                    " unpack it or pack it anew"
                )
        yield file, stream


def _member_of(stream: IO[bytes], member: str | None, stack: ExitStack) -> IO[bytes]:
    try:
        archive = stack.enter_context(zipfile.ZipFile(stream))
    except (RuntimeError, ValueError, struct.error) as error:
        raise zipfile.BadZipFile(str(error)) from None
    names = archive.namelist()
    if "[Content_Types].xml" in names:
        raise InputError("is an Office document; export the sheet as CSV")
    files = [name for name in names if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if member is None and len(files) == 1:
        member = files[0]
    if member not in files:
        wanted = "which member to read is not said" if member is None else f"no member {member!r}"
        raise InputError(
            f"{wanted} in this zip archive; found: {', '.join(files[:20]) or 'nothing'};"
            " name one as `member`"
        )
    try:
        return archive.open(member)
    except (RuntimeError, NotImplementedError) as error:
        raise InputError(
            f"the member {member!r} cannot be unpacked: {error}; unpack it by hand"
        ) from None


def format_of(stream: io.BufferedReader, encoding: str) -> str:
    """The format that the beginning of the unpacked content shows; InputError if it is
    one that is not read.
    """
    head = stream.peek(1 << 16)
    if not head:
        raise InputError("is empty")
    if head.startswith(b"PAR1"):
        return "parquet"
    if (
        head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        and codecs.lookup(encoding).name == "utf-8"
    ):
        raise InputError("is UTF-16, not UTF-8; say so with `encoding: utf-16`")
    start = head.decode(encoding, errors="ignore").removeprefix("\ufeff").lstrip()
    if re.match(r"\{\s*('|[uU]['\"])", start):
        return "python-literals"
    if start.startswith("{"):
        return "json-lines"
    if re.match(r"\[\s*[\[{]", start):
        raise InputError(
            "is one JSON array; write one record per line, for example with jq -c '.[]'"
        )
    if re.match(r"<(!doctype|html|\?xml)", start, re.IGNORECASE):
        raise InputError("is a web page or XML, not a log")
    if b"\0" in head and b"\0" not in "a".encode(encoding):
        raise InputError(
            "is neither text nor Parquet (it holds zero bytes); delimited text, records"
            " and Parquet are read"
        )
    return "delimited"
