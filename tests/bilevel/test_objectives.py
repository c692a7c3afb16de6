"""Lower and upper losses: closed forms against autograd and finite differences, -inf logits, masks, chunks."""

import math

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck
from transformers.trainer_pt_utils import LabelSmoother

from calmtune.bilevel import LogitAdjustment, adjusted_cross_entropy, negative_entropy, read_logits
from calmtune.bilevel.objectives import CHUNK_ELEMENTS

KINDS = ["vector", "scalar", "none"]
FORMS = ["exp", "sigmoid"]


def problem(kind="vector", form="exp", rows=6, classes=5, seed=0, absent=False):
    torch.manual_seed(seed)
    adjustment = LogitAdjustment(classes, kind, form, dtype=torch.float64)
    for parameter in adjustment.parameters():
        parameter.data.normal_(std=0.7)
    logits = torch.randn(rows, classes, dtype=torch.float64) * 2
    targets = torch.randint(0, classes - 1, (rows,))
    if absent:
        logits[:, -1] = -torch.inf
    return adjustment, logits, targets


def plain_cross_entropy(logits, targets, adjustment):
    return nn.functional.cross_entropy(adjustment(logits), targets)


def plain_negative_entropy(logits, adjustment):
    p = torch.softmax(adjustment(logits), -1)
    return torch.special.entr(p).sum(-1).mean().neg()


# ---- values --------------------------------------------------------------------------------------------------------


def test_uniform_logits_give_log_k():
    assert adjusted_cross_entropy(torch.zeros(3, 8), torch.tensor([0, 1, 2])).item() == pytest.approx(math.log(8))
    assert negative_entropy(torch.zeros(3, 8)).item() == pytest.approx(-math.log(8))


def test_cross_entropy_worked_by_hand():
    # p = softmax([ln 3 / 1, 0]) = (3/4, 1/4); with tau = 2 on both: softmax([ln 3 / 2, 0]) = sqrt 3 / (1 + sqrt 3)
    z = torch.tensor([[math.log(3.0), 0.0]], dtype=torch.float64)
    adjustment = LogitAdjustment(2, dtype=torch.float64)
    adjustment.temperature_parameter.data.fill_(math.log(2.0))
    assert adjusted_cross_entropy(z, torch.tensor([0])).item() == pytest.approx(math.log(4 / 3), abs=1e-12)
    expected = -math.log(math.sqrt(3) / (1 + math.sqrt(3)))
    assert adjusted_cross_entropy(z, torch.tensor([0]), adjustment).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("logits", "entropy"), [([0.0, 0.0, -math.inf], math.log(2)), ([0.0, -math.inf, -math.inf], 0.0)]
)
def test_entropy_of_impossible_classes_is_finite_with_finite_gradient(logits, entropy):
    z = torch.tensor([logits], dtype=torch.float64, requires_grad=True)
    adjustment = LogitAdjustment(3, dtype=torch.float64)
    value = negative_entropy(z, adjustment)
    assert -value.item() == pytest.approx(entropy, abs=1e-12)
    value.backward()
    for gradient in (z.grad, adjustment.temperature_parameter.grad, adjustment.logit_shift.grad):
        assert torch.isfinite(gradient).all()
        assert gradient.abs().max() < 1e-12


def test_saturated_logits_give_no_negative_entropy_and_no_nan():
    z = torch.tensor([[1e4, -1e4, 0.0], [300.0, 300.0, -300.0]], requires_grad=True)
    value = negative_entropy(z)
    value.backward()
    assert -value.item() == pytest.approx(math.log(2) / 2, abs=1e-6)
    assert torch.isfinite(z.grad).all()


def test_half_precision_logits_are_computed_in_float32():
    z = torch.tensor([[6.5, 0.0], [6.8, 0.0], [7.5, 0.0]]).bfloat16()
    p = torch.sigmoid(z.float()[:, 0])
    loss = adjusted_cross_entropy(z, torch.zeros(3, dtype=torch.int64))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(-p.log().mean().item(), rel=1e-5)
    assert loss.item() > 0  # a bf16 softmax rounds all three to 1


