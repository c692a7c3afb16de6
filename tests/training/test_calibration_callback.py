"""The callback: training is the same bit for bit, its figures are scoring's, and they arrive where figures go."""

import json

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Trainer, TrainerCallback, TrainingArguments

from calmtune.data.prompts import PromptStyle, Renderer
from calmtune.metrics import expected_calibration_error, negative_log_likelihood
from calmtune.scoring.options import score_items
from calmtune.training.calibration_callback import CalibrationCallback
from calmtune.training.datasets import as_rows
from tiny import tiny_gpt2, tiny_llama, word_tokenizer
from toy_training import questions

ROWS = questions(9, 3)


def begin(callback, made):
    """The event as the loop sends it."""
    parts = {"model": made.model, "processing_class": made.processing_class}
    callback.on_train_begin(made.args, made.state, made.control, **parts)


class Seen(TrainerCallback):
    """What a tracker is told."""

    def __init__(self):
        self.logs = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.append((state.global_step, dict(logs)))


def sequences(tokenizer, count=24):
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(5, len(tokenizer), (count, 7), generator=generator).tolist()
    return [{"input_ids": one, "labels": one} for one in ids]


def plain_trainer(folder, *, peft=False, **settings):
    """transformers' own Trainer with dropout, so that a disturbed generator changes the weights."""
    tokenizer = word_tokenizer()
    model = tiny_gpt2(len(tokenizer))
    if peft:
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", target_modules=["c_attn"], lora_dropout=0.3))
    args = TrainingArguments(
        str(folder), max_steps=4, per_device_train_batch_size=4, per_device_eval_batch_size=4, learning_rate=1e-2,
        logging_steps=2, report_to=[], use_cpu=True, disable_tqdm=True, seed=1, **{"save_strategy": "no", **settings},
    )  # fmt: skip
    return Trainer(model, args, train_dataset=sequences(tokenizer), eval_dataset=sequences(tokenizer, 4),
                   processing_class=tokenizer)  # fmt: skip


