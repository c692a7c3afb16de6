"""Every method in the trainer: its step against plain autograd, what it refuses, and that it goes on where it was."""

import json
import tempfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from calmtune.bilevel import bome_step
from calmtune.training.arguments import CalmConfig
from step_reference import directions, reference_losses
from tiny import WORDS
from toy_training import WALL_CLOCK, StopAfter, instructions, questions, shake, trainer

RESUMED = {"max_steps": 9, "save_strategy": "steps", "save_steps": 2, "logging_steps": 3}


def believed(rows, *, but_every=4):
    """The rows with what the tiny model answers for gold, but for some of them: so that a temperature exists."""
    with tempfile.TemporaryDirectory() as folder:
        made = trainer(folder, eta="auto", calibration=rows)
    answers = made.watch.held_out.score(made.model, None).raw.argmax(axis=1)
    return [
        {**row, "label": int(answer + (index % but_every == 0)) % 4}
        for index, (row, answer) in enumerate(zip(rows, answers, strict=True))
    ]


AUTO = {"method": "calm", "eta": "auto", "eta_update_steps": 2, "eta_items": 5, "calibration": questions(11, 7)}
METHODS = [
    {"method": "label_smoothing"},
    {"method": "cft"},
    {"method": "rcft"},
    {"method": "regularization"},
    {"method": "iterate"},
    AUTO,
    {**AUTO, "eta_domains": "worst", "level": "vocabulary"},
    {"method": "calm", "eta": "auto", "eta_rows": "training", "eta_update_steps": 2},
    {
        **AUTO,
        "eta_control": "pull",
        "eta_gain": 2.0,
        "adjustment_start": "calibrated",
        "calibration": believed(questions(11, 7)),
    },
]
NAMES = [
    "label_smoothing",
    "cft",
    "rcft",
    "regularization",
    "iterate",
    "auto",
    "auto-worst",
    "prequential",
    "pull-warm",
]


def references(made, ids):
    """g and f of the step under way in float64, with alpha and theta as leaves."""
    examples = {example.id: example for example in made.train_dataset}
    above = {example.id: example for example in made.upper_examples}
    upper_ids = [identity for batch in made.method_step.upper_batches(0) for identity in batch["ids"]]
    lower, upper = reference_losses(made, [examples[i] for i in ids], [above[i] for i in upper_ids])
    alpha = [] if made.adjustment is None else list(made.adjustment.parameters())
    return (
        lower,
        upper,
        [p.detach().double().requires_grad_() for p in alpha],
        [p.detach().clone().requires_grad_() for p in made._theta()],
    )


def close(got, expected):
    for ours, theirs in zip(got, expected, strict=True):
        scale = max(theirs.abs().max().item(), 1e-3)
        assert (ours.double() - theirs.double()).abs().max().item() < 2e-4 * scale + 2e-6


@pytest.mark.parametrize("level", ["options", "vocabulary"])
def test_regularization_is_the_gradient_of_the_weighted_sum(tmp_path, level):
    made = shake(trainer(tmp_path, method="regularization", entropy_weight=0.7, level=level, upper_batch_size=5))
    ours, ids = directions(made)
    lower, upper, alpha, theta = references(made, ids)
    close(ours, torch.autograd.grad(lower(alpha, theta) + 0.7 * upper(alpha, theta), [*alpha, *theta]))


def test_iterate_moves_theta_by_the_task_and_then_hands_over_the_entropys_gradient(tmp_path):
    made = shake(trainer(tmp_path, method="iterate", optim="sgd", learning_rate=0.1, max_grad_norm=0.0))
    start = [p.detach().clone() for p in made._theta()]
    alpha_start = [p.detach().clone() for p in made.adjustment.parameters()]
    made.create_optimizer()
    made.accelerator.gradient_state._set_sync_gradients(True)
    made.optimizer = made.accelerator.prepare(made.optimizer)
    batches, _ = made.get_batch_samples(iter(made.get_train_dataloader()), 1, made.args.device)
    made.training_step(made.model, batches[0])
    examples = {example.id: example for example in made.train_dataset}
    above = {example.id: example for example in made.upper_examples}
    upper_ids = [identity for batch in made.method_step.upper_batches(0) for identity in batch["ids"]]
    lower, upper = reference_losses(made, [examples[i] for i in batches[0]["ids"]], [above[i] for i in upper_ids])
    alpha = [p.double().requires_grad_() for p in alpha_start]
    theta = [p.clone().requires_grad_() for p in start]
    task = torch.autograd.grad(lower(alpha, theta), theta)
    moved = [(p - 0.1 * g).detach().requires_grad_() for p, g in zip(theta, task, strict=True)]
    for here, expected in zip(made._theta(), moved, strict=True):
        assert torch.allclose(here, expected, atol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(made.adjustment.parameters(), alpha_start, strict=True))
    got = [p.grad for p in [*made.adjustment.parameters(), *made._theta()]]
    close(got, torch.autograd.grad(upper(alpha, moved), [*alpha, *moved]))


