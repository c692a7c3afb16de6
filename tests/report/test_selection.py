"""The choice on the calibration split: each rule by hand, and no fit judged on what it was fitted on."""

import math

import numpy as np
import pytest

from calmtune.posthoc import TemperatureScaler, VectorScaler
from calmtune.predictions import Prediction, Predictions
from calmtune.report.readings import Reading, read
from calmtune.report.selection import Candidate, Rule, choose, cross_fit, decide, folds
from report.cases import Fit, predictions

FITS = {
    "fit_temperature": lambda z, y: TemperatureScaler().fit(z, y),
    "fit_vector": lambda z, y: VectorScaler().fit(z, y),
}


def said(confidence: list[float], right: list[int]) -> Reading:
    """Two options; option 0 is chosen with this confidence, and right or wrong."""
    c = np.array(confidence)
    n = len(c)
    return Reading(
        np.stack([c, 1 - c], axis=1), 1 - np.array(right), np.full(n, 2), np.zeros(n, dtype=int), np.ones(n), 0
    )


NINE = [1] * 9 + [0]
# one wrong of ten at .99: NLL .470, Brier .196, conf-ECE .090
BOLD = said([0.99] * 10, NINE)
# one wrong of ten at .7: NLL .441, Brier .260, conf-ECE .200
TIMID = said([0.7] * 10, NINE)
# six right of ten at .6: NLL .673, Brier .480, conf-ECE 0
VAGUE = said([0.6] * 10, [1] * 6 + [0] * 4)


@pytest.mark.parametrize(
    ("metric", "chosen", "score"),
    [
        ("nll", "timid", -(9 * math.log(0.7) + math.log(0.3)) / 10),
        ("brier", "bold", 2 * (9 * 0.01**2 + 0.99**2) / 10),
        ("conf_ece", "vague", 0.0),
    ],
)
def test_each_metric_picks_its_own_row(metric, chosen, score):
    candidates = [Candidate("bold", BOLD), Candidate("timid", TIMID), Candidate("vague", VAGUE)]
    found = choose(candidates, BOLD, ["d"] * 10, metric=metric, accuracy_drop=0.5)
    assert found.label == chosen
    assert found.scores[chosen] == pytest.approx(score, abs=1e-12)
    assert set(found.scores) == {"bold", "timid", "vague"}
    assert found.refused == {}


def test_the_worst_domain_or_all_together():
    # uneven: NLL .010 and .916 in its two domains, .463 together; even: .673 in both
    uneven = said([0.99] * 5 + [0.6] * 5, [1] * 5 + [0] * 5)
    even = said([0.51] * 10, [1] * 10)
    candidates = [Candidate("uneven", uneven), Candidate("even", even)]
    where = ["a"] * 5 + ["b"] * 5
    together = choose(candidates, uneven, where, domains="pooled")
    worst = choose(candidates, uneven, where, domains="worst")
    assert (together.label, worst.label) == ("uneven", "even")
    assert together.scores["uneven"] == pytest.approx(-(math.log(0.99) + math.log(0.4)) / 2)
    assert worst.scores["uneven"] == pytest.approx(-math.log(0.4))
    assert "of the domain in which it is worst" in worst.chosen_by
    one = choose(candidates, uneven, ["a"] * 10, domains="worst")
    assert one.scores == together.scores


@pytest.mark.parametrize(("drop", "chosen"), [(0.05, "sure"), (0.1, "lossy"), (1.0, "lossy")])
def test_a_row_that_lost_accuracy_is_not_eligible(drop, chosen):
    # seven right of ten against eight: exactly .1 lost, though 8 / 10 - 0.1 > 7 / 10 in floats
    lossy, sure = said([0.7] * 10, [1] * 7 + [0] * 3), said([0.51] * 10, [1] * 8 + [0] * 2)
    found = choose([Candidate("lossy", lossy), Candidate("sure", sure)], sure, ["d"] * 10, accuracy_drop=drop)
    assert found.label == chosen
    assert found.refused == ({"lossy": "accuracy 0.700"} if chosen == "sure" else {})
    assert f"at most {drop:g} below the base's 0.800" in found.chosen_by


def test_if_no_row_is_accurate_enough_the_most_accurate_is_taken_and_flagged():
    base = said([0.9] * 10, [1] * 10)
    candidates = [
        Candidate("best NLL", said([0.7] * 10, [1] * 7 + [0] * 3)),
        Candidate("too sure", said([0.99] * 10, [1] * 8 + [0] * 2)),
        Candidate("as accurate", said([0.8] * 10, [1] * 8 + [0] * 2)),
    ]
    found = choose(candidates, base, ["d"] * 10)
    assert found.label == "as accurate"
    assert found.chosen_by.startswith("highest accuracy on the calibration split (n = 10), then lowest NLL")
    assert "every row's accuracy there is more than 0.02 below the base's 1.000" in found.chosen_by
    assert found.refused == {"best NLL": "accuracy 0.700"}


