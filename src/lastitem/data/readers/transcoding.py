"""Text of any encoding as UTF-8; a byte that is no text costs only the value it stands
in.
"""

from __future__ import annotations

import codecs
import io
import re
from typing import IO, Any

#: Bytes of a block of text.
BLOCK = 8 << 20
#: A separator of several characters becomes the unit separator of ASCII, because
#: pyarrow takes only one character.
UNIT_SEPARATOR = "\x1f"
#: Characters for private use: byte b that is no text in the file's encoding becomes
#: _FIRST_UNREADABLE + b.
UNREADABLE = "[\U0010ff00-\U0010ffff]"
_FIRST_UNREADABLE = 0x10FF00
_UNREADABLE_START = chr(_FIRST_UNREADABLE).encode()[:2]
_MARK_UNREADABLE = "lastitem.mark-unreadable"


class Transcoded(io.RawIOBase):
    """Text in UTF-8 without a byte order mark, a ``separator`` of several characters
    replaced by :data:`UNIT_SEPARATOR`.
    """

    def __init__(self, source: IO[bytes], encoding: str, separator: str = "") -> None:
        self._source, self._separator = source, separator.encode()
        self._beginnings = tuple(self._separator[:end] for end in range(1, len(self._separator)))
        self._decoder = codecs.getincrementaldecoder(encoding)(_MARK_UNREADABLE)
        self._waiting = b""
        self._begun = self._ended = False
        self.has_unreadable = False

    def readable(self) -> bool:
        """As every stream that is read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as there is text."""
        while not self._waiting and not self._ended:
            block = self._read(len(buffer))
            if self._separator:
                # A block may end within a separator: then the separator's beginning
                # waits for its rest.
                while not self._ended and self._replaced(block).endswith(self._beginnings):
                    block += self._read(1)
                block = self._replaced(block)
            self.has_unreadable |= _UNREADABLE_START in block
            self._waiting = block
        taken, self._waiting = self._waiting[: len(buffer)], self._waiting[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)

    def _read(self, size: int) -> bytes:
        block = self._source.read(size)
        self._ended = not block
        text = self._decoder.decode(block, final=self._ended)
        if text and not self._begun:
            text = text.removeprefix("\ufeff")
            self._begun = True
        return text.encode()

    def _replaced(self, block: bytes) -> bytes:
        return block.replace(self._separator, UNIT_SEPARATOR.encode())


def as_text(source: IO[bytes], encoding: str, separator: str = "") -> io.BufferedReader[Transcoded]:
    """:class:`Transcoded`, in blocks."""
    return io.BufferedReader(Transcoded(source, encoding, separator), BLOCK)


def shown(text: str) -> str:
    """Text for a message: on one line, bytes that are no text as escapes."""
    return re.sub(
        UNREADABLE, lambda mark: f"\\x{ord(mark[0]) - _FIRST_UNREADABLE:02x}", text
    ).replace("\n", "\\n")


def _mark_unreadable(error: UnicodeError) -> tuple[str, int]:
    """An error handler of codecs."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    unreadable = error.object[error.start : error.end]
    return "".join(chr(_FIRST_UNREADABLE + byte) for byte in unreadable), error.end


codecs.register_error(_MARK_UNREADABLE, _mark_unreadable)
