"""What of a calibration can stand in the weights of an output head, and what cannot, with the reason.

    z~ / T = (W h + b) / (tau T) + l / T        row k of W and b_k divided by tau_k T, l_k / T added to b_k

A temperature on the scores of texts, and a factor for each option's place, are no function of the next token's logits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import nn

from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.export.use import Use
from calmtune.modeling.reading import causal_lm

ShiftIn = Literal["bias", "generation"]

_ROWS = 4096  # of the head, brought to float64 at a time


def refuse_unfoldable(use: Use, adjustment: LogitAdjustment | None, level: str, scoring: str) -> None:
    """Raise where no output head could give this use, whatever the architecture; needs no model.

    Args:
        level: where alpha acts, ``options`` or ``vocabulary``.
        scoring: how options are read, ``letter`` or ``text``.

    Raises:
        ValueError: the reason, and what to do in its place.
    """
    text = scoring == "text"
    if use.vector is not None:
        other = use.label.removesuffix(" + VS") if text else use.label.replace("VS", "TS")
        raise ValueError(
            f"'{use.label}' has a factor for each option's place, applied after the softmax over the options, which no "
            f"output head can hold; choose --use '{other}', or apply scale and shift of calibration.json to the option "
            "scores"
        )
    if use.adjusted and adjustment is not None and level == "options" and text:
        raise ValueError(
            "this run's alpha acts on the scores of whole texts (level: options), not on tokens, so no output head can "
            "hold it. Choose --use raw to merge the adapter alone and apply alpha with CalmModel.option_distributions, "
            "or train with level: vocabulary"
        )
    if text and use.scaling == "TS":
        raise ValueError(
            f"'{use.label}' divides the scores of whole texts by {use.temperature:.4g}; no head can, since a head's "
            f"temperature acts on each token's distribution. Choose --use '{use.label.removesuffix(' + TS')}' and "
            "divide the option scores by that temperature where you use them"
        )


def head_adjustment(
    use: Use,
    adjustment: LogitAdjustment | None,
    level: str,
    *,
    vocabulary: int,
    letters: Sequence[int] = (),
) -> LogitAdjustment:
    """The one adjustment that a head must hold so that its plain softmax is the model's as it is used.

    Args:
        use: not refused by :func:`refuse_unfoldable`.
        adjustment: alpha, or None for a run without.
        level: where alpha acts.
        vocabulary: V, rows of the head.
        letters: token of each option's letter, for a vector alpha at level ``options``; other tokens keep their logits
            but for the temperature.

    Returns:
        Float64, form ``exp``: scalar where one factor does (its shift, which changes no softmax, is 0), else vector
        with K = V.

    Example:
        >>> alpha = LogitAdjustment(3, "scalar")
        >>> alpha.start_at_(2.0)
        >>> folded = head_adjustment(Use(True, "TS", 1.5), alpha, "vocabulary", vocabulary=3)
        >>> round(folded.summary()["tau_max"], 4)
        3.0
    """
    alpha = adjustment if use.adjusted and adjustment is not None and not adjustment.is_identity else None
    log_t = math.log(use.temperature)
    if alpha is None or alpha.kind == "scalar":
        folded = LogitAdjustment(vocabulary, "scalar", dtype=torch.float64)
        own = torch.zeros(1, dtype=torch.float64) if alpha is None else alpha.log_temperature.double().cpu()
        folded.temperature_parameter.data.copy_(own + log_t)
        return folded.requires_grad_(False)
    folded = LogitAdjustment(vocabulary, "vector", dtype=torch.float64)
    rho, shift = alpha.log_temperature.double().cpu(), alpha.logit_shift.detach().double().cpu()
    if level == "options":
        places = torch.tensor(list(letters)[: alpha.num_classes], dtype=torch.int64)
        folded.temperature_parameter.data[places] = rho[: len(places)]
        folded.logit_shift.data[places] = shift[: len(places)] / use.temperature
    elif alpha.num_classes != vocabulary:
        raise ValueError(f"alpha has {alpha.num_classes} classes, but the head has {vocabulary} rows; another base?")
    else:
        folded.temperature_parameter.data.copy_(rho)
        folded.logit_shift.data.copy_(shift / use.temperature)
    folded.temperature_parameter.data += log_t
    return folded.requires_grad_(False)


def needs_shift(folded: LogitAdjustment) -> bool:
    """Whether there is an l that a softmax would notice."""
    return bool(folded.logit_shift.numel() > 1 and (folded.logit_shift != folded.logit_shift[0]).any())


def refuse_architecture(model: nn.Module, *, shift: bool, shift_in: ShiftIn = "bias") -> None:
    """Raise where this model's head cannot hold what it must; the weights need not be in memory.

    Args:
        shift: whether there is an l to hold.
        shift_in: ``bias`` of the head, or the ``generation`` settings.

    Raises:
        ValueError: the reason, and what to do in its place.
    """
    base = causal_lm(model)
    name = type(base).__name__
    if getattr(base.config, "final_logit_softcapping", None):
        raise ValueError(
            f"{name} bends its logits with a soft cap after the head, so a factor in the head is no temperature; "
            "choose --use raw to merge the adapter alone, and use AdjustmentProcessor or a temperature where you sample"
        )
    head: Any = base.get_output_embeddings()  # type: ignore[operator]
    if shift and shift_in == "bias" and getattr(head, "bias", None) is None:
        raise ValueError(
            f"alpha has a shift l for each token, which would be a bias of the output head, and the head of {name} has "
            "none: transformers would drop it when it loads the model. Either --shift generation, which puts l into "
            "generation_config.json (generate uses it, a plain forward pass does not), or use AdjustmentProcessor, or "
            "choose --use raw or --use 'raw + TS'"
        )


@torch.no_grad()
def fold_into(model: nn.Module, folded: LogitAdjustment, *, shift_in: ShiftIn = "bias") -> None:
    """Change a model's head in place; a head tied to the embeddings gets weights of its own first.

    Args:
        model: a transformers causal language model without an adapter.
        folded: see :func:`head_adjustment`.

    Raises:
        ValueError: see :func:`refuse_architecture`.
    """
    shift = needs_shift(folded)
    identity = not shift and not bool(folded.temperature_parameter.any())
    if identity:
        return
    refuse_architecture(model, shift=shift, shift_in=shift_in)
    untie_head(model)
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    for start in range(0, len(head.weight), _ROWS):
        rows = torch.arange(start, min(start + _ROWS, len(head.weight)))
        part = folded.select(rows).to(head.weight.device)
        bias = None if head.bias is None else head.bias[rows]
        weight, new = part.fold(head.weight[rows], bias)
        head.weight[rows] = weight
        if bias is not None:
            head.bias[rows] = new.to(head.bias.dtype)
    if shift and shift_in == "generation":
        bias_list = [[[token], value] for token, value in enumerate(folded.logit_shift.tolist()) if value]
        model.generation_config.sequence_bias = bias_list


def untie_head(model: nn.Module) -> bool:
    """Give a tied output head its own copy of the weights, and say so in the configuration.

    Returns:
        Whether it was tied.
    """
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    if head.weight is not model.get_input_embeddings().weight:  # type: ignore[operator, union-attr]
        return False
    head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    for config in {id(one): one for one in (model.config, model.config.get_text_config())}.values():  # type: ignore[union-attr, operator]
        config.tie_word_embeddings = False
    return True


def letter_tokens(option_ids: Sequence[Sequence[Sequence[int]]]) -> tuple[int, ...]:
    """The token of each option's letter, the same for every item.

    Args:
        option_ids: tokens of each option, item by item.

    Raises:
        ValueError: letters of several tokens, or other tokens for another item.

    >>> letter_tokens([[[5], [6]], [[5], [6], [7]]])
    (5, 6, 7)
    """
    found: list[int] = []
    for options in option_ids:
        for place, ids in enumerate(options):
            if len(ids) != 1:
                raise ValueError(f"the letter of option {place} is {len(ids)} tokens; one is needed to read its logit")
            if place == len(found):
                found.append(ids[0])
            if found[place] != ids[0]:
                raise ValueError(
                    f"the letter of option {place} is token {found[place]} in one item, {ids[0]} in another"
                )
    return tuple(found)
