"""``calmtune train``: from a configuration to an adapter, alpha, and everything that is needed to repeat the run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calmtune.cli import ranks
from calmtune.cli.console import command, note, say, warn
from calmtune.cli.folder import RunFolder
from calmtune.cli.options import add_config, new_parser, overrides_of
from calmtune.config_scoring import EvaluationSettings, SampleSettings

if TYPE_CHECKING:
    from calmtune.cli.console import Advance
    from calmtune.cli.splits import Splits
    from calmtune.config import RunConfig
    from calmtune.report import Summary

# may differ between the first and a later call for one folder, beside what the trainer itself allows
FREE = frozenset(EvaluationSettings.__dataclass_fields__)


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = new_parser(
        commands,
        "train",
        run,
        "train an adapter and its calibration",
        "Train as CONFIG says. Writes the adapter, adjustment.safetensors, calibration.json, the resolved config.yaml\n"
        "and splits.json into output_dir. --resume_from_checkpoint auto goes on after an interruption.",
        "  calmtune train configs/own_questions.yaml --train_sources questions.jsonl --output_dir runs/first\n"
        "  calmtune train runs/first/config.yaml --resume_from_checkpoint auto",
    )
    add_config(parser)


def run(options: argparse.Namespace) -> None:
    """Train, and say what comes next."""
    from calmtune.config import load_config

    folder = run_training(load_config(options.config, overrides_of(options, "train")))
    say(f"trained: {folder.path}")
    say(f"next: {command('calmtune', 'evaluate', folder.path)}")


def run_training(config: RunConfig, advance: Advance | None = None) -> RunFolder:
    """Train one run into its folder; a run that is already finished there is left as it is.

    Args:
        config: the run.
        advance: told (steps done, steps in all) in the place of transformers' own output.

    Raises:
        ValueError: the folder holds another run, or an interrupted one that was not asked to go on; or something in the
            data, the model or the settings cannot work.
    """
    from calmtune.cli import push
    from calmtune.cli.inspect import refuse_early
    from calmtune.cli.splits import build_splits

    folder = RunFolder(config.output_dir)
    note("reading the data")
    splits = build_splits(config.data)
    refuse_other_run(folder, config, splits)
    if folder.is_trained:
        note(f"{folder.path} is already trained with these settings and data")
        return folder
    refuse_more_options(config, splits)
    refuse_open_rows(config, splits)
    resume = checkpoint_to_resume(folder, config.training["resume_from_checkpoint"])
    refuse_early(config)
    if config.training["push_to_hub"]:
        push.refuse_early({**config.training, "model_name_or_path": config.model.model_name_or_path})
    ranks.meet()  # nobody reads what is written from here on
    if ranks.is_main():
        write_settings(folder, config, splits)
    for name, count in splits.dropped.items():
        warn(f"{count} rows of {name} were dropped, because their questions are also in another split")
    note(f"loading {config.model.model_name_or_path}")
    trainer = build_trainer(config, splits, folder)
    if advance is not None:
        from calmtune.cli.step_progress import replace_output

        replace_output(trainer, advance)
    rows = {name: len(part) for name, part in splits.rows.items()}
    note(
        f"training on {rows['train']} rows, {rows['upper']} for the upper level"
        + (f"; resuming {resume}" if resume else "")
    )
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model()
    if not ranks.is_main():
        return folder
    describe_run(folder, None)
    if config.training["push_to_hub"]:
        note(
            f"published: {push.push_run(folder, dict(config.training))}; after evaluate, calmtune push adds the figures"
        )
    return folder


def describe_run(
    folder: RunFolder, summary: Summary | None, *, base_model: str | None = None, repo_id: str | None = None
) -> None:
    """Write the card; without a summary it says that the model was not evaluated.

    Args:
        base_model: the base's name on the Hub, where it was trained from a local folder.
        repo_id: where the run is published, for the code on the card.
    """
    from calmtune.data.hub import HUB
    from calmtune.report.card import write_card

    settings = folder.read_settings()
    sources = [str(source) for source in settings.get("train_sources") or ()]
    hub = [source.removeprefix("hub:").split("/")[0] for source in sources if source.startswith("hub:")]
    write_card(
        summary,
        folder.path,
        base_model=base_model or str(settings["model_name_or_path"]),
        settings=settings,
        splits=folder.read_splits()["splits"],
        checkpoint=folder.read_calibration().get("checkpoint"),
        library_name="peft" if settings["use_peft"] else "transformers",
        repo_id=repo_id,
        datasets=list(dict.fromkeys(HUB[name].path for name in hub if name in HUB)),
    )


def refuse_other_run(folder: RunFolder, config: RunConfig, splits: Splits) -> None:
    """Raise if the folder holds a run with other settings or data; one that never reached a checkpoint may be replaced.

    Raises:
        ValueError: names each difference.
    """
    from calmtune.config import load_config
    from calmtune.training.checkpoint import VOLATILE, differences

    if not folder.config.is_file() or not folder.is_begun:
        return
    free = VOLATILE | FREE | set(SampleSettings.__dataclass_fields__)
    old, new = (
        {key: value for key, value in one.values().items() if key not in free}
        for one in (load_config(folder.config), config)
    )
    changed = differences(old, new)
    if folder.splits.is_file():
        before, now = folder.read_splits()["splits"], splits.record()["splits"]
        changed += [f"data: the {name} rows" for name in now if before[name]["fingerprint"] != now[name]["fingerprint"]]
    if changed:
        listed = "\n".join(f"  - {change}" for change in changed)
        raise ValueError(
            f"{folder.path} holds a run with other settings or data:\n{listed}\n"
            "choose another output_dir, or delete the folder"
        )


def checkpoint_to_resume(folder: RunFolder, asked: str | None) -> str | None:
    """The checkpoint to go on from, or None to begin.

    Args:
        folder: the run's.
        asked: ``auto`` (the last whole checkpoint, if any), ``true`` (there must be one), a path, or None.

    Raises:
        ValueError: an interrupted run would be overwritten, or there is no checkpoint.
    """
    from calmtune.training.checkpoint import last_complete_checkpoint

    last = last_complete_checkpoint(folder.path)
    word = (asked or "").lower()
    if word in ("", "false"):
        if last is not None:
            raise ValueError(
                f"{folder.path} holds an interrupted run; go on from {Path(last).name} with "
                "--resume_from_checkpoint auto, or delete the folder to begin again"
            )
        return None
    if word == "auto":
        return last
    if word == "true":
        if last is None:
            raise ValueError(f"{folder.path} has no whole checkpoint to go on from; leave out resume_from_checkpoint")
        return last
    return asked


def write_settings(folder: RunFolder, config: RunConfig, splits: Splits) -> None:
    """Write config.yaml and splits.json, before anything that takes long."""
    from calmtune.config import save_config

    save_config(config, folder.config)
    folder.write_json(folder.splits, splits.record())


def build_trainer(config: RunConfig, splits: Splits, folder: RunFolder) -> Any:
    """The model with its adapter, in a trainer with the run's rows."""
    from calmtune.cli.training_log import TrainingLog
    from calmtune.training.trainer import CalmTrainer

    # before the weights: checks of the arguments cost nothing and fail early
    arguments = config.training_arguments()
    # transformers would upload the whole folder, the rows' ids with it; what is published is up to cli/push.py
    arguments.push_to_hub = False
    model, tokenizer = load_base(config)
    return CalmTrainer(
        model,
        arguments,
        train_dataset=splits.rows["train"],
        upper_dataset=splits.rows["upper"],
        calibration_dataset=splits.calibration if arguments.needs_calibration_rows else None,
        processing_class=tokenizer,
        peft_config=lora_config(config),
        model_name=config.model.model_name_or_path,
        model_revision=config.model.model_revision,
        callbacks=[TrainingLog(folder.training_log)],
    )