def sft_trainer(folder):
    """TRL's trainer with LoRA, on a Llama."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    tokenizer = word_tokenizer()
    args = SFTConfig(
        str(folder), max_steps=4, per_device_train_batch_size=4, learning_rate=1e-2, logging_steps=2, report_to=[],
        use_cpu=True, bf16=False, disable_tqdm=True, save_strategy="no", seed=1, max_length=32,
    )  # fmt: skip
    texts = Dataset.from_list([{"text": f"what is the {one} ?"} for one in ("sky", "sea", "red", "blue", "deep")] * 4)
    lora = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"], lora_dropout=0.3)
    return SFTTrainer(
        tiny_llama(len(tokenizer)), args, train_dataset=texts, processing_class=tokenizer, peft_config=lora
    )


MAKERS = {
    "trainer": plain_trainer,
    "trainer and PEFT": lambda folder: plain_trainer(folder, peft=True),
    "TRL's SFTTrainer": sft_trainer,
}


@pytest.mark.parametrize("name", list(MAKERS))
def test_training_is_bit_for_bit_the_same(tmp_path, name):
    if name.startswith("TRL"):
        pytest.importorskip("trl", reason="TRL is not installed")
    # one after the other: a trainer seeds the generators when it is made
    without = MAKERS[name](tmp_path / "a")
    without.train()
    with_it = MAKERS[name](tmp_path / "b")
    callback = CalibrationCallback(with_it, ROWS, every_n_steps=1)
    with_it.add_callback(callback)
    with_it.train()
    theirs, ours = without.model.state_dict(), with_it.model.state_dict()
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[key], ours[key]) for key in theirs)
    moved = callback.history[0]["nll"] != callback.history[-1]["nll"]
    assert moved, "the test says nothing about a model that does not learn"
    assert [one["step"] for one in callback.history] == [0, 1, 2, 3, 4]
    # what the trainer logs itself is untouched too
    volatile = ("runtime", "per_second", "time")
    own = [
        [
            {key: value for key, value in record.items() if not any(word in key for word in volatile)}
            for record in one.state.log_history
            if not any(key.startswith("eval_mcqa") for key in record)
        ]
        for one in (without, with_it)
    ]
    assert own[0] == own[1]
    assert any("loss" in record for record in own[0])


def test_modes_gradients_and_generators_are_left_as_they_were(tmp_path):
    made = plain_trainer(tmp_path)
    made.model.train()
    made.model.transformer.drop.eval()  # a module in another mode than the rest
    callback = CalibrationCallback(made, ROWS)
    before, state = [module.training for module in made.model.modules()], torch.get_rng_state()
    numpy_state = np.random.get_state()[1].tolist()
    made.state.global_step = 7
    callback.on_train_begin(
        made.args, made.state, made.control, model=made.model, processing_class=made.processing_class
    )
    assert [module.training for module in made.model.modules()] == before
    assert torch.equal(torch.get_rng_state(), state)
    assert np.random.get_state()[1].tolist() == numpy_state
    assert all(parameter.grad is None for parameter in made.model.parameters())


@pytest.mark.parametrize("scoring", ["text", "letter"])
def test_the_figures_are_those_of_scoring(tmp_path, scoring):
    made = plain_trainer(tmp_path)
    callback = CalibrationCallback(made, ROWS, scoring=scoring, draw=False)
    callback.on_train_begin(
        made.args, made.state, made.control, model=made.model, processing_class=made.processing_class
    )
    found = callback.history[0]
    rows = as_rows(ROWS, "rows")
    said = score_items(made.model, rows, Renderer(made.processing_class, PromptStyle(scoring)))
    confidence, correct = said.confidence_and_correct()
    assert found["conf_ece"] == pytest.approx(expected_calibration_error(confidence, correct), abs=1e-5)
    assert found["nll"] == pytest.approx(negative_log_likelihood(said.probabilities(), said.labels), abs=1e-5)
    assert found["accuracy"] == pytest.approx(correct.mean())
    assert found["gap"] == pytest.approx(confidence.mean() - correct.mean(), abs=1e-5)
    assert found["n"] == len(ROWS)
    assert found["conf_ece_low"] <= found["conf_ece_high"]
    assert 0 < found["cw_ece"] < 1


def test_figures_arrive_in_the_log_the_trackers_the_evaluation_and_as_pictures(tmp_path):
    made = plain_trainer(tmp_path, eval_strategy="steps", eval_steps=2)
    seen = Seen()
    made.add_callback(seen)
    made.add_callback(CalibrationCallback(made, ROWS))
    made.train()
    logged = {record["step"]: record for record in made.state.log_history if "eval_mcqa_conf_ece" in record}
    assert sorted(logged) == [0, 2, 4]
    assert {"eval_mcqa_cw_ece", "eval_mcqa_nll", "eval_mcqa_gap", "eval_mcqa_accuracy"} <= set(logged[4])
    assert [step for step, logs in seen.logs if "eval_mcqa_nll" in logs] == [0, 2, 4]
    # the loop still writes its own log at these steps
    assert [record["step"] for record in made.state.log_history if "loss" in record] == [2, 4]
    pictures = sorted(path.name for path in (tmp_path / "calibration").iterdir())
    assert pictures == ["step-000000.png", "step-000002.png", "step-000004.png"]
    assert (tmp_path / "calibration" / pictures[0]).read_bytes().startswith(b"\x89PNG")
    # an evaluation by hand has them too, measured anew although the step is the same
    torch.nn.init.normal_(made.model.lm_head.weight)
    again = made.evaluate()
    assert again["eval_mcqa_nll"] != logged[4]["eval_mcqa_nll"]
    json.dumps(made.state.log_history)


def test_the_best_checkpoint_can_be_chosen_by_it(tmp_path):
    settings = {"eval_strategy": "steps", "eval_steps": 1, "load_best_model_at_end": True,
                "metric_for_best_model": "eval_mcqa_nll", "greater_is_better": False,
                "save_strategy": "steps", "save_steps": 1}  # fmt: skip
    made = plain_trainer(tmp_path, **settings)
    callback = CalibrationCallback(made, ROWS, draw=False)
    made.add_callback(callback)
    made.train()
    best = min((one for one in callback.history[1:-1]), key=lambda one: one["nll"])
    assert made.state.best_metric == pytest.approx(best["nll"])
    # the last measurement is of the checkpoint that was loaded
    assert callback.history[-1]["nll"] == pytest.approx(best["nll"], abs=1e-5)


def test_what_cannot_work_is_refused(tmp_path):
    made = plain_trainer(tmp_path)
    with pytest.raises(ValueError, match="rows is empty"):
        CalibrationCallback(made, [])
    with pytest.raises(ValueError, match="CalibrationCallback needs questions with options"):
        CalibrationCallback(made, [{"prompt": "a", "completion": "b"}])
    with pytest.raises(ValueError, match="every_n_steps: expected a whole number"):
        CalibrationCallback(made, ROWS, every_n_steps=0)
    with pytest.raises(ValueError, match="scoring must be one of"):
        CalibrationCallback(made, ROWS, scoring="words")
    with pytest.raises(ValueError, match="give tokenizer="):
        CalibrationCallback(made, ROWS).held_out(made.model)
    made.is_fsdp_enabled = True
    with pytest.raises(ValueError, match="FSDP"):
        CalibrationCallback(made, ROWS).held_out(made.model, made.processing_class)
