"""Reading a causal language model: hidden states at chosen positions, and from them the scores of an item's options.

Only the trunk is run over a batch; the output head meets the positions that are read and no others. An item with
several options is one row: the prompt once, then a branch for each option that sees the prompt and itself (a 4-D
attention mask), so a prompt is encoded once however many options it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.bilevel.objectives import read_logits

Normalisation = Literal["sum", "token", "byte"]
Batch = Mapping[str, Any]


@dataclass(frozen=True)
class OptionScores:
    """What was read of a batch of items.

    Attributes:
        scores: [B, K] float32, -inf for absent options: letters' logits, or (normalised) log-probabilities of texts.
        option_mass: [B], probability of all options together under the full vocabulary, in [0, 1].
        token_entropy: [B], mean entropy in nats of the vocabulary distribution at the positions read; None unless asked
            for.
        log_probability: [B, K], log-probability of each option's tokens in the full vocabulary, nats; 0 where absent.
    """

    scores: Tensor
    option_mass: Tensor
    token_entropy: Tensor | None
    log_probability: Tensor


class CappedHead(nn.Module):
    """An output head followed by the soft cap that some architectures apply to their logits: c tanh(z / c)."""

    def __init__(self, head: nn.Module, cap: float) -> None:
        super().__init__()
        self.head, self.cap = head, cap
        self.out_features = getattr(head, "out_features", 0)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states [..., H]."""
        return torch.tanh(self.head(hidden) / self.cap) * self.cap


class AdjustedHead(nn.Module):
    """An output head followed by alpha, for scores under the adjusted vocabulary distribution."""

    def __init__(self, head: nn.Module, adjustment: LogitAdjustment) -> None:
        super().__init__()
        self.head, self.adjustment = head, adjustment
        self.out_features = adjustment.num_classes

    def forward(self, hidden: Tensor) -> Tensor:
        """Adjusted logits of hidden states [..., H]."""
        return self.adjustment(self.head(hidden))  # type: ignore[no-any-return]


def causal_lm(model: nn.Module) -> nn.Module:
    """The transformers model inside a PEFT wrapper (whose adapters stay active), or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator, no-any-return]


def head_of(model: nn.Module) -> nn.Module:
    """The map from last hidden states to vocabulary logits.

    Raises:
        ValueError: the model has no output head.
    """
    base = causal_lm(model)
    head = base.get_output_embeddings()  # type: ignore[operator]
    if head is None:
        raise ValueError(f"{type(base).__name__} has no output embeddings; expected a causal language model")
    cap = getattr(base.config, "final_logit_softcapping", None)
    return CappedHead(head, float(cap)) if cap else head  # type: ignore[no-any-return, arg-type]


def attention_mask(segments: Tensor, implementation: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Which key each query may see, from segment numbers.

    Args:
        segments: int64 [B, L]; 0 the prompt, j >= 1 the branch of option j - 1, -1 padding.
        implementation: the model's attention implementation; ``"eager"`` adds its mask, so it gets 0 and the lowest
            number.

    Returns:
        int64 [B, L] where no row branches, else bool (or ``dtype`` for eager) [B, 1, L, L].

    Raises:
        ValueError: branches with an implementation that takes no 4-D mask.
    """
    if not bool((segments > 0).any()):
        return (segments >= 0).long()
    query, key = segments[:, :, None], segments[:, None, :]
    length = segments.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
    allowed = causal & ((query == key) | (key == 0)) & (key >= 0)
    # a padded query would see nothing, and a softmax over nothing is NaN: let it see itself, nobody reads it
    allowed = allowed | torch.eye(length, dtype=torch.bool, device=segments.device)
    return branching_mask(allowed, implementation, dtype)


def branching_mask(allowed: Tensor, implementation: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """The mask that an attention implementation takes, from which query may see which key.

    Args:
        allowed: bool [B, queries, keys], at least one key a query.
        implementation: ``"sdpa"``, or ``"eager"``, which adds its mask and so gets 0 and the lowest number.

    Returns:
        bool (or ``dtype`` for eager) [B, 1, queries, keys].

    Raises:
        ValueError: an implementation that takes no 4-D mask.
    """
    if implementation not in ("sdpa", "eager"):
        raise ValueError(
            f"attn_implementation {implementation!r} takes no branching mask, which text scoring needs; load the model "
            "with attn_implementation: sdpa"
        )
    if implementation == "sdpa":
        return allowed[:, None]
    lowest = torch.finfo(dtype).min
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, lowest)[:, None]


def trunk_of(model: nn.Module) -> nn.Module:
    """What turns token ids into last hidden states: the model without its output head."""
    base = causal_lm(model)
    return base.get_decoder() if hasattr(base, "get_decoder") else base.base_model  # type: ignore[operator, no-any-return]


def read_hidden(model: nn.Module, batch: Batch) -> Tensor:
    """Last hidden states at ``batch["read_index"]`` (flat row * L + column), [Q, H].

    Raises:
        ValueError: rows longer than the model's sliding attention window, which a branching mask would ignore.
    """
    base = causal_lm(model)
    segments = batch["segments"]
    config = base.config
    mask = attention_mask(segments, getattr(config, "_attn_implementation", "eager"), base.dtype)  # type: ignore[arg-type]
    window = getattr(config, "sliding_window", None)
    if mask.dim() == 4 and window and segments.shape[1] > window:
        raise ValueError(
            f"a row of {segments.shape[1]} tokens exceeds the model's sliding window of {window}; shorten max_length"
        )
    output = trunk_of(model)(
        input_ids=batch["input_ids"], attention_mask=mask, position_ids=batch["position_ids"], use_cache=False
    )
    hidden = output.last_hidden_state
    return hidden.reshape(-1, hidden.shape[-1])[batch["read_index"]]  # type: ignore[no-any-return]


