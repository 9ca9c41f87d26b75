"""Two folders of results, compared by accuracy: users are who they are, whatever their
codes, and what cannot be compared is refused with a remedy.
"""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
main = runpy.run_path(str(ROOT / "benchmarks/compare_accuracy.py"))["main"]
RUN = "tiny/loo/sasrec/seed=1"
#: Original user id → original id and rank of the target of each case.
CASES = {
    name: [(item, rank)] for name, item, rank in zip("abcd", "wxyz", (1, 3, 0, 1), strict=True)
}


def write_run(
    results: Path,
    cases: Mapping[str, list[tuple[str, int]]],
    run: str = RUN,
    study: str | None = "0a",
) -> Path:
    """A run whose codes follow the order of ``cases``, with its core."""
    items = list(dict.fromkeys(item for own in cases.values() for item, _ in own))
    ranks = [
        {"user": code, "target": 1 + items.index(item), "target_rank": rank}
        for code, own in enumerate(cases.values())
        for item, rank in own
    ]
    folder, core = results / run, results / run.split("/")[0] / "core"
    folder.mkdir(parents=True)
    core.mkdir(exist_ok=True)
    pd.DataFrame(ranks).to_parquet(folder / "ranks.parquet")
    users = pd.DataFrame({"user": range(len(cases)), "user_id": list(cases)})
    users.to_parquet(core / "users.parquet")
    pd.DataFrame({"item": range(1, 1 + len(items)), "item_id": items}).to_parquet(
        core / "items.parquet"
    )
    if study is not None:
        (folder / "learning_curve.csv").write_text(f"epoch,study\n1,{study}\n", encoding="utf-8")
    return results


def compared(
    before: Path, after: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[str], str]:
    """Exit status, lines of the standard output, and what was said of errors."""
    status = main([str(before), str(after)])
    said = capsys.readouterr()
    return status, said.out.splitlines(), said.err


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_users_are_paired_by_their_original_ids(tmp_path, capsys):
    """In the other folder all codes of users and items are reversed, and nothing else
    is.
    """
    before = write_run(tmp_path / "before", CASES)
    after = write_run(tmp_path / "after", dict(reversed(CASES.items())))
    status, lines, _ = compared(before, after, capsys)
    row = ["tiny, loo", "sasrec", "1", "4", "0.6250", "0.6250", "+0.0000 [+0.0000, +0.0000]"]
    assert (status, cells(lines[2]), len(lines)) == (0, row, 3)


def test_a_gain_and_a_loss(tmp_path, capsys):
    """Each user's rank falls from 3 to 1: NDCG 0.5 becomes 1; an interval below 0 is
    exit status 1.
    """
    worse, better = ({name: [(name, rank)] for name in "abcd"} for rank in (3, 1))
    worse, better = write_run(tmp_path / "a", worse), write_run(tmp_path / "b", better)
    status, lines, _ = compared(worse, better, capsys)
    assert (status, cells(lines[2])[-1]) == (0, "+0.5000 [+0.5000, +0.5000]")
    status, lines, _ = compared(better, worse, capsys)
    assert (status, cells(lines[2])[-1]) == (1, "-0.5000 [-0.5000, -0.5000]")


def test_seeds_of_both_folders_are_averaged_for_each_user(tmp_path, capsys):
    """And the one that only one folder holds is left out."""
    before, after = tmp_path / "before", tmp_path / "after"
    for seed in (1, 2, 3):
        write_run(before, CASES, f"tiny/loo/sasrec/seed={seed}")
    for seed, rank in ((1, 1), (2, 3)):
        cases = {name: [(item, rank)] for name, ((item, _),) in CASES.items()}
        write_run(after, cases, f"tiny/loo/sasrec/seed={seed}")
    _, lines, _ = compared(before, after, capsys)
    assert cells(lines[2])[2:6] == ["1, 2", "4", "0.6250, 0.6250", "1.0000, 0.5000"]
    assert cells(lines[2])[6].startswith("+0.1250 [")