@pytest.mark.parametrize(("gain", "chosen"), [(5e-5, "simple"), (5e-4, "fitted")])
def test_within_a_hair_the_simpler_row_is_taken(gain, chosen):
    p = 0.8
    better = said([p * math.exp(gain)] * 10, [1] * 10)
    found = choose([Candidate("simple", said([p] * 10, [1] * 10)), Candidate("fitted", better)], better, ["d"] * 10)
    assert found.label == chosen
    assert found.scores["simple"] - found.scores["fitted"] == pytest.approx(gain)


def test_a_row_with_a_fault_is_scored_but_not_chosen():
    candidates = [Candidate("timid", TIMID), Candidate("sure", said([0.9] * 10, NINE), "not identified")]
    found = choose([*candidates, Candidate("unknown", None, "no scale")], TIMID, ["d"] * 10)
    assert found.label == "timid"
    assert found.scores["sure"] < found.scores["timid"]
    assert found.refused == {"sure": "not identified", "unknown": "no scale"}
    assert "unknown" not in found.scores


def test_what_choose_refuses():
    with pytest.raises(ValueError, match="expected a candidate that can be chosen"):
        choose([Candidate("a", TIMID, "no")], TIMID, ["d"] * 10)
    with pytest.raises(ValueError, match=r"same items, got .*'item_domains': 9"):
        choose([Candidate("a", TIMID)], TIMID, ["d"] * 9)
    for settings, message in (
        ({"selection_metric": "accuracy"}, "selection_metric: expected one of nll, brier, conf_ece, got 'accuracy'"),
        ({"selection_domains": "best"}, "selection_domains: expected one of pooled, worst, got 'best'"),
        ({"selection_accuracy_drop": -0.1}, r"selection_accuracy_drop: expected a number in \[0, 1\], got -0.1"),
    ):
        with pytest.raises(ValueError, match=message):
            Rule.of(settings)


def test_runs_from_before_the_settings_existed_have_the_defaults():
    assert Rule.of({"eta": 1.0}) == Rule("nll", "pooled", 0.02, 10)


# ---- cross-fitting -------------------------------------------------------------------------------------------------


def numbered(n: int) -> Predictions:
    """Item i has the scores (i + 1, 0), by which a fit can be asked what it saw."""
    return Predictions(tuple(Prediction(f"i{i}", "d", i % 2, (i + 1.0, 0.0)) for i in range(n)))


def test_no_item_is_read_under_a_fit_that_saw_it():
    given = numbered(23)
    seen: list[set[int]] = []

    def spy(logits, labels):
        numbers = logits[:, 0].astype(int) - 1
        assert labels.tolist() == (numbers % 2).tolist()
        seen.append(set(numbers.tolist()))
        return Fit(float(len(seen)))

    reading, fault = cross_fit(given, "TS", adjusted=False, fit_temperature=spy)
    assert fault == ""
    assert len(seen) == 5
    # item i was read at the temperature ln(p0 / p1) = (i + 1) / T, which names the fit
    p = reading.probabilities
    used = np.round((np.arange(23) + 1) / np.log(p[:, 0] / p[:, 1])).astype(int) - 1
    for item in range(23):
        assert item not in seen[used[item]]
        assert sum(item in fit for fit in seen) == 4
    assert reading.labels.tolist() == given.labels.tolist()


def test_folds_follow_the_ids_and_not_the_order():
    ids = [f"q{n}" for n in range(53)]
    found = dict(zip(ids, folds(ids), strict=True))
    assert dict(zip(ids[::-1], folds(ids[::-1]), strict=True)) == found
    assert np.bincount(list(found.values())).tolist() == [11, 11, 11, 10, 10]


def test_without_a_fit_the_reading_is_the_plain_one():
    given = predictions("d", 12, scale=2.0, adjusted=0.5)
    reading, fault = cross_fit(given, "none", adjusted=True, **FITS)
    np.testing.assert_array_equal(reading.probabilities, read(given, adjusted=True).probabilities)
    assert fault == ""


def test_a_fold_that_determines_nothing_speaks_against_the_fit():
    right = Predictions(tuple(Prediction(f"i{i}", "d", 0, (2.0, 0.0)) for i in range(10)))
    assert cross_fit(right, "TS", adjusted=False, **FITS)[1] == "not identified in 5 of 5 folds"
    assert cross_fit(Predictions(right.items[:1]), "TS", adjusted=False, **FITS)[0] is None


# ---- the record ----------------------------------------------------------------------------------------------------


