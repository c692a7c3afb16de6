"""Graded answers for the tests of the report on open questions: drawn from known distributions, no model."""

from __future__ import annotations

import numpy as np

from calmtune.graded import GradedAnswers, GradedQuestion
from calmtune.report.openqa_records import OpenComparison, OpenVariant

RULES = {"exact/calmtune-1": "1/calmtune-1", "exact/squad-1.1": "1/squad-1.1"}
NAMES = ("Paris", "Rome", "Berlin", "I don't know", "Oslo <b>")


def graded(
    domain: str, n: int, *, sharp: float = 2.0, right: float = 0.4, samples: int = 6, seed: int = 0, **meta: object
) -> GradedAnswers:
    """``n`` questions; a larger ``sharp`` makes answers more alike, ``right`` is how often the likeliest is right."""
    items = []
    for index in range(n):
        rng = np.random.default_rng([seed, index])
        z = sharp * rng.normal(size=len(NAMES))
        p = np.exp(z) / np.exp(z).sum()
        gold = int(p.argmax()) if rng.random() < right else int(rng.integers(len(NAMES)))
        drawn = rng.choice(len(NAMES), size=samples, p=p)
        texts = tuple(NAMES[one] for one in drawn)
        refused = tuple(text == "I don't know" for text in texts)
        first: dict[int, int] = {}
        classes = tuple(first.setdefault(int(one), len(first)) for one in drawn)
        joined = tuple(0 for _ in classes) if index % 7 == 0 and not any(refused) else classes
        items.append(
            GradedQuestion(
                f"{domain}/{index}", domain, f"Which town is number {index} & why?", (NAMES[gold], "other"), texts,
                {"exact/calmtune-1": classes, "exact/squad-1.1": joined},
                tuple(bool(one == gold and not no) for one, no in zip(drawn, refused, strict=True)),
                refused, tuple(float(np.log(p[one])) for one in drawn),
            )
        )  # fmt: skip
    settings = {
        "rule": "exact/calmtune-1", "rules": RULES, "grade": "exact", "normaliser": "calmtune-1",
        "refusal": "refusal-1", "models": {}, "samples": {"sampling": {"n": samples}}, **meta,
    }  # fmt: skip
    return GradedAnswers(tuple(items), settings)


def variant(name: str, sharp: float, *, grid: bool = False, calibration: int = 40) -> OpenVariant:
    """A model on two domains."""
    tests = {
        "trivia": graded("trivia", 60, sharp=sharp, seed=1),
        "pop": graded("pop", 50, sharp=sharp, right=0.2, seed=2),
    }
    cal = graded("cal", calibration, sharp=sharp, seed=3) if calibration else None
    sharps = {0.5: 2 * sharp, 4.0: sharp / 4}
    others = {t: graded("cal", calibration, sharp=s, seed=3) for t, s in sharps.items()} if grid else {}
    return OpenVariant(name, tests, cal, others)


def comparison(**change: object) -> OpenComparison:
    """Base, tuned and adjusted, each softer than the one before."""
    values = {
        "variants": [variant("base", 3.0, grid=True), variant("tuned", 2.5), variant("tuned adjusted", 1.0)],
        "shifts": {"trivia": "ID", "pop": "OOD"},
        "settings": {"n_samples": 6},
        "decision": {"task": "openqa", "distribution": "adjusted", "scores": {"raw": 0.3, "adjusted": 0.2}, "n": 40,
                     "metric": "Brier score"},
        **change,
    }  # fmt: skip
    return OpenComparison(**values)  # type: ignore[arg-type]