def test_users_of_both_folders_are_compared_and_the_others_counted(tmp_path, capsys):
    before = write_run(tmp_path / "before", CASES)
    others = {"e": [("v", 1)], "d": CASES["d"], "b": CASES["b"]}
    after = write_run(tmp_path / "after", others)
    status, lines, _ = compared(before, after, capsys)
    assert (status, cells(lines[2])[3:6]) == (0, ["2", "0.7500", "0.7500"])
    assert lines[3:] == ["", "tiny/loo/sasrec: 2 users are in both, of 4 before and 3 after"]


def test_both_study_hashes_are_said_where_they_differ(tmp_path, capsys):
    before = write_run(tmp_path / "before", CASES, study="0a")
    after = write_run(tmp_path / "after", CASES, study="0b")
    assert compared(before, after, capsys)[1][3:] == ["", f"{RUN}: study 0a before, 0b after"]
    (after / RUN / "learning_curve.csv").unlink()
    assert compared(before, after, capsys)[1][3:] == ["", f"{RUN}: study 0a before, unknown after"]


def test_other_targets_of_a_user_are_refused(tmp_path, capsys):
    """The same codes, but another item; or the same items in another order."""
    before = write_run(tmp_path / "before", CASES)
    after = write_run(tmp_path / "after", {**CASES, "b": [("q", 3)]})
    status, lines, said = compared(before, after, capsys)
    assert (status, lines) == (2, [])
    assert f"{RUN}: 1 of 4 users have other targets" in said
    assert said.endswith("first user 'b': 'x' and 'q'\n")
    before, after = (
        write_run(tmp_path / name, {"a": cases, "b": [("x", 1)]})
        for name, cases in (("one", [("x", 1), ("y", 2)]), ("other", [("y", 2), ("x", 1)]))
    )
    status, _, said = compared(before, after, capsys)
    assert status == 2 and said.endswith("first user 'a': 'x', 'y' and 'y', 'x'\n")


def test_what_is_no_folder_of_results_is_refused_with_a_remedy(tmp_path, capsys):
    good = write_run(tmp_path / "study/results", CASES)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    wanted = {
        "away": "no such folder; name the results folder of a study",
        "file": "a file; name the results folder of a study",
        "study": f"no run in it; name the results folder itself, {good}",
        "empty": "no run in it; name the results folder itself, which holds DATASET/SPLIT/MODEL",
    }
    for name, remedy in wanted.items():
        for folders in ((tmp_path / name, good), (good, tmp_path / name)):
            status, lines, said = compared(*folders, capsys)
            assert (status, lines) == (2, []) and f"{tmp_path / name}: {remedy}" in said


def test_folders_with_nothing_in_common_are_refused(tmp_path, capsys):
    good = write_run(tmp_path / "good", CASES)
    other = write_run(tmp_path / "other", CASES, "tiny/gts/sasrec/seed=1")
    status, _, said = compared(good, other, capsys)
    assert status == 2 and "hold no run of the same name" in said
    assert RUN in said and "tiny/gts/sasrec/seed=1" in said
    strangers = write_run(tmp_path / "strangers", {"e": [("w", 1)]})
    status, _, said = compared(good, strangers, capsys)
    assert status == 2 and "no user of" in said


def test_a_missing_or_foreign_core_is_named(tmp_path, capsys):
    good = write_run(tmp_path / "good", CASES)
    other = Path(shutil.copytree(good, tmp_path / "other"))
    pd.DataFrame({"user": [0], "user_id": ["a"]}).to_parquet(other / "tiny/core/users.parquet")
    status, _, said = compared(good, other, capsys)
    assert status == 2 and f"{other / RUN}/ranks.parquet: some users or items are not" in said
    (other / "tiny/core/users.parquet").unlink()
    status, _, said = compared(good, other, capsys)
    assert status == 2 and f"{other}/tiny/core/users.parquet is missing" in said
