"""Tables from files of runs, by way of their summaries, in all their forms.

Every number here is from full-catalogue ranking; table 2 says so, which is tested.
Where a TeX is installed the .tex is compiled; what LaTeX can read is tested everywhere.
"""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import make_table as script
import summarize
from lastitem.errors import InputError
from lastitem.report import answers, tables
from lastitem.report.table import Table, write
from lastitem.study.products import SUMMARIES, TABLES
from lastitem.study.runs import (
    PARTS,
    RUN_COLUMNS,
    Rows,
    Run,
    Stamp,
    read_csv,
    read_run_tables,
    write_run_table,
)

from .typesetting import typeset

FORMS = ("csv", "md", "tex", "json")
DRAWN = {"bootstrap": {"resamples": 100, "seed": 0}}


def summarized(folder, name, paths, settings, done):
    """Make a summary, and first those it reads; each is told its own settings."""
    for read in SUMMARIES[name].reads:
        if read in SUMMARIES and read not in done:
            summarized(folder, read, paths, settings, done)
    files = [
        path
        for read in SUMMARIES[name].reads
        for path in (
            [done[read]] if read in SUMMARIES else (p for p in paths if Path(p).name == read)
        )
    ]
    own = {key: settings[key] for key in SUMMARIES[name].settings}
    done[name] = folder / "summaries" / f"{name}.parquet"
    words = [name, "--inputs", *files, "--settings", json.dumps(own), "--out", done[name]]
    summarize.main(list(map(str, words)))


def make(folder, table, paths, published=(), **settings):
    """Call the scripts of a table and of its summaries, and read back three files."""
    shown, done = TABLES[table], {}
    for name in shown.reads:
        if name not in done:
            summarized(folder, name, paths, settings, done)
    own = {key: settings[key] for key in shown.settings}
    words = [shown.function, "--summaries", *(done[name] for name in shown.reads)]
    words += ["--published", *published, "--settings", json.dumps(own), "--out"]
    script.main(list(map(str, [*words, *(folder / f"t.{form}" for form in FORMS)])))
    texts = ((folder / f"t.{form}").read_text(encoding="utf-8") for form in FORMS[1:3])
    return pd.read_csv(folder / "t.csv", keep_default_na=False, na_values=[""]), *texts