@pytest.mark.parametrize("level", ["options", "vocabulary"])
def test_label_smoothing_mixes_the_loss_with_its_mean_over_the_classes(tmp_path, level):
    smooth = shake(trainer(tmp_path, method="label_smoothing", label_smoothing_factor=0.3, level=level))
    ours, ids = directions(smooth)
    lower, _, _, theta = references(smooth, ids)
    # the loss is linear in the target: eps / K of the losses towards each class beside 1 - eps of the gold's
    made = shake(trainer(tmp_path, method="sft", level=level))
    batch = made.data_collator([example for i in ids for example in made.train_dataset if example.id == i])
    terms, classes = [], 4 if level == "options" else made.model.get_output_embeddings().weight.shape[0]
    key = "labels" if level == "options" else "token_target"
    count = made.level.lower_count(batch)
    for k in range(classes):
        terms.append(
            made.level.lower(made.model, {**batch, key: torch.full_like(batch[key], k)}, None, theta=True) / count
        )
    spread = torch.autograd.grad(sum(terms) / classes, made._theta())
    gold = torch.autograd.grad(lower([], theta), theta)
    close(ours, [0.7 * g + 0.3 * s for g, s in zip(gold, spread, strict=True)])


def test_cft_counts_each_question_once(tmp_path):
    made = shake(trainer(tmp_path, method="cft", chunk_size=3))
    ours, ids = directions(made)
    examples = {example.id: example for example in made.train_dataset}
    gradients = []
    for identity in ids:
        lower, _ = reference_losses(made, [examples[identity]], [])
        theta = [p.detach().clone().requires_grad_() for p in made._theta()]
        gradients.append(torch.autograd.grad(lower([], theta), theta))
    close(ours, [torch.stack(parts).mean(0) for parts in zip(*gradients, strict=True)])
    lengths = {len(examples[i].input_ids) - examples[i].answer_start for i in ids}
    assert len(lengths) > 1  # else a mean over tokens would be the same


def test_rcft_pulls_towards_the_bins_of_the_whole_epoch(tmp_path):
    made = shake(trainer(tmp_path, method="rcft", rcft_weight=2.0, max_steps=4))
    made.create_optimizer()
    made.state.max_steps = 4
    made._begin_epoch(0)
    table = made.lower.table
    items = {item.id: item for item in made.train_dataset}
    assert set(table.bins) == set(items)
    probabilities = {}
    for item in items.values():
        batch = made.data_collator([item])
        scores, _, _ = made.level._scores(made.model.eval(), batch, theta=False, entropy=False)
        probabilities[item.id] = torch.softmax(scores[0, : len(item.option_ids)], -1)
    for identity, p in probabilities.items():
        assert table.bins[identity] == min(int(p.max() * 10), 9)
    for b in range(10):
        members = [i for i, one in table.bins.items() if one == b]
        assert table.count[b] == len(members)
        right = [int(probabilities[i].argmax()) == items[i].label for i in members]
        assert table.accuracy[b] == (sum(right) / len(right) if right else None)
    ours, ids = directions(made)
    batch = made.data_collator([items[i] for i in ids])
    made.lower.weight, made.lower.parts = 0.0, {}
    answer = torch.autograd.grad(made.lower.lower(made.model, batch, None, theta=True) / 4, made._theta())
    made.lower.weight = 1.0
    both = torch.autograd.grad(made.lower.lower(made.model, batch, None, theta=True) / 4, made._theta())
    close(ours, [a + 2.0 * (b - a) for a, b in zip(answer, both, strict=True)])


def test_rcft_bins_only_what_a_short_run_will_show(tmp_path):
    made = trainer(tmp_path, method="rcft", max_steps=2)
    shown = []
    made.train()
    loader = made.get_train_dataloader()
    for batch in list(loader)[:2]:
        shown += batch["ids"]
    assert set(made.lower.table.bins) == set(shown)


