"""What was fetched is held to its size and checksum, to the first download, and to what
a log looks like.
"""

import json
import zipfile

import pytest

from lastitem.data.download.sources import fetch_first
from tests.data.download.fetching import (
    CHANGED,
    COMPRESSED,
    CONTENT,
    CUT,
    PAGE,
    TAG,
    archive,
    digest,
    fetch,
    interrupt,
    names,
    ranges,
    refusal,
)
from tests.data.download.misbehaving_server import Answer


@pytest.mark.parametrize(("key", "wrong"), [("sha256", "0" * 64), ("bytes", 17)])
def test_a_file_that_is_not_the_promised_one_is_refused(server, tmp_path, capsys, key, wrong):
    """The message shows what came and what was expected; the next source is tried."""
    sources = {
        "first": {"url": server.put("/log.csv", CONTENT), key: wrong},
        "second": {"url": server.put("/log.gz", COMPRESSED)},
    }
    assert fetch_first("d", sources, tmp_path / "raw")["source"] == "second"
    found = {"sha256": digest(CONTENT), "bytes": len(CONTENT)}[key]
    assert (
        f"source 'first' failed: {sources['first']['url']}: {key} is {found}, expected {wrong}"
        in capsys.readouterr().err
    )
    assert (tmp_path / "raw").read_bytes() == COMPRESSED


def test_a_wrong_file_alone_is_an_error_and_leaves_nothing(server, tmp_path):
    """Size and checksum are both shown."""
    text = refusal(
        {"first": {"url": server.put("/log.csv", CONTENT), "bytes": 17, "sha256": "0" * 64}},
        tmp_path / "raw",
    )
    assert (
        f"bytes is {len(CONTENT)}, expected 17, sha256 is {digest(CONTENT)}, expected {'0' * 64}"
        in text
    )
    assert "the file was changed at its source or damaged on the way" in text
    assert names(tmp_path) == []


def test_a_file_without_a_known_checksum_is_held_to_its_first_download(server, tmp_path):
    url = server.put("/log.csv", CONTENT)
    fetch({"url": url}, tmp_path / "raw")
    records = tmp_path / "checksums.json"
    first = json.loads(records.read_text(encoding="utf-8"))
    assert first == {
        url: {"bytes": len(CONTENT), "sha256": digest(CONTENT), "date": first[url]["date"]}
    }
    fetch({"url": url}, tmp_path / "raw")

    server.put("/log.csv", CHANGED)
    text = refusal({"home": {"url": url}}, tmp_path / "raw")
    assert (
        f"sha256 is {digest(CHANGED)}, was {digest(CONTENT)} at the first download on"
        f" {first[url]['date']}" in text
    )
    assert (
        f'If the change is known and meant, delete the entry "{url}" of {records}, or the file'
        in text
    )
    assert json.loads(records.read_text(encoding="utf-8")) == first
    assert names(tmp_path) == ["checksums.json", "raw"]

    records.unlink()
    assert fetch({"url": url}, tmp_path / "raw")["sha256"] == digest(CHANGED)
    assert (tmp_path / "raw").read_bytes() == CHANGED


def test_records_of_other_files_stay(server, tmp_path):
    for path in ("/a.csv", "/b.csv"):
        fetch({"url": server.put(path, CONTENT)}, tmp_path / "raw")
    assert list(json.loads((tmp_path / "checksums.json").read_text(encoding="utf-8"))) == [
        server.address + "/a.csv",
        server.address + "/b.csv",
    ]


def test_nothing_is_recorded_where_the_checksum_is_known(server, tmp_path):
    fetch({"url": server.put("/log.csv", CONTENT), "sha256": digest(CONTENT)}, tmp_path / "raw")
    assert names(tmp_path) == ["raw"]


@pytest.mark.parametrize("damaged", ["{", "[]", '{"URL": 1}', '{"URL": {"bytes": 1}}'])
def test_damaged_records_are_an_error_with_a_remedy(server, tmp_path, damaged):
    url = server.put("/log.csv", CONTENT)
    (tmp_path / "checksums.json").write_text(damaged.replace("URL", url), encoding="utf-8")
    text = refusal({"home": {"url": url}}, tmp_path / "raw")
    assert (
        str(tmp_path / "checksums.json") in text and "delete the file to have it made anew" in text
    )