def sampled(n: int, *, scale: float, shift: tuple[float, ...] = (0.0,) * 4, seed: int = 0) -> Predictions:
    """Labels that follow softmax(z), scores that say scale * z + shift."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 4)) * 1.5
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    scores = scale * z + np.array(shift)
    return Predictions(tuple(Prediction(f"i{i}", "d", int(labels[i]), tuple(scores[i].tolist())) for i in range(n)))


def test_an_overconfident_model_is_given_its_temperature():
    # a split in five takes a vector by chance; this one does not
    given = sampled(400, scale=3.0, seed=1)
    record = decide(given, given, {}, **FITS)
    assert (record["distribution"], record["scaling"]) == ("raw", "TS")
    assert record["temperature"] == TemperatureScaler().fit(given.logits(), given.labels).temperature
    assert (record["scale"], record["shift"], record["n"]) == (None, None, 400)
    assert set(record["candidates"]) == {"raw", "raw + TS", "raw + VS"}
    # judged without itself a fit scores worse than on what it was fitted on
    inside = TemperatureScaler().fit(given.logits(), given.labels).nll_after
    assert inside < record["candidates"]["raw + TS"] < inside + 0.02


def test_a_preference_for_a_place_is_undone_by_a_vector():
    given = sampled(400, scale=3.0, shift=(4.0, 0.0, 0.0, -4.0))
    record = decide(given, given, {}, **FITS)
    assert (record["scaling"], record["temperature"]) == ("VS", 1.0)
    scaler = VectorScaler().fit(given.logits(), given.labels)
    assert record["scale"] == scaler.scale.tolist()
    assert record["shift"] == scaler.shift.tolist()
    # items to be tested have five options, which no calibration item has
    narrow = decide(given, given, {}, **FITS, options=5)
    assert narrow["scaling"] == "TS"
    assert narrow["refused"]["raw + VS"].startswith("the test split has items with 5 options")
    assert decide(given, given, {}, fit_temperature=FITS["fit_temperature"])["scaling"] == "TS"


def test_a_calibrated_model_is_left_alone():
    # three of four right at odds of three: the fit on all of them is T = 1, those on folds are not
    given = Predictions(tuple(Prediction(f"i{i}", "d", int(i % 4 == 3), (math.log(3.0), 0.0)) for i in range(40)))
    record = decide(given, given, {}, **FITS)
    assert (record["scaling"], record["temperature"]) == ("none", 1.0)
    assert record["candidates"]["raw"] < record["candidates"]["raw + TS"]


def test_adjusted_is_a_candidate_and_is_preferred_to_a_fit_that_does_the_same():
    given = predictions("d", 60, scale=3.0, adjusted=1 / 3)
    record = decide(given, given, {}, fit_temperature=lambda z, y: Fit(3.0))
    assert record["candidates"]["raw + TS"] == pytest.approx(record["candidates"]["adjusted"])
    assert (record["distribution"], record["scaling"]) == ("adjusted", "none")


def test_the_settings_of_the_run_are_followed():
    given, base = sampled(200, scale=3.0), sampled(200, scale=1.0)
    by_ece = decide(given, base, {"selection_metric": "conf_ece", "n_bins": 5}, **FITS)
    assert by_ece["chosen_by"].startswith("lowest conf-ECE on the calibration split (n = 200)")
    assert (
        by_ece["candidates"]["raw"]
        != decide(given, base, {"selection_metric": "conf_ece"}, **FITS)["candidates"]["raw"]
    )
    strict = decide(given, base, {"selection_accuracy_drop": 0.0}, **FITS)
    assert "at most 0 below the base's" in strict["chosen_by"]


def test_an_option_of_one_item_alone_is_no_ground_for_a_vector():
    items = sampled(60, scale=3.0, shift=(4.0, 0.0, 0.0, -4.0)).items
    odd = Prediction("odd", "d", 1, (0.0, 1.0, 0.0, 0.0, 0.0))
    given = Predictions((*items, odd))
    record = decide(given, given, {}, **FITS)
    assert record["refused"]["raw + VS"] == "without its own fold no calibration item has 5 options"
    assert "raw + VS" not in record["candidates"]


def test_a_score_that_is_not_finite_is_told_in_json():
    # the gold option has probability 0 after rounding
    given = Predictions(tuple(Prediction(f"i{i}", "d", int(i == 0), (2000.0, 0.0)) for i in range(10)))
    assert decide(given, given, {}, **FITS)["candidates"]["raw"] == "inf"


def test_other_items_than_the_bases_are_refused():
    with pytest.raises(ValueError, match="differ in 1 items, e.g. 'd-4'"):
        decide(predictions("d", 5, scale=1.0), predictions("d", 4, scale=1.0), {}, **FITS)
    with pytest.raises(ValueError, match="the calibration split is empty"):
        decide(Predictions(()), Predictions(()), {}, **FITS)
