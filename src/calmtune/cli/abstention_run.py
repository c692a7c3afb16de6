"""A threshold for an evaluated run: which halves, which confidence, which threshold, and how it does elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calmtune.cli.console import command, note
from calmtune.cli.folder import RunFolder

if TYPE_CHECKING:
    from calmtune.posthoc.abstention import AbstentionRule
    from calmtune.predictions import Predictions

TABLE_SIZE = 20


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Args:
        target: error rate to be held. confidence: with what probability (``control: answered``).
        control: ``"answered"`` for the error rate among answered, ``"joint"`` for answered and wrong among all.
        distribution, scaling: the reading, fixed beforehand; None to have it chosen on the first half.
        seed: of the halves and of the permutations.
        shift_level: level of the two-sample tests, over all domains together.
    """

    target: float = 0.1
    confidence: float = 0.95
    control: Any = "answered"
    distribution: str | None = None
    scaling: str | None = None
    seed: int = 0
    shift_level: float = 0.01

    def __post_init__(self) -> None:
        for name in ("target", "confidence", "shift_level"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise ValueError(f"--{name}: expected a share between 0 and 1, got {getattr(self, name):g}")
        if self.seed < 0:
            raise ValueError(f"--seed: expected a whole number >= 0, got {self.seed}")
        if (self.distribution is None) != (self.scaling is None):
            raise ValueError("give --distribution and --scaling together: they fix the reading beforehand")


def run_abstention(path: Path, request: Request, check: Sequence[Path] = ()) -> tuple[RunFolder, dict[str, Any]]:
    """Find the threshold of an evaluated run, try it on the test domains and on further files, and write both files.

    Raises:
        FileNotFoundError: the run was not evaluated.
        ValueError: too few calibration items, a reading that the run does not have, or a broken file.
    """
    from calmtune.posthoc.abstention import METHODS, halves, risk_coverage
    from calmtune.posthoc.abstention_file import FILE, FORMAT
    from calmtune.predictions import load_predictions
    from calmtune.report.abstention import table_rows, write_abstention

    folder = RunFolder(path)
    folder.require()
    for split in ("calibration", "test"):
        if not folder.predictions("tuned", split).is_file():
            raise FileNotFoundError(f"{path} was not evaluated yet; run: {command('calmtune', 'evaluate', path)}")
    calibration = load_predictions(folder.predictions("tuned", "calibration"))
    first, second = halves(calibration.ids, request.seed)
    reading = choose_reading(folder, request, set(_of(calibration, first).ids))
    fit_on, find_on = read_as(_of(calibration, first), reading), read_as(_of(calibration, second), reading)
    rule = find_rule(request, fit_on, find_on)
    others = [*own_sets(folder, reading), *check_sets(check, reading)]
    n_tests = sum(one.tested for one in others)
    note(f"testing {n_tests} sets of questions for a shift")
    table = risk_coverage(find_on.confidence, find_on.correct, shown_thresholds(fit_on.confidence, rule))
    record = {
        "format": FORMAT,
        "threshold": None if rule.answers_nothing else rule.threshold,
        "control": rule.control,
        "target": rule.target,
        "confidence": rule.confidence,
        "method": METHODS[rule.control],
        "n": rule.n,
        "n_answered": rule.n_answered,
        "n_wrong": rule.n_wrong,
        "n_fit": len(fit_on.confidence),
        **reading,
        "seed": request.seed,
        "shift_level": request.shift_level,
        "table": table_rows(vars(table)),
        "domains": [try_domain(one, find_on.confidence, rule, request, n_tests) for one in others],
        "reference_confidences": sorted(find_on.confidence.tolist()),
    }
    folder.write_json(folder.path / FILE, record)
    write_abstention(record, folder.path)
    return folder, record


def choose_reading(folder: RunFolder, request: Request, first: set[str]) -> dict[str, Any]:
    """Which confidence is thresholded, fitted and (unless fixed beforehand) chosen on the first half alone.

    The run's own decision looked at the whole calibration split, the second half included, so it is made again by the
    same rule; ``as_decided`` says whether it came out the same.
    """
    from calmtune.cli.comparison import FITS
    from calmtune.predictions import load_predictions
    from calmtune.report.scaling import fit_scaling, widest
    from calmtune.report.selection import decide

    tuned, base = (
        _with(load_predictions(folder.predictions(name, "calibration")), first) for name in ("tuned", "base")
    )
    decision = folder.read_calibration().get("decision") or {}
    if request.distribution is None:
        options = widest(load_predictions(folder.predictions("tuned", "test")))
        chosen = decide(tuned, base, folder.read_settings(), **FITS, options=options)
        reading = {name: chosen[name] for name in ("distribution", "scaling", "temperature", "scale", "shift")}
    else:
        adjusted = request.distribution == "adjusted"
        if adjusted and not tuned.has_adjusted:
            raise ValueError(f"--distribution adjusted: {folder.path} has no adjustment; use raw")
        fitted = fit_scaling(request.scaling, tuned, adjusted=adjusted, **FITS)  # type: ignore[arg-type]
        if not fitted.identified:
            raise ValueError(f"--scaling {request.scaling}: {len(tuned)} items do not determine it; use none")
        reading = {"distribution": request.distribution, "scaling": request.scaling, **fitted.to_record()}
    same = all(reading[name] == decision.get(name) for name in ("distribution", "scaling"))
    return {**reading, "as_decided": same, "reading_fixed_beforehand": request.distribution is not None}


def find_rule(request: Request, fit_on: Any, find_on: Any) -> AbstentionRule:
    """The threshold, from items that neither the reading nor the plan has seen."""
    from calmtune.posthoc.abstention import conformal_threshold, plan_thresholds, select_threshold

    if request.control == "joint":
        return conformal_threshold(find_on.confidence, find_on.correct, request.target)
    plan = plan_thresholds(
        fit_on.confidence, fit_on.correct, request.target, n_items=len(find_on), level=request.confidence
    )
    return select_threshold(find_on.confidence, find_on.correct, plan, request.target, request.confidence)


def shown_thresholds(confidence: Any, rule: AbstentionRule) -> list[float]:
    """Quantiles of the first half's confidences, 0, and the chosen threshold, falling."""
    import numpy as np

    quantiles = np.quantile(confidence, np.linspace(0.0, 1.0, TABLE_SIZE), method="lower")
    chosen = [] if rule.answers_nothing else [rule.threshold]
    return sorted({0.0, *quantiles.tolist(), *chosen}, reverse=True)


@dataclass(frozen=True)
class Domain:
    """Confidences of one domain that the threshold was not found on, and whether the answers are right, if known.

    ``tested`` is False for one of several in-domain test sets: the calibration split is a mixture of them, so no single
    one need look like it; they are tested together.
    """

    name: str
    shift: str
    confidence: Any
    correct: Any
    tested: bool = True


def own_sets(folder: RunFolder, reading: Mapping[str, Any]) -> list[Domain]:
    """The run's test domains."""
    from calmtune.predictions import load_predictions

    said = load_predictions(folder.predictions("tuned", "test"))
    shifts = folder.read_splits()["shifts"]
    inside = [domain for domain, shift in shifts.items() if shift == "ID"]
    found = []
    if len(inside) > 1:
        one = read_as(replace(said, items=tuple(item for item in said if item.domain in inside)), reading)
        found.append(Domain("ID (all)", "ID", one.confidence, one.correct))
    for domain, shift in shifts.items():
        one = read_as(said.of_domain(domain), reading)
        tested = shift != "ID" or len(inside) == 1
        found.append(Domain(domain, shift, one.confidence, one.correct, tested))
    return found


def check_sets(paths: Sequence[Path], reading: Mapping[str, Any]) -> list[Domain]:
    """Further files, a record a domain; calmtune's own predictions are read as the threshold's confidence is."""
    from calmtune.external import read_external
    from calmtune.external.read import is_own
    from calmtune.predictions import load_predictions

    found = []
    for path in paths:
        if is_own(path):
            said = load_predictions(path)
            if reading["distribution"] == "adjusted" and not said.has_adjusted:
                raise ValueError(f"{path}: the threshold is for adjusted scores, and this file has none")
            parts = {domain: read_as(said.of_domain(domain), reading) for domain in said.domains}
        else:
            parts = {one.domain: one for one in read_external(path, labelled=False)}
        found += [Domain(f"{path.name}: {name}", "new", one.confidence, one.correct) for name, one in parts.items()]
    return found


def try_domain(domain: Domain, reference: Any, rule: AbstentionRule, request: Request, n_tests: int) -> dict[str, Any]:
    """Coverage, achieved error rates with exact intervals, and the shift test, as a record."""
    from calmtune.metrics.shift import two_sample_test
    from calmtune.posthoc.abstention import exact_interval

    answered = rule.answer_or_abstain(domain.confidence)
    # every domain is tested, so each at its share of the level, which the smallest p-value must be able to reach
    level = request.shift_level / n_tests
    permutations = max(1999, math.ceil(2 / level))
    test = None
    if domain.tested:
        test = two_sample_test(reference, domain.confidence, n_permutations=permutations, seed=request.seed)

    def share(k: int, n: int) -> dict[str, float | None]:
        low, high = exact_interval(k, n)
        return {"value": k / n if n else None, "low": float(low), "high": float(high)}

    n, n_answered = len(answered), int(answered.sum())
    wrong = None if domain.correct is None else int((answered & ~domain.correct).sum())
    return {
        "domain": domain.name,
        "shift": domain.shift,
        "n": n,
        "n_answered": n_answered,
        "n_wrong": wrong,
        "coverage": share(n_answered, n),
        "risk": None if wrong is None else share(wrong, n_answered),
        "joint": None if wrong is None else share(wrong, n),
        "ks": None if test is None else test.statistic,
        "p_value": None if test is None else test.p_value,
        "shifted": test is not None and test.p_value <= level,
    }


def read_as(predictions: Predictions, reading: Mapping[str, Any]) -> Any:
    """The items' confidences and outcomes under a recorded reading."""
    from calmtune.report.readings import read
    from calmtune.report.scaling import Vector

    vector = None if reading["scale"] is None else Vector(tuple(reading["scale"]), tuple(reading["shift"]))
    adjusted = reading["distribution"] == "adjusted"
    return read(predictions, adjusted=adjusted, temperature=reading["temperature"] or 1.0, vector=vector)


def _of(predictions: Predictions, rows: Any) -> Predictions:
    return replace(predictions, items=tuple(predictions[int(row)] for row in rows))


def _with(predictions: Predictions, ids: set[str]) -> Predictions:
    return replace(predictions, items=tuple(item for item in predictions if item.id in ids))
