"""The lower loss (adjusted cross-entropy) and the upper loss (minus the adjusted entropy), with closed-form gradients.

Both are sums over rows of a function of z~ = z * s + l, and both know d loss / d z~ in closed form (p = softmax(z~)):

    cross-entropy     p - q,  q = (1 - eps) e_y + eps / n on the row's n present classes (eps = 0: q = e_y)
    minus entropy     p * (log p + H)

from which follow d/dz = s * d/dz~, d/dl = sum d/dz~, d/dparameter = ds/dparameter * sum z * d/dz~. They are computed in
the forward pass, chunk by chunk of rows. When the rows are hidden states and ``head`` maps them to logits, the logits
of one chunk are the only ones that ever exist, so memory does not grow with rows x vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from calmtune.bilevel.adjustment import Form, LogitAdjustment, inverse_temperature, inverse_temperature_slope

Head = Callable[[Tensor], Tensor]
Reduction = Literal["mean", "sum"]

CHUNK_ELEMENTS = 2**22  # logits of one chunk: 16 MiB in float32


def adjusted_cross_entropy(
    inputs: Tensor,
    targets: Tensor,
    adjustment: LogitAdjustment | None = None,
    *,
    label_smoothing: float = 0.0,
    mask: Tensor | None = None,
    head: Head | None = None,
    reduction: Reduction = "mean",
    chunk_size: int | None = None,
) -> Tensor:
    """Cross-entropy of softmax(z / tau + l) against the targets, in nats: the lower loss g.

    Args:
        inputs: logits [..., V] (-inf marks an absent class), or hidden states [..., H] when ``head`` is given.
        targets: class indices [...], int64.
        adjustment: alpha; None means raw logits. Its parameters receive gradients in closed form.
        label_smoothing: eps; a row's loss is (1 - eps) CE(y) + eps mean_k(-log p_k), k over the row's present classes.
        mask: bool [...], True where a row counts; None counts all.
        head: maps hidden states [n, H] to logits [n, V]; any module, its trainable parameters receive gradients.
        reduction: ``"mean"`` over counted rows, or ``"sum"``.
        chunk_size: rows whose logits exist at once; by default so many that a chunk holds about four million logits.

    Returns:
        A scalar in float32 (float64 for float64 inputs). Can be differentiated once.

    Raises:
        ValueError: shapes that do not fit, a target outside [0, V), a target that is an absent class, a mean over no
            row, or label_smoothing outside [0, 1).

    Example:
        >>> import torch
        >>> round(adjusted_cross_entropy(torch.zeros(1, 4), torch.tensor([2])).item(), 4)
        1.3863

    Source: CALM's lower level; AutoBalance (Li et al. 2021), equation 4; label smoothing: Szegedy et al. 2016.
    """
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must lie in [0, 1), got {label_smoothing}")
    flat, flat_targets = _rows(inputs, mask, targets)
    assert flat_targets is not None
    arguments = _arguments(flat, flat_targets, adjustment, head, chunk_size, label_smoothing=label_smoothing)
    return _reduce(_Loss.apply(*arguments), flat, reduction)


def negative_entropy(
    inputs: Tensor,
    adjustment: LogitAdjustment | None = None,
    *,
    mask: Tensor | None = None,
    target: float | None = None,
    head: Head | None = None,
    reduction: Reduction = "mean",
    chunk_size: int | None = None,
) -> Tensor:
    """Minus the Shannon entropy of softmax(z / tau + l), in nats: the upper loss f. Needs no label.

    Args and Returns as :func:`adjusted_cross_entropy`. The entropy of -inf logits is finite, with finite gradient. With
    ``target`` a row's entropy counts as min(H, target), so a row above the target is pushed no further.

    Example:
        >>> import torch
        >>> round(negative_entropy(torch.tensor([[0.0, 0.0, -torch.inf]])).item(), 6)
        -0.693147

    Source: CALM's upper level.
    """
    flat, _ = _rows(inputs, mask, None)
    return _reduce(_Loss.apply(*_arguments(flat, None, adjustment, head, chunk_size, target)), flat, reduction)


def cross_entropy_terms(adjusted: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Per-row cross-entropy [n] of adjusted logits [n, V] with a smoothed target q, and its gradient p - q [n, V]."""
    log_p = torch.log_softmax(adjusted, dim=-1)
    loss = -log_p.gather(-1, targets[:, None]).squeeze(-1)
    spread = None
    if smoothing:
        present = ~torch.isneginf(adjusted)  # an absent class is no class: its -log p is infinite
        share = smoothing / present.sum(-1, dtype=adjusted.dtype)
        loss = (1 - smoothing) * loss - share * log_p.masked_fill(~present, 0.0).sum(-1)
        spread = present * share[:, None]
    gradient = log_p.exp_()
    gradient.scatter_add_(-1, targets[:, None], torch.full_like(loss, smoothing - 1.0)[:, None])
    return loss, gradient if spread is None else gradient.sub_(spread)


