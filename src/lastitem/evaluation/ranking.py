"""The one path from inputs to ranks; accuracy, interventions, last-item hit rates,
rescaling and recovery all read it.

The whole catalogue is ranked, never a sample. Each tile of users is encoded once and
only the read-out positions are projected; the catalogue is not sorted, ranks are
counted.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lastitem.arrays import Bools, Codes, Ints, Singles
from lastitem.data.padding import pad, tiles
from lastitem.data.sequences import HeldOut
from lastitem.errors import InputError
from lastitem.evaluation.probing import BlockTrace, probing
from lastitem.models.interface import Recommender, SequenceModel

NO_RANK = 0
#: Items that are compared at once.
_COLUMNS = 1 << 14

#: Reads what the blocks did for the read-out of a tile: one trace per block → float [B,
#: …].
Inspect = Callable[[Sequence[BlockTrace]], Tensor]
#: What a model is given in place of a batch: (items [B, L], length [B], case [B]) →
#: (items [B, L'], length [B]); a length of 0 where the change has no meaning.
Change = Callable[[Tensor, Tensor, Ints], tuple[Tensor, Tensor]]


@dataclass
class Ranks:
    """Ranks of each case's target and of its own last items; 1 is the best rank, 0
    (:data:`NO_RANK`) means none.

    Attributes
    ----------
    target : int32 [n, offsets]: rank of the target at the read-out (offset 0) and moved
        back by each further offset; 0 where the seen filter removed the target or the
        input is not longer than the offset.
    last : int32 [n], rank of the last input item, the seen filter off.
    last_but_one : int32 [n], the same for the item before it; 0 where the input has one
        item.
    length : int64 [n], items of the input that was read; 0 where the change has no
        meaning, and the input was read as it is.
    unchanged : bool [n], whether the change left the input as it was.
    lists : int32 [n, K], items by rank, 0 where fewer than K items can be recommended;
        only if asked for.
    scores : float32 [n, K], their scores.
    inspected : float32 [n, …], what ``inspect`` found; only if given.
    """

    target: Codes
    last: Codes
    last_but_one: Codes
    length: Ints
    unchanged: Bools
    lists: Codes | None = None
    scores: Singles | None = None
    inspected: Singles | None = None


@torch.inference_mode()
def rank(
    model: Recommender,
    cases: HeldOut,
    *,
    filter_seen: bool,
    residual_scale: float = 1.0,
    offsets: tuple[int, ...] = (0,),
    change: Change | None = None,
    list_length: int = 0,
    inspect: Inspect | None = None,
    device: str | torch.device = "cpu",
) -> Ranks:
    """Rank the catalogue for every case.

    Equal scores are ordered by item id, so a target is never favoured. What is found
    for a case does not depend on the other cases
    (:func:`lastitem.data.padding.tiles`). ``last`` and ``last_but_one`` always mean
    the user's own latest items in their true order, whatever ``change`` does to the
    input.

    Parameters
    ----------
    filter_seen : remove the items of the whole history (not only of the part the model
        sees) from the ranking of the target and from the lists.
    residual_scale : λ of every attention block.
    offsets : how far to move the read-out back; the first must be 0.
    change : what the model is given in place of each input, which is the history cut
        to ``model.input_length``
        (:func:`lastitem.evaluation.interventions.intervention`).
    list_length : K; 0 makes no lists.
    inspect : reads the traces of the read-out in the same pass, which they leave as it
        is.

    Raises
    ------
    InputError if a score is NaN, if ``residual_scale`` is negative or not finite, or if
        one but 1, ``inspect`` or a further offset is asked of a model for which it has
        no meaning.
    """
    model.eval()
    count = len(cases)
    target = np.zeros((count, len(offsets)), dtype=np.int32)
    last, last_but_one = np.zeros((2, count), dtype=np.int32)
    read, unchanged = np.zeros(count, dtype=np.int64), np.ones(count, dtype=bool)
    lists = np.zeros((count, list_length), dtype=np.int32) if list_length else None
    list_scores = np.full((count, list_length), np.nan, dtype=np.float32) if list_length else None
    inspected: Singles | None = None
    window = model.input_length
    for index, _, width in tiles(cases, window, "rank"):
        items, length = pad(cases, index, window, width)
        history = cases.end[index] - cases.start[index]
        newest, second, wanted = latest_and_target(cases, index).to(device)
        read[index] = length
        if change is not None:
            items, length, read[index], unchanged[index] = changed(change, items, length, index)
        items, length = items.to(device), length.to(device)
        with _probed(model, residual_scale, length if inspect else None) as traces:
            scored = _scored(model, items, length, offsets)
        for column, scores in enumerate(scored):
            if column == 0:
                last[index] = rank_of(scores, newest).cpu()
                before = rank_of(scores, second).cpu().numpy()
                last_but_one[index] = np.where(history > 1, before, NO_RANK)
            if filter_seen:
                remove_seen(scores, cases, index)
            reached = length > offsets[column]
            target[index, column] = torch.where(reached, rank_of(scores, wanted), NO_RANK).cpu()
            if column == 0 and lists is not None and list_scores is not None:
                lists[index], list_scores[index] = best_items(scores, list_length)
        if inspect is not None:
            values = inspect(traces).float().cpu().numpy()
            if inspected is None:
                inspected = np.zeros((count, *values.shape[1:]), dtype=np.float32)
            inspected[index] = values
    return Ranks(target, last, last_but_one, read, unchanged, lists, list_scores, inspected)


def latest_and_target(cases: HeldOut, index: Ints) -> Tensor:
    """int64 [3, B]: the last item of each history, the one before it (the last, if
    there is none), and the target.
    """
    history = cases.end[index] - cases.start[index]
    own = (cases.items[cases.end[index] - np.minimum(back, history)] for back in (1, 2))
    return torch.from_numpy(np.stack([*own, cases.target[index]]).astype(np.int64))


def changed(
    change: Change, items: Tensor, length: Tensor, index: Ints
) -> tuple[Tensor, Tensor, Ints, Bools]:
    """What a model is given in place of a batch: items and their lengths, with the
    input as it is where the change has no meaning; what the change says of the lengths;
    and which inputs are as they were.
    """
    new, of_length = change(items, length, index)
    void = of_length == 0
    if bool(void.any()):
        new = functional.pad(new, (0, items.shape[1] - new.shape[1]))
        new = torch.where(void[:, None], items, new)
    same_length, width = of_length == length, new.shape[1]
    unchanged = same_length & (new == items[:, :width]).all(dim=1)
    return new, torch.where(void, length, of_length), of_length.numpy(), unchanged.numpy()


def _probed(
    model: Recommender, residual_scale: float, traced: Tensor | None
) -> AbstractContextManager[list[BlockTrace]]:
    """A probe of the prediction position of inputs with lengths ``traced``, or of λ
    alone; none where neither is asked for.
    """
    if residual_scale == 1.0 and traced is None:
        return nullcontext([])
    query = None
    if traced is not None and isinstance(model, SequenceModel):
        query = model.readout(traced)
    return probing(model, residual_scale=residual_scale, query=query)


def _scored(
    model: Recommender, items: Tensor, length: Tensor, offsets: tuple[int, ...]
) -> Iterator[Tensor]:
    """Scores [B, items] at the prediction position moved back by each offset; those
    further than the first are asked for when the one before is done with.
    """
    if offsets == (0,):
        scored = iter((model.scores(items, length),))
    elif isinstance(model, SequenceModel) and model.reads_prefixes:
        scored = map(model.score, model.read(items, length, offsets))
    else:
        raise InputError(
            f"{type(model).__name__}: earlier positions hold no earlier prediction; offsets must"
            " be (0,)"
        )
    return map(partial(checked_scores, shape=(len(items), model.items)), scored)


def checked_scores(scores: Tensor, shape: tuple[int, int]) -> Tensor:
    """Scores of the expected shape, as floating-point numbers.

    Raises
    ------
    InputError for another shape, or if a score is NaN.
    """
    if scores.shape != shape:
        raise InputError(f"the model gives scores of shape {tuple(scores.shape)}, not {shape}")
    if bool(torch.isnan(scores.amax())):
        raise InputError(
            "the model gives NaN scores: its weights are damaged or training diverged; train it"
            " anew"
        )
    # Seen items are taken out in place, by a score of −∞.
    return scores if scores.is_floating_point() else scores.double()


def recommend(
    model: Recommender,
    histories: Sequence[Sequence[int]],
    count: int,
    *,
    filter_seen: bool = True,
) -> tuple[Codes, Singles]:
    """Rank items for histories of item codes (oldest first), as :func:`rank` does for
    test cases.

    Returns
    -------
    items : int32 [n, count], best first, 0 where fewer can be recommended.
    scores : float32 [n, count], NaN there.

    Raises
    ------
    InputError if there is nothing to rank for, or a history is not a list of codes that
    are whole numbers in 1 … items.
    """
    if count < 1:
        raise InputError(f"count: {count!r} must be at least 1")
    if not len(histories):
        raise InputError("histories: there is none to rank items for")
    for number, history in enumerate(histories):
        if not _are_codes(history, model.items):
            raise InputError(
                f"history {number}: must be a list of at least one item code, whole numbers between"
                f" 1 and {model.items}; items.parquet tells the code of each id; found:"
                f" {str(history)[:200]}"
            )
    length = np.array([len(history) for history in histories])
    end = np.cumsum(length)
    cases = HeldOut(
        items=np.concatenate(histories).astype(np.int32),
        start=end - length,
        end=end,
        user=np.arange(len(end), dtype=np.int32),
        target=np.ones(len(end), dtype=np.int32),
        tied=np.zeros(len(end), dtype=bool),
    )
    found = rank(model, cases, filter_seen=filter_seen, list_length=count)
    assert found.lists is not None and found.scores is not None
    return found.lists, found.scores


def _are_codes(history: object, items: int) -> bool:
    codes = np.asarray(history)
    return (
        codes.ndim == 1
        and len(codes) > 0
        and codes.dtype.kind in "iu"
        and bool(codes.min() >= 1 and codes.max() <= items)
    )


def rank_of(scores: Tensor, item: Tensor) -> Tensor:
    """1 + the number of items that come before ``item``; 0 where its own score is −inf
    (removed).
    """
    own = scores.gather(1, (item - 1)[:, None])
    ahead, not_behind = _count(torch.gt, scores, own), _count(torch.ge, scores, own)
    # Ties are rare; only in rows where there is one the order of the ids matters.
    tied = torch.nonzero(not_behind - ahead > 1).squeeze(1)
    if len(tied):
        row, place = torch.nonzero(scores[tied] == own[tied], as_tuple=True)
        earlier = row[place < item[tied][row] - 1]
        ahead[tied] += torch.bincount(earlier, minlength=len(tied))
    return torch.where(own.squeeze(1) == -torch.inf, NO_RANK, ahead + 1).to(torch.int32)


def _count(compare: Callable[..., Tensor], scores: Tensor, bound: Tensor) -> Tensor:
    """int64 [B]: how many scores of a row compare so with its bound [B, 1]."""
    # Comparisons written as numbers add up several times faster than truth values, and
    # those of a part of the catalogue stay in the cache; there they are exact, too.
    compared = torch.empty_like(scores[:, :_COLUMNS])
    counts = [
        compare(part, bound, out=compared[:, : part.shape[1]]).sum(dim=1)
        for part in scores.split(_COLUMNS, dim=1)
    ]
    return torch.stack(counts).long().sum(dim=0)


def remove_seen(scores: Tensor, cases: HeldOut, index: Ints) -> None:
    """Set the scores of the items of the whole history to −∞, in place."""
    chosen = cases.select(index)
    places = np.stack([np.repeat(np.arange(len(index)), chosen.length), chosen.flattened - 1])
    row, column = torch.from_numpy(places).to(scores.device)
    scores[row, column] = -torch.inf


def best_items(scores: Tensor, count: int) -> tuple[Codes, Singles]:
    """The ``count`` best items of each row by (score descending, id ascending), 0 where
    none is left.
    """
    kept = min(count, scores.shape[1])
    value, item = scores.topk(kept, dim=1)
    # topk leaves open which of several items with the last value it takes; only such
    # rows are sorted in full.
    cut = torch.nonzero(_count(torch.ge, scores, value[:, -1:]) > kept).squeeze(1)
    if len(cut):
        full_value, full_item = scores[cut].sort(dim=1, descending=True, stable=True)
        value[cut], item[cut] = full_value[:, :kept], full_item[:, :kept]
    by_id = item.argsort(dim=1)
    item, value = item.gather(1, by_id), value.gather(1, by_id)
    by_score = value.argsort(dim=1, descending=True, stable=True)
    item, value = item.gather(1, by_score) + 1, value.gather(1, by_score)
    available = value > -torch.inf
    lists = np.zeros((len(scores), count), dtype=np.int32)
    listed = np.full((len(scores), count), np.nan, dtype=np.float32)
    lists[:, :kept] = torch.where(available, item, 0).cpu()
    listed[:, :kept] = torch.where(available, value, torch.nan).cpu()
    return lists, listed
