"""Checking the config before any job starts; light enough to be imported while a
Snakefile is parsed.
"""

import contextlib
import copy
import itertools
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from lastitem.data.download.local_files import (
    FINGERPRINTS,
    KEPT,
    KEPT_NOTE,
    LOG,
    PROVENANCE,
    RECORDS,
    by_hand_file,
    on_disk,
)
from lastitem.errors import InputError
from lastitem.models.settings import ARCHITECTURES
from lastitem.study.dependencies import files_of
from lastitem.study.interventions import known as intervention
from lastitem.study.settings import TrainingSettings, checked, instead, schema_of, unused

#: The keys that name a run, and the key of the config that lists the values of each.
_OF_RUN = {
    "dataset": ("datasets",),
    "split": ("splits",),
    "model": ("models", "baselines"),
    "seed": ("seeds",),
}

#: JSON takes 3.0 for an integer; the scripts' arguments do not.
_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)

_NAMED_IN = {"datasets": "registry", "models": "model_settings", "baselines": "model_settings"}


def check(config: Mapping[str, Any], schema: str | Path) -> None:
    """Hold a merged config against its JSON schema, and its names against each other.

    A dataset's stanza may be short, a ``path`` or ``url`` and ``columns`` (and other
    keys of a source and its ``form``); it is written out in place, as one source called
    ``own``, with the default order of ties and filter of seen items.

    Numbers and truth values inside a list or dictionary given by ``--config`` arrive as
    text; where the schema wants a number or a truth value, they are replaced by it in
    place.

    Each dataset of the tie-order study is added to the registry once for each of its
    orders (:func:`tie_variants`).

    Raises
    ------
    InputError listing every fault with its key, its value and what is allowed.
    """
    rules = yaml.safe_load(Path(schema).read_text(encoding="utf-8"))
    _fill_in(rules["$defs"])
    validator = _Validator(rules)
    registry = config["registry"] if isinstance(config.get("registry"), Mapping) else {}
    stanzas = {name: stanza for name, stanza in registry.items() if isinstance(stanza, dict)}
    short = {name for name, stanza in stanzas.items() if "sources" not in stanza}
    for stanza in stanzas.values():
        _write_out(stanza, rules["$defs"])
    _read_texts(config, validator)
    faults = [f"{place}: {value!r} is not a finite number" for place, value in _not_finite(config)]
    faults += [
        line
        for error in sorted(
            validator.iter_errors(config), key=lambda error: _dotted(error.absolute_path)
        )
        for line in _explain(error, rules["$defs"], short)
    ]
    if not faults:
        _read_grid_texts(config)
        faults = [*_check_names(config), *_check_sources(config), *_check_models(config)]
    if faults:
        raise InputError(
            "the config cannot be used:\n"
            + "\n".join(f"  {fault}" for fault in dict.fromkeys(faults))
        )
    for name in tie_datasets(config):
        for variant, ties in tie_variants(config, name).items():
            registry[variant] = copy.deepcopy(registry[name]) | {"log_of": name, **ties}


def tie_datasets(config: Mapping[str, Any]) -> list[str]:
    """Datasets of the tie-order study: those of the study that it names, so that a
    study of other logs has none.
    """
    return [name for name in config["datasets"] if name in config["tie_order"]["datasets"]]


def tie_variants(config: Mapping[str, Any], dataset: str) -> dict[str, dict[str, Any]]:
    """Names of the datasets that the tie-order study makes of one: its log with ties by
    item id, and with several random orders.
    """
    variants: dict[str, dict[str, Any]] = {f"{dataset}.ties-item": {"ties": "item"}}
    for draw in range(1, config["tie_order"]["draws"] + 1):
        variants[f"{dataset}.ties-random-{draw}"] = {"ties": "random", "ties_seed": draw}
    return variants


