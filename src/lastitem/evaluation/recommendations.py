"""What a practitioner asks for first: the recommendations themselves, with the ids of
the log.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lastitem.data.sequences import HeldOut
from lastitem.evaluation.ranking import NO_RANK, Ranks


def recommendations_table(
    found: Ranks, cases: HeldOut, user_ids: pa.Array, item_ids: pa.Array, length: int
) -> dict[str, pa.Array]:
    """Lay out the best items of each test case.

    Parameters
    ----------
    found : ranks with ``lists`` and ``scores`` of at least ``length`` items.
    cases : what was ranked, in the same order.
    user_ids, item_ids : original ids; user u is ``user_ids[u]``, item i is ``item_ids[i
        - 1]``.
    length : recommendations of each case.

    Returns
    -------
    user_id (text); items (list of text, best first; shorter where fewer can be
    recommended); scores (list of float32); target (text); target_rank (int32, null
    where the seen filter removed the target).
    """
    assert found.lists is not None and found.scores is not None
    lists, scores = found.lists[:, :length], found.scores[:, :length]
    listed = lists > 0
    offsets = pa.array(np.concatenate(([0], np.cumsum(listed.sum(axis=1)))).astype(np.int32))
    rank = found.target[:, 0]
    return {
        "user_id": user_ids.take(pa.array(cases.user)),
        "items": pa.ListArray.from_arrays(offsets, item_ids.take(pa.array(lists[listed] - 1))),
        "scores": pa.ListArray.from_arrays(offsets, scores[listed]),
        "target": item_ids.take(pa.array(cases.target - 1)),
        "target_rank": pc.if_else(pa.array(rank != NO_RANK), pa.array(rank), None),
    }
