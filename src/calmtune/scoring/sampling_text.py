"""From sampled tokens to an answer: where it ends, and its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from calmtune.data.prompts import Renderer
from calmtune.data.rows import Instruction
from calmtune.modeling.reading import causal_lm
from calmtune.samples import Finish
from calmtune.scoring.sampling_settings import SamplingSettings


def end_tokens(model: nn.Module, renderer: Renderer) -> list[int]:
    """Every token that ends an answer: the tokenizer's and the model's own ends, and what ends a turn of the template.

    The model's are read from its generation settings, as ``generate`` does; nothing else of them is.
    """
    tokenizer = renderer.tokenizer
    base: Any = causal_lm(model)
    found: list[int] = []
    for source in (getattr(base, "generation_config", None), base.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found += ids if isinstance(ids, list) else [] if ids is None else [ids]
    if renderer.template == "chat":
        probe = Instruction("the end of a turn", (("user", "x"),), "x", "")
        if tokenizer.eos_token_id is not None:
            special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder} - {tokenizer.unk_token_id}
            answer = renderer.instruction(probe)
            found += [token for token in answer.input_ids[answer.answer_start :] if token in special][:1]
    return sorted(set(found))


class AnswerReader:
    """Reads answers as they grow.

    Args:
        tokenizer: the model's.
        ends: tokens that end an answer and are no part of its text.
        settings: stop texts and the most tokens.
    """

    def __init__(self, tokenizer: Any, ends: Sequence[int], settings: SamplingSettings) -> None:
        self.tokenizer, self.ends, self.settings = tokenizer, frozenset(ends), settings
        # a token is at least one byte, so a stop text that the last token completes began no earlier than this
        self.reach = max((len(stop.encode()) for stop in settings.stop), default=0) + 1

    def finish(self, tokens: Sequence[int]) -> Finish | None:
        """Why an answer ends with its last token, or None where it goes on."""
        if tokens[-1] in self.ends:
            return "eos"
        if self._holds_stop(tokens[-self.reach :]) and self._holds_stop(tokens):
            return "stop"
        return "length" if len(tokens) >= self.settings.max_new_tokens else None

    def text(self, tokens: Sequence[int]) -> str:
        """The answer, cut before its stop text and without outer white space."""
        return self.settings.cut(self._decode(tokens))

    def _holds_stop(self, tokens: Sequence[int]) -> bool:
        if not self.settings.stop:
            return False
        text = self._decode(tokens)
        return any(stop in text for stop in self.settings.stop)

    def _decode(self, tokens: Sequence[int]) -> str:
        kept = [token for token in tokens if token not in self.ends]
        return str(self.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False))
