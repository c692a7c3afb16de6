"""Open questions: draw several answers to each from a model, once, and keep them with their log-probabilities.

The samples of an item depend on the seed and the item alone: not on the batch it came in, the padding, dropout, or an
interruption (up to ties within rounding, on the same kind of device and in the same dtype).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.data.prompts import EncodedPrompt, Renderer
from calmtune.data.rows import OpenQuestion
from calmtune.jsonl import check_distinct, content_digest
from calmtune.modeling.logits_processor import AdjustmentProcessor
from calmtune.modeling.reading import causal_lm, eval_mode
from calmtune.samples import AnswerSamples, Sample, SampledAnswers, append_samples, open_samples, save_samples
from calmtune.scoring.about import about_adjustment, about_model
from calmtune.scoring.sampling_choice import Chooser, Noise
from calmtune.scoring.sampling_decode import Decoder, Draw
from calmtune.scoring.sampling_settings import SamplingSettings
from calmtune.scoring.sampling_text import AnswerReader, end_tokens

Progress = Callable[[int, int], None]

# what would change samples in ``generate`` if it were taken from a model's own settings
_NOT_USED = (
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "suppress_tokens",
    "begin_suppress_tokens",
    "bad_words_ids",
    "sequence_bias",
    "max_new_tokens",
    "stop_strings",
)


def sample_answers(
    model: nn.Module,
    rows: Sequence[OpenQuestion],
    renderer: Renderer,
    *,
    settings: SamplingSettings | None = None,
    adjustment: LogitAdjustment | None = None,
    level: Literal["options", "vocabulary"] = "vocabulary",
    batch_rows: int = 64,
    max_length: int | None = None,
    path: Path | None = None,
    about: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> SampledAnswers:
    """Draw ``settings.n`` answers to every question.

    Args:
        model: a causal language model, wrapped by PEFT or not; in eval mode while it answers, as it was afterwards.
        rows: with distinct ids.
        renderer: how questions are put; its tokenizer must be the model's.
        settings: how answers are drawn; nothing is taken from the model's generation settings but its end tokens.
        adjustment: alpha = (l, tau) over the vocabulary: the adjusted distribution is sampled. None: the raw one.
        level: what alpha was trained for; ``options`` has no meaning for tokens and is refused.
        batch_rows: most samples decoded together; changes speed and memory only.
        max_length: most tokens of a prompt and its answer; None is the model's limit.
        path: file to keep finished items in. An interrupted run goes on where it stopped, and gives the same file.
        about: more settings for the record, JSON values, e.g. the model's name and revision.
        progress: called with (items done, items in all) after each batch that was sampled.

    Returns:
        Samples in the order of ``rows``; ``meta`` holds what decided them.

    Raises:
        ValueError: naming the row or setting: no rows, an id twice, a prompt that is too long, an alpha of options, or
            a ``path`` that holds the samples of other settings.
    """
    how = settings or SamplingSettings()
    alpha = AdjustmentProcessor(adjustment, level=level).adjustment
    prompts = _prompts(rows, renderer)
    _check(prompts, how, batch_rows, _longest(model) if max_length is None else max_length)
    ends = end_tokens(model, renderer)
    reader = AnswerReader(renderer.tokenizer, ends, how)
    meta = _meta(model, renderer, rows, prompts, how, alpha, ends) | dict(about or {})
    done = {item.id: item for item in (open_samples(path, meta) if path else ())}
    decoder = Decoder(model, Chooser(how, alpha), reader.finish, renderer.tokenizer.pad_token_id or 0, batch_rows)
    with eval_mode(model), torch.no_grad():
        for batch in plan_prompts(prompts, max(1, batch_rows // how.n)):
            # a batch is sampled whole even when a part of it is done, so that every number comes from the same sums
            if all(rows[index].id in done for index in batch):
                continue
            drawn = _draw(decoder, [prompts[index] for index in batch], how)
            items = [_item(rows[index], own, reader) for index, own in zip(batch, drawn, strict=True)]
            new = [item for item in items if item.id not in done]
            if path:
                append_samples(path, new)
            done |= {item.id: item for item in new}
            if progress:
                progress(len(done), len(rows))
    sampled = SampledAnswers(tuple(done[row.id] for row in rows), meta)
    if path:
        save_samples(path, sampled)
    return sampled


def plan_prompts(prompts: Sequence[EncodedPrompt], size: int) -> list[list[int]]:
    """Indices of the prompts of each batch, like with like in length, the longest first.

    >>> prompts = [EncodedPrompt(str(n), "", [1] * n, "") for n in (2, 5, 3)]
    >>> plan_prompts(prompts, 2)
    [[1, 2], [0]]
    """
    order = sorted(range(len(prompts)), key=lambda index: (-len(prompts[index].prompt_ids), index))
    return [order[start : start + size] for start in range(0, len(order), size)]


def _prompts(rows: Sequence[OpenQuestion], renderer: Renderer) -> list[EncodedPrompt]:
    if not rows:
        raise ValueError("expected at least one question to sample answers to, got none")
    for row in rows:
        if not isinstance(row, OpenQuestion):
            raise ValueError(f"row {row.id!r} is no open question; expected {{question, answers}}")
    check_distinct((row.id for row in rows), "samples")
    return [renderer.prompt(row) for row in rows]


def _check(prompts: Sequence[EncodedPrompt], how: SamplingSettings, batch_rows: int, limit: int | None) -> None:
    if batch_rows < 1:
        raise ValueError(f"batch_rows must be >= 1, got {batch_rows}")
    for prompt in prompts:
        length = len(prompt.prompt_ids)
        if not length:
            raise ValueError(f"row {prompt.id!r}: the prompt has no token; give the question more text")
        if limit is not None and length + how.max_new_tokens > limit:
            raise ValueError(
                f"row {prompt.id!r}: a prompt of {length} tokens and max_new_tokens {how.max_new_tokens} make more "
                f"than {limit}, the most the model reads (or max_length); lower max_new_tokens, or leave the row out"
            )


def _longest(model: nn.Module) -> int | None:
    return getattr(causal_lm(model).config, "max_position_embeddings", None)


def _draw(decoder: Decoder, prompts: Sequence[EncodedPrompt], how: SamplingSettings) -> list[list[Draw]]:
    """The samples of each prompt; when the device runs out of memory, those of half as many at a time."""
    seeds = [[how.sample_seed(prompt.id, sample) for sample in range(how.n)] for prompt in prompts]
    try:
        return decoder.draw([prompt.prompt_ids for prompt in prompts], seeds)
    except ValueError as error:
        raise ValueError(f"one of the rows {', '.join(repr(prompt.id) for prompt in prompts)}: {error}") from error
    except torch.OutOfMemoryError:
        if len(prompts) == 1 and decoder.batch_rows == 1:
            raise
    # out of the handler, so that the error no longer holds on to what it was raised over
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if len(prompts) == 1:
        decoder.batch_rows = max(1, min(decoder.batch_rows, how.n) // 2)
        return _draw(decoder, prompts, how)
    middle = (len(prompts) + 1) // 2
    return _draw(decoder, prompts[:middle], how) + _draw(decoder, prompts[middle:], how)


def _item(row: OpenQuestion, draws: Sequence[Draw], reader: AnswerReader) -> AnswerSamples:
    samples = tuple(_sample(draw, reader) for draw in draws)
    return AnswerSamples(row.id, row.domain, row.question, row.answers, samples)


def _sample(draw: Draw, reader: AnswerReader) -> Sample:
    assert draw.finish is not None
    return Sample(
        text=reader.text(draw.tokens),
        log_probability=sum(draw.raw),
        tokens=len(draw.tokens),
        finish=draw.finish,
        adjusted_log_probability=sum(draw.adjusted) if draw.adjusted else None,
        token_log_probabilities=tuple(draw.raw),
    )


def _meta(
    model: nn.Module,
    renderer: Renderer,
    rows: Sequence[OpenQuestion],
    prompts: Sequence[EncodedPrompt],
    how: SamplingSettings,
    alpha: LogitAdjustment | None,
    ends: Sequence[int],
) -> dict[str, Any]:
    """What decided the samples; an interrupted run goes on only where all of it is the same."""
    own = getattr(causal_lm(model), "generation_config", None)
    own_settings = own.to_diff_dict() if own is not None else {}
    return {
        **about_model(model, renderer),
        "sampling": how.record(),
        "end_tokens": list(ends),
        "generation_config_not_used": {name: own_settings[name] for name in _NOT_USED if name in own_settings},
        "adjustment": about_adjustment(alpha),
        "log_probabilities": "raw logits, T = 1",
        "random_numbers": Noise.source(next(model.parameters()).device),
        "n": len(rows),
        "items": content_digest(
            [
                (row.id, row.domain, row.question, row.answers, prompt.prompt_ids)
                for row, prompt in zip(rows, prompts, strict=True)
            ]
        ),
    }
