"""``calmtune check``: does a later form of a model, merged, quantised or served, still say what its run said?"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calmtune.cli.check_set import Source, add_arguments, add_limits, bins, check_rows, conclude
from calmtune.cli.console import note, progress, say, warn
from calmtune.cli.merge import FLOAT32, HALF, limits_of
from calmtune.cli.options import new_parser

if TYPE_CHECKING:
    from calmtune.export.use import Use
    from calmtune.predictions import Predictions


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = new_parser(
        commands,
        "check",
        run,
        "compare a merged, quantised or served model with the run it came from",
        "Ask MODEL the run's calibration questions and compare its plain answers with the run's, as it is used.\n"
        "Ends with an error when accuracy, conf-ECE or a logit is further off than allowed.",
        "  calmtune check runs/first/merged --against runs/first\n"
        "  calmtune check model.gguf --against runs/first\n"
        "  calmtune check http://localhost:8000/v1 --model first --against runs/first",
    )
    parser.add_argument(
        "form",
        metavar="MODEL",
        help="a folder, a hub name, a .gguf file, or the address of a server (OpenAI-compatible)",
    )
    parser.add_argument("--against", metavar="RUN", type=Path, required=True, help="output_dir of the evaluated run")
    parser.add_argument("--quantization", choices=("4bit", "8bit"), help="load MODEL so; needs bitsandbytes and CUDA")
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16", "float16"), default="auto")
    parser.add_argument("--gguf", metavar="TYPE", help="convert the folder MODEL first: f32, f16, bf16 or q8_0")
    parser.add_argument("--model", help="the model's name at the address")
    parser.add_argument("--api_key_env", metavar="NAME", help="environment variable with the server's key")
    parser.add_argument("--top", type=int, default=20, help="most probable tokens to ask a server for; default: 20")
    parser.add_argument("--output", type=Path, help="JSON file; default: RUN/checks/NAME.json")
    add_arguments(parser)
    add_limits(parser, f"{FLOAT32:g} in float32, {HALF:g} in half precision, none for quantised and served models")


def run(options: argparse.Namespace) -> None:
    """Check, and say whether it is the same."""
    path = run_check(options)
    say(f"the same within the limits; figures: {path}")


def run_check(options: argparse.Namespace) -> Path:
    """Compare, print and write the table.

    Returns:
        The JSON file.

    Raises:
        FileNotFoundError, ValueError: something that cannot be checked, or a model that is too far off.
    """
    from calmtune.export.check import compare

    served = is_address(options.form)
    refuse_options(options, served)
    source = Source.open(options.against, options.use)
    if options.use is None and (carried := use_in(options.form)) is not None:
        source = replace(source, use=carried)
    rows = check_rows(source.folder, options.questions, options.limit)
    if options.questions is None:
        reference = source.stored(rows)
    else:
        reference = source.score_run(source.load(dense=False), rows, "run")
    said, logit = ask_served(options, source, rows) if served else ask_loaded(options, source, rows)
    limits = limits_of(options, logit)
    agreement = compare(
        reference, said, (f"run, {source.use.label}", short_name(options.form)), **bins(source.settings)
    )
    path = options.output or source.folder.path / "checks" / f"{file_name(options.form, form_of(options))}.json"
    faults = conclude(agreement, limits, path, {"form": options.form, "use": source.use.to_record()})
    if faults:
        raise ValueError(f"{options.form} does not say what {source.folder.path} said: {'; '.join(faults)}")
    return path


def ask_loaded(options: argparse.Namespace, source: Source, rows: Any) -> tuple[Predictions, float | None]:
    """What a model that can be loaded says, and the limit that fits its number format."""
    from calmtune.modeling.loading import load_model

    placement = source.placement()
    form = options.form
    if options.gguf:
        from calmtune.export.gguf import convert, find_converter

        converter = find_converter()
        note(f"converting to GGUF, {options.gguf}")
        form = str(convert(Path(form), options.gguf, converter))
    note(f"loading {form}")
    model, tokenizer = load_model(form, quantization=options.quantization, **{**placement, "dtype": options.dtype})
    warn_of_other_prompts(source, tokenizer)
    config = getattr(model.config, "quantization_config", None)
    quantised = options.quantization is not None or config is not None or form.endswith(".gguf")
    precise = str(model.dtype) == "torch.float32"
    if getattr(model.generation_config, "sequence_bias", None):
        from calmtune.export.generated import generated_scores

        render = source.renderer(tokenizer)
        with progress("by generate") as advance:
            said = generated_scores(model, [render.multiple_choice(row) for row in rows], advance)
    else:
        said = source.score(model, tokenizer, rows, short_name(form))
    return said, None if quantised else FLOAT32 if precise else HALF


def ask_served(options: argparse.Namespace, source: Source, rows: Any) -> tuple[Predictions, None]:
    """What a served model says; its tokenizer is the run's."""
    from calmtune.endpoint import Endpoint
    from calmtune.export.endpoint import score_served
    from calmtune.modeling.loading import load_tokenizer

    endpoint = Endpoint(options.form, options.model, options.api_key_env)
    endpoint.key()  # a missing one is told before anything is loaded
    base = source.record["base"]
    adapter = source.settings["use_peft"]
    tokenizer = load_tokenizer(
        base["name"] if adapter else str(source.folder.path),
        gguf_file=source.settings.get("gguf_file") if adapter else None,
        revision=base["revision"] if adapter else None,
        trust_remote_code=bool(source.settings.get("trust_remote_code")),
        chat_template=source.settings.get("chat_template"),
    )
    render = source.renderer(tokenizer)
    items = [render.multiple_choice(row) for row in rows]
    with progress("served") as advance:
        said = score_served(
            endpoint,
            items,
            lambda token: str(tokenizer.decode([token])),
            top=options.top,
            normalisation=source.record["normalisation"],
            progress=advance,
        )
    return said, None


