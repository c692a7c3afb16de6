"""Calibration-aware fine-tuning, first part: cross-entropy over the whole vocabulary on the answer token(s).

The answer is the gold letter, or the gold option's text. Its step is :func:`calmtune.methods.sft.plain_step`.
"""

from __future__ import annotations

from torch import Tensor


def answer_cross_entropy(log_probability: Tensor, tokens: Tensor) -> Tensor:
    """Sum over questions of the mean cross-entropy of the gold answer's tokens, nats.

        sum_i -log p(answer_i | question_i) / tokens_i

    Each question counts once, however long its answer: a mean over questions divides this by their number.

    Args:
        log_probability: [B], the gold answer's log-probability over the whole vocabulary, summed over its tokens.
        tokens: [B], how many tokens the gold answer has; 1 for a letter.

    Returns:
        A scalar, differentiable by ``log_probability``; 0 for B = 0.

    Raises:
        ValueError: shapes that differ, or an answer without a token.

    Example:
        >>> import torch
        >>> answer_cross_entropy(torch.tensor([-1.0, -6.0]), torch.tensor([1, 3])).item()
        3.0

    Source: Xiao et al. 2025 (arXiv 2505.01997), the cross-entropy term of CFT and RCFT.
    """
    if log_probability.shape != tokens.shape:
        raise ValueError(
            f"log_probability has shape {tuple(log_probability.shape)} and tokens {tuple(tokens.shape)}; "
            "give one of each per question"
        )
    if bool((tokens < 1).any()):
        raise ValueError(f"question {int((tokens < 1).nonzero()[0])} of the batch has an answer without a token")
    return -(log_probability / tokens).sum()
