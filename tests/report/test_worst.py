"""The most confident errors."""

from calmtune.report import summarise
from report.cases import comparison, one_variant


def test_worst_items_are_wrong_and_sorted_by_confidence():
    base = one_variant([[3, 0], [1, 0], [2, 0], [5, 0]], [1, 1, 1, 0])
    tuned = one_variant([[0, 1], [9, 0], [1, 0], [0, 4]], [1, 1, 1, 0], name="tuned")
    summary = summarise(comparison({"d": "ID"}, variants=[base, tuned]), n_resamples=5)
    before = [item for item in summary.worst if item.worst_for == "before"]
    after = [item for item in summary.worst if item.worst_for == "after"]
    assert [item.id for item in before] == ["i0", "i2", "i1"]
    assert [item.id for item in after] == ["i1", "i3", "i2"]
    assert (before[0].choice_before, before[0].choice_after, before[0].label) == (0, 1, 1)


def test_no_more_than_five_a_side_and_probabilities_of_own_options_only():
    summary = summarise(comparison(n=60), n_resamples=5)
    assert [item.worst_for for item in summary.worst] == ["before"] * 5 + ["after"] * 5
    items = {item.id: item for part in summary.comparison.variants[0].tests.values() for item in part}
    for item in summary.worst:
        assert len(item.before) == len(item.after) == len(items[item.id].scores)
        assert abs(sum(item.before) - 1) < 1e-9
