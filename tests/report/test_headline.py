"""The sentences follow the numbers, also when these are bad."""

import re
from dataclasses import replace

import pytest

from calmtune.report import summarise
from calmtune.report.headline import choice_sentence, headline
from calmtune.report.numbers import number, with_interval
from report.cases import Fit, Vector, comparison, one_variant, variant


def _all(made, **options):
    return summarise(made, n_resamples=60, **options)


def _two(base: float, tuned: float, n: int = 300):
    """Base and tuned model with the same answers, one scale each; the temperature is not identified, so raw is used."""
    return comparison(
        {"near": "ID"},
        variants=[variant("base", ["near"], n, scale=base), variant("tuned", ["near"], n, scale=tuned)],
        fit_temperature=lambda z, y: Fit(1.0, identified=False),
        fit_vector=None,
    )


@pytest.mark.parametrize(
    ("base", "tuned", "verdict", "verb"),
    [
        (8.0, 1.0, "calibration is better", "conf-ECE went down"),
        (1.0, 8.0, "calibration is worse", "conf-ECE went up"),
        (2.0, 2.0, "calibration is not shown to change", "in both, item by item"),
    ],
)
def test_better_worse_and_no_change_are_all_said(base, tuned, verdict, verb):
    summary = _all(_two(base, tuned))
    first, *rest = headline(summary)
    assert first.startswith("tuned against base: in domain, ")
    assert verdict in first
    assert "accuracy not shown to change" in first
    assert verb in rest[0]


def test_an_interval_that_includes_zero_is_no_change():
    summary = _all(_two(1.0, 1.04, n=40))
    change = summary.cells["tuned", "near"].versus_first["conf_ece"]
    assert not change.shown
    assert change.value != 0
    assert "shows no change: the paired interval includes zero" in headline(summary)[1]


def test_every_number_of_a_sentence_is_one_of_the_summary():
    summary = _all(comparison())
    text = " ".join(headline(summary))
    assert "{" not in text
    known = set()
    for cell in summary.cells.values():
        for one in [*cell.estimates.values(), cell.null_band]:
            known |= {number(one.value), number(one.low), number(one.high)}
        for delta in cell.versus_first.values():
            known |= {number(x, sign=True) for x in (delta.value, delta.low, delta.high)}
            known |= {number(delta.p_value)}
    for deltas in summary.versus_scaled.values():
        for delta in deltas.values():
            known |= {number(x, sign=True) for x in (delta.value, delta.low, delta.high)} | {number(delta.p_value)}
    known |= {number(value) for value in summary.choice.scores.values()}
    for row in summary.rows:
        calibration = summary.comparison.variant(row.row.variant).calibration
        known |= {number(float(row.read(calibration).correct.mean()))}
    found = set(re.findall(r"[+−]?\d+\.\d{3}", text))
    assert len(found) > 20
    assert found - known <= {"0.000", "0.001"}


def test_the_choice_names_every_candidate_the_rule_and_the_split():
    summary = _all(comparison())
    text = choice_sentence(summary)
    assert f"used as {summary.choice.row}, chosen without a look at any test item by lowest NLL" in text
    assert "on the calibration split (n = 40), post-hoc fits judged by 5-fold cross-fitting" in text
    assert set(summary.choice.scores) == set(summary.choice.candidates)
    for label, value in summary.choice.scores.items():
        assert f"{label} {number(value)}" in text


def test_a_recorded_choice_is_shown_with_what_was_recorded():
    record = {"distribution": "raw", "scaling": "none", "temperature": 1.0, "chosen_by": "the flip of a coin"}
    text = choice_sentence(_all(comparison(decision=record)))
    assert text == (
        "The model is used as tuned raw, chosen when it was evaluated without a look at any test item by the flip of "
        "a coin."
    )
    record |= {"candidates": {"raw": 1.5, "adjusted + VS": "inf"}, "refused": {"raw + TS": "not identified"}}
    text = choice_sentence(_all(comparison(decision=record)))
    assert "Scores there: tuned raw 1.500; tuned adjusted + VS ∞." in text
    assert "Not eligible: tuned raw + TS (not identified)." in text


def test_temperature_scaling_alone_is_always_put_beside_it():
    summary = _all(comparison())
    alone = summary.cells["base + TS", "far"].estimates["conf_ece"]
    sentence = next(text for text in headline(summary) if text.startswith("Against temperature scaling alone"))
    assert f"out of domain {with_interval(alone)}" in sentence


def test_warnings_for_ties_low_mass_and_an_unidentified_temperature():
    made = comparison(
        {"d": "ID"},
        variants=[one_variant([[1, 1], [2, 0]], [0, 0]), one_variant([[1, 0], [2, 0]], [0, 0], name="tuned")],
        fit_temperature=lambda z, y: Fit(100.0, identified=False),
        fit_vector=lambda z, y: Vector(identified=False),
    )
    text = " ".join(headline(_all(made)))
    assert "Items with tied options: 1 of 2 (base on d)." in text
    assert "The temperature of base + TS is not identified" in text
    assert "The vector scaling of tuned + VS is not identified" in text
    assert "T not identified" in text


def test_one_model_alone_is_not_compared():
    summary = _all(
        comparison(
            {"d": "ID"},
            variants=[one_variant([[1, 0], [2, 0]], [0, 1])],
            fit_temperature=lambda z, y: Fit(identified=False),
        )
    )
    assert headline(summary)[0] == "Nothing to compare: base is the only model, read as it is."


@pytest.mark.parametrize(("scoring", "warned"), [("letter", True), ("text", False)])
def test_low_mass_is_a_warning_for_letters_alone(scoring, warned):
    variants = [
        replace(
            made,
            calibration=replace(made.calibration, meta={"scoring": scoring}),
            tests={
                name: replace(said, items=tuple(replace(item, option_mass=0.2) for item in said))
                for name, said in made.tests.items()
            },
        )
        for made in (one_variant([[1, 0], [2, 0]], [0, 0]), one_variant([[1, 0], [2, 0]], [0, 0], name="tuned"))
    ]
    text = " ".join(headline(_all(comparison({"d": "ID"}, variants=variants))))
    assert ("The option letters hold less than 0.5" in text) == warned
    assert ("base on d: 0.200" in text) == warned
