"""The trainer's step against a plain reference, accumulation, seeds, refusals."""

import copy
import math

import pytest
import torch
from transformers import TrainerCallback

from calmtune.bilevel import bome_step
from calmtune.training.trainer import NonFiniteError
from step_reference import directions, reference_losses
from toy_training import instructions, questions, shake, trainer


@pytest.mark.parametrize("level", ["options", "vocabulary"])
@pytest.mark.parametrize("adjustment", ["vector", "scalar", "none"])
@pytest.mark.parametrize("inner_steps", [1, 3])
@pytest.mark.parametrize("barrier", ["gradient", "residual"])
def test_step_equals_plain_autograd(tmp_path, level, adjustment, inner_steps, barrier):
    made = shake(
        trainer(
            tmp_path, level=level, adjustment=adjustment, inner_steps=inner_steps, barrier=barrier,
            inner_learning_rate=0.05, eta=2.0, upper_batch_size=5, chunk_size=3,
        )
    )  # fmt: skip
    ours, ids = directions(made)
    examples = {example.id: example for example in made.train_dataset}
    upper_ids = [identity for batch in made.method_step.upper_batches(0) for identity in batch["ids"]]
    above = {example.id: example for example in made.upper_examples}
    lower, upper = reference_losses(made, [examples[i] for i in ids], [above[i] for i in upper_ids])
    alpha = (
        [] if made.adjustment is None else [p.detach().double().requires_grad_() for p in made.adjustment.parameters()]
    )
    theta = [p.detach().clone().requires_grad_() for p in made._theta()]
    reference = bome_step(
        lower, upper, alpha, theta, inner_steps=inner_steps, inner_learning_rate=0.05, eta=2.0, barrier=barrier
    )
    logged = made._window.take()
    assert logged["multiplier"] == pytest.approx(reference.multiplier, rel=1e-3, abs=1e-5)
    assert logged["residual"] == pytest.approx(reference.residual, rel=1e-3, abs=1e-6)
    for got, expected in zip(ours, reference.direction, strict=True):
        scale = max(expected.abs().max().item(), 1e-3)
        assert (got.double() - expected.double()).abs().max().item() < 2e-4 * scale + 2e-6


def test_theta_alone_follows_the_task_when_the_upper_gradient_is_alphas(tmp_path):
    made = shake(trainer(tmp_path, upper_gradient="alpha", eta=1.0))
    ours, _ = directions(made)
    logged = made._window.take()
    plain = shake(trainer(tmp_path, upper_gradient="alpha", eta=1.0))
    batches, _ = plain.get_batch_samples(iter(plain.get_train_dataloader()), 1, plain.args.device)
    result = plain.method_step.lower_pass(batches, 0)(theta_gradient=True)
    for got, task in zip(ours[2:], result.theta, strict=True):
        assert torch.allclose(got, logged["multiplier"] * task, rtol=1e-4, atol=1e-7)


def test_the_upper_level_uses_no_label(tmp_path):
    relabelled = [{**row, "label": (row["label"] + 1) % 4} for row in questions(12, 2)]
    first, _ = directions(shake(trainer(tmp_path)))
    second, _ = directions(shake(trainer(tmp_path, upper=relabelled)))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("level", ["options", "vocabulary"])
def test_eight_micro_batches_of_one_equal_one_of_eight(tmp_path, level):
    rows = questions(8, 1) if level == "options" else instructions(8, 1)
    above = questions(8, 2) if level == "options" else instructions(8, 2)
    together = shake(trainer(tmp_path, train=rows, upper=above, per_device_train_batch_size=8))
    apart = shake(
        trainer(
            tmp_path,
            train=rows,
            upper=above,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=8,
            upper_batch_size=8,
        )
    )
    one, _ = directions(together)
    eight, _ = directions(apart)
    a, b = together._window.take(), apart._window.take()
    for name in ("multiplier", "lower_loss", "upper_loss", "residual"):
        assert a[name] == pytest.approx(b[name], rel=1e-4, abs=1e-6), name
    for x, y in zip(one, eight, strict=True):
        assert (x - y).abs().max() < 1e-5 * max(1.0, x.abs().max().item())


