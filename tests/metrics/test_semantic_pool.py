"""Counting and grading of samples, their sub-samples, and the draws."""

import itertools

import numpy as np
import pytest

from calmtune.metrics.semantic_draws import draw, draw_share, question_keys
from calmtune.metrics.semantic_pool import REFUSED, RIGHT, UNGRADED, WRONG, count_classes, pool_samples, sub_sample


def test_classes_stand_by_count_then_by_kind():
    pools = pool_samples(
        [["x", "y", "y", "x", "z"], ["only"], [3, 3, 1, 2, 2, 1, 1]],
        [[1, 0, 0, 1, 0], [1], [1, 1, 0, 0, 0, 0, 0]],
        refused=[[0, 0, 0, 0, 0], [0], [0, 0, 0, 1, 1, 0, 0]],
    )
    assert pools.counts.tolist() == [[2, 2, 1], [1, 0, 0], [3, 2, 2]]
    assert pools.labels == (("y", "x", "z"), ("only",), (1, None, 3))
    assert pools.kinds.tolist() == [[WRONG, RIGHT, WRONG], [RIGHT, UNGRADED, UNGRADED], [WRONG, REFUSED, RIGHT]]
    assert pools.size.tolist() == [5, 1, 7]
    assert pools.ids == ("0", "1", "2")


def test_refusals_are_one_class_whatever_they_are_called():
    pools = pool_samples([["I don't know", "no idea", "Rome"]], [[0, 0, 1]], refused=[[True, True, False]])
    assert pools.counts.tolist() == [[2, 1]]
    assert pools.labels == ((None, "Rome"),)


@pytest.mark.parametrize(("rule", "kinds"), [("any", [RIGHT, RIGHT, RIGHT]), ("majority", [RIGHT, WRONG, WRONG])])
def test_grades_that_differ_within_a_class(rule, kinds):
    table, grades = [[0, 0, 0], [0, 0], [0, 0, 0]], [[1, 1, 0], [1, 0], [0, 0, 1]]
    assert pool_samples(table, grades, within_class=rule).kinds[:, 0].tolist() == kinds
    with pytest.raises(ValueError, match=r"correct\[0\]: 2 of the 3 samples of class 0 are right"):
        pool_samples(table, grades)


def test_numpy_and_python_values_are_the_same():
    plain = pool_samples([[1, 1, 2], [3, 4, 4]], [[True, True, False], [False] * 3], ids=["4", "5"])
    arrays = pool_samples(
        np.array([[1, 1, 2], [3, 4, 4]], dtype=np.int32), np.array([[1.0, 1, 0], [0, 0, 0]]), ids=np.array([4, 5])
    )
    objects = pool_samples([[np.int64(1), np.int8(1), 2], (3, 4, 4)], [np.array([1, 1, 0]), (0, 0, 0)], ids=[4, 5])
    for other in (arrays, objects):
        assert other.labels == plain.labels
        assert other.ids == plain.ids
        np.testing.assert_array_equal(other.counts, plain.counts)
        np.testing.assert_array_equal(other.kinds, plain.kinds)
    # the int 1 and the string "1" are two classes
    assert pool_samples([[1, "1"]]).counts.tolist() == [[1, 1]]


OK = [["a", "b"], ["c", "c"]]


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (([],), {}, "at least one question"),
        (("abc",), {}, "one list of samples for each question"),
        ((["abc", ["a"]],), {}, r"class_ids\[0\] is 'abc'"),
        (([1, 2, 3],), {}, r"class_ids\[0\] is 1"),
        (([["a"], []],), {}, r"class_ids\[1\] is empty"),
        (([["a"], ["b", None]],), {}, r"class_ids\[1\]\[1\] is None"),
        (([["a"], [float("nan")]],), {}, r"class_ids\[1\]\[0\] is nan"),
        (([[1, 2.0]],), {}, r"class_ids\[0\]\[1\] is 2.0"),
        (([[True, False]],), {}, r"class_ids\[0\]\[0\] is True"),
        ((np.array([[0.0, 1.0]]),), {}, r"class_ids\[0\]\[0\] is 0.0"),
        ((OK, [1]), {}, "correct: expected 2 entries, one for each question, got 1 entries"),
        ((OK, 1), {}, "correct: expected 2 entries"),
        ((OK, [1, float("nan")]), {}, r"correct\[1\] is nan"),
        ((OK, [1, 2]), {}, r"correct\[1\] is 2"),
        ((OK, [1, "yes"]), {}, r"correct\[1\] is 'yes'"),
        ((OK, [[1, 0], 1]), {}, r"correct\[1\]: expected grades for samples everywhere"),
        ((OK, [[1, 0], [1]]), {}, r"correct\[1\] has 1 entries; expected 2"),
        ((OK, [[1, 0], [1, None]]), {}, r"correct\[1\]\[1\] is None"),
        ((OK, [[1, 0], [0.5, 0]]), {}, r"correct\[1\]\[0\] is 0.5"),
        ((OK, [[1, 0], [1, 0]]), {}, r"correct\[1\]: 1 of the 2 samples of class 'c'"),
        ((OK, [1, 0]), {"refused": [[0, 0], [0, 0]]}, "refusals need a grade for each sample"),
        ((OK, [[1, 0], [0, 0]]), {"refused": [[1, 0], [0, 0]]}, r"\[0\]\[0\] is both correct and refused"),
        ((OK,), {"refused": [[0, 0]]}, "refused has 1 questions"),
        ((OK,), {"within_class": "first"}, "within_class: expected"),
        ((OK,), {"ids": ["a"]}, "ids: expected 2"),
        ((OK,), {"ids": ["a", "a"]}, r"ids\[1\] is 'a', like ids\[0\]"),
        ((OK,), {"ids": ["1", 1]}, r"ids\[1\] is 1, like ids\[0\]"),
        ((OK,), {"ids": ["a", None]}, r"ids\[1\] is None"),
    ],
)
def test_faults(arguments, settings, message):
    with pytest.raises(ValueError, match=message):
        pool_samples(*arguments, **settings)


