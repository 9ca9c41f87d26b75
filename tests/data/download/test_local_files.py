"""Files on this machine: sources with a path, and files put by hand into the folder of
the output.
"""

import os

import pytest

from lastitem.data.download.sources import fetch_first
from lastitem.errors import InputError
from tests.data.download.fetching import (
    CHANGED,
    COMPRESSED,
    CONTENT,
    PAGE,
    TAG,
    archive,
    digest,
    fetch,
    interrupt,
    names,
    refusal,
    share,
)


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
