"""RCFT: the E-step's bins, the targets and the penalty by hand, gradients, weights, and what must hold always."""

import itertools
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from calmtune.methods.rcft import BinTable, expectation, item_accuracy, item_weights, regulariser, targets


def row(*values):
    return torch.tensor([values], dtype=torch.float64)


# ---- the E-step ----------------------------------------------------------------------------------------------------


def test_bins_worked_by_hand():
    # bins of width 1/4: a, b in [1/2, 3/4), c, d, e in [3/4, 1], the last one closed; the first two are empty
    confidence = torch.tensor([0.5, 0.74, 0.75, 0.9, 1.0])
    correct = torch.tensor([True, False, True, False, True])
    table = expectation(list("abcde"), confidence, correct, n_bins=4)
    assert table.bins == {"a": 2, "b": 2, "c": 3, "d": 3, "e": 3}
    assert table.count == (0, 0, 2, 3)
    assert table.accuracy == (None, None, 1 / 2, 2 / 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_bins", [1, 3, 7, 10, 15])
def test_an_edge_opens_its_bin_and_one_belongs_to_the_last(dtype, n_bins):
    ids = [str(k) for k in range(n_bins + 1)]
    confidence = torch.tensor([k / n_bins for k in range(n_bins + 1)], dtype=dtype)
    table = expectation(ids, confidence, torch.ones(n_bins + 1, dtype=torch.bool), n_bins)
    assert table.count == (*[1] * (n_bins - 1), 2)
    assert [table.bins[i] for i in ids] == [*range(n_bins), n_bins - 1]


def test_just_below_an_edge_is_the_bin_below():
    below = torch.tensor([0.7, 1.0]).nextafter(torch.zeros(2))
    table = expectation(["a", "b"], below, torch.tensor([True, True]))
    assert table.bins == {"a": 6, "b": 9}


def test_a_softmax_that_rounds_to_just_above_one_is_one():
    assert expectation(["a"], torch.tensor([1.0000001]), torch.tensor([True])).bins == {"a": 9}


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40), st.integers(1, 12))
@settings(deadline=None)
def test_every_item_is_in_one_bin_and_hits_add_up(items, n_bins):
    confidence, correct = (torch.tensor(column) for column in zip(*items, strict=True))
    table = expectation([str(i) for i in range(len(items))], confidence.double(), correct.bool(), n_bins)
    assert sum(table.count) == len(items)
    hits = sum(a * n for a, n in zip(table.accuracy, table.count, strict=True) if a is not None)
    assert hits == pytest.approx(sum(hit for _, hit in items))


def test_a_table_survives_a_checkpoint():
    table = expectation(["a", "b", "c"], torch.tensor([0.31, 0.32, 0.99]), torch.tensor([True, False, True]))
    text = json.dumps(table.state(), allow_nan=False)
    again = BinTable.from_state(json.loads(text))
    assert again == table
    assert torch.equal(item_accuracy(again, ["c", "a"]), torch.tensor([1.0, 0.5]))


def test_a_table_that_contradicts_itself_is_refused():
    state = expectation(["a", "b"], torch.tensor([0.3, 0.9]), torch.tensor([True, False])).state()
    for name, value in (("count", [1] * 10), ("accuracy", [0.5] * 10), ("bins", {"a": 3}), ("bins", {"a": 3, "b": 10})):
        with pytest.raises(ValueError, match="make the table anew"):
            BinTable.from_state({**state, name: value})


@pytest.mark.parametrize(
    ("ids", "confidence", "n_bins", "message"),
    [
        (["a"], [0.5], 0, "n_bins must be >= 1"),
        ([], [], 10, "at least one item"),
        (["a", "b"], [0.5], 10, "for 2 ids"),
        (["a", "a"], [0.5, 0.6], 10, "'a' was given more than once"),
        (["a", "b"], [0.5, math.nan], 10, "confidence of item 'b' is nan"),
        (["a", "b"], [1.1, 0.5], 10, "confidence of item 'a' is 1.1"),
        (["a", "b"], [0.5, -0.1], 10, "confidence of item 'b' is -0.1"),
    ],
)
def test_items_that_cannot_be_binned_are_refused(ids, confidence, n_bins, message):
    with pytest.raises(ValueError, match=message):
        expectation(ids, torch.tensor(confidence), torch.ones(len(confidence), dtype=torch.bool), n_bins)


