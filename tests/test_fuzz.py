"""Random logs and configs: a clear error or a result in which every row is accounted
for, and never a file elsewhere.

Names, paths and ids are drawn with blanks, accents, quotes, semicolons, shell and YAML
signs: they are data, never code.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import core_filter
from lastitem.errors import InputError
from lastitem.study.config import check

ROOT = Path(__file__).parents[1]
NASTY = [
    "a b",
    "é",
    "it's",
    'say "hi"',
    "a;b",
    "$(touch pwned)",
    "`touch pwned`",
    "..",
    "../x",
    "a/b",
    "a,b",
    "#",
    "NA",
    "null",
    "007",
    "1e5",
    "-",
    "{x}",
    "%s",
    "\\n",
]
# The same examples in every run; LASTITEM_FUZZ=5000 tries so many, others each time.
COUNT = int(os.environ.get("LASTITEM_FUZZ", "0"))
settings.register_profile(
    "here",
    deadline=None,
    derandomize=not COUNT,
    max_examples=COUNT or 60,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("here")

ids = some.one_of(
    some.sampled_from(NASTY), some.text(min_size=0, max_size=6), some.integers(-5, 40).map(str)
)
times = some.one_of(
    some.integers(0, 2**31).map(str),
    some.sampled_from(["", "never", "-1", "1e9", "2020-02-30", "2020-01-01", "nan", "9" * 30]),
)
rows = some.lists(some.tuples(ids, ids, times), max_size=60)


def filtered(
    folder: Path, log: bytes, form: dict[str, Any], minimum: int, ties: str
) -> dict[str, Any]:
    """The counts of core_filter.py for a log; the ids it kept are in the folder."""
    (folder / "log").write_bytes(log)
    (folder / "log.json").write_text(
        json.dumps({"source": "own", "address": "here", "bytes": len(log), "sha256": ""})
    )
    sources = json.dumps({"own": {"form": form}})
    given_files = [
        "--log",
        folder / "log",
        "--provenance",
        folder / "log.json",
        "--sources",
        sources,
    ]
    outputs = [
        word
        for name in ("interactions", "users", "items", "statistics")
        for word in (f"--{name}", folder / "out" / name)
    ]
    core_filter.main(
        list(
            map(
                str,
                [
                    "--dataset",
                    "d",
                    *given_files,
                    "--minimum-events",
                    minimum,
                    "--ties",
                    ties,
                    *outputs,
                ],
            )
        )
    )
    return json.loads((folder / "out/statistics").read_text(encoding="utf-8"))


def accounted(counts: dict[str, Any], read: int) -> None:
    """Rows that were read are interactions or bad rows; interactions are in the core or
    counted out in a round.
    """
    raw, core = counts["raw"], counts["core"]
    assert raw["interactions"] + sum(raw["bad_rows"].values()) == read
    assert (
        raw["interactions"] - sum(sum(round_.values()) for round_ in counts["rounds"])
        == core["interactions"]
    )


@given(
    rows=rows,
    minimum=some.integers(1, 3),
    ties=some.sampled_from(["file", "item", "random"]),
    share=some.sampled_from([0.0, 0.5, 0.99]),
)
def test_a_log_is_read_whole_or_refused(tmp_path, rows, minimum, ties, share):
    text = io.StringIO()
    csv.writer(text).writerows([("user", "item", "time"), *rows])
    form = {
        "columns": {"user": "user", "item": "item", "timestamp": "time"},
        "separator": ",",
        "maximum_bad_share": share,
    }
    before = sorted(os.listdir(tmp_path.parent))
    try:
        counts = filtered(
            tmp_path, text.getvalue().encode("utf-8", "surrogatepass"), form, minimum, ties
        )
    except InputError as error:
        assert len(str(error)) > 20 and "own" in str(error)
    else:
        blank = sum(not "".join(row).strip() for row in csv.reader(io.StringIO(text.getvalue())))
        accounted(counts, len(rows) - blank)
        kept = pyarrow.parquet.read_table(tmp_path / "out/users")["user_id"].to_pylist()
        assert set(kept) <= {user for user, _, _ in rows}, "ids stay the text they are"
    assert sorted(os.listdir(tmp_path.parent)) == before and not Path("pwned").exists()


@given(
    log=some.binary(max_size=400),
    form=some.sampled_from(["delimited", "json-lines", "python-literals", "parquet", None]),
)
def test_any_bytes_are_no_traceback(tmp_path, log, form):
    columns = {"columns": {"user": "user", "item": "item", "timestamp": "time"}} | (
        {"format": form} if form else {}
    )
    with pytest.raises(InputError):
        filtered(tmp_path, log, columns, 1, "file")


def places(config: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value of a config."""
    found = [way] if way else []
    for key, value in (
        config.items()
        if isinstance(config, dict)
        else enumerate(config)
        if isinstance(config, list)
        else ()
    ):
        found += places(value, (*way, key))
    return found


CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8")) | {
    "registry": {
        "ml-100k": {"path": "data/x.csv", "columns": {"user": "u", "item": "i", "timestamp": "t"}}
    }
}
values = some.one_of(
    some.none(),
    some.booleans(),
    some.integers(-3, 300),
    some.sampled_from([2**32, 2**64, 10**25]),
    some.floats(),
    some.sampled_from(
        [
            *NASTY,
            "${calc:__import__('os').system('touch pwned')}",
            "!!python/object/apply:os.system ['touch pwned']",
        ]
    ),
    some.lists(some.integers(-2, 3), max_size=3),
    some.dictionaries(
        some.sampled_from(["a", "seed", "grid", "training"]), some.integers(), max_size=2
    ),
)


@given(way=some.sampled_from(places(CONFIG)), value=values)
def test_a_config_is_good_or_told_what_is_wrong(way, value):
    """One value after another is replaced by any other; what is refused is told in
    words, with its place.
    """
    config = copy.deepcopy(CONFIG)
    inner = config
    for step in way[:-1]:
        inner = inner[step]
    inner[way[-1]] = value
    try:
        check(config, ROOT / "workflow/schemas/config.schema.yaml")
    except InputError as error:
        assert len(str(error)) > 10
    assert not Path("pwned").exists()
