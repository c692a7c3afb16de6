"""A run's folder: one place for every file name that the commands share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calmtune import schema
from calmtune.modeling.records import check_fields, parse_object, read_json

SPLITS = ("train", "upper", "calibration", "test_id", "test_ood")
_SPLIT_FIELDS = {"count": int, "domains": dict, "fingerprint": str, "rows": dict}
# settings that what is written after training cannot do without
NEEDED: Mapping[str, type] = {"model_name_or_path": str, "use_peft": bool, "n_bins": int, "n_resamples": int}


@dataclass(frozen=True)
class RunFolder:
    """The files of one run.

    Args:
        path: the folder, ``output_dir`` in the configuration.
    """

    path: Path

    @property
    def config(self) -> Path:
        """Every setting of the run, defaults included."""
        return self.path / "config.yaml"

    @property
    def splits(self) -> Path:
        """Which rows were in which split."""
        return self.path / "splits.json"

    @property
    def calibration(self) -> Path:
        """The form of the adjustment; written last, so its presence means that training ended."""
        return self.path / "calibration.json"

    @property
    def metrics(self) -> Path:
        """Every figure of the report, as data."""
        return self.path / "metrics.json"

    @property
    def report_html(self) -> Path:
        """The report as one self-contained page."""
        return self.path / "report.html"

    @property
    def report_markdown(self) -> Path:
        """The report's tables as Markdown."""
        return self.path / "report.md"

    @property
    def training_log(self) -> Path:
        """One JSON record for each logged step."""
        return self.path / "training_log.jsonl"

    @property
    def items(self) -> Path:
        """Question and options of every scored item."""
        return self.path / "predictions" / "items.json"

    def predictions(self, variant: str, split: str) -> Path:
        """What a model (``base``, ``tuned``) said on ``calibration`` or ``test``."""
        return self.path / "predictions" / f"{variant}.{split}.jsonl"

    def samples(self, variant: str, split: str, temperature: float = 1.0) -> Path:
        """What a distribution (``base``, ``tuned``, ``adjusted``) answered to open questions of ``calibration`` or
        ``test``, sampled at a temperature.
        """
        return self.path / "samples" / f"{_sampled_name(variant, split, temperature)}.jsonl"

    def grades(self, variant: str, split: str, temperature: float = 1.0) -> Path:
        """The same, graded."""
        return self.path / "grades" / f"{_sampled_name(variant, split, temperature)}.jsonl"

    def sample_files(self) -> list[Path]:
        """Every file of samples, by name."""
        return sorted((self.path / "samples").glob("*.jsonl"))

    def grades_of(self, samples: Path) -> Path:
        """Where the grades of a samples file belong."""
        return self.path / "grades" / samples.name

    def grid(self, variant: str) -> dict[float, Path]:
        """Grades of the calibration questions at other temperatures than 1."""
        found = {}
        for path in sorted((self.path / "grades").glob(f"{variant}.calibration.T*.jsonl")):
            found[float(path.name.removeprefix(f"{variant}.calibration.T").removesuffix(".jsonl"))] = path
        return found

    @property
    def is_open(self) -> bool:
        """Whether answers to open questions were sampled here."""
        return (self.path / "samples").is_dir()

    @property
    def is_trained(self) -> bool:
        """Whether training ended."""
        return self.calibration.is_file()

    @property
    def is_begun(self) -> bool:
        """Whether there is any training in the folder that a new run would lose: its end, or a checkpoint."""
        return self.is_trained or any(self.path.glob("checkpoint-*"))

    def read_splits(self) -> dict[str, Any]:
        """The record written by :meth:`write_json` at training.

        Raises:
            ValueError: it is damaged; names the file and the field.
        """
        record = read_json(self.splits)
        check_fields(record, {"shifts": dict, "dropped": dict, "splits": dict}, self.splits)
        for domain in record["shifts"]:
            check_fields(record["shifts"], {domain: str}, self.splits, "shifts.")
        check_fields(record["splits"], dict.fromkeys(SPLITS, dict), self.splits, "splits.")
        for name in SPLITS:
            check_fields(record["splits"][name], _SPLIT_FIELDS, self.splits, f"splits.{name}.")
        return record

    def read_calibration(self) -> dict[str, Any]:
        """What the trained model is, and the decision made at evaluation.

        Raises:
            ValueError: it is damaged; names the file.
        """
        record = read_json(self.calibration)
        check_fields(record, {"decision": dict | None}, self.calibration)
        return record

    def read_items(self) -> dict[str, Any]:
        """Question and options by item id.

        Raises:
            ValueError: it is damaged; names the file.
        """
        record = read_json(self.items)
        for key, value in record.items():
            if not _is_item(value):
                raise ValueError(
                    f"{self.items}: expected [question, [options]] for the item {key!r}, got {value!r:.60}; delete the "
                    "file and evaluate again"
                )
        return record

    def read_training_log(self) -> list[dict[str, Any]]:
        """The logged steps; none where nothing was logged."""
        if not self.training_log.is_file():
            return []
        lines = enumerate(self.training_log.read_bytes().split(b"\n"), start=1)
        return [parse_object(line, f"{self.training_log}:{number}") for number, line in lines if line]

    def read_settings(self) -> dict[str, Any]:
        """Every setting as it stands in config.yaml, without checking it against this version.

        Raises:
            ValueError: it is damaged, or lacks a setting that the reports need; names the file.
        """
        entries, faults = schema.read_yaml(schema.read_text(self.config), str(self.config))
        values = {key: schema.untyped(value) for key, value in entries.items()}
        for name, kind in NEEDED.items():
            if not faults and not isinstance(values.get(name), kind):
                found = repr(values[name]) if name in values else "nothing"
                expected = schema.describe(kind)
                faults.append(f"{self.config}: {name}: expected {expected}, got {found}; was it edited by hand?")
        if faults:
            raise ValueError("\n".join(faults))
        return values

    def write_json(self, path: Path, record: Mapping[str, Any]) -> None:
        """Write JSON in one step, so that a crash leaves the old file or the new one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".partial")
        temporary.write_text(json.dumps(record, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
        temporary.replace(path)

    def require(self) -> None:
        """Raise unless this is a run's folder.

        Raises:
            FileNotFoundError: there is no such folder, or no run in it.
        """
        if not self.config.is_file():
            what = "it has no config.yaml" if self.path.is_dir() else "there is no such folder"
            raise FileNotFoundError(
                f"{self.path} is not a run's folder: {what}; give the output_dir of `calmtune train`"
            )


def _sampled_name(variant: str, split: str, temperature: float) -> str:
    return f"{variant}.{split}" + ("" if temperature == 1 else f".T{temperature:g}")


def _is_item(value: Any) -> bool:
    """Whether this is [question, [options]]."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], list)
        and all(isinstance(option, str) for option in value[1])
    )