def load_base(config: RunConfig) -> tuple[Any, Any]:
    """The base model and its tokenizer, as the settings say."""
    from calmtune.modeling.loading import load_model

    model = config.model
    return load_model(
        model.model_name_or_path,
        gguf_file=model.gguf_file,
        revision=model.model_revision,
        quantization=model.quantization,
        chat_template=model.chat_template,
        **placement(config),
    )


def placement(config: RunConfig) -> dict[str, Any]:
    """How any model of a run is loaded, the base or a folder of whole weights."""
    return {
        "dtype": config.model.dtype,
        "device": "cpu" if config.training["use_cpu"] else ranks.local_device(),
        "attn_implementation": config.model.attn_implementation,
        "trust_remote_code": config.model.trust_remote_code,
    }


def refuse_more_options(config: RunConfig, splits: Splits) -> None:
    """A vector alpha at options level has one class per option index; items with more options could not be scored.

    Raises:
        ValueError: names an item of the calibration or test split.
    """
    from calmtune.training.datasets import choose_level

    how, trained = config.training_arguments(), [*splits.rows["train"], *splits.rows["upper"]]
    vector = how.has_upper_level and how.adjustment == "vector"
    if not vector or choose_level(how.method_level, trained) != "options":
        return
    width = max(len(row.choices) for row in trained)
    for row in (*splits.calibration, *splits.test):
        if len(row.choices) > width:
            raise ValueError(
                f"item {row.id!r} has {len(row.choices)} options, but the training rows have at most {width}, and a "
                "vector adjustment has one class per option; use adjustment: scalar, or leave such items out"
            )


def refuse_open_rows(config: RunConfig, splits: Splits) -> None:
    """What cannot be done with open questions, said before a model is loaded.

    Raises:
        ValueError: lists the faults.
    """
    from calmtune.data.rows import OpenQuestion
    from calmtune.training.datasets import choose_level, refuse_for_open

    how, trained = config.training_arguments(), [*splits.rows["train"], *splits.rows["upper"]]
    faults = []
    if how.has_upper_level:
        try:
            refuse_for_open(how, splits.rows["upper"])
        except ValueError as error:
            faults.append(str(error))
    if splits.is_open and how.needs_calibration_rows:
        faults.append(
            "the calibration rows are open questions, which are not read while training; eta: auto, adjustment_start: "
            "calibrated and load_best_model_at_end need questions with options"
        )
    if splits.is_open and how.has_upper_level and choose_level(how.method_level, trained) == "options":
        faults.append(
            "level: options trains an adjustment of options, which has no meaning for the tokens of sampled answers; "
            "set level: vocabulary, or test on questions with options"
        )
    rows = [row for part in splits.rows.values() for row in part]
    if not any(isinstance(row, OpenQuestion) for row in rows):
        faults += [
            f"{name}: belongs to open questions, and no row is one; leave it at {default}"
            for name, default in (("open_prompt", "question"), ("open_target", "first"))
            if getattr(how, name) != default
        ]
    if faults:
        raise ValueError("\n".join(faults))


def lora_config(config: RunConfig) -> Any:
    """PEFT's configuration, or None to train all weights."""
    if not config.lora.use_peft:
        return None
    from peft import LoraConfig

    lora = config.lora
    modules = lora.lora_target_modules
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.lora_r,
        lora_alpha=lora.lora_alpha,
        lora_dropout=lora.lora_dropout,
        target_modules=modules if isinstance(modules, str) else list(modules),
        use_rslora=lora.use_rslora,
    )
