"""A run's folder: one place for every file name that the commands share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calmtune import schema


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

    @property
    def is_trained(self) -> bool:
        """Whether training ended."""
        return self.calibration.is_file()

    def read_splits(self) -> dict[str, Any]:
        """The record written by :meth:`write_json` at training."""
        return dict(self._read_json(self.splits))

    def read_calibration(self) -> dict[str, Any]:
        """What the trained model is, and the decision made at evaluation."""
        return dict(self._read_json(self.calibration))

    def read_items(self) -> dict[str, Any]:
        """Question and options by item id."""
        return dict(self._read_json(self.items))

    def read_training_log(self) -> list[dict[str, Any]]:
        """The logged steps; none where nothing was logged."""
        if not self.training_log.is_file():
            return []
        return [json.loads(line) for line in self.training_log.read_text(encoding="utf-8").split("\n") if line]

    def read_settings(self) -> dict[str, Any]:
        """Every setting as it stands in config.yaml, without checking it against this version."""
        entries, faults = schema.read_yaml(self.config.read_text(encoding="utf-8"), str(self.config))
        if faults:
            raise ValueError("\n".join(faults))
        return {key: schema.untyped(value) for key, value in entries.items()}

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

    @staticmethod
    def _read_json(path: Path) -> Any:
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{error.lineno}: not valid JSON ({error.msg}); was it edited by hand?") from error
