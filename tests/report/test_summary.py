"""The computed report against the predictions it was made from."""

import json
import math
import time

import numpy as np
import pytest

from calmtune import metrics
from calmtune.posthoc import TemperatureScaler, VectorScaler
from calmtune.report import summarise
from calmtune.report.measures import COMPARED, MEASURES
from calmtune.report.tables import notes
from report.cases import Fit, Vector, comparison, one_variant, variant

FEW = {"n_resamples": 20}


@pytest.fixture(scope="module")
def summary():
    return summarise(comparison({"near": "ID", "far": "OOD", "farther": "OOD"}), **FEW)


def test_every_row_has_every_measure_on_every_column(summary):
    assert [column.name for column in summary.columns] == ["near", "far", "farther", "OOD (all)"]
    assert [column.n for column in summary.columns] == [40, 40, 40, 80]
    assert len(summary.cells) == 9 * 4
    for (row, column), cell in summary.cells.items():
        assert set(cell.estimates) == set(MEASURES)
        assert {one.n for one in cell.estimates.values()} == {80 if column == "OOD (all)" else 40}
        assert set(cell.versus_first) == (set() if row == "base" else set(COMPARED))


def test_values_are_those_of_the_predictions(summary):
    tuned = summary.comparison.variants[1].tests["far"]
    confidence, correct = tuned.confidence_and_correct(adjusted=True, temperature=2.0)
    cell = summary.cells["tuned adjusted + TS", "far"]
    assert cell.estimates["conf_ece"].value == metrics.expected_calibration_error(confidence, correct)
    assert cell.estimates["accuracy"].value == correct.mean()
    assert cell.option_mass is not None
    assert cell.option_mass.value == pytest.approx(0.8)


def test_reliability_adds_up_to_the_ece(summary):
    for cell in summary.cells.values():
        table = cell.reliability
        filled = table.count > 0
        total = (table.count * np.abs(table.gap))[filled].sum() / table.count.sum()
        assert total == pytest.approx(cell.estimates["conf_ece"].value, abs=1e-12)
        assert np.isnan(table.accuracy[~filled]).all()


def test_pooled_column_is_all_its_items(summary):
    parts = [summary.cells["tuned raw", name].estimates["accuracy"].value for name in ("far", "farther")]
    assert summary.cells["tuned raw", "OOD (all)"].estimates["accuracy"].value == pytest.approx(sum(parts) / 2)


def test_temperature_changes_no_answer(summary):
    for column in summary.columns:
        change = summary.cells["base + TS", column.name].versus_first["accuracy"]
        assert (change.value, change.low, change.high) == (0, 0, 0)


def test_temperatures_are_fitted_on_each_own_calibration_split():
    seen = []

    def fit(logits, labels):
        seen.append(logits)
        return TemperatureScaler().fit(logits, labels)

    made = comparison(fit_temperature=fit)
    found = summarise(made, **FEW)
    tuned = made.variants[1].calibration
    whole = [logits for logits in seen if len(logits) == len(tuned)]
    np.testing.assert_array_equal(whole[0], made.variants[0].calibration.logits())
    np.testing.assert_array_equal(whole[2], tuned.logits(adjusted=True))
    expected = TemperatureScaler().fit(tuned.logits(adjusted=True), tuned.labels).temperature
    assert found.row("tuned adjusted + TS").temperature == expected


def test_one_scaler_used_again_and_again_is_read_at_once():
    each = {
        "fit_temperature": lambda z, y: TemperatureScaler().fit(z, y),
        "fit_vector": lambda z, y: VectorScaler().fit(z, y),
    }
    fresh = summarise(comparison(**each), **FEW)
    # the bound method returns the same object each time
    reused = summarise(comparison(fit_temperature=TemperatureScaler().fit, fit_vector=VectorScaler().fit), **FEW)
    assert [row.fitted for row in fresh.rows] == [row.fitted for row in reused.rows]
    assert len({row.fitted for row in fresh.rows}) == 7  # three temperatures, three vectors, none


