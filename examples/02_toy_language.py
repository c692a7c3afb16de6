"""Every method on a toy language whose probabilities are known, so that the true calibration error can be computed.

    python examples/02_toy_language.py           # 5 seeds, all methods: the table, then paired differences
    python examples/02_toy_language.py --seeds 10 --methods sft "calm vector, eta auto" --picture toy.png
    python examples/02_toy_language.py --tune    # how the methods' settings were chosen

A seed is a language (its tables, its domains), a small model pre-trained on it and aligned by reward until it is
overconfident everywhere, and fine-tuning data from one domain. All errors are integrated over the known law of
prompts and answers: a table cell has no sampling noise but that of the seeds, and its interval is over them. See
docs/experiments.md for the table and a reading of it.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from toy_language.experiment import RECIPES, Row, column, over_seeds, run_seed, table
from toy_language.picture import save_reliability
from toy_language.tuning import choose

from calmtune.metrics import paired_difference

CALM = "calm vector, eta auto adjusted"
# (row, row it is compared with, figure, domains): what the paper claims, and CALM against what is cheaper
COMPARISONS = (
    (CALM, "base", "ece", "ood"),
    (CALM, "base + TS", "ece", "ood"),
    (CALM, "base + TS", "ece", "unseen"),
    (CALM, "sft", "ece", "ood"),
    (CALM, "sft + TS", "ece", "ood"),
    (CALM, "label smoothing", "ece", "ood"),
    (CALM, "sft with alpha adjusted", "ece", "ood"),
    (CALM, "regularization adjusted", "ece", "ood"),
    (CALM, "regularization, no alpha", "ece", "ood"),
    (CALM, "calm vector, eta 30 adjusted", "ece", "ood"),
    (CALM, "calm scalar, eta auto adjusted", "ece", "ood"),
    (CALM, "sft", "accuracy", "id"),
    (CALM, "sft", "accuracy", "ood"),
    ("iterate adjusted", "sft", "accuracy", "id"),
    ("iterate adjusted", "sft", "accuracy", "ood"),
    ("iterate adjusted", CALM, "accuracy", "id"),
    ("calm vector, eta 1 adjusted", "sft", "accuracy", "id"),
    ("base + TS", "base", "ece", "ood"),
    (CALM, "base + TS", "ece", "id"),
)


def main() -> None:
    """Run the seeds, print the table and the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="how many languages (default 5)")
    parser.add_argument("--methods", nargs="+", choices=list(RECIPES), default=list(RECIPES), metavar="METHOD",
                        help="rows beside base: " + "; ".join(RECIPES))  # fmt: skip
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="seeds run at once (default: cores)")
    parser.add_argument(
        "--picture", type=Path, help="write reliability diagrams of base, SFT and CALM auto to this PNG"
    )
    parser.add_argument("--tune", action="store_true", help="choose the settings on the development languages instead")
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error(f"--seeds: expected a whole number >= 1, got {options.seeds}")
    if options.tune:
        choose(options.processes)
        return
    start = time.perf_counter()
    jobs = [(seed, tuple(options.methods)) for seed in range(options.seeds)]
    results = over_seeds(run_seed, jobs, min(options.processes, len(jobs)))
    print("\n".join(table(results)))
    print("\n".join(differences(results)))
    print(f"\n{len(jobs)} seeds in {time.perf_counter() - start:.0f} s")
    if options.picture is not None:
        save_reliability(options.picture)
        print(f"wrote {options.picture}")


def differences(results: list[dict[str, Row]]) -> list[str]:
    """Paired by seed: first row minus second, 95 % bootstrap interval over seeds, permutation p-value."""
    lines = ["", f"paired by seed, n = {len(results)}: first minus second [95 % interval], p"]
    for first, second, name, role in COMPARISONS:
        if first in results[0] and second in results[0]:
            a, b = ([column(results, row, name, role)] for row in (first, second))
            value = paired_difference(np.mean, a, b)
            figures = f"{value.estimate:+.3f} [{value.low:+.3f}, {value.high:+.3f}]  p {value.p_value:.3f}"
            lines.append(f"{name:8s} {role.upper():6s}  {first} - {second}: {figures}")
    return lines


if __name__ == "__main__":
    main()
