"""Runs that do not fit together are refused with what differs."""

from dataclasses import replace

import pytest

from calmtune.predictions import Predictions
from calmtune.report import Variant
from calmtune.report.suite_runs import read_model
from report.suite_cases import FITS, RAW, given, given_run, random_run

BASE, LABELS = [0.8, 0.7], [0, 1]


def read(*runs):
    return read_model(runs, n_bins=10, **FITS)


def test_rows_of_base_and_methods_with_their_seeds():
    found = read(
        random_run("sft", 0, scale=3.0), random_run("sft", 1, scale=3.0), random_run("calm", 0, scale=2.0, adjusted=0.5)
    )
    seeds = {label: sorted(of_label, key=str) for label, of_label in found.readings.items()}
    assert seeds == {
        "base": [None], "base + TS": [None], "base + VS": [None],
        "sft": [0, 1], "sft + TS": [0, 1], "sft + VS": [0, 1],
        "calm raw": [0], "calm raw + TS": [0], "calm raw + VS": [0],
        "calm adjusted": [0], "calm adjusted + TS": [0], "calm adjusted + VS": [0],
    }  # fmt: skip
    assert found.choices["calm"][0].row == "calm adjusted"
    # the fit of the tests is T = 2
    scaled = found.readings["sft + TS"][1]["far"].probabilities[0]
    raw = found.readings["sft"][1]["far"].probabilities[0]
    present = raw > 0
    assert scaled[present] == pytest.approx(raw[present] ** 0.5 / (raw[present] ** 0.5).sum())


def test_items_in_another_order_are_aligned():
    first = given_run("sft", 0, BASE, [0.9, 0.4], LABELS)
    turned = {
        name: replace(one, tests={"d": Predictions(one.tests["d"].items[::-1])})
        for name, one in (("base", first.base), ("tuned", first.tuned))
    }
    found = read(first, replace(first, seed=1, **turned))
    one, other = (found.readings["sft"][seed]["d"].probabilities.tolist() for seed in (0, 1))
    assert one == other


def test_other_items_are_refused_by_id():
    first = given_run("sft", 0, BASE, BASE, LABELS)
    longer = given_run("calm", 1, [*BASE, 0.6], [*BASE, 0.6], [*LABELS, 0])
    with pytest.raises(
        ValueError, match=r"test domain 'd': 1 items are not shared by s / m / calm / seed 1 and s / m / sft.*'d-2'"
    ):
        read(first, longer)


def test_other_calibration_items_are_refused_by_id():
    first = given_run("sft", 0, BASE, BASE, LABELS)
    other = given("c", [0.8, 0.6, 0.6], [0, 1, 1])
    second = replace(
        first, seed=1, base=replace(first.base, calibration=other), tuned=replace(first.tuned, calibration=other)
    )
    with pytest.raises(ValueError, match="the calibration split: 1 items are not shared .*'c-2'"):
        read(first, second)


def test_other_labels_and_another_base_are_refused():
    first = given_run("sft", 0, BASE, BASE, LABELS)
    with pytest.raises(ValueError, match="item 'd-1': label 0 of 2 options in .* but label 1"):
        read(first, given_run("sft", 1, BASE, BASE, [0, 0]))
    with pytest.raises(ValueError, match=r"bases of .* differ by 0.100 on average"):
        read(first, given_run("sft", 1, [0.9, 0.8], BASE, LABELS))
    read(first, given_run("sft", 1, [0.801, 0.7], BASE, LABELS))  # rounding of another machine is no other base


def test_other_domains_and_a_method_called_base_are_refused():
    first = given_run("sft", 0, BASE, BASE, LABELS)
    with pytest.raises(ValueError, match="one table needs the same domains"):
        read(first, replace(first, seed=1, shifts={"d": "ID"}))
    with pytest.raises(ValueError, match="cannot be called 'base'"):
        read(given_run("base", 0, BASE, BASE, LABELS))


def test_a_faulty_run_is_named():
    first = given_run("sft", 3, BASE, BASE, LABELS)
    with pytest.raises(ValueError, match="run s / m / sft / seed 3: .*no predictions on 'e'"):
        read(replace(first, shifts={"d": "OOD", "e": "OOD"}))
    with pytest.raises(ValueError, match=r"run s / m / sft / seed 3: decision .* fits no row"):
        read(replace(first, decision=RAW | {"distribution": "adjusted"}))


def test_the_decision_is_made_where_none_was_recorded():
    run = given_run("sft", 0, BASE, BASE, LABELS, decision=None)
    choice = read(run).choices["sft"][0]
    assert not choice.given
    assert choice.row in ("sft", "sft + TS", "sft + VS")
    assert isinstance(run.base, Variant)
