"""From rows to token ids: the one renderer that training, scoring, generation and ``calmtune inspect`` share.

Three invariants hold for everything that leaves this file.

1. *One BOS.* Text is encoded without special tokens; a BOS is put in front exactly when the tokenizer itself does so on
   plain text and the text does not already begin with one. So a chat template that writes its own BOS gets no second
   one, and a tokenizer that never adds one (``add_bos_token: false`` in a GGUF file) gets none.
2. *Answers in context.* The ids of an answer are what is left of ``encode(prompt + answer)`` after ``encode(prompt)``.
   Where the tokenizer merges across the join there is no such rest, and the item is refused before anything is scored.
3. *No trailing space in a prompt.* A prompt's last spaces belong to the answer (" A", not " " + "A"), as in the text
   that language models are trained on.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from jinja2 import TemplateError

from calmtune.data.messages import Messages, messages_of, plain_text
from calmtune.data.open_questions import OPEN_PROMPTS, OpenPrompt, OpenTarget, target_answer
from calmtune.data.rows import Instruction, MultipleChoice, OpenQuestion, Row

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Scoring = Literal["letter", "text"]

# stands for an answer while the text a template puts around answers is looked up
_PROBE = "calmtuneanswer"


@dataclass(frozen=True)
class PromptStyle:
    """How questions are put to the model.

    Args:
        scoring: ``letter``: options are listed and the model names a letter; ``text``: options are scored as answers.
        template: ``chat``: the tokenizer's chat template; ``plain``: text only; ``auto``: chat where there is one.
        system_prompt: text put before the question, or None.
        open_prompt: name of the text that asks an open question; see :data:`calmtune.data.open_questions.OPEN_PROMPTS`.
        open_target: which accepted answer of an open question is trained on; see
            :func:`calmtune.data.open_questions.target_answer`.
    """

    scoring: Scoring
    template: Literal["auto", "chat", "plain"] = "auto"
    system_prompt: str | None = None
    open_prompt: OpenPrompt = "question"
    open_target: OpenTarget = "first"

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("scoring", self.scoring, ("letter", "text")),
            ("template", self.template, ("auto", "chat", "plain")),
            ("open_prompt", self.open_prompt, tuple(OPEN_PROMPTS)),
            ("open_target", self.open_target, ("first", "central")),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt that waits for an answer: ``prompt_ids`` is what the model is given, in scoring as in generation."""

    id: str
    prompt_text: str
    prompt_ids: list[int]
    domain: str


@dataclass(frozen=True)
class EncodedItem:
    """A multiple-choice item.

    Args:
        option_ids: tokens of each option as they follow the prompt, at least one each.
        option_bytes: length of each option's text in UTF-8 bytes, without the space before it.
        label: index of the gold option.
        scoring: ``letter`` (every option is one token, all distinct), ``letter-sequence`` (letters of several tokens,
            scored by their summed log-probability) or ``text``.
    """

    id: str
    prompt_text: str
    prompt_ids: list[int]
    option_ids: list[list[int]]
    option_bytes: list[int]
    label: int
    domain: str
    scoring: str


@dataclass(frozen=True)
class EncodedSequence:
    """A prompt with its answer; the loss counts ``input_ids[answer_start:]`` alone.

    Args:
        letter_ids: for letters of one token each, the ids of all the item's letters; empty otherwise.
    """

    id: str
    input_ids: list[int]
    answer_start: int
    domain: str
    answer_text: str
    letter_ids: tuple[int, ...] = ()


