"""The toy language of example 02: its probabilities, its true calibration error, and the fine-tuning on it."""

import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from calmtune.bilevel import LogitAdjustment
from calmtune.metrics import paired_difference

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

from toy_language.experiment import column, run_seed  # noqa: E402
from toy_language.finetune import BatchPass, batches, tune  # noqa: E402
from toy_language.language import WORDS, Domain, make_language  # noqa: E402
from toy_language.model import ToyModel  # noqa: E402
from toy_language.recipe import Recipe, Seeds, draw_data  # noqa: E402
from toy_language.truth import true_ece, true_figures  # noqa: E402


@pytest.fixture(scope="module")
def language():
    return make_language(3)


@pytest.fixture(scope="module")
def model(language):
    return ToyModel(language.relations, torch.Generator().manual_seed(0))


def keys(prompts):
    return set(map(tuple, prompts.tolist()))


def exact(values):
    return torch.tensor(values, dtype=torch.float64)


def domain(answers, weight):
    """A domain written by hand."""
    prompts = torch.zeros(len(weight), 3, dtype=torch.long)
    return Domain("hand", "ood", prompts, exact(weight), exact(answers))


# ---- the language ------------------------------------------------------------------------------------------------


def test_probabilities_of_prompts_and_answers_sum_to_one(language):
    for one in [*language.domains.values(), language.training]:
        assert one.weight.min() > 0
        assert one.answers.min() >= 0
        torch.testing.assert_close(one.weight.sum(), torch.tensor(1.0).double(), rtol=0, atol=1e-12)
        torch.testing.assert_close(one.answers.sum(-1), torch.ones(len(one.weight)).double(), rtol=0, atol=1e-12)


def test_held_out_prompts_and_training_prompts_part_the_grid(language):
    held_out, training = keys(language.domains["trained"].prompts), keys(language.training.prompts)
    assert not held_out & training
    assert len(held_out | training) == 4 * WORDS**2
    assert keys(language.domains["inputs"].prompts) == held_out


def test_a_shift_of_inputs_leaves_the_answers_and_changes_the_law(language):
    trained, inputs = language.domains["trained"], language.domains["inputs"]
    assert torch.equal(trained.prompts, inputs.prompts)
    torch.testing.assert_close(trained.answers, inputs.answers)
    assert (trained.weight - inputs.weight).abs().sum() > 0.3


def test_other_domains_have_relations_of_their_own(language):
    found = [set(language.domains[name].prompts[:, 0].tolist()) for name in ("trained", "dev", "near", "far", "unseen")]
    assert sum(map(len, found)) == len(set.union(*found)) == language.relations


def test_nearer_domains_keep_more_of_the_relations():
    def likeness(name):
        """Correlation of the log answers of the i-th relations, centred by prompt, over the training prompts."""
        total = []
        for seed in range(4):
            language = make_language(seed)
            ours, other = language.training, language.domains[name]
            row = {key: i for i, key in enumerate(map(tuple, other.prompts.tolist()))}
            first = int(other.prompts[:, 0].min())
            rows = [row[r + first, u, v] for r, u, v in ours.prompts.tolist()]
            a, b = (x.log() - x.log().mean(-1, keepdim=True) for x in (ours.answers, other.answers[rows]))
            total.append(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1].item())
        return np.mean(total)

    assert 0.98 > likeness("near") > likeness("dev") > likeness("far") > 0.3


def test_samples_follow_the_law():
    hand = domain([[0.9, 0.1], [0.2, 0.8]], [0.3, 0.7])
    hand = replace(hand, prompts=torch.tensor([[0, 0, 0], [1, 0, 0]]))
    prompts, answers = hand.sample(100_000, torch.Generator().manual_seed(0))
    first = prompts[:, 0] == 0
    assert abs(first.double().mean() - 0.3) < 0.01  # seven standard errors
    assert abs(answers[first].double().mean() - 0.1) < 0.012
    assert abs(answers[~first].double().mean() - 0.8) < 0.011


