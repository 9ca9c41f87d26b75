# What every rules file uses: the checked config, paths, wildcards, and the few
# functions of wildcards. Parsed again in every cluster job, so nothing heavy (torch,
# pandas, numpy) may be imported here.
import functools
import itertools
import json
import os
import re
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

sys.path.insert(0, str(Path(workflow.basedir) / "src"))

from lastitem.models.settings import import_path
from lastitem.study.settings import used
from lastitem.study.config import training_of, unused_settings
from lastitem.study.config import check, own_settings, study_runs, why_no_tie_order
from lastitem.errors import InputError, after_failure
from lastitem.study.dependencies import files_of, imported_modules
from lastitem.study.products import FIGURES, SUMMARIES, TABLES
from lastitem.study.products import (
    runs_of,
    settings_of,
    split_settings,
    study_of,
    study_of_run,
    ties_settings,
)
from lastitem.data.download.local_files import fingerprints, without_password

try:
    check(config, Path(workflow.basedir) / "workflow/schemas/config.schema.yaml")
except InputError as error:
    raise WorkflowError(str(error)) from None

# A profile that means GPUs says so with the scope of a resource: that is no option
# anybody gives on the command line, where --config takes the place of the profile's own
# `config`, and --resources of its `resources`.
if (
    "cuda" in workflow.resource_settings.overwrite_resource_scopes
    and "device" not in workflow.config_settings.config
):
    raise WorkflowError(
        "device: --config on the command line takes the place of the profile's device=cuda; say"
        " both: --config device=cuda … (device=cpu for a cluster without GPUs)"
    )

# Relative where the workflow lies in the working directory, so that moving the folder
# changes no path.
SCRIPTS = os.path.relpath(Path(workflow.basedir) / "src")
PUBLISHED = os.path.relpath(Path(workflow.basedir) / "config/published")
CAPTIONS = os.path.relpath(Path(workflow.basedir) / "workflow/report")
ENVIRONMENT = f"{workflow.basedir}/envs/lastitem.yaml"

CORE = "results/{dataset}/core"
SPLIT = "results/{dataset}/{split}"
RUN = "results/{dataset}/{split}/{model}/seed={seed}"
GRID = "results/{dataset}/{split}/{model}/grid/{point}/seed={seed}"
OF_DATASETS = ("statistics.json", "users.parquet")
RUN_NAME = "{dataset}.{split}.{model}.seed={seed}"


wildcard_constraints:
    dataset="|".join(map(re.escape, config["registry"])),
    split="gts|loo",
    model="|".join(map(re.escape, config["model_settings"])),
    seed="[0-9]+",
    point="[^/]+",
    summary="|".join(SUMMARIES),


def stanza(wildcards):
    """The log's entry in the config."""
    return config["registry"][wildcards.dataset]


def entry(wildcards):
    """The model's entry in the config."""
    return config["model_settings"][wildcards.model]


def script(name):
    """The script a rule calls."""
    return f"{SCRIPTS}/{name}"


@functools.cache
def modules(name):
    """The library modules a script imports: as inputs they make an edit rerun what
    depends on it.
    """
    return [str(path) for path in imported_modules(script(name))]


def architecture(wildcards):
    """Which model it is."""
    return entry(wildcards)["architecture"]


def model_code(script):
    """The files a model is made of, beside those the script imports: an edit trains
    it anew, and no other.
    """
    return lambda wildcards: code_beside(script, import_path(architecture(wildcards)))


@functools.cache
def code_beside(script, model):
    imported = modules(script)
    return [path for path in map(str, files_of(model)) if path not in imported]


def runs(path, models=None):
    """One file of every run of the study."""
    return [
        f"{RUN}/{path}".format(**run)
        for run in study_runs(config, config["models"] if models is None else models)
    ]


def made(products):
    """The names of the tables or figures of this study: those of the tie-order study
    only where there is one.
    """
    has_ties = bool(runs_of(config, "tie_order"))
    return [name for name, shown in products.items() if has_ties or "tie_order" not in shown.reads]


def files_of_summary(wildcards):
    """What a summary reads: other summaries, and files of runs or datasets, with the
    description of each run.
    """
    summary = SUMMARIES[wildcards.summary]
    behind = runs_of(config, summary.of)
    if not behind:
        raise WorkflowError(
            f"table5, fig7: this study has no tie-order study: {why_no_tie_order(config)}"
        )
    places = []
    for name in summary.reads:
        folder = CORE if name in OF_DATASETS else RUN
        places.append(
            f"results/summaries/{name}.parquet" if name in SUMMARIES else f"{folder}/{name}"
        )
    if any(place.startswith(f"{RUN}/") for place in places):
        places.append(f"{RUN}/model.json")
    return list(dict.fromkeys(place.format(**run) for place in places for run in behind))


def told(product):
    """Options: the settings of a summary, table or figure, the study it is of, and
    those of the summaries it reads.
    """
    return options_of(
        {
            "settings": json.dumps(settings_of(config, product)),
            "study": study_of(config, product),
            "studies": json.dumps(studies(SUMMARIES, product.reads)),
        }
    )


