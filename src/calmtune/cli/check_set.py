"""What ``merge``, ``check`` and ``export`` share: the run as it is used, and the questions to compare forms on."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calmtune.cli.console import command, note, progress, say
from calmtune.cli.folder import RunFolder

if TYPE_CHECKING:
    from calmtune.data.rows import MultipleChoice
    from calmtune.export.check import Agreement, Limits
    from calmtune.export.use import Use
    from calmtune.modeling.calibrated import CalmModel
    from calmtune.predictions import Predictions

LIMIT = 200


def add_arguments(parser: argparse.ArgumentParser, run_flag: str = "RUN") -> None:
    """Which use, which questions, and how far apart the two forms may be."""
    parser.add_argument(
        "--use",
        metavar="USE",
        help=f"raw, adjusted, 'raw + TS' or 'adjusted + TS'; default: as {run_flag}'s calibration.json decided",
    )
    parser.add_argument(
        "--questions",
        metavar="SOURCE",
        help="check on these questions (.jsonl, .csv, .parquet, ...); default: the run's stored calibration questions",
    )
    parser.add_argument("--limit", type=int, default=LIMIT, help=f"most check questions; default: {LIMIT}")


def add_limits(parser: argparse.ArgumentParser, logit: str) -> None:
    """How far apart two forms may be."""
    parser.add_argument("--tolerance", type=float, help=f"largest logit difference allowed; default: {logit}")
    for name, title in (("ece", "conf-ECE"), ("accuracy", "accuracy")):
        parser.add_argument(
            f"--{name}_tolerance", type=float, default=0.02, help=f"change of {title} allowed; default: 0.02"
        )


@dataclass(frozen=True)
class Source:
    """An evaluated run, ready to be exported.

    Args:
        folder: its folder. settings: as in its config.yaml. record: its calibration.json. use: how it is used.
    """

    folder: RunFolder
    settings: Mapping[str, Any]
    record: Mapping[str, Any]
    use: Use

    @classmethod
    def open(cls, path: Path, use: str | None) -> Source:
        """Read a run; loads no model.

        Raises:
            FileNotFoundError: no run, or one that was not trained or evaluated. ValueError: a damaged file, or a use
                that the run does not have.
        """
        folder = RunFolder(path)
        folder.require()
        if not folder.is_trained or not folder.predictions("tuned", "calibration").is_file():
            step = "evaluate" if folder.is_trained else "train"
            words = (path,) if folder.is_trained else (folder.config, "--resume_from_checkpoint", "auto")
            raise FileNotFoundError(
                f"{path} was not {step}{'d' if step == 'evaluate' else 'ed'} yet; run: "
                f"{command('calmtune', step, *words)}"
            )
        from calmtune.modeling.calibration_files import load_calibration

        _, record = load_calibration(path)
        return cls(folder, folder.read_settings(), record, find_use(folder, record, use))

    @property
    def scoring(self) -> str:
        """``letter`` or ``text``."""
        return str(self.record["prompt"]["scoring"])

    def renderer(self, tokenizer: Any) -> Any:
        """The run's prompts with another form's tokenizer."""
        from calmtune.data.prompts import PromptStyle, Renderer

        prompt = self.record["prompt"]
        return Renderer(tokenizer, PromptStyle(prompt["scoring"], prompt["template"], prompt["system_prompt"]))

    def placement(self) -> dict[str, Any]:
        """How a model of this run is loaded."""
        return {
            "dtype": self.settings.get("dtype", "auto"),
            "device": "cpu" if self.settings.get("use_cpu") else None,
            "attn_implementation": self.settings.get("attn_implementation"),
            "trust_remote_code": bool(self.settings.get("trust_remote_code")),
        }

    def load_base(self, *, dense: bool) -> tuple[Any, Any]:
        """The base and its tokenizer, checked against the run's record; ``dense``: dequantised after that."""
        from calmtune.export.merge import dense_base
        from calmtune.modeling.calibrated import check_same_base
        from calmtune.modeling.loading import load_model

        base = self.record["base"]
        note(f"loading {base['name']}")
        model, tokenizer = load_model(
            base["name"],
            gguf_file=self.settings.get("gguf_file"),
            revision=base["revision"],
            quantization=self.settings.get("quantization"),
            chat_template=self.settings.get("chat_template"),
            **self.placement(),
        )
        check_same_base(model, dict(base))
        return (dense_base(model) if dense else model), tokenizer

    def load(self, *, dense: bool) -> CalmModel:
        """The trained model."""
        from calmtune.modeling.calibrated import CalmModel

        if not self.settings["use_peft"]:
            return CalmModel.from_pretrained(self.folder.path, **self.placement())
        base, tokenizer = self.load_base(dense=dense)
        return CalmModel.from_pretrained(self.folder.path, base_model=base, tokenizer=tokenizer, check_base=False)

    def score(
        self, model: Any, tokenizer: Any, rows: Sequence[MultipleChoice], title: str, **alpha: Any
    ) -> Predictions:
        """What a model says about the questions, put as the run puts them."""
        from calmtune.scoring.options import score_items

        with progress(title) as advance:
            return score_items(
                model,
                rows,
                self.renderer(tokenizer),
                batch_tokens=int(self.settings.get("score_batch_tokens", 4096)),
                normalisation=self.record["normalisation"],
                progress=advance,
                **alpha,
            )

    def score_run(self, tuned: CalmModel, rows: Sequence[MultipleChoice], title: str) -> Predictions:
        """What the trained model says, as it is used."""
        found = self.score(
            tuned.model, tuned.tokenizer, rows, title, adjustment=tuned.adjustment, level=tuned.settings["level"]
        )
        return self.use.apply(found)

    def stored(self, rows: Sequence[MultipleChoice]) -> Predictions:
        """What the trained model said about them when the run was evaluated, as it is used."""
        from calmtune.predictions import Predictions, load_predictions

        every = load_predictions(self.folder.predictions("tuned", "calibration"))
        by_id = {item.id: item for item in every}
        return self.use.apply(Predictions(tuple(by_id[row.id] for row in rows), every.meta))


