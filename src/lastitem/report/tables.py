"""The tables: one function each, from summaries to facts and a layout for readers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from lastitem.report.names import shown_intervention
from lastitem.report.summaries import WITHOUT_COLD
from lastitem.report.table import NOT_APPLICABLE, Table, cell, counts, laid_out, with_interval

# A table in a module of its own.
from lastitem.report.worth_tables import worths as worths
from lastitem.study.runs import (
    ALL_SEEDS,
    HEAD_SHARE,
    INTERVENTION,
    PARTS,
    RUN_COLUMNS,
    STUDY_COLUMNS,
    TIES_DIFFERENCE,
    WHOLE_STACK,
    Rows,
)

#: Below it a corrected p-value tells two models apart.
SEPARATED = 0.05
#: K of the paper's charts.
CHARTED_CUTOFF = 10


def statistics(summary: Rows, published: DataFrame) -> Table:
    """Dataset statistics after filtering, the paper's row below ours
    where it has one.
    """
    measured = summary.rows.drop(columns="minimum_events")
    measured.insert(1, "source", "measured")
    rows = []
    for row in measured.to_dict("records"):
        paper = published[published["dataset"] == row["dataset"]].to_dict("records")
        rows += [row, *({**beside, "source": "paper"} for beside in paper)]
    facts = DataFrame(rows, columns=measured.columns)
    columns = {
        "dataset": ("Dataset", None),
        "source": ("Source", None),
        "ties": ("Tie order", None),
        "users": ("Users", "{:,.0f}"),
        "items": ("Items", "{:,.0f}"),
        "interactions": ("Interactions", "{:,.0f}"),
        "avg_length": ("Avg. length", "{:.1f}"),
        "density_percent": ("Density %", "{:.2f}"),
        "days": ("Days", "{:,.0f}"),
        "tied_transitions_percent": ("Tied transitions %", "{:.1f}"),
        "tied_targets_percent": ("Tied targets %", "{:.1f}"),
        "raw_interactions": ("Read", "{:,.0f}"),
        "bad_rows": ("Bad rows", "{:,.0f}"),
    }
    layout = DataFrame(
        {
            name: [cell(form, value) for value in facts[column]]
            if form
            else facts[column].fillna("")
            for column, (name, form) in columns.items()
        }
    )
    minimum = sorted(set(summary.rows["minimum_events"]))
    caption = (
        f"Table 1. Statistics after {'/'.join(map(str, minimum))}-core filtering and removal of"
        " consecutive repeats. Tied transitions: share of consecutive events of a user with equal"
        " time; tied targets: share of users whose last event has the time of the one before."
        " Where it is high, the order of a history is partly an artefact of the file. Read:"
        " interactions before filtering; bad rows: rows of the file that could not be used."
    )
    return Table(facts, layout, caption)


def accuracy(summary: Rows, comparisons: Rows, published: DataFrame, cutoff: int) -> Table:
    """Accuracy per dataset and model: mean ± sd over seeds, with n, and the paper's
    beside it where there is one.

    Parameters
    ----------
    summary : :func:`lastitem.report.summaries.accuracy`.
    comparisons : :func:`lastitem.report.summaries.model_comparisons`: what is bold.
    published : the paper's charts: dataset, model, hrli10, hrl2i10, ndcg10,
        partial_change_percent, full_change_percent.
    cutoff : K of the layout.
    """
    facts = summary.rows
    of_study = facts[STUDY_COLUMNS].itertuples(index=False)
    charted = [_in_the_paper(published, *study).get("ndcg10", np.nan) for study in of_study]
    is_charted = (facts["metric"] == "ndcg") & (facts["cutoff"] == CHARTED_CUTOFF)
    facts = facts.assign(paper=np.where(is_charted, charted, np.nan))
    headline = facts[facts["cutoff"] == cutoff]
    beside = bool(headline["paper"].notna().any())
    labels = {
        metric: f"{name}@{cutoff}"
        for metric, name in (("ndcg", "NDCG"), ("hr", "HR"), ("mrr", "MRR"))
    } | {"coverage": f"Coverage@{cutoff}"}
    cold = headline["metric"].eq(WITHOUT_COLD).any()
    counts = {
        "Users": "users",
        "Targets": "cases",
        "Seeds": "trainings",
        "Cold": "cold_targets",
        "Lost to filter": "targets_lost_to_filter",
    }
    rows = []
    for study, group in headline.groupby(STUDY_COLUMNS, sort=False):
        by_metric = group.set_index("metric")
        first, ndcg = by_metric.iloc[0], by_metric.loc["ndcg"]
        paper = {f"Paper's NDCG@{cutoff}": cell("{:.4f}", ndcg["paper"])} if beside else {}
        rows.append(
            {
                **_named(study),
                **{label: _spread(by_metric.loc[metric]) for metric, label in labels.items()},
                f"NDCG@{cutoff} 95 % interval": f"[{ndcg['ci_low']:.4f}, {ndcg['ci_high']:.4f}]",
                **({f"NDCG@{cutoff} without cold": _without_cold(by_metric)} if cold else {}),
                **paper,
                **{name: f"{first[count]:,}" for name, count in counts.items()},
            }
        )
    charts = " The paper's values are read off its charts." if beside else ""
    caption = (
        "Table 2. Accuracy on the test part, full-catalogue ranking; seen items left out:"
        f" {_seen(facts)}. Mean over seeds, ± standard deviation where there are several; the"
        " interval is a bootstrap over users. Cold: targets that never occur in training. Lost to"
        " filter: targets already in the user's history, which the seen filter makes impossible to"
        f" hit; they count as misses. Bold: best on its log, and apart from every other"
        f" model there, yardsticks aside, by the paired test (p < {SEPARATED}, corrected).{charts}"
    )
    best = _separated(headline[headline["metric"] == "ndcg"], comparisons.rows)
    return Table(facts, laid_out(rows), caption, {labels["ndcg"]: best})


def _without_cold(by_metric: DataFrame) -> str:
    """NDCG over the targets that occur in training; none where all are cold."""
    known = WITHOUT_COLD in by_metric.index
    return _spread(by_metric.loc[WITHOUT_COLD]) if known else NOT_APPLICABLE


def _separated(ndcg: DataFrame, comparisons: DataFrame) -> list[int]:
    """Rows of the models that have the best NDCG of their dataset and split, and whose
    test against each other model there has a p-value below :data:`SEPARATED`.
    """
    found = []
    tested = comparisons[(comparisons["contrast"] == "model") & (comparisons["measure"] == "NDCG")]
    ndcg = ndcg.reset_index(drop=True)
    for log, own in ndcg.groupby(["dataset", "split"], sort=False):
        best = own["value"].idxmax()
        of_log = tested[(tested["dataset"] == log[0]) & (tested["split"] == log[1])]
        name = own.loc[best, "model"]
        sides = of_log[(of_log["condition"] == name) | (of_log["reference"] == name)]
        apart = sides[sides["p_holm"] < SEPARATED]
        others = {*apart["condition"], *apart["reference"]} - {name}
        compared = {*of_log["condition"], *of_log["reference"]} - {name}
        if compared and others == compared and name in {*of_log["condition"], *of_log["reference"]}:
            found.append(int(best))
    return found


def mixing(summary: Rows, readout: Rows) -> Table:
    """Mixing ratios of Attn, AttnRes and AttnResLN per dataset, layer and model.

    Parameters
    ----------
    summary : :func:`lastitem.report.summaries.mixing_ratios`.
    readout : :func:`lastitem.report.summaries.mixing_at_readout`.
    """
    keys = [*STUDY_COLUMNS, "layer", "part", "positions"]
    intervals = readout.rows.assign(positions="latest")[[*keys, "ci_low", "ci_high"]]
    measured = summary.rows.assign(note="").merge(intervals, on=keys, how="left")
    without = sorted({(*entry[:3], f"{NOT_APPLICABLE}: {entry[4]}") for entry in summary.missing})
    missing = DataFrame(without, columns=[*STUDY_COLUMNS, "note"])
    # A model with another branch beside attention has blocks, but no whole stack.
    studies = measured[STUDY_COLUMNS].drop_duplicates()
    stacks = measured.loc[measured["layer"] == WHOLE_STACK, STUDY_COLUMNS].drop_duplicates()
    has_stack = pd.MultiIndex.from_frame(studies).isin(pd.MultiIndex.from_frame(stacks))
    mixed = studies[~has_stack].assign(
        layer=WHOLE_STACK,
        part=PARTS[-1],
        positions="latest",
        note=f"{NOT_APPLICABLE}: another branch beside attention",
    )
    facts = pd.concat(
        [measured, *(rows for rows in (mixed, missing) if len(rows))], ignore_index=True
    )
    groups = measured.groupby([*STUDY_COLUMNS, "positions", "layer"], sort=False)
    rows = [_row_of_mixing(key, group.set_index("part")) for key, group in groups]
    for entry in mixed.to_dict("records"):
        stack = {"Positions": "latest", "Layer": "whole stack", PARTS[-1]: entry["note"]}
        rows.append(_named(entry) | stack)
    rows += [_named(entry) | {"Positions": entry["note"]} for entry in missing.to_dict("records")]
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
        f" ({counts(measured['single_item_inputs'])} inputs)."
    )
    return Table(facts, laid_out(rows), caption)


def _row_of_mixing(key: Sequence[Any], ratios: DataFrame) -> dict[str, str]:
    """A row of the table of mixing ratios: those of one model, positions and layer, by
    part.
    """
    layer = "whole stack" if int(key[4]) == WHOLE_STACK else str(int(key[4]))
    row = _named(key) | {"Positions": key[3], "Layer": layer}
    for part in (part for part in PARTS if part in ratios.index):
        own = ratios.loc[part].rename({"mean": "value"})
        row[part] = _spread(own, digits=3)
        if pd.notna(own["ci_low"]):
            row[part] += f" [{own['ci_low']:.3f}, {own['ci_high']:.3f}]"
        row[f"{part} median"] = f"{own['median']:.3f}"
    heads = ratios.loc[ratios.index.str.startswith(HEAD_SHARE), "mean"]
    if len(heads):
        row["Context by head"] = " / ".join(f"{share:.2f}" for share in heads)
    first = ratios.iloc[0]
    return row | {"n": f"{int(first['n']):,}", "Seeds": str(int(first["trainings"]))}


def recovery(choices: Rows, curves: Rows, tolerance: float, cutoff: int) -> Table:
    """Recovery and chosen λ: what validation chose and, labelled as such, what test
    would have chosen; a row per seed, and one of all.

    Parameters
    ----------
    choices : :func:`lastitem.report.summaries.at_the_choice`.
    curves : :func:`lastitem.report.summaries.recovery_curves`.
    tolerance : the ε shown to readers.
    """
    no_back = curves.rows.loc[curves.rows["recoverable"].isna(), RUN_COLUMNS].drop_duplicates()
    why = "its earlier positions hold no earlier prediction"
    without = [*curves.missing, *((*run, why) for run in no_back.itertuples(index=False))]
    missing = DataFrame(
        [(*entry[:3], str(entry[3]), f"{NOT_APPLICABLE}: {entry[4]}") for entry in without],
        columns=[*RUN_COLUMNS, "note"],
    )
    facts = choices.rows
    shown = facts[facts["tolerance"] == tolerance].to_dict("records")
    rows = [_row_of_choice(choice, cutoff) for choice in shown]
    rows += [
        _named(entry) | {"Seed": entry["seed"], "Chosen on": entry["note"]}
        for entry in missing.to_dict("records")
    ]
    facts = pd.concat([facts, missing], ignore_index=True) if len(missing) else facts
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
    return Table(facts, laid_out(rows), caption)


def _row_of_choice(choice: Mapping[str, Any], cutoff: int) -> dict[str, str]:
    """A row of the table of chosen λ as its readers see it."""
    of_all = choice["seed"] == ALL_SEEDS
    count = ",.1f" if of_all else ",.0f"
    return {
        **_named(choice),
        "Seed": choice["seed"],
        "Chosen on": choice["selection"],
        "λ": "of each" if of_all else f"{choice['residual_scale']:g}",
        "n": f"{choice['cases']:,.0f}",
        "R": f"{choice['recoverable']:{count}}",
        "Recovered": f"{choice['recovered']:{count}}",
        "Recovery": with_interval(choice, "recovery"),
        "Hits lost": f"{choice['hits_lost']:{count}}",
        "Hits won": f"{choice['hits_won']:{count}}",
        f"HR@{cutoff} at λ": f"{choice['hit_rate']:.4f}",
        f"HR@{cutoff} at 1": f"{choice['hit_rate_at_1']:.4f}",
        f"HR@{cutoff} kept": with_interval(choice, "hit_rate_kept"),
        f"NDCG@{cutoff} at λ": f"{choice['ndcg']:.4f}",
        f"NDCG@{cutoff} at 1": f"{choice['ndcg_at_1']:.4f}",
    }


def tie_order(summary: Rows, cutoff: int) -> Table:
    """Headline measures by the order of ties
    (:func:`lastitem.report.tie_order.tie_order`).
    """
    found = summary.rows
    rows = []
    for key, group in found.groupby([*STUDY_COLUMNS, "targets", "ties"], sort=False):
        row = _named(key) | {"Targets": key[3], "Ties": key[4]}
        for fact in group.to_dict("records"):
            percent = fact["measure"].endswith("%")
            name = fact["measure"] if percent else f"{fact['measure']}@{cutoff}"
            signed = percent or fact["ties"] == TIES_DIFFERENCE
            row[name] = with_interval(fact, form=f"{'+' if signed else ''}.{1 if percent else 4}f")
            if pd.notna(fact["value"]) and pd.notna(fact["p_holm"]):
                row[name] += f", p {fact['p_holm']:.2g}"
        users, trainings = int(group["users"].max()), int(group["trainings"].iloc[0])
        rows.append(row | {"Users": f"{users:,}", "Trainings": str(trainings)})
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
    return Table(found, laid_out(rows), caption)


def comparisons(summary: Rows, cutoff: int, permutations: int) -> Table:
    """Every paired difference of the study with its interval and p-value
    (:func:`lastitem.report.summaries.comparisons`); a model without a residual to scale
    has one row, whose ``note`` says so.
    """
    tested = summary.rows.assign(note="")
    without = sorted({(*entry[:3], entry[4]) for entry in summary.missing})
    missing = DataFrame(without, columns=[*STUDY_COLUMNS, "note"])
    missing = missing.assign(contrast="residual scale")
    rows = [
        {
            **_named(row),
            "Contrast": row["contrast"],
            "Difference": f"{_side(row, 'condition')} − {_side(row, 'reference')}",
            "Of": f"{row['measure']}@{cutoff}",
            "Value": _spread(row),
            "95 % interval": f"[{row['ci_low']:.4f}, {row['ci_high']:.4f}]",
            "p": f"{row['p']:.2g}",
            "p (Holm)": f"{row['p_holm']:.2g}",
            "Users": f"{row['users']:,.0f}",
            "Seeds": f"{row['trainings']:.0f}",
        }
        for row in tested.to_dict("records")
    ]
    rows += [
        _named(row)
        | {"Contrast": row["contrast"], "Difference": f"{NOT_APPLICABLE}: {row['note']}"}
        for row in missing.to_dict("records")
    ]
    counts = tested["contrast"].value_counts(sort=False)
    families = ", ".join(f"{count:,} of {name}" for name, count in counts.items())
    caption = (
        "Comparisons. Differences on the test part, paired over users: an intervention against the"
        " ordered history on the same candidates (mean over the draws), residual scale λ against 1,"
        " model against model on the seeds both have. Mean over users and seeds, ± standard"
        " deviation over seeds where there are several; bootstrap interval over users; p of a"
        f" sign-flip test over users, and corrected (Holm) within each contrast ({families})."
        f" Where the test is not exact it draws {permutations:,} sets of signs, and the smallest p"
        f" that they can give is {min(1.0, counts.max() / (permutations + 1)):.2g} after the"
        " correction in the largest of these families. The tests are"
        " about users: whether another training would differ the same way is what the seeds tell."
    )
    facts = pd.concat([tested, missing], ignore_index=True) if len(missing) else tested
    return Table(facts, laid_out(rows), caption)


def claims(summary: Rows, published: DataFrame, cutoff: int) -> Table:
    """The paper's claims for each model (:func:`lastitem.report.claims.claims`), beside
    its own numbers.
    """
    found = summary.rows
    forms = {
        "order before the last": "{partial_change_percent:+.1f} %",
        "order matters": "{full_change_percent:+.1f} %",
        "last-item privilege": "{hrli10:.3f} against {hrl2i10:.3f}",
    }
    paper = []
    for claim, *study in found[["claim", *STUDY_COLUMNS]].itertuples(index=False):
        own = _in_the_paper(published, *study) if cutoff == CHARTED_CUTOFF else {}
        paper.append(forms[claim].format(**own) if own and claim in forms else "")
    found = found.assign(paper=paper)
    columns = {
        "dataset": "Dataset",
        "split": "Split",
        "model": "Model",
        "meaning": "Claim",
        "holds": "Holds",
        "evidence": "Measured",
        **({"paper": "In the paper"} if any(paper) else {}),
        "users": "Users",
        "trainings": "Seeds",
    }
    layout = found[list(columns)].rename(columns=columns)
    layout["Users"] = [f"{users:,}" for users in found["users"]]
    layout["Seeds"] = layout["Seeds"].astype(str)
    caption = (
        f"Claims of the paper, held against this study (K = {cutoff}, test part). Square brackets:"
        " 95 % bootstrap intervals over users; where they are given, a claim holds only if they"
        " are wholly on its side, fails only if they are wholly on the other, and is undecided"
        " between the two. The other lines compare means over users and seeds."
    )
    charts = " The paper's numbers are read off its charts." if any(paper) else ""
    return Table(found, layout, caption + charts)


def _in_the_paper(
    published: DataFrame, dataset: str, split: str, model: str
) -> Mapping[str, float]:
    """The paper's numbers for a model on a log, read off its charts (``gts``, K = 10);
    none where it has none.
    """
    own = published[(published["dataset"] == dataset) & (published["model"] == model)]
    return own.iloc[0].to_dict() if split == "gts" and len(own) else {}


def _named(row: Mapping[str, Any] | Sequence[Any]) -> dict[str, str]:
    """The first cells of a row: dataset, split and model."""
    study = [row[key] for key in STUDY_COLUMNS] if isinstance(row, Mapping) else row[:3]
    return dict(zip(("Dataset", "Split", "Model"), study, strict=True))


def _side(row: Mapping[str, Any], side: str) -> str:
    if row["contrast"] == INTERVENTION:
        return shown_intervention(row[side])
    return f"λ {float(row[side]):g}" if row["contrast"] == "residual scale" else row[side]


def _spread(row: Mapping[str, Any] | Series, digits: int = 4) -> str:
    spread = "" if pd.isna(row["sd_seeds"]) else f" ± {row['sd_seeds']:.{digits}f}"
    return f"{row['value']:.{digits}f}{spread}"


def _seen(facts: DataFrame) -> str:
    filtered = facts["filter_seen"].astype(bool)
    on, off = (sorted(set(facts.loc[which, "dataset"])) for which in (filtered, ~filtered))
    return "; ".join(
        f"{word} for {', '.join(names)}" for word, names in (("yes", on), ("no", off)) if names
    )
