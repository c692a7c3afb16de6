"""``calmtune evaluate``: what base and tuned model say about the calibration and test questions, and the figures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calmtune.cli.console import command, note, say
from calmtune.cli.folder import RunFolder
from calmtune.cli.options import new_parser

if TYPE_CHECKING:
    from calmtune.cli.splits import Splits
    from calmtune.config import RunConfig

VARIANTS = ("base", "tuned")


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = new_parser(
        commands,
        "evaluate",
        run,
        "score a trained run and its base, write metrics.json",
        "Score the base and the tuned model on the run's calibration and test questions. What they say is kept in\n"
        "RUN/predictions, so an interrupted evaluation goes on where it stopped; every figure comes from there.",
        "  calmtune evaluate runs/first",
    )
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="output_dir of calmtune train")


def run(options: argparse.Namespace) -> None:
    """Evaluate, and say what comes next."""
    folder = run_evaluation(options.run_folder)
    say(f"figures: {folder.metrics}")
    say(f"next: {command('calmtune', 'report', folder.path)}")


def run_evaluation(path: Path) -> RunFolder:
    """Score both models of a run, decide on the calibration split which distribution is used, and write metrics.json.

    Raises:
        FileNotFoundError, ValueError: see :func:`score_run`.
    """
    folder = score_run(path)
    write_metrics(folder)
    return folder


def score_run(path: Path) -> RunFolder:
    """Score the base and the tuned model of a trained run, and compute nothing from it; what is there is kept.

    Raises:
        FileNotFoundError: there is no trained run in the folder.
        ValueError: the data changed since the run was trained, or the base is another one.
    """
    from calmtune.cli.splits import build_splits
    from calmtune.config import load_config

    folder = RunFolder(path)
    folder.require()
    if not folder.is_trained:
        go_on = command("calmtune", "train", folder.config, "--resume_from_checkpoint", "auto")
        raise FileNotFoundError(f"{path} holds no finished training; go on with: {go_on}")
    # the folder may have been moved since
    config = load_config(folder.config, [f"--output_dir={path}"])
    splits = build_splits(config.data)
    refuse_other_data(folder, splits)
    write_items(folder, splits)
    score_base_and_tuned(folder, config, splits)
    return folder


def refuse_other_data(folder: RunFolder, splits: Splits) -> None:
    """Raise if the sources give other rows than at training, which could move training questions into the test.

    Raises:
        ValueError: names the splits.
    """
    before, now = folder.read_splits()["splits"], splits.record()["splits"]
    changed = [name for name in now if before[name]["fingerprint"] != now[name]["fingerprint"]]
    if changed:
        raise ValueError(
            f"the data of {folder.path} changed since it was trained: {', '.join(changed)}; put the files back as "
            "they were (splits.json lists the ids), or train again"
        )


def write_items(folder: RunFolder, splits: Splits) -> None:
    """Keep the questions of the scored items, so that a report can show them without the data."""
    rows = [*splits.calibration, *splits.test]
    folder.write_json(folder.items, {row.id: [row.question, list(row.choices)] for row in rows})


def score_base_and_tuned(folder: RunFolder, config: RunConfig, splits: Splits) -> None:
    """The base first, then the same model with the adapter; alpha is read from the same forward passes."""
    from calmtune.cli.train import load_base, placement
    from calmtune.modeling.calibrated import CalmModel

    model_name = config.model.model_name_or_path
    note(f"loading {model_name}")
    model, tokenizer = load_base(config)
    score_splits(folder, config, splits, "base", model, tokenizer, {"model": model_name})
    # without an adapter the folder holds a whole model, and the base is not needed any more
    parts = {"base_model": model, "tokenizer": tokenizer} if config.lora.use_peft else placement(config)
    tuned = CalmModel.from_pretrained(folder.path, **parts)
    about = {"model": model_name, "run": tuned.settings["method"]}
    score_splits(folder, config, splits, "tuned", tuned.model, tuned.tokenizer, about, tuned)


def score_splits(
    folder: RunFolder,
    config: RunConfig,
    splits: Splits,
    variant: str,
    model: Any,
    tokenizer: Any,
    about: dict[str, Any],
    tuned: Any = None,
) -> None:
    """Score one model on the calibration and the test questions, with progress."""
    from calmtune.cli.console import progress
    from calmtune.data.prompts import PromptStyle, Renderer
    from calmtune.scoring.options import score_items

    how = config.training
    renderer = Renderer(tokenizer, PromptStyle(how["scoring"], how["template"], how["system_prompt"]))
    for split, rows in (("calibration", splits.calibration), ("test", splits.test)):
        with progress(f"{variant}, {split}") as advance:
            score_items(
                model,
                rows,
                renderer,
                batch_tokens=config.evaluation.score_batch_tokens,
                adjustment=tuned.adjustment if tuned else None,
                level=tuned.settings["level"] if tuned else "options",
                normalisation=how["normalisation"],
                max_length=how["max_length"],
                path=folder.predictions(variant, split),
                about=about,
                progress=advance,
            )


def write_metrics(folder: RunFolder) -> None:
    """Record how the model is used, compute every figure from the stored predictions, and write the card."""
    from calmtune.cli.comparison import compare_runs, summary_options
    from calmtune.cli.train import describe_run
    from calmtune.report import summarise

    note("computing the figures")
    write_decision(folder)
    summary = summarise(compare_runs([folder]), **summary_options(folder))
    folder.metrics.write_text(summary.to_text(), encoding="utf-8")
    describe_run(folder, summary)


def write_decision(folder: RunFolder) -> None:
    """Choose on the calibration split how the model is used, and record it in ``calibration.json``."""
    from calmtune.cli.comparison import decide_run
    from calmtune.modeling.calibration_files import load_calibration, write_json

    _, record = load_calibration(folder.path)
    record["decision"] = decide_run(folder)
    write_json(folder.calibration, record)
