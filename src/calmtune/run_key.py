"""What a run's figures depend on, as a key: equal keys, equal runs.

A key has four parts: the settings, the code of the rooms that decide figures, the content of the data, and the model's
files where it is a local one.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from calmtune.config import DataSettings, RunConfig, settings
from calmtune.config_scoring import EvaluationSettings
from calmtune.data.facts import facts
from calmtune.data.hub import HUB
from calmtune.data.splits import fingerprint
from calmtune.training.checkpoint import VOLATILE, differences

PACKAGE = Path(__file__).parent
# rooms and files whose code decides what a run's figures are
CODE = ("bilevel", "data", "methods", "metrics", "modeling", "posthoc", "scoring", "training", "cli/splits.py")
# what the base model's scores depend on, before any training
SCORING_CODE = ("bilevel", "data", "modeling", "scoring", "cli/splits.py")
SCORING = ("scoring", "template", "system_prompt", "open_prompt", "normalisation", "max_length", "use_cpu")
SOURCES = ("train_sources", "upper_sources", "calibration_sources", "test_id", "test_ood")
# free while nothing is chosen among checkpoints
SELECTION = frozenset({
    "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "eval_steps", "eval_strategy", "save_steps",
    "save_strategy",
})  # fmt: skip
_SAMPLE = 1 << 16


@dataclass(frozen=True)
class RunKey:
    """The parts of a key, JSON values only.

    Args:
        config: every setting that changes what is computed, by key. The data's sources are not among them.
        code: SHA-256 by room.
        data: for each kind of source, the names and SHA-256 of its sources; a moved file keeps its key.
        model: SHA-256 of a local model's files, or None.
    """

    config: Mapping[str, Any]
    code: Mapping[str, str]
    data: Mapping[str, list[str]]
    model: str | None

    @property
    def digest(self) -> str:
        """Hex SHA-256 of all parts."""
        return _digest(asdict(self))

    def record(self) -> dict[str, Any]:
        """The parts as they are kept beside a run."""
        return asdict(self)


def run_key(config: RunConfig) -> RunKey:
    """The key of a run, whatever its folder.

    Raises:
        ValueError: a data source that is not there.
    """
    values = _plain(config.values())
    free = VOLATILE | set(EvaluationSettings.__dataclass_fields__) | {*SOURCES}
    if values["load_best_model_at_end"]:
        free -= SELECTION
    kept = {name: value for name, value in values.items() if name not in free}
    return RunKey(kept, code_version(), data_version(config.data), model_version(config.model.model_name_or_path))


def base_digest(config: RunConfig, versions: Mapping[str, str]) -> str:
    """Hex SHA-256 of what the base model's scores depend on; runs that share it have the same base.

    Args:
        config: of any run on that base. versions: of the libraries that compute, by name.
    """
    code = code_version()
    data = {key: value for key, value in asdict(config.data).items() if key not in SOURCES}
    return _digest({
        "model": [asdict(config.model), model_version(config.model.model_name_or_path)],
        "data": [_plain(data), data_version(config.data)],
        "scoring": {name: _plain(config.training[name]) for name in SCORING},
        "sampling": _plain(asdict(config.sampling)),
        "code": {name: code[name] for name in SCORING_CODE},
        "versions": dict(versions),
    })  # fmt: skip


def changes(old: Mapping[str, Any], new: RunKey) -> list[str]:
    """What differs between the record of an older run and a key, one line each.

    A setting that the older version did not have, at its default now, is no difference.
    """
    defaults = {name: _plain(setting.default) for name, setting in settings().items()}
    before = {**{name: defaults[name] for name in new.config if name in defaults}, **old["config"]}
    found = differences(before, new.config)
    if old["data"] != new.data:
        kinds = [kind for kind in new.data if old["data"].get(kind) != new.data[kind]]
        found.append(f"data: {', '.join(kinds)}")
    if old["model"] != new.model:
        found.append("model: the files of the model")
    return found + code_changes(old, new)


def code_changes(old: Mapping[str, Any], new: RunKey) -> list[str]:
    """The rooms whose code differs, as one line or none."""
    rooms = sorted(name for name in {*old["code"], *new.code} if old["code"].get(name) != new.code.get(name))
    return [f"code: {', '.join(rooms)}"] if rooms else []


def code_version(package: Path = PACKAGE) -> dict[str, str]:
    """Hex SHA-256 of the code of each room and file of :data:`CODE`; comments, docstrings and layout do not count."""
    return dict(_code_version(package))


@cache
def _code_version(package: Path) -> Mapping[str, str]:
    versions: dict[str, str] = {}
    for name in CODE:
        place = package / name
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        digest = hashlib.sha256()
        for file in files:
            digest.update(file.relative_to(package).as_posix().encode() + b"\0")
            digest.update(code_text(file.read_text(encoding="utf-8")).encode() + b"\0")
        versions[name] = digest.hexdigest()
    return versions


def code_text(source: str) -> str:
    """Python source in one canonical layout, without comments and docstrings.

    >>> code_text('def f(x):\\n    "Twice."\\n    return 2*x  # why') == code_text("def f(x): return 2 * x")
    True
    """
    return ast.unparse(_WithoutDocstrings().visit(ast.parse(source)))


class _WithoutDocstrings(ast.NodeTransformer):
    """Takes out statements that are a text alone: they do nothing."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if getattr(node, "body", None) == [] and not isinstance(node, ast.Module):
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        return node


def data_version(data: DataSettings) -> dict[str, list[str]]:
    """For each kind of source its sources by name and content."""
    return {kind: [_source_version(source) for source in getattr(data, kind)] for kind in SOURCES}


def _source_version(source: str) -> str:
    if source.startswith("hub:"):
        name, _, rest = source.removeprefix("hub:").partition("/")
        pinned = "" if "@" in rest or name not in HUB else f"@{HUB[name].revision}"
        return source + pinned
    if source.partition(":")[0] == "facts":
        return f"{source} {_facts_version(source.partition(':')[2])}"
    path = Path(source).expanduser()
    if not path.is_file():
        raise ValueError(f"there is no file {source} (looked in {Path.cwd()})")
    status = path.stat()
    # the name counts too: ids and domains may come from it
    return f"{path.name} {_file_version(path, status.st_size, status.st_mtime_ns)}"


@cache
def _file_version(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def _facts_version(names: str) -> str:
    """The bank depends on data packages, so its items count, not its code alone."""
    return fingerprint(facts(names.split("+") if names else None))


def model_version(name: str) -> str | None:
    """Hex SHA-256 of a local model's files (names, sizes, and samples of their content); None for any other model."""
    path = Path(name)
    if path.is_file():
        return _digest([_sampled(path)])
    if not path.is_dir():
        return None
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return _digest([[file.relative_to(path).as_posix(), _sampled(file)] for file in files])


def _sampled(path: Path) -> str:
    """A whole small file; of a large one the beginning, the middle and the end, where training changes something."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for start in _starts(size):
            file.seek(start)
            digest.update(file.read(_SAMPLE))
    return digest.hexdigest()


def _starts(size: int) -> Iterable[int]:
    if size <= 16 * _SAMPLE:
        return range(0, size, _SAMPLE)
    return [round(part * (size - _SAMPLE) / 15) for part in range(16)]


def _plain(value: Any) -> Any:
    """As it comes back from JSON."""
    return json.loads(json.dumps(value, sort_keys=True, default=str))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
