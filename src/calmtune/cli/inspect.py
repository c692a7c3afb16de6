"""``calmtune inspect``: what the model will see, before an hour is spent on a wrong format. Loads no model."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from calmtune.cli.console import note, say, warn
from calmtune.cli.options import new_parser, overrides_of

if TYPE_CHECKING:
    from calmtune.cli.splits import Splits
    from calmtune.config import RunConfig
    from calmtune.data.prompts import EncodedItem, EncodedSequence, Renderer

Encoded = Any
# how much of a long prompt is printed: its end, where the answer is read
SHOWN_IDS = 48
# splits below this size are warned about
FEW = 50


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = new_parser(
        commands,
        "inspect",
        run,
        "show what the model will see",
        "Print the sizes of the splits, one rendered example of each (text, ids, the position that is read, option\n"
        "ids, the tokens that carry loss) and the tokens' counts. Every row is encoded, so a row that cannot be used\n"
        "is named here.",
        "  calmtune inspect configs/own_questions.yaml --train_sources questions.jsonl\n  calmtune inspect --settings",
    )
    parser.add_argument("--settings", action="store_true", dest="list_settings", help="list every setting and stop")
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="YAML file; its keys are the flags")
    parser.add_argument(
        "overrides", metavar="--KEY VALUE", nargs=argparse.REMAINDER, help="settings that win over the file"
    )


def run(options: argparse.Namespace) -> None:
    """Inspect a configuration, or list the settings."""
    from calmtune.config import load_config

    if options.list_settings:
        list_settings()
        return
    if options.config is None:
        raise ValueError("expected CONFIG, a YAML file, or --settings; see calmtune inspect --help")
    inspect_run(load_config(options.config, overrides_of(options, "inspect")))


def list_settings() -> None:
    """Every key with its type, default and description."""
    from calmtune.config import settings
    from calmtune.schema import describe

    section = ""
    for name, setting in settings().items():
        if setting.section != section:
            section = setting.section
            say(f"\n{section}", style="bold")
        say(f"  {name}: {describe(setting.hint)}; default {setting.default!r}")
        if setting.help:
            say(f"      {setting.help}")


def inspect_run(config: RunConfig) -> None:
    """Print everything that can be known without the model.

    Raises:
        ValueError: lists the rows that cannot be encoded.
    """
    from calmtune.cli.splits import build_splits
    from calmtune.data.prompts import Renderer
    from calmtune.training.datasets import choose_level

    note("reading the data")
    splits = build_splits(config.data)
    how = config.training
    tokenizer = load_tokenizer(config)
    refuse_early(config, tokenizer)
    renderer = Renderer(tokenizer, config.training_arguments().prompt_style)
    level = choose_level(config.training_arguments().method_level, [*splits.rows["train"], *splits.rows["upper"]])
    encoded = encode_all(splits, renderer, level, how["max_length"])
    say_sizes(splits, encoded)
    say(
        f"\nlevel {level}, scoring {how['scoring']}, template {renderer.template}, "
        f"one BOS in front: {bos_words(next((one for part in encoded.values() for one in part), None), renderer)}"
    )
    for name, examples in encoded.items():
        if examples:
            say(f"\n{name}, {examples[0].id}", style="bold")
            for line in lines_of(examples[0], renderer):
                say(line)


def refuse_early(config: RunConfig, tokenizer: Any = None) -> None:
    """Refuse what cannot be trained as asked and can be known without the weights.

    Args:
        config: the run.
        tokenizer: the run's, where it is loaded already.

    Raises:
        ValueError: lists the faults: a tracker that is not installed, a chat template where there is none, layers for
            the adapter that the model does not have.
    """
    from calmtune.checks import tracker_faults
    from calmtune.cli.train import lora_config
    from calmtune.data.prompts import PromptStyle, Renderer
    from calmtune.modeling.loading import check_adapter

    how, model = config.training, config.model
    faults = list(tracker_faults(how["report_to"]))

    def check_template() -> None:
        if how["template"] == "chat":
            Renderer(tokenizer or load_tokenizer(config), PromptStyle(how["scoring"], "chat", how["system_prompt"]))

    def check_layers() -> None:
        if config.lora.use_peft and config.lora.lora_target_modules != "all-linear":
            check_adapter(
                model.model_name_or_path,
                lora_config(config),
                gguf_file=model.gguf_file,
                revision=model.model_revision,
                trust_remote_code=model.trust_remote_code,
            )

    for check in (check_template, check_layers):
        try:
            check()
        except ValueError as error:
            faults.append(str(error))
    if faults:
        raise ValueError("\n".join(faults))


def load_tokenizer(config: RunConfig) -> Any:
    """The tokenizer, exactly as training will have it."""
    from calmtune.modeling import loading

    model = config.model
    return loading.load_tokenizer(
        model.model_name_or_path,
        gguf_file=model.gguf_file,
        revision=model.model_revision,
        trust_remote_code=model.trust_remote_code,
        chat_template=model.chat_template,
    )


def encode_all(splits: Splits, renderer: Renderer, level: Any, max_length: int) -> dict[str, list[Encoded]]:
    """Every row as it will be trained on or scored.

    Raises:
        ValueError: lists the rows that cannot be encoded, up to twenty.
    """
    from calmtune.training.datasets import encode

    encoded: dict[str, list[Encoded]] = {}
    faults: list[str] = []
    for name, rows in splits.rows.items():
        encoded[name] = []
        for row in rows:
            try:
                used = level if name in ("train", "upper") else "options"
                encoded[name] += encode([row], renderer, used, max_length, upper=name == "upper")
            except ValueError as error:
                faults.append(f"{name}: {error}")
    if faults:
        listed = "\n".join(f"  - {fault}" for fault in faults[:20])
        more = f"\n  and {len(faults) - 20} more" if len(faults) > 20 else ""
        raise ValueError(f"{len(faults)} rows cannot be encoded:\n{listed}{more}")
    return encoded


def say_sizes(splits: Splits, encoded: dict[str, list[Encoded]]) -> None:
    """A line a split: rows, tokens, domains."""
    say(f"{'split':<12} {'rows':>6}   {'tokens: min':>11} {'mean':>7} {'max':>6}   domains")
    for name, examples in encoded.items():
        lengths = [length_of(example) for example in examples] or [0]
        domains: dict[str, int] = {}
        for example in examples:
            domains[example.domain] = domains.get(example.domain, 0) + 1
        counts = ", ".join(f"{domain} {count}" for domain, count in domains.items()) or "-"
        mean = sum(lengths) / len(lengths)
        say(f"{name:<12} {len(examples):>6}   {min(lengths):>11} {mean:>7.1f} {max(lengths):>6}   {counts}")
        if name in ("calibration", "test_id", "test_ood") and 0 < len(examples) < FEW:
            warn(f"{name} has {len(examples)} rows; figures from fewer than {FEW} say little, see their intervals")
    for name, count in splits.dropped.items():
        warn(f"{count} rows of {name} were dropped, because their questions are also in another split")


def length_of(example: Encoded) -> int:
    """Tokens of one example: a sequence's, or the prompt once with each option's."""
    if hasattr(example, "option_ids"):
        return len(example.prompt_ids) + sum(len(ids) for ids in example.option_ids)
    return len(example.input_ids)


def lines_of(example: Encoded, renderer: Renderer) -> Iterator[str]:
    """One example, token by token where it matters."""
    yield from item_lines(example, renderer) if hasattr(example, "option_ids") else sequence_lines(example, renderer)


def item_lines(item: EncodedItem, renderer: Renderer) -> Iterator[str]:
    """A question with its options, as options are scored and trained on."""
    tokens = renderer.tokenizer.convert_ids_to_tokens
    read = len(item.prompt_ids) - 1
    yield f"  prompt text    {item.prompt_text!r}"
    yield f"  prompt ids     {_shortened(item.prompt_ids)}"
    yield f"  read position  {read}, after {tokens(item.prompt_ids[-1])!r}; each option's first token follows it"
    yield f"  options        {len(item.option_ids)}, scored as {item.scoring}; the gold one is marked *"
    for index, ids in enumerate(item.option_ids):
        mark = "*" if index == item.label else " "
        yield f"    {mark} {index}  ids {ids}  {tokens(ids)}  ({item.option_bytes[index]} bytes)"
    yield f"  loss           over the {len(item.option_ids)} options' scores, gold {item.label}; none on prompt tokens"


def sequence_lines(sequence: EncodedSequence, renderer: Renderer) -> Iterator[str]:
    """A prompt with its answer; the loss mask token by token."""
    start, ids = sequence.answer_start, sequence.input_ids
    prompt, answer = ids[:start], ids[start:]
    yield f"  text           {renderer.tokenizer.decode(ids)!r}"
    yield f"  prompt ids     {_shortened(prompt)}"
    yield f"  read position  {start - 1}, after {renderer.tokenizer.convert_ids_to_tokens(ids[start - 1])!r}"
    yield f"  answer         {sequence.answer_text!r}"
    yield f"  loss mask      {len(prompt)} x 0 (prompt), {len(answer)} x 1 (answer):"
    for index in range(max(0, start - 3), min(len(ids), start + SHOWN_IDS)):
        token = renderer.tokenizer.convert_ids_to_tokens(ids[index])
        yield f"    {index:>5}  loss {int(index >= start)}  id {ids[index]:<7} {token!r}"
    if len(answer) > SHOWN_IDS:
        yield f"    ... and {len(answer) - SHOWN_IDS} more answer tokens, all with loss 1"
    if sequence.letter_ids:
        yield f"  letter ids     {list(sequence.letter_ids)}"


def _shortened(ids: Sequence[int]) -> str:
    left_out = len(ids) - SHOWN_IDS
    return str(list(ids)) if left_out <= 0 else f"[{left_out} ids, then {', '.join(map(str, ids[-SHOWN_IDS:]))}]"


def bos_words(example: Encoded | None, renderer: Renderer) -> str:
    """Whether the text begins with the tokenizer's BOS, and who writes it."""
    bos = renderer.tokenizer.bos_token_id
    if example is None or bos is None:
        return "no, the tokenizer has none" if bos is None else "not known without an example"
    ids = example.prompt_ids if hasattr(example, "prompt_ids") else example.input_ids
    if ids[:1] != [bos]:
        return "no, neither the tokenizer nor the template adds one"
    return f"yes, {renderer.tokenizer.convert_ids_to_tokens(bos)!r}" + (
        "" if renderer.adds_bos else ", written by the chat template"
    )
