"""Ranks under interventions, each beside those of the ordered input on the same
candidates.

A stranger's items are in no filter of seen items, so they fill the list and push the
target down. The common candidates of an intervention leave them out: the catalogue
without the seen items (where these are filtered) and without what the intervention
brought in, the target always kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from lastitem.arrays import Bools, Codes, Ints, Singles
from lastitem.data.padding import PADDING, pad, tiles
from lastitem.data.sequences import HeldOut
from lastitem.evaluation.ranking import (
    NO_RANK,
    Change,
    best_items,
    changed,
    checked_scores,
    latest_and_target,
    rank_of,
    remove_seen,
)
from lastitem.models.interface import Recommender
from lastitem.study.interventions import ORDERED, OVERLAPPING

_RANKS = ("target", "common_target", "ordered_target", "last")


@dataclass
class Effect:
    """What one intervention does to each case; ranks as in
    :class:`lastitem.evaluation.ranking.Ranks`.

    Attributes
    ----------
    target : int32 [n], on the candidates of the accuracy.
    common_target : int32 [n], on the common candidates.
    ordered_target : int32 [n], of the ordered input on the common candidates.
    last : int32 [n], rank of the user's own last item, the seen filter off.
    length : int64 [n], items of the input; 0 where the intervention has no meaning for
        it: nothing else of such a case counts.
    unchanged : bool [n].
    overlap : float32 [n], share of the list (its first items, the seen ones left out
        where they are filtered) that the list of the ordered input has, too, of the
        shorter of both; NaN where it is not asked for or a list is empty.
    """

    target: Codes
    common_target: Codes
    ordered_target: Codes
    last: Codes
    length: Ints
    unchanged: Bools
    overlap: Singles


@torch.inference_mode()
def effects(
    model: Recommender,
    cases: HeldOut,
    changes: Mapping[tuple[str, int], Change],
    *,
    filter_seen: bool,
    list_length: int,
    device: str | torch.device = "cpu",
) -> dict[tuple[str, int], Effect]:
    """Rank the catalogue for every case under every change.

    What is found for a case does not depend on the other cases, but on those that a
    change takes items from. The ordered input of a batch is read once for all changes.

    Parameters
    ----------
    changes : name and repeat → what the model is given
        (:func:`lastitem.evaluation.interventions.interventions`).
    list_length : items of the lists that overlap.

    Raises
    ------
    InputError if a score is NaN.
    """
    model.eval()
    count = len(cases)
    found = {
        key: Effect(
            **{name: np.zeros(count, dtype=np.int32) for name in _RANKS},
            length=np.zeros(count, dtype=np.int64),
            unchanged=np.ones(count, dtype=bool),
            overlap=np.full(count, np.nan, dtype=np.float32),
        )
        for key in changes
    }
    for index, _, width in tiles(cases, model.input_length, "interventions"):
        items, length = pad(cases, index, model.input_length, width)
        own_last, _, target = latest_and_target(cases, index).to(device)
        held = torch.zeros(len(items), model.items + 1, dtype=torch.bool).scatter_(1, items, True)

        def scored(items: Tensor, length: Tensor) -> Tensor:
            scores = model.scores(items.to(device), length.to(device))
            return checked_scores(scores, (len(items), model.items))

        def without_seen(scores: Tensor, index: Ints = index) -> Tensor:
            if filter_seen:
                remove_seen(scores, cases, index)
            return scores

        ordered = scored(items, length)
        last = rank_of(ordered, own_last)
        ordered = without_seen(ordered)
        of_target = rank_of(ordered, target)
        best = best_items(ordered, list_length)[0]
        for key, change in changes.items():
            effect = found[key]
            new, new_length, effect.length[index], effect.unchanged[index] = changed(
                change, items, length, index
            )
            if key[0] == ORDERED:
                scores, of_last = ordered, last
            else:
                scores = scored(new, new_length)
                of_last = rank_of(scores, own_last)
                scores = without_seen(scores)
            foreign = brought_in(held, new).to(device)
            of_changed = of_target if key[0] == ORDERED else rank_of(scores, target)
            effect.target[index], effect.last[index] = of_changed.cpu(), of_last.cpu()
            effect.common_target[index] = _among(scores, target, of_changed, foreign).cpu()
            effect.ordered_target[index] = _among(ordered, target, of_target, foreign).cpu()
            if key[0] in OVERLAPPING:
                effect.overlap[index] = overlap(best, best_items(scores, list_length)[0])
    return found


def effects_table(
    found: Mapping[tuple[str, int], Effect],
    cases: HeldOut,
    window: int,
    user_ids: pa.Array,
    item_ids: pa.Array,
) -> dict[str, Any]:
    """Lay out a row per intervention, repeat and case, without the cases for which an
    intervention has no meaning.

    Parameters
    ----------
    window : newest items that an input of the model holds.
    user_ids, item_ids : original ids; user u is ``user_ids[u]``, item i is ``item_ids[i
        - 1]``.

    Returns
    -------
    intervention, repeat, case, user (code), user_id, target_id (text); input_length
    (of the ordered input) and its group (:func:`length_groups`), tied; target_rank,
    common_target_rank, common_ordered_rank, last_rank (int32, 0: none); unchanged;
    given_length, overlap (float32, NaN where there is none).
    """
    ordered_length = np.minimum(cases.length, window)
    group = length_groups(ordered_length)
    rows = [np.flatnonzero(effect.length > 0) for effect in found.values()]
    case = np.concatenate(rows)

    def stacked(name: str) -> Any:
        return np.concatenate(
            [getattr(effect, name)[kept] for effect, kept in zip(found.values(), rows, strict=True)]
        )

    size = [len(kept) for kept in rows]
    names, repeats = zip(*found, strict=True)
    return {
        "intervention": pa.array(np.repeat(names, size)).dictionary_encode(),
        "repeat": np.repeat(np.array(repeats, dtype=np.int32), size),
        "case": case.astype(np.int32),
        "user": cases.user[case],
        "user_id": user_ids.take(pa.array(cases.user[case])),
        "target_id": item_ids.take(pa.array(cases.target[case] - 1)),
        "input_length": ordered_length[case].astype(np.int32),
        "length_group": group[case],
        "tied": cases.tied[case],
        "target_rank": stacked("target"),
        "common_target_rank": stacked("common_target"),
        "common_ordered_rank": stacked("ordered_target"),
        "last_rank": stacked("last"),
        "given_length": stacked("length").astype(np.int32),
        "unchanged": stacked("unchanged"),
        "overlap": stacked("overlap"),
    }


def length_groups(length: Ints) -> Codes:
    """int32 [n], from 1: four groups of input lengths, cut at the quartiles; what
    equals a cut is below it, and equal cuts are one.
    """
    cuts = np.unique(np.quantile(length, [0.25, 0.5, 0.75])) if len(length) else np.zeros(0)
    group = np.searchsorted(cuts, length, side="left")
    return (np.unique(group, return_inverse=True)[1] + 1).astype(np.int32)


def brought_in(held: Tensor, new: Tensor) -> Tensor:
    """int64 [B, M]: the distinct items of ``new`` [B, L] that an input does not hold
    (``held`` is bool [B, items + 1]), 0 in the other places.
    """
    is_own = held.gather(1, new) | (new == PADDING)
    if bool(is_own.all()):
        return new[:, :0]
    found = torch.where(is_own, PADDING, new).sort(dim=1).values
    repeated = found[:, 1:] == found[:, :-1]
    found[:, 1:] = torch.where(repeated, PADDING, found[:, 1:])
    # Few changes bring in as many items as there is room for.
    return found[:, (found != PADDING).any(dim=0)]


def _among(scores: Tensor, target: Tensor, rank: Tensor, foreign: Tensor) -> Tensor:
    """The rank of the target once the foreign items [B, M] are left out: less by those
    that come before it.
    """
    if not foreign.shape[1]:
        return rank
    own = scores.gather(1, (target - 1)[:, None])
    other = scores.gather(1, (foreign - 1).clamp(min=0))
    before = (other > own) | ((other == own) & (foreign < target[:, None]))
    before &= (foreign != PADDING) & (foreign != target[:, None])
    return torch.where(rank == NO_RANK, rank, rank - before.sum(dim=1).to(rank.dtype))


def overlap(one: Codes, other: Codes) -> Singles:
    """float32 [n]: items that two lists [n, K] share, of the length of the shorter one;
    0 fills a list; NaN where one is empty.
    """
    shared = ((one[:, :, None] == other[:, None]) & (one[:, :, None] != PADDING)).sum(axis=(1, 2))
    shorter = np.minimum((one != PADDING).sum(axis=1), (other != PADDING).sum(axis=1))
    with np.errstate(invalid="ignore"):
        return np.where(shorter > 0, shared / shorter, np.nan).astype(np.float32)
