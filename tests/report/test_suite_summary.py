"""A table worked by hand, what is missing, what is best, what is chosen."""

from dataclasses import replace

import numpy as np
import pytest

from calmtune.report.suite import summarise_suite
from report.suite_cases import ADJUSTED, FITS, RAW, given_run, random_run, random_suite

HOW = {"title": "t", "n_bins": 10, "n_resamples": 200}


def summarise(runs, **changes):
    return summarise_suite(runs, **(HOW | FITS | changes))


def only(runs, **changes):
    """The one model of the one setting."""
    return summarise(runs, **changes).settings[0].models[0]


@pytest.fixture(scope="module")
def by_hand():
    # base: 0.8 right and 0.7 wrong. Seed 0: 0.6 right twice. Seed 1: 0.6 wrong twice.
    base, labels = [0.8, 0.7], [0, 1]
    return only(
        [given_run("sft", 0, base, [0.6, 0.4], labels), given_run("sft", 1, base, [0.4, 0.6], labels)],
        fit_vector=None,
    )


def test_two_items_and_two_seeds_by_hand(by_hand):
    base, sft = by_hand.cells["base", "d"], by_hand.cells["sft", "d"]
    assert base.seeds == (None,)
    assert sft.seeds == (0, 1)
    # base: (|1 - 0.8| + |0 - 0.7|) / 2; seeds: |1 - 0.6| and |0 - 0.6|. In one pool it would be |0.5 - 0.6|
    assert base.spreads["conf_ece"].estimate.value == pytest.approx(0.45)
    assert sft.spreads["conf_ece"].values == pytest.approx((0.4, 0.6))
    assert sft.spreads["conf_ece"].estimate.value == pytest.approx(0.5)
    assert sft.spreads["conf_ece"].deviation == pytest.approx(0.2 / np.sqrt(2))
    assert np.isnan(base.spreads["conf_ece"].deviation)
    assert sft.spreads["accuracy"].values == (1.0, 0.0)
    assert sft.spreads["accuracy"].estimate.value == 0.5
    assert sft.spreads["gap"].values == pytest.approx((-0.4, 0.6))
    nll = -np.log([0.6, 0.4])
    assert sft.spreads["nll"].values == pytest.approx(tuple(nll))
    # every class: the same two gaps as for confidence
    assert sft.spreads["cw_ece"].values == pytest.approx((0.4, 0.6))


def test_differences_by_hand(by_hand):
    delta = by_hand.cells["sft", "d"].versus["base"]["conf_ece"]
    assert delta.value == pytest.approx(0.05)
    assert delta.low < -0.5
    assert delta.high > 0.5  # two seeds that differ by 0.2 say next to nothing of others
    scaled = by_hand.cells["base + TS", "d"].spreads["conf_ece"].estimate.value
    assert by_hand.cells["sft", "d"].versus["base + TS"]["conf_ece"].value == pytest.approx(0.5 - scaled)


def test_an_interval_stays_within_what_is_possible(by_hand):
    for cell in by_hand.cells.values():
        for measure in ("conf_ece", "cw_ece", "accuracy"):
            one = cell.spreads[measure].estimate
            assert 0.0 <= one.low <= one.high <= 1.0


def clear_case(n=40):
    """A base that is sure and a method that says 0.55, both always wrong, so that no resample changes their order."""
    return [0.95] * n, [0.55] * n, [1] * n


def test_best_is_what_every_paired_interval_shows():
    base, better, labels = clear_case()
    found = only([given_run("sft", seed, base, better, labels) for seed in (0, 1)], fit_vector=None)
    marked = {label for (label, _), cell in found.cells.items() if "conf_ece" in cell.best}
    # the tests' T = 2 pushes 0.55 to 0.525; the chosen row is the raw one
    assert found.lowest["d", "conf_ece"] == "sft + TS"
    assert marked == {"sft + TS"}
    # each other row stands against the best one by an interval above zero
    for label in ("base", "base + TS", "sft", "sft chosen"):
        assert found.cells[label, "d"].versus["sft + TS"]["conf_ece"].low > 0


