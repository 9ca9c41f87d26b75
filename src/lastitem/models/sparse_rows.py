"""A matrix of items × items of which few numbers are not zero, as a part of a model."""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lastitem.arrays import Codes, Floats, Ints

#: Catalogues up to this size are multiplied as dense matrices, which is faster.
_DENSE_ITEMS = 4096


class SparseRows(nn.Module):
    """Rows of which only what is not zero is kept; filled by ``fit``, then added to
    scores.

    How much is kept is known only then, so the buffers of a saved model are taken as
    long as they are found, and checked.

    Attributes
    ----------
    start : int64 [items + 1]: the row of item i is at ``start[i - 1]:start[i]``.
    column : int32 [kept], item − 1; none twice in a row.
    value : float64 [kept].
    """

    start: Tensor
    column: Tensor
    value: Tensor
    _dense: Tensor | None

    def __init__(self, items: int) -> None:
        super().__init__()
        self.register_buffer("start", torch.zeros(items + 1, dtype=torch.int64))
        self.register_buffer("column", torch.zeros(0, dtype=torch.int32))
        self.register_buffer("value", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("_dense", None, persistent=False)

    def fill(self, counts: Ints, column: Codes, value: Floats) -> None:
        """Set the rows, one after another.

        Parameters
        ----------
        counts : int64 [items], how many are kept of each row.
        column : int32 [Σ counts], item − 1.
        value : float64 [Σ counts].
        """
        start = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        self._set({"start": start, "column": column, "value": value})

    def add_to(self, scores: Tensor, items: Tensor) -> None:
        """Add to each row of scores the row of its item, in place.

        Parameters
        ----------
        scores : float64 [B, items].
        items : int64 [B], item codes; 0 adds nothing.
        """
        first = self.start[(items - 1).clamp(min=0)]
        count = self.start[items] - first
        row = torch.arange(len(items), device=items.device).repeat_interleave(count)
        # Of each number its place in its own row, counted from the row's first one.
        step = torch.arange(len(row), device=items.device) - (count.cumsum(0) - count)[row]
        at = first[row] + step
        scores[row, self.column[at].long()] += self.value[at]

    def sums(self, items: Tensor) -> Tensor:
        """float64 [B, items]: of each row the sum of the rows of its distinct items.

        It has the same bits in whatever order it is added up only if all sums are
        exact, as those of multiples of one power of two are; ``value`` must be so.

        Parameters
        ----------
        items : int64 [B, L], item codes; 0 adds nothing.
        """
        count = len(self.start) - 1
        chosen = self.value.new_zeros(len(items), count + 1).scatter_(1, items, 1.0)[:, 1:]
        if count <= _DENSE_ITEMS:
            if self._dense is None:
                self._dense = self._matrix().to_dense()
            return chosen @ self._dense
        with warnings.catch_warnings():
            # That torch calls this kind of matrix new is of no use to a reader of logs.
            warnings.simplefilter("ignore", UserWarning)
            return (chosen.to_sparse_csr() @ self._matrix()).to_dense()

    def _matrix(self) -> Tensor:
        size = (len(self.start) - 1,) * 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return torch.sparse_csr_tensor(self.start, self.column.long(), self.value, size)

    def _set(self, arrays: dict[str, Any]) -> None:
        for name, array in arrays.items():
            old = getattr(self, name)
            setattr(self, name, torch.as_tensor(array, dtype=old.dtype, device=old.device))
        self._dense = None

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        """Make room for what is found and take it, or say what is wrong with it
        (``load_state_dict`` raises that as a RuntimeError).
        """
        errors: list[str] = arguments[-1]
        names = ["start", "column", "value"]
        # What is missing is told by the method of all modules.
        if all(prefix + name in state_dict for name in names):
            found = {name: state_dict[prefix + name] for name in names}
            if fault := self._fault(**found):
                errors.append(f"{prefix}{fault}")
                return
            self._set({name: torch.empty_like(found[name]) for name in ("column", "value")})
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def _fault(self, start: Tensor, column: Tensor, value: Tensor) -> str:
        """What is wrong with buffers that were read; empty if nothing is."""
        items = len(self.start) - 1
        for name, tensor in (("start", start), ("column", column), ("value", value)):
            if tensor.dtype != getattr(self, name).dtype or tensor.dim() != 1:
                return f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}"
        if len(start) != items + 1 or len(column) != len(value):
            return f"start: {len(start) - 1} rows for {items} items, or columns without a value"
        if start[0] != 0 or start[-1] != len(column) or bool((start.diff() < 0).any()):
            return f"start does not part {len(column)} numbers into rows"
        if len(column) and not 0 <= int(column.min()) <= int(column.max()) < items:
            return f"column: not all are in 0 … {items - 1}"
        row = torch.arange(items, device=start.device).repeat_interleave(start.diff())
        if bool(((row.diff() == 0) & (column.diff() <= 0)).any()):
            return "column: not rising within a row"
        return "" if bool(torch.isfinite(value).all()) else "value: not all are finite"