def test_grades_that_are_not_true_or_false_are_refused():
    # indices 0 and 1 would select items instead of marking them
    with pytest.raises(ValueError, match="bool correct"):
        expectation(["a", "b"], torch.tensor([0.5, 0.6]), torch.tensor([0, 1]))


def test_an_item_that_the_e_step_did_not_see_is_named():
    table = expectation(["a"], torch.tensor([0.5]), torch.tensor([True]))
    for read in (item_accuracy, item_weights):
        with pytest.raises(ValueError, match="'new' is not among the 1 items"):
            read(table, ["a", "new"])


# ---- weights -------------------------------------------------------------------------------------------------------


def test_weights_worked_by_hand():
    # three items in one bin, one in the last: 4/3 and 4/1
    table = expectation(list("abcd"), torch.tensor([0.31, 0.32, 0.33, 1.0]), torch.tensor([True] * 4))
    assert item_weights(table, ["d", "a"]).tolist() == pytest.approx([4.0, 4 / 3])


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_mini_batches_estimate_the_sum_over_bins_without_bias(size):
    # penalties .1, .2, .3 in one bin and .8 in the last: (.1 + .2 + .3) / 3 + .8 / 1 = 1
    table = expectation(list("abcd"), torch.tensor([0.31, 0.32, 0.33, 1.0]), torch.tensor([True] * 4))
    penalty = dict(zip("abcd", (0.1, 0.2, 0.3, 0.8), strict=True))
    means = [
        (item_weights(table, ids) * torch.tensor([penalty[i] for i in ids])).mean().item()
        for ids in itertools.combinations("abcd", size)
    ]
    assert sum(means) / len(means) == pytest.approx(1.0, abs=1e-6)


# ---- targets -------------------------------------------------------------------------------------------------------

# tanh(a ln 3) = (9^a - 1) / (9^a + 1), and gamma p = ln 3 * (p / p_2nd) / (1 - acc): a = (p / p_2nd) / (1 - acc)
WORKED = [
    # a = 5/2, 1, 1/2 -> tanh 242/244, 4/5, 1/2; plus 1, over 610: 1215, 1098, 915, sum 3228; times .4
    ((0.6, 0.25, 0.1, 0.05), 0.6, (0.6, 0.4 * 1215 / 3228, 0.4 * 1098 / 3228, 0.4 * 915 / 3228)),
    # a = 2, 1, 1/2 -> tanh 40/41, 4/5, 1/2; plus 1, over 410: 810, 738, 615, sum 2163; times .5
    ((0.05, 0.2, 0.65, 0.1), 0.5, (0.5 * 615 / 2163, 0.5 * 810 / 2163, 0.5, 0.5 * 738 / 2163)),
    # acc = 0: a = 1, 1/2, 0 -> tanh 4/5, 1/2, 0; plus 1: 1.8, 1.5, 1, sum 4.3; an option of no probability has a share
    ((0.7, 0.2, 0.1, 0.0), 0.0, (0.0, 18 / 43, 15 / 43, 10 / 43)),
    # acc = 1: nothing is left for the others
    ((0.6, 0.25, 0.1, 0.05), 1.0, (1.0, 0.0, 0.0, 0.0)),
    # two options: the other one has the rest, whatever tanh is
    ((0.1, 0.9), 0.7, (0.3, 0.7)),
    ((0.0, 1.0), 0.7, (0.3, 0.7)),
    # p_2nd = 0: equal shares
    ((1.0, 0.0, 0.0), 0.4, (0.4, 0.3, 0.3)),
    # one option: no other to give the rest to
    ((1.0,), 0.4, (0.4,)),
]


@pytest.mark.parametrize(("p", "accuracy", "expected"), WORKED)
def test_targets_worked_by_hand(p, accuracy, expected):
    found = targets(row(*p), torch.tensor([accuracy], dtype=torch.float64))
    assert found[0].tolist() == pytest.approx(expected, abs=1e-12)


