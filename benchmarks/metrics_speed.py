"""Calibration metrics of many predictions against plain loops: conf-ECE, class-wise ECE of four classes, and the paired
bootstrap of both with intervals and permutation p-values.

The loops are what one would write down: over the items in plain Python for the errors, over the resamples with numpy
for the bootstrap (draw rows, take them, compute; exchange rows, compute). They are too slow for all of it, so they run
on ``--loop_items`` items or ``--loop_resamples`` resamples of all items and are extrapolated linearly, as is said.
Fast and plain take turns, and medians are compared. Both run on one thread unless ``--threads`` says otherwise, in
CPU seconds and by the wall clock.

    python benchmarks/metrics_speed.py                        # 10 million predictions, 1,000 resamples
    python benchmarks/metrics_speed.py --items 100000 --resamples 200
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402  after the number of threads

Seconds = tuple[float, float]
CLASSES = 4


def main() -> None:
    """Measure, print a table, and keep the numbers if asked to."""
    options = arguments()
    data = predictions(options.items, options.seed)
    held = sum(array.nbytes for array in data.values()) / 2**20
    before = peak()
    lines: dict[str, dict[str, Any]] = {}
    for name, (fast, plain, factor) in cases(data, options).items():
        times: dict[str, list[Seconds]] = {"fast": [], "plain": []}
        for _ in range(options.rounds):
            times["fast"].append(timed(fast))
            if options.fast_only:
                wall, cpu = times["fast"][-1]
                print(f"{name}: {wall:.2f} ({cpu:.2f} CPU) s, peak memory so far {peak():.0f} MiB", flush=True)
                continue
            times["plain"].append(tuple(factor * part for part in timed(plain)))  # type: ignore[arg-type]
            print(f"{name}: {times['fast'][-1][0]:.2f} s, plain {times['plain'][-1][0]:.0f} s", flush=True)
        if options.fast_only:
            continue
        middle = {side: [statistics.median(one[part] for one in times[side]) for part in (0, 1)] for side in times}
        lines[name] = {**middle, "ratio": [p / f for f, p in zip(middle["fast"], middle["plain"], strict=True)]}
        lines[name]["loop_extrapolated_by"] = factor
    print(f"\narrays {held:.0f} MiB; the process's largest memory {before:.0f} MiB before, {peak():.0f} MiB after")
    if lines:
        show(lines, options)
    if options.out:
        options.out.write_text(json.dumps({"settings": str(vars(options)), "lines": lines}, indent=1), encoding="utf-8")


def arguments() -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--items", type=int, default=10_000_000)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--loop_items", type=int, default=100_000, help="items that a loop over items runs on")
    parser.add_argument("--loop_resamples", type=int, default=2, help="resamples that a loop over resamples does")
    parser.add_argument("--threads", type=int, default=1, help="of the fast bootstrap; a loop has one")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="cases: ece, cw_ece, paired_ece, paired_cw_ece")
    parser.add_argument("--fast_only", action="store_true", help="no loops: shows the memory of the fast calls alone")
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    return parser.parse_args()


def predictions(n: int, seed: int) -> dict[str, Any]:
    """Two methods on the same items: probabilities of four classes, float32, the second one sharper than the first."""
    rng = np.random.default_rng(seed)
    data: dict[str, Any] = {"labels": np.empty(n, dtype=np.int64)}
    for name in ("a", "b"):
        data[name] = np.empty((n, CLASSES), dtype=np.float32)
    for start in range(0, n, 2**20):
        rows = slice(start, min(start + 2**20, n))
        z = 2 * rng.standard_normal((rows.stop - start, CLASSES))
        for name, scale in (("a", 1.0), ("b", 1.2)):
            e = np.exp(scale * z + 0.3 * rng.standard_normal(z.shape))
            data[name][rows] = e / e.sum(axis=1, keepdims=True)
        p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        data["labels"][rows] = (p.cumsum(axis=1) < rng.random(len(z))[:, None]).sum(axis=1).clip(max=CLASSES - 1)
    for name in ("a", "b"):
        data[f"confidence_{name}"] = data[name].max(axis=1)
        data[f"correct_{name}"] = data[name].argmax(axis=1) == data["labels"]
    return data


def cases(
    data: dict[str, Any], options: argparse.Namespace
) -> dict[str, tuple[Callable[[], Any], Callable[[], Any], float]]:
    """What is measured: the fast call, the loop, and what the loop's seconds are multiplied with."""
    from calmtune.metrics import (
        ClasswiseError,
        ConfidenceError,
        classwise_ece,
        compare_many,
        expected_calibration_error,
    )

    n, resamples = options.items, options.resamples
    few, loops = min(options.loop_items, n), min(options.loop_resamples, resamples)
    conf = [(data[f"confidence_{name}"], data[f"correct_{name}"]) for name in "ab"]
    classes = [(data[name], data["labels"]) for name in "ab"]
    found = {
        "ece": (
            lambda: expected_calibration_error(*conf[0]),
            lambda: loop_ece(conf[0][0][:few], conf[0][1][:few]),
            n / few,
        ),
        "cw_ece": (
            lambda: classwise_ece(*classes[0]),
            lambda: loop_cw_ece(classes[0][0][:few], classes[0][1][:few]),
            n / few,
        ),
        "paired_ece": (
            lambda: compare_many(
                ConfidenceError(*conf[0]), ConfidenceError(*conf[1]), n_resamples=resamples, threads=options.threads
            ),
            lambda: loop_paired(numpy_ece, conf[0], conf[1], loops),
            resamples / loops,
        ),
        "paired_cw_ece": (
            lambda: compare_many(
                ClasswiseError(*classes[0]), ClasswiseError(*classes[1]), n_resamples=resamples, threads=options.threads
            ),
            lambda: loop_paired(numpy_cw_ece, classes[0], classes[1], loops),
            resamples / loops,
        ),
    }
    return {name: case for name, case in found.items() if not options.only or name in options.only}


