"""``calmtune export decision``: the run as a repository for transformers' decision pipeline and its server."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from calmtune.cli.check_set import Source, add_arguments, check_rows
from calmtune.cli.console import command, note, progress, say
from calmtune.cli.folder import RunFolder
from calmtune.cli.options import new_parser

TOLERANCE = 1e-4
CHECK_FILE = "decision_check.json"
WEIGHTS = ("adapter", "merged", "none")


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = new_parser(
        commands,
        "export",
        run,
        "write a run as decision.json, for pipeline('decision') and `transformers serve`",
        "decision: a folder with decision.json (the run's prompt, letters and temperature), the base and its adapter,\n"
        "read by transformers >= 5.24. Before it gets its name, the pipeline's probabilities are compared with ours.",
        "  calmtune export decision runs/first\n  transformers serve runs/first/decision",
    )
    parser.add_argument("form", choices=("decision",))
    parser.add_argument(
        "run_folder", metavar="RUN", type=Path, help="output_dir of an evaluated run that scores letters"
    )
    parser.add_argument("--output_dir", type=Path, help="where to write; default: RUN/decision")
    parser.add_argument(
        "--weights",
        choices=WEIGHTS,
        default="adapter",
        help="adapter: the base beside its adapter (default); merged: one model with alpha in it; none: decision.json "
        "and the adapter alone, for pipeline('decision', model=BASE, decision_config=FOLDER)",
    )
    parser.add_argument(
        "--tolerance", type=float, default=TOLERANCE, help="largest difference of a probability allowed"
    )
    add_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """Export, and say what comes next."""
    out = run_export(options)
    say(f"exported: {out}")
    if options.weights != "none":
        say(f"next: {command('transformers', 'serve', out)}")


def run_export(options: argparse.Namespace) -> Path:
    """Write the folder; it gets its name only when the pipeline says the same as the run.

    Raises:
        FileNotFoundError, ValueError: something that cannot be exported, or a pipeline that is too far off.
    """
    from calmtune.export.decision import refuse_undecidable
    from calmtune.export.merge import keep, partial_of, refuse_taken
    from calmtune.modeling.calibration_files import load_calibration

    source = Source.open(options.run_folder, options.use)
    out = options.output_dir or options.run_folder / "decision"
    refuse_taken(out)
    alpha, _ = load_calibration(source.folder.path)
    refuse_undecidable(source.use, None if options.weights == "merged" else alpha, source.scoring)
    rows = check_rows(source.folder, options.questions, options.limit)
    partial = partial_of(out)
    if partial.exists():
        shutil.rmtree(partial)
    if options.weights == "merged":
        expected = write_with_merged(options, source, rows, partial)
    else:
        expected = write_with_adapter(source, rows, partial, base=options.weights == "adapter")
    compare_with_pipeline(source, rows, expected, partial, options)
    keep(partial, out)
    return out


def write_with_adapter(source: Source, rows: Any, partial: Path, *, base: bool) -> Any:
    """decision.json, the adapter in a folder below, and the base beside them if asked for.

    Returns:
        What the run says about the questions as it is used.
    """
    from calmtune.export.decision import ADAPTER_FOLDER, total_temperature
    from calmtune.export.merge import dense_base
    from calmtune.modeling.calibrated import CalmModel

    adapter = bool(source.settings["use_peft"])
    if adapter:
        model, tokenizer = source.load_base(dense=base)
        if base:
            note("writing the base")
            model.save_pretrained(partial)
        tuned = CalmModel.from_pretrained(source.folder.path, base_model=model, tokenizer=tokenizer, check_base=False)
        target = partial / ADAPTER_FOLDER
        target.mkdir(parents=True)
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            shutil.copyfile(source.folder.path / name, target / name)
    else:
        tuned = source.load(dense=base)
        if base:
            note("writing the model")
            dense_base(tuned.model).save_pretrained(partial)
    temperature = total_temperature(source.use, tuned.adjustment)
    write_config(source, tuned.tokenizer, rows, partial, temperature, ADAPTER_FOLDER if adapter else None)
    return source.score_run(tuned, rows, "run")


def write_with_merged(options: argparse.Namespace, source: Source, rows: Any, partial: Path) -> Any:
    """decision.json beside one merged model that has alpha in its head; the fitted temperature stays in decision.json.

    Returns:
        What the run says about the questions as it is used.
    """
    from transformers import AutoTokenizer

    from calmtune.cli.merge import refuse_head, write_merged
    from calmtune.export.use import Use

    plain = replace(source, use=Use(source.use.adjusted, "none"))
    refuse_head(plain, "bias")
    unscaled, _ = write_merged(plain, rows, partial, "bias")
    write_config(source, AutoTokenizer.from_pretrained(partial), rows, partial, source.use.temperature, None)
    return Use(False, source.use.scaling, source.use.temperature).apply(unscaled)


def write_config(
    source: Source, tokenizer: Any, rows: Any, partial: Path, temperature: float, adapter: str | None
) -> None:
    """decision.json, its template and the tokenizer."""
    from calmtune.export.decision import decision_config, decision_template, labels_of, more_labels
    from calmtune.export.fold import letter_tokens

    render = source.renderer(tokenizer)
    known = letter_tokens([render.multiple_choice(row).option_ids for row in rows])
    labels = more_labels(tokenizer, labels_of(tokenizer, known))
    tokenizer.save_pretrained(partial)
    decision_config(labels, temperature, decision_template(render), adapter).save_pretrained(partial)


def compare_with_pipeline(source: Source, rows: Any, expected: Any, partial: Path, options: argparse.Namespace) -> None:
    """Ask the pipeline the same questions, from the folder alone, and print how far it is off.

    Raises:
        ValueError: further than allowed, a prompt of other tokens, or no question that a request can say.
    """
    from calmtune.export.decision import probabilities_of, request_of

    decide = load_pipeline(source, partial, options.weights)
    ours = expected.probabilities()
    render = source.renderer(decide.tokenizer)
    worst, worst_id, asked = 0.0, "", 0
    with progress("pipeline") as advance:
        for number, row in enumerate(rows):
            request = request_of(row)
            if request is not None:
                refuse_other_tokens(decide, request, render.multiple_choice(row))
                theirs = probabilities_of(decide(request), row)
                apart = max(abs(a - b) for a, b in zip(ours[number], theirs, strict=False))
                worst, worst_id, asked = max((worst, worst_id, asked), (apart, row.id, asked))
                asked += 1
            advance(number + 1, len(rows))
    if not asked:
        raise ValueError("every check question has two options of the same text, which a request cannot say")
    say(f"largest difference of a probability, pipeline and run ({source.use.label}): {worst:.2e} (n = {asked})")
    record = {"largest_probability_difference": worst, "item": worst_id, "n": asked, "tolerance": options.tolerance}
    RunFolder(partial).write_json(partial / CHECK_FILE, {**record, "use": source.use.to_record()})
    if not worst <= options.tolerance:
        raise ValueError(
            f"the pipeline's probabilities differ from the run's by {worst:.2e} (item {worst_id!r}), more than "
            f"{options.tolerance:g}; the folder was left in {partial}"
        )


def load_pipeline(source: Source, folder: Path, weights: str) -> Any:
    """transformers' decision pipeline as a user would make it."""
    from transformers import pipeline

    placement = source.placement()
    how: dict[str, Any] = {} if placement["device"] is None else {"device": placement["device"]}
    if weights != "none":
        return pipeline("decision", model=str(folder), **how)
    model, tokenizer = source.load_base(dense=False) if source.settings["use_peft"] else _whole(source)
    return pipeline("decision", model=model, tokenizer=tokenizer, decision_config=str(folder), **how)


def _whole(source: Source) -> tuple[Any, Any]:
    tuned = source.load(dense=False)
    return tuned.model, tuned.tokenizer


def refuse_other_tokens(decide: Any, request: Any, item: Any) -> None:
    """Raise if the pipeline's prompt is not the run's, token by token.

    Raises:
        ValueError: names the item and the place.
    """
    inputs, _ = decide.decision_config.prepare_inputs(request, decide.tokenizer)[0]
    theirs = inputs["input_ids"][0].tolist()
    if theirs != item.prompt_ids:
        place = next(
            (n for n, (a, b) in enumerate(zip(theirs, item.prompt_ids, strict=False)) if a != b),
            min(len(theirs), len(item.prompt_ids)),
        )
        raise ValueError(
            f"item {item.id!r}: the pipeline's prompt differs from the run's at token {place}: "
            f"{decide.tokenizer.decode(theirs[place : place + 8])!r} in the place of "
            f"{decide.tokenizer.decode(item.prompt_ids[place : place + 8])!r}"
        )
