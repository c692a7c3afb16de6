"""A suite: settings x models x methods x seeds in one nested YAML file, expanded to checked runs.

What stands later in this list wins: recipe, common, flags, the settings of the model, the setting and the method. The
suite itself sets each run's seed and output_dir, so those of a recipe are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from calmtune import schema
from calmtune.config import ConfigError, RunConfig, build_config, settings
from calmtune.config_scoring import EvaluationSettings, SampleSettings

Entries = Mapping[str, schema.Value]
Axes = Mapping[str, Mapping[str, Entries]]

AXES = ("settings", "models", "methods")
KEYS = ("title", "output_dir", "recipe", "common", *AXES, "seeds", "exclude")
# what an entry of `exclude` may name
EXCLUDES = ("setting", "model", "method", "seed")
# keys of a run that are the suite's own, and how to set them
OWNED = {
    "seed": "give `seeds` beside models and methods",
    "output_dir": "give `output_dir` beside models and methods; each run gets a folder in it",
    "resume_from_checkpoint": "leave it out; an interrupted run is always continued",
}
SHARED = frozenset(EvaluationSettings.__dataclass_fields__) | frozenset(SampleSettings.__dataclass_fields__)
# what decides which rows are scored; methods are compared on the same ones
SCORED_ROWS = frozenset(
    f"{split}_{what}" for split in ("calibration", "test") for what in ("sources", "share", "limit")
) | {"test_id", "test_ood", "split_seed"}
MOST_SEED = 2**32 - 1  # what numpy takes
BASE = "base"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+=-]*")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a suite.

    Args:
        setting, model, method: names in the suite file, which are those in the tables.
        seed: of the training.
        config: everything else; its output_dir is the suite's, until the run gets a folder.
    """

    setting: str
    model: str
    method: str
    seed: int
    config: RunConfig

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.setting} / {self.model} / {self.method} / seed {self.seed}"

    def placed(self, folder: Path) -> RunConfig:
        """The configuration of this run in a folder, going on from a checkpoint where there is one."""
        return _with(self.config, output_dir=str(folder), resume_from_checkpoint="auto")


@dataclass(frozen=True)
class Suite:
    """A checked suite.

    Args:
        path: the file. title: of the report. output_dir: holds every run's folder and the report.
        runs: within a setting and a model all methods of the first seed come first, so that a whole table stands early.
    """

    path: Path
    title: str
    output_dir: Path
    runs: tuple[PlannedRun, ...]


@dataclass(frozen=True)
class Filters:
    """Which part of a suite is meant; nothing given is all of it."""

    settings: Sequence[str] = ()
    models: Sequence[str] = ()
    methods: Sequence[str] = ()
    seeds: Sequence[int] = field(default=())


def read_suite(
    path: str | Path, overrides: Sequence[str] = (), filters: Filters | None = None, *, machine: bool = True
) -> Suite:
    """Read, expand and check a suite. No model or data is loaded or fetched.

    Args:
        path: the suite file.
        overrides: flags ``--key value``; they count as part of ``common``. ``--output_dir`` is the suite's.
        filters: the part that is meant; ``seeds`` replaces those of the file.
        machine: also check that this machine can do it (see :func:`calmtune.config.build_config`).

    Raises:
        ConfigError: lists every fault, of the file and of every run.
        FileNotFoundError: there is no such file.
    """
    file, filters = Path(path), filters or Filters()
    if not file.is_file():
        raise FileNotFoundError(f"there is no suite file {file} (looked in {Path.cwd()})")
    entries, faults = schema.read_yaml(schema.read_text(file), str(path))
    flags, flag_faults = schema.read_flags(overrides)
    faults += flag_faults
    for key, value in entries.items():
        if key not in KEYS:
            faults.append(f"{value.where}: a suite has no {key!r}{schema.nearest(key, KEYS)}")
    output_dir = _text(flags.pop("output_dir", None) or entries.get("output_dir"), "output_dir", faults)
    if output_dir is None and "output_dir" not in entries:
        faults.append(f"{path}: output_dir: expected the folder of the suite's runs; e.g. output_dir: runs/suite")
    title = _text(entries.get("title"), "title", faults)
    shared = {**_recipe(_text(entries.get("recipe"), "recipe", faults), file, faults)}
    shared |= _entries(entries.get("common"), "common", faults) | flags
    _refuse_owned({**_entries(entries.get("common"), "common", []), **flags}, OWNED, faults)
    axes = {axis: _axis(entries.get(axis), axis, file, faults) for axis in AXES}
    asked = list(filters.seeds)
    seeds = _checked(asked, "--seeds", faults) if asked else _seeds(entries.get("seeds"), file, faults)
    excluded = _excludes(entries.get("exclude"), axes, faults)
    wanted = {axis: _filtered(axes[axis], getattr(filters, axis), axis, faults) for axis in AXES}
    _refuse_shadowed(flags, wanted, faults)
    runs = _expand(shared, wanted, seeds, excluded, output_dir or ".", faults, machine)
    if not faults and not runs:
        faults.append(f"{path}: no run is left; exclude or the filters leave nothing")
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)), str(path))
    return Suite(file, title or file.stem, Path(output_dir or "."), tuple(runs))