def test_choice_is_the_lowest_calibration_nll_of_the_last_variant(summary):
    assert {summary.row(label).row.variant for label in summary.choice.candidates} == {"tuned"}
    scores = summary.choice.scores
    # these fits are constants, so each row's score is its NLL on the whole split
    assert scores == pytest.approx({row: summary.row(row).calibration_nll.value for row in scores})
    # adjusted scores are half the raw ones, and the temperature of the stub is 2: two names for one distribution
    assert scores["tuned adjusted"] == min(scores.values()) == scores["tuned raw + TS"]
    assert summary.choice.row == "tuned adjusted"
    calibration = summary.comparison.variants[1].calibration
    expected = metrics.negative_log_likelihood(calibration.probabilities(adjusted=True), calibration.labels)
    assert scores["tuned adjusted"] == expected


def test_a_vector_row_is_read_option_by_option(summary):
    tuned = summary.comparison.variants[1].tests["far"]
    right, confidence = 0, 0.0
    for item in tuned:
        p = np.exp(item.scores) / np.exp(item.scores).sum()
        power = p ** np.array(Vector.scale[: len(p)]) * np.exp(Vector.shift[: len(p)])
        power /= power.sum()
        right += power.argmax() == item.label
        confidence += power.max()
    found = summary.cells["tuned raw + VS", "far"].estimates
    assert found["accuracy"].value == right / len(tuned)
    assert found["confidence"].value == pytest.approx(confidence / len(tuned))
    assert found["accuracy"].value != summary.cells["tuned raw", "far"].estimates["accuracy"].value


def test_an_unidentified_temperature_is_never_chosen():
    made = comparison(fit_temperature=lambda z, y: Fit(4.0, identified=False), fit_vector=None)
    found = summarise(made, **FEW)
    assert not found.row(found.choice.row).row.scaled
    assert found.choice.refused["tuned raw + TS"] == "not identified"


def test_a_recorded_decision_is_kept():
    found = summarise(comparison(decision={"distribution": "adjusted", "temperature": 1.0}), **FEW)
    assert (found.choice.row, found.choice.given) == ("tuned adjusted", True)


VECTOR = {"distribution": "raw", "scaling": "VS", "temperature": 1.0, **vars(Vector())}


@pytest.mark.parametrize(
    ("record", "row"),
    [
        ({"distribution": "raw", "temperature": 1.0}, "tuned raw"),  # written before vector scaling
        ({"distribution": "adjusted", "temperature": 2.0, "chosen_by": "lowest NLL"}, "tuned adjusted + TS"),
        ({"distribution": "raw", "scaling": "TS", "temperature": 2.0}, "tuned raw + TS"),
        (VECTOR, "tuned raw + VS"),
    ],
)
def test_records_old_and_new_are_read(record, row):
    assert summarise(comparison(decision=record, n=20), n_resamples=2).choice.row == row


@pytest.mark.parametrize(
    "record",
    [
        {"distribution": "raw", "temperature": 3.5},
        {"distribution": "raw", "scaling": "none", "temperature": 3.5},
        {**VECTOR, "shift": [0.5, 0.0, 0.0, -1.0]},
        {**VECTOR, "scale": [0.5, 0.5, 0.25]},
    ],
)
def test_a_decision_from_elsewhere_is_refused(record):
    with pytest.raises(ValueError, match="fits no row"):
        summarise(comparison(decision=record, n=20), n_resamples=2)


def test_a_decision_for_vector_scaling_is_refused_where_there_is_no_such_row():
    with pytest.raises(ValueError, match="fits no row"):
        summarise(comparison(decision=VECTOR, n=20, fit_vector=None), n_resamples=2)


