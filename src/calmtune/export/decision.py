"""``decision.json`` for transformers' decision pipeline: the run's prompt as a template, letters, a temperature.

The pipeline reads the logits of the letters after the prompt, divides them by the temperature and takes the softmax:
what a run that scores letters does. Its ``confidence`` is not the probability p of the answer but
(p - 1/n) / (1 - 1/n), 0 at a guess among n options; the probabilities themselves are in ``probabilities``.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from typing import Any

from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.data.prompts import Renderer
from calmtune.data.rows import MultipleChoice
from calmtune.export.use import Use

QUESTION_TYPES = ("choice", "score", "noul")
ADAPTER_FOLDER = "adapter"
_QUESTION, _OPTIONS = "calmtunequestion", ("calmtunefirst", "calmtunesecond")

_TEMPLATE = """\
{%- macro text(x) %}{{ "" if x is none else x if x is string else x|tojson }}{% endmacro -%}
{%- set asked = [text(state)|trim, text(question.instructions)|trim]|select|join("\\n\\n") -%}
{{- @PREFIX@ ~ asked -}}
{%- for option in question.options -%}
    {%- set about = text(question.descriptions[loop.index0])|trim -%}
    {%- if question.type == "choice" -%}
        {%- set line = (option|trim) ~ ": " ~ about if about else option|trim -%}
    {%- else -%}
        {%- set line = about or option -%}
    {%- endif -%}
    {{- "\\n" ~ "@LETTERS@"[loop.index0] ~ ". " ~ line -}}
{%- endfor -%}
{{- @SUFFIX@ -}}
"""


def refuse_undecidable(use: Use, adjustment: LogitAdjustment | None, scoring: str) -> None:
    """Raise where one temperature on the letters' logits is not the run as it is used; needs no model.

    Raises:
        ValueError: the reason, and what to do in its place.
    """
    if scoring != "letter":
        raise ValueError(
            "the decision pipeline reads the logits of one-token labels, and this run scores the options' texts; train "
            "with scoring: letter, or serve the model and use `calmtune merge` with your own scoring"
        )
    if use.vector is not None:
        raise ValueError(
            f"'{use.label}' has a factor and a shift for each option's place; decision.json holds one temperature. "
            f"Choose --use '{use.label.replace('VS', 'TS')}'"
        )
    if use.adjusted and adjustment is not None and adjustment.kind == "vector":
        raise ValueError(
            "this run's alpha has a factor and a shift for each class; decision.json holds one temperature. "
            "Choose --weights merged, which folds alpha into the head where the head has a bias, or --use "
            "'raw + TS'"
        )


def total_temperature(use: Use, adjustment: LogitAdjustment | None) -> float:
    """The one temperature of a use with a scalar alpha or none: tau times T.

    >>> alpha = LogitAdjustment(4, "scalar")
    >>> alpha.start_at_(2.0)
    >>> round(total_temperature(Use(True, "TS", 1.5), alpha), 6)
    3.0
    """
    if not use.adjusted or adjustment is None or adjustment.is_identity:
        return use.temperature
    assert adjustment.kind == "scalar", "refuse_undecidable comes first"
    return use.temperature * float(adjustment.log_temperature.double().exp())


def decision_template(renderer: Renderer) -> str:
    """The Jinja template that writes the renderer's letter prompts.

    Args:
        renderer: with ``scoring: letter``.

    Raises:
        ValueError: a chat template that changes what it is given, so that no fixed text stands around the question.
    """
    probe = MultipleChoice("probe", _QUESTION, _OPTIONS, 0, "")
    text = renderer.prompt(probe).prompt_text
    body = _QUESTION + "".join(f"\n{letter}. {option}" for letter, option in zip("AB", _OPTIONS, strict=True))
    prefix, found, suffix = text.partition(body)
    if not found:
        raise ValueError(
            "the tokenizer's chat template changes the question it is given, so its prompts cannot be written as a "
            "decision template; train with template: plain"
        )
    bos = renderer.tokenizer.bos_token
    if renderer.adds_bos and not text.startswith(bos):
        prefix = bos + prefix
    return (
        _TEMPLATE.replace("@LETTERS@", string.ascii_uppercase)
        .replace("@PREFIX@", _literal(prefix))
        .replace("@SUFFIX@", _literal(suffix))
    )


def labels_of(tokenizer: Any, letters: Sequence[int]) -> list[str]:
    """Texts that the pipeline turns back into the letters' tokens.

    Args:
        letters: token of each option's letter, in order.

    Raises:
        ValueError: a letter that is never one token by itself in this tokenizer.
    """
    found = []
    for letter, token in zip(string.ascii_uppercase, letters, strict=False):
        spellings = dict.fromkeys([tokenizer.decode([token]), letter, f" {letter}"])
        fits = [one for one in spellings if tokenizer([one], add_special_tokens=False)["input_ids"] == [[token]]]
        if not fits:
            raise ValueError(
                f"the letter {letter} is the token {token} after the prompt, and no text by itself becomes that token, "
                "so the decision pipeline cannot read it; use `calmtune merge` and read the logits yourself"
            )
        found.append(fits[0])
    return found


def more_labels(tokenizer: Any, labels: Sequence[str]) -> list[str]:
    """The labels with those of further letters, spelled as the first is, as long as each is one token of its own."""
    found, tokens = list(labels), [tokenizer([one], add_special_tokens=False)["input_ids"][0] for one in labels]
    for letter in string.ascii_uppercase[len(found) :]:
        label = labels[0].replace("A", letter)
        ids = tokenizer([label], add_special_tokens=False)["input_ids"][0]
        if len(ids) != 1 or ids[0] == tokenizer.unk_token_id or ids in tokens:
            break
        found.append(label)
        tokens.append(ids)
    return found


def decision_config(labels: Sequence[str], temperature: float, template: str, adapter: str | None) -> Any:
    """transformers' ``DecisionConfig``, one temperature and one list of labels for every type of question."""
    from transformers.decision import DecisionConfig

    return DecisionConfig(
        labels={kind: list(labels[:2] if kind == "noul" else labels) for kind in QUESTION_TYPES},
        temperature=dict.fromkeys(QUESTION_TYPES, temperature),
        chat_template=template,
        adapter=adapter,
    )


def request_of(row: MultipleChoice) -> dict[str, Any] | None:
    """A row as a request to the pipeline, or None where two options have the same text, which a request cannot say."""
    options = [choice.strip() for choice in row.choices]
    if len(set(options)) < len(options):
        return None
    question = {"type": "choice", "instructions": row.question, "criteria": dict.fromkeys(options)}
    return {"state": "", "questions": {"answer": question}}


def probabilities_of(answer: Mapping[str, Any], row: MultipleChoice) -> list[float]:
    """Probabilities of a row's options from the pipeline's answers, in their order."""
    by_option = answer["answer"]["probabilities"]
    return [float(by_option[choice.strip()]) for choice in row.choices]


def _literal(text: str) -> str:
    """A text as a Jinja string; Jinja reads escapes as Python does, but knows no surrogate pairs."""
    return json.dumps(text, ensure_ascii=False)