@pytest.mark.parametrize("step", [3, 5])  # resumed within an epoch of 4 steps, and at its end
@pytest.mark.parametrize("settings", METHODS, ids=NAMES)
def test_a_stopped_run_of_any_method_goes_on_bit_for_bit(tmp_path, settings, step):
    whole = trainer(tmp_path / "whole", **RESUMED, **settings)
    whole.train()
    first = trainer(tmp_path / "stopped", **RESUMED, **settings, callbacks=[StopAfter(step)])
    with pytest.raises(KeyboardInterrupt):
        first.train()
    second = trainer(tmp_path / "stopped", **RESUMED, **settings)
    second.train(resume_from_checkpoint=True)
    for ours, theirs in zip(second._theta(), whole._theta(), strict=True):
        assert torch.equal(ours, theirs)
    for ours, theirs in zip(
        *[made.adjustment.parameters() if made.adjustment else () for made in (second, whole)], strict=True
    ):
        assert torch.equal(ours, theirs)
    logs = [
        [{k: v for k, v in line.items() if k not in WALL_CLOCK} for line in made.state.log_history]
        for made in (second, whole)
    ]
    assert logs[0] == logs[1]


def test_eta_auto_moves_eta_by_the_gap_and_slows_the_direction_by_its_multiplier(tmp_path):
    made = shake(trainer(tmp_path, **AUTO))
    ours, _ = directions(made)
    logged = made._window.take()
    assert (logged["eta"] < 1.0) == (logged["gap"] > 0)
    plain = shake(trainer(tmp_path, eta=logged["eta"]))
    theirs, _ = directions(plain)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one * (1 + logged["multiplier"]), other, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("level", ["options", "vocabulary"])
def test_the_pull_multiplies_the_upper_loss_with_its_sign(tmp_path, level):
    made = shake(trainer(tmp_path, **AUTO, level=level, eta_control="pull", eta_gain=0.7, eta_start=0.8))
    ours, ids = directions(made)
    pull = made._window.take()["pull"]
    assert 0 < abs(pull) < 1
    lower, upper, alpha, theta = references(made, ids)
    settings = {"inner_learning_rate": made.args.inner_learning_rate, "eta": 0.8}
    close(ours, bome_step(lower, lambda a, t: pull * upper(a, t), alpha, theta, **settings).direction)


def test_training_rows_are_read_before_the_step_that_trains_on_them(tmp_path):
    made = shake(
        trainer(
            tmp_path, method="calm", eta="auto", eta_rows="training", eta_update_steps=2, inner_steps=3, max_steps=4,
            gradient_accumulation_steps=2, per_device_train_batch_size=2,
        )
    )  # fmt: skip
    read, taken, step = [], made.watch.before_seen.take, made._step
    rows = replace(made.watch.held_out, items=made.train_dataset)
    places = {example.id: place for place, example in enumerate(made.train_dataset)}
    expected = []

    def measured(batches):
        ids = [identity for batch in batches for identity in batch["ids"]]
        scores = rows.score(made.model, made.adjustment, [places[identity] for identity in ids])
        expected.append(scores.adjusted.max(1) - (scores.adjusted.argmax(1) == scores.labels))
        return step(batches)

    made._step = measured
    made.watch.before_seen.take = lambda: read.append(taken()) or read[-1]
    made.train()
    assert read[0] is None  # nothing was trained on before the first step
    gaps = np.concatenate(expected[:2])
    assert read[1][0] == pytest.approx(gaps.mean(), abs=1e-5)
    spread = np.square(gaps - gaps.mean()).sum() + 0.25
    assert read[1][1] == pytest.approx(np.sqrt(spread / 9 / 8), abs=1e-5)
    assert made.watch.controller.gap is not None


def test_questions_under_foreign_options_count_by_their_share(tmp_path):
    settings = {**AUTO, "eta_control": "pull", "eta_gain": 0.5, "eta_items": 11}
    plain, mixed = (shake(trainer(tmp_path, **settings, eta_shuffled=share)) for share in (0.0, 0.25))
    for made in (plain, mixed):
        made.watch.before_step(0)
    confidence = mixed.watch.shuffled.score(mixed.model, mixed.adjustment).adjusted.max(axis=1)
    # the filter starts from 0 with a wide prior, so the measured gaps are compared, not the filtered ones
    measured = [made.watch.before_step(2) for made in (plain, mixed)]
    assert measured[1]["gap_shuffled"] == pytest.approx(confidence.mean() - 0.25)
    blended = 0.75 * measured[0]["gap_measured"] + 0.25 * (confidence.mean() - 0.25)
    assert measured[1]["gap_measured"] == pytest.approx(blended)


def test_where_the_worst_domain_decides_every_domain_is_read_each_time(tmp_path):
    rows = [{**row, "domain": "rare" if index == 0 else "common"} for index, row in enumerate(questions(20, 7))]
    made = trainer(tmp_path, **{**AUTO, "calibration": rows, "eta_domains": "worst", "eta_items": 6})
    for turn in range(4):
        chosen = [made.watch.held_out.items[index].domain for index in made.watch._turn(turn)]
        assert chosen.count("rare") == 1
        assert chosen.count("common") == 3