def test_targets_of_the_worked_item_in_decimals():
    found = targets(torch.tensor([[0.6, 0.25, 0.1, 0.05]]), torch.tensor([0.6]))
    assert found[0].tolist() == pytest.approx([0.6, 0.150558, 0.136059, 0.113383], abs=1e-6)


def test_rows_do_not_meet():
    # all worked rows of four options at once
    cases = [case for case in WORKED if len(case[0]) == 4]
    p, accuracy, expected = (torch.tensor(column, dtype=torch.float64) for column in zip(*cases, strict=True))
    assert torch.allclose(targets(p, accuracy), expected, rtol=0, atol=1e-12)


def test_absent_options_have_no_target_and_take_no_share():
    p, present = row(0.7, 0.0, 0.2, 0.1, 0.0), torch.tensor([[True, False, True, True, False]])
    found = targets(p, torch.tensor([0.0]), present)
    # as acc = 0 above without the fourth option: 1.8, 1.5, sum 3.3
    assert found[0].tolist() == pytest.approx([0.0, 0.0, 18 / 33, 15 / 33, 0.0], abs=1e-12)
    assert present[0].tolist() == [True, False, True, True, False]  # not written into


@st.composite
def distributions(draw):
    size = draw(st.integers(2, 6))
    scores = draw(st.lists(st.floats(-40, 40), min_size=size, max_size=size))
    absent = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    keep = draw(st.integers(0, size - 1))
    present = torch.tensor([[not a or i == keep for i, a in enumerate(absent)]])
    return torch.tensor([scores], dtype=torch.float64).masked_fill(~present, -torch.inf), present


ACCURACY = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 1e-12, 1 - 1e-12, 0.5]))


@given(distributions(), ACCURACY, st.sampled_from([torch.float32, torch.float64]))
@settings(deadline=None, max_examples=200)
def test_targets_are_probabilities_that_keep_rank(drawn, accuracy, dtype):
    scores, present = drawn
    p = torch.softmax(scores.to(dtype), -1)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    found = targets(p, torch.tensor([accuracy], dtype=dtype), present)[0]
    top = int(p[0].argmax())
    assert found[top].item() == pytest.approx(accuracy, abs=tolerance)
    assert bool(((found >= 0) & (found <= 1 + tolerance)).all())
    assert bool((found[~present[0]] == 0).all())
    others = [i for i in range(len(found)) if present[0, i] and i != top]
    if others:
        assert found[others].sum().item() == pytest.approx(1 - accuracy, abs=tolerance)
    for i, j in itertools.permutations(others, 2):
        assert p[0, i] < p[0, j] or found[i] >= found[j]


# ---- the penalty ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "accuracy", "expected"),
    [
        # p_max = acc; (.25 - .4 * 1215/3228)^2 + (.1 - .4 * 1098/3228)^2 + (.05 - .4 * 915/3228)^2
        # = .099442^2 + .036059^2 + .063383^2
        ((0.6, 0.25, 0.1, 0.05), 0.6, 0.0152064),
        # .4^2 + .25^2 + .1^2 + .05^2
        ((0.6, 0.25, 0.1, 0.05), 1.0, 0.235),
        # .2^2 + .2^2
        ((0.1, 0.9), 0.7, 0.08),
    ],
)
def test_the_penalty_worked_by_hand(p, accuracy, expected):
    # scores are known up to a constant
    found = regulariser(row(*p).log() + 3.0, torch.tensor([accuracy], dtype=torch.float64))
    assert found.tolist() == pytest.approx([expected], abs=1e-6)


def test_a_calibrated_item_at_its_targets_costs_nothing():
    # two options at acc: p = t
    scores = row(0.7, 0.3).log().requires_grad_()
    value = regulariser(scores, torch.tensor([0.7], dtype=torch.float64))
    assert value.item() == pytest.approx(0.0, abs=1e-15)
    assert torch.autograd.grad(value, scores)[0].abs().max() < 1e-12