def test_theta_is_bit_exact_after_the_surrogate(tmp_path):
    made = shake(trainer(tmp_path, inner_steps=3, inner_learning_rate=1.0))
    before = copy.deepcopy([p.detach() for p in made._theta()])
    directions(made)
    assert all(torch.equal(a, b) for a, b in zip(before, made._theta(), strict=True))


def test_dropout_is_the_same_in_every_pass_over_the_lower_batch(tmp_path):
    made = shake(trainer(tmp_path, inner_learning_rate=1e-12, lora={"lora_dropout": 0.5}))
    directions(made)
    # with a surrogate that does not move, only different dropout could make the residual differ from zero
    assert abs(made._window.take()["residual"]) < 1e-6


def test_plain_fine_tuning_is_the_models_own_loss(tmp_path):
    made = shake(trainer(tmp_path, method="sft", train=instructions(4, 1), upper=[], level="vocabulary"))
    gradients, ids = directions(made)
    examples = {example.id: example for example in made.train_dataset}
    rows = [examples[i] for i in ids]
    width = max(len(row.input_ids) for row in rows)
    ids_tensor = torch.tensor([row.input_ids + [0] * (width - len(row.input_ids)) for row in rows])
    labels = torch.tensor(
        [
            [-100] * row.answer_start + row.input_ids[row.answer_start :] + [-100] * (width - len(row.input_ids))
            for row in rows
        ]
    )
    mask = torch.tensor([[1] * len(row.input_ids) + [0] * (width - len(row.input_ids)) for row in rows])
    made.model.zero_grad()
    loss = made.model(input_ids=ids_tensor, attention_mask=mask, labels=labels).loss
    loss.backward()
    assert made._window.take()["lower_loss"] == pytest.approx(loss.item(), rel=1e-5)
    for got, parameter in zip(gradients, made._theta(), strict=True):
        assert torch.allclose(got, parameter.grad, rtol=1e-3, atol=1e-6)


def test_bare_wrapped_and_merged_models_have_the_same_loss(tmp_path):
    made = shake(trainer(tmp_path, train=instructions(4, 1), upper=instructions(4, 2), level="vocabulary"))
    batch = made.data_collator(made.train_dataset)
    made.model.eval()
    wrapped = made.level.lower(made.model, batch, None, theta=False).item()
    with made.model.disable_adapter():
        bare = made.level.lower(made.model, batch, None, theta=False).item()
        inner = made.level.lower(made.model.get_base_model(), batch, None, theta=False).item()
    merged = made.level.lower(made.model.merge_and_unload(), batch, None, theta=False).item()
    assert merged == pytest.approx(wrapped, rel=1e-5)
    assert bare == pytest.approx(inner, rel=1e-6)
    assert abs(wrapped - bare) > 1e-3


def test_every_promised_value_is_logged(tmp_path):
    made = trainer(tmp_path, scoring="letter", level="vocabulary")
    made.train()
    line = made.state.log_history[0]
    promised = {
        "lower_loss",
        "upper_entropy",
        "upper_entropy_raw",
        "residual",
        "multiplier",
        "cosine",
        "upper_norm",
        "lower_norm",
    }
    promised |= {
        f"{name}_{part}" for name in ("tau", "shift", "option_tau", "option_shift") for part in ("min", "mean", "max")
    }
    assert promised | {"option_mass", "option_entropy_raw"} <= set(line)
    assert all(math.isfinite(value) for value in line.values())
    options = trainer(tmp_path)
    options.train()
    assert {"upper_entropy", "upper_entropy_raw", "token_entropy", "option_mass"} <= set(options.state.log_history[0])


