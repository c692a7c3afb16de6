"""Reads the items of one evaluation through a model: what is cached, what is given at once, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from calmtune.data.encoding import Batch, collate_items
from calmtune.data.prompts import EncodedItem
from calmtune.modeling.reading import attention_mask, causal_lm, check_readable, head_of
from calmtune.scoring.batches import plan_batches
from calmtune.scoring.passes import KeysAndValues, automatic_tokens, encode_prefix, read_states, takes_cache
from calmtune.scoring.tries import collate_tries, shared_prefix


class ItemReader:
    """Gives the hidden states that the scores of items are computed from.

    Args:
        model: in eval mode.
        items: all of the evaluation, whether or not they are read: what their prompts have in common decides the plan.
        pad_id: token put into padding; nothing reads it.
        batch_tokens: most tokens, padding included, of one pass; None finds a number for the device.

    Attributes:
        most_tokens: of one pass.
        in_pieces: whether rows can be given in pieces. Where the model cannot, a row is one pass however long.
        batches: indices of the items of each batch.

    Raises:
        ValueError: the model's logits are not what its trunk and head give.
    """

    def __init__(
        self, model: nn.Module, items: Sequence[EncodedItem], pad_id: int, batch_tokens: int | None = None
    ) -> None:
        self.model, self.pad_id = model, pad_id
        self.most_tokens = automatic_tokens(model) if batch_tokens is None else batch_tokens
        shortest = min(items, key=lambda item: len(item.prompt_ids))
        ids = shared_prefix(items) if takes_cache(model) else []
        self.prefix: KeysAndValues = encode_prefix(model, ids, self.most_tokens)
        self.skip = len(ids)
        self.in_pieces = takes_cache(model) and self._pieces_agree(shortest)
        if not self.in_pieces:
            self.prefix, self.skip = (), 0
            check_readable(model, _moved(collate_items([shortest], pad_id), model))
        self.batches = plan_batches(items, self.most_tokens, self.skip)

    def read(self, items: Sequence[EncodedItem], most_tokens: int) -> tuple[Batch, Tensor]:
        """The layout of some items, and the states at the positions it reads."""
        batch = _moved(collate_tries(items, self.pad_id, self.skip), self.model)
        return batch, read_states(self.model, batch, self.prefix, most_tokens if self.in_pieces else None)

    @torch.no_grad()
    def _pieces_agree(self, item: EncodedItem) -> bool:
        """Whether what is read of an item through the cache are the model's own logits of one whole pass."""
        base = causal_lm(self.model)
        whole = _moved(collate_items([item], self.pad_id), self.model)
        mask = attention_mask(whole["segments"], getattr(base.config, "_attn_implementation", "eager"), base.dtype)  # type: ignore[arg-type]
        theirs = base(
            input_ids=whole["input_ids"], attention_mask=mask, position_ids=whole["position_ids"], use_cache=False
        ).logits[0, whole["read_index"]]
        batch = _moved(collate_tries([item], self.pad_id, self.skip), self.model)
        # the prefix is a piece; without one the row is cut
        most = None if self.skip else (batch["input_ids"].shape[1] + 1) // 2
        ours = head_of(self.model)(read_states(self.model, batch, self.prefix, most))
        tolerance = 1e-3 if base.dtype == torch.float32 else 0.25
        # weights that are not finite are another fault, which the first score names
        return torch.allclose(
            ours[batch["token_read"]].float(),
            theirs[whole["token_read"]].float(),
            rtol=0,
            atol=tolerance,
            equal_nan=True,
        )


def _moved(batch: Batch, model: nn.Module) -> Batch:
    device = next(model.parameters()).device
    return {key: value.to(device) if isinstance(value, Tensor) else value for key, value in batch.items()}
