"""``calmtune evaluate``: what base and tuned model say about the calibration and test questions, and the figures."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calmtune.cli import openqa_evaluate, predictions_report, ranks
from calmtune.cli.console import command, note, say
from calmtune.cli.folder import RunFolder
from calmtune.cli.options import new_parser

if TYPE_CHECKING:
    from calmtune.cli.console import Advance
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
        "RUN/predictions, so an interrupted evaluation goes on where it stopped; every figure comes from there.\n"
        "To open questions, answers are sampled into RUN/samples, graded, and grouped by meaning; settings of that,\n"
        "such as --class_rule, may follow RUN, and new grades need no model.",
        "  calmtune evaluate runs/first\n  calmtune evaluate --predictions said.csv\n"
        "  calmtune evaluate MODEL --task openqa --test_sources popqa.jsonl --output_dir runs/base --n_samples 20",
    )
    parser.add_argument("run_folder", metavar="RUN", type=Path, nargs="?", help="output_dir of calmtune train")
    predictions_report.add_arguments(parser)
    openqa_evaluate.add_arguments(parser)
    parser.set_defaults(takes_settings=True)


def run(options: argparse.Namespace) -> None:
    """Evaluate, and say what comes next."""
    if openqa_evaluate.takes_over(options):
        folder = openqa_evaluate.run_elsewhere(options)
    elif predictions_report.takes_over(options):
        refuse_settings(options)
        predictions_report.run_predictions(options)
        return
    else:
        folder = run_evaluation(options.run_folder, options.settings, task=options.task)
    say(f"figures: {folder.metrics}")
    say(f"next: {command('calmtune', 'report', folder.path)}")


def refuse_settings(options: argparse.Namespace) -> None:
    """Settings that nothing would read.

    Raises:
        ValueError: names them.
    """
    if options.settings:
        raise ValueError(f"{' '.join(options.settings)}: settings follow RUN, not --predictions FILE")


def run_evaluation(path: Path, overrides: Sequence[str] = (), *, task: str = "auto") -> RunFolder:
    """Score both models of a run, decide on the calibration split which distribution is used, and write metrics.json.

    Args:
        path: the run's folder.
        overrides: settings of scoring as flags, which replace those of the run's config.yaml there.
        task: ``mcqa`` or ``openqa`` refuses a run of the other kind.

    Raises:
        FileNotFoundError, ValueError: see :func:`score_run`.
    """
    if overrides and ranks.is_main():
        change_scoring(RunFolder(path), overrides)
    ranks.meet()
    folder = score_run(path, task=task)
    if ranks.is_main():
        write_metrics(folder)
    return folder


def change_scoring(folder: RunFolder, overrides: Sequence[str]) -> None:
    """Put other settings of scoring into a run's config.yaml.

    Raises:
        ValueError: a setting that the run was trained with, or a wrong value.
    """
    from calmtune.config import load_config, save_config, settings
    from calmtune.schema import read_flags

    folder.require()
    known = settings()
    for key in read_flags(overrides)[0]:
        if key in known and known[key].section not in ("evaluation", "sampling"):
            raise ValueError(f"--{key}: {folder.path} was trained with its own {key}, which holds; leave it out")
    save_config(load_config(folder.config, overrides), folder.config)


def score_run(path: Path, *, task: str = "auto") -> RunFolder:
    """Score the base and the tuned model of a trained run, and compute nothing from it; what is there is kept.

    Args:
        path: the run's folder.
        task: ``mcqa`` or ``openqa`` refuses a run of the other kind.

    Raises:
        FileNotFoundError: there is no trained run in the folder.
        ValueError: the data changed since the run was trained, the base is another one, or the run is of another kind.
    """
    from calmtune.cli.openqa import grade_run, sample_run
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
    kind = "openqa" if splits.is_open else "mcqa"
    if task not in ("auto", kind):
        raise ValueError(
            f"--task {task}: the rows of {path} are of the kind {kind}; give --test_sources, or leave it out"
        )
    if splits.is_open:
        sample_run(folder, config, splits)
        if ranks.is_main():
            grade_run(folder, config)
        return folder
    if ranks.is_main():
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
    from calmtune.cli.shares import Records, produce_in_shares
    from calmtune.data.prompts import Renderer
    from calmtune.predictions import append_predictions, load_predictions
    from calmtune.scoring.options import score_items

    how = config.training
    renderer = Renderer(tokenizer, config.training_arguments().prompt_style)

    def produce(rows: Sequence[Any], path: Path, advance: Advance) -> None:
        score_items(
            model,
            rows,
            renderer,
            batch_tokens=config.evaluation.score_batch_tokens,
            adjustment=tuned.adjustment if tuned else None,
            level=tuned.settings["level"] if tuned else "options",
            normalisation=how["normalisation"],
            max_length=how["max_length"],
            path=path,
            about=about,
            progress=advance,
        )

    records = Records(load_predictions, append_predictions)
    for split, rows in (("calibration", splits.calibration), ("test", splits.test)):
        with progress(f"{variant}, {split}") as advance:
            produce_in_shares(produce, rows, folder.predictions(variant, split), records, advance)


def write_metrics(folder: RunFolder) -> None:
    """Record how the model is used, compute every figure from the stored predictions, and write the card."""
    from calmtune.cli.comparison import compare_runs, summary_options
    from calmtune.cli.openqa import summarise_open_runs
    from calmtune.cli.train import describe_run
    from calmtune.report import summarise
    from calmtune.report.openqa_write import open_json

    note("computing the figures")
    write_decision(folder)
    if folder.is_open:
        folder.metrics.write_text(open_json(summarise_open_runs([folder])), encoding="utf-8")
        return
    summary = summarise(compare_runs([folder]), **summary_options(folder))
    folder.metrics.write_text(summary.to_text(), encoding="utf-8")
    describe_run(folder, summary)


def write_decision(folder: RunFolder) -> None:
    """Choose on the calibration split how the model is used, and record it in ``calibration.json``."""
    from calmtune.cli.comparison import decide_run
    from calmtune.cli.openqa import decide_open_run
    from calmtune.modeling.calibration_files import load_calibration, write_json

    _, record = load_calibration(folder.path)
    record["decision"] = decide_open_run(folder) if folder.is_open else decide_run(folder)
    write_json(folder.calibration, record)
