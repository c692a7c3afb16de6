"""CFT's cross-entropy of the answer's tokens: by hand, and against torch over the whole vocabulary."""

import pytest
import torch

from calmtune.data.encoding import collate_sequences
from calmtune.data.prompts import EncodedSequence
from calmtune.methods.cft import answer_cross_entropy
from calmtune.training.answer_levels import AnswerLevel
from tiny import tiny_llama


def test_each_question_counts_once_however_long_its_answer():
    # answers of 1 and 3 tokens, 4 nats and 1 + 2 + 3 nats: 4 + 6/3 = 6, gradients -1 and -1/3
    log_p = torch.tensor([-4.0, -6.0], dtype=torch.float64, requires_grad=True)
    loss = answer_cross_entropy(log_p, torch.tensor([1, 3]))
    assert loss.item() == 6.0
    loss.backward()
    assert log_p.grad.tolist() == pytest.approx([-1.0, -1 / 3], abs=1e-15)


def test_sums_of_micro_batches_add_up():
    log_p, tokens = torch.tensor([-0.5, -3.0, -8.0]), torch.tensor([1, 2, 4])
    parts = [answer_cross_entropy(log_p[part], tokens[part]) for part in (slice(0, 1), slice(1, 3), slice(3, 3))]
    assert sum(parts).item() == pytest.approx(answer_cross_entropy(log_p, tokens).item()) == 4.0


def test_an_answer_without_a_token_is_refused():
    with pytest.raises(ValueError, match="question 1 of the batch"):
        answer_cross_entropy(torch.zeros(2), torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="one of each per question"):
        answer_cross_entropy(torch.zeros(2), torch.tensor([1]))


@torch.no_grad()
def test_a_level_reads_the_answer_over_the_whole_vocabulary():
    rows = [EncodedSequence("a", [5, 6, 7, 8, 9], 4, "toy", ""), EncodedSequence("b", [10, 11, 12, 13], 2, "toy", "")]
    model = tiny_llama()
    loss = AnswerLevel().lower(model, collate_sequences(rows, 0), None, theta=False)
    expected = 0.0
    for row in rows:
        logits = model(input_ids=torch.tensor([row.input_ids])).logits[0]
        answer = torch.tensor(row.input_ids[row.answer_start :])
        expected += torch.nn.functional.cross_entropy(logits[row.answer_start - 1 : -1], answer).item()
    assert loss.item() == pytest.approx(expected, rel=1e-5)