def test_versus_scaled_compares_the_chosen_row_with_the_scaled_first(summary):
    change = summary.versus_scaled["far"]["conf_ece"]
    values = [
        summary.cells[row, "far"].estimates["conf_ece"].value for row in (summary.choice.row, summary.rows[1].label)
    ]
    assert change.value == pytest.approx(values[0] - values[1])


def test_pictures_leave_out_what_lies_between():
    variants = [
        variant("base", ["near"], 12, scale=3.0),
        variant("sft", ["near"], 12, scale=2.0),
        variant("tuned", ["near"], 12, scale=2.0, adjusted=0.5),
    ]
    decision = {"distribution": "adjusted", "temperature": 2.0}
    found = summarise(comparison({"near": "ID"}, variants=variants, decision=decision), **FEW)
    assert found.shown == ("base", "base + TS", "tuned raw", "tuned adjusted", "tuned adjusted + TS")


def test_pictures_show_vector_scaling_only_where_it_is_used():
    found = summarise(comparison(decision=VECTOR, n=20), n_resamples=2)
    assert found.shown == ("base", "base + TS", "tuned raw", "tuned raw + VS", "tuned adjusted", "tuned adjusted + TS")


def test_a_row_left_out_is_explained():
    wide = [one_variant([[1, 0], [1, 0, 2]], [0, 0])]
    found = summarise(comparison({"d": "ID"}, variants=wide), n_resamples=2)
    assert found.definitions["vector_left_out"] == {"base": wide[0].vector_fault}
    assert any(
        note.startswith("base has no row of vector scaling: d has items with 3 options") for note in notes(found)
    )
    assert "base + VS" not in {row.label for row in found.rows}


def test_ties_are_counted_and_missing_option_mass_is_none():
    found = summarise(comparison({"d": "ID"}, variants=[one_variant([[1, 1], [2, 0]], [0, 0])]), **FEW)
    cell = found.cells["base", "d"]
    assert cell.ties == 1
    assert cell.option_mass is None


def test_json_is_strict_and_says_how_the_numbers_were_found(summary):
    record = json.loads(summary.to_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert record["definitions"]["n_bins"] == 10
    assert record["definitions"]["seed"] == 0
    first = record["cells"][0]
    assert first["row"] == "base"
    assert first["estimates"]["conf_ece"] == vars(summary.cells["base", "near"].estimates["conf_ece"])
    assert first["reliability"]["accuracy"][0] is None
    assert record["rows"][1]["temperature"] == 2.0
    assert record["rows"][1]["scale"] is None
    assert record["rows"][2]["label"] == "base + VS"
    assert record["rows"][2]["temperature"] is None
    assert record["rows"][2]["scale"] == [0.5, 0.5, 0.25, 0.25]


def test_infinite_and_missing_values_survive_json():
    # the gold option has probability 0 after rounding
    found = summarise(comparison({"d": "ID"}, variants=[one_variant([[2000, 0], [1, 0]], [1, 0])]), **FEW)
    cell = next(cell for cell in found.to_json()["cells"] if cell["row"] == "base")
    assert cell["estimates"]["nll"]["value"] == "inf"
    assert math.isinf(found.cells["base", "d"].estimates["nll"].value)


def test_same_predictions_same_bytes():
    assert summarise(comparison(), **FEW).to_text() == summarise(comparison(), **FEW).to_text()
    assert summarise(comparison(), **FEW, seed=1).to_text() != summarise(comparison(), **FEW).to_text()


@pytest.mark.slow
def test_a_full_report_is_computed_within_a_minute():
    variants = [
        variant(name, ["near", "far", "farther"], 500, scale=scale, adjusted=adjusted)
        for name, scale, adjusted in (("base", 4.0, None), ("sft", 2.0, None), ("tuned", 1.5, 0.9))
    ]
    start = time.process_time()
    summarise(comparison({"near": "ID", "far": "OOD", "farther": "OOD"}, variants=variants))
    assert time.process_time() - start < 60
