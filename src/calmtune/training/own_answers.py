"""Answers of the model that is trained, for an upper level that is read on them (``positions: sample``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from calmtune.bilevel import LogitAdjustment
from calmtune.data.prompts import EncodedSequence
from calmtune.modeling.reading import eval_mode


@dataclass(frozen=True)
class OwnAnswers:
    """Samples one answer to each prompt from the adjusted distribution, at temperature 1, over the whole vocabulary.

    An answer ends with the token that ends a turn or a text, with a token that holds a line break, or after
    ``max_tokens``; the token that ended it belongs to it, since ending is a choice of the model too. No gradient goes
    through the choice of the tokens: the entropy at the positions of a given answer is what is differentiated.

    Args:
        tokenizer: decodes single tokens. max_tokens: of an answer, >= 1. seed: of the run.
        autocast: the trainer's.
    """

    model: nn.Module
    adjustment: LogitAdjustment | None
    tokenizer: Any
    max_tokens: int
    seed: int
    autocast: Callable[[], AbstractContextManager[Any]]

    @torch.no_grad()
    def __call__(self, examples: Sequence[EncodedSequence], step: int) -> list[EncodedSequence]:
        """The examples with the model's answers in the place of theirs, which are not looked at.

        Args:
            examples: their prompts are ``input_ids[:answer_start]``.
            step: of the training; the answers depend on the seed, the step, the prompts and the model alone.
        """
        prompts = [example.input_ids[: example.answer_start] for example in examples]
        device = next(self.model.parameters()).device
        generator = torch.Generator(device).manual_seed((self.seed * 1_000_003 + step) % 2**63)
        with eval_mode(self.model), self.autocast():
            answers = self._sample(prompts, device, generator)
        return [
            EncodedSequence(example.id, prompt + answer, len(prompt), example.domain, self.tokenizer.decode(answer))
            for example, prompt, answer in zip(examples, prompts, answers, strict=True)
        ]

    def _sample(self, prompts: list[list[int]], device: torch.device, generator: torch.Generator) -> list[list[int]]:
        # padded on the left, so that every row goes on in the same column
        width = max(map(len, prompts))
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        tokens = torch.tensor([[p[0]] * (width - len(p)) + p for p in prompts], device=device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        answers: list[list[int]] = [[] for _ in prompts]
        running = set(range(len(prompts)))
        cache = None
        for _ in range(self.max_tokens):
            output = self.model(
                input_ids=tokens,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = output.past_key_values
            tokens = self._draw(output.logits[:, -1], generator)
            for row, token in enumerate(tokens[:, 0].tolist()):
                if row in running:
                    answers[row].append(token)
                    if self._ends(token):
                        running.discard(row)
            if not running:
                break
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            positions = positions[:, -1:] + 1
        return answers

    def _draw(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        z = logits.float() if self.adjustment is None else self.adjustment(logits.float())
        return torch.multinomial(torch.softmax(z, dim=-1), 1, generator=generator)

    def _ends(self, token: int) -> bool:
        return token == self.tokenizer.eos_token_id or "\n" in self.tokenizer.decode([token])
