"""The table of what is worth what: what its readers see, and what stands in its CSV."""

from __future__ import annotations

import numpy as np
import pytest

from lastitem.report import answers, figures, tables
from lastitem.report.names import shown_intervention
from lastitem.report.table import write
from lastitem.report.worths import (
    ACCOUNT,
    ACCURACY,
    BEYOND,
    CHANGE,
    CHANGE_OF_ACCURACY,
    HIT,
    INTERACTION,
    LARGER,
    LAST,
    LAST_FIRST,
    OVERLAP,
    SHARE,
    UNCHANGED,
    worths,
    yardsticks,
)
from lastitem.study.runs import Rows, Stamp, read_csv
from tests.report.test_worths import (
    BASELINES,
    CUTOFF,
    SOME,
    VALIDATION,
    effects_of,
    evaluations_of,
    ranks_at_random,
)


@pytest.fixture(scope="module")
def summaries():
    """Both summaries, of two models and three yardsticks, of some on one log."""
    generator = np.random.default_rng(1)
    effects = [effects_of(generator, model) for model in ("sasrec", "b", "markov")]
    names = {"a": "sasrec"}
    ranks = ranks_at_random(generator).replace({"model": names})
    evaluations = [
        {**entry, "model": names.get(entry["model"], entry["model"])}
        for entry in evaluations_of(VALIDATION)
    ]
    found = worths(effects, CUTOFF, SOME)
    return found, yardsticks(ranks, evaluations, CUTOFF, BASELINES, SOME)


def shown(table):
    """(cases, reading, of what) → the row."""
    rows = table.layout.to_dict("records")
    found = {(row["Cases"], row["Reading"], row["Of"]): row for row in rows}
    assert len(found) == len(rows), "no row twice"
    return found


def test_a_model_has_a_column_and_a_statement_a_row(summaries):
    found, theirs = summaries
    table = tables.worths(Rows(found), Rows(theirs), CUTOFF)
    head = ["Dataset", "Split", "Cases", "Reading", "Of", "Inputs changed"]
    assert list(table.layout) == [*head, "SASRec", "b", "Markov chain", "n"]
    value = found[found["group"] == "all"].set_index(["model", "reading", "part"])
    rows = shown(table)
    for reading, part, name, form in (
        (ACCURACY, "ordered", "ordered", ".3f"),
        (ACCOUNT, LAST, LAST, "+.1f"),
        (CHANGE, "strangers_last", "stranger's last", "+.1f"),
        (CHANGE, "newest_3", "newest 3", "+.1f"),
        (CHANGE_OF_ACCURACY, "stranger", "stranger", "+.1f"),
        (OVERLAP, "stranger", "stranger", ".3f"),
    ):
        row = rows["all", reading, name]
        for model, column in (("sasrec", "SASRec"), ("b", "b"), ("markov", "Markov chain")):
            fact = value.loc[(model, reading, part)]
            low, high = (format(fact[end], form) for end in ("ci_low", "ci_high"))
            spread = format(fact["sd_seeds"], form.lstrip("+"))
            assert row[column] == f"{fact['value']:{form}} ± {spread} [{low}, {high}]"
    users = found.loc[(found["group"] == "all") & (found["part"] == "ordered"), "users"]
    assert rows["all", ACCURACY, "ordered"]["n"] == str(int(users.iloc[0]))


def test_what_counts_for_the_verdict_alone_is_not_shown_but_in_the_facts(summaries):
    found, theirs = summaries
    table = tables.worths(Rows(found), Rows(theirs), CUTOFF)
    of_all = {reading for group, reading, _ in shown(table) if group == "all"}
    own = {ACCURACY, CHANGE, CHANGE_OF_ACCURACY, OVERLAP, ACCOUNT, LAST_FIRST, INTERACTION}
    assert of_all == {*own, SHARE}
    assert len(table.facts) == len(found) + len(theirs)
    of_change = {part for group, reading, part in shown(table) if reading == CHANGE_OF_ACCURACY}
    assert of_change == {"stranger's context", "stranger's last", "stranger"}, (
        "where nothing is brought in the candidates are the same"
    )
    assert {part for _, reading, part in shown(table) if reading == ACCURACY} == {"ordered"}
    assert {UNCHANGED, HIT, BEYOND, LARGER} <= set(table.facts["reading"])
    of_groups = {key for key in shown(table) if key[0] == "tied"}
    assert {(reading, part) for _, reading, part in of_groups if reading != ACCOUNT} == {
        (CHANGE, "stranger's context"),
        (CHANGE, "last only"),
        (CHANGE, "stranger's last"),
    }
    assert sum(reading == ACCOUNT for _, reading, _ in of_groups) == 4