def tie_order_runs(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The runs of the tie-order study: dataset, split, model and seed of each; of what
    it names, the runs that the study has, too.
    """
    named = {key: config["tie_order"][f"{key}s"] for key in ("dataset", "split", "model")}
    runs = [run for run in study_runs(config, config["models"]) if _matches(run, named)]
    return [
        run | {"dataset": variant}
        for name in tie_datasets(config)
        for variant in tie_variants(config, name)
        for run in runs
        if run["dataset"] == name
    ]


def why_no_tie_order(config: Mapping[str, Any]) -> str:
    """Why the tie-order study has no run, and what to name where."""
    named = config["tie_order"]
    if not named["datasets"]:
        return "name its logs, splits and models under tie_order in the config"
    apart = [
        f"tie_order.{key} ({', '.join(named[key])}) and {key} ({', '.join(config[key])}) have no"
        " name in common"
        for key in ("datasets", "splits", "models")
        if not {*named[key]} & {*config[key]}
    ]
    # Each key has something in common, so only this can leave nothing.
    return "; ".join(apart) or "exclude leaves out every run that tie_order names"


def training_of(config: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The study's training settings, overridden by the model's own."""
    return config["training"] | config["model_settings"][model].get("training", {})


def unused_settings(config: Mapping[str, Any]) -> list[str]:
    """What the config sets for trainings that do not use it, in words."""
    return [
        f"model {model}: training.{name} is set to {training_of(config, model)[name]}, but {why}"
        for model in [*config["models"], *config["baselines"]]
        if model in config["models"] or "training" in config["model_settings"][model]
        for name, why in unused(training_of(config, model)).items()
    ]


def study_runs(config: Mapping[str, Any], models: Iterable[str]) -> list[dict[str, Any]]:
    """The runs of a checked config for some of its models: every combination but those
    that an entry of ``exclude`` matches.

    Returns
    -------
    dataset, split, model and seed of each run, in the order of the config.
    """
    every = itertools.product(config["datasets"], config["splits"], models, config["seeds"])
    runs = [dict(zip(_OF_RUN, values, strict=True)) for values in every]
    return [run for run in runs if not any(_matches(run, entry) for entry in config["exclude"])]


def _matches(run: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    return all(run[key] in _listed(wanted) for key, wanted in entry.items())


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _write_out(stanza: dict[str, Any], definitions: Mapping[str, Any]) -> None:
    if "sources" not in stanza:
        of_source, of_dataset = _keys_of(definitions)
        source = {key: stanza.pop(key) for key in of_source if key in stanza}
        # What is left is of the form, or misspelt: there the keys that may be meant are
        # listed.
        form = {key: stanza.pop(key) for key in list(stanza) if key not in of_dataset}
        stanza["sources"] = {"own": {"form": form, **source}}
    stanza.setdefault("ties", "file")
    stanza.setdefault("filter_seen", True)


def _keys_of(definitions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the schema says of each key of a source, and of a dataset."""
    return [definitions[kind]["properties"] for kind in ("source", "dataset")]


def _read_texts(config: Any, validator: jsonschema.Draft202012Validator) -> None:
    for error in list(validator.iter_errors(config)):
        if error.validator != "type" or not isinstance(error.instance, str):
            continue
        try:
            value = json.loads(error.instance)
        except json.JSONDecodeError:
            continue
        if any(validator.is_type(value, kind) for kind in _listed(error.validator_value)):
            *way, last = error.absolute_path
            container = config
            for step in way:
                container = container[step]
            container[last] = value


def _not_finite(config: Any, place: str = "") -> Iterable[tuple[str, float]]:
    if isinstance(config, float) and not math.isfinite(config):
        yield place[1:], config
    elif isinstance(config, Mapping | list):
        for key, value in config.items() if isinstance(config, Mapping) else enumerate(config):
            yield from _not_finite(value, f"{place}.{key}")


def _dotted(way: Iterable[object]) -> str:
    return ".".join(map(str, way))


def _explain(
    error: jsonschema.ValidationError, definitions: Mapping[str, Any], short: Collection[str]
) -> Iterable[str]:
    """Lines for one fault; in a dataset's stanza that was written ``short``, with the
    place and the keys that its author knows.
    """
    way, known = list(error.absolute_path), list(error.schema.get("properties", {}))
    if way[2:4] == ["sources", "own"] and way[1] in short:
        way = [*way[:2], *(way[5:] if way[4:5] == ["form"] else way[4:])]
        if len(way) == 2:
            of_source, of_dataset = _keys_of(definitions)
            known = [
                key
                for key in (*of_source, *of_source["form"]["properties"], *of_dataset)
                if key not in ("form", "sources")
            ]
    place = _dotted(way) or "top level"
    value, wanted = error.instance, error.validator_value
    lines: Iterable[str]
    match error.validator:
        case "additionalProperties":
            lines = _unknown_keys(error, known)
        case "required":
            lines = [f"key {key!r} is missing" for key in wanted if key not in value]
        case "enum":
            lines = [f"{value!r} is not allowed{instead(value, wanted)}"]
        case "oneOf":
            lines = _not_one_key(value, wanted)
        case "contains":
            lines = [f"{value!r} must hold {wanted.get('const')!r}"]
        case _:
            lines = _broken_rule(error)
    return [f"{place}: {line}" for line in lines]


def _unknown_keys(error: jsonschema.ValidationError, known: Iterable[str]) -> Iterable[str]:
    value = error.instance
    for key in sorted(set(value) - set(error.schema.get("properties", {})), key=str):
        yield f"unknown key {key!r} (its value: {value[key]!r}){instead(key, known)}"
        if key in ("path", "url", "columns") and isinstance(value.get("sources"), Mapping):
            yield (
                "the keys of one file stand here, or `sources`, and this dataset has sources"
                f" already ({', '.join(value['sources'])}); take another name for yours, or add"
                " your file as one more of them: sources: {mine: {path: …, form: {columns: …}}}"
            )


def _not_one_key(value: object, options: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    # What is no mapping is told by its type, too.
    if isinstance(value, Mapping):
        keys = ", ".join(option["required"][0] for option in options)
        yield f"name exactly one of {keys}; found: {', '.join(map(str, value)) or 'nothing'}"


def _broken_rule(error: jsonschema.ValidationError) -> Iterable[str]:
    rule = _RULES.get(str(error.validator), f"breaks the rule {error.validator}:")
    limit = "" if error.validator_value is True else f" {error.validator_value}"
    if limit == " integer":
        limit += ", a whole number without a point"
    described = error.schema.get("description")
    yield f"{error.instance!r} {rule}{limit}" + (f" ({described})" if described else "")


#: Any other rule → what the value must be.
_RULES = {
    "type": "must be of type",
    "minimum": "must be at least",
    "maximum": "must be at most",
    "exclusiveMinimum": "must be above",
    "exclusiveMaximum": "must be below",
    "minItems": "needs at least this many entries:",
    "minProperties": "needs at least this many keys:",
    "pattern": "must match",
    "uniqueItems": "must not repeat an entry",
}


def _check_names(config: Mapping[str, Any]) -> Iterable[str]:
    for prefix, names in (("", config), ("tie_order.", config["tie_order"])):
        for key, registry in _NAMED_IN.items():
            for name in names.get(key, ()):
                if name not in config[registry]:
                    meant = instead(name, config[registry])
                    yield f"{prefix}{key}: {name!r} is not in {registry}{meant}"
    for name in tie_datasets(config):
        for variant in tie_variants(config, name):
            if variant in config["registry"]:
                yield (
                    f"registry.{variant}: the tie-order study of {name!r} makes a dataset of this"
                    " name; rename yours"
                )
    for name in config["interventions"]:
        try:
            intervention(name)
        except InputError as error:
            yield str(error)
    for place, entry in enumerate(config["exclude"]):
        for key, wanted in entry.items():
            known = [value for source in _OF_RUN[key] for value in config[source]]
            for value in _listed(wanted):
                if value not in known:
                    meant = instead(value, known)
                    yield f"exclude.{place}.{key}: {value!r} is not in this study{meant}"
    if config["models"] and not study_runs(config, config["models"]):
        yield "exclude: leaves out every run of every model"
    for name in set(config["models"]) & set(config["baselines"]):
        yield f"baselines: {name!r} is also in models; name it once"
    for key, among in (
        ("headline_tolerance", "accuracy_tolerances"),
        ("headline_cutoff", "cutoffs"),
    ):
        if config[key] not in config[among]:
            yield (
                f"{key}: {config[key]!r} is not in {among}; allowed:"
                f" {', '.join(map(str, config[among]))}"
            )


def _check_sources(config: Mapping[str, Any]) -> Iterable[str]:
    """Whether each dataset may have its name, and each of its sources can be read."""
    for name, dataset in config["registry"].items():
        if re.fullmatch(r"((table|fig)\d|comparisons|claims|index|report|README)\.[a-z]+", name):
            yield f"registry.{name}: a file in results/ has this name; rename the dataset"
        for source, entry in dataset["sources"].items():
            where = f"registry.{name}.sources.{source}"
            if "by_hand" in entry and by_hand_file(entry, Path("data", name)) is None:
                yield (
                    f"{where}.by_hand.file: {entry['by_hand']['file']!r} is no name, or one that"
                    " the pipeline itself uses"
                )
            if "path" in entry and _is_ours(entry["path"], name):
                yield (
                    f"{where}.path: {entry['path']!r} is where the pipeline itself writes; keep the"
                    " file elsewhere"
                )
            for line in _check_form(entry["form"]):
                yield f"{where}.form.{line}"


def _check_form(form: Mapping[str, Any]) -> Iterable[str]:
    header, columns = form.get("header", True), form["columns"]
    if not all(isinstance(column, str if header else int) for column in columns.values()):
        wanted = "names" if header else "0-based positions"
        yield f"columns: {columns} must be {wanted} when header is {header}"
    if len(set(map(str, columns.values()))) < len(columns):
        yield f"columns: {columns} must name a column of its own for each"
    if "\\" in form.get("separator", ""):
        yield (
            f"separator: {form['separator']!r} holds a backslash; in YAML a tab is"
            ' "\\t", in double quotes'
        )
    if not _is_encoding(form.get("encoding", "utf-8")):
        yield (
            f"encoding: {form['encoding']!r} is not known; utf-8, latin-1, cp1252, gbk are examples"
        )


def _read_grid_texts(config: Mapping[str, Any]) -> None:
    """Numbers in a grid, or for a model of one's own, arrive as text if given by
    ``--config``; no setting of a model is text that looks like a number.
    """
    for settings in config["model_settings"].values():
        own = ":" in settings["architecture"]
        for container in (*settings.get("grid", {}).values(), *((settings,) if own else ())):
            for place, value in (
                container.items() if isinstance(container, dict) else enumerate(container)
            ):
                with contextlib.suppress(json.JSONDecodeError, TypeError):
                    container[place] = json.loads(value)


def _fill_in(definitions: dict[str, Any]) -> None:
    """Add to the schema what can be set of training and of each architecture."""
    definitions["training"]["properties"] = schema_of(TrainingSettings)
    model = definitions["model"]
    model["allOf"] = [
        {
            "if": {
                "properties": {"architecture": {"const": name}},
                "required": ["architecture"],
            },
            "then": {
                "additionalProperties": False,
                "properties": dict.fromkeys(model["properties"], True) | schema_of(kind),
            },
        }
        for name, (_, kind) in ARCHITECTURES.items()
    ]


def own_settings(model: Mapping[str, Any]) -> dict[str, Any]:
    """Of a model's entry, what its architecture is built with."""
    return {key: model[key] for key in model if key not in ("architecture", "training", "grid")}


def _check_models(config: Mapping[str, Any]) -> Iterable[str]:
    """Architectures that are there, and settings, each value of a grid included, that
    fit together.
    """
    named = {*config["models"], *config["baselines"], *config["tie_order"]["models"]}
    for name, model in config["model_settings"].items():
        where, architecture = f"model_settings.{name}", model["architecture"]
        points = [
            (".grid", {key: value})
            for key, values in model.get("grid", {}).items()
            for value in values
        ]
        try:
            if ":" in architecture:
                if name in named:
                    where += ".architecture"
                    files_of(architecture)
                continue
            if architecture not in ARCHITECTURES:
                meant = instead(architecture, [*ARCHITECTURES, "package.module:Class"])
                yield f"{where}.architecture: {architecture!r} is not allowed{meant}"
                continue
            for place, change in [("", {}), *points]:
                where = f"model_settings.{name}{place}"
                checked(ARCHITECTURES[architecture][1], own_settings(model) | change, where)
        except InputError as error:
            text = str(error)
            yield text if text.startswith(where) else f"{where}: {text}"


def _is_encoding(name: str) -> bool:
    try:
        b"a\xff".decode(name, "ignore")
    except (LookupError, UnicodeError):
        return False
    return True


def _is_ours(path: str, dataset: str) -> bool:
    folder = Path("data", dataset).resolve()
    return on_disk(path).resolve() in (
        folder,
        *(folder / name for name in (LOG, PROVENANCE, RECORDS, FINGERPRINTS, KEPT, KEPT_NOTE)),
    )