def option_scores(
    model: nn.Module,
    batch: Batch,
    *,
    normalisation: Normalisation = "sum",
    hidden: Tensor | None = None,
    adjustment: LogitAdjustment | None = None,
    entropy: bool = False,
    chunk_size: int | None = None,
) -> OptionScores:
    """Scores of every option of every item in a batch made by ``collate_items``; differentiable once.

    Args:
        normalisation: sequence log-probabilities as their ``"sum"``, or mean per ``"token"`` or per UTF-8 ``"byte"``.
        hidden: what :func:`read_hidden` gave for this batch, when it is already there.
        adjustment: a vocabulary-level alpha applied to the token logits.
        entropy: also give the mean token entropy at the positions read.
    """
    states = read_hidden(model, batch) if hidden is None else hidden
    head = head_of(model) if adjustment is None else AdjustedHead(head_of(model), adjustment)
    rows, targets = batch["token_read"], batch["token_target"]
    chosen, normaliser, entropies = read_logits(states, rows, targets, head, entropy=entropy, chunk_size=chunk_size)
    log_p = chosen - normaliser[rows]
    option_mask: Tensor = batch["option_mask"]

    def per_option(values: Tensor) -> Tensor:
        flat = torch.zeros(option_mask.numel(), dtype=values.dtype, device=values.device)
        return flat.index_add(0, batch["token_option"], values).reshape(option_mask.shape)

    total = per_option(log_p)
    mass = (total.detach().exp() * option_mask).sum(-1).clamp(max=1.0)
    if batch["letter"]:
        scores = per_option(chosen)
    elif normalisation == "sum":
        scores = total
    else:
        lengths = batch["option_tokens" if normalisation == "token" else "option_bytes"]
        scores = total / lengths.clamp(min=1)
    return OptionScores(
        scores.masked_fill(~option_mask, -torch.inf),
        mass,
        _mean_by_row(entropies, batch) if entropy else None,
        total,
    )


def adjust_options(scores: Tensor, adjustment: LogitAdjustment) -> Tensor:
    """Option scores [B, k], -inf where absent, under an alpha with one class an option index, K >= k."""
    if adjustment.kind != "vector":
        return adjustment(scores)
    missing = adjustment.num_classes - scores.shape[-1]
    return adjustment(nn.functional.pad(scores, (0, missing), value=-torch.inf))[..., : scores.shape[-1]]


def adjusted_scores(
    model: nn.Module,
    batch: Batch,
    raw: OptionScores,
    adjustment: LogitAdjustment | None,
    level: Literal["options", "vocabulary"],
    *,
    normalisation: Normalisation = "sum",
    hidden: Tensor,
) -> Tensor | None:
    """The option scores [B, K] under alpha, from the hidden states that gave the raw ones; None without an alpha.

    Args:
        level: what alpha has a class for: an ``options`` index, or a token of the ``vocabulary``.
    """
    if adjustment is None or adjustment.is_identity:
        return None
    if level == "options":
        return adjust_options(raw.scores, adjustment)
    again = option_scores(model, batch, normalisation=normalisation, hidden=hidden, adjustment=adjustment)
    return again.scores


def _mean_by_row(values: Tensor, batch: Batch) -> Tensor:
    count, length = batch["input_ids"].shape
    row = torch.div(batch["read_index"], length, rounding_mode="floor")
    sums = torch.zeros(count, dtype=values.dtype, device=values.device).index_add(0, row, values)
    return sums / torch.bincount(row, minlength=count).clamp(min=1)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode inside the block; afterwards, also after an exception, every module is in the mode it was in before."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@torch.no_grad()
def check_readable(model: nn.Module, batch: Batch) -> None:
    """Compare our reading (trunk, then head) with the model's own logits on the first row of a batch.

    Raises:
        ValueError: they differ, as with an architecture that transforms its logits in a way this reader does not know.
    """
    base = causal_lm(model)
    length = batch["input_ids"].shape[1]
    here = batch["read_index"][batch["read_index"] < length]
    one = {key: batch[key][:1] for key in ("input_ids", "position_ids", "segments")} | {"read_index": here}
    mask = attention_mask(one["segments"], getattr(base.config, "_attn_implementation", "eager"), base.dtype)  # type: ignore[arg-type]
    with eval_mode(model):
        ours = head_of(model)(read_hidden(model, one)).float()
        theirs = base(
            input_ids=one["input_ids"], attention_mask=mask, position_ids=one["position_ids"], use_cache=False
        )
    expected = theirs.logits[0, here].float()
    tolerance = 1e-3 if base.dtype == torch.float32 else 0.25
    # weights that are not finite are another fault, which the first step or the first score names
    if not torch.allclose(ours, expected, rtol=0, atol=tolerance, equal_nan=True):
        gap = (ours - expected).abs().max().item()
        raise ValueError(
            f"{type(base).__name__}: logits read through trunk and head differ from the model's own by {gap:.3g} "
            f"(allowed {tolerance:g}); this architecture changes its logits after the head and is not supported yet"
        )
