"""Files of a public share, whose links expire."""

import json

import pytest

from tests.data.download.fetching import (
    CONTENT,
    CUT,
    PAGE,
    TAG,
    fetch,
    link,
    names,
    ranges,
    refusal,
    says,
    sent,
    share,
)
from tests.data.download.misbehaving_server import Answer


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