class Renderer:
    """Turns rows into token ids, the same way wherever they are needed.

    Args:
        tokenizer: a transformers tokenizer.
        style: how questions are put.

    Raises:
        ValueError: ``template="chat"`` with a tokenizer that has no chat template.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, style: PromptStyle) -> None:
        has_template = bool(getattr(tokenizer, "chat_template", None))
        if style.template == "chat" and not has_template:
            raise ValueError(
                "template is 'chat', but the tokenizer has no chat template; use template 'plain' or 'auto'"
            )
        self.tokenizer = tokenizer
        self.style = style
        self.template: Literal["chat", "plain"] = "chat" if style.template != "plain" and has_template else "plain"
        bos = tokenizer.bos_token_id
        self.adds_bos = bos is not None and list(tokenizer("x")["input_ids"])[:1] == [bos]

    def settings(self) -> dict[str, Any]:
        """What decides the ids, as JSON values: goes into the record beside the scores."""
        source = str(self.tokenizer.chat_template) if self.template == "chat" else None
        return {
            "scoring": self.style.scoring,
            "template": self.template,
            "template_sha256": hashlib.sha256(source.encode()).hexdigest() if source else None,
            "system_prompt": self.style.system_prompt,
            "adds_bos": self.adds_bos,
            # records of other rows, and of the plain question, stay as they were before there was a choice
            **({"open_prompt": self.style.open_prompt} if self.style.open_prompt != "question" else {}),
        }

    def multiple_choice(self, row: MultipleChoice, max_length: int | None = None) -> EncodedItem:
        """Encode a multiple-choice row.

        Args:
            row: 2 to 26 options.
            max_length: most tokens a prompt with one option may have, or None for no limit.

        Raises:
            ValueError: naming the item: prompt and option merge into one token, an option is empty, two different
                options have the same tokens, or the item is too long.
        """
        if not 2 <= len(row.choices) <= len(string.ascii_uppercase):
            raise ValueError(f"item {row.id!r}: expected 2 to 26 options, got {len(row.choices)}")
        options = self._options(row)
        frame = self._frame(row)
        option_ids = self._continue(frame, options, row.id)
        _check_distinct(option_ids, options, row.id)
        _check_length(row.id, len(frame.prompt_ids) + max(map(len, option_ids)), max_length)
        single = all(len(ids) == 1 for ids in option_ids)
        return EncodedItem(
            id=row.id,
            prompt_text=frame.prompt_text,
            prompt_ids=frame.prompt_ids,
            option_ids=option_ids,
            option_bytes=[len(option.encode()) for option in options],
            label=row.label,
            domain=row.domain,
            scoring="text" if self.style.scoring == "text" else "letter" if single else "letter-sequence",
        )

    def gold_sequence(self, row: MultipleChoice, max_length: int | None = None) -> EncodedSequence:
        """The prompt of a multiple-choice row followed by its gold option, for losses over the whole vocabulary."""
        item = self.multiple_choice(row, max_length)
        return EncodedSequence(
            id=item.id,
            input_ids=item.prompt_ids + item.option_ids[item.label],
            answer_start=len(item.prompt_ids),
            domain=item.domain,
            answer_text=self._options(row)[row.label],
            letter_ids=tuple(ids[0] for ids in item.option_ids) if item.scoring == "letter" else (),
        )

    def instruction(self, row: Instruction, max_length: int | None = None) -> EncodedSequence:
        """Encode a conversation with its response and the token that ends the turn, which the loss counts too.

        Raises:
            ValueError: naming the row: it is empty or too long, prompt and response merge, or the tokenizer has no
                token to end it with.
        """
        return self._answered(row, row.response, max_length)

    def open_question(self, row: OpenQuestion, max_length: int | None = None) -> EncodedSequence:
        """Encode an open question with one accepted answer (``open_target``) and the token that ends the turn.

        Raises:
            ValueError: see :meth:`instruction`.
        """
        return self._answered(row, target_answer(row.answers, self.style.open_target), max_length)

    def asked(self, row: Row, max_length: int | None = None) -> EncodedSequence:
        """The prompt of any row with the end of the turn in the place of an answer: what the upper level is given where
        it may not see one. Only the position after the prompt means anything.

        Raises:
            ValueError: see :meth:`instruction`.
        """
        prompt = self.prompt(row)
        end = self._end(row.id)
        _check_length(row.id, len(prompt.prompt_ids) + 1, max_length)
        return EncodedSequence(row.id, [*prompt.prompt_ids, end], len(prompt.prompt_ids), row.domain, "")

    def prompt(self, row: Row) -> EncodedPrompt:
        """The prompt of any row, without an answer: what generation starts from."""
        frame = self._frame(row)
        return EncodedPrompt(row.id, frame.prompt_text, frame.prompt_ids, row.domain)

    def _answered(self, row: Row, response: str, max_length: int | None) -> EncodedSequence:
        """A prompt with its answer and the end of the turn."""
        response = response.strip()
        frame = self._frame(row)
        answer = self._continue(frame, [response], row.id, tail=frame.tail)[0]
        if not frame.tail:
            answer = [*answer, self._end(row.id)]
        _check_length(row.id, len(frame.prompt_ids) + len(answer), max_length)
        return EncodedSequence(row.id, frame.prompt_ids + answer, len(frame.prompt_ids), row.domain, response)

    def _end(self, row_id: str) -> int:
        """The token that ends a text."""
        if self.tokenizer.eos_token_id is None:
            raise ValueError(f"row {row_id!r}: the tokenizer has no token to end the response with; set its eos_token")
        return int(self.tokenizer.eos_token_id)

    def _options(self, row: MultipleChoice) -> list[str]:
        """The texts that are scored: the letters, or the options themselves."""
        if self.style.scoring == "letter":
            return list(string.ascii_uppercase[: len(row.choices)])
        return [choice.strip() for choice in row.choices]

    def _frame(self, row: Row) -> _Frame:
        """The prompt of a row and what stands between it and an answer."""
        messages = messages_of(row, self.style, self.template)
        if self.template == "chat":
            text, lead, tail = self._chat(messages, row.id)
        else:
            text, lead, tail = plain_text(messages, row.id), " ", ""
        stripped = text.rstrip(" ")
        return _Frame(stripped, self._encode([stripped])[0], text[len(stripped) :] + lead, tail)

    def _chat(self, messages: Messages, row_id: str) -> tuple[str, str, str]:
        """Prompt text, what stands between it and the answer, and what ends the turn, as the template writes them."""
        prompt = self._apply_template(messages, row_id, add_generation_prompt=True)
        full = self._apply_template((*messages, ("assistant", _PROBE)), row_id, add_generation_prompt=False)
        lead, found, tail = full[len(prompt) :].partition(_PROBE)
        if not full.startswith(prompt) or not found or lead.strip():
            # such a template writes past turns differently from the one it asks for: the answer follows directly
            return prompt, "", ""
        return prompt, lead, tail.rstrip()

    def _apply_template(self, messages: Messages, row_id: str, *, add_generation_prompt: bool) -> str:
        conversation = [{"role": role, "content": content} for role, content in messages]
        try:
            # the answer is read right after the prompt, so a template that can switch thinking off is told to
            return self.tokenizer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=add_generation_prompt, enable_thinking=False
            )
        except TemplateError as error:
            roles = ", ".join(role for role, _ in messages)
            raise ValueError(
                f"row {row_id!r}: the chat template refused a conversation of roles ({roles}): {error}. "
                "Leave the system prompt out, or use template 'plain'."
            ) from error

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        rows = [list(ids) for ids in self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]]
        if not self.adds_bos:
            return rows
        bos = self.tokenizer.bos_token_id
        return [ids if ids[:1] == [bos] else [bos, *ids] for ids in rows]

    def _continue(self, frame: _Frame, answers: Sequence[str], row_id: str, tail: str = "") -> list[list[int]]:
        """Ids of each answer as it follows the prompt."""
        start = len(frame.prompt_ids)
        if not all(answers):
            raise ValueError(
                f"row {row_id!r}: answer {list(answers).index('')} is empty; leave the row out or repair it"
            )
        whole = self._encode([frame.prompt_text + frame.lead + answer + tail for answer in answers])
        for answer, ids in zip(answers, whole, strict=True):
            if ids[:start] != frame.prompt_ids or len(ids) == start:
                raise ValueError(
                    f"row {row_id!r}: the tokenizer merges the end of the prompt {frame.prompt_text[-20:]!r} with the "
                    f"answer {(frame.lead + answer)[:20]!r}, so the answer has no tokens of its own. "
                    f"Use template {'plain' if self.template == 'chat' else 'chat'}, or leave the row out."
                )
        return [ids[start:] for ids in whole]

    def describe(self, encoded: EncodedItem | EncodedSequence | EncodedPrompt) -> str:
        """What the model is given, for people: the text, its ids and tokens, where it is read, and the answers' ids."""
        if isinstance(encoded, EncodedSequence):
            ids, start = encoded.input_ids, encoded.answer_start
            answers = [("answer", ids[start:])]
        else:
            ids, start = encoded.prompt_ids, len(encoded.prompt_ids)
            answers = []
        if isinstance(encoded, EncodedItem):
            marks = [
                "gold" if index == encoded.label else f"option {index}" for index in range(len(encoded.option_ids))
            ]
            answers = list(zip(marks, encoded.option_ids, strict=True))
        lines = [
            f"id        {encoded.id}",
            f"settings  {self.settings()}",
            "text      " + repr(self.tokenizer.decode(ids)),
            f"prompt    {start} tokens: {self._tokens(ids[:start])}",
            f"read at   position {start - 1}, after {self.tokenizer.decode(ids[start - 1 : start])!r}",
            *(f"{name}: {self._tokens(option)}" for name, option in answers),
        ]
        return "\n".join(lines)

    def _tokens(self, ids: Sequence[int]) -> str:
        return " ".join(f"{token}:{self.tokenizer.decode([token])!r}" for token in ids)


@dataclass(frozen=True)
class _Frame:
    prompt_text: str
    prompt_ids: list[int]
    lead: str  # between prompt and answer: the prompt's last spaces, or the one a template writes
    tail: str  # ends the turn


def _check_distinct(option_ids: Sequence[Sequence[int]], options: Sequence[str], row_id: str) -> None:
    """Equal texts are one answer given twice, and tie; different texts must not become the same tokens."""
    first: dict[tuple[int, ...], str] = {}
    for ids, option in zip(option_ids, options, strict=True):
        other = first.setdefault(tuple(ids), option)
        if other != option:
            raise ValueError(
                f"item {row_id!r}: the options {other!r} and {option!r} have the same tokens {list(ids)}, so the model "
                "cannot tell them apart; use a tokenizer that knows these characters, or leave the item out"
            )


def _check_length(row_id: str, length: int, max_length: int | None) -> None:
    if max_length is not None and length > max_length:
        raise ValueError(
            f"row {row_id!r} has {length} tokens, more than max_length {max_length}; "
            "raise max_length or leave the row out (rows are never cut)"
        )