def test_the_gradient_holds_the_targets_still():
    # finite differences of sum_j (p_j - t_j)^2 with t as it was at the start
    torch.manual_seed(0)
    scores = torch.randn(5, 4, dtype=torch.float64) * 2
    accuracy = torch.tensor([0.0, 0.2, 0.5, 0.9, 1.0], dtype=torch.float64)
    fixed = targets(torch.softmax(scores, -1), accuracy)

    def value(s):
        return (torch.softmax(s, -1) - fixed).square().sum(-1)

    leaf = scores.clone().requires_grad_()
    (ours,) = torch.autograd.grad(regulariser(leaf, accuracy).sum(), leaf)
    step = 1e-6
    for i, j in itertools.product(range(5), range(4)):
        nudge = torch.zeros_like(scores)
        nudge[i, j] = step
        slope = (value(scores + nudge).sum() - value(scores - nudge).sum()) / (2 * step)
        assert ours[i, j].item() == pytest.approx(slope.item(), abs=1e-8)


def test_targets_carry_no_gradient():
    p = row(0.6, 0.25, 0.15).requires_grad_()
    assert not targets(p, torch.tensor([0.6])).requires_grad


def test_gradcheck_where_targets_are_constants():
    # acc = 1 (all 0) and two options (acc and 1 - acc): the penalty is a plain function of the scores
    accuracy = torch.tensor([1.0, 1.0], dtype=torch.float64)
    scores = torch.tensor([[1.0, 0.2, -0.5], [0.1, 2.0, 0.4]], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda s: regulariser(s, accuracy), (scores,), eps=1e-6, atol=1e-8, rtol=1e-6)
    pair = torch.tensor([[1.0, 0.2]], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda s: regulariser(s, accuracy[:1] * 0.6), (pair,), eps=1e-6, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("accuracy", [0.0, 0.4, 1.0])
def test_certain_and_absent_options_give_finite_gradients(accuracy):
    scores = torch.tensor(
        [[200.0, 0.0, 0.0], [5.0, 1.0, -math.inf], [3.0, -math.inf, -math.inf], [0.0, 0.0, 0.0]], requires_grad=True
    )
    value = regulariser(scores, torch.full((4,), accuracy))
    # certain: (1 - acc)^2 + 2 ((1 - acc) / 2)^2
    assert value[0].item() == pytest.approx(1.5 * (1 - accuracy) ** 2, abs=1e-6)
    assert value[2].item() == pytest.approx((1 - accuracy) ** 2, abs=1e-6)
    value.sum().backward()
    assert torch.isfinite(scores.grad).all()
    assert scores.grad[1, 2] == 0


def test_padding_changes_nothing():
    torch.manual_seed(1)
    scores, accuracy = torch.randn(3, 3, dtype=torch.float64), torch.tensor([0.1, 0.5, 0.8], dtype=torch.float64)
    padded = torch.nn.functional.pad(scores, (1, 2), value=-torch.inf)
    assert torch.allclose(regulariser(padded, accuracy), regulariser(scores, accuracy), rtol=0, atol=1e-14)


def test_half_precision_scores_are_read_in_float32():
    scores = torch.tensor([[6.5, 0.0, -1.0]]).bfloat16()
    found = regulariser(scores, torch.tensor([0.5]))
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(regulariser(scores.double(), torch.tensor([0.5])).item(), rel=1e-5)


def test_descending_the_penalty_brings_confidence_to_accuracy():
    scores = row(4.0, 1.0, 0.5, 0.0)
    for _ in range(3000):
        leaf = scores.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(regulariser(leaf, torch.tensor([0.6])).sum(), leaf)
        scores = scores - gradient
    assert torch.softmax(scores, -1)[0, 0].item() == pytest.approx(0.6, abs=1e-3)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"expected scores \[B, K\] and accuracy \[B\]"):
        regulariser(torch.zeros(2, 3), torch.tensor([0.5]))
    with pytest.raises(ValueError, match=r"expected scores \[B, K\]"):
        regulariser(torch.zeros(3), torch.tensor([0.5]))