@pytest.mark.parametrize("adjustment", ["vector", "scalar"])
def test_a_calibrated_start_is_the_temperature_of_the_calibration_rows(tmp_path, adjustment):
    rows = believed(questions(40, 7))
    made = trainer(tmp_path, adjustment=adjustment, adjustment_start="calibrated", calibration=rows, max_steps=1)
    raw = np.log(made.watch.held_out.score(made.model, None).raw)
    labels = made.watch.held_out.score(made.model, None).labels
    grid = np.linspace(-2.3, 2.3, 20001)
    nll = [
        -(raw / np.exp(u) - logsumexp(raw / np.exp(u), axis=1, keepdims=True))[range(40), labels].mean() for u in grid
    ]
    made.watch.start()
    started = made.adjustment.log_temperature
    assert torch.allclose(started, torch.full_like(started, grid[int(np.argmin(nll))]), atol=3e-4)
    assert not made.adjustment.logit_shift.any()


def test_the_best_checkpoint_is_the_one_with_the_lowest_selection_loss(tmp_path):
    made = trainer(
        tmp_path, calibration=questions(12, 7), max_steps=6, save_strategy="steps", save_steps=1, eval_strategy="steps",
        eval_steps=1, load_best_model_at_end=True, learning_rate=0.1, alpha_learning_rate=2.0,
        selection_accuracy_drop=1.0,
    )  # fmt: skip
    made.train()
    measured = [line["eval_selection_loss"] for line in made.state.log_history if "eval_selection_loss" in line]
    assert len(measured) == 6
    assert len(set(measured)) > 1
    assert made.state.best_metric == min(measured)
    assert made.evaluate()["eval_selection_loss"] == pytest.approx(min(measured), rel=1e-5)


def test_a_checkpoint_that_forgets_is_not_chosen(tmp_path):
    settings = {
        "calibration": questions(12, 7), "max_steps": 6, "save_strategy": "steps", "save_steps": 1,
        "eval_strategy": "steps", "eval_steps": 1, "load_best_model_at_end": True, "learning_rate": 0.1,
        "alpha_learning_rate": 2.0,
    }  # fmt: skip
    strict = trainer(tmp_path, **settings, selection_accuracy_drop=0.0)
    strict.train()
    start = strict.watch.start_accuracy
    log = [line for line in strict.state.log_history if "eval_selection_loss" in line]
    for line in log:
        forgets = line["eval_accuracy"] < start - 1e-12
        assert (line["eval_selection_loss"] > 50) == forgets
    assert {line["eval_accuracy"] < start for line in log} == {True, False}, "the case is not one where it matters"


