"""From stored predictions: the tuned model's adjusted distribution against base + temperature scaling, paired by item.

    python examples/04_paired_comparison.py runs/first

Prints, in domain and out of domain, n and the difference in conf-ECE (adjusted minus base + TS) with its 95 %
interval and permutation p-value. The temperature is fitted on the calibration split. Needs no model.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from calmtune.metrics import expected_calibration_error, paired_difference
from calmtune.posthoc import TemperatureScaler
from calmtune.predictions import load_predictions


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of an evaluated run")
    run = parser.parse_args().run
    base, tuned = (load_predictions(run / "predictions" / f"{name}.test.jsonl") for name in ("base", "tuned"))
    calibration = load_predictions(run / "predictions" / "base.calibration.jsonl")
    temperature = TemperatureScaler().fit(calibration.logits(), calibration.labels).temperature
    shifts = json.loads((run / "splits.json").read_text(encoding="utf-8"))["shifts"]
    for shift in ("ID", "OOD"):
        pairs = [
            (
                tuned.of_domain(domain).confidence_and_correct(adjusted=True),
                base.of_domain(domain).confidence_and_correct(temperature=temperature),
            )
            for domain, kind in shifts.items()
            if kind == shift
        ]
        if not pairs:
            continue
        ours, theirs = (tuple(np.concatenate([pair[i][k] for pair in pairs]) for k in (0, 1)) for i in (0, 1))
        found = paired_difference(expected_calibration_error, ours, theirs, seed=0)
        print(
            f"{shift}: n {len(ours[0])}, conf-ECE {expected_calibration_error(*ours):.3f} against "
            f"{expected_calibration_error(*theirs):.3f}, difference {found.estimate:+.3f} "
            f"[{found.low:+.3f}, {found.high:+.3f}], p {found.p_value:.3f}"
        )


if __name__ == "__main__":
    main()
