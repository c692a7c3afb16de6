"""Option scores as ``generate`` sees them: the next token's logits after every processor of the generation settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from calmtune.data.prompts import EncodedItem
from calmtune.predictions import Prediction, Predictions


@torch.no_grad()
def generated_scores(
    model: nn.Module, items: Sequence[EncodedItem], progress: Callable[[int, int], None] | None = None
) -> Predictions:
    """Scores of letters as the processed logits of the first generated token.

    Args:
        model: a transformers model with its generation settings.
        items: scored by letters of one token.
        progress: called with (items done, items in all).

    Raises:
        ValueError: an item that is scored by texts, whose tokens are given and not generated.
    """
    device = next(model.parameters()).device
    found = []
    for number, item in enumerate(items, start=1):
        if item.scoring != "letter":
            raise ValueError(
                f"item {item.id!r} is scored by texts; only letters are read from the first token generated"
            )
        prompt = torch.tensor([item.prompt_ids], device=device)
        output: Any = model.generate(  # type: ignore[operator]
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=1,
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            output_scores=True,
            return_dict_in_generate=True,
        )
        letters = [ids[0] for ids in item.option_ids]
        scores = output.scores[0][0, letters].float().tolist()
        found.append(Prediction(item.id, item.domain, item.label, tuple(scores), tokens=(1,) * len(scores)))
        if progress:
            progress(number, len(items))
    return Predictions(tuple(found))