def loop_ece(confidence: Any, correct: Any, n_bins: int = 10) -> float:
    """conf-ECE, item by item."""
    sums, total = [[0.0, 0.0, 0] for _ in range(n_bins)], len(confidence)
    for c, y in zip(confidence.tolist(), correct.tolist(), strict=True):
        one = sums[min(int(c * n_bins), n_bins - 1)]
        one[0] += c
        one[1] += y
        one[2] += 1
    return sum(count / total * abs(y / count - c / count) for c, y, count in sums if count)


def loop_cw_ece(p: Any, labels: Any, n_bins: int = 10) -> float:
    """Class-wise ECE, item by item."""
    return sum(loop_ece(p[:, k], (labels == k).astype(float), n_bins) for k in range(p.shape[1])) / p.shape[1]


def numpy_ece(confidence: Any, correct: Any, n_bins: int = 10) -> float:
    """conf-ECE with numpy, bin by bin, as it is usually written."""
    total, bins = 0.0, np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    for b in range(n_bins):
        inside = bins == b
        if inside.any():
            total += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    return float(total)


def numpy_cw_ece(p: Any, labels: Any) -> float:
    """Class-wise ECE with numpy."""
    return sum(numpy_ece(p[:, k], labels == k) for k in range(p.shape[1])) / int(p.shape[1])


def loop_paired(metric: Callable[..., float], a: tuple[Any, ...], b: tuple[Any, ...], resamples: int) -> list[float]:
    """Differences on resamples and after exchanges, one resample at a time."""
    rng, n = np.random.default_rng(0), len(a[0])
    found = []
    for _ in range(resamples):
        rows = rng.integers(0, n, n)
        found.append(metric(*(x[rows] for x in a)) - metric(*(x[rows] for x in b)))
        swap = rng.random(n) < 0.5
        sides = [
            [np.where(swap.reshape(-1, *[1] * (x.ndim - 1)), y, x) for x, y in zip(one, other, strict=True)]
            for one, other in ((a, b), (b, a))
        ]
        found.append(metric(*sides[0]) - metric(*sides[1]))
    return found


def timed(call: Callable[[], Any]) -> Seconds:
    """Wall and CPU seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def peak() -> float:
    """The largest memory this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def show(lines: dict[str, dict[str, Any]], options: argparse.Namespace) -> None:
    """Print the table."""
    print(
        f"{options.items:,} predictions, {options.resamples:,} resamples; threads {options.threads}; "
        "wall clock (CPU) seconds"
    )
    for name, line in lines.items():
        (fast, fast_cpu), (plain, plain_cpu) = line["fast"], line["plain"]
        print(
            f"  {name:<14} {fast:8.2f} ({fast_cpu:.2f}) s   loop {plain:9.3g} ({plain_cpu:.3g}) s, extrapolated x "
            f"{line['loop_extrapolated_by']:g}   ratio {line['ratio'][0]:.0f} ({line['ratio'][1]:.0f})"
        )


if __name__ == "__main__":
    main()
