"""Label smoothing: the factor, where its loss is smallest, and the one-token shift through real models."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers.trainer_pt_utils import LabelSmoother

from calmtune.bilevel import adjusted_cross_entropy
from calmtune.data.encoding import collate_items, collate_sequences
from calmtune.data.prompts import EncodedItem, EncodedSequence
from calmtune.methods.label_smoothing import DEFAULT_SMOOTHING, smoothing_of
from calmtune.training.levels import OptionsLevel, VocabularyLevel
from tiny import tiny_llama


def test_the_factor_is_transformers_own_and_a_tenth_unless_set():
    assert smoothing_of(0.0) == DEFAULT_SMOOTHING == 0.1
    assert smoothing_of(0.25) == 0.25


@pytest.mark.parametrize("factor", [-0.1, 1.0, float("nan")])
def test_a_factor_outside_its_range_is_refused(factor):
    with pytest.raises(ValueError, match="label_smoothing_factor"):
        smoothing_of(factor)


def test_the_loss_is_smallest_at_one_minus_eps_plus_its_share():
    # K = 4, eps = .1: .925 for the gold, .025 for each other
    p = torch.tensor([[0.025, 0.925, 0.025, 0.025]], dtype=torch.float64)
    z = p.log().requires_grad_()
    adjusted_cross_entropy(z, torch.tensor([1]), label_smoothing=0.1).backward()
    assert z.grad.abs().max() < 1e-12


# ---- through models ------------------------------------------------------------------------------------------------

# one answer token here, three there, and a prompt of another length: batches are padded and counts are unequal
SEQUENCES = [
    EncodedSequence("short", [5, 6, 7, 8, 9], 4, "toy", ""),
    EncodedSequence("long", [10, 11, 12, 13, 14], 2, "toy", ""),
]
ITEMS = [
    EncodedItem("four", "", [5, 6, 7], [[8], [9], [10], [11]], [1] * 4, 2, "toy", "letter"),
    EncodedItem("two", "", [12, 13], [[8], [9]], [1] * 2, 0, "toy", "letter"),
    EncodedItem("three", "", [14, 15, 16, 17], [[8], [9], [10]], [1] * 3, 1, "toy", "letter"),
]


def wrapped(model):
    """The model in a LoRA whose B is off zero."""
    wrapped_model = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in wrapped_model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return wrapped_model.eval()


@pytest.mark.parametrize("form", ["base", "peft", "merged"])
@torch.no_grad()
def test_the_loss_is_shifted_once_whatever_wraps_the_model(form):
    model = tiny_llama() if form == "base" else wrapped(tiny_llama())
    before = VocabularyLevel(label_smoothing=0.1).lower(model, collate_sequences(SEQUENCES, 0), None, theta=False)
    if form == "merged":
        model = model.merge_and_unload()
    batch = collate_sequences(SEQUENCES, 0)
    loss = VocabularyLevel(label_smoothing=0.1).lower(model, batch, None, theta=False)
    assert loss.item() == pytest.approx(before.item(), rel=1e-5)
    labels = batch["input_ids"].clone()
    for row, sequence in enumerate(SEQUENCES):
        labels[row, : sequence.answer_start] = -100
    output = model(input_ids=batch["input_ids"])
    theirs = LabelSmoother(epsilon=0.1)({"logits": output.logits}, labels, shift_labels=True)
    assert (loss / 4).item() == pytest.approx(theirs.item(), rel=1e-5)


@pytest.mark.parametrize("level", ["vocabulary", "options"])
def test_micro_batches_of_unequal_counts_equal_the_whole_batch(level):
    model = wrapped(tiny_llama())
    theta = [p for p in model.parameters() if p.requires_grad]
    if level == "vocabulary":
        made, collate, examples = VocabularyLevel(label_smoothing=0.1), collate_sequences, SEQUENCES
        pieces = [SEQUENCES[:1], SEQUENCES[1:]]
    else:
        made, collate, examples = OptionsLevel(4, label_smoothing=0.1), collate_items, ITEMS
        pieces = [ITEMS[:1], ITEMS[1:]]

    def mean(batches):
        count = sum(made.lower_count(batch) for batch in batches)
        total = sum(made.lower(model, batch, None, theta=True) for batch in batches) / count
        return total.item(), torch.autograd.grad(total, theta)

    (value, gradients), (whole, expected) = mean([collate(p, 0) for p in pieces]), mean([collate(examples, 0)])
    assert value == pytest.approx(whole, rel=1e-6)
    for a, b in zip(gradients, expected, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-6)


@torch.no_grad()
def test_options_that_an_item_lacks_take_no_share():
    # each item on its own: torch's smoothed cross-entropy over its own letters' logits
    model = tiny_llama()
    loss = OptionsLevel(6, label_smoothing=0.1).lower(model, collate_items(ITEMS, 0), None, theta=False)
    expected = 0.0
    for item in ITEMS:
        logits = model(input_ids=torch.tensor([item.prompt_ids])).logits[0, -1]
        letters = logits[[token for (token,) in item.option_ids]]
        expected += torch.nn.functional.cross_entropy(letters, torch.tensor(item.label), label_smoothing=0.1).item()
    assert loss.item() == pytest.approx(expected, rel=1e-5)
