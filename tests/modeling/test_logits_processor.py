import math

import pytest
import torch
from transformers import LogitsProcessorList

import tiny
from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.modeling.calibration_files import ADJUSTMENT_FILE, save_calibration
from calmtune.modeling.logits_processor import AdjustmentProcessor

RECORD = {
    "method": "calm", "level": "vocabulary", "normalisation": "sum", "prompt": {},
    "base": {"name": "toy", "revision": None, "fingerprint": "0"},
}  # fmt: skip
NO_IDS = torch.zeros(1, 0, dtype=torch.long)


def random_alpha(classes, kind="vector"):
    alpha = LogitAdjustment(classes, kind)
    generator = torch.Generator().manual_seed(0)
    alpha.logit_shift.data = torch.randn(alpha.logit_shift.shape, generator=generator)
    alpha.temperature_parameter.data = 0.5 * torch.randn(alpha.temperature_parameter.shape, generator=generator)
    return alpha


def test_the_formula_by_hand():
    alpha = LogitAdjustment(3)
    alpha.logit_shift.data = torch.tensor([0.0, 1.0, -1.0])
    alpha.temperature_parameter.data = torch.tensor([math.log(2.0), 0.0, math.log(0.5)])
    scores = torch.tensor([[1.0, -1.0, -math.inf]], dtype=torch.bfloat16)
    assert AdjustmentProcessor(alpha, temperature=0.5)(NO_IDS, scores).tolist() == [[1.0, 0.0, -math.inf]]
    assert AdjustmentProcessor(None, temperature=2.0)(NO_IDS, scores.float()).tolist() == [[0.5, -0.5, -math.inf]]
    assert AdjustmentProcessor(LogitAdjustment(3, "none"))(NO_IDS, scores) is scores


@pytest.mark.parametrize("kind", ["vector", "scalar"])
def test_generate_follows_the_adjusted_distribution(kind):
    model, alpha = tiny.tiny_llama(), random_alpha(64, kind)
    prompt = torch.tensor([[7, 8, 9]])
    processors = LogitsProcessorList([AdjustmentProcessor(alpha, temperature=0.7)])
    found = model.generate(
        prompt, logits_processor=processors, do_sample=False, max_new_tokens=6, eos_token_id=None,
        output_scores=True, return_dict_in_generate=True,
    )  # fmt: skip
    with torch.no_grad():
        z = model(found.sequences).logits[0, 2:-1]
    expected = alpha(z) / 0.7
    assert torch.allclose(torch.cat(found.scores), expected, atol=1e-4)
    assert found.sequences[0, 3:].tolist() == expected.argmax(-1).tolist()
    assert kind == "scalar" or expected.argmax(-1).tolist() != z.argmax(-1).tolist()


def test_it_acts_before_the_temperature_of_generate():
    model, alpha = tiny.tiny_llama(), random_alpha(64)
    prompt = torch.tensor([[7, 8, 9]])
    found = model.generate(
        prompt, logits_processor=[AdjustmentProcessor(alpha)], do_sample=True, temperature=0.5, top_k=0,
        max_new_tokens=1, output_scores=True, return_dict_in_generate=True,
    )  # fmt: skip
    with torch.no_grad():
        z = model(prompt).logits[:, -1]
    assert torch.allclose(found.scores[0], alpha(z) / 0.5, atol=1e-4)


def test_a_run_folder_gives_its_processor(tmp_path):
    alpha = random_alpha(5)
    save_calibration(tmp_path, alpha, RECORD)
    scores = torch.randn(2, 5, generator=torch.Generator().manual_seed(1))
    found = AdjustmentProcessor.from_pretrained(tmp_path, temperature=2.0)
    assert torch.equal(found(NO_IDS, scores), alpha(scores) / 2)
    save_calibration(tmp_path / "plain", None, RECORD)
    assert torch.equal(AdjustmentProcessor.from_pretrained(tmp_path / "plain")(NO_IDS, scores), scores)
    (tmp_path / ADJUSTMENT_FILE).unlink()
    with pytest.raises(FileNotFoundError, match=ADJUSTMENT_FILE):
        AdjustmentProcessor.from_pretrained(tmp_path)


def test_what_has_no_meaning_for_tokens_is_refused(tmp_path):
    save_calibration(tmp_path, random_alpha(4), {**RECORD, "level": "options"})
    with pytest.raises(ValueError, match="an option's place .*level: options.*calmtune evaluate.*level: vocabulary"):
        AdjustmentProcessor.from_pretrained(tmp_path)
    save_calibration(tmp_path / "plain", None, {**RECORD, "level": "options"})
    AdjustmentProcessor.from_pretrained(tmp_path / "plain")  # nothing to apply
    with pytest.raises(ValueError, match="level must be 'options' or 'vocabulary', got 'tokens'"):
        AdjustmentProcessor(None, level="tokens")
    for temperature in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="temperature must be > 0, got .*do_sample=False"):
            AdjustmentProcessor(None, temperature)
    with pytest.raises(ValueError, match="expected logits with 5 classes on the last axis, got 4"):
        AdjustmentProcessor(random_alpha(5))(NO_IDS, torch.zeros(1, 4))