class Poison(TrainerCallback):
    """Makes the base's head NaN before the given steps, and mends it afterwards."""

    def __init__(self, steps):
        self.steps, self.kept = steps, None

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        weight = model.get_base_model().model.norm.weight
        self.kept = weight.detach().clone()
        if state.global_step in self.steps:
            weight.data[0] = torch.nan

    def on_step_end(self, args, state, control, model=None, **kwargs):
        model.get_base_model().model.norm.weight.data.copy_(self.kept)


def test_a_step_that_is_not_finite_changes_nothing_and_names_its_items(tmp_path, caplog):
    made = trainer(tmp_path, callbacks=[Poison({1})], max_steps=2, max_bad_steps=3, learning_rate=0.1)
    after = []

    class Keep(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            after.append([p.detach().clone() for p in [*made._theta(), *made.adjustment.parameters()]])

    made.add_callback(Keep())
    made.train()
    assert all(torch.equal(a, b) for a, b in zip(*after, strict=True))
    assert "step 2 skipped" in caplog.text
    assert "q1-" in caplog.text
    assert made.state.log_history[-2]["bad_steps"] == 1


def test_too_many_such_steps_end_the_run_with_a_checkpoint(tmp_path):
    made = trainer(tmp_path, callbacks=[Poison({0, 1, 2, 3})], max_steps=4, max_bad_steps=2)
    with pytest.raises(NonFiniteError, match="2 such steps"):
        made.train()
    assert (tmp_path / "checkpoint-2" / "calmtune_state.json").is_file()


def test_nothing_to_calibrate_is_found_at_the_first_step(tmp_path):
    made = trainer(tmp_path, adjustment="none", upper_gradient="joint")
    for name, parameter in made.model.named_parameters():
        if "lora" in name:
            parameter.requires_grad_("norm" in name)
    made.model.get_base_model().model.embed_tokens.weight.requires_grad_(False)
    made.model.lm_head_probe = torch.nn.Parameter(torch.zeros(1))
    with pytest.raises(ValueError, match="entropy has no gradient"):
        made.train()


@pytest.mark.parametrize("level", ["options", "vocabulary"])
def test_evaluation_does_not_depend_on_the_batch_size(tmp_path, level):
    make = questions if level == "options" else instructions
    train, upper, rows = make(4, 1), make(4, 2), make(7, 5)
    found = []
    for size in (1, 3, 7):
        made = shake(trainer(tmp_path, train=train, upper=upper, evaluation=rows, per_device_eval_batch_size=size))
        found.append(made.evaluate())
        assert made.model.training
    batch = made.data_collator(made.eval_dataset)
    made.model.eval()
    whole = made.level.lower(made.model, batch, made.adjustment, theta=False).item() / made.level.lower_count(batch)
    assert all(metrics["eval_loss"] == pytest.approx(whole, rel=1e-5) for metrics in found)
    assert abs(found[0]["eval_loss_raw"] - whole) > 1e-3


def test_dropout_depends_on_the_seed_and_the_step_alone(tmp_path):
    found = []
    for state in (1, 2):
        made = shake(trainer(tmp_path, lora={"lora_dropout": 0.5}))
        torch.manual_seed(state)
        found.append(directions(made)[0])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    other, _ = directions(shake(trainer(tmp_path, lora={"lora_dropout": 0.5}, seed=43, data_seed=42)))
    assert not all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_a_batch_of_few_options_leaves_the_other_classes_of_alpha_alone(tmp_path):
    made = shake(
        trainer(tmp_path, train=questions(4, 1, options=3), upper=questions(4, 2, options=3) + questions(1, 6, 5))
    )
    made.upper_examples = [example for example in made.upper_examples if len(example.option_ids) == 3]
    assert made.adjustment.num_classes == 5
    (d_temperature, d_shift, *_), _ = directions(made)
    assert torch.equal(d_temperature[3:], torch.zeros(2))
    assert torch.equal(d_shift[3:], torch.zeros(2))
    assert d_temperature[:3].abs().min() > 0


def test_tau_stays_within_its_bound_while_training(tmp_path):
    made = trainer(tmp_path, alpha_learning_rate=100.0, tau_max=1.5)
    made.train()
    tau = made.adjustment.log_temperature.exp()
    assert tau.max().item() == pytest.approx(1.5, rel=1e-6)
    assert tau.min().item() >= 1 / 1.5 - 1e-6


@pytest.mark.parametrize("target", [None, 3.0])
@pytest.mark.parametrize("positions", ["first", "response"])
def test_upper_loss_is_the_mean_over_the_positions_that_are_asked_for(tmp_path, positions, target):
    made = shake(
        trainer(
            tmp_path,
            train=instructions(8, 1),
            upper=instructions(8, 2),
            entropy_positions=positions,
            entropy_target=target,
            upper_batch_size=5,
        )
    )
    batches = made.method_step.upper_batches(3)
    result = made.method_step.upper_pass(batches, 0)(theta_gradient=True)
    above = {example.id: example for example in made.upper_examples}
    expected = []
    for identity in (identity for batch in batches for identity in batch["ids"]):
        row = above[identity]
        with torch.no_grad():
            z = made.model(input_ids=torch.tensor([row.input_ids])).logits[0, row.answer_start - 1 : -1]
            entropy = torch.special.entr(torch.softmax(made.adjustment(z), -1)).sum(-1)
        expected += entropy[:1].tolist() if positions == "first" else entropy.tolist()
    counted = [entropy if target is None else min(entropy, target) for entropy in expected]
    assert result.value == pytest.approx(-sum(counted) / len(counted), rel=1e-5)
    if target is not None:
        assert min(expected) < target < max(expected)


def test_the_upper_batch_moves_on_with_the_steps(tmp_path):
    made = trainer(tmp_path, upper_batch_size=3)
    seen = [
        identity for step in range(4) for batch in made.method_step.upper_batches(step) for identity in batch["ids"]
    ]
    assert sorted(seen) == sorted(example.id for example in made.upper_examples)


def test_dropout_changes_with_the_step(tmp_path):
    made = shake(trainer(tmp_path, lora={"lora_dropout": 0.5}))
    batch = made.data_collator(made.train_dataset[:4])
    values = []
    for step in (0, 0, 1):
        made.state.global_step = step
        made.model.train()
        values.append(made.method_step.lower_pass([batch], made.state.global_step)(theta_gradient=False).value)
    assert values[0] == values[1] != values[2]


def test_alpha_comes_back_with_the_best_theta(tmp_path):
    made = trainer(
        tmp_path, evaluation=questions(6, 5), max_steps=4, save_strategy="steps", save_steps=1, eval_strategy="steps",
        eval_steps=1, load_best_model_at_end=True, metric_for_best_model="eval_loss",
        greater_is_better=True, learning_rate=0.3, alpha_learning_rate=5.0,
    )  # fmt: skip
    made.train()
    assert made.state.best_model_checkpoint != str(tmp_path / "checkpoint-4")
    assert made.evaluate()["eval_loss"] == pytest.approx(made.state.best_metric, rel=1e-6)


def test_skipped_steps_do_not_count_in_the_logged_loss(tmp_path):
    made = trainer(tmp_path, callbacks=[Poison({1})], max_steps=4, logging_steps=2)
    made.train()
    first, second, _ = made.state.log_history
    assert first["loss"] == first["lower_loss"] > 0
    whole = trainer(tmp_path, max_steps=1)
    whole.train()
    assert first["loss"] == pytest.approx(whole.state.log_history[0]["loss"], rel=1e-6)
    assert second["bad_steps"] == 1


def test_more_options_than_alpha_has_classes_are_refused_not_cut(tmp_path):
    made = trainer(tmp_path)
    with pytest.raises(ValueError, match="has 5 options, but this run was set up for at most 4"):
        made.evaluate(questions(2, 7, options=5))
