"""How fast answers are sampled, against a plain ``generate(num_return_sequences=n)`` loop: a ratio from one run.

Both draw n answers to the same questions from the same model, in rounds that alternate between the two, and the medians
are compared. ``generate`` gets one question at a time, as in most scripts, and also as many at a time as ``calmtune``
decodes together; it stops at the same end tokens and at a newline. The two draw different random numbers, so their
answers differ in length; what is compared is questions, and also sampled tokens, a second.

    python benchmarks/sampling_speed.py                                       # the built-in model, built-in questions
    python benchmarks/sampling_speed.py --questions questions.jsonl --items 50 --n 10
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def built_in_questions(count: int) -> list[Any]:
    """Questions of the built-in bank, without their options."""
    from calmtune.data.facts import facts
    from calmtune.data.rows import OpenQuestion

    rows = facts()
    rows = rows[:: max(1, len(rows) // count)][:count]
    return [OpenQuestion(row.id, row.question, (row.choices[row.label],), row.domain) for row in rows]


def file_questions(path: Path, count: int) -> list[Any]:
    """The first questions of a JSON Lines file of {question, answers}."""
    from calmtune.data.rows import OpenQuestion, parse_row

    with path.open(encoding="utf-8") as file:
        raw = [json.loads(line) for _, line in zip(range(count), file, strict=False)]
    rows = [parse_row(one, where=f"{path}:{k}", default_id=str(k), domain="file") for k, one in enumerate(raw, 1)]
    return [row for row in rows if isinstance(row, OpenQuestion)]


def plain_loop(model: Any, renderer: Any, rows: Sequence[Any], how: Any, ends: list[int], size: int) -> int:
    """``generate`` on ``size`` questions at a time, padded on the left.

    Returns:
        Sampled tokens, up to each answer's end.
    """
    import torch

    tokenizer, total = renderer.tokenizer, 0
    for start in range(0, len(rows), size):
        prompts = [renderer.prompt(row).prompt_ids for row in rows[start : start + size]]
        width = max(map(len, prompts))
        ids = torch.tensor([[tokenizer.pad_token_id] * (width - len(p)) + p for p in prompts], device=model.device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=model.device)
        found = model.generate(
            ids, attention_mask=mask, do_sample=True, temperature=how.temperature, top_p=how.top_p, top_k=how.top_k,
            num_return_sequences=how.n, max_new_tokens=how.max_new_tokens, eos_token_id=ends,
            stop_strings=list(how.stop) or None, tokenizer=tokenizer, pad_token_id=tokenizer.pad_token_id,
        )  # fmt: skip
        for answer in found[:, width:].tolist():
            # after its end a row is filled up
            total += next((k + 1 for k, token in enumerate(answer) if token in ends), len(answer))
    return total


def timed(work: Callable[[Sequence[Any]], int], rows: Sequence[Any]) -> tuple[float, int]:
    """Seconds, and the tokens sampled."""
    import torch

    start = time.perf_counter()
    tokens = work(rows)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start, tokens


def contestants(options: argparse.Namespace) -> tuple[dict[str, Callable[[Sequence[Any]], int]], list[Any]]:
    """What is timed, by name, and the questions."""
    from calmtune.data.prompts import PromptStyle, Renderer
    from calmtune.modeling.loading import load_model
    from calmtune.scoring.sampling import sample_answers
    from calmtune.scoring.sampling_settings import SamplingSettings
    from calmtune.scoring.sampling_text import end_tokens

    model, tokenizer = load_model(options.model)
    renderer = Renderer(tokenizer, PromptStyle("text", options.template, open_prompt=options.open_prompt))
    rows = file_questions(options.questions, options.items) if options.questions else built_in_questions(options.items)
    stop = () if options.stop == "" else (options.stop.encode().decode("unicode_escape"),)
    how = SamplingSettings(n=options.n, max_new_tokens=options.max_new_tokens, stop=stop)
    ends = end_tokens(model, renderer)

    def calmtune(rows: Sequence[Any]) -> int:
        found = sample_answers(model, rows, renderer, settings=how, batch_rows=options.batch_rows)
        return sum(sample.tokens for item in found for sample in item.samples)

    together = max(1, options.batch_rows // options.n)
    named: dict[str, Callable[[Sequence[Any]], int]] = {
        "calmtune": calmtune,
        "generate, 1 question": lambda rows: plain_loop(model, renderer, rows, how, ends, 1),
        f"generate, {together} questions": lambda rows: plain_loop(model, renderer, rows, how, ends, together),
    }
    return named, rows


def main() -> None:
    """Time, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--questions", type=Path, help="JSON Lines of {question, answers}")
    parser.add_argument("--items", type=int, default=24)
    parser.add_argument("--n", type=int, default=10)
    parser.add_argument("--max_new_tokens", type=int, default=32)
    parser.add_argument("--batch_rows", type=int, default=64)
    parser.add_argument("--template", default="auto")
    parser.add_argument("--open_prompt", default="short")
    parser.add_argument("--stop", default="\\n", help="text that ends an answer, with Python's escapes; empty: none")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    variants, rows = contestants(options)
    for work in variants.values():
        work(rows[:1])  # what is made once and kept, such as the table of a stop text, is not timed
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    tokens: dict[str, list[int]] = {name: [] for name in variants}
    for _ in range(options.rounds):
        for name, work in variants.items():
            took, drawn = timed(work, rows)
            seconds[name].append(took)
            tokens[name].append(drawn)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{platform.processor()}, CPU"
    print(f"{options.model}, {len(rows)} questions, n = {options.n}, at most {options.max_new_tokens} tokens;", device)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads of {os.cpu_count()}, {options.rounds} rounds\n"
    )
    first = statistics.median(seconds["calmtune"])
    rate = statistics.median(t / s for t, s in zip(tokens["calmtune"], seconds["calmtune"], strict=True))
    print(f"{'':24}{'s/question':>12}{'tokens/s':>12}{'time ratio':>12}{'rate ratio':>12}")
    for name in variants:
        middle = statistics.median(seconds[name])
        own = statistics.median(t / s for t, s in zip(tokens[name], seconds[name], strict=True))
        print(f"{name:24}{middle / len(rows):12.3f}{own:12.1f}{middle / first:12.2f}{rate / own:12.2f}")


if __name__ == "__main__":
    main()
