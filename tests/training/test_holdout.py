"""The held-out slice: its numbers by hand, and the same ones that scoring gives."""

import numpy as np
import pytest
import torch

from calmtune.scoring.options import score_items
from calmtune.training.holdout import HeldOutScores, selection_loss
from toy_training import questions, shake, trainer

P = np.array([[0.9, 0.1, 0.0], [0.6, 0.4, 0.0], [0.2, 0.3, 0.5], [0.25, 0.7, 0.05]])


def scores(labels=(0, 1, 2, 0), domains=("a", "a", "b", "b")):
    """Right, wrong, right, wrong at confidences .9, .6, .5, .7."""
    return HeldOutScores(P, P, np.array(labels), np.array([2, 2, 3, 3]), tuple(domains))


def test_accuracy_and_gaps_by_hand():
    assert scores().accuracy == 0.5
    gap, error = scores().gaps(by_domain=False)["all"]
    off = np.array([-0.1, 0.6, -0.5, 0.7])
    assert gap == pytest.approx(0.175)
    assert error == pytest.approx(np.sqrt((((off - 0.175) ** 2).sum() + 0.25) / 5 / 4))
    by_domain = scores().gaps(by_domain=True)
    assert {name: gap for name, (gap, _) in by_domain.items()} == pytest.approx({"a": 0.25, "b": 0.1})


def test_the_gaps_error_is_not_zero_for_one_item():
    one = HeldOutScores(P[:1], P[:1], np.array([0]), np.array([2]), ("a",))
    assert one.gaps(by_domain=True)["a"] == (pytest.approx(-0.1), pytest.approx(np.sqrt(0.25 / 2)))


def test_metrics_pooled_and_of_the_worst_domain():
    nll = -np.log([0.9, 0.4, 0.5, 0.25])
    assert scores().score("nll") == pytest.approx(nll.mean())
    assert scores().score("nll", "worst") == pytest.approx(nll[2:].mean())
    brier = [0.1**2 * 2, 0.6**2 * 2, 0.2**2 + 0.3**2 + 0.5**2, 0.75**2 + 0.7**2 + 0.05**2]
    assert scores().score("brier") == pytest.approx(np.mean(brier))
    # bins .5, .6, .7, .9 with one item each
    assert scores().score("conf_ece") == pytest.approx((0.1 + 0.6 + 0.5 + 0.7) / 4)


def test_an_accuracy_below_the_floor_outweighs_any_score():
    good, bad = scores(), scores(labels=(1, 0, 0, 2))
    assert selection_loss(good, "nll", "pooled", 0.5) == pytest.approx(good.score("nll"))
    assert selection_loss(bad, "nll", "pooled", bad.accuracy) < 100
    assert selection_loss(bad, "nll", "pooled", bad.accuracy + 0.1) > 100


@pytest.mark.parametrize("level", ["options", "vocabulary"])
def test_the_slice_is_read_as_scoring_reads(tmp_path, level):
    rows = [*questions(5, 7), *({**row, "id": f"b-{row['id']}"} for row in questions(4, 8, options=3))]
    made = shake(trainer(tmp_path, level=level, calibration=rows, per_device_eval_batch_size=2))
    made.model.train()
    ours = made.watch.held_out.score(made.model, made.adjustment)
    assert made.model.training
    from calmtune.training.datasets import as_rows

    theirs = score_items(
        made.model, as_rows(rows, "calibration_dataset"), made.renderer, adjustment=made.adjustment, level=level
    )
    for adjusted, found in ((False, ours.raw), (True, ours.adjusted)):
        np.testing.assert_allclose(found, theirs.probabilities(adjusted=adjusted), atol=2e-5)
    assert ours.labels.tolist() == theirs.labels.tolist()
    part = made.watch.held_out.score(made.model, made.adjustment, [7, 0])
    np.testing.assert_allclose(part.adjusted, ours.adjusted[[7, 0]], atol=1e-5)


def test_no_gradient_and_no_random_number_is_left_behind(tmp_path):
    made = trainer(tmp_path, calibration=questions(6, 7), lora={"lora_dropout": 0.5})
    made.model.train()
    state = torch.get_rng_state()
    made.watch.held_out.score(made.model, made.adjustment)
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in made.model.parameters())
