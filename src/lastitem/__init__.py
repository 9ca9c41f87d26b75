"""Measure how much a sequential recommender leans on the last item of a user's history.

The modules follow the data: :mod:`~lastitem.interactions` (logs, core filter), :mod:`~lastitem.splits`,
:mod:`~lastitem.sequences` (batches), :mod:`~lastitem.models`, :mod:`~lastitem.training`, :mod:`~lastitem.ranking`
and the readings of a ranking: :mod:`~lastitem.metrics`, :mod:`~lastitem.shuffling`, :mod:`~lastitem.decomposition`,
:mod:`~lastitem.rescaling`.

For use from Python ``from lastitem import load, read_held_out, rank, …`` gives the names in ``__all__``. They are fetched when first asked
for, so that nothing heavy is imported here: the workflow imports this package while it parses.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "load": "models.registry",
    "read_training": "sequences",
    "read_held_out": "sequences",
    "rank": "ranking",
    "recommend": "ranking",
    "per_user": "metrics",
    "reorder": "shuffling",
    "decompose": "decomposition",
    "InputError": "errors",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
