"""``calmtune evaluate --task openqa`` for a model as it is, or for a trained run on questions that are not its own."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from calmtune.cli.console import note, progress, warn
from calmtune.cli.folder import RunFolder

if TYPE_CHECKING:
    from calmtune.cli.splits import Splits
    from calmtune.config import RunConfig

TASKS = ("auto", "mcqa", "openqa")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``--task`` and what goes with it."""
    group = parser.add_argument_group("open questions")
    group.add_argument(
        "--task",
        choices=TASKS,
        default="auto",
        help="openqa: sample answers, grade and group them; auto (default): what the run's own rows are",
    )
    group.add_argument(
        "--test_sources",
        metavar="SOURCE",
        nargs="+",
        help="open questions to ask in the place of the run's own; RUN may then be a model's name. With --output_dir",
    )
    group.add_argument("--base_url", metavar="URL", help="RUN is the name of a model at this OpenAI-compatible address")
    group.add_argument(
        "--server",
        choices=("openai", "vllm", "llama.cpp", "transformers"),
        help="with --base_url: whose fields are sent (default: openai)",
    )
    group.add_argument("--key_env", metavar="NAME", help="with --base_url: environment variable that holds the key")


def takes_over(options: argparse.Namespace) -> bool:
    """Whether RUN is a model, or a run that is asked other questions."""
    if options.predictions is not None or options.run_folder is None:
        return False
    if options.test_sources and options.task == "mcqa":
        raise ValueError("--test_sources: goes with --task openqa")
    stray = [f"--{name}" for name in ("server", "key_env") if getattr(options, name) and not options.base_url]
    if stray:
        raise ValueError(f"{', '.join(stray)}: goes with --base_url")
    if options.base_url and not options.test_sources:
        raise ValueError("--base_url: a model at an endpoint is asked open questions; give --test_sources")
    return bool(options.test_sources) or (
        options.task == "openqa" and not RunFolder(options.run_folder).config.is_file()
    )


def run_elsewhere(options: argparse.Namespace) -> RunFolder:
    """Ask, grade, compute, and write the folder's metrics.

    Raises:
        ValueError: wrong settings or rows, or questions that the run was trained on.
    """
    if options.output_dir is None:
        raise ValueError("--output_dir: expected the folder that the answers go to, e.g. --output_dir runs/base_popqa")
    trained = RunFolder(options.run_folder)
    named = [
        word for name in ("n_bins", "n_resamples") if (v := getattr(options, name)) for word in (f"--{name}", str(v))
    ]
    flags = [*options.settings, *named, "--output_dir", str(options.output_dir)]
    if options.test_sources:
        flags += ["--test_ood", *options.test_sources]
    if options.base_url:
        from calmtune.endpoint import Endpoint

        endpoint = Endpoint(options.base_url, str(options.run_folder), api_key_env=options.key_env)
        asked = {"endpoint": endpoint, "server": options.server or "openai"}
        return evaluate_elsewhere(model_config(endpoint.model, flags), RunFolder(options.output_dir), asked)
    if trained.config.is_file():
        config = config_of_run(trained, flags)
    else:
        trained = RunFolder(options.output_dir)
        config = model_config(str(options.run_folder), flags)
    return evaluate_elsewhere(config, trained)


def model_config(model: str, flags: Sequence[str]) -> RunConfig:
    """The configuration of a model that is asked as it is."""
    from calmtune.config import load_scoring_config

    return load_scoring_config(["--model_name_or_path", model, *flags])


def config_of_run(trained: RunFolder, flags: Sequence[str]) -> RunConfig:
    """A trained run's configuration with other questions; the run's model and prompts are kept.

    Raises:
        ValueError: a setting that the run was trained with.
    """
    from calmtune.config import SCORED_AS_IT_IS, load_config, settings
    from calmtune.schema import read_flags

    free = SCORED_AS_IT_IS - {"template", "system_prompt", "open_prompt"}
    known = settings()
    for key in read_flags(flags)[0]:
        if key in known and key not in free and known[key].section not in ("evaluation", "sampling"):
            raise ValueError(f"--{key}: {trained.path} was trained with its own {key}, which holds; leave it out")
    old = load_config(trained.config)
    given = read_flags(flags)[0]
    none = [word for key in ("calibration_sources", "test_id") if key not in given for word in (f"--{key}", "[]")]
    mine = load_config(trained.config, [*none, *flags])
    return replace(mine, model=old.model)


def evaluate_elsewhere(config: RunConfig, trained: RunFolder, at: Mapping[str, Any] | None = None) -> RunFolder:
    """Sample, grade and compute into ``config.output_dir``.

    Args:
        config: what is asked, and how. trained: the run's folder, or that of the output where none was trained.
        at: ``endpoint`` and ``server`` of a model that is asked there.
    """
    from calmtune.cli.openqa import grade_run, sample_run, summarise_open_runs
    from calmtune.cli.splits import load_scored
    from calmtune.config import save_config
    from calmtune.report.openqa_write import open_json

    folder = RunFolder(config.output_dir)
    note("reading the questions")
    splits = load_scored(config.data)
    if not splits.is_open:
        raise ValueError("--task openqa: the test rows have options; give open questions, {question, answers}")
    if trained.is_trained and trained.path != folder.path:
        refuse_trained_on(trained, splits)
    for name, count in splits.dropped.items():
        warn(f"{count} rows of {name} were dropped, because their questions are also in another split")
    save_config(config, folder.config)
    folder.write_json(folder.splits, splits.record())
    if at is None:
        sample_run(folder, config, splits, trained)
    else:
        sample_there(folder, config, splits, at)
    grade_run(folder, config)
    note("computing the figures")
    summary = summarise_open_runs([folder])
    folder.metrics.write_text(open_json(summary), encoding="utf-8")
    return folder


def sample_there(folder: RunFolder, config: RunConfig, splits: Splits, at: Mapping[str, Any]) -> None:
    """Sample a model at an endpoint, as :func:`calmtune.cli.openqa.sample_run` samples one that is loaded."""
    from calmtune.cli.openqa import parts_to_sample, sampling_settings
    from calmtune.scoring.endpoint_sampling import sample_endpoint

    for split, temperature, rows in parts_to_sample(config, splits):
        with progress(f"base, {split} at T = {temperature:g}") as advance:
            sample_endpoint(
                at["endpoint"],
                rows,
                server=at["server"],
                style=config.training_arguments().prompt_style,
                settings=sampling_settings(config, temperature),
                path=folder.samples("base", split, temperature),
                progress=advance,
            )


def refuse_trained_on(trained: RunFolder, splits: Splits) -> None:
    """A question that the run was trained on says nothing about others.

    Raises:
        ValueError: names the first of them.
    """
    from calmtune.data.splits import question_key

    before = trained.read_splits()["splits"]
    seen = {key: name for name in ("train", "upper") for key in before[name]["rows"].values()}
    shared = [row.id for row in splits.open_test if question_key(row)[:16] in seen]
    if shared:
        raise ValueError(
            f"{len(shared)} of the test questions are among the rows that {trained.path} was trained on, e.g. "
            f"{shared[0]!r}; give other questions"
        )
