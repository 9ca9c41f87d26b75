"""Archives, and files that are no log."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zipfile

import numpy as np
import pytest

from lastitem.data.interactions import read_interactions
from lastitem.data.readers import transcoding
from lastitem.errors import InputError
from tests import literal
from tests.data.readers.logs import (
    FORMATS,
    HEADER,
    ROW,
    START,
    parquet,
    refusal,
    written,
    zipped,
)
from tests.literal import events, read_bytes

CONTAINERS = {
    "plain": lambda content: content,
    "gzip": gzip.compress,
    "gzip of two parts": lambda content: gzip.compress(content[:9]) + gzip.compress(content[9:]),
    "zip": lambda content: zipped({"log": content}),
    "zip, stored": lambda content: zipped({"log": content}, zipfile.ZIP_STORED),
    "zip, bzip2": lambda content: zipped({"log": content}, zipfile.ZIP_BZIP2),
    "zip of gzip": lambda content: zipped({"log.gz": gzip.compress(content)}),
    "gzip of gzip": lambda content: gzip.compress(gzip.compress(content)),
    "gzip of zip": lambda content: gzip.compress(zipped({"log": content})),
    "zip among folders": lambda content: zipped(
        {"data/": b"", "data/log": content, "__MACOSX/": b"", "__MACOSX/data/._log": b"x"}
    ),
}


class TestContainers:
    @pytest.mark.parametrize("container", CONTAINERS)
    @pytest.mark.parametrize("kind", FORMATS)
    def test_hold_each_format_which_is_told_by_the_content(self, tmp_path, kind, container):
        """The file's name says nothing."""
        rows = [("x", "a", START), ("y", "b", START + 1), ("x", "é", START + 2)]
        content = CONTAINERS[container](written(kind, rows))
        assert events(read_bytes(tmp_path, content)) == rows
        assert events(read_bytes(tmp_path, content, format=kind)) == rows

    @pytest.mark.parametrize("kind", FORMATS)
    def test_with_several_members(self, tmp_path, kind):
        """One has to be named; the message lists them."""
        rows = [("x", "a", START)]
        content = zipped({"readme": b"nothing", "deep/log": written(kind, rows)})
        assert events(read_bytes(tmp_path, content, member="deep/log")) == rows
        assert (
            refusal(tmp_path, content)
            == "which member to read is not said in this zip archive; found: readme, deep/log; name"
            " one as `member`"
        )
        assert (
            refusal(tmp_path, content, member="log")
            == "no member 'log' in this zip archive; found: readme, deep/log; name one as `member`"
        )

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "is empty"),
            (gzip.compress(b""), "is empty"),
            (zipped({"log": b""}), "is empty"),
            (zipped({}), "which member to read is not said in this zip archive; found: nothing"),
            (HEADER, "holds no rows"),
            (HEADER.strip(), "holds no rows"),
            (HEADER + b"\n\n", "holds no rows"),
            (parquet({"user": [], "item": [], "time": []}), "holds no rows"),
            (
                bz2.compress(HEADER + ROW),
                (
                    "is compressed with bzip2; gzip, zip and plain files are read, so unpack it or"
                    " pack it anew"
                ),
            ),
            (gzip.compress(lzma.compress(HEADER + ROW)), "is compressed with xz; "),
            (b"(\xb5/\xfd\x04\x00", "is compressed with zstd; "),
            (b"7z\xbc\xaf\x27\x1c", "is compressed with 7-Zip; "),
            (b" <!DOCTYPE html>\n<html>", "is a web page or XML, not a log"),
            (gzip.compress(b"<html><body>404</body></html>"), "is a web page or XML, not a log"),
            (b"<?xml version='1.0'?>", "is a web page or XML, not a log"),
        ],
        ids=range(15),
    )
    def test_of_something_else_are_an_error_that_says_what_it_is(self, tmp_path, content, message):
        """Nothing, other compressions, web pages."""
        assert refusal(tmp_path, content).startswith(message)

    def test_an_encrypted_member_is_an_error(self, tmp_path):
        """The flag of encryption set in the member's own header and in the archive's
        directory.
        """
        content = bytearray(zipped({"log": HEADER + ROW}))
        content[6] |= 1
        content[content.index(b"PK\x01\x02") + 8] |= 1
        assert re.match(
            "the member 'log' cannot be unpacked: .*encrypted.*; unpack it by hand",
            refusal(tmp_path, bytes(content)),
        )

    def test_a_folder_and_a_missing_file_are_an_error(self, tmp_path):
        """In the words of the operating system."""
        for path, message in (
            (tmp_path, "is a directory"),
            (tmp_path / "absent", "no such file or directory"),
        ):
            with pytest.raises(InputError, match=f"^{path}: {message}$"):
                read_interactions(path, literal.FORM)

    @pytest.mark.parametrize(
        "method",
        ["gzip", zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA],
    )
    def test_damaged_ones_are_named_not_a_traceback(self, tmp_path, monkeypatch, method):
        """Cut short or with any one byte flipped, also far behind the first block, an
        archive is refused, or read right.
        """
        monkeypatch.setattr(transcoding, "BLOCK", 4096)
        generator = np.random.default_rng(0)
        rows = [
            (str(user), str(item), START) for user, item in generator.integers(0, 999, (2000, 2))
        ]
        content = written("delimited", rows)
        whole = (
            gzip.compress(content, mtime=0)
            if method == "gzip"
            else zipped({"log": content}, method)
        )
        assert "the archive is damaged" in refusal(tmp_path, whole[: len(whole) // 2])
        for place in [
            *range(0, 60, 2),
            *generator.integers(60, len(whole), 30).tolist(),
            *range(len(whole) - 120, len(whole), 2),
        ]:
            (tmp_path / "log").write_bytes(
                whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
            )
            try:
                log = read_interactions(tmp_path / "log", literal.FORM)
            except InputError as error:
                assert str(error).startswith(f"{tmp_path / 'log'}: ")
            else:
                assert events(log) == rows
