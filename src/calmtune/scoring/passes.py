"""Passes of the model's trunk over a layout of tries, none of them over more tokens than allowed.

What all prompts begin with goes through the trunk once, and a row that is longer than a pass goes through it piece by
piece; both need the model's key-value cache. The states are those of one pass over whole rows, up to rounding.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

from calmtune.bilevel.objectives import CHUNK_ELEMENTS
from calmtune.data.encoding import Batch
from calmtune.modeling.reading import branching_mask, causal_lm, trunk_of
from calmtune.scoring.tries import visible

KeysAndValues = Sequence[tuple[Tensor, Tensor]]

CPU_TOKENS = 512
"""Tokens of a pass on a CPU: its matrix products run at full speed from there on, and more only adds padding."""
FEWEST_TOKENS, MOST_TOKENS = 512, 2**16
MEMORY_SHARE = 0.5
"""Of a GPU's free memory, for one pass; the rest is for what the estimate does not know."""


def automatic_tokens(model: nn.Module) -> int:
    """Tokens of a pass that the device has memory for.

    On a CPU always ``CPU_TOKENS``. On a GPU from its free memory and the size of the model, as a power of two, so that
    small changes of what is free do not change the batches, and with them the last digits of the scores.
    """
    device = next(model.parameters()).device
    if device.type != "cuda":
        return CPU_TOKENS
    free, _ = torch.cuda.mem_get_info(device)
    return tokens_in(free, causal_lm(model))


def tokens_in(free: int, base: nn.Module) -> int:
    """How many tokens a pass can have in ``free`` bytes of memory.

    A token takes its states and their copies (8 times the hidden size), the widest layer's (4 times), and a bit of a
    mask row, in the format of the weights; the logits come in chunks of their own, which are set aside first.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> small = LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=1,
    ...                                      num_attention_heads=4, vocab_size=32))
    >>> tokens_in(2**28, small), tokens_in(0, small), tokens_in(2**40, small)
    (16384, 512, 65536)
    """
    config: Any = base.config
    text = config.get_text_config(decoder=True)
    hidden = text.hidden_size
    width = getattr(text, "intermediate_size", None) or 4 * hidden
    size = torch.finfo(base.dtype).bits // 8  # type: ignore[arg-type]
    a_token = size * (8 * hidden + 4 * width) + FEWEST_TOKENS
    room = MEMORY_SHARE * max(0, free - 3 * 4 * CHUNK_ELEMENTS) / a_token
    return 1 << int(min(max(room, FEWEST_TOKENS), MOST_TOKENS)).bit_length() - 1


def takes_cache(model: nn.Module) -> bool:
    """Whether a row can be given to the model in pieces: every layer attends to all that came before.

    Windows are left out, because a mask of our own would override them.
    """
    config = causal_lm(model).config
    text = config.get_text_config(decoder=True)  # type: ignore[operator, union-attr]
    kinds = getattr(text, "layer_types", None) or ["full_attention"]
    window = getattr(text, "sliding_window", None) or getattr(text, "attention_chunk_size", None)
    return _cache_name(model) is not None and not window and set(kinds) == {"full_attention"}


def encode_prefix(model: nn.Module, ids: Sequence[int], most_tokens: int) -> KeysAndValues:
    """Keys and values of every layer for the tokens that all prompts begin with; nothing for no tokens."""
    if not ids:
        return ()
    device = next(model.parameters()).device
    cache = DynamicCache()
    for start in range(0, len(ids), most_tokens):
        stop = min(start + most_tokens, len(ids))
        columns = torch.arange(start, stop, device=device)[None]
        tokens = torch.tensor([ids[start:stop]], device=device)
        mask = torch.ones(1, stop, dtype=torch.int64, device=device)
        _run(model, tokens, columns, mask, cache)
    return [(layer.keys, layer.values) for layer in cache.layers]


def read_states(model: nn.Module, batch: Batch, prefix: KeysAndValues = (), most_tokens: int | None = None) -> Tensor:
    """Last hidden states [Q, H] at ``batch["read_index"]``.

    Args:
        batch: what :func:`~calmtune.scoring.tries.collate_tries` gave, with as many tokens left out as ``prefix`` has.
        prefix: what :func:`encode_prefix` gave.
        most_tokens: of one pass; longer rows are cut into pieces. None does not cut.

    Raises:
        ValueError: rows with branches that are longer than the model's window, or an attention implementation that
            takes no mask of ours.
    """
    rows, length = batch["input_ids"].shape
    before = prefix[0][0].shape[-2] if prefix else 0
    piece = length if most_tokens is None else max(1, min(length, most_tokens // rows))
    _refuse_window(model, batch, length)
    cache = _cache(prefix, rows, grows=piece < length)
    found: Tensor | None = None
    row, column = batch["read_index"] // length, batch["read_index"] % length
    for start in range(0, length, piece):
        stop = min(start + piece, length)
        tokens, positions = batch["input_ids"][:, start:stop], batch["position_ids"][:, start:stop]
        states = _run(model, tokens, positions, _mask(model, batch, start, stop, before), cache)
        here = (column >= start) & (column < stop)
        if found is None:
            found = states.new_zeros(len(row), states.shape[-1])
        found[here] = states[row[here], column[here] - start]
    assert found is not None, "a layout has at least one column"
    return found


class _Fixed(DynamicLayer):
    """Keys and values that every row sees and that take up none of the row's own."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values = keys, values

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """The fixed ones followed by the row's."""
        rows = (len(key_states), -1, -1, -1)
        return (
            torch.cat([self.keys.expand(rows), key_states], dim=-2),
            torch.cat([self.values.expand(rows), value_states], dim=-2),
        )


def _cache(prefix: KeysAndValues, rows: int, *, grows: bool) -> Cache | None:
    if grows:
        return DynamicCache(_expanded(prefix, rows) if prefix else None)
    return Cache(layers=[_Fixed(keys, values) for keys, values in prefix]) if prefix else None


def _expanded(prefix: KeysAndValues, rows: int) -> Iterable[tuple[Tensor, Tensor]]:
    return [(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1)) for keys, values in prefix]


def _mask(model: nn.Module, batch: Batch, start: int, stop: int, before: int) -> Tensor:
    """Where no row branches, what is padding; else which query sees which key."""
    last: Tensor = batch["last"]
    if not batch["branches"]:
        return nn.functional.pad((last[:, :stop] >= 0).long(), (before, 0), value=1)
    base = causal_lm(model)
    implementation = getattr(base.config, "_attn_implementation", "eager")
    return branching_mask(visible(last, start, stop, before), implementation, base.dtype)  # type: ignore[arg-type]


def _run(model: nn.Module, tokens: Tensor, positions: Tensor, mask: Tensor, cache: Cache | None) -> Tensor:
    options: dict[str, Any] = {"use_cache": False}
    if cache is not None:
        options = {str(_cache_name(model)): cache, "use_cache": True}
    output = trunk_of(model)(input_ids=tokens, attention_mask=mask, position_ids=positions, **options)
    return output.last_hidden_state  # type: ignore[no-any-return]


def _cache_name(model: nn.Module) -> str | None:
    """What the trunk calls its cache, which transformers renamed; None if it has none of keys and values."""
    known = inspect.signature(trunk_of(model).forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in known), None)


def _refuse_window(model: nn.Module, batch: Batch, length: int) -> None:
    window = getattr(causal_lm(model).config, "sliding_window", None)
    if batch["branches"] and window and length > window:
        raise ValueError(f"a row of {length} tokens exceeds the model's sliding window of {window}; shorten max_length")