def test_the_lowest_is_not_best_where_an_interval_holds_zero():
    # right half the time: whether 0.55 or 0.525 is nearer to that depends on the items that are drawn
    n = 40
    found = only([given_run("sft", 0, [0.95] * n, [0.55] * n, [0, 1] * (n // 2))], fit_vector=None)
    assert found.lowest["d", "conf_ece"] == "sft + TS"
    delta = found.cells["sft", "d"].versus["sft + TS"]["conf_ece"]
    assert delta.low < 0 < delta.value < delta.high
    assert not [label for (label, _), cell in found.cells.items() if "conf_ece" in cell.best]


def test_a_tie_has_no_best():
    base, better, labels = clear_case()
    runs = [given_run(method, 0, base, better, labels) for method in ("sft", "twin")]
    found = only(runs, fit_vector=None)
    assert found.lowest["d", "conf_ece"] in ("sft + TS", "twin + TS")
    assert [label for (label, _), cell in found.cells.items() if cell.best] == []
    delta = found.cells["twin + TS", "d"].versus["sft + TS"]["conf_ece"]
    assert (delta.value, delta.low, delta.high, delta.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_a_chosen_row_shares_the_mark_of_the_row_that_it_is():
    base, better, labels = clear_case()
    chosen = RAW | {"scaling": "TS", "temperature": 2.0}
    runs = [given_run("sft", seed, base, better, labels, decision=chosen) for seed in (0, 1)]
    found = only(runs, fit_vector=None)
    assert found.same_as == {"sft chosen": "sft + TS"}
    assert {label for (label, _), cell in found.cells.items() if "conf_ece" in cell.best} == {"sft + TS", "sft chosen"}
    mixed = [runs[0], replace(runs[1], decision=RAW)]
    found = only(mixed, fit_vector=None)
    assert found.same_as == {}
    values = found.cells["sft chosen", "d"].spreads["conf_ece"].values
    assert values == pytest.approx((0.525, 0.55), abs=1e-3)


def test_a_temperature_is_no_rival_in_accuracy():
    n = 40
    labels = [0] * n
    runs = [given_run("sft", seed, [0.3] * n, [0.7] * n, labels) for seed in (0, 1)]
    found = only(runs, fit_vector=None)
    marked = {label for (label, _), cell in found.cells.items() if "accuracy" in cell.best}
    assert marked == {"sft", "sft + TS", "sft chosen"}


def test_a_missing_run_is_told_and_nothing_is_best():
    base, better, labels = clear_case()
    runs = [given_run("sft", 0, base, better, labels)]
    planned = [("s", "m", "sft", 0), ("s", "m", "sft", 1), ("s", "m", "calm", 0), ("s", "other", "sft", 0), ("z",) * 4]
    summary = summarise(runs, fit_vector=None, planned=planned)
    part = summary.settings[0]
    assert [row.label for row in part.rows] == [
        "base", "base + TS", "sft", "sft + TS", "sft chosen", "calm", "calm chosen"
    ]  # fmt: skip
    mine, other = part.models
    assert mine.missing == (("sft", 1), ("calm", 0))
    assert ("calm", "d") not in mine.cells
    assert all(cell.best == () for cell in mine.cells.values())
    assert other.cells == {}
    assert [column.name for column in other.columns] == ["d"]
    assert summary.not_started == ("z",)


def test_without_a_plan_every_method_shall_have_every_seed():
    runs = [random_run("sft", 0, scale=3.0), random_run("sft", 1, scale=3.0), random_run("calm", 1, scale=2.0)]
    assert only(runs).missing == (("calm", 0),)


def test_columns_and_pooled_ones():
    part = summarise(random_suite()).settings[0]
    columns = part.models[0].columns
    assert [(column.title, column.n) for column in columns] == [
        ("ID: near", 40), ("OOD: far", 40), ("OOD: farther", 40), ("OOD: all", 80)
    ]  # fmt: skip
    cells = part.models[0].cells
    both = [cells["calm adjusted", name].spreads["nll"].values for name in ("far", "farther")]
    assert cells["calm adjusted", "OOD (all)"].spreads["nll"].values == pytest.approx(tuple(np.mean(both, axis=0)))


def test_main_rows_and_the_rows_of_plain_fine_tuning():
    part = summarise(random_suite()).settings[0]
    assert [row.label for row in part.rows if row.main] == [
        "base", "base + TS", "sft", "sft chosen", "calm raw", "calm adjusted", "calm chosen"
    ]  # fmt: skip
    assert part.plain == "sft"
    # called otherwise in the suite, it is known by its settings
    runs = [replace(run, method="plain") if run.method == "sft" else run for run in random_suite()]
    runs = [replace(run, settings={"method": "sft"}) if run.method == "plain" else run for run in runs]
    assert summarise(runs).settings[0].plain == "plain"


def test_seeds_decide_for_themselves():
    runs = random_suite()
    runs[-1] = replace(runs[-1], decision=RAW)
    model = only(runs)
    chosen = model.cells["calm chosen", "far"].spreads["nll"].values
    assert chosen == (
        model.cells["calm adjusted", "far"].spreads["nll"].values[0],
        model.cells["calm raw", "far"].spreads["nll"].values[1],
    )
    assert ADJUSTED["distribution"] == "adjusted"


def test_the_same_numbers_again_and_others_by_seed():
    runs = random_suite()
    one, again, other = (only(runs, seed=seed) for seed in (0, 0, 1))
    cell = ("calm adjusted", "OOD (all)")
    assert one.cells[cell].spreads["conf_ece"] == again.cells[cell].spreads["conf_ece"]
    assert one.cells[cell].versus == again.cells[cell].versus
    assert one.cells[cell].spreads["nll"].estimate.low != other.cells[cell].spreads["nll"].estimate.low
    assert one.cells[cell].spreads["nll"].values == other.cells[cell].spreads["nll"].values


def test_no_run_and_a_run_twice_are_refused():
    with pytest.raises(ValueError, match="at least one run, got none"):
        summarise([])
    with pytest.raises(ValueError, match="s / m / sft / seed 0 is given 2 times"):
        summarise([random_run("sft", 0, scale=3.0)] * 2)