def test_the_same_seed_gives_the_same_language_and_another_one_another():
    a, b, c = (make_language(seed).domains["far"].answers for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


# ---- the true calibration error ----------------------------------------------------------------------------------


def test_a_model_that_says_the_truth_has_no_error(language):
    for one in language.domains.values():
        figures = true_figures(one.answers.log(), one)
        assert figures.ece == pytest.approx(0, abs=1e-12)
        assert figures.pointwise == pytest.approx(0, abs=1e-12)
        assert figures.divergence == pytest.approx(0, abs=1e-12)
        assert figures.accuracy == pytest.approx(float(one.weight @ one.answers.max(-1).values))


def test_a_constant_shift_is_the_error():
    truth = torch.linspace(0.2, 0.8, 61).double()
    weight = torch.softmax(torch.linspace(-1, 1, 61).double(), 0)
    assert true_ece(truth + 0.07, truth, weight) == pytest.approx(0.07, abs=1e-12)
    assert true_ece(truth - 0.07, truth, weight) == pytest.approx(0.07, abs=1e-12)


def test_figures_of_a_model_worked_by_hand():
    # answers .6/.4 and .5/.3/.2; the model says .9 for the right first answer and .75 for the second's second word
    hand = domain([[0.6, 0.4, 0.0], [0.5, 0.3, 0.2]], [0.25, 0.75])
    logits = exact([[0.90, 0.05, 0.05], [0.125, 0.75, 0.125]]).log()
    figures = true_figures(logits, replace(hand, answers=hand.answers.clamp(min=1e-300)))
    assert figures.accuracy == pytest.approx(0.25 * 0.6 + 0.75 * 0.3)
    assert figures.ece == figures.pointwise == pytest.approx(0.25 * 0.3 + 0.75 * 0.45)
    assert figures.gap == pytest.approx(0.25 * 0.3 + 0.75 * 0.45)
    first = 0.6 * math.log(0.6 / 0.90) + 0.4 * math.log(0.4 / 0.05)
    second = 0.5 * math.log(0.5 / 0.125) + 0.3 * math.log(0.3 / 0.75) + 0.2 * math.log(0.2 / 0.125)
    assert figures.divergence == pytest.approx(0.25 * first + 0.75 * second)


def test_within_a_bin_over_and_underconfidence_cancel_but_not_point_by_point():
    hand = domain([[0.75, 0.25], [0.55, 0.45]], [0.5, 0.5])
    figures = true_figures(exact([[0.65, 0.35]] * 2).log(), hand)
    assert figures.ece == pytest.approx(0, abs=1e-12)
    assert figures.pointwise == pytest.approx(0.1)


# ---- fine-tuning -------------------------------------------------------------------------------------------------


def test_the_data_sets_share_no_prompt(language):
    data = draw_data(language.training, 0)
    found = [
        keys(data.train[0]),
        keys(data.upper),
        keys(data.calibration[0]),
        keys(language.domains["trained"].prompts),
    ]
    assert sum(map(len, found)) == len(set.union(*found))


@pytest.mark.parametrize("upper", [False, True])
def test_a_pass_gives_the_slope_of_its_loss(language, model, upper):
    twin = ToyModel(language.relations, torch.Generator().manual_seed(0))
    twin.load_state_dict(model.state_dict())
    theta = twin.adapt(torch.Generator().manual_seed(1))
    for parameter in theta:  # away from B = 0, where half of the gradients vanish
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    twin.double()
    prompts, answers = language.training.sample(40, torch.Generator().manual_seed(3))
    adjustment = LogitAdjustment(WORDS, dtype=torch.float64)
    one = BatchPass(twin, theta, adjustment, prompts, None if upper else answers)
    result = one(theta_gradient=True)
    for parameter, gradient in zip([*theta, *adjustment.parameters()], [*result.theta, *result.alpha], strict=True):
        way = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
        values = []
        for side in (1e-5, -1e-5):
            parameter.data += side * way
            values.append(one(theta_gradient=False).value)
            parameter.data -= side * way
        assert (values[0] - values[1]) / 2e-5 == pytest.approx((gradient * way).sum().item(), rel=1e-5, abs=1e-9)


def test_lower_batches_do_not_depend_on_the_upper_size_and_pass_the_data_once_an_epoch(language):
    data = draw_data(language.training, 0)
    small, large = ([lower for lower, _ in batches(data, Recipe(steps=105, upper_batch=size), 0)] for size in (8, 64))
    for (x, y), (other_x, other_y) in zip(small, large, strict=True):
        assert torch.equal(x, other_x)
        assert torch.equal(y, other_y)

    def counted(parts):
        return Counter((*x, y) for xs, ys in parts for x, y in zip(xs.tolist(), ys.tolist(), strict=True))

    assert counted(small[:100]) == counted([data.train])


def test_every_method_starts_from_the_same_lower_loss(language, model):
    data = draw_data(language.training, 0)
    methods = ("sft", "regularization", "iterate", "calm")
    first = [tune(model, data, Recipe(method, steps=1), Seeds()).history[0]["lower_loss"] for method in methods]
    assert len(set(first)) == 1


def test_the_base_is_left_alone_and_equal_seeds_give_equal_models(language, model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    data, prompts = draw_data(language.training, 0), language.domains["far"].prompts
    recipe = Recipe("calm", steps=12, eta="auto")
    runs = [
        tune(model, data, recipe, seeds).logits(prompts, adjusted=True)
        for seeds in (Seeds(0, 0, 0), Seeds(0, 0, 0), Seeds(0, 1, 0), Seeds(0, 0, 1))
    ]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    assert not torch.equal(runs[0], runs[3])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_an_average_is_the_mean_of_the_last_steps(language, model, monkeypatch):
    shifts = []
    project = LogitAdjustment.project_

    def recorded(self):
        project(self)
        shifts.append(self.logit_shift.detach().clone())

    monkeypatch.setattr(LogitAdjustment, "project_", recorded)
    tuned = tune(model, draw_data(language.training, 0), Recipe("calm", steps=6, average=3), Seeds())
    assert len(shifts) == 6
    torch.testing.assert_close(tuned.adjustment.logit_shift.data, (shifts[3] + shifts[4] + shifts[5]) / 3)


def test_the_script_prints_a_row_for_each_reading():
    command = [
        sys.executable,
        str(EXAMPLES / "02_toy_language.py"),
        "--seeds",
        "1",
        "--processes",
        "1",
        "--methods",
        "sft",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.startswith("| ")]
    assert rows == ["method", "---", "base", "base + TS", "sft", "sft + TS"]


# ---- the paper's ordering, where it holds -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results():
    names = ("sft", "label smoothing", "regularization, no alpha", "iterate", "calm vector, eta auto")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield [run_seed(seed, names) for seed in range(5)]
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_calm_is_calibrated_out_of_domain_at_the_accuracy_of_plain_fine_tuning_and_iterate_loses_accuracy(results):
    """What of the paper's ordering holds here, by paired intervals over seeds.

    What does not (regularization with an alpha, scalar against vector, temperature scaling): docs/experiments.md.
    """
    calm = "calm vector, eta auto adjusted"

    def against(first, second, name, role):
        sides = ([column(results, row, name, role)] for row in (first, second))
        return paired_difference(np.mean, *sides)

    for other in ("base", "sft", "sft + TS", "label smoothing", "regularization, no alpha"):
        assert against(calm, other, "ece", "ood").high < -0.02, other
    assert against(calm, "base", "ece", "id").high < -0.1
    for role in ("id", "ood"):
        assert against(calm, "sft", "accuracy", role).low > -0.02
        for other in ("sft", calm):
            assert against("iterate adjusted", other, "accuracy", role).high < -0.02
