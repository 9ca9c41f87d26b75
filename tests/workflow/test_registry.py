"""Every source of every entry of config/datasets.yaml, in its exact raw form, from a
loopback server through the real rules.

Addresses, sizes and checksums are replaced by those of small files made here; readers,
columns, separators and the like stay as shipped. No column of labels is taken for
relevance: none but user, item and time is ever named in the registry, and none else is
read.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests import literal
from tests.data.download.misbehaving_server import Answer, MisbehavingServer, serving

from .conftest import ROOT, copy_project, snakemake

Rows = list[tuple[str, str, int]]
DAY = 86_400
REGISTRY = yaml.safe_load((ROOT / "config/datasets.yaml").read_text(encoding="utf-8"))["registry"]


def events(user: str, item: str) -> Rows:
    """What every file holds, with ids of a source's own look: twelve users, eight
    items, a rare user, a rare item; whole days.
    """
    found = [
        (
            user.format(who),
            item.format((who + step * (1 + who % 3)) % 8),
            1_400_000_000 // DAY * DAY + DAY * (7 * who + step),
        )
        for who in range(12)
        for step in range(7 + who % 4)
    ]
    found += [
        (user.format(98), item.format(0), 1_400_000_000 // DAY * DAY),
        (user.format(3), item.format(99), 1_400_000_000 // DAY * DAY),
    ]
    # Reviews come sorted by item, not by time.
    return sorted(found, key=lambda row: row[1])


def text(rows: Iterator[list], header: list[str] | None = None, separator: str = ",") -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
    writer.writerows([header] if header else [])
    writer.writerows(rows)
    return stream.getvalue().encode()


def archive(member: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(f"{member.split('/')[0]}/README", "see the licence")
        packed.writestr(member, content)
    return stream.getvalue()


def movielens_100k() -> tuple[bytes, Rows]:
    rows = events("{}", "{}")
    return archive("ml-100k/u.data", text(([u, i, 3, t] for u, i, t in rows), separator="\t")), rows


def recbole_wheel() -> tuple[bytes, Rows]:
    rows = events("{}", "{}")
    header = ["user_id:token", "item_id:token", "rating:float", "timestamp:float"]
    stream = io.BytesIO(
        archive(
            "recbole/dataset_example/ml-100k/ml-100k.inter",
            text(([u, i, 3, t] for u, i, t in rows), header, "\t"),
        )
    )
    with zipfile.ZipFile(stream, "a") as wheel:
        info = "recbole-1.2.1.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: recbole\nVersion: 1.2.1\n")
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")
    return stream.getvalue(), rows


def movielens_1m() -> tuple[bytes, Rows]:
    rows = events("{}", "{}")
    return (
        archive(
            "ml-1m/ratings.dat",
            "".join(f"{u}::{i}::5::{t}\n" for u, i, t in rows).encode("latin-1"),
        ),
        rows,
    )


def amazon_reviews() -> tuple[bytes, Rows]:
    rows = events("A{:013d}", "B00{:07d}")
    records = [
        {
            "reviewerID": u,
            "asin": i,
            "reviewerName": 'J. "Jo" É',
            "helpful": [0, 1],
            "reviewText": "It's, {u'odd'}\n",
            "overall": 5.0,
            "summary": "ok",
            "unixReviewTime": t,
            "reviewTime": "09 13, 2009",
        }
        for u, i, t in rows
    ]
    return (
        gzip.compress("".join(json.dumps(record) + "\n" for record in records).encode(), mtime=0),
        rows,
    )


def amazon_csv() -> tuple[bytes, Rows]:
    rows = events("A{:013d}", "{:010d}")
    return (
        text(
            ([u, i, 5.0, t] for u, i, t in rows),
            ["reviewerID", "asin", "overall", "unixReviewTime"],
        ),
        rows,
    )


def plain_csv() -> tuple[bytes, Rows]:
    rows = events("user {}", "{}")
    return (
        text(([u, i, 4, t] for u, i, t in rows), ["user_id", "item_id", "rating", "timestamp"]),
        rows,
    )


def steam() -> tuple[bytes, Rows]:
    rows = events('"o\'{}"', "{}0")
    lines = [
        repr(
            {
                "username": u,
                "hours": 0.1,
                "products": 41,
                "product_id": i,
                "date": f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d}",
                "text": 'it\'s "fun"\n\u2665',
                "recommend": True,
                "early_access": False,
                "found_funny": None,
                "page": 1,
            }
        )
        for u, i, t in rows
    ]
    # The file was written by Python 2.
    return (
        gzip.compress(
            "".join(
                line.replace("{'", "{u'").replace(" '", " u'") + "\n" for line in lines
            ).encode(),
            mtime=0,
        ),
        rows,
    )


def beeradvocate() -> tuple[bytes, Rows]:
    rows = events("stcules{}", "{}")
    lines = [
        repr(
            {
                "beer/name": "Sausa 'Weizen'",
                "beer/beerId": i,
                "beer/ABV": "5.00",
                "review/overall": "1.5",
                "review/time": str(t),
                "review/profileName": u,
                "review/text": "A lot of foam.\tBut a lot.",
            }
        )
        for u, i, t in rows
    ]
    return gzip.compress("".join(line + "\n" for line in lines).encode(), mtime=0), rows


def diginetica() -> tuple[bytes, Rows]:
    """One day a session, the order within it by timeframe; a session that passes
    midnight starts on the earlier day.
    """
    sessions, start = events("{}", "{}"), {}
    for session, _, time in sorted(sessions, key=lambda row: row[2]):
        start.setdefault(session, time)
    # The time since the session's start: fractions of a second, in an order that
    # seconds would lose.
    elapsed = [(time - start[session]) // DAY * 150 for session, _, time in sessions]
    days = [start[s] + DAY * (ms >= 900) for (s, _, _), ms in zip(sessions, elapsed, strict=True)]
    lines = [
        [session, "NA", item, ms, f"{datetime.fromtimestamp(day, UTC):%Y-%m-%d}"]
        for (session, item, _), ms, day in zip(sessions, elapsed, days, strict=True)
    ]
    content = text(iter(lines), ["sessionId", "userId", "itemId", "timeframe", "eventdate"], ";")
    # Thousandths of seconds stand in for seconds: the order is what matters.
    return content, [
        (s, i, start[s] * 1000 + ms) for (s, i, _), ms in zip(sessions, elapsed, strict=True)
    ]


def diginetica_csv() -> tuple[bytes, Rows]:
    rows = events("{}", "{}")
    return text(([u, i, t] for u, i, t in rows), ["sessionId", "itemId", "timestamp"]), rows


def zvuk() -> tuple[bytes, Rows]:
    rows = [(user, item, time + 61) for user, item, time in events("{}", "{}")]
    lines = ([u, i, f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d %H:%M:%S}"] for u, i, t in rows)
    return text(lines, ["user_id", "track_id", "datetime"]), rows


FORMS: dict[tuple[str, str], Callable[[], tuple[bytes, Rows]]] = {
    ("ml-100k", "grouplens"): movielens_100k,
    ("ml-100k", "package-index"): recbole_wheel,
    ("ml-1m", "grouplens"): movielens_1m,
    ("ml-1m", "time-to-split"): plain_csv,
    **{(name, "snap"): amazon_reviews for name in ("beauty", "sports", "toys", "video")},
    **{(name, "time-to-split"): amazon_csv for name in ("beauty", "sports")},
    ("steam", "mcauley-lab"): steam,
    ("steam", "older-home"): steam,
    ("beeradvocate", "mcauley-lab"): beeradvocate,
    ("beeradvocate", "time-to-split"): plain_csv,
    ("diginetica", "cikm-cup"): diginetica,
    ("diginetica", "time-to-split"): diginetica_csv,
    ("zvuk", "time-to-split"): zvuk,
}


def test_every_source_has_its_raw_form_here():
    assert set(FORMS) == {
        (name, source) for name, entry in REGISTRY.items() for source in entry["sources"]
    }


@contextmanager
def served(
    project: Path, rank: int
) -> Iterator[tuple[MisbehavingServer, dict[str, tuple[str, Rows]]]]:
    """Serve the sources of each dataset that has so many from the ``rank``-th on; those
    before are gone. Writes served.yaml and a folder of wheels.
    """
    changed: dict[str, dict] = {}
    expected = {}
    with serving() as server:
        entries = {name: own for name, own in REGISTRY.items() if len(own["sources"]) > rank}
        for name, entry in entries.items():
            for place, (source, stanza) in enumerate(entry["sources"].items()):
                content, rows = FORMS[name, source]()
                change: dict[str, object] = {}
                if place == rank:
                    expected[name] = (source, rows)
                available = place >= rank
                if "url" in stanza:
                    path = "/" + stanza["url"].split("://")[1]
                    change["url"] = server.put(path, content)
                    if not available:
                        server.always(path, Answer(status=404))
                elif "share" in stanza:
                    href = server.put(f"/expiring/{name}", content)
                    found = (
                        {"href": href, "method": "GET", "templated": False}
                        if available
                        else {"message": "not found", "error": "gone"}
                    )
                    server.always(
                        f"/{name}/download",
                        Answer(status=200 if available else 403, body=json.dumps(found).encode()),
                    )
                    change["share"] = {"api": f"{server.address}/{name}"}
                elif "package" in stanza:
                    (project / "wheels").mkdir(exist_ok=True)
                    (project / "wheels/recbole-1.2.1-py3-none-any.whl").write_bytes(content)
                elif available:
                    (project / "data" / name).mkdir(parents=True)
                    (project / "data" / name / stanza["by_hand"]["file"]).write_bytes(content)
                facts = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                change |= {key: value for key, value in facts.items() if key in stanza}
                changed.setdefault(name, {"sources": {}})["sources"][source] = change
        (project / "served.yaml").write_text(
            yaml.safe_dump({"registry": changed, "datasets": list(entries)}), encoding="utf-8"
        )
        yield server, expected


@pytest.mark.parametrize("rank", [0, 1], ids=["first sources", "next sources"])
def test_download_core_and_split(tmp_path, monkeypatch, rank):
    """The core holds what the literal filter keeps, the leave-one-out parts what is
    left of it, Table 1 their counts.
    """
    project = copy_project(tmp_path / "project")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(project / "wheels"))
    with served(project, rank) as (_, expected):
        targets = [f"results/{name}/loo/split.json" for name in expected]
        done = snakemake(project, *targets, "results/table1.csv", configfile="served.yaml")
    assert done.returncode == 0, done.stdout[-6000:]
    table = (
        pd.read_csv(project / "results/table1.csv")
        .query("source == 'measured'")
        .set_index("dataset")
    )
    for name, (source, rows) in expected.items():
        folder = project / "results" / name
        assert (
            json.loads((project / "data" / name / "raw.json").read_text(encoding="utf-8"))["source"]
            == source
        )
        kept = literal.core(rows, 5, "file")
        assert 8 < len(kept) < 13
        users = dict(pd.read_parquet(folder / "core/users.parquet").itertuples(index=False))
        items = dict(pd.read_parquet(folder / "core/items.parquet").itertuples(index=False))
        core = pd.read_parquet(folder / "core/interactions.parquet")
        found = {
            users[user]: [items[item] for item in part["item"]]
            for user, part in core.groupby("user")
        }
        assert found == {user: [item for item, _ in sequence] for user, sequence in kept.items()}
        divisor = 1000 if (name, source) == ("diginetica", "cikm-cup") else 1
        assert core["timestamp"].tolist() == [
            time // divisor for user in users.values() for _, time in kept[user]
        ]
        for part, left_out in (("train", 2), ("validation", 1), ("test", 0)):
            sequences = pd.read_parquet(folder / "loo" / f"{part}.parquet").set_index("user")[
                "items"
            ]
            assert {
                users[user]: [items[item] for item in sequence]
                for user, sequence in sequences.items()
            } == {user: sequence[: len(sequence) - left_out] for user, sequence in found.items()}
        assert table.loc[name, "interactions"] == len(core)
        assert (table.loc[name, "raw_interactions"], table.loc[name, "bad_rows"]) == (len(rows), 0)
        licence = REGISTRY[name]["licence"]
        assert licence in done.stdout or expected[name][0] == "cikm-cup"


def test_a_downloaded_log_is_held_to_its_first_checksum(tmp_path):
    """No checksum of Zvuk is published: the first download records it, and a later one
    with another content is refused.
    """
    project = copy_project(tmp_path / "project")
    with served(project, 0) as (server, _):
        arguments = ("data/zvuk/raw",)
        assert snakemake(project, *arguments, configfile="served.yaml").returncode == 0
        (project / "data/zvuk/raw").unlink()
        server.put("/expiring/zvuk", zvuk()[0] + b"1,2,2020-01-01 00:00:00\n")
        done = snakemake(project, *arguments, configfile="served.yaml")
    assert done.returncode != 0
    assert "at the first download on" in done.stdout and "checksums.json" in done.stdout
    assert not (project / "data/zvuk/raw").exists()


def test_a_line_of_code_in_a_review_is_never_run(tmp_path):
    """Through the real rules: a Steam file with a call in place of a literal stops with
    the line, and the call has not been made.
    """
    project = copy_project(tmp_path / "project")
    with served(project, 0) as (server, _):
        lines = gzip.decompress(steam()[0]).decode().splitlines()[:5]
        lines.insert(
            3,
            "{'username': __import__('os').system('touch pwned'), 'product_id': '1', 'date':"
            " '2014-01-01'}",
        )
        url = REGISTRY["steam"]["sources"]["mcauley-lab"]["url"]
        server.put(
            "/" + url.split("://")[1],
            gzip.compress("\n".join([*lines, "{'username': 'cut of"]).encode()),
        )
        done = snakemake(project, "results/steam/core/statistics.json", configfile="served.yaml")
    assert done.returncode != 0
    assert (
        "2 of 7 rows cannot be used" in done.stdout
        and "line 4: " in done.stdout
        and "line 7: " in done.stdout
    )
    assert (
        not list(project.rglob("pwned"))
        and not (project / "results/steam/core/statistics.json").exists()
    )
