"""Files from a real server on the loopback address: what was promised, or a clear word.

A transfer is cut (once, often, for good); a server is silent, overloaded, failing,
unreachable, redirects in circles, ignores or refuses a Range or answers it with another
part, or has another version of the file in between, with no or weak validators.
"""

import json

import pytest

from lastitem.data.download import transfer
from lastitem.data.download.sources import fetch_first
from lastitem.data.download.transfer import ATTEMPTS
from tests.data.download.fetching import (
    CHANGED,
    COMPRESSED,
    CONTENT,
    CUT,
    DAY,
    TAG,
    digest,
    fetch,
    interrupt,
    names,
    ranges,
    refusal,
    sent,
    share,
)
from tests.data.download.misbehaving_server import Answer


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