def find_use(folder: RunFolder, record: Mapping[str, Any], label: str | None) -> Use:
    """How a run is used: as decided at evaluation, or as the label says, with a fit on its stored calibration split.

    Raises:
        ValueError: no decision, or a label that the run does not have.
    """
    from calmtune.cli.comparison import FITS
    from calmtune.export.use import Use, parse_label
    from calmtune.predictions import load_predictions
    from calmtune.report.scaling import fit_scaling

    decision = record.get("decision")
    if label is None and not isinstance(decision, Mapping):
        go_on = command("calmtune", "evaluate", folder.path)
        raise ValueError(f"{folder.calibration} has no decision; run: {go_on}")
    decided = Use.from_record(decision) if isinstance(decision, Mapping) else None
    if label is None and decided is not None:
        return decided
    adjusted, scaling = parse_label(str(label))
    if decided is not None and (decided.adjusted, decided.scaling) == (adjusted, scaling):
        return decided
    if adjusted and record["adjustment"] is None:
        raise ValueError(f"--use {label!r}: this run has no adjustment; choose raw or 'raw + TS'")
    calibration = load_predictions(folder.predictions("tuned", "calibration"))
    return Use.fitted(adjusted, scaling, fit_scaling(scaling, calibration, adjusted=adjusted, **FITS))


def check_rows(folder: RunFolder, questions: str | None, limit: int) -> list[MultipleChoice]:
    """The questions to check on: those given, or the calibration questions stored in the run.

    Raises:
        ValueError: no usable questions, or a limit under 1.
    """
    from calmtune.cli.splits import take
    from calmtune.data.rows import MultipleChoice
    from calmtune.data.sources import load_rows
    from calmtune.predictions import load_predictions

    if limit < 1:
        raise ValueError(f"--limit: expected at least 1, got {limit}")
    if questions is not None:
        rows = load_rows(questions)
        other = next((row for row in rows if not isinstance(row, MultipleChoice)), None)
        if other is not None or not rows:
            what = f"row {other.id!r} has no options" if other is not None else "it has no rows"
            raise ValueError(f"--questions {questions}: {what}; give multiple-choice questions")
    else:
        texts = folder.read_items()
        stored = load_predictions(folder.predictions("tuned", "calibration"))
        rows = []
        for said in stored:
            question, choices = texts.get(said.id, ("", []))
            if len(choices) != len(said.scores):
                raise ValueError(
                    f"{folder.items} does not hold the calibration question {said.id!r}; give --questions SOURCE"
                )
            rows.append(MultipleChoice(said.id, question, tuple(choices), said.label, said.domain))
    return [row for row in take(rows, limit, 0) if isinstance(row, MultipleChoice)]


def conclude(agreement: Agreement, limits: Limits, path: Path, extra: Mapping[str, Any]) -> list[str]:
    """Print the table and write it as JSON.

    Returns:
        What is over a limit.
    """
    for line in agreement.lines(limits):
        say(line)
    RunFolder(path.parent).write_json(path, {**agreement.to_record(limits), **extra})
    return agreement.faults(limits)


def bins(settings: Mapping[str, Any]) -> dict[str, int]:
    """How figures are computed, from a run's settings."""
    return {"n_bins": int(settings["n_bins"]), "n_resamples": int(settings["n_resamples"])}