def studies(products, names):
    """Name → the study that a summary, table or figure must be of."""
    return {name: study_of(config, products[name]) for name in names if name in products}


def raw(path):
    """A file of the raw log of a dataset, which may be that of another one with other ties."""

    return lambda log: f"data/{stanza(log).get('log_of', log.dataset)}/{path}"


def is_there(path):
    """Whether a file is there before its job begins: true or false."""
    return lambda wildcards: str(os.path.exists(path.format(**wildcards))).lower()


def of_sources(*keys):
    """JSON: the given keys of each source of a dataset, in the order in which sources are tried."""

    def select(wildcards):
        # The order of the sources counts, that of their keys does not.
        sources = stanza(wildcards)["sources"].items()
        return json.dumps({name: in_order(source, keys) for name, source in sources})

    return select


def in_order(mapping, keys):
    """What a mapping has of some keys, these and those inside sorted."""
    chosen = {key: mapping[key] for key in keys if key in mapping}
    return json.loads(json.dumps(chosen, sort_keys=True))


def origin(wildcards):
    """JSON: the state of the local files a dataset may come from. As a parameter it makes a change
    of one rerun what follows; as an input, a file that has gone would make Snakemake throw away
    what was made of it.
    """
    found = fingerprints(stanza(wildcards)["sources"], Path("data", wildcards.dataset))
    return json.dumps(found, sort_keys=True)


def split_options(wildcards):
    """What a split is told, without what has no influence on it."""
    return options_of(split_settings(config, wildcards.split))


def ties_options(wildcards):
    """The order of ties, with the seed where it has an influence."""
    return options_of(ties_settings(config, wildcards.dataset))


def options_of(settings):
    """Settings as options of a command line."""
    return " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in settings.items())


def filter_seen(wildcards):
    """Whether seen items are left out of the recommendations, as the dataset's stanza says."""
    return str(stanza(wildcards)["filter_seen"]).lower()


def gpu(wildcards):
    """GPUs of one job."""
    return 0 if config["device"] == "cpu" else 1


def attempts(megabytes):
    """Memory that grows with each retry."""
    return lambda wildcards, attempt: megabytes * attempt


def diagnosis(options):
    """The command of a diagnosis: the script, the run, its trained model, the test part, where to
    compute, and options of its own.
    """
    return (
        "OMP_NUM_THREADS={threads} python {input.script:q} --dataset {wildcards.dataset:q}"
        " --split {wildcards.split} --model {wildcards.model:q} --seed {wildcards.seed}"
        " --weights {input.weights:q} --description {input.description:q} --test {input.test:q}"
        f" --device {{params.device}} --threads {{threads}} {options} > {{log:q}} 2>&1"
    )


def model_settings(wildcards):
    """JSON: what the architecture is built with; at a point of a grid, with that point's values."""
    own = own_settings(entry(wildcards))
    point = getattr(wildcards, "point", None)
    return json.dumps(own | (grid_points(wildcards.model)[point] if point else {}), sort_keys=True)


def grid_points(model):
    """Name → settings of each point of a model's grid, in the order of the grid;
    empty if it has none.
    """
    grid = config["model_settings"][model].get("grid", {})
    points = (
        [dict(zip(grid, values)) for values in itertools.product(*grid.values())] if grid else []
    )
    return {",".join(f"{key}={value}" for key, value in point.items()): point for point in points}


def study_of_training(wildcards):
    """A hash of all settings that can change a training, which its learning curve carries."""
    return study_of_run(config, wildcards, grid_points(wildcards.model).get(wildcards.get("point")))


def of_grid(path):
    """One file of each point of the grid of a model, trained with the first seed."""

    def files(wildcards):
        known = {**wildcards, "seed": config["seeds"][0]}
        points = grid_points(wildcards.model)
        return [f"{GRID}/{path}".format(**known, point=point) for point in points]

    return files


def choice(wildcards):
    """The choice that a training with a grid follows, and with the first seed the
    models it chose among.
    """
    if not grid_points(wildcards.model):
        return []
    trained = [
        of_grid(name)(wildcards)
        for name in ("model.safetensors", "model.json", "learning_curve.csv")
    ]
    others = sum(trained, []) if int(wildcards.seed) == config["seeds"][0] else []
    return [f"results/{wildcards.dataset}/{wildcards.split}/{wildcards.model}/choice.json", *others]


def training_settings(wildcards):
    """JSON: the study's training settings, overridden by the model's own."""
    settings = {"validation_cutoff": config["headline_cutoff"]}
    return json.dumps(used(settings | training_of(config, wildcards.model)), sort_keys=True)


def study_settings(wildcards):
    """JSON: the config, of the registry and the models only what the study names."""
    models = {*config["models"], *config["baselines"], *config["tie_order"]["models"]}
    chosen = {
        "registry": in_order(config["registry"], config["datasets"]),
        "model_settings": in_order(config["model_settings"], sorted(models)),
    }
    return without_password(json.dumps(config | chosen, sort_keys=True))
