"""alpha = (l, tau): identity at the start, bounds, both forms, and folding into a head."""

import pytest
import torch

from calmtune.bilevel import LogitAdjustment


def moved(kind: str = "vector", form: str = "exp", classes: int = 5, seed: int = 0) -> LogitAdjustment:
    generator = torch.Generator().manual_seed(seed)
    adjustment = LogitAdjustment(classes, kind, form, dtype=torch.float64)  # type: ignore[arg-type]
    for parameter in adjustment.parameters():
        parameter.data.normal_(generator=generator)
    return adjustment


@pytest.mark.parametrize("kind", ["vector", "scalar", "none"])
def test_exp_form_starts_as_the_exact_identity(kind):
    z = torch.randn(7, 5)
    assert torch.equal(LogitAdjustment(5, kind)(z), z)


def test_worked_example():
    adjustment = LogitAdjustment(2, dtype=torch.float64)
    adjustment.temperature_parameter.data.copy_(torch.tensor([2.0, 4.0], dtype=torch.float64).log())
    adjustment.logit_shift.data.copy_(torch.tensor([1.0, -1.0]))
    z = torch.tensor([[6.0, 8.0]], dtype=torch.float64)
    assert torch.allclose(adjustment(z), torch.tensor([[4.0, 1.0]], dtype=torch.float64), rtol=0, atol=1e-12)


def test_sigmoid_form_only_softens_and_starts_near_the_identity():
    adjustment = LogitAdjustment(4, form="sigmoid")
    assert torch.all(adjustment.inverse_temperature > 0.98)
    assert torch.all(adjustment.inverse_temperature < 1)
    adjustment.temperature_parameter.data.fill_(50.0)
    assert torch.all(adjustment.inverse_temperature <= 1)


@pytest.mark.parametrize("form", ["exp", "sigmoid"])
def test_projection_keeps_tau_within_its_bounds(form):
    adjustment = LogitAdjustment(3, form=form, tau_max=4.0, dtype=torch.float64)
    adjustment.temperature_parameter.data.copy_(torch.tensor([-30.0, 0.1, 30.0], dtype=torch.float64))
    adjustment.project_()
    tau = adjustment.log_temperature.exp()
    assert tau.max() == pytest.approx(4.0)
    assert tau.min() == pytest.approx(0.25 if form == "exp" else 1.0)
    assert adjustment.temperature_parameter[1] == 0.1


def test_half_precision_logits_are_adjusted_in_float32():
    z = torch.tensor([[17.28, 17.31, 17.25, 17.22]]).bfloat16()
    assert LogitAdjustment(4)(z).dtype == torch.float32
    assert LogitAdjustment(4, "none")(z).dtype == torch.float32


def test_absent_classes_stay_absent():
    z = torch.tensor([[0.0, -torch.inf, 1.0, 2.0, 3.0]], dtype=torch.float64)
    assert torch.isneginf(moved()(z)[0, 1])
    assert not torch.isnan(moved()(z)).any()


@pytest.mark.parametrize("kind", ["vector", "scalar", "none"])
@pytest.mark.parametrize("bias", [None, torch.arange(5.0, dtype=torch.float64)])
def test_folded_head_gives_the_adjusted_logits(kind, bias):
    adjustment, weight = moved(kind), torch.randn(5, 8, dtype=torch.float64)
    hidden = torch.randn(3, 8, dtype=torch.float64)
    z = hidden @ weight.T + (0 if bias is None else bias)
    new_weight, new_bias = adjustment.fold(weight, bias)
    assert torch.allclose(hidden @ new_weight.T + new_bias, adjustment(z), rtol=0, atol=1e-12)


def test_select_is_the_adjustment_of_those_classes():
    adjustment, classes = moved(), torch.tensor([4, 1])
    z = torch.randn(2, 5, dtype=torch.float64)
    assert torch.allclose(adjustment.select(classes)(z[:, classes]), adjustment(z)[:, classes])


def test_summary_covers_all_or_chosen_classes():
    adjustment = LogitAdjustment(3, dtype=torch.float64)
    adjustment.temperature_parameter.data.copy_(torch.log(torch.tensor([0.5, 1.0, 2.0])))
    assert adjustment.summary()["tau_min"] == pytest.approx(0.5)
    assert adjustment.summary(torch.tensor([1, 2]))["tau_min"] == pytest.approx(1.0)
    assert LogitAdjustment(3, "none").summary() == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 0}, "num_classes"),
        ({"num_classes": 2, "kind": "matrix"}, "'vector', 'scalar' or 'none'"),
        ({"num_classes": 2, "form": "softplus"}, "'exp' or 'sigmoid'"),
        ({"num_classes": 2, "tau_max": 1.0}, "tau_max"),
        ({"num_classes": 2, "dtype": torch.bfloat16}, "float32 or float64"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LogitAdjustment(**arguments)


def test_logits_of_another_size_are_refused():
    with pytest.raises(ValueError, match="expected logits with 5 classes on the last axis, got 4"):
        LogitAdjustment(5)(torch.zeros(1, 4))