def negative_entropy_terms(adjusted: Tensor) -> tuple[Tensor, Tensor]:
    """Per-row minus entropy [n] of adjusted logits [n, V] and its gradient p * (log p + H) [n, V]."""
    log_p = torch.log_softmax(adjusted, dim=-1)
    p = log_p.exp()
    # masked before the product: 0 * -inf is NaN, and cleaning it up afterwards would leave NaN in the gradient
    log_p = log_p.masked_fill_(torch.isneginf(log_p), 0.0)
    loss = (p * log_p).sum(-1)
    return loss, p * (log_p - loss[:, None])


class _Loss(torch.autograd.Function):
    """Sum over rows of one of the losses; every gradient is ready when the forward pass ends."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        targets: Tensor | None,
        parameter: Tensor | None,
        shift: Tensor | None,
        form: Form,
        head: Head | None,
        chunk: int,
        entropy_target: float | None,
        smoothing: float,
        *head_parameters: Tensor,
    ) -> Tensor:
        needs_states, needs_parameter = ctx.needs_input_grad[0], any(ctx.needs_input_grad[2:4])
        needs_head = any(ctx.needs_input_grad[9:])
        dtype = torch.float64 if states.dtype == torch.float64 else torch.float32
        total = states.new_zeros((), dtype=dtype)
        d_states = torch.empty_like(states) if needs_states else None
        d_scale = torch.zeros_like(parameter, dtype=dtype) if parameter is not None else None
        d_shift = torch.zeros_like(shift, dtype=dtype) if shift is not None else None
        d_head = [torch.zeros_like(p) for p in head_parameters]
        scale = inverse_temperature(parameter, form).to(dtype) if parameter is not None else None
        for start in range(0, len(states), chunk):
            part = slice(start, start + chunk)
            leaf, native = _head_forward(head, states[part], needs_states or needs_head)
            z = native.detach().to(dtype)
            adjusted = z if scale is None or shift is None else z * scale + shift.to(dtype)
            loss, d_adjusted = (
                cross_entropy_terms(adjusted, targets[part], smoothing)
                if targets is not None
                else negative_entropy_terms(adjusted)
            )
            if entropy_target is not None:
                d_adjusted = d_adjusted.masked_fill_((loss <= -entropy_target)[:, None], 0.0)
                loss = loss.clamp(min=-entropy_target)
            total += loss.sum()
            if needs_parameter and d_scale is not None and d_shift is not None:
                # an absent class has z = -inf and no gradient; 0 * -inf must not become NaN
                d_scale += _sum_to((d_adjusted * z.masked_fill(torch.isneginf(z), 0.0)), d_scale)
                d_shift += _sum_to(d_adjusted, d_shift)
            if needs_states or needs_head:
                d_z = d_adjusted if scale is None else d_adjusted * scale
                d_part = _head_backward(leaf, native, d_z, head_parameters if needs_head else (), d_head)
                if d_states is not None:
                    d_states[part] = d_part
        d_parameter = None
        if needs_parameter and parameter is not None and d_scale is not None:
            d_parameter = d_scale * inverse_temperature_slope(parameter, form).to(dtype)
        ctx.save_for_backward(d_states, d_parameter, d_shift, *d_head)
        ctx.dtypes = (None if parameter is None else parameter.dtype, None if shift is None else shift.dtype)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = upstream
        d_states, d_parameter, d_shift, *d_head = ctx.saved_tensors

        def scaled(gradient: Tensor | None, dtype: torch.dtype | None = None) -> Tensor | None:
            return None if gradient is None else (gradient * weight.to(gradient.dtype)).to(dtype or gradient.dtype)

        alpha = (scaled(d_parameter, ctx.dtypes[0]), scaled(d_shift, ctx.dtypes[1]))
        return (scaled(d_states), None, *alpha, None, None, None, None, None, *(scaled(d) for d in d_head))


class _ReadLogits(torch.autograd.Function):
    """Chosen logits and log-normalisers of many positions; the logits are made again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        rows: Tensor,
        targets: Tensor,
        head: Head,
        chunk: int,
        entropy: bool,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = torch.float64 if states.dtype == torch.float64 else torch.float32
        chosen = states.new_empty(len(rows), dtype=dtype)
        normaliser = states.new_empty(len(states), dtype=dtype)
        entropies = states.new_full((len(states) if entropy else 0,), torch.nan, dtype=dtype)
        for start in range(0, len(states), chunk):
            z = head(states[start : start + chunk]).to(dtype)
            here = torch.nonzero((rows >= start) & (rows < start + chunk)).squeeze(-1)
            chosen[here] = z[rows[here] - start, targets[here]]
            normaliser[start : start + chunk] = torch.logsumexp(z, dim=-1)
            if entropy:
                entropies[start : start + chunk] = -negative_entropy_terms(z)[0]
        ctx.save_for_backward(states, rows, targets, normaliser, *parameters)
        ctx.head, ctx.chunk = head, chunk
        device = states.device.type
        ctx.autocast = (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
        ctx.mark_non_differentiable(entropies)
        return chosen, normaliser, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        d_chosen, d_normaliser, _ = upstream
        states, rows, targets, normaliser, *parameters = ctx.saved_tensors
        d_states, d_head = torch.empty_like(states), [torch.zeros_like(p) for p in parameters]
        for start in range(0, len(states), ctx.chunk):
            part = slice(start, start + ctx.chunk)
            # the logits are made again under the autocast state of the forward pass, which backward does not inherit
            with torch.autocast(ctx.autocast[0], dtype=ctx.autocast[1], enabled=ctx.autocast[2]):
                leaf, native = _head_forward(ctx.head, states[part], True)
            z = native.detach().to(normaliser.dtype)
            d_z = torch.exp(z - normaliser[part, None]) * d_normaliser[part, None]
            here = torch.nonzero((rows >= start) & (rows < start + ctx.chunk)).squeeze(-1)
            d_z.index_put_((rows[here] - start, targets[here]), d_chosen[here], accumulate=True)
            d_states[part] = _head_backward(
                leaf, native, d_z, parameters if any(ctx.needs_input_grad[6:]) else (), d_head
            )
        return (d_states, None, None, None, None, None, *d_head)


def read_logits(
    states: Tensor,
    rows: Tensor,
    targets: Tensor,
    head: Head,
    *,
    entropy: bool = False,
    chunk_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of chosen tokens, and the log-normaliser of each position, without keeping the logits.

    log p(targets[i] | position rows[i]) = chosen[i] - normaliser[rows[i]].

    Args:
        states: hidden states [Q, H]. rows: int64 [P], index into Q. targets: int64 [P], token ids.
        head: hidden states to logits. entropy: also give the entropy of each position (no gradient).

    Returns:
        chosen [P], normaliser [Q] (log-sum-exp), entropy in nats [Q] (or [0]); float32 or better, differentiable once.

    Example:
        >>> import torch
        >>> rows, targets = torch.tensor([0]), torch.tensor([1])
        >>> chosen, normaliser, _ = read_logits(torch.zeros(1, 2), rows, targets, torch.nn.Identity())
        >>> round((chosen - normaliser).item(), 4)
        -0.6931
    """
    chunk = _chunk_size(head, states, chunk_size)
    return _ReadLogits.apply(states, rows, targets, head, chunk, entropy, *_trainable(head))  # type: ignore[no-any-return]


def _head_forward(head: Head | None, states: Tensor, graph: bool) -> tuple[Tensor, Tensor]:
    """The logits of one chunk, with a graph of the head alone when a gradient is to be sent through it."""
    if head is None:
        return states, states
    leaf = states.detach().requires_grad_(graph)
    with torch.set_grad_enabled(graph):
        return leaf, head(leaf)


def _head_backward(
    leaf: Tensor, logits: Tensor, d_logits: Tensor, parameters: Sequence[Tensor], totals: list[Tensor]
) -> Tensor:
    if leaf is logits:
        return d_logits.to(leaf.dtype)
    d_leaf, *d_parameters = torch.autograd.grad(logits, [leaf, *parameters], d_logits.to(logits.dtype))
    for total, gradient in zip(totals, d_parameters, strict=False):
        total += gradient
    return d_leaf


def _arguments(
    flat: Tensor,
    targets: Tensor | None,
    adjustment: LogitAdjustment | None,
    head: Head | None,
    chunk_size: int | None,
    entropy_target: float | None = None,
    label_smoothing: float = 0.0,
) -> tuple[Any, ...]:
    active = adjustment if adjustment is not None and not adjustment.is_identity else None
    if active is not None and head is None and active.kind == "vector" and flat.shape[-1] != active.num_classes:
        raise ValueError(f"expected logits with {active.num_classes} classes on the last axis, got {flat.shape[-1]}")
    if targets is not None and head is None and len(flat):
        _check_targets(flat, targets)
    alpha = (None, None, "exp") if active is None else (active.temperature_parameter, active.logit_shift, active.form)
    chunk = _chunk_size(head, flat, chunk_size)
    return (flat, targets, *alpha, head, chunk, entropy_target, label_smoothing, *_trainable(head))


def _check_targets(logits: Tensor, targets: Tensor) -> None:
    bad = torch.nonzero((targets < 0) | (targets >= logits.shape[-1])).squeeze(-1)
    if len(bad):
        at = int(bad[0])
        raise ValueError(
            f"target {int(targets[at])} of row {at} is outside [0, {logits.shape[-1]}); mask rows that do not count"
        )
    absent = torch.nonzero(torch.isneginf(logits.gather(-1, targets[:, None]))).reshape(-1)
    if len(absent):
        raise ValueError(f"row {int(absent[0])}: the target's logit is -inf, so its cross-entropy is infinite")


def _rows(inputs: Tensor, mask: Tensor | None, targets: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Counted rows only, flattened to [n, ...]; a masked row never enters the arithmetic."""
    for name, other in (("targets", targets), ("mask", mask)):
        if other is not None and other.shape != inputs.shape[:-1]:
            raise ValueError(
                f"{name} has shape {tuple(other.shape)}, expected {tuple(inputs.shape[:-1])} as the inputs' rows"
            )
    flat = inputs.reshape(-1, inputs.shape[-1])
    flat_targets = None if targets is None else targets.reshape(-1)
    if mask is None:
        return flat, flat_targets
    keep = mask.reshape(-1)
    return flat[keep], None if flat_targets is None else flat_targets[keep]


def _reduce(total: Tensor, flat: Tensor, reduction: Reduction) -> Tensor:
    if reduction == "sum":
        return total
    if len(flat) == 0:
        raise ValueError("no row counts: the mean over nothing is undefined; skip such a batch or use reduction='sum'")
    return total / len(flat)


def _sum_to(rows: Tensor, like: Tensor) -> Tensor:
    """Sum of [n, V] to [V], or to [1] for a scalar adjustment."""
    return rows.sum(0) if like.numel() == rows.shape[-1] else rows.sum().reshape(1)


def _trainable(head: Head | None) -> tuple[Tensor, ...]:
    return tuple(p for p in head.parameters() if p.requires_grad) if isinstance(head, nn.Module) else ()


def _chunk_size(head: Head | None, states: Tensor, chunk_size: int | None) -> int:
    if chunk_size is not None:
        if chunk_size < 1:
            raise ValueError(f"chunk_size must be >= 1, got {chunk_size}")
        return chunk_size
    if head is None:
        width = states.shape[-1]
    else:
        weight = getattr(head, "weight", None)
        width = int(getattr(head, "out_features", 0) or (weight.shape[0] if weight is not None else 2**16))
    return max(1, CHUNK_ELEMENTS // max(width, 1))