def cells(markdown):
    """The rows of the Markdown table as dictionaries."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in markdown.splitlines()
        if line.startswith("|")
    ]
    header, _, *rows = lines
    assert all(len(row) == len(header) for row in rows)
    return [dict(zip(header, row, strict=True)) for row in rows]


def row_of(markdown, **wanted):
    (found,) = [
        row
        for row in cells(markdown)
        if all(row[column] == value for column, value in wanted.items())
    ]
    return found


# Writing


STAMP = Stamp("0123456789ab", [1, 2], ["made: by hand"])


def written(folder, table):
    paths = [folder / f"t.{form}" for form in FORMS]
    for path in paths:
        write(table, path, STAMP)
    return [path.read_bytes().decode("utf-8") for path in paths[:3]]


def test_all_forms_are_written_and_nothing_else(tmp_path):
    layout = pd.DataFrame({"Model": ["a", "b"], "NDCG": ["0.1", "0.2"]})
    csv, markdown, latex = written(
        tmp_path,
        Table(
            pd.DataFrame({"model": ["a", "é"], "ndcg": [0.1, np.nan]}), layout, "Table 9. é.", {}
        ),
    )
    stamp = "0123456789ab,1 2,made: by hand"
    assert csv == f"model,ndcg,study,seeds,versions\na,0.1,{stamp}\né,,{stamp}\n"
    assert markdown.startswith("Table 9. é.\n\n| Model")
    assert [row["NDCG"] for row in cells(markdown)] == ["0.1", "0.2"]
    assert "\\caption{é.}" in latex
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.json", "t.md", "t.tex"]
    with pytest.raises(InputError, match=r"t\.html: a table is written as \.csv, \.md"):
        write(Table(layout, layout, ""), tmp_path / "t.html", STAMP)


def test_the_best_is_bold_in_all_readable_forms(tmp_path):
    layout = pd.DataFrame(
        {"Model": ["a", "b", "c"], "HR": ["0.1", "0.3", "0.3"], "n": ["5", "5", "5"]}
    )
    csv, markdown, latex = written(tmp_path, Table(layout, layout, "Best in bold.", {"HR": [1, 2]}))
    assert [row["HR"] for row in cells(markdown)] == ["0.1", "**0.3**", "**0.3**"]
    assert re.findall(r"(?:a|b|c) & (.*?) &", latex) == ["0.1", "\\bfseries 0.3", "\\bfseries 0.3"]
    assert "**" not in csv + latex
    assert layout["HR"].tolist() == ["0.1", "0.3", "0.3"], "the caller's table stays as it was"
    assert json.loads((tmp_path / "t.json").read_text(encoding="utf-8")) == {
        "study": STAMP.study,
        "caption": "Best in bold.",
        "header": ["Model", "HR", "n"],
        "rows": [["a", "0.1", "5"], ["b", "0.3", "5"], ["c", "0.3", "5"]],
        "bold": [[1, 1], [2, 1]],
    }


SPECIAL = "a_b & 5 % of #1 $x {y} ~z ^w \\v"


def test_latex_has_its_special_characters_escaped(tmp_path):
    """In cells, headers and the caption; a bare one ends a line, starts a comment or a
    column, or stops LaTeX.
    """
    layout = pd.DataFrame({SPECIAL: [SPECIAL], "Second": ["plain"]})
    _, _, latex = written(tmp_path, Table(layout, layout, SPECIAL, {}))
    body = re.search(r"\\caption\{(.*)\}", latex)[1] + re.search(
        r"\\toprule(.*)\\bottomrule", latex, re.DOTALL
    )[1].replace("\\midrule", "")
    body = re.sub(
        r"\\text(backslash|asciitilde|asciicircum)(\{\}|\s|\\ )|\\[_&%#${}]|\\\\$",
        "",
        body,
        flags=re.MULTILINE,
    )
    assert body.count("&") == 2, "the two ends of the first of two columns"
    assert not set(body) & set("_%#${}~^\\"), body


@pytest.mark.parametrize(
    ("rows", "environment"),
    [
        (["0.1"], "table"),
        (["x" * 20] * 60, "longtable"),
        (["a longer claim in words " * 4] * 20, "longtable"),
    ],
)
def test_latex_compiles_on_its_page(tmp_path, rows, environment):
    """Short tables float, scaled to the page where they are too wide; long ones go over
    several pages.
    """
    layout = pd.DataFrame(
        {SPECIAL: rows, "Second": rows}
        | {"−λ": "−1 ± 2, 3 × ≥ -4 é"}
        | {f"c{n}": "0.25" for n in range(6)}
    )
    layout = (
        layout
        if environment == "longtable"
        else pd.concat([layout, layout.add_suffix(" again")], axis=1)
    )
    folder = tmp_path / "first"
    folder.mkdir()
    _, _, latex = written(folder, Table(layout, layout, SPECIAL, {"c1": [0]}))
    assert latex.count(f"\\begin{{{environment}}}") == 1 == latex.count("\\bfseries")
    assert "\\toprule" in latex and "$-$4" in latex
    typeset(tmp_path, [folder / "t.tex"])


# Table 1


def statistics_of(folder, dataset, users):
    core = {
        "users": users,
        "items": 1682,
        "interactions": 100000,
        "avg_length": 106.04,
        "density_percent": 6.3049,
        "days": 214.6,
        "tied_transitions_percent": 48.03,
        "tied_targets_percent": 51.25,
    }
    path = folder / dataset / "statistics.json"
    path.parent.mkdir()
    raw = {
        "users": users + 7,
        "items": 1700,
        "interactions": 123_456,
        "bad_rows": {"empty user or item": 3, "not UTF-8": 1},
    }
    path.write_text(
        json.dumps(
            {"dataset": dataset, "minimum_events": 5, "ties": "file", "raw": raw, "core": core}
        ),
        encoding="utf-8",
    )
    return path


def test_table1_shows_the_paper_below_ours(tmp_path):
    """A dataset the paper has and one it has not."""
    published = tmp_path / "published.csv"
    published.write_text(
        "dataset,users,items,interactions,avg_length,density_percent,days\n"
        "beauty,22363,12101,198502,8.9,0.07,4424\n"
    )
    paths = [
        statistics_of(tmp_path, name, users) for name, users in (("mine", 943), ("beauty", 22361))
    ]
    csv, markdown, latex = make(tmp_path, "table1", paths, [published])
    assert csv[["dataset", "source", "users"]].to_numpy().tolist() == [
        ["mine", "measured", 943],
        ["beauty", "measured", 22361],
        ["beauty", "paper", 22363],
    ]
    rows = cells(markdown)
    assert [row["Users"] for row in rows] == ["943", "22,361", "22,363"]
    assert (
        rows[0]["Density %"],
        rows[0]["Avg. length"],
        rows[0]["Days"],
        rows[0]["Tie order"],
    ) == ("6.30", "106.0", "215", "file")
    assert (rows[0]["Tied transitions %"], rows[0]["Tied targets %"]) == ("48.0", "51.2")
    assert (rows[0]["Read"], rows[0]["Bad rows"], rows[2]["Read"]) == ("123,456", "4", "n/a")
    assert rows[2]["Tied targets %"] == "n/a"
    assert "5-core" in markdown
    assert "5-core" in latex


# Table 2


CHARTS = Path(__file__).parents[2] / "config/published/charts.csv"


def ranks_of(folder, model, ranks, seed=1, dataset="d", split="loo", cold=()):
    """ranks.parquet of one run, and beside it an interventions.parquet without an
    effect and a rescale.parquet without rows; ``cold`` are the places of targets that
    never occur in training.
    """
    count, run = len(ranks), Run(dataset, split, model, seed)
    path, cases = folder / f"{dataset}.{model}.{seed}" / "ranks.parquet", np.arange(len(ranks))
    columns = {"case": cases, "user": cases, "target_rank": np.array(ranks)}
    write_run_table(
        path, run, {**columns, "last_rank": np.ones(count), "cold": np.isin(cases, cold)}
    )
    names = np.repeat(["ordered", "partial"], count)
    columns = {name: np.tile(column, 2) for name, column in columns.items()}
    common = dict.fromkeys(("common_target_rank", "common_ordered_rank"), columns["target_rank"])
    effects = {"intervention": names, "repeat": np.zeros(2 * count, dtype=int)}
    write_run_table(path.with_name("interventions.parquet"), run, columns | common | effects)
    write_run_table(path.with_name("rescale.parquet"), run, {}, note="no attention block")
    return path


def evaluation_of(
    folder, model, coverage, seed=1, dataset="d", targets=4, filter_seen=True, split="loo"
):
    content = {
        "dataset": dataset,
        "split": split,
        "model": model,
        "seed": seed,
        "ranking": "full catalogue",
        "filter_seen": filter_seen,
        "items": 50,
        "users": targets,
        "targets": targets,
        "cold_targets": 1,
        "targets_lost_to_filter": 2,
        "hardly_learned": 0 if seed == 1 else 3,
        "cut_short": 4,
        "coverage": {"10": coverage, "20": 2 * coverage},
    }
    path = folder / f"{dataset}.{model}.{seed}" / "evaluation.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def make_table2(folder, ranks, evaluations):
    beside = [
        path.with_name(f"{name}.parquet") for name in ("interventions", "rescale") for path in ranks
    ]
    told = {"cutoffs": [10, 20], "cutoff": 10, "permutations": 99}
    paths = [*ranks, *evaluations, *beside]
    return make(folder, "table2", paths, [CHARTS], **told, **DRAWN)


def test_table2_by_hand(tmp_path):
    """Seeds 1 and 2 of ``a``: hit rates ½ and 1, so 0.75 ± 0.3536; ``b`` with one seed
    has no spread. Four users tell no model apart.
    """
    ranks = [
        ranks_of(tmp_path, "a", [1, 11, 3, 0]),
        ranks_of(tmp_path, "a", [1, 1, 1, 1], seed=2),
        ranks_of(tmp_path, "b", [2, 2, 2, 2]),
    ]
    evaluations = [
        evaluation_of(tmp_path, "a", 0.2),
        evaluation_of(tmp_path, "a", 0.3, seed=2),
        evaluation_of(tmp_path, "b", 0.1),
    ]
    csv, markdown, latex = make_table2(tmp_path, ranks, evaluations)
    first, second = row_of(markdown, Model="a"), row_of(markdown, Model="b")
    assert first["HR@10"] == "0.7500 ± 0.3536"
    assert second["HR@10"] == "1.0000"
    assert first["NDCG@10"] == "0.6875 ± 0.4419"
    assert second["NDCG@10"] == "0.6309"
    assert first["Coverage@10"] == "0.2500 ± 0.0707"
    assert "NDCG@10 without cold" not in first
    assert (
        first["Users"],
        first["Targets"],
        first["Seeds"],
        first["Cold"],
        first["Lost to filter"],
    ) == ("4", "4", "2", "1", "2")
    assert second["NDCG@10 95 % interval"] == "[0.6309, 0.6309]"
    assert "\\bfseries" not in latex and "**" not in markdown
    assert "full-catalogue ranking" in markdown
    assert "seen items left out: yes for d" in markdown
    fact = csv[(csv["model"] == "a") & (csv["metric"] == "hr") & (csv["cutoff"] == 20)].iloc[0]
    assert fact["value"] == 0.875
    assert fact["seeds"] == "1 2", "of the whole file"
    assert (fact["hardly_learned"], fact["cut_short"]) == (3, 4), "of the seed with most"
    assert (fact["users"], fact["cases"], fact["trainings"], fact["targets_lost_to_filter"]) == (
        4,
        4,
        2,
        2,
    )
    covered = csv[(csv["metric"] == "coverage") & (csv["model"] == "b")].set_index("cutoff")[
        "value"
    ]
    assert covered.to_dict() == {10: 0.1, 20: 0.2}


def test_table2_shows_the_paper_beside_ours(tmp_path):
    """Its SASRec on Beauty has 0.0215 under the global temporal split; another model,
    or another split, has nothing beside it.
    """
    runs = [("sasrec", "gts"), ("popularity", "gts"), ("sasrec", "loo")]
    ranks, evaluations = [], []
    for model, split in runs:
        (tmp_path / split).mkdir(exist_ok=True)
        ranks.append(ranks_of(tmp_path / split, model, [1, 2], dataset="beauty", split=split))
        evaluations.append(
            evaluation_of(tmp_path / split, model, 0.1, dataset="beauty", split=split)
        )
    csv, markdown, _ = make_table2(tmp_path, ranks, evaluations)
    assert [
        row_of(markdown, Model=model, Split=split)["Paper's NDCG@10"] for model, split in runs
    ] == ["0.0215", "n/a", "n/a"]
    beside = csv[csv["paper"].notna()]
    assert beside[["model", "split", "metric", "cutoff", "paper"]].to_numpy().tolist() == [
        ["sasrec", "gts", "ndcg", 10, 0.0215]
    ]
    assert "read off its charts" in markdown


def test_claims_show_the_paper_beside_ours(tmp_path):
    claims = ["order before the last", "order matters", "last-item privilege", "last item only"]
    found = pd.DataFrame({"claim": claims}).assign(
        dataset="toys",
        split="gts",
        model="sasrec",
        meaning="m",
        holds="yes",
        evidence="e",
        users=5,
        trainings=1,
    )
    other = tables.claims(Rows(found.assign(split="loo")), read_csv(CHARTS), 10)
    assert "In the paper" not in other.layout and "charts" not in other.caption
    table = tables.claims(Rows(found), read_csv(CHARTS), 10)
    assert table.layout["In the paper"].tolist() == ["-0.4 %", "-46.7 %", "0.864 against 0.148", ""]
    assert tables.claims(Rows(found), read_csv(CHARTS), 5).facts["paper"].tolist() == [""] * 4


def test_table2_marks_the_best_where_the_test_tells_it_apart(tmp_path):
    """On each log for itself, and from every other model: on ``d`` two are alike; on
    ``e`` one is best for all users; on ``f`` it is not told from the second, on ``g``
    it is one user that makes it best. Filters that differ are told apart in the
    caption.
    """
    nearly = [1] * 29
    names = [
        ("d", "a", [1] * 30),
        ("d", "b", [1] * 30),
        ("d", "c", [2] * 30),
        ("e", "a", [5] * 30),
        ("e", "b", [4] * 30),
        ("e", "c", [9] * 30),
        ("f", "a", [1] * 30),
        ("f", "b", [*nearly, 2]),
        ("f", "c", [9] * 30),
        ("g", "a", [*nearly, 1]),
        ("g", "b", [*nearly, 2]),
    ]
    ranks = [ranks_of(tmp_path, model, values, dataset=dataset) for dataset, model, values in names]
    evaluations = [
        evaluation_of(tmp_path, model, 0.1, dataset=dataset, filter_seen=dataset == "d")
        for dataset, model, _ in names
    ]
    _, markdown, latex = make_table2(tmp_path, ranks, evaluations)
    bold = [
        (row["Dataset"], row["Model"], column)
        for row in cells(markdown)
        for column, cell in row.items()
        if cell.startswith("**")
    ]
    assert bold == [("e", "b", "NDCG@10")] and latex.count("\\bfseries") == 1
    assert "yes for d; no for e, f, g" in markdown


def compared_of(*pairs):
    """Rows of comparisons: log, condition, reference, corrected p."""
    table = pd.DataFrame(pairs, columns=["dataset", "condition", "reference", "p_holm"])
    look = {"split": "loo", "contrast": "model", "measure": "NDCG"}
    return table.assign(model=table["condition"], **look)


def accuracies(**ndcg):
    """Rows of the summary accuracy of one log: model → NDCG@10."""
    table = pd.DataFrame({"model": [*ndcg], "value": [*ndcg.values()]})
    counts = {"users": 9, "cases": 9, "trainings": 1, "cold_targets": 0}
    table = table.assign(
        dataset="d", split="loo", cutoff=10, ci_low=0.0, ci_high=1.0, sd_seeds=np.nan, **counts
    )
    table = table.assign(targets_lost_to_filter=0, filter_seen=True)
    return pd.concat(
        [table.assign(metric=metric) for metric in ("ndcg", "hr", "mrr", "coverage")],
        ignore_index=True,
    )


@pytest.mark.parametrize(
    ("ndcg", "pairs", "bold"),
    [
        ({"a": 0.3, "b": 0.2}, [("d", "a", "b", 0.049)], [0]),
        ({"a": 0.2, "b": 0.3}, [("d", "a", "b", 0.049)], [1]),
        ({"a": 0.3, "b": 0.2}, [("d", "a", "b", 0.05)], []),
        ({"a": 0.3, "b": 0.2, "popularity": 0.1}, [("d", "a", "b", 0.01)], [0]),
        ({"a": 0.3, "b": 0.2, "markov": 0.4}, [("d", "a", "b", 0.01)], []),
        ({"a": 0.3, "b": 0.2}, [("e", "a", "b", 0.01)], []),
        ({"a": 0.3, "markov": 0.1}, [], []),
        (
            {"a": 0.3, "b": 0.2, "c": 0.1},
            [("d", "a", "b", 0.01), ("d", "a", "c", 0.01), ("d", "b", "c", 0.9)],
            [0],
        ),
        (
            {"a": 0.3, "b": 0.2, "c": 0.1},
            [("d", "a", "b", 0.01), ("d", "a", "c", 0.2), ("d", "b", "c", 0.01)],
            [],
        ),
        ({"a": 0.3, "b": 0.2, "c": 0.1}, [("d", "a", "b", 0.01), ("d", "b", "c", 0.01)], []),
    ],
)
def test_bold_is_the_best_that_is_apart_from_every_other_model(ndcg, pairs, bold):
    """Not from yardsticks, which are not compared; but one that is better than all
    leaves none bold.
    """
    others = compared_of(("d", "a", "b", 0.9), ("d", "a", "c", 0.9))
    comparisons = pd.concat(
        [
            compared_of(*pairs),
            others.assign(measure="HRLI"),
            others.assign(contrast="intervention"),
        ],
        ignore_index=True,
    )
    published = read_csv(CHARTS)
    table = tables.accuracy(Rows(accuracies(**ndcg)), Rows(comparisons), published, 10)
    assert table.best == {"NDCG@10": bold}


def test_table2_shows_the_accuracy_without_cold_targets(tmp_path):
    """Where some are cold; a log without them has that of all beside it, one of cold
    targets alone has none.
    """
    runs = [
        ("d", "a", [1, 3, 3, 0], [0, 3]),
        ("d", "b", [3, 3, 1, 0], [0, 3]),
        ("e", "a", [1, 1, 3, 3], []),
        ("f", "a", [1, 1, 1, 1], [0, 1, 2, 3]),
    ]
    ranks = [
        ranks_of(tmp_path, model, values, dataset=dataset, cold=cold)
        for dataset, model, values, cold in runs
    ]
    evaluations = [
        evaluation_of(tmp_path, model, 0.1, dataset=dataset) for dataset, model, *_ in runs
    ]
    csv, markdown, _ = make_table2(tmp_path, ranks, evaluations)
    shown = {
        (row["Dataset"], row["Model"]): (row["NDCG@10"], row["NDCG@10 without cold"])
        for row in cells(markdown)
    }
    assert shown == {
        ("d", "a"): ("0.5000", "0.5000"),
        ("d", "b"): ("0.5000", "0.7500"),
        ("e", "a"): ("0.7500", "0.7500"),
        ("f", "a"): ("1.0000", "n/a"),
    }
    without = csv[csv["metric"] == "ndcg without cold targets"]
    assert set(without["dataset"]) == {"d", "e"} and set(without["cutoff"]) == {10, 20}
    assert set(without.loc[without["dataset"] == "d", "cases"]) == {2}


def test_table2_fails_where_a_run_is_missing(tmp_path):
    ranks, evaluations = [ranks_of(tmp_path, "a", [1] * 4)], [evaluation_of(tmp_path, "a", 0.1)]
    with pytest.raises(InputError, match=r"b/ranks\.parquet: no such file"):
        make_table2(tmp_path, [*ranks, tmp_path / "b" / "ranks.parquet"], evaluations)
    assert not (tmp_path / "t.csv").exists()


# Table 3


def mixing_of(folder, model, mean, seed=1):
    """mixing.parquet and mixing_users.parquet of one run: one block, two users;
    ``mean`` maps each part to its value.
    """
    run = Run("d", "loo", model, seed)
    rows = [
        (1, part, positions, mean[part], mean[part] + 0.01, 0.05, n)
        for part in PARTS
        for positions, n in (("latest", 2), ("all", 9))
    ]
    names = ["layer", "part", "positions", "mean", "median", "sd", "n"]
    columns = {
        name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    mixing, users = (
        folder / f"{model}.{seed}" / f"{name}.parquet" for name in ("mixing", "mixing_users")
    )
    write_run_table(mixing, run, {**columns, "single_item_inputs": [3] * len(rows)})
    latest = [mean[part] + shift for shift in (-0.1, 0.1) for part in PARTS]
    write_run_table(
        users,
        run,
        {
            "user": [1] * 3 + [2] * 3,
            "layer": [1] * 6,
            "part": [*PARTS] * 2,
            "latest": latest,
        },
    )
    return mixing, users


def without_rows(folder, model, names, seed=1, note="no attention block"):
    paths = [folder / f"{model}.{seed}" / f"{name}.parquet" for name in names]
    for path in paths:
        write_run_table(path, Run("d", "loo", model, seed), {}, note=note)
    return paths


def make_table3(folder, pairs):
    mixing, users = zip(*pairs, strict=True)
    return make(folder, "table3", [*mixing, *users], **DRAWN)


def test_table3_by_hand(tmp_path):
    """Two seeds: means 0.5 and 0.7 of Attn are 0.600 ± 0.141; users per row and
    one-item inputs are stated.
    """
    pairs = [
        mixing_of(tmp_path, "sasrec", {"Attn": 0.5, "AttnRes": 0.2, "AttnResLN": 0.1}),
        mixing_of(tmp_path, "sasrec", {"Attn": 0.7, "AttnRes": 0.2, "AttnResLN": 0.3}, seed=2),
    ]
    csv, markdown, _ = make_table3(tmp_path, pairs)
    row = row_of(markdown, Positions="latest", Layer="1")
    means = [row[part].split(" [")[0] for part in ("Attn", "AttnRes", "AttnResLN")]
    assert means == ["0.600 ± 0.141", "0.200 ± 0.000", "0.200 ± 0.141"]
    assert (row["Attn median"], row["n"], row["Seeds"], row["Layer"]) == ("0.610", "2", "2", "1")
    assert row_of(markdown, Positions="all")["n"] == "9"
    assert "3 inputs" in markdown
    fact = csv[(csv["part"] == "Attn") & (csv["positions"] == "latest")].iloc[0]
    assert fact["mean"] == pytest.approx(0.6)
    assert 0.5 <= fact["ci_low"] < 0.6 < fact["ci_high"] <= 0.7
    assert (
        row["Attn"].endswith(f" [{fact['ci_low']:.3f}, {fact['ci_high']:.3f}]")
        and "[" not in row_of(markdown, Positions="all")["Attn"]
    )
    assert csv.loc[csv["positions"] == "all", "ci_low"].isna().all()


def test_table3_says_why_a_model_has_no_ratio(tmp_path):
    """GRU4Rec in two seeds: one row of n/a with the reason, in every form, beside the
    model that has ratios.
    """
    pairs = [mixing_of(tmp_path, "sasrec", dict.fromkeys(PARTS, 0.5))]
    pairs += [
        without_rows(tmp_path, "gru4rec", ["mixing", "mixing_users"], seed=seed) for seed in (1, 2)
    ]
    csv, markdown, latex = make_table3(tmp_path, pairs)
    row = row_of(markdown, Model="gru4rec")
    assert row["Positions"] == "n/a: no attention block"
    assert {row[column] for column in (*PARTS, "n", "Layer")} == {"n/a"}
    assert csv.loc[csv["model"] == "gru4rec", "note"].tolist() == ["n/a: no attention block"]
    assert "n/a: no attention block" in latex


def test_table3_says_why_a_model_has_no_ratio_of_the_stack(tmp_path):
    """BSARec's filter mixes positions beside attention: its blocks have ratios, the
    whole stack has none and says so.
    """
    csv, markdown, _ = make_table3(
        tmp_path, [mixing_of(tmp_path, "bsarec", dict.fromkeys(PARTS, 0.5))]
    )
    row = row_of(markdown, Layer="whole stack")
    assert (row["Model"], row["AttnResLN"], row["Attn"]) == (
        "bsarec",
        "n/a: another branch beside attention",
        "n/a",
    )
    assert csv.loc[csv["layer"] == 0, "note"].tolist() == ["n/a: another branch beside attention"]


def test_table3_of_a_study_without_attention(tmp_path):
    """``models: [gru4rec]`` is a study too; the table says n/a instead of failing."""
    _, markdown, _ = make_table3(
        tmp_path, [without_rows(tmp_path, "gru4rec", ["mixing", "mixing_users"])]
    )
    assert row_of(markdown, Model="gru4rec")["Positions"] == "n/a: no attention block"


def test_table3_fails_where_a_file_is_missing(tmp_path):
    mixing, users = mixing_of(tmp_path, "sasrec", dict.fromkeys(PARTS, 0.5))
    users.unlink()
    with pytest.raises(InputError, match=r"mixing_users\.parquet: no such file"):
        make_table3(tmp_path, [(mixing, users)])


# Table 4


def rescale_of(folder, model, seed=1, backs=True):
    """Ten users, λ 0.5 and 1. Validation: users 0–3 in R, λ = ½ recovers two and loses
    none. Test: 0–3 in R, one recovered, one lost.
    """
    rows = []
    for part, half in (("validation", [1, 1, 20, 20]), ("test", [1, 20, 20, 20])):
        for case in range(10):
            recoverable = case < 4
            back = [1 if recoverable else 50, 0, 0] if backs else [-1] * 3
            at_one = 20 if recoverable else 1
            at_half = half[case] if recoverable else (30 if part == "test" and case == 9 else 1)
            rows.append((part, 1.0, "ordered", case, at_one, *back))
            rows.append((part, 0.5, "ordered", case, at_half, -1, -1, -1))
    names = [
        "part",
        "residual_scale",
        "order",
        "case",
        "target_rank",
        *(f"target_rank_back_{offset}" for offset in (1, 2, 3)),
    ]
    columns = {
        name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    path = folder / f"{model}.{seed}" / "rescale.parquet"
    write_run_table(path, Run("d", "loo", model, seed), {**columns, "user": columns["case"]})
    return path


def make_table4(folder, paths, tolerance=0.01):
    told = {"tolerances": [0.0, 0.01, 0.05], "tolerance": tolerance, "cutoff": 10}
    return make(folder, "table4", paths, **told, **DRAWN)


def test_table4_by_hand(tmp_path):
    """Validation chooses ½ (recovery 2/4, hit rate 0.8 ≥ 0.6); on test it recovers 1 of
    4, wins one hit and loses one.
    """
    csv, markdown, _ = make_table4(tmp_path, [rescale_of(tmp_path, "sasrec")])
    row = row_of(markdown, **{"Chosen on": "validation"})
    assert (row["λ"], row["n"], row["Recovered"], row["Seed"]) == ("0.5", "10", "1", "1")
    fact = csv[csv["tolerance"] == 0.01].set_index("selection").loc["validation"]
    assert 0 <= fact["recovery_ci_low"] <= 0.25 <= fact["recovery_ci_high"] <= 1
    assert (
        row["Recovery"] == f"0.250 [{fact['recovery_ci_low']:.3f}, {fact['recovery_ci_high']:.3f}]"
    )
    assert (
        row["HR@10 kept"]
        == f"1.000 [{fact['hit_rate_kept_ci_low']:.3f}, {fact['hit_rate_kept_ci_high']:.3f}]"
    )
    assert (row["Hits lost"], row["Hits won"]) == ("1", "1")
    assert (row["HR@10 at λ"], row["HR@10 at 1"]) == ("0.6000", "0.6000")
    assert next(row[column] for column in ("R", "|R|") if column in row) == "4"
    assert row_of(markdown, **{"Chosen on": "oracle (test)"})["λ"] == "0.5"
    assert "oracle" in markdown.split("\n\n")[0]
    assert len(csv) == 3 * 2 and set(csv["validation_hit_rate_at_1"]) == {0.6}
    assert not list(answers.choice_warnings(csv))
    (told,) = answers.choice_warnings(csv.assign(validation_hit_rate_at_1=0.0))
    assert told.startswith("SASRec on d (loo), seed 1: nothing is hit on validation")
    assert set(csv["selection"]) == {"validation", "oracle (test)"}


def test_table4_has_a_row_of_all_seeds(tmp_path):
    """Two seeds alike: the row of both has their means, no spread, and the interval
    that one of them has.
    """
    csv, markdown, _ = make_table4(
        tmp_path, [rescale_of(tmp_path, "sasrec", seed) for seed in (1, 2)]
    )
    one, both = (
        row_of(markdown, Seed=seed, **{"Chosen on": "validation"}) for seed in ("1", "all")
    )
    assert (both["λ"], both["R"], both["Recovered"], both["Hits lost"]) == (
        "of each",
        "4.0",
        "1.0",
        "1.0",
    )
    assert both["Recovery"] == one["Recovery"].replace(" [", " ± 0.000 [")
    assert both["HR@10 at λ"] == one["HR@10 at λ"]
    assert csv["seed"].tolist() == ["1", "2", "all"] * 6


def test_table4_of_nobody_recoverable(tmp_path):
    """R is empty: λ stays 1, and a share of nobody is n/a, not 0."""
    path = rescale_of(tmp_path, "sasrec")
    columns = {
        name: list(column)
        for name, column in read_run_tables([path]).rows.items()
        if name not in RUN_COLUMNS
    }
    columns["target_rank"] = [1] * len(columns["case"])
    write_run_table(path, Run("d", "loo", "sasrec", 1), columns)
    _, markdown, _ = make_table4(tmp_path, [path])
    row = row_of(markdown, **{"Chosen on": "validation"})
    assert (row["λ"], row["R"], row["Recovery"]) == ("1", "0", "n/a")


def test_table4_says_why_a_model_has_no_choice(tmp_path):
    """No attention block, and no earlier prediction to go back to: each with its own
    reason and seed, beside the model that has one.
    """
    paths = [
        rescale_of(tmp_path, "sasrec"),
        *without_rows(tmp_path, "gru4rec", ["rescale"]),
        rescale_of(tmp_path, "bert4rec", backs=False),
    ]
    csv, markdown, latex = make_table4(tmp_path, paths)
    assert row_of(markdown, Model="gru4rec")["Chosen on"] == "n/a: no attention block"
    assert row_of(markdown, Model="bert4rec")["Chosen on"].startswith("n/a: its earlier positions")
    assert row_of(markdown, Model="gru4rec")["λ"] == "n/a"
    assert len(cells(markdown)) == 4
    assert csv.loc[csv["model"] == "bert4rec", "residual_scale"].isna().all()
    assert csv["note"].str.startswith("n/a").sum() == 2
    assert latex.count("n/a: ") == 2


@pytest.mark.parametrize("kind", ["gru4rec", "bert4rec"])
def test_table4_of_a_study_without_a_choice(tmp_path, kind):
    """A study of that model alone."""
    paths = (
        without_rows(tmp_path, kind, ["rescale"])
        if kind == "gru4rec"
        else [rescale_of(tmp_path, kind, backs=False)]
    )
    csv, markdown, _ = make_table4(tmp_path, paths)
    assert row_of(markdown, Model=kind)["Chosen on"].startswith("n/a: ")
    assert csv["model"].tolist() == [kind]


def test_table4_fails_where_a_file_is_missing(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        make_table4(
            tmp_path, [rescale_of(tmp_path, "sasrec"), tmp_path / "other" / "rescale.parquet"]
        )


# All


def test_latex_holds_no_character_that_latex_does_not_know(tmp_path):
    """``write`` promises that booktabs is all it needs: Greek letters and the like must
    be commands, not characters.
    """
    pairs = [
        mixing_of(tmp_path, "sasrec", dict.fromkeys(PARTS, 0.5)),
        mixing_of(tmp_path, "sasrec", dict.fromkeys(PARTS, 0.6), seed=2),
    ]
    unknown = set()
    for _, _, latex in (
        make_table3(tmp_path, pairs),
        make_table4(tmp_path, [rescale_of(tmp_path, "sasrec")]),
    ):
        # What the default input encoding (UTF-8) maps without a package: Latin-1,
        # dashes, quotes, the ellipsis.
        unknown |= {
            character for character in latex if ord(character) > 255 and character not in "–—‘’“”…"
        }
    assert unknown == set()


def test_a_table_that_cannot_be_made_leaves_none(tmp_path):
    with pytest.raises(InputError):
        make_table4(tmp_path, [tmp_path / "other" / "rescale.parquet"])
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


# Table 5 and comparisons


def test_table5_shows_differences_with_their_p(tmp_path):
    """A difference bears its sign and the corrected p; what has no value says so."""
    facts = pd.DataFrame(
        [
            {
                "ties": "item",
                "measure": "NDCG",
                "value": 0.03,
                "ci_low": 0.02,
                "ci_high": 0.04,
                "sd_seeds": 0.001,
                "trainings": 2,
            },
            {
                "ties": "item - random",
                "measure": "NDCG",
                "value": 0.01,
                "ci_low": -0.005,
                "ci_high": 0.02,
                "trainings": 8,
                "p": 0.01,
                "p_holm": 0.02,
            },
            {
                "ties": "item - random",
                "measure": "full shuffle, %",
                "value": -20.0,
                "ci_low": -25.0,
                "ci_high": -15.0,
                "trainings": 8,
                "p": 0.001,
                "p_holm": 0.002,
            },
            {"ties": "item", "measure": "full shuffle, %", "value": None, "trainings": 2},
        ]
    ).assign(dataset="d", split="gts", model="m", targets="all", users=1234)
    _, markdown, _ = written(tmp_path, tables.tie_order(Rows(facts), 10))
    assert row_of(markdown, Ties="item")["NDCG@10"] == "0.0300 ± 0.0010 [0.0200, 0.0400]"
    assert row_of(markdown, Ties="item")["full shuffle, %"] == "n/a"
    row = row_of(markdown, Ties="item - random")
    assert row["NDCG@10"] == "+0.0100 [-0.0050, +0.0200], p 0.02"
    assert row["full shuffle, %"] == "-20.0 [-25.0, -15.0], p 0.002"
    assert (row["Users"], row["Trainings"]) == ("1,234", "8")
    assert "all 2 differences" in markdown


def test_comparisons_show_both_p_and_what_the_draws_can_reach(tmp_path):
    """p and corrected p each in its own column, λ named, and a model without a residual
    by its reason.
    """
    study = {"dataset": "d", "split": "gts", "trainings": 2, "users": 900, "cases": 900}
    facts = pd.DataFrame(
        [
            {
                "model": "a",
                "contrast": "residual scale",
                "condition": "0.50",
                "reference": "1.0",
                "measure": "HRLI",
                "value": -0.25,
                "ci_low": -0.3,
                "ci_high": -0.2,
                "sd_seeds": 0.01,
                "p": 0.003,
                "p_holm": 0.006,
            },
            {
                "model": "a",
                "contrast": "intervention",
                "condition": "full",
                "reference": "ordered",
                "measure": "NDCG",
                "value": -0.01,
                "ci_low": -0.02,
                "ci_high": -0.001,
                "sd_seeds": 0.001,
                "p": 0.04,
                "p_holm": 0.04,
            },
        ]
    ).assign(**study)
    missing = [("d", "gts", "b", seed, "no attention block") for seed in (1, 2)]
    table = tables.comparisons(Rows(facts, missing), 10, 9999)
    (row,) = table.facts[table.facts["note"] != ""].to_dict("records")
    assert (row["model"], row["contrast"], row["note"]) == (
        "b",
        "residual scale",
        "no attention block",
    )
    assert np.isnan(row["value"]) and len(table.facts) == 3
    _, markdown, _ = written(tmp_path, table)
    row = row_of(markdown, Model="a", Contrast="residual scale")
    assert (row["Difference"], row["Of"], row["Value"]) == (
        "λ 0.5 − λ 1",
        "HRLI@10",
        "-0.2500 ± 0.0100",
    )
    assert (row["p"], row["p (Holm)"], row["95 % interval"]) == (
        "0.003",
        "0.006",
        "[-0.3000, -0.2000]",
    )
    row = row_of(markdown, Model="b")
    assert (row["Difference"], row["p"], row["Users"]) == ("n/a: no attention block", "n/a", "n/a")
    assert "(Holm) within each contrast (1 of residual scale, 1 of intervention)" in markdown
    assert (
        "draws 9,999 sets of signs, and the smallest p that they can give is 0.0001 after"
        in markdown
    )
    row = row_of(markdown, Contrast="intervention")
    assert row["Difference"] == "all shuffled − ordered"
    more = pd.concat([facts, facts[:1], facts[:1]], ignore_index=True)
    assert "is 0.0003 after" in tables.comparisons(Rows(more), 10, 9999).caption
