"""Decoding a batch of prompts: each prompt through the model once, its keys and values shared by all its samples."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from calmtune.modeling.reading import causal_lm
from calmtune.samples import Finish
from calmtune.scoring.sampling_choice import Chooser, Noise

# finished rows leave the batch when they are this share of it: sooner, and copying the cache costs more than it saves
_DROP_SHARE = 0.125


@dataclass
class Draw:
    """The tokens of one sample so far, their log-probabilities in nats, and why it ended."""

    tokens: list[int] = field(default_factory=list)
    raw: list[float] = field(default_factory=list)
    adjusted: list[float] = field(default_factory=list)
    finish: Finish | None = None


@dataclass
class State:
    """Where the model stands in each row: what it has read, and its logits for the next token."""

    cache: Any
    mask: Tensor  # [R, L], 1 for tokens, 0 for padding
    logits: Tensor  # [R, V]

    def take(self, rows: Sequence[int]) -> None:
        """Go on with these rows alone; a row may be taken several times."""
        index = torch.tensor(rows, device=self.mask.device)
        self.cache.reorder_cache(index)
        self.mask, self.logits = self.mask[index], self.logits[index]


class Decoder:
    """Runs a causal language model token by token.

    Args:
        model: in eval mode.
        choose: draws the next token.
        finish: why a sample ends after these tokens, or None where it goes on.
        pad_id: any token; nothing reads it.
        batch_rows: most samples decoded together.
    """

    def __init__(
        self,
        model: nn.Module,
        choose: Chooser,
        finish: Callable[[Sequence[int]], Finish | None],
        pad_id: int,
        batch_rows: int,
    ) -> None:
        self.model = causal_lm(model)
        self.choose, self.finish, self.pad_id, self.batch_rows = choose, finish, pad_id, batch_rows
        self.device = next(model.parameters()).device
        known = inspect.signature(self.model.forward).parameters
        # the name of the keys and values changed; a model's own code may have the old one
        self.cache_name = "cache" if "cache" in known else "past_key_values"
        self.takes_positions = "position_ids" in known
        # the head meets the last position alone, where the model can be told so
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in known else {}

    def draw(self, prompts: Sequence[Sequence[int]], seeds: Sequence[Sequence[int]]) -> list[list[Draw]]:
        """Samples of each prompt, as many as it has seeds."""
        prompt_of_row = [index for index, own in enumerate(seeds) for _ in own]
        flat = [seed for own in seeds for seed in own]
        read = self._read(prompts)
        draws: list[Draw] = []
        for start in range(0, len(flat), self.batch_rows):
            stop = start + self.batch_rows
            # taking rows changes the cache, which a later part still needs
            state = copy.deepcopy(read) if stop < len(flat) else read
            state.take(prompt_of_row[start:stop])
            draws += self._decode(state, Noise(flat[start:stop], self.device))
        rows = iter(draws)
        return [[next(rows) for _ in own] for own in seeds]

    def _read(self, prompts: Sequence[Sequence[int]]) -> State:
        """Put the prompts through the model, padded on the left so that all end in the same column."""
        width = max(map(len, prompts))
        ids = torch.tensor([[self.pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        return self._forward(ids.to(self.device), mask.to(self.device), None)

    def _forward(self, ids: Tensor, mask: Tensor, cache: Any) -> State:
        """The state after the tokens ``ids`` [R, t], the last of those that ``mask`` [R, L] counts."""
        positions = (mask.cumsum(-1) - 1).clamp_(min=0)[:, -ids.shape[1] :]
        extra = {self.cache_name: cache, **self.last_only}
        if self.takes_positions:
            extra["position_ids"] = positions
        output = self.model(input_ids=ids, attention_mask=mask, use_cache=True, **extra)
        return State(getattr(output, self.cache_name), mask, output.logits[:, -1])

    def _decode(self, state: State, noise: Noise) -> list[Draw]:
        """One sample for each row of a state."""
        draws = [Draw() for _ in range(len(state.mask))]
        rows = list(range(len(draws)))  # the draw that each row of the state belongs to
        while True:
            open_rows = [place for place, row in enumerate(rows) if draws[row].finish is None]
            last = self._choose(state, noise, draws, rows, open_rows)
            going = [place for place in open_rows if draws[rows[place]].finish is None]
            if not going:
                return draws
            if len(rows) - len(going) >= _DROP_SHARE * len(rows):
                state.take(going)
                rows, last = [rows[place] for place in going], last[going]
            mask = torch.cat([state.mask, torch.ones_like(state.mask[:, :1])], dim=1)
            state = self._forward(last[:, None], mask, state.cache)

    def _choose(
        self, state: State, noise: Noise, draws: Sequence[Draw], rows: Sequence[int], open_rows: Sequence[int]
    ) -> Tensor:
        """Add a token to every open row; gives the last token of all rows [R].

        Raises:
            ValueError: logits that are no numbers.
        """
        logits = state.logits if len(open_rows) == len(rows) else state.logits[open_rows]
        chosen = self.choose(logits, noise.draw([rows[place] for place in open_rows], logits.shape[1]))
        adjusted = [None] * len(open_rows) if chosen.adjusted is None else chosen.adjusted.tolist()
        for place, token, raw, changed in zip(
            open_rows, chosen.token.tolist(), chosen.raw.tolist(), adjusted, strict=True
        ):
            if raw != raw:
                raise ValueError(
                    "the model's logits hold NaN or +inf; check its weights, or load it in another dtype (float16 "
                    "overflows where bfloat16 and float32 do not)"
                )
            draw = draws[rows[place]]
            draw.tokens.append(token)
            draw.raw.append(raw)
            if changed is not None:
                draw.adjusted.append(changed)
            draw.finish = self.finish(draw.tokens)
        last = torch.full((len(rows),), self.pad_id, device=self.device)
        last[open_rows] = chosen.token
        return last
