"""The interventions by name: what a model is given in place of its input. Light enough
to be imported while a Snakefile is parsed; the functions of these names stand in
:mod:`lastitem.evaluation.interventions`.
"""

import re
from typing import NamedTuple

from lastitem.errors import InputError


class Intervention(NamedTuple):
    """What is known of an intervention without asking a model.

    Parameters
    ----------
    shown : its name for readers.
    draws : whether it draws at random, so that it is repeated.
    fills : whether it puts as many items of others in place as it takes away.
    """

    shown: str
    draws: bool = False
    fills: bool = False


#: The input as it is, against which all others are held.
ORDERED = "ordered"
INTERVENTIONS = {
    ORDERED: Intervention("ordered"),
    "partial": Intervention("all but the last shuffled", draws=True),
    "full": Intervention("all shuffled", draws=True),
    "last_only": Intervention("last only"),
    "without_last": Intervention("without the last"),
    "strangers_context": Intervention("stranger's context", draws=True, fills=True),
    "strangers_last": Intervention("stranger's last", draws=True, fills=True),
    "stranger": Intervention("stranger", draws=True, fills=True),
    "pooled_context": Intervention("pooled context", draws=True, fills=True),
}
#: Those of one test each: a family of p-values of its own.
TESTED = (
    "partial",
    "full",
    "last_only",
    "without_last",
    "strangers_context",
    "strangers_last",
    "stranger",
)
#: Those whose lists are held against the one of the ordered input.
OVERLAPPING = ("last_only", "without_last", "stranger")
_NEWEST = re.compile(r"newest_([1-9]\d*)")


def known(name: str) -> Intervention:
    """The intervention of a name; ``newest_5`` keeps the newest five items.

    Raises
    ------
    InputError for an unknown name; it lists what is allowed.
    """
    if (found := INTERVENTIONS.get(name)) is not None:
        return found
    if (count := newest_count(name)) is not None:
        return Intervention(f"newest {count}")
    raise InputError(
        f"interventions: {name!r} is not known; allowed: {', '.join(INTERVENTIONS)}, and newest_k"
        " with a number k"
    )


def newest_count(name: str) -> int | None:
    """How many of the newest items an intervention keeps, if that is all it does."""
    if name == "last_only":
        return 1
    found = _NEWEST.fullmatch(name)
    return int(found[1]) if found else None


def ways(names: list[str], repeats: int) -> list[tuple[str, int]]:
    """Name and repeat of everything that is ranked: the ordered input first, each that
    draws ``repeats`` times.
    """
    chosen = dict.fromkeys([ORDERED, *names])
    return [
        (name, repeat) for name in chosen for repeat in range(repeats if known(name).draws else 1)
    ]
