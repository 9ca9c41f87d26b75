"""What a study makes of its runs: summaries, and the tables and figures that show them;
what each reads, and a hash of the settings that can change it.

Light enough to be imported while a Snakefile is parsed.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lastitem.study.config import study_runs, tie_order_runs, training_of
from lastitem.study.settings import used


class Summary(NamedTuple):
    """A summary over runs, made by the function of its name
    in :mod:`lastitem.report.summaries`.

    Parameters
    ----------
    reads : a file of each run or dataset (``ranks.parquet``), or another summary
        (``shuffles``), in the order of the function's frames.
    settings : what else the function is told, by the names of its parameters.
    of : whose files it reads: those of the ``models``, of these and the baselines
        (``all``), of the ``tie_order`` study, of the ``datasets``.
    """

    reads: tuple[str, ...]
    settings: tuple[str, ...] = ()
    of: str = "models"


class Shown(NamedTuple):
    """A table or figure.

    Parameters
    ----------
    shows : what it shows, for readers.
    function : its function in :mod:`lastitem.report.tables` or
        :mod:`lastitem.report.figures`.
    reads : summaries, in the order of the function's parameters.
    settings : what else the function is told, by the names of its parameters.
    published : the paper's numbers beside it, a file in config/published.
    folded : whether the page shows it folded: it is of the mechanism or of λ.
    """

    shows: str
    function: str
    reads: tuple[str, ...]
    settings: tuple[str, ...] = ()
    published: str = ""
    folded: bool = False


_DRAWN = ("cutoff", "bootstrap")
_TESTED = (*_DRAWN, "permutations")

SUMMARIES = {
    "statistics": Summary(("statistics.json",), of="datasets"),
    "accuracy": Summary(("ranks.parquet", "evaluation.json"), ("cutoffs", "bootstrap"), "all"),
    "worths": Summary(("interventions.parquet",), _DRAWN, "all"),
    "yardsticks": Summary(("ranks.parquet", "evaluation.json"), (*_DRAWN, "baselines"), "all"),
    "last_item_hit_rates": Summary(("ranks.parquet",), _DRAWN),
    "attention_maps": Summary(("maps.parquet",)),
    "mixing_ratios": Summary(("mixing.parquet",)),
    "mixing_at_readout": Summary(("mixing_users.parquet",), ("bootstrap",)),
    "residual_sweep": Summary(("rescale.parquet",), _DRAWN),
    "mixing_by_scale": Summary(("rescale_mixing.parquet",), ("bootstrap",)),
    "recovery_sweep": Summary(("rescale.parquet",), _DRAWN),
    "recovery_curves": Summary(("rescale.parquet",), ("cutoff",)),
    "chosen_scales": Summary(("recovery_curves",), ("tolerances",)),
    "at_the_choice": Summary(("rescale.parquet", "chosen_scales"), _DRAWN),
    "model_comparisons": Summary(("ranks.parquet",), _TESTED),
    "comparisons": Summary(
        ("interventions.parquet", "rescale.parquet", "model_comparisons"), _TESTED
    ),
    "tie_order": Summary(
        ("ranks.parquet", "interventions.parquet", "users.parquet"), _TESTED, "tie_order"
    ),
    "claims": Summary(
        (
            "worths",
            "last_item_hit_rates",
            "mixing_at_readout",
            "residual_sweep",
            "mixing_by_scale",
            "recovery_sweep",
        )
    ),
}

TABLES = {
    "table1": Shown(
        "Dataset statistics", "statistics", ("statistics",), published="dataset_statistics.csv"
    ),
    "table2": Shown(
        "Accuracy", "accuracy", ("accuracy", "model_comparisons"), ("cutoff",), "charts.csv"
    ),
    "table3": Shown("Mixing ratios", "mixing", ("mixing_ratios", "mixing_at_readout"), folded=True),
    "table4": Shown(
        "Recovery and chosen λ",
        "recovery",
        ("at_the_choice", "recovery_curves"),
        ("tolerance", "cutoff"),
        folded=True,
    ),
    "table5": Shown("Tie order", "tie_order", ("tie_order",), ("cutoff",)),
    "worths": Shown("What is worth what", "worths", ("worths", "yardsticks"), ("cutoff",)),
    "comparisons": Shown(
        "Paired differences", "comparisons", ("comparisons",), ("cutoff", "permutations")
    ),
    "claims": Shown("The paper's claims", "claims", ("claims",), ("cutoff",), "charts.csv"),
}

FIGURES = {
    "fig1": Shown(
        "Accuracy under interventions", "interventions", ("worths",), ("cutoff", "baselines")
    ),
    "fig2": Shown(
        "Last-item hit rates", "last_item_hit_rates", ("last_item_hit_rates",), ("cutoff",)
    ),
    "fig3": Shown(
        "Attention and AttnResLN maps", "attention_maps", ("attention_maps",), folded=True
    ),
    "fig4": Shown(
        "λ against HRLI and mixing",
        "residual_sweep",
        ("residual_sweep", "mixing_by_scale"),
        ("cutoff",),
        folded=True,
    ),
    "fig5": Shown(
        "HRLI against accuracy along λ",
        "tradeoff",
        ("residual_sweep",),
        ("cutoff",),
        folded=True,
    ),
    "fig6": Shown(
        "Chosen λ and oracle",
        "recovery",
        ("recovery_sweep", "recovery_curves", "chosen_scales"),
        ("tolerance", "cutoff"),
        folded=True,
    ),
    "fig7": Shown("Tie order", "tie_order", ("tie_order",), ("cutoff",)),
    "fig8": Shown("What is worth what", "worths", ("worths",), ("cutoff", "baselines")),
}

#: Parameters of the functions that the config calls otherwise.
_KEYS = {
    "cutoff": "headline_cutoff",
    "tolerance": "headline_tolerance",
    "tolerances": "accuracy_tolerances",
}
#: Keys of the config that change a diagnostic's file, beside data and training.
_DIAGNOSTICS = {
    "evaluation.json": ("cutoffs",),
    "interventions.parquet": (
        "interventions",
        "shuffle_repeats",
        "shuffle_seed",
        "headline_cutoff",
    ),
    "maps.parquet": ("map_positions",),
    "rescale.parquet": ("residual_scales", "rescale_shuffle_repeats", "shuffle_seed"),
    "rescale_mixing.parquet": ("residual_scales",),
}
#: Keys that do not change what is read: where a log lies, and what is said about it;
#: the filter of seen items is of the runs.
_PLACES = ("url", "share", "package", "by_hand", "path", "bytes")
_NOT_OF_A_LOG = ("sources", "title", "licence", "filter_seen")


def runs_of(config: Mapping[str, Any], of: str) -> list[dict[str, Any]]:
    """The runs that a summary reads the files of (:class:`Summary`), of ``datasets``
    their names alone.
    """
    if of == "datasets":
        return [{"dataset": name} for name in config["datasets"]]
    if of == "tie_order":
        return tie_order_runs(config)
    baselines = config["baselines"] if of == "all" else []
    return study_runs(config, config["models"] + baselines)


def settings_of(config: Mapping[str, Any], product: Summary | Shown) -> dict[str, Any]:
    """What the function of a summary, table or figure is told."""
    return {name: config[_KEYS.get(name, name)] for name in product.settings}


def study_of(config: Mapping[str, Any], product: Summary | Shown) -> str:
    """12 hex digits: a hash of all settings that can change a summary, table or figure;
    equal for studies that agree in them, whatever else they differ in.
    """
    return _digest(_behind(config, product))


def study_of_run(
    config: Mapping[str, Any], run: Mapping[str, Any], point: Mapping[str, Any] | None = None
) -> str:
    """12 hex digits: a hash of all settings that can change a training.

    Parameters
    ----------
    run : dataset, split, model and seed.
    point : values of the settings at a point of the model's grid.
    """
    model, chosen = run["model"], dict(config["model_settings"])
    if point is not None:
        fixed = {key: value for key, value in chosen[model].items() if key != "grid"}
        chosen[model] = fixed | dict(point)
    run = {**run, "seed": int(run["seed"])}
    return _digest(_of_runs({**config, "model_settings": chosen}, [run]))


def split_settings(config: Mapping[str, Any], split: str) -> dict[str, Any]:
    """What a split is told, without what has no influence on it."""
    gts, told = config["gts"], {"kind": split, "target": config["target"]}
    if split == "gts":
        told |= {"quantile": gts["quantile"], "validation-kind": gts["validation"]}
        if gts["validation"] == "by_user":
            told |= {"validation-users": gts["validation_users"], "seed": config["data_seed"]}
    if config["target"] == "random":
        told["seed"] = config["data_seed"]
    return told


def ties_settings(config: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    """The order of ties, with the seed where it has an influence."""
    stanza = config["registry"][dataset]
    told = {"ties": stanza["ties"]}
    if stanza["ties"] == "random":
        told["seed"] = stanza.get("ties_seed", config["data_seed"])
    return told


def _behind(config: Mapping[str, Any], product: Summary | Shown) -> dict[str, Any]:
    """Everything of the config that a summary, table or figure depends on."""
    behind: dict[str, Any] = {"own": settings_of(config, product)}
    for read in product.reads:
        behind[read] = (
            _behind(config, SUMMARIES[read])
            if read in SUMMARIES
            else {key: config[key] for key in _DIAGNOSTICS.get(read, ())}
        )
    if isinstance(product, Summary):
        behind["runs"] = _of_runs(config, runs_of(config, product.of))
    return behind


def _of_runs(config: Mapping[str, Any], runs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything of the config that data and trainings of runs depend on."""
    runs = list(runs)
    datasets, splits, models = (
        list(dict.fromkeys(run[key] for run in runs if key in run))
        for key in ("dataset", "split", "model")
    )
    registry, default = config["registry"], {"validation_cutoff": config["headline_cutoff"]}
    trained = {
        name: {**settings, "training": used(default | training_of(config, name))}
        for name, settings in config["model_settings"].items()
        if name in models
    }
    return {
        "runs": runs,
        "p_core": config["p_core"],
        "logs": {
            name: {**_content(registry[name]), **ties_settings(config, name)} for name in datasets
        },
        "splits": {split: split_settings(config, split) for split in splits},
        "models": trained,
        "filter_seen": {name: registry[name]["filter_seen"] for name in datasets if models},
    }


def _content(stanza: Mapping[str, Any]) -> dict[str, Any]:
    """A stanza of the registry without what does not change the log that is read."""
    sources = [
        {key: value for key, value in source.items() if key not in _PLACES}
        for source in stanza["sources"].values()
    ]
    kept = {key: value for key, value in stanza.items() if key not in _NOT_OF_A_LOG}
    return {**kept, "sources": sources}


def _digest(settings: Any) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
