"""What a comparison refuses, and the rows it gives."""

import pytest

from calmtune.predictions import Predictions
from calmtune.report import Variant
from calmtune.report.comparison import align, rows_of
from report.cases import comparison, one_variant, predictions, variant


def test_rows_are_raw_then_scaled_then_adjusted_then_scaled():
    assert [row.label for row in comparison().rows] == [
        "base",
        "base + TS",
        "base + VS",
        "tuned raw",
        "tuned raw + TS",
        "tuned raw + VS",
        "tuned adjusted",
        "tuned adjusted + TS",
        "tuned adjusted + VS",
    ]


def test_a_variant_without_adjusted_scores_has_three_rows():
    made = variant("sft", ["near"], 40, scale=1.0)
    assert [row.label for row in rows_of(made)] == ["sft", "sft + TS", "sft + VS"]
    assert [row.label for row in rows_of(made, vector=False)] == ["sft", "sft + TS"]


def test_vector_scaling_is_left_out_where_a_test_item_has_more_options():
    # the calibration split of these has two options
    wide = [one_variant([[1, 0], [1, 0, 2]], [0, 0], name=name) for name in ("base", "tuned")]
    made = comparison({"d": "ID"}, variants=wide)
    assert [row.label for row in made.rows] == ["base", "base + TS", "tuned", "tuned + TS"]
    why = "d has items with 3 options, the calibration split at most 2: there is no scale for the rest"
    assert made.left_out == {"base": why, "tuned": why}
    narrow = comparison({"d": "ID"}, variants=[one_variant([[1, 0]], [0])])
    assert [row.label for row in narrow.rows] == ["base", "base + TS", "base + VS"]
    assert narrow.left_out == {}


def test_without_a_vector_fit_nothing_is_left_out():
    made = comparison(fit_vector=None)
    assert {row.scaling for row in made.rows} == {"none", "TS"}
    assert made.left_out == {}


def test_adjusted_rows_need_adjusted_scores_everywhere():
    one = variant("tuned", ["near"], 3, scale=1.0, adjusted=0.5)
    half = Variant("tuned", predictions("calibration", 3, scale=1.0), one.tests)
    assert one.has_adjusted
    assert not half.has_adjusted


def test_align_follows_the_ids():
    given = predictions("d", 4, scale=1.0)
    assert align(Predictions(given.items[::-1]), given.ids).items == given.items


def test_order_of_the_items_does_not_matter():
    made = comparison()
    tuned = made.variants[1]
    turned = Variant("tuned", tuned.calibration, {k: Predictions(v.items[::-1]) for k, v in tuned.tests.items()})
    again = comparison(variants=[made.variants[0], turned])
    assert again.aligned("tuned", "near").items == tuned.tests["near"].items


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variants": []}, "at least one variant"),
        ({"variants": [variant("base", ["near", "far"], 3, scale=1.0)] * 2}, "names must differ"),
        ({"shifts": {}}, "at least one test domain"),
        ({"shifts": {"near": "id"}}, "must be 'ID' or 'OOD', got 'id'"),
        ({"variants": [variant("base", ["near"], 3, scale=1.0)]}, "'base' has no predictions on 'far'"),
        ({"variants": [Variant("base", Predictions(()), {})]}, "calibration split is empty"),
    ],
)
def test_what_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        comparison(n=3, **changes)


def test_other_items_are_refused_by_name():
    variants = [variant("base", ["near"], 3, scale=1.0), variant("tuned", ["near"], 4, scale=1.0)]
    with pytest.raises(ValueError, match=r"'tuned', domain 'near': 1 items are not shared with 'base', e.g. 'near-3'"):
        comparison({"near": "ID"}, variants=variants)


def test_other_labels_are_refused_by_item():
    variants = [one_variant([[1, 0]], [0]), one_variant([[1, 0]], [1], name="tuned")]
    with pytest.raises(ValueError, match="item 'i0': label 1 of 2 options, but 'base' has label 0"):
        comparison({"d": "ID"}, variants=variants)


def test_a_test_item_in_the_calibration_split_is_refused():
    both = predictions("near", 3, scale=1.0, seed=1)
    with pytest.raises(ValueError, match=r"3 test items are also calibration items, e.g. 'near-0'"):
        comparison({"near": "ID"}, variants=[Variant("base", both, {"near": both})])


def test_an_unknown_variant_is_named():
    with pytest.raises(ValueError, match="no variant 'x'; there are"):
        comparison().variant("x")
