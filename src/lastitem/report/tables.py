"""Tables 1 to 5, comparisons and claims: a tidy CSV for machines, and the same facts
laid out for readers in Markdown and LaTeX.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from lastitem.files import write_aside
from lastitem.report.summaries import ALL_SEEDS, STUDY_COLUMNS
from lastitem.report.tie_order import TIES_DIFFERENCE
from lastitem.study.parts import HEAD_SHARE, PARTS, WHOLE_STACK
from lastitem.study.runs import RUN_COLUMNS

NOT_APPLICABLE = "n/a"
STATISTICS = (
    "users",
    "items",
    "interactions",
    "avg_length",
    "density_percent",
    "days",
    "tied_transitions_percent",
    "tied_targets_percent",
)
#: LaTeX: cells with more characters than a line are set in lines of a paragraph's
#: width, tables with more lines than a page over pages.
LINE, PARAGRAPH, PAGE = 30, "4.5cm", 50
#: K of the paper's charts.
CHARTED_CUTOFF = 10
RAW_COUNTS = ("raw_users", "raw_items", "raw_interactions", "bad_rows")


@dataclass
class Table:
    """One table: ``facts`` go into the CSV, ``layout`` (text cells) and ``caption``
    into Markdown and LaTeX.

    ``best`` marks cells of the layout to print bold: column → row positions.
    """

    facts: pd.DataFrame
    layout: pd.DataFrame
    caption: str
    best: Mapping[str, Sequence[int]]


def write_csv(facts: pd.DataFrame, path: str | Path) -> None:
    """Write a tidy CSV: UTF-8, numbers with ten significant digits, empty where there
    is no value.
    """
    with write_aside(path) as aside:
        facts.to_csv(aside, index=False, float_format="%.10g", lineterminator="\n")


def read_csv(path: str | Path) -> pd.DataFrame:
    """Read a tidy CSV; names stay the text they are, also 007 and NA."""
    names = {name: str for name in (*STUDY_COLUMNS, "ties", "order", "measure")}
    return pd.read_csv(path, dtype=names, keep_default_na=False, na_values=[""])


def read_charts(path: str | Path) -> pd.DataFrame:
    """The numbers of the paper's charts: dataset, model, hrli10, hrl2i10, ndcg10,
    partial_change_percent, full_change_percent.
    """
    return pd.read_csv(path, dtype={"dataset": str, "model": str}, keep_default_na=False)


def write(table: Table, csv: str | Path, markdown: str | Path, latex: str | Path) -> None:
    """Write a table in its three forms. The LaTeX needs the packages array, booktabs,
    graphicx and longtable.
    """
    write_csv(table.facts, csv)
    bold = table.layout.copy()
    for column, rows in table.best.items():
        place = bold.columns.get_loc(column)
        for row in rows:
            bold.iat[row, place] = f"**{bold.iat[row, place]}**"
    with write_aside(markdown) as aside:
        body = bold.to_markdown(
            index=False, disable_numparse=True, colalign=["left"] * bold.shape[1]
        )
        aside.write_text(f"{table.caption}\n\n{body}\n", encoding="utf-8")

    def weight(column: pd.Series) -> list[str]:
        rows = table.best.get(column.name, ())
        return ["font-weight: bold;" if row in rows else "" for row in range(len(column))]

    style = (
        table.layout.style.hide(axis="index")
        .format(_latex)
        .format_index(_latex, axis=1)
        .apply(weight)
    )
    with write_aside(latex) as aside:
        aside.write_text(
            _typeset(style, _latex(re.sub(r"^Table \d+\. ", "", table.caption)), table.layout),
            encoding="utf-8",
        )


def _typeset(style: Styler, caption: str, layout: pd.DataFrame) -> str:
    """LaTeX no wider than the text: a float is scaled down to it, a table longer than a
    page is broken over pages in small type.
    """
    width = layout.map(len)
    columns = "".join(
        f">{{\\raggedright\\arraybackslash}}p{{{PARAGRAPH}}}" if longest > LINE else "l"
        for longest in width.max()
    )
    if np.ceil(width / LINE).max(axis=1).sum() > PAGE:
        long = style.to_latex(
            environment="longtable",
            column_format=columns,
            hrules=True,
            convert_css=True,
            caption=caption,
        )
        return (
            "\\begingroup\\scriptsize\\setlength{\\tabcolsep}{3pt}"
            f"\\setlength{{\\LTcapwidth}}{{\\linewidth}}\n{long}\\endgroup\n"
        )
    tabular = style.to_latex(column_format=columns, hrules=True, convert_css=True)
    narrower = "\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi"
    fitted = f"\\resizebox{{{narrower}}}{{!}}{{%\n{tabular.rstrip()}}}"
    return (
        f"\\begin{{table}}[htbp]\n\\centering\n\\caption{{{caption}}}\n\\smallskip\n"
        f"{fitted}\n\\end{{table}}\n"
    )


def table1(statistics: Sequence[Mapping[str, Any]], published: pd.DataFrame) -> Table:
    """Dataset statistics after filtering, the paper's row below ours
    where it has one.
    """
    rows = []
    for counts in statistics:
        raw = {f"raw_{key}": counts["raw"][key] for key in ("users", "items", "interactions")}
        bad = {"bad_rows": sum(counts["raw"]["bad_rows"].values())}
        rows.append(
            {
                "dataset": counts["dataset"],
                "source": "measured",
                "ties": counts["ties"],
                **counts["core"],
                **raw,
                **bad,
            }
        )
        for row in published[published["dataset"] == counts["dataset"]].to_dict("records"):
            rows.append({**row, "source": "paper"})
    facts = pd.DataFrame(rows, columns=["dataset", "source", "ties", *STATISTICS, *RAW_COUNTS])
    minimum = sorted({counts["minimum_events"] for counts in statistics})
    formats = {
        "users": "{:,.0f}",
        "items": "{:,.0f}",
        "interactions": "{:,.0f}",
        "avg_length": "{:.1f}",
        "density_percent": "{:.2f}",
        "days": "{:,.0f}",
        "tied_transitions_percent": "{:.1f}",
        "tied_targets_percent": "{:.1f}",
        "raw_interactions": "{:,.0f}",
        "bad_rows": "{:,.0f}",
    }
    layout = facts.drop(columns=["raw_users", "raw_items"])
    for column, form in formats.items():
        layout[column] = [_cell(form, value) for value in facts[column]]
    layout["ties"] = layout["ties"].fillna("")
    layout.columns = [
        "Dataset",
        "Source",
        "Tie order",
        "Users",
        "Items",
        "Interactions",
        "Avg. length",
        "Density %",
        "Days",
        "Tied transitions %",
        "Tied targets %",
        "Read",
        "Bad rows",
    ]
    caption = (
        f"Table 1. Statistics after {'/'.join(map(str, minimum))}-core filtering and removal of"
        " consecutive repeats. Tied transitions: share of consecutive events of a user with equal"
        " time; tied targets: share of users whose last event has the time of the one before."
        " Where it is high, the order of a history is partly an artefact of the file. Read:"
        " interactions before filtering; bad rows: rows of the file that could not be used."
    )
    return Table(facts, layout, caption, {})


def _in_the_paper(
    published: pd.DataFrame, dataset: str, split: str, model: str
) -> Mapping[str, float]:
    """The paper's numbers for a model on a log, read off its charts (``gts``, K = 10);
    none where it has none.
    """
    rows = (
        published[(published["dataset"] == dataset) & (published["model"] == model)]
        if split == "gts"
        else published[:0]
    )
    return rows.iloc[0].to_dict() if len(rows) else {}


def table2(
    accuracy: pd.DataFrame,
    evaluations: Sequence[Mapping[str, Any]],
    published: pd.DataFrame,
    cutoff: int,
) -> Table:
    """Accuracy per dataset and model: mean ± sd over seeds, with n, and the paper's
    beside it where there is one.

    Parameters
    ----------
    accuracy : :func:`lastitem.report.summaries.accuracy`.
    evaluations : evaluation.json of each run.
    published : the paper's charts, see :func:`read_charts`.
    cutoff : K of the layout.
    """
    counts = pd.DataFrame(evaluations)
    keys = [*STUDY_COLUMNS]
    covered = counts.drop(columns="coverage").merge(
        pd.DataFrame(
            [
                {**{key: entry[key] for key in RUN_COLUMNS}, "cutoff": int(k), "covered": v}
                for entry in evaluations
                for k, v in entry["coverage"].items()
            ]
        ),
        on=RUN_COLUMNS,
    )
    coverage = covered.groupby([*keys, "cutoff"], sort=False).agg(
        value=("covered", "mean"),
        sd_seeds=("covered", "std"),
        seeds=("seed", "size"),
        users=("users", "first"),
        cases=("targets", "first"),
    )
    facts = pd.concat(
        [accuracy, coverage.reset_index().assign(metric="coverage")], ignore_index=True
    )
    per_study = (
        counts.groupby(keys, sort=False)[["cold_targets", "targets_lost_to_filter", "filter_seen"]]
        .first()
        .reset_index()
    )
    facts = facts.merge(per_study, on=keys)
    charted = [
        _in_the_paper(published, *study).get("ndcg10", np.nan)
        for study in facts[keys].itertuples(index=False)
    ]
    facts["paper"] = np.where(
        (facts["metric"] == "ndcg") & (facts["cutoff"] == CHARTED_CUTOFF), charted, np.nan
    )

    headline = facts[facts["cutoff"] == cutoff]
    labels = {
        "ndcg": f"NDCG@{cutoff}",
        "hr": f"HR@{cutoff}",
        "mrr": f"MRR@{cutoff}",
        "coverage": f"Coverage@{cutoff}",
    }
    layout_rows = []
    for study, group in headline.groupby(keys, sort=False):
        by_metric = group.set_index("metric")
        first = by_metric.iloc[0]
        row = {"Dataset": study[0], "Split": study[1], "Model": study[2]}
        row |= {label: _spread(by_metric.loc[metric]) for metric, label in labels.items()}
        low, high = by_metric.loc["ndcg", ["ci_low", "ci_high"]]
        row[f"NDCG@{cutoff} 95 % interval"] = f"[{low:.4f}, {high:.4f}]"
        if headline["paper"].notna().any():
            row[f"Paper's NDCG@{cutoff}"] = _cell("{:.4f}", by_metric.at["ndcg", "paper"])
        row |= {
            "Users": f"{first['users']:,}",
            "Targets": f"{first['cases']:,}",
            "Seeds": str(first["seeds"]),
        }
        row |= {
            "Cold": f"{first['cold_targets']:,}",
            "Lost to filter": f"{first['targets_lost_to_filter']:,}",
        }
        layout_rows.append(row)
    layout = pd.DataFrame(layout_rows)
    best: dict[str, list[int]] = {label: [] for label in labels.values()}
    for _, rows in layout.groupby(["Dataset", "Split"], sort=False):
        for label in labels.values():
            values = [float(layout.at[row, label].split()[0]) for row in rows.index]
            best[label] += [
                row for row, value in zip(rows.index, values, strict=True) if value == max(values)
            ]
    caption = (
        "Table 2. Accuracy on the test part, full-catalogue ranking; seen items left out:"
        f" {_seen(per_study)}. Mean over seeds, ± standard deviation where there are several; the"
        " interval is a bootstrap over users. Cold: targets that never occur in training. Lost to"
        " filter: targets already in the user's history, which the seen filter makes impossible to"
        " hit; they count as misses. Best in bold."
    )
    if headline["paper"].notna().any():
        caption += " The paper's values are read off its charts."
    return Table(facts, layout, caption, best)


def table3(mixing: pd.DataFrame, readout: pd.DataFrame) -> Table:
    """Mixing ratios of Attn, AttnRes and AttnResLN per dataset, layer and model.

    Parameters
    ----------
    mixing : rows of mixing.parquet.
    readout : :func:`lastitem.report.summaries.mixing_at_readout` of the users' ratios.
    """
    keys = [*STUDY_COLUMNS, "layer", "part", "positions"]
    rows = [
        {
            **dict(zip(keys, key, strict=True)),
            "mean": group["mean"].mean(),
            "median": group["median"].mean(),
            "sd": group["sd"].mean(),
            "n": group["n"].iloc[0],
            "sd_seeds": group["mean"].std(),
            "seeds": len(group),
            "single_item_inputs": group["single_item_inputs"].iloc[0],
            "note": "",
        }
        for key, group in (mixing.groupby(keys, sort=False) if len(mixing) else ())
    ]
    facts = pd.DataFrame(
        rows,
        columns=[
            *keys,
            "mean",
            "median",
            "sd",
            "n",
            "sd_seeds",
            "seeds",
            "single_item_inputs",
            "note",
        ],
    )
    intervals = readout.assign(positions="latest")[[*keys, "ci_low", "ci_high"]]
    facts = facts.merge(intervals, on=keys, how="left")
    missing = pd.DataFrame(
        sorted(
            {
                (*entry[:3], f"{NOT_APPLICABLE}: {entry[4]}")
                for entry in mixing.attrs["not_applicable"]
            }
        ),
        columns=[*STUDY_COLUMNS, "note"],
    )
    measured = facts.groupby(STUDY_COLUMNS, sort=False)["layer"].agg(
        lambda layers: WHOLE_STACK in set(layers)
    )
    mixed = (
        measured[~measured].index.to_frame(index=False)
        if len(facts)
        else pd.DataFrame(columns=STUDY_COLUMNS)
    )
    mixed = mixed.assign(
        layer=WHOLE_STACK,
        part=PARTS[-1],
        positions="latest",
        note=f"{NOT_APPLICABLE}: another branch beside attention",
    )
    facts = pd.concat([facts, *(rows for rows in (mixed, missing) if len(rows))], ignore_index=True)

    layout_rows = []
    for key, group in facts[facts["note"] == ""].groupby(
        [*STUDY_COLUMNS, "positions", "layer"], sort=False
    ):
        layer = "whole stack" if int(key[4]) == WHOLE_STACK else str(int(key[4]))
        row = dict(
            zip(["Dataset", "Split", "Model", "Positions", "Layer"], [*key[:4], layer], strict=True)
        )
        ratios = group.set_index("part")
        for part in PARTS:
            if part in ratios.index:
                own = ratios.loc[part].rename({"mean": "value"})
                row[part] = _spread(own, digits=3)
                if pd.notna(own["ci_low"]):
                    row[part] += f" [{own['ci_low']:.3f}, {own['ci_high']:.3f}]"
                row[f"{part} median"] = f"{own['median']:.3f}"
        heads = ratios[ratios.index.str.startswith(HEAD_SHARE)]
        if len(heads):
            row["Context by head"] = " / ".join(f"{share:.2f}" for share in heads["mean"])
        row |= {"n": f"{int(group['n'].iloc[0]):,}", "Seeds": str(int(group["seeds"].iloc[0]))}
        layout_rows.append(row)
    for entry in mixed.to_dict("records"):
        names = {"Dataset": entry["dataset"], "Split": entry["split"], "Model": entry["model"]}
        layout_rows.append(
            names | {"Positions": "latest", "Layer": "whole stack", PARTS[-1]: entry["note"]}
        )
    for entry in missing.to_dict("records"):
        layout_rows.append(
            {
                "Dataset": entry["dataset"],
                "Split": entry["split"],
                "Model": entry["model"],
                "Positions": entry["note"],
            }
        )
    layout = pd.DataFrame(layout_rows).fillna(NOT_APPLICABLE)
    caption = (
        "Table 3. Mixing ratio of each attention block on the test part: the share of a position's"
        " vector that comes from other positions, for the attention output alone (Attn), with the"
        " residual (AttnRes), and with residual and layer normalization (AttnResLN). 0: the"
        " position keeps only itself; 1: only others. latest: the position the prediction is read"
        " from (n targets); all: every real position (n positions). Whole stack: the norms"
        " multiplied through all blocks, in the manner of attention rollout; it assumes that parts"
        " do not cancel, and that what stands between the blocks keeps their shares. Context by"
        " head: share of each head in what comes from other positions. Mean over seeds, ± standard"
        " deviation where there are several; in brackets, at the latest position, the bootstrap"
        " interval over users. Inputs with one item are left out"
        f" ({_counts(facts.get('single_item_inputs'))})."
    )
    return Table(facts, layout, caption, {})


def table4(
    choices: pd.DataFrame,
    spread: pd.DataFrame,
    not_applicable: Sequence[tuple],
    tolerance: float,
    cutoff: int,
) -> Table:
    """Recovery and chosen λ: what validation chose and, labelled as such, what test
    would have chosen; a row per seed, and one of all.

    Parameters
    ----------
    choices : :func:`lastitem.report.summaries.chosen_scales`.
    spread : :func:`lastitem.report.summaries.at_the_choice` of them.
    not_applicable : dataset, split, model, seed and reason of the runs without a
        choice.
    tolerance : the ε shown to readers.
    """
    missing = pd.DataFrame(
        [(*entry[:3], str(entry[3]), f"{NOT_APPLICABLE}: {entry[4]}") for entry in not_applicable],
        columns=[*RUN_COLUMNS, "note"],
    )
    facts = _choices_with_all_seeds(choices, spread) if len(choices) else choices.assign(note="")
    shown = facts[facts["tolerance"] == tolerance].to_dict("records") if len(choices) else []
    rows = [_row_of_choice(choice, cutoff) for choice in shown] + [
        {
            "Dataset": entry["dataset"],
            "Split": entry["split"],
            "Model": entry["model"],
            "Seed": entry["seed"],
            "Chosen on": entry["note"],
        }
        for entry in missing.to_dict("records")
    ]
    facts = pd.concat([facts, missing], ignore_index=True) if len(missing) else facts
    layout = pd.DataFrame(rows).fillna(NOT_APPLICABLE)
    caption = (
        "Table 4. Recovery on the test part at the residual scale λ chosen on validation (largest"
        f" recovery that keeps {100 * (1 - tolerance):g} % of the validation HR@{cutoff}), one row"
        " per trained model (seed) and, where there are several, one of all: counts and rates are"
        " means over seeds, recovery and HR kept are pooled, ± standard deviation over seeds. R:"
        " number of targets missed at the last position but hit when the read-out is moved back by"
        " one to three positions, at λ = 1. Recovery: share of R that is hit under λ (n/a where R"
        " is empty). Hits lost and won: against λ = 1, over all n targets. HR kept: relative to λ"
        " = 1. In brackets: 95 % bootstrap intervals over users at the chosen λ. The oracle"
        " chooses λ on the test part itself: a bound, not a result."
    )
    return Table(facts, layout, caption, {})


def _choices_with_all_seeds(choices: pd.DataFrame, spread: pd.DataFrame) -> pd.DataFrame:
    """The choices with their intervals, and behind those of several seeds a row of all:
    counts are means, the rest is of ``spread``.
    """
    of_choice = [*STUDY_COLUMNS, "tolerance", "selection"]
    counts = [
        "recoverable",
        "recovered",
        "hits_won",
        "hits_lost",
        "hit_rate",
        "hit_rate_at_1",
        "ndcg",
        "ndcg_at_1",
        "validation_recoverable",
    ]
    several = choices.groupby(of_choice, sort=False).filter(lambda rows: len(rows) > 1)
    means = (
        several.groupby(of_choice, sort=False)
        .agg({"cases": "first", **dict.fromkeys(counts, "mean")})
        .reset_index()
    )
    each = choices.drop(columns=["recovery", "hit_rate_kept"]).assign(
        seed=choices["seed"].astype(str)
    )
    facts = pd.concat([each, means.assign(seed=ALL_SEEDS)], ignore_index=True).assign(note="")
    for measure in ("recovery", "hit_rate_kept"):
        own = spread.loc[
            spread["measure"] == measure,
            [*of_choice, "seed", "value", "ci_low", "ci_high", "sd_seeds"],
        ]
        own = own.set_axis(
            [
                *of_choice,
                "seed",
                *(f"{measure}{part}" for part in ("", "_ci_low", "_ci_high", "_sd_seeds")),
            ],
            axis=1,
        )
        facts = facts.merge(own, on=[*of_choice, "seed"], how="left", validate="one_to_one")
    models = {
        name: place
        for place, name in enumerate(dict.fromkeys(map(tuple, choices[STUDY_COLUMNS].to_numpy())))
    }
    facts["place"] = [models[tuple(name)] for name in facts[STUDY_COLUMNS].to_numpy()]
    facts = facts.sort_values(
        ["place", "tolerance", "selection"], ascending=[True, True, False], kind="stable"
    )
    return facts.drop(columns="place").reset_index(drop=True)


def _row_of_choice(choice: Mapping[str, Any], cutoff: int) -> dict[str, str]:
    """A row of table 4 as its readers see it."""
    of_all = choice["seed"] == ALL_SEEDS
    count = ",.1f" if of_all else ",.0f"
    return {
        "Dataset": choice["dataset"],
        "Split": choice["split"],
        "Model": choice["model"],
        "Seed": choice["seed"],
        "Chosen on": choice["selection"],
        "λ": "of each" if of_all else f"{choice['residual_scale']:g}",
        "n": f"{choice['cases']:,.0f}",
        "R": f"{choice['recoverable']:{count}}",
        "Recovered": f"{choice['recovered']:{count}}",
        "Recovery": _with_interval(choice, "recovery"),
        "Hits lost": f"{choice['hits_lost']:{count}}",
        "Hits won": f"{choice['hits_won']:{count}}",
        f"HR@{cutoff} at λ": f"{choice['hit_rate']:.4f}",
        f"HR@{cutoff} at 1": f"{choice['hit_rate_at_1']:.4f}",
        f"HR@{cutoff} kept": _with_interval(choice, "hit_rate_kept"),
        f"NDCG@{cutoff} at λ": f"{choice['ndcg']:.4f}",
        f"NDCG@{cutoff} at 1": f"{choice['ndcg_at_1']:.4f}",
    }


def _with_interval(row: Mapping[str, Any], measure: str) -> str:
    value, low, high, deviation = (
        row[f"{measure}{part}"] for part in ("", "_ci_low", "_ci_high", "_sd_seeds")
    )
    if pd.isna(value):
        return NOT_APPLICABLE
    return (
        f"{value:.3f}{'' if pd.isna(deviation) else f' ± {deviation:.3f}'} [{low:.3f}, {high:.3f}]"
    )


def table5(found: pd.DataFrame, cutoff: int) -> Table:
    """Headline measures by the order of ties; ``found`` is of
    :func:`lastitem.report.tie_order.tie_order_effects`.
    """
    rows = []
    for key, group in found.groupby([*STUDY_COLUMNS, "targets", "ties"], sort=False):
        row = dict(zip(["Dataset", "Split", "Model", "Targets", "Ties"], key, strict=True))
        for _, fact in group.iterrows():
            percent = fact["measure"].endswith("%")
            name = fact["measure"] if percent else f"{fact['measure']}@{cutoff}"
            sign = "+" if percent or fact["ties"] == TIES_DIFFERENCE else ""
            value, low, high = (
                f"{fact[side]:{sign}.{1 if percent else 4}f}"
                for side in ("value", "ci_low", "ci_high")
            )
            spread = (
                ""
                if pd.isna(fact["sd_seeds"])
                else f" ± {fact['sd_seeds']:.{1 if percent else 4}f}"
            )
            tested = "" if pd.isna(fact["p_holm"]) else f", p {fact['p_holm']:.2g}"
            row[name] = (
                NOT_APPLICABLE
                if pd.isna(fact["value"])
                else f"{value}{spread} [{low}, {high}]{tested}"
            )
        row |= {
            "Users": f"{int(group['users'].max()):,}",
            "Trainings": str(int(group["seeds"].iloc[0])),
        }
        rows.append(row)
    caption = (
        "Table 5. The same log with events of equal time ordered by item id (what a stable sort"
        " makes of a file sorted by item) and at random, each with its own trainings: accuracy,"
        " last-item hit rates, and what shuffling the history changes. Tied: targets with the time"
        " of the item before them. Over trainings (seeds, and draws of the random order): means of"
        " accuracy and hit rates, pooled changes, ± standard deviation where there are several; in"
        " brackets the bootstrap interval over users. item - random: the difference, in percentage"
        " points for the shuffles, paired over the users that stand in the row under both orders;"
        " p of a test that swaps users between the orders, corrected for all"
        f" {int(found['p'].notna().sum())} differences (Holm)."
    )
    return Table(found, pd.DataFrame(rows).fillna(NOT_APPLICABLE), caption, {})


def comparisons(found: pd.DataFrame, cutoff: int, permutations: int) -> Table:
    """Every paired difference of the study with its interval and p-value; ``found`` is
    of :func:`lastitem.report.summaries.comparisons`.
    """
    tested = found[found["note"] == ""]
    rows = [
        {
            "Dataset": row["dataset"],
            "Split": row["split"],
            "Model": row["model"],
            "Contrast": row["contrast"],
            "Difference": f"{_named(row, 'condition')} − {_named(row, 'reference')}",
            "Of": f"{row['measure']}@{cutoff}",
            "Value": _spread(row),
            "95 % interval": f"[{row['ci_low']:.4f}, {row['ci_high']:.4f}]",
            "p": f"{row['p']:.2g}",
            "p (Holm)": f"{row['p_holm']:.2g}",
            "Users": f"{row['users']:,.0f}",
            "Seeds": f"{row['seeds']:.0f}",
        }
        for _, row in tested.iterrows()
    ]
    for row in found[found["note"] != ""].to_dict("records"):
        note = f"{NOT_APPLICABLE}: {row['note']}"
        rows.append(
            {
                "Dataset": row["dataset"],
                "Split": row["split"],
                "Model": row["model"],
                "Contrast": row["contrast"],
                "Difference": note,
            }
        )
    layout = pd.DataFrame(rows).fillna(NOT_APPLICABLE)
    caption = (
        "Comparisons. Differences on the test part, paired over users: shuffled against ordered"
        " histories (mean over the shuffles), residual scale λ against 1, model against model on"
        " the seeds both have. Mean over users and seeds, ± standard deviation over seeds where"
        " there are several; bootstrap interval over users; p of a sign-flip test over users, and"
        f" corrected for all {len(tested)} rows (Holm). Where the test is not exact it draws"
        f" {permutations:,} sets of signs, and the smallest p that they can give is"
        f" {min(1.0, len(tested) / (permutations + 1)):.2g} after the correction. The tests are"
        " about users: whether another training would differ the same way is what the seeds tell."
    )
    return Table(found, layout, caption, {})


def claims(found: pd.DataFrame, published: pd.DataFrame, cutoff: int) -> Table:
    """The paper's claims for each model, beside its own numbers; ``found`` is of
    :func:`lastitem.report.claims.claims`.
    """
    forms = {
        "last item only": "{partial_change_percent:+.1f} %",
        "order matters": "{full_change_percent:+.1f} %",
        "last-item privilege": "{hrli10:.3f} against {hrl2i10:.3f}",
    }
    charted = [
        _in_the_paper(published, *study) if cutoff == CHARTED_CUTOFF else {}
        for study in found[STUDY_COLUMNS].itertuples(index=False)
    ]
    paper = [
        forms[claim].format(**own) if own and claim in forms else ""
        for claim, own in zip(found["claim"], charted, strict=True)
    ]
    found = found.assign(paper=paper)
    layout = pd.DataFrame(
        {
            "Dataset": found["dataset"],
            "Split": found["split"],
            "Model": found["model"],
            "Claim": found["meaning"],
            "Holds": found["holds"],
            "Measured": found["evidence"],
            **({"In the paper": found["paper"]} if any(paper) else {}),
            "Users": [f"{users:,}" for users in found["users"]],
            "Seeds": found["seeds"].astype(str),
        }
    )
    caption = (
        f"Claims of the paper, held against this study (K = {cutoff}, test part). Square brackets:"
        " 95 % bootstrap intervals over users; where they are given, a claim holds only if they"
        " are wholly on its side, fails only if they are wholly on the other, and is undecided"
        " between the two. The other lines compare means over users and seeds."
    )
    if any(paper):
        caption += " The paper's numbers are read off its charts."
    return Table(found, layout, caption, {})


def _named(row: pd.Series, side: str) -> str:
    return f"λ {float(row[side]):g}" if row["contrast"] == "residual scale" else row[side]


def _cell(form: str, value: float) -> str:
    return NOT_APPLICABLE if pd.isna(value) else form.format(value)


def _spread(row: pd.Series, digits: int = 4) -> str:
    spread = "" if pd.isna(row["sd_seeds"]) else f" ± {row['sd_seeds']:.{digits}f}"
    return f"{row['value']:.{digits}f}{spread}"


def _seen(per_study: pd.DataFrame) -> str:
    on = sorted(set(per_study.loc[per_study["filter_seen"].astype(bool), "dataset"]))
    off = sorted(set(per_study.loc[~per_study["filter_seen"].astype(bool), "dataset"]))
    return "; ".join(
        f"{word} for {', '.join(names)}" for word, names in (("yes", on), ("no", off)) if names
    )


def _counts(column: pd.Series | None) -> str:
    known = sorted(set(column.dropna().astype(int))) if column is not None else []
    return f"{', '.join(f'{count:,}' for count in known)} inputs" if known else "none"


def _latex(text: str) -> str:
    special = {character: f"\\{character}" for character in "%_&#${}"}
    special |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {
        "λ": r"$\lambda$",
        "ε": r"$\varepsilon$",
        "−": "$-$",
        "±": r"$\pm$",
        "×": r"$\times$",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
    }
    minus_signs = re.sub(r"(?<!\w)-(?=\d)", "−", text)
    return "".join(special.get(character, character) for character in minus_signs)