@pytest.mark.parametrize(
    ("body", "content_type", "said"),
    [
        (PAGE, "text/html; charset=utf-8", "a web page that says 'Log in & accept'"),
        (b"Please log in", "Text/HTML", "a web page"),
        (PAGE, "application/zip", "a web page that says 'Log in & accept'"),
        (
            (
                b"\xef\xbb\xbf \r\n <HTML"
                b" lang=ru><Title>\xd0\x9a\xd0\xb0\xd0\xbf\xd1\x87\xd0\xb0</Title>"
            ),
            "text/csv",
            "a web page that says 'Капча'",
        ),
        (
            b'<?xml version="1.0"?><Error><Code>X</Code><Message>No such key</Message></Error>',
            "text/csv",
            "an XML document that says 'No such key'",
        ),
        (
            b"<Error><Code>AccessDenied</Code></Error>",
            "application/octet-stream",
            "an XML document",
        ),
        (b"", "text/csv", "an empty file"),
        (b"<!-- cached --><p>Sorry</p>", "application/gzip", "a web page"),
        (b"<head><title>Sign in</title></head>", "text/plain", "a web page that says 'Sign in'"),
        (
            b'{"error": "quota exceeded"}\n',
            "application/json",
            'the answer of a server that says \'{"error": "quota exceeded"}\'',
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "text/plain",
            "the pointer of a file that Git LFS keeps elsewhere",
        ),
    ],
    ids=[
        "page",
        "page by its type",
        "page of another type",
        "page after a mark",
        "XML",
        "XML error",
        "nothing",
        "comment",
        "head",
        "JSON",
        "LFS",
    ],
)
def test_a_page_is_not_a_file(server, tmp_path, body, content_type, said):
    url = server.put("/log.csv", body, Content_Type=content_type)
    text = refusal({"home": {"url": url}}, tmp_path / "raw")
    assert f"home: {url}: what is there is {said}, not the data" in text
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "body",
    [b'{"message": 1, "u": 2}\n{"message": 2, "u": 3}\n', b'{"message": "' + b"x" * 5000 + b'"}\n'],
)
def test_records_of_messages_are_data(server, tmp_path, body):
    """A log in JSON lines may begin as an error does."""
    fetch({"url": server.put("/log.jsonl", body)}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == body


def test_a_log_that_is_called_a_page_is_data(server, tmp_path):
    """Some servers say text/html of all that they serve."""
    fetch(
        {"url": server.put("/log.csv", CONTENT, Content_Type="text/html; charset=UTF-8")},
        tmp_path / "raw",
    )
    assert (tmp_path / "raw").read_bytes() == CONTENT


def test_a_page_is_not_downloaded_to_its_end(server, tmp_path):
    """The server sends the beginning of ten megabytes, and would never
    send the rest.
    """
    server.always("/log.csv", Answer(hold_after=100_000))
    url = server.put("/log.csv", PAGE + b" " * 10_000_000)
    assert "a web page that says 'Log in & accept'" in refusal(
        {"home": {"url": url}}, tmp_path / "raw"
    )


def test_a_page_in_between_does_not_cost_what_has_come(server, tmp_path):
    source = {"url": server.put("/log.csv", CONTENT, ETag=TAG)}
    interrupt(server, "/log.csv", source, tmp_path / "raw")
    server.plan("/log.csv", Answer(ignores_range=True, body=PAGE))
    assert "a web page" in refusal({"home": source}, tmp_path / "raw")
    fetch(source, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert ranges(server, "/log.csv")[-1] == (f"bytes={CUT}-", TAG)


@pytest.mark.parametrize(
    "content", [COMPRESSED, COMPRESSED * 2, archive(), archive(zipfile.ZIP_STORED)]
)
def test_a_whole_archive_is_accepted(server, tmp_path, content):
    fetch({"url": server.put("/log", content)}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            COMPRESSED[:-100],
            (
                "the gzip file is cut off or damaged (Compressed file ended before the"
                " end-of-stream marker was reached)"
            ),
        ),
        (COMPRESSED[:-8] + b"\0" * 8, "the gzip file is cut off or damaged (CRC check failed"),
        (COMPRESSED + b"more", "the gzip file is cut off or damaged (Not a gzipped file"),
        (archive()[:-100], "the zip archive is cut off or damaged (File is not a zip file)"),
        (
            archive(zipfile.ZIP_STORED).replace(b"about it", b"about IT"),
            "the zip archive is cut off or damaged (member 'readme.txt' is damaged)",
        ),
    ],
    ids=["gzip cut", "gzip damaged", "gzip with more after it", "zip cut", "zip damaged"],
)
def test_an_archive_cut_off_or_damaged_is_refused(server, tmp_path, content, said):
    """Announced by the server with the size it has, so that only its
    content can tell.
    """
    assert said in refusal({"home": {"url": server.put("/log", content)}}, tmp_path / "raw")
    assert names(tmp_path) == []


def test_a_known_checksum_is_word_enough(server, tmp_path):
    """What is meant to be as it is, is not unpacked."""
    fetch(
        {"url": server.put("/log.gz", COMPRESSED[:-9]), "sha256": digest(COMPRESSED[:-9])},
        tmp_path / "raw",
    )
    assert (tmp_path / "raw").read_bytes() == COMPRESSED[:-9]