def _expand(
    shared: Entries,
    axes: Axes,
    seeds: Sequence[int],
    excluded: Sequence[Mapping[str, frozenset[str]]],
    output_dir: str,
    faults: list[str],
    machine: bool,
) -> list[PlannedRun]:
    """Every run that is not excluded, and into ``faults`` what is wrong with them, each fault once."""
    runs: list[PlannedRun] = []
    found: dict[str, list[str]] = {}
    combinations, known = 0, get_args(settings()["method"].hint)
    for setting, setting_entries in axes["settings"].items():
        for model, model_entries in axes["models"].items():
            built: dict[str, RunConfig] = {}
            for method, method_entries in axes["methods"].items():
                if all(_is_excluded((setting, model, method, seed), excluded) for seed in seeds):
                    continue
                combinations += 1
                own = {"output_dir": schema.Value(output_dir, "output_dir", quoted=True)}
                try:
                    built[method] = build_config(
                        {**shared, **model_entries, **setting_entries, **method_entries, **own}, machine=machine
                    )
                except ConfigError as error:
                    for fault in error.faults:
                        found.setdefault(fault, []).append(f"{setting} / {model} / {method}")
                    continue
                trained = built[method].training["method"]
                if method in known and method != trained:
                    faults.append(
                        f"methods: {method} would train {trained}, under the name of another method; give it "
                        f"method: {method}, or another name"
                    )
            runs += [
                PlannedRun(setting, model, method, seed, _with(config, seed=seed))
                for seed in seeds
                for method, config in built.items()
                if not _is_excluded((setting, model, method, seed), excluded)
            ]
    faults += [_told_where(fault, names, combinations) for fault, names in found.items()]
    return runs


def _told_where(fault: str, names: Sequence[str], combinations: int) -> str:
    """A fault with the runs that have it, unless it names its line or is everybody's."""
    if len(names) == combinations or re.match(r"\S+:\d+: |--", fault):
        return fault
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{fault} (in {names[0]}{more})"


def _recipe(name: str | None, suite: Path, faults: list[str]) -> dict[str, schema.Value]:
    """The settings of the recipe beside the suite file."""
    if name is None:
        return {}
    file = suite.parent / name
    if not file.is_file():
        faults.append(f"recipe: there is no file {file} (the path is relative to {suite.parent})")
        return {}
    entries, found = schema.read_yaml(schema.read_text(file), str(file))
    faults += found
    return entries


def _axis(value: schema.Value | None, axis: str, file: Path, faults: list[str]) -> dict[str, Entries]:
    """Names with their settings."""
    parts = _entries(value, axis, faults)
    if value is None or _is_nothing(value) or value.content == {}:
        faults.append(f"{value.where if value else file}: {axis}: expected at least one name with its settings")
    named: dict[str, Entries] = {}
    for name, part in parts.items():
        if not _NAME.fullmatch(name):
            faults.append(
                f"{part.where}: {axis}: {name!r} names a folder and a line of the tables; expected letters, digits and "
                "_ . + = - with a letter or digit first"
            )
        if (axis, name) == ("methods", BASE):
            faults.append(f"{part.where}: methods: {name!r} is the untrained model in the tables; choose another name")
        named[name] = _entries(part, f"{axis}: {name}", faults)
        shared = dict.fromkeys(SHARED, "put it into common; the tables are made with one value")
        rows = dict.fromkeys(SCORED_ROWS, "put it into settings or common; methods are compared on the same rows")
        _refuse_owned(named[name], {**OWNED, **shared, **(rows if axis == "methods" else {})}, faults)
    return named