def test_sub_samples_are_drawn_evenly_and_without_replacement():
    # 3 x a, 2 x b, 1 x c; two of six: how often each pair comes, by enumeration
    questions = 6000
    part = sub_sample(pool_samples([list("abacab")] * questions, [[0, 1, 0, 0, 0, 1]] * questions), 2, 0, 0)
    assert (part.counts.sum(axis=1) == 2).all()
    assert (part.size == 2).all()
    pairs = [sorted(pair) for pair in itertools.combinations("aaabbc", 2)]
    double = sum(a == b for a, b in pairs) / len(pairs)
    with_right = sum("b" in pair for pair in pairs) / len(pairs)
    assert (part.counts[:, 0] == 2).mean() == pytest.approx(double, abs=0.03)
    assert ((part.kinds == RIGHT) & (part.counts > 0)).any(axis=1).mean() == pytest.approx(with_right, abs=0.03)


def test_a_smaller_sub_sample_is_part_of_a_larger_one():
    rng = np.random.default_rng(0)
    pools = pool_samples(rng.integers(0, 9, (50, 12)), rng.integers(0, 2, (50, 12)), within_class="any")

    def by_kind(n, repeat=0):  # of the pools at hand
        part = sub_sample(pools, n, 3, repeat)
        return np.stack([np.where(part.kinds == kind, part.counts, 0).sum(axis=1) for kind in (WRONG, RIGHT)])

    assert (by_kind(4) <= by_kind(7)).all()
    np.testing.assert_array_equal(by_kind(12), by_kind(12, repeat=1))
    assert (by_kind(7) != by_kind(7, repeat=1)).any()
    whole = sub_sample(pools, 12, 3, 0)
    np.testing.assert_array_equal(whole.counts, pools.counts)
    np.testing.assert_array_equal(whole.kinds, pools.kinds)
    # one right sample in twelve: where four have it, the seven do
    pools = pool_samples([list(range(12))] * 500, [[1] + [0] * 11] * 500)
    few, more = by_kind(4)[1], by_kind(7)[1]
    assert few.mean() == pytest.approx(4 / 12, abs=0.09)
    assert (few <= more).all()
    with pytest.raises(ValueError, match=r"class_ids\[0\] has 12 samples; a budget of 13"):
        sub_sample(pools, 13, 3, 0)


def test_count_classes():
    assert count_classes(np.array([[[0, 2, 2], [1, 1, 1]]]), 4).tolist() == [[[1, 0, 2, 0], [0, 3, 0, 0]]]


def test_draws_are_splitmix64():
    # the reference implementation's first three numbers from state 0
    assert draw(np.zeros(1, dtype=np.uint64), 3).tolist() == [
        [16294208416658607535, 7960286522194355700, 487617019471545679]
    ]


def test_keys_and_shares():
    names = [f"q{i}" for i in range(4000)]
    keys = question_keys(names, 0, "tie")
    assert len(set(keys.tolist())) == 4000
    assert not set(keys.tolist()) & set(question_keys(names, 1, "tie").tolist())
    assert not set(keys.tolist()) & set(question_keys(names, 0, "split").tolist())
    shares = draw_share(keys)
    assert shares.min() >= 0
    assert shares.max() < 1
    # uniform: each tenth holds 400 with a standard deviation of 19
    assert np.abs(np.bincount((shares * 10).astype(int), minlength=10) - 400).max() < 80
    assert question_keys(["lone surrogate \ud800"], 0, "tie").dtype == np.uint64
