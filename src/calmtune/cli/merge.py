"""``calmtune merge``: one model with adapter and calibration in its weights, checked before it gets its name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from calmtune.cli.check_set import Source, add_arguments, add_limits, bins, check_rows, conclude
from calmtune.cli.console import command, note, say, warn
from calmtune.cli.options import new_parser

CHECK_FILE = "check.json"
FLOAT32, HALF = 1e-3, 0.25


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = new_parser(
        commands,
        "merge",
        run,
        "fold adapter and calibration into a model that transformers loads by itself",
        "Add the adapter to the base's weights, divide row k of the output head by tau_k and by the temperature, put\n"
        "l_k into its bias, save, load again as any model, and compare with the run. What a head cannot hold is\n"
        "refused with the reason and what to do in its place.",
        "  calmtune merge runs/first\n  calmtune merge runs/first --use adjusted --output_dir first-merged",
    )
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="output_dir of an evaluated run")
    parser.add_argument("--output_dir", type=Path, help="where to write; default: RUN/merged")
    parser.add_argument(
        "--shift",
        choices=("bias", "generation"),
        default="bias",
        help="where alpha's shift l goes: the head's bias (default; refused where the head has none), or the "
        "sequence_bias of generation_config.json, which generate reads and a plain forward pass does not",
    )
    add_arguments(parser)
    add_limits(parser, f"{FLOAT32:g} in float32, {HALF:g} in half precision")
    parser.set_defaults(ece_tolerance=0.01, accuracy_tolerance=0.01)


def run(options: argparse.Namespace) -> None:
    """Merge, and say what comes next."""
    out = run_merge(options)
    say(f"merged: {out}")
    say(f"next: {command('calmtune', 'check', out, '--against', options.run_folder)}")


def run_merge(options: argparse.Namespace) -> Path:
    """Write the merged model; it gets its name only when it says the same as the run.

    Raises:
        FileNotFoundError, ValueError: something that cannot be merged, or a merged model that is too far off.
    """
    from calmtune.export.check import compare
    from calmtune.export.fold import refuse_unfoldable
    from calmtune.export.merge import keep, partial_of, refuse_taken
    from calmtune.modeling.calibration_files import load_calibration

    source = Source.open(options.run_folder, options.use)
    out = options.output_dir or options.run_folder / "merged"
    refuse_taken(out)
    alpha, record = load_calibration(source.folder.path)
    refuse_unfoldable(source.use, alpha, record["level"], source.scoring)
    if options.shift == "generation" and source.scoring == "text":
        raise ValueError("--shift generation can be checked with letters only, and this run scores texts; leave it out")
    rows = check_rows(source.folder, options.questions, options.limit)
    refuse_head(source, options.shift)
    partial = partial_of(out)
    before, precision = write_merged(source, rows, partial, options.shift)
    after = score_merged(source, rows, partial, options.shift)
    limits = limits_of(options, FLOAT32 if precision == "float32" else HALF)
    agreement = compare(before, after, (f"run, {source.use.label}", "merged, loaded again"), **bins(source.settings))
    faults = conclude(agreement, limits, partial / CHECK_FILE, {"use": source.use.to_record(), "dtype": precision})
    if faults:
        raise ValueError(
            f"the merged model does not say the same as the run: {'; '.join(faults)}. It was left in {partial}; a "
            "larger --tolerance accepts it"
        )
    keep(partial, out)
    return out


def refuse_head(source: Source, shift_in: Any) -> None:
    """Raise where the architecture's head cannot hold the run's alpha; loads no weights.

    Raises:
        ValueError: see :func:`calmtune.export.fold.refuse_architecture`.
    """
    from calmtune.export.fold import needs_shift, refuse_architecture
    from calmtune.modeling.calibration_files import load_calibration
    from calmtune.modeling.loading import skeleton

    alpha, record = load_calibration(source.folder.path)
    acts = alpha is not None and source.use.adjusted
    if not acts and source.use.temperature == 1:
        return
    base, adapter = record["base"], source.settings["use_peft"]
    shape = skeleton(
        base["name"] if adapter else str(source.folder.path),
        gguf_file=source.settings.get("gguf_file") if adapter else None,
        revision=base["revision"] if adapter else None,
        trust_remote_code=bool(source.settings.get("trust_remote_code")),
    )
    refuse_architecture(shape, shift=alpha is not None and acts and needs_shift(alpha), shift_in=shift_in)


def write_merged(source: Source, rows: Any, partial: Path, shift: Any) -> tuple[Any, str]:
    """Score the run, merge it and save it.

    Returns:
        What the run says about the questions as it is used, and the number format of the weights.
    """
    from calmtune.export.fold import fold_into, head_adjustment, letter_tokens
    from calmtune.export.merge import merge_adapter, save_standalone

    tuned = source.load(dense=True)
    before = source.score_run(tuned, rows, "run, before")
    level = tuned.settings["level"]
    letters: tuple[int, ...] = ()
    if level == "options" and source.use.adjusted and tuned.adjustment is not None:
        render = source.renderer(tuned.tokenizer)
        letters = letter_tokens([render.multiple_choice(row).option_ids for row in rows])
        if tuned.adjustment.kind == "vector":
            warn(
                "alpha has a class for each option's place; it is folded into the rows of the letters' tokens, so "
                "these tokens also change where the merged model writes text"
            )
    note("merging")
    model: Any = merge_adapter(tuned.model)
    vocabulary = len(model.get_output_embeddings().weight)
    folded = head_adjustment(source.use, tuned.adjustment, level, vocabulary=vocabulary, letters=letters)
    fold_into(model, folded, shift_in=shift)
    record = {
        "run": str(source.folder.path.resolve().name),
        "use": source.use.to_record(),
        "base": source.record["base"],
        "prompt": source.record["prompt"],
        "normalisation": source.record["normalisation"],
        "level": level,
        "shift": shift,
    }
    save_standalone(model, tuned.tokenizer, partial, record)
    return before, str(model.dtype).removeprefix("torch.")


def score_merged(source: Source, rows: Any, folder: Path, shift: str) -> Any:
    """What the saved model says by itself, loaded as any model is."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from calmtune.export.generated import generated_scores

    placement = source.placement()
    note("loading the merged model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    attention = {"attn_implementation": name} if (name := placement["attn_implementation"]) else {}
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype="auto", trust_remote_code=placement["trust_remote_code"], **attention
    )
    import torch

    model = model.to("cuda" if torch.cuda.is_available() and placement["device"] is None else "cpu").eval()
    if shift == "generation" and model.generation_config.sequence_bias:
        from calmtune.cli.console import progress

        render = source.renderer(tokenizer)
        with progress("merged, by generate") as advance:
            return generated_scores(model, [render.multiple_choice(row) for row in rows], advance)
    return source.score(model, tokenizer, rows, "merged, after")


def limits_of(options: argparse.Namespace, logit: float | None) -> Any:
    """The limits that were asked for."""
    from calmtune.export.check import Limits

    return Limits(
        logit=options.tolerance if options.tolerance is not None else logit,
        conf_ece=options.ece_tolerance,
        accuracy=options.accuracy_tolerance,
    )
