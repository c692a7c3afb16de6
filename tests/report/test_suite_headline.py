"""Words that follow from the numbers, whichever way these go."""

import re
from dataclasses import replace

import pytest

from calmtune.report.suite import summarise_suite
from calmtune.report.suite_headline import suite_headline
from report.suite_cases import FITS, given_run


def sentences(runs, **changes):
    how = {"title": "t", "n_bins": 10, "n_resamples": 100, "fit_temperature": FITS["fit_temperature"]}
    return suite_headline(summarise_suite(runs, **(how | changes)))


def always_wrong(base, **methods):
    """Two seeds of each method with one probability for everything, and never right."""
    return [given_run(name, seed, [base] * 30, [p] * 30, [1] * 30) for name, p in methods.items() for seed in (0, 1)]


def test_lower_is_said_where_it_is_shown():
    # under T = 2 the base says sqrt(0.95) to sqrt(0.05), which is 0.813; the smallest p of 100 exchanges is 1 / 101
    verdict, first, chosen, best, picked = sentences(always_wrong(0.95, sft=0.9, calm=0.6))
    assert verdict == (
        "s, m: out of domain, calm has the lowest conf-ECE of the training methods; it is shown to be lower than "
        "base + TS, and its accuracy is not shown to differ from that of sft."
    )
    assert "calm has the lowest conf-ECE, 0.600 ± 0.000 [0.600, 0.600] (2 seeds)." in first
    assert "It is shown to be lower than every other one." in first
    assert "It is shown to be lower than base + TS, 0.813" in first
    assert "(Δ −0.213 [−0.213, −0.213], p = 0.010 for these seeds)" in first
    assert "calm chosen has the lowest conf-ECE" in chosen
    assert best.startswith("Of all rows calm + TS has the lowest conf-ECE")
    assert best.endswith("shown to be lower than every other row.")
    assert "picked by the test items" in picked


def test_higher_is_said_as_well():
    verdict, first, *_ = sentences(always_wrong(0.7, sft=0.9, calm=0.8))
    assert "calm has the lowest conf-ECE of the training methods; it is shown to be higher than base + TS" in verdict
    assert "It is shown to be higher than base + TS" in first


def test_accuracy_that_is_lost_is_said():
    runs = [given_run("sft", seed, [0.9] * 30, [0.9] * 30, [0] * 30) for seed in (0, 1)]
    runs += [given_run("calm", seed, [0.9] * 30, [0.499] * 30, [0] * 30) for seed in (0, 1)]
    runs = [replace(run, shifts={"d": "ID"}) for run in runs]
    verdict, first, *_ = sentences(runs)
    assert "in domain, sft has the lowest conf-ECE" in verdict
    # the chosen and lowest one is sft itself: nothing is said of a difference from itself
    assert "Its accuracy is 1.000 ± 0.000 [1.000, 1.000] (2 seeds)." in first


def test_what_is_not_shown_is_not_claimed():
    # right half the time: which of the confidences 0.52, 0.53, 0.56 and 0.6 is nearest depends on the items drawn
    labels = [0, 1] * 20
    runs = [given_run(name, 0, [0.55] * 40, [p] * 40, labels) for name, p in (("sft", 0.6), ("calm", 0.56))]
    verdict, first, chosen, best, _ = sentences(runs)
    assert "calm has the lowest conf-ECE of the training methods; it is not shown to differ from base + TS" in verdict
    assert "its accuracy is not shown to differ from that of sft" in verdict
    assert "It is not shown to be lower than sft." in first
    assert "It is not shown to differ from base + TS, 0.025" in first
    assert "not shown to differ from that of sft (Δ 0.000 [0.000, 0.000], p = 1.000)" in first
    assert "It is not shown to differ from base + TS" in chosen
    assert re.search(
        r"Of all rows base \+ TS has .*, not shown to be lower than base, sft, sft \+ TS, sft chosen or 3 more\.", best
    )


def test_missing_runs_are_not_final():
    told = sentences(always_wrong(0.95, sft=0.9), planned=[("s", "m", "sft", s) for s in range(3)])
    assert any("which is not final, as runs are missing" in sentence for sentence in told)


@pytest.mark.parametrize("models", [("a", "b"), ("a", "b", "c")])
def test_several_models_are_named_and_many_are_counted(models):
    runs = [replace(run, model=model) for model in models for run in always_wrong(0.95, sft=0.9, calm=0.6)]
    verdict, *rest = sentences(runs)
    if len(models) > 2:
        assert verdict.startswith("In 3 of 3 settings and models the training method with the lowest conf-ECE is shown")
        assert verdict.endswith("in 0 shown to be higher, in 0 neither.")
    else:
        assert re.findall(r"s, (\w): out of domain", verdict) == list(models)
    assert all(re.match(r"s, [abc], ", sentence) for sentence in rest[:-1])