def _seeds(value: schema.Value | None, file: Path, faults: list[str]) -> list[int]:
    if value is None:
        faults.append(f"{file}: seeds: expected at least one whole number; e.g. seeds: [0, 1, 2]")
        return []
    try:
        seeds = list(schema.convert(value, tuple[int, ...]))
    except ValueError as error:
        faults.append(f"{value.where}: seeds: {error}")
        return []
    return _checked(seeds, f"{value.where}: seeds", faults)


def _checked(seeds: list[int], where: str, faults: list[str]) -> list[int]:
    if not seeds or not all(0 <= seed <= MOST_SEED for seed in seeds) or len(set(seeds)) < len(seeds):
        faults.append(f"{where}: expected whole numbers from 0 to {MOST_SEED}, at least one, each once, got {seeds}")
    return seeds


def _excludes(value: schema.Value | None, known: Axes, faults: list[str]) -> list[dict[str, frozenset[str]]]:
    """Combinations that are not run: each entry names one or several of every axis it is about."""
    if value is None or value.content == ():
        return []
    items = value.content if isinstance(value.content, tuple) else (value,)
    rules: list[dict[str, frozenset[str]]] = []
    for item in items:
        rule: dict[str, frozenset[str]] = {}
        for key, names in _entries(item, "exclude", faults).items():
            if key not in EXCLUDES:
                faults.append(f"{names.where}: exclude: there is no {key!r}{schema.nearest(key, EXCLUDES)}")
                continue
            try:
                rule[key] = frozenset(schema.convert(names, tuple[str, ...]))
            except ValueError as error:
                faults.append(f"{names.where}: exclude: {key}: {error}")
                continue
            if key != "seed":  # seeds may be given by a flag, so any number is fine
                there = known[f"{key}s"]
                missing = sorted(rule[key] - set(there))
                faults += [
                    f"{names.where}: exclude: there is no {key} {name!r}{schema.nearest(name, there)}"
                    for name in missing
                ]
        if not rule:
            faults.append(f"{item.where}: exclude: expected {', '.join(EXCLUDES)}, got an entry about none of them")
        rules.append(rule)
    return rules


def _is_excluded(run: tuple[str, str, str, int], rules: Iterable[Mapping[str, frozenset[str]]]) -> bool:
    names = dict(zip(EXCLUDES, map(str, run), strict=True))
    return any(rule and all(names[key] in rule[key] for key in rule) for rule in rules)


def _filtered(named: Mapping[str, Entries], wanted: Sequence[str], axis: str, faults: list[str]) -> dict[str, Entries]:
    """The names that are asked for, in the file's order."""
    for name in wanted:
        if name not in named:
            faults.append(
                f"--only_{axis}: the suite has no {name!r}{schema.nearest(name, named)}; it has {', '.join(named)}"
            )
    return {name: part for name, part in named.items() if not wanted or name in wanted}


def _refuse_shadowed(flags: Entries, axes: Axes, faults: list[str]) -> None:
    """A flag that a part of the suite would win over is told, since it would change nothing there."""
    for key in flags:
        for axis, named in axes.items():
            for name, part in named.items():
                if key in part:
                    faults.append(
                        f"--{key}: {axis}: {name} sets {key} itself ({part[key].where}), which wins; change "
                        f"it there, or leave {name} out with --only_{axis}"
                    )


def _refuse_owned(entries: Entries, owned: Mapping[str, str], faults: list[str]) -> None:
    faults += [f"{entries[key].where}: {key} cannot stand here; {owned[key]}" for key in entries if key in owned]


def _entries(value: schema.Value | None, what: str, faults: list[str]) -> dict[str, schema.Value]:
    """The entries of a mapping; nothing where nothing stands."""
    if value is None or _is_nothing(value):
        return {}
    if not isinstance(value.content, Mapping):
        faults.append(f"{value.where}: {what}: expected lines of the form key: value")
        return {}
    return dict(value.content)


def _is_nothing(value: schema.Value) -> bool:
    return isinstance(value.content, str) and value.content in schema.NULLS and not value.quoted


def _text(value: schema.Value | None, key: str, faults: list[str]) -> str | None:
    if value is None:
        return None
    try:
        return str(schema.convert(value, str))
    except ValueError as error:
        faults.append(f"{value.where}: {key}: {error}")
        return None


def _with(config: RunConfig, **training: Any) -> RunConfig:
    return replace(config, training={**config.training, **training})