def refuse_options(options: argparse.Namespace, served: bool) -> None:
    """Raise for options that do not go with the form, before anything is read.

    Raises:
        ValueError: names the option.
    """
    from calmtune.export.gguf import TYPES

    if served and not options.model:
        raise ValueError(f"{options.form}: a server may hold several models; give the name of yours with --model")
    for name in ("quantization", "gguf") if served else ("model", "api_key_env"):
        if getattr(options, name):
            kind = "an address" if served else "no address"
            raise ValueError(f"--{name} does not go with {options.form}, which is {kind}; leave it out")
    if options.gguf and options.gguf not in TYPES:
        raise ValueError(f"--gguf: expected one of {', '.join(TYPES)}; got {options.gguf!r}")
    if options.gguf and options.quantization:
        raise ValueError("--gguf and --quantization are two forms; check one at a time")


def use_in(form: str) -> Use | None:
    """The use that `calmtune merge` recorded in a folder, or None."""
    from calmtune.export.merge import RECORD
    from calmtune.export.use import Use
    from calmtune.modeling.records import read_json

    place = Path(form)
    folders = (place.parent, place.parent.parent) if place.suffix == ".gguf" else (place,)
    path = next((one / RECORD for one in folders if (one / RECORD).is_file()), None)
    return Use.from_record(read_json(path)["use"]) if path is not None else None


def warn_of_other_prompts(source: Source, tokenizer: Any) -> None:
    """Say so when the form's tokenizer has another chat template than the run's had."""
    before, now = source.record["prompt"], source.renderer(tokenizer).settings()
    changed = [name for name in ("template", "template_sha256", "adds_bos") if before.get(name) != now[name]]
    if changed:
        warn(f"the prompts are not those of the run ({', '.join(changed)}), so figures may differ for that alone")


def is_address(form: str) -> bool:
    """Whether this is a server's address."""
    return form.startswith(("http://", "https://"))


def short_name(form: str) -> str:
    """For the head of a table."""
    return form if is_address(form) else Path(form).name or form


def form_of(options: argparse.Namespace) -> str | None:
    """What MODEL is brought to before it is asked."""
    kind: str | None = options.gguf or options.quantization
    return kind


def file_name(form: str, kind: str | None) -> str:
    """A name for the file of figures.

    >>> file_name("http://localhost:8000/v1", None), file_name("runs/first/merged", "4bit")
    ('localhost_8000_v1', 'merged-4bit')
    """
    name = re.sub(r"[^\w.-]+", "_", form.partition("//")[2].strip("/")) if is_address(form) else short_name(form)
    return name + (f"-{kind}" if kind else "")
