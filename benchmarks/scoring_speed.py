"""Text scoring of multiple choice against lm-eval's Hugging Face backend: the same log-probabilities, and items per
second.

Both score the same items with the same prompts, the same model object in float32 and the same number of threads.
lm-eval runs at every batch size asked for and gets token ids ready made (``HFLM._loglikelihood_tokens``), so neither
its reading of tasks nor its tokenisation is counted, while ours is; given text, it would count the line end of a chat
prompt among the answer's tokens. Each variant first runs on a few items untimed. Then they take turns in several
rounds, each round in another order, and medians are compared. CPU seconds are given beside the wall clock: on one
thread they hardly move when something else runs on the machine.

    pip install "lm-eval[hf]"
    python benchmarks/scoring_speed.py DATA/arc_easy.test.jsonl DATA/mmlu.test.jsonl --items 128

Prints, for each file and for all together, the ratio of items a second to each batch size of lm-eval and to its best
one, and the largest difference of a log-probability: to lm-eval as it is, whose softmax sums the whole vocabulary in
float32, and to lm-eval with its softmax in float64 (untimed, on the first ``--checked`` items).
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

OURS = "calmtune"
Scores = list[list[float]]


def main() -> None:
    """Measure, print a table, and keep the numbers if asked to."""
    options = arguments()
    import torch
    from lm_eval.models.huggingface import HFLM

    from calmtune.modeling.loading import load_model

    torch.set_num_threads(options.threads)
    model, tokenizer = load_model(options.model, dtype="float32", device=options.device)
    harness = HFLM(pretrained=model, tokenizer=tokenizer, backend="causal", batch_size=1)
    report: dict[str, Any] = {"settings": {name: str(value) for name, value in vars(options).items()}}
    report["where"] = {"machine": platform.processor() or platform.machine(), "torch": torch.__version__}
    for template in options.templates:
        found = {path.stem: compare(model, tokenizer, harness, path, template, options) for path in options.data}
        report[template] = {name: summary(times, options.items) for name, (times, _) in found.items()}
        report[template]["all"] = summary(added([times for times, _ in found.values()]), options.items * len(found))
        report[template]["largest_difference"] = [
            max(gaps) for gaps in zip(*(gap for _, gap in found.values()), strict=True)
        ]
        show(template, report[template])
    if options.out:
        options.out.write_text(json.dumps(report, indent=1), encoding="utf-8")


def arguments() -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("data", nargs="+", type=Path, help="files of multiple-choice rows")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--device", help="cpu or cuda; without it CUDA where there is one")
    parser.add_argument("--items", type=int, default=128, help="of each file, at random by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--templates", nargs="+", default=["plain", "chat"], choices=["plain", "chat"])
    parser.add_argument(
        "--batch_sizes", nargs="+", type=int, default=[1, 8, 16, 32, 64], help="of lm-eval, in requests"
    )
    parser.add_argument("--batch_tokens", type=int, help="of calmtune; without it found for the device")
    parser.add_argument("--checked", type=int, default=32, help="items of each file compared with a float64 softmax")
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    return parser.parse_args()


def compare(
    model: Any, tokenizer: Any, harness: Any, path: Path, template: str, options: argparse.Namespace
) -> tuple[dict[str, list[tuple[float, float]]], tuple[float, float]]:
    """Wall and CPU seconds of every round by variant, and the largest differences of a log-probability, on one file."""
    from calmtune.data.prompts import PromptStyle, Renderer
    from calmtune.data.sources import load_rows
    from calmtune.scoring.options import score_items

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows with equal options; both score them alike
        rows = load_rows(path, limit=options.items, seed=options.seed)
    renderer = Renderer(tokenizer, PromptStyle("text", template))
    items = [renderer.multiple_choice(row) for row in rows]
    pairs = [[(item.prompt_ids, ids) for ids in item.option_ids] for item in items]

    def ours(most: int | None = None) -> Scores:
        said = score_items(model, rows[:most], renderer, batch_tokens=options.batch_tokens)
        return [list(one.scores) for one in said]

    ours(4), harness_scores(harness, pairs[:4], 4)
    variants: dict[str, Callable[[], Scores]] = {OURS: ours}
    for size in options.batch_sizes:
        variants[f"lm-eval {size}"] = lambda size=size: harness_scores(harness, pairs, size)  # type: ignore[misc]
    names = list(variants)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    scores: dict[str, Scores] = {}
    for turn in range(options.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            wall, cpu = time.perf_counter(), time.process_time()
            scores[name] = variants[name]()
            times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
            print(f"{path.stem} {template} {name}: {times[name][-1][0]:.1f} s", flush=True)
    exact = harness_scores(harness, pairs[: options.checked], 8, "float64")
    gap = max(largest_gap(scores[OURS], scores[name]) for name in names[1:])
    return times, (gap, largest_gap(scores[OURS][: options.checked], exact))


def harness_scores(
    harness: Any, pairs: Sequence[Sequence[tuple[list[int], list[int]]]], size: int, softmax: str | None = None
) -> Scores:
    """The log-probability of every option as lm-eval computes it."""
    import torch

    harness.batch_size_per_gpu = size
    harness.softmax_dtype = getattr(torch, softmax) if softmax else None
    requests = [(("", ""), prompt, ids) for options in pairs for prompt, ids in options]
    flat = iter(harness._loglikelihood_tokens(requests, disable_tqdm=True))
    return [[next(flat)[0] for _ in options] for options in pairs]


def largest_gap(one: Scores, other: Scores) -> float:
    """Largest difference of two scores of the same option."""
    return max(abs(a - b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


def added(files: Sequence[dict[str, list[tuple[float, float]]]]) -> dict[str, list[tuple[float, float]]]:
    """The seconds of each round over all files."""
    return {
        name: [tuple(map(sum, zip(*rounds, strict=True))) for rounds in zip(*(one[name] for one in files), strict=True)]  # type: ignore[misc]
        for name in files[0]
    }


def summary(times: dict[str, list[tuple[float, float]]], items: int) -> dict[str, Any]:
    """Medians, and the medians over rounds of each variant's seconds over ours."""
    lines: dict[str, Any] = {}
    for name, rounds in times.items():
        wall, cpu = (statistics.median(one[part] for one in rounds) for part in (0, 1))
        ratios = [
            statistics.median(other[part] / own[part] for own, other in zip(times[OURS], rounds, strict=True))
            for part in (0, 1)
        ]
        lines[name] = {
            "items_per_s": items / wall, "wall_s": wall, "cpu_s": cpu, "wall_ratio": ratios[0], "cpu_ratio": ratios[1],
        }  # fmt: skip
    others = [name for name in times if name != OURS]
    lines["best lm-eval"] = {
        "wall": min(others, key=lambda name: lines[name]["wall_ratio"]),
        "wall_ratio": min(lines[name]["wall_ratio"] for name in others),
        "cpu": min(others, key=lambda name: lines[name]["cpu_ratio"]),
        "cpu_ratio": min(lines[name]["cpu_ratio"] for name in others),
    }
    return lines


def show(template: str, report: dict[str, Any]) -> None:
    """Print one template's tables."""
    for name, lines in report.items():
        if name == "largest_difference":
            continue
        print(f"\n{template}, {name}: seconds of lm-eval for one of calmtune (wall clock, CPU time)")
        for variant, line in lines.items():
            if variant == "best lm-eval":
                print(f"  at lm-eval's best: {line['wall_ratio']:.2f} ({line['wall']}), {line['cpu_ratio']:.2f} CPU")
            else:
                print(
                    f"  {variant:<12} {line['items_per_s']:8.2f} items/s   {line['wall_ratio']:.2f}   "
                    f"{line['cpu_ratio']:.2f}"
                )
    gap, exact = report["largest_difference"]
    print(f"largest difference of a log-probability: {gap:.1e}; with lm-eval's softmax in float64: {exact:.1e}")


if __name__ == "__main__":
    main()