# ---- gradients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loss", ["cross_entropy", "negative_entropy"])
def test_closed_forms_agree_with_finite_differences(kind, form, loss):
    adjustment, logits, targets = problem(kind, form)
    parameters = list(adjustment.parameters())

    def value(z, parameter, shift):
        probe = LogitAdjustment(5, kind, form, dtype=torch.float64)
        probe._parameters["temperature_parameter"], probe._parameters["logit_shift"] = parameter, shift
        if loss == "cross_entropy":
            return adjusted_cross_entropy(z, targets, probe)
        return negative_entropy(z, probe)

    inputs = (logits.requires_grad_(), *parameters)
    assert gradcheck(value, inputs, eps=1e-6, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("absent", [False, True])
def test_closed_forms_agree_with_autograd(kind, form, absent):
    adjustment, logits, targets = problem(kind, form, absent=absent)
    present = slice(None, -1) if absent else slice(None)
    small = adjustment.select(torch.arange(4)) if absent else adjustment
    cases = (
        (adjusted_cross_entropy(logits, targets, adjustment), plain_cross_entropy(logits[:, present], targets, small)),
        (negative_entropy(logits, adjustment), plain_negative_entropy(logits[:, present], small)),
    )
    for ours, reference in cases:
        assert ours.item() == pytest.approx(reference.item(), abs=1e-12)
        if kind == "none":
            continue
        got = torch.autograd.grad(ours, list(adjustment.parameters()))
        expected = torch.autograd.grad(reference, list(small.parameters()))
        for a, b in zip(got, expected, strict=True):
            assert torch.allclose(a[: len(b)], b, rtol=0, atol=1e-12)


def test_shift_gradient_is_mean_of_p_minus_one_hot():
    adjustment, logits, targets = problem()
    p = torch.softmax(adjustment(logits), -1).detach()
    adjusted_cross_entropy(logits, targets, adjustment).backward()
    expected = (p - nn.functional.one_hot(targets, 5)).mean(0)
    assert torch.allclose(adjustment.logit_shift.grad, expected, rtol=0, atol=1e-12)
    tau = adjustment.log_temperature.exp()
    expected = -((p - nn.functional.one_hot(targets, 5)) * logits / tau).mean(0)
    assert torch.allclose(adjustment.temperature_parameter.grad, expected, rtol=0, atol=1e-12)


def test_a_second_derivative_is_refused_rather_than_wrong():
    logits = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(negative_entropy(logits), logits, create_graph=True)
    with pytest.raises(RuntimeError, match="grad"):
        gradient.sum().backward()


# ---- masks, chunks, heads ------------------------------------------------------------------------------------------


def test_masked_rows_never_enter():
    adjustment, logits, targets = problem()
    mask = torch.tensor([True, False, True, True, False, False])
    poisoned = logits.clone()
    poisoned[~mask] = torch.nan
    bad_targets = targets.clone()
    bad_targets[~mask] = -100
    for reduction in ("mean", "sum"):
        ours = adjusted_cross_entropy(poisoned, bad_targets, adjustment, mask=mask, reduction=reduction)
        assert ours.item() == pytest.approx(
            adjusted_cross_entropy(logits[mask], targets[mask], adjustment, reduction=reduction).item(), abs=1e-12
        )
        entropy = negative_entropy(poisoned, adjustment, mask=mask, reduction=reduction)
        assert entropy.item() == pytest.approx(
            negative_entropy(logits[mask], adjustment, reduction=reduction).item(), abs=1e-12
        )


def test_mean_over_nothing_is_refused_and_its_sum_is_zero():
    nothing = torch.zeros(2, dtype=torch.bool)
    with pytest.raises(ValueError, match="mean over nothing"):
        negative_entropy(torch.zeros(2, 3), mask=nothing)
    assert negative_entropy(torch.zeros(2, 3), mask=nothing, reduction="sum").item() == 0.0


def test_mean_is_over_positions_not_over_micro_batches():
    # token losses 4 and (1, 1, 1): together 7/4, as sums over a common count
    def rows(losses):
        return torch.tensor([[math.log(math.exp(-x)), math.log1p(-math.exp(-x))] for x in losses], dtype=torch.float64)

    parts = [rows([4.0]), rows([1.0, 1.0, 1.0])]
    total = sum(adjusted_cross_entropy(z, torch.zeros(len(z), dtype=torch.int64), reduction="sum") for z in parts)
    assert (total / 4).item() == pytest.approx(1.75, abs=1e-12)


@pytest.mark.parametrize("chunk_size", [1, 2, 4, 100])
@pytest.mark.parametrize("trainable_head", [False, True])
@pytest.mark.parametrize("kind", ["vector", "scalar"])
def test_chunks_of_hidden_states_equal_whole_logits(chunk_size, trainable_head, kind):
    torch.manual_seed(1)
    head = nn.Linear(4, 5, dtype=torch.float64).requires_grad_(trainable_head)
    adjustment, _, targets = problem(kind)
    hidden = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    wanted = [hidden, *adjustment.parameters(), *(head.parameters() if trainable_head else ())]
    for ours, whole in (
        (
            adjusted_cross_entropy(hidden, targets, adjustment, head=head, chunk_size=chunk_size),
            plain_cross_entropy(head(hidden), targets, adjustment),
        ),
        (
            negative_entropy(hidden, adjustment, head=head, chunk_size=chunk_size),
            plain_negative_entropy(head(hidden), adjustment),
        ),
    ):
        assert ours.item() == pytest.approx(whole.item(), abs=1e-12)
        for a, b in zip(torch.autograd.grad(3 * ours, wanted), torch.autograd.grad(3 * whole, wanted), strict=True):
            assert torch.allclose(a, b, rtol=0, atol=1e-12)


def test_logits_of_all_positions_never_exist_at_once():
    seen = []

    class Head(nn.Linear):
        def forward(self, hidden):
            seen.append(len(hidden))
            return super().forward(hidden)

    head = Head(2, 2**12, bias=False)
    rows = 3 * CHUNK_ELEMENTS // 2**12 + 5
    hidden = torch.randn(rows, 2, requires_grad=True)
    negative_entropy(hidden, head=head).backward()
    chosen, normaliser, _ = read_logits(hidden, torch.tensor([0]), torch.tensor([0]), head)
    (chosen.sum() + normaliser.sum()).backward()
    assert max(seen) * 2**12 <= CHUNK_ELEMENTS
    assert sum(seen) == 3 * rows


def test_surrogate_pass_gives_alpha_gradients_without_a_graph_of_the_states():
    head = nn.Linear(4, 5, dtype=torch.float64).requires_grad_(False)
    adjustment, _, targets = problem()
    hidden = torch.randn(6, 4, dtype=torch.float64)
    loss = adjusted_cross_entropy(hidden, targets, adjustment, head=head)
    assert torch.autograd.grad(loss, adjustment.logit_shift)[0].abs().sum() > 0


# ---- entropy target ------------------------------------------------------------------------------------------------


def test_rows_above_the_entropy_target_are_pushed_no_further():
    z = torch.tensor([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    value = negative_entropy(z, target=0.5, reduction="sum")
    low = -negative_entropy(z[1:].detach()).item()
    assert value.item() == pytest.approx(-(0.5 + low), abs=1e-12)
    value.backward()
    assert torch.equal(z.grad[0], torch.zeros(3, dtype=torch.float64))
    assert z.grad[1].abs().sum() > 0


# ---- label smoothing -----------------------------------------------------------------------------------------------


def smoothed(logits, targets, adjustment=None, eps=0.1, **kwargs):
    return adjusted_cross_entropy(logits, targets, adjustment, label_smoothing=eps, **kwargs)


def test_label_smoothing_worked_by_hand():
    # V = 2, p = (1/4, 3/4), y = 0: .8 ln 4 + .2 (ln 4 + ln 4/3) / 2 = .9 ln 4 + .1 ln 4/3; gradient p - q, q = (.9, .1)
    z = torch.tensor([[0.0, math.log(3.0)]], dtype=torch.float64, requires_grad=True)
    loss = smoothed(z, torch.tensor([0]), eps=0.2)
    assert loss.item() == pytest.approx(0.9 * math.log(4) + 0.1 * math.log(4 / 3), abs=1e-12)
    loss.backward()
    assert z.grad[0].tolist() == pytest.approx([0.25 - 0.9, 0.75 - 0.1], abs=1e-12)


def test_the_shifted_rows_of_a_known_fault_give_its_number():
    # tokens [0, 1, 0], eps .1, V = 2: position 0 predicts token 1, position 1 predicts token 0, each 10 nats ahead:
    # .9 * 4.54e-5 + .1 * 5.000045 = .500045; unshifted (positions 0, 1, 2 against tokens 0, 1, 0) gives 6.564413
    logits, tokens = torch.tensor([[0.0, 10.0], [10.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1, 0])
    assert smoothed(logits[:-1], tokens[1:]).item() == pytest.approx(0.500045, abs=1e-6)
    smoother = LabelSmoother(epsilon=0.1)
    for shift, ours in ((True, smoothed(logits[:-1], tokens[1:])), (False, smoothed(logits, tokens))):
        theirs = smoother({"logits": logits[None]}, tokens[None], shift_labels=shift)
        assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("eps", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("chunk_size", [1, 4])
def test_label_smoothing_through_head_and_adjustment_equals_torch(kind, form, eps, chunk_size):
    torch.manual_seed(3)
    head = nn.Linear(4, 5, dtype=torch.float64)
    adjustment, _, targets = problem(kind, form)
    hidden = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    wanted = [hidden, *head.parameters(), *(adjustment.parameters() if kind != "none" else ())]
    ours = smoothed(hidden, targets, adjustment, eps, head=head, chunk_size=chunk_size)
    whole = nn.functional.cross_entropy(adjustment(head(hidden)), targets, label_smoothing=eps)
    assert ours.item() == pytest.approx(whole.item(), abs=1e-12)
    for a, b in zip(torch.autograd.grad(3 * ours, wanted), torch.autograd.grad(3 * whole, wanted), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_label_smoothing_agrees_with_finite_differences(kind, form):
    torch.manual_seed(4)
    adjustment, _, targets = problem(kind, form)
    head = nn.Linear(4, 5, dtype=torch.float64)
    hidden = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)

    def value(h, weight, parameter, shift):
        probe, linear = LogitAdjustment(5, kind, form, dtype=torch.float64), nn.Linear(4, 5, dtype=torch.float64)
        probe._parameters["temperature_parameter"], probe._parameters["logit_shift"] = parameter, shift
        linear._parameters["weight"], linear._parameters["bias"] = weight, head.bias.detach()
        return smoothed(h, targets, probe, 0.3, head=linear, chunk_size=4)

    inputs = (hidden, head.weight, *adjustment.parameters())
    assert gradcheck(value, inputs, eps=1e-6, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_label_smoothing_counts_present_classes_alone(kind):
    # rows with 5, 3 and 2 options, the absent ones in different places
    adjustment, logits, _ = problem(kind, rows=3)
    present = torch.tensor([[True] * 5, [True, False, True, False, True], [False, False, False, True, True]])
    targets = torch.tensor([1, 4, 3])
    logits = logits.masked_fill(~present, -torch.inf).requires_grad_()
    total = smoothed(logits, targets, adjustment, reduction="sum")
    rows = []
    for z, keep, target in zip(logits, present, targets.tolist(), strict=True):
        adjusted = adjustment.select(torch.nonzero(keep).squeeze(-1))(z[keep])
        rows.append(nn.functional.cross_entropy(adjusted, keep[:target].sum(), label_smoothing=0.1))
    expected = torch.stack(rows).sum()
    assert total.item() == pytest.approx(expected.item(), abs=1e-12)
    (ours,), (theirs,) = torch.autograd.grad(total, logits), torch.autograd.grad(expected, logits)
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)
    if kind != "none":
        for gradient in torch.autograd.grad(smoothed(logits, targets, adjustment), list(adjustment.parameters())):
            assert torch.isfinite(gradient).all()


def test_label_smoothing_is_a_mean_over_positions_not_over_micro_batches():
    # one row 10 nats behind and three 10 nats ahead, eps .1, V = 2: log(1 + e^10) - .5 and log(1 + e^-10) + .5 a row,
    # so (9.500045 + 3 * .500045) / 4 = 2.750045; the mean of the two micro-batches' means would be 5.000045
    parts = [torch.tensor([[-10.0, 0.0]]).double(), torch.tensor([[10.0, 0.0]] * 3).double()]
    for z in parts:
        z.requires_grad_()
    total = sum(smoothed(z, torch.zeros(len(z), dtype=torch.int64), reduction="sum") for z in parts)
    assert (total / 4).item() == pytest.approx(2.750045, abs=1e-6)
    whole = smoothed(torch.cat(parts), torch.zeros(4, dtype=torch.int64))
    for a, b in zip(torch.autograd.grad(total / 4, parts), torch.autograd.grad(whole, parts), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("eps", [-0.1, 1.0, math.nan])
def test_label_smoothing_outside_its_range_is_refused(eps):
    with pytest.raises(ValueError, match=r"label_smoothing must lie in \[0, 1\)"):
        smoothed(torch.zeros(1, 2), torch.tensor([0]), eps=eps)


# ---- reading chosen logits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk_size", [1, 3, 100])
def test_read_logits_agrees_with_autograd(chunk_size):
    torch.manual_seed(2)
    head = nn.Linear(4, 7, dtype=torch.float64)
    hidden = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    rows, targets = torch.tensor([0, 0, 1, 4, 4, 4]), torch.tensor([3, 1, 0, 6, 6, 2])
    weights = torch.randn(6, dtype=torch.float64)
    wanted = [hidden, *head.parameters()]
    chosen, normaliser, entropy = read_logits(hidden, rows, targets, head, entropy=True, chunk_size=chunk_size)
    ours = ((chosen - normaliser[rows]) * weights).sum() + normaliser.square().sum()
    log_p = torch.log_softmax(head(hidden), -1)
    lse = torch.logsumexp(head(hidden), -1)
    whole = (log_p[rows, targets] * weights).sum() + lse.square().sum()
    assert ours.item() == pytest.approx(whole.item(), abs=1e-12)
    for a, b in zip(torch.autograd.grad(ours, wanted), torch.autograd.grad(whole, wanted), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)
    assert torch.allclose(entropy, torch.special.entr(log_p.exp()).sum(-1), rtol=0, atol=1e-12)


# ---- refused -------------------------------------------------------------------------------------------------------


def test_bad_targets_are_named():
    with pytest.raises(ValueError, match=r"target 3 of row 1 is outside \[0, 3\)"):
        adjusted_cross_entropy(torch.zeros(2, 3), torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="row 0: the target's logit is -inf"):
        adjusted_cross_entropy(torch.tensor([[-torch.inf, 0.0]]), torch.tensor([0]))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="targets has shape"):
        adjusted_cross_entropy(torch.zeros(2, 3), torch.tensor([0]))
    with pytest.raises(ValueError, match="expected logits with 4 classes"):
        negative_entropy(torch.zeros(2, 3), LogitAdjustment(4))
    with pytest.raises(ValueError, match="chunk_size"):
        negative_entropy(torch.zeros(2, 3), chunk_size=0)
