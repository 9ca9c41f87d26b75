"""Measure how much a sequential recommender leans on the last item of a user's history.

The modules follow the data: :mod:`~lastitem.data.interactions`,
:mod:`~lastitem.data.core`, :mod:`~lastitem.data.splits`,
:mod:`~lastitem.data.sequences`, :mod:`~lastitem.models`,
:mod:`~lastitem.training.loop`,
:mod:`~lastitem.evaluation.ranking` and the readings of a ranking:
:mod:`~lastitem.evaluation.metrics`, :mod:`~lastitem.evaluation.interventions`,
:mod:`~lastitem.evaluation.decomposition`, :mod:`~lastitem.evaluation.rescaling`.

For use from Python ``from lastitem import load, read_held_out, rank, …`` gives the
names in ``__all__``. They are fetched when first asked for, so that nothing heavy is
imported here: the workflow imports this package while it parses.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "load": "models.registry",
    "read_training": "data.sequences",
    "read_held_out": "data.sequences",
    "rank": "evaluation.ranking",
    "recommend": "evaluation.ranking",
    "per_user": "evaluation.metrics",
    "intervention": "evaluation.interventions",
    "decompose": "evaluation.decomposition",
    "InputError": "errors",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