def test_beside_a_change_stands_the_share_of_inputs_that_is_changed(summaries):
    """For the first model; with a change alone, on both candidates."""
    found, theirs = summaries
    table = tables.worths(Rows(found), Rows(theirs), CUTOFF)
    unchanged = found[found["reading"] == UNCHANGED].set_index(["model", "group", "part"])["value"]
    rows = shown(table)
    for group in ("all", "tied"):
        cut = 100 - unchanged["sasrec", group, "last_only"]
        assert rows[group, CHANGE, "last only"]["Inputs changed"] == f"{cut:.0f} %"
    of_stranger = rows["all", CHANGE_OF_ACCURACY, "stranger"]["Inputs changed"]
    assert of_stranger == f"{100 - unchanged['sasrec', 'all', 'stranger']:.0f} %"
    others = {reading: row["Inputs changed"] for (_, reading, _), row in rows.items()}
    del others[CHANGE], others[CHANGE_OF_ACCURACY]
    assert set(others.values()) == {"n/a"}


def test_yardsticks_are_shown_in_percent(summaries):
    """A yardstick has no share of its own accuracy."""
    found, theirs = summaries
    table = tables.worths(Rows(found), Rows(theirs), CUTOFF)
    fact = theirs.set_index(["model", "yardstick"]).loc[("sasrec", "markov")]
    row = shown(table)["all", SHARE, "Markov chain"]
    low, high = (100 * fact[end] for end in ("ci_low", "ci_high"))
    assert row["SASRec"] == (
        f"{100 * fact['value']:+.1f} ± {100 * fact['sd_seeds']:.1f} [{low:+.1f}, {high:+.1f}]"
    )
    assert row["Markov chain"] == "n/a" and row["n"] == "12"
    own = table.facts[table.facts["reading"] == SHARE].set_index(["model", "part"])
    assert own.loc[("b", "markov"), "value"] == pytest.approx(
        100 * theirs.set_index(["model", "yardstick"]).loc[("b", "markov"), "value"]
    )


def test_the_page_reads_what_the_table_wrote(summaries, tmp_path):
    """The CSV as the page gets it: answers with an account of 100 %, and the best
    yardstick of those that see the last item alone.
    """
    found, theirs = summaries
    write(tables.worths(Rows(found), Rows(theirs), CUTOFF), tmp_path / "worths.csv", Stamp("x"))
    facts = read_csv(tmp_path / "worths.csv")
    told = list(answers.answers(facts, ["sasrec", "b"], CUTOFF))
    assert [answer.model for answer in told] == ["SASRec", "b"]
    for answer in told:
        assert sum(part.value for part in answer.account) == pytest.approx(100.0)
        assert any("is had from the last item alone, by Last item" in s for s in answer.sentences)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("named", [(), ("partial",), ("stranger",), ("newest_3",)])
def test_a_study_of_few_interventions_has_its_table_figures_and_answers(named):
    """They show what is there; the verdict says what is not."""
    effects = effects_of(np.random.default_rng(2))
    found = worths([effects[effects["intervention"].isin(["ordered", *named])]], CUTOFF, SOME)
    nobody = ranks_at_random(np.random.default_rng(3))
    theirs = yardsticks(nobody, evaluations_of(VALIDATION), CUTOFF, [], SOME)
    table = tables.worths(Rows(found), Rows(theirs), CUTOFF)
    changes = table.layout.loc[table.layout["Reading"] == CHANGE, "Of"]
    assert set(changes) == {shown_intervention(name) for name in named}
    for draw in (figures.interventions, figures.worths):
        figure = draw(found, CUTOFF, [])
        figure.canvas.draw()
        figures.plt.close(figure)
    (answer,) = answers.answers(table.facts, ["m"], CUTOFF)
    assert answer.verdict.endswith("is not in this study.")


def test_a_study_without_yardsticks_has_a_table_and_answers(summaries, tmp_path):
    found, theirs = summaries
    write(tables.worths(Rows(found), Rows(theirs[:0]), CUTOFF), tmp_path / "worths.csv", Stamp("x"))
    facts = read_csv(tmp_path / "worths.csv")
    assert SHARE not in set(facts["reading"])
    told = list(answers.answers(facts, ["sasrec", "b"], CUTOFF))
    assert len(told) == 2 and not any("is had from" in s for a in told for s in a.sentences)