def test_transformers_default_would_keep_the_worst(tmp_path):
    common = {"output_dir": str(tmp_path), "load_best_model_at_end": True, "eval_strategy": "steps", "use_cpu": True}
    assert CalmConfig(**common).greater_is_better is False
    assert CalmConfig(**common).metric_for_best_model == "selection_loss"
    assert CalmConfig(**common, metric_for_best_model="eval_nll").greater_is_better is False
    assert CalmConfig(**common, metric_for_best_model="accuracy").greater_is_better is True
    assert CalmConfig(**common, metric_for_best_model="nll", greater_is_better=True).greater_is_better is True


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"method": "cft", "train": instructions(8, 1)},
            "cft needs questions, with options or open ones, but row 'i1-0' is another kind",
        ),
        ({"method": "rcft", "train": instructions(8, 1)}, "rcft needs questions with options"),
        ({"eta": "auto"}, "calibration_dataset is empty"),
        ({"eta": "auto", "calibration": instructions(4, 3)}, "calibration_dataset needs questions with options"),
        ({"eta": "auto", "calibration": questions(4, 1)}, "also in train_dataset|questions? .*in both|share"),
        (
            {
                "eta": "auto",
                "eta_shuffled": 0.5,
                "calibration": [{**row, "choices": WORDS[:2], "label": 0} for row in questions(4, 7)],
            },
            "eta_shuffled: only 0 of 4 calibration rows",
        ),
        ({"method": "iterate", "upper": []}, "upper_dataset is empty"),
        ({"method": "regularization", "adjustment": "none", "level": "options", "upper": []}, "upper_dataset is empty"),
    ],
)
def test_data_that_a_method_cannot_use_is_refused_before_training(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "sgd"}, "method: expected one of calm, sft, label_smoothing, cft, rcft, regularization, iterate"),
        ({"method": "sft", "eta": "auto"}, "eta: auto belongs to method: calm"),
        ({"eta": "fast"}, "eta: expected a finite number >= 0 or auto, got 'fast'"),
        ({"eta_max": 5.0, "eta_items": 8}, "eta_max, eta_items: belongs to eta: auto, and eta is 1.0"),
        ({"eta": "auto", "eta_min": 2.0}, "eta_min <= eta_start <= eta_max, got 2.0, 1.0, 100.0"),
        ({"eta": "auto", "eta_gain": 3.0}, "eta_gain: belongs to eta_control: pull"),
        ({"eta": "auto", "eta_control": "pull", "eta_gain": 0.0}, "eta_gain: expected a finite number > 0"),
        ({"eta": "auto", "eta_shuffled": 1.0}, "eta_shuffled: expected a share from 0 to below 1"),
        ({"eta": "auto", "eta_rows": "training", "level": "vocabulary"}, "eta_rows: training reads the options"),
        ({"eta_control": "pull"}, "eta_control: belongs to eta: auto"),
        ({"adjustment_start": "calibrated", "adjustment": "none"}, "adjustment_start: calibrated needs an adjustment"),
        ({"adjustment_start": "calibrated", "method": "sft"}, "adjustment_start: calibrated needs an adjustment"),
        ({"adjustment_start": "calibrated", "level": "vocabulary"}, "use level: options, or scoring: letter"),
        ({"method": "cft", "level": "options"}, "level: cft is the cross-entropy"),
        ({"method": "rcft", "level": "vocabulary"}, "level: rcft needs the confidence"),
        ({"entropy_weight": 0.5}, "entropy_weight: belongs to method: regularization"),
        ({"method": "regularization", "entropy_weight": -1.0}, "entropy_weight: expected a finite number >= 0"),
        ({"method": "label_smoothing", "label_smoothing_factor": 1.0}, r"label_smoothing_factor: expected .* \[0, 1\)"),
        ({"method": "iterate", "upper_gradient": "alpha"}, "upper_gradient: alpha belongs to method: calm"),
        ({"metric_for_best_model": "eval_gap"}, "the gap is best at 0 and not at an end"),
        ({"selection_metric": "ece"}, "selection_metric: expected one of nll, brier, conf_ece"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        CalmConfig(str(tmp_path), use_cpu=True, **settings)


def test_the_watch_is_in_the_log_and_in_the_checkpoint(tmp_path):
    made = trainer(tmp_path, **AUTO, max_steps=4, save_strategy="steps", save_steps=4, logging_steps=1)
    made.train()
    moved = [line for line in made.state.log_history if "eta" in line]
    assert [line["step"] for line in moved] == [1, 3]
    assert {"gap", "gap_measured"} <= moved[0].keys()
    state = json.loads((tmp_path / "checkpoint-4" / "calmtune_state.json").read_text())
    assert state["watch"]["controller"]["eta"] == moved[-1]["eta"]


@pytest.mark.parametrize("method", ["label_smoothing", "cft", "rcft", "regularization", "iterate"])
def test_four_micro_batches_of_one_are_one_batch_of_four(tmp_path, method):
    common = {"method": method, "max_steps": 3, "optim": "sgd", "learning_rate": 0.05}
    together = trainer(tmp_path / "a", **common, per_device_train_batch_size=4)
    apart = trainer(
        tmp_path / "b", **common, per_device_train_batch_size=1, gradient_accumulation_steps=4, upper_batch_size=4
    )
    for made in (together, apart):
        made.train()
    for one, other in zip(together._theta(), apart._theta(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_the_checkpoint_that_was_chosen_is_on_record(tmp_path):
    made = trainer(
        tmp_path, calibration=questions(12, 7), max_steps=3, save_strategy="steps", save_steps=1, eval_strategy="steps",
        eval_steps=1, load_best_model_at_end=True, selection_accuracy_drop=1.0,
    )  # fmt: skip
    made.train()
    made.save_model()
    record = json.loads((tmp_path / "calibration.json").read_text())["checkpoint"]
    assert made.state.best_model_checkpoint.endswith(f"checkpoint-{record['step']}")
    assert (record["value"], record["start_accuracy"]) == (made.state.best_metric, made.watch.start_accuracy)


def test_calibration_rows_wider_than_a_vector_alpha_are_refused(tmp_path):
    with pytest.raises(ValueError, match="has 5 options, but the training rows have at most 4"):
        trainer(tmp_path, calibration=questions(4, 7, options=5))
    trainer(tmp_path, calibration=questions(4, 7, options=5), adjustment="scalar")
