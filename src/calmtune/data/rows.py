"""Rows: the three kinds of item the package knows, and the one place where raw records become such items.

A record's kind is read off its keys, never off its values:

* multiple choice: ``question``, ``choices`` (or ``options``) and a gold as ``label``, ``answer`` or ``answerKey``;
* instruction: ``instruction`` (``input``) ``output``; ``prompt`` ``completion``; or ``messages``;
* open question: ``question`` and ``answers``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calmtune.data.gold import LETTERS, gold_index

MAX_CHOICES = len(LETTERS)
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class MultipleChoice:
    """A question with 2 to 26 options, one of them right.

    Args:
        id: unique within a set of rows.
        question: the text, without the options.
        choices: the options' texts, without letters. Two may be equal (MMLU has such rows); the gold is an index.
        label: index of the right option, ``0 <= label < len(choices)``.
        domain: where the row comes from, e.g. ``"arc_easy"``.
    """

    id: str
    question: str
    choices: tuple[str, ...]
    label: int
    domain: str


@dataclass(frozen=True)
class Instruction:
    """A conversation and the answer to it.

    Args:
        id: unique within a set of rows.
        messages: (role, content) pairs up to, not including, the answer; the last is the user's.
        response: the answer.
        domain: where the row comes from.
    """

    id: str
    messages: tuple[tuple[str, str], ...]
    response: str
    domain: str

    @property
    def question(self) -> str:
        """The last thing the user said; what splits are made by."""
        return self.messages[-1][1]


@dataclass(frozen=True)
class OpenQuestion:
    """A question to be answered in free text, with every answer that counts as right.

    Args:
        id: unique within a set of rows.
        question: the text.
        answers: one or more accepted answers.
        domain: where the row comes from.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    domain: str


Row = MultipleChoice | Instruction | OpenQuestion

_FORMS = (
    "{question, choices, label | answer | answerKey}, {instruction, input?, output}, {prompt, completion}, {messages}, "
    "{question, answers}"
)


def parse_row(raw: Mapping[str, Any], *, where: str, default_id: str, domain: str) -> Row:
    """Turn one raw record into a row, or say what is wrong with it.

    Outer white space of questions, options and answers is removed; nothing else is changed.

    Args:
        raw: the record; keys that no form uses are ignored.
        where: place of the record for error messages, e.g. ``"train.jsonl:3"``.
        default_id: id for a record without ``id``.
        domain: domain for a record without ``domain``.

    Raises:
        ValueError: the keys fit no form or more than one, a value has the wrong type, or the gold is missing or
            ambiguous.

    >>> raw = {"question": "2 + 2?", "choices": ["3", "4"], "answer": "4"}
    >>> parse_row(raw, where="a:1", default_id="a/1", domain="a").label
    1
    """
    try:
        if not isinstance(raw, Mapping):
            raise ValueError(f"expected an object with keys, got {type(raw).__name__}")
        raw = _unnested(raw)
        head = {"id": _id(raw, default_id), "domain": _text(raw, "domain") if raw.get("domain") is not None else domain}
        return _PARSERS[_kind(raw)](raw, head)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _kind(raw: Mapping[str, Any]) -> str:
    """Name of the one form whose keys the record has."""
    has = {key for key, value in raw.items() if value is not None}
    tests = {
        "choices": "choices" in has or "options" in has,
        "messages": "messages" in has,
        "completion": "completion" in has and "prompt" in has,
        "output": "instruction" in has and "output" in has,
        "answers": "answers" in has and "question" in has,
    }
    found = [name for name, present in tests.items() if present]
    if len(found) == 1:
        return found[0]
    keys = ", ".join(sorted(str(key).encode(errors="backslashreplace").decode() for key in has)) or "none"
    if not found:
        hint = " For an open question give the accepted answers as a list named `answers`." if "answer" in has else ""
        raise ValueError(f"expected the keys of one of {_FORMS}; got {keys}.{hint}")
    raise ValueError(f"the keys {keys} fit more than one form (by {', '.join(found)}); remove those that do not belong")


def _unnested(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """AI2's own files keep the stem and the options inside ``question``; the hub calls the stem ``question_stem``."""
    question = raw.get("question")
    if isinstance(question, Mapping):
        if not {"stem", "choices"} <= set(question) or "choices" in raw:
            raise ValueError("`question` is an object; expected text, or {stem, choices} and no other `choices`")
        return {**raw, "question": question["stem"], "choices": question["choices"]}
    if "question_stem" in raw and question is None:
        return {**raw, "question": raw["question_stem"]}
    return raw


def _multiple_choice(raw: Mapping[str, Any], head: dict[str, str]) -> MultipleChoice:
    if "choices" in raw and "options" in raw:
        raise ValueError("both `choices` and `options` are given; keep one")
    key = "choices" if "choices" in raw else "options"
    choices, own_labels = _choices(raw[key], key)
    if own_labels is not None and raw.get("labels") is not None:
        raise ValueError(f"labels are given twice, within `{key}` and as `labels`; keep one")
    labels = _labels(own_labels if own_labels is not None else raw.get("labels"), len(choices))
    return MultipleChoice(
        question=_text(raw, "question"), choices=choices, label=gold_index(raw, choices, labels), **head
    )


def _choices(value: Any, key: str) -> tuple[tuple[str, ...], Any]:
    """The options' texts, and their labels where ``value`` carries them."""
    labels: Any = None
    if isinstance(value, Mapping):
        if set(value) == {"text", "label"}:
            value, labels = value["text"], value["label"]
        else:
            value, labels = list(value.values()), list(value)
    elif isinstance(value, Sequence) and not isinstance(value, str) and value and isinstance(value[0], Mapping):
        if not all(isinstance(option, Mapping) and {"text", "label"} <= set(option) for option in value):
            raise ValueError(f"`{key}` mixes forms; expected {{text, label}} for every option")
        value, labels = [option["text"] for option in value], [option["label"] for option in value]
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"`{key}` is {type(value).__name__}; expected a list of texts")
    if not 2 <= len(value) <= MAX_CHOICES:
        raise ValueError(f"`{key}` has {len(value)} options; expected 2 to {MAX_CHOICES}")
    return tuple(_string(option, f"{key}[{index}]") for index, option in enumerate(value)), labels


def _labels(value: Any, count: int) -> tuple[str, ...] | None:
    """Names of the options as the source has them, or None where it has none."""
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != count:
        raise ValueError(f"`labels` is {value!r}; expected a list with one label for each of the {count} options")
    # a label may be a number (1 to 4 in some of ARC), but never a truth value
    names = tuple(str(v) if isinstance(v, int) and not isinstance(v, bool) else _string(v, "labels") for v in value)
    if len(set(names)) < count:
        raise ValueError(f"`labels` {list(names)} has a label twice; expected distinct labels")
    return names


def _instruction(raw: Mapping[str, Any], head: dict[str, str]) -> Instruction:
    user = _text(raw, "instruction")
    extra = raw.get("input")
    if extra is not None and not isinstance(extra, str):
        _string(extra, "input")
    if extra and extra.strip():
        user = f"{user}\n\n{extra.strip()}"
    return Instruction(messages=(("user", user),), response=_text(raw, "output"), **head)


def _completion(raw: Mapping[str, Any], head: dict[str, str]) -> Instruction:
    prompt, completion = raw["prompt"], raw["completion"]
    if isinstance(prompt, str) != isinstance(completion, str):
        raise ValueError("`prompt` and `completion` differ in form; expected two texts or two message lists")
    if isinstance(prompt, str):
        return Instruction(messages=(("user", _text(raw, "prompt")),), response=_text(raw, "completion"), **head)
    answer = _conversation(completion, "completion")
    if [role for role, _ in answer] != ["assistant"]:
        raise ValueError(f"`completion` has the roles {[r for r, _ in answer]}; expected one assistant message")
    return _dialogue((*_conversation(prompt, "prompt"), *answer), head)


def _messages(raw: Mapping[str, Any], head: dict[str, str]) -> Instruction:
    return _dialogue(_conversation(raw["messages"], "messages"), head)


def _conversation(value: Any, key: str) -> tuple[tuple[str, str], ...]:
    """Role and content of each message, in order."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise ValueError(f"`{key}` is {value!r}; expected a list with at least one {{role, content}}")
    turns = []
    for index, message in enumerate(value):
        place = f"{key}[{index}]"
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise ValueError(f"`{place}` is {message!r}; expected {{role, content}}")
        if message["role"] not in ROLES:
            raise ValueError(f"`{place}.role` is {message['role']!r}; expected one of {', '.join(ROLES)}")
        turns.append((message["role"], _string(message["content"], f"{place}.content")))
    return tuple(turns)


def _dialogue(turns: tuple[tuple[str, str], ...], head: dict[str, str]) -> Instruction:
    """Check the order of the roles: a system message at most, then user and assistant in turn, an assistant last."""
    roles = [role for role, _ in turns]
    spoken = roles[1:] if roles[0] == "system" else roles
    if not spoken or len(spoken) % 2 or spoken != ["user", "assistant"] * (len(spoken) // 2):
        raise ValueError(
            f"the roles are {roles}; expected system (or none), then user and assistant in turn, assistant last"
        )
    return Instruction(messages=turns[:-1], response=turns[-1][1], **head)


def _open_question(raw: Mapping[str, Any], head: dict[str, str]) -> OpenQuestion:
    value = raw["answers"]
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise ValueError(f"`answers` is {value!r}; expected a list with at least one text")
    answers = tuple(_string(answer, f"answers[{index}]") for index, answer in enumerate(value))
    return OpenQuestion(question=_text(raw, "question"), answers=tuple(dict.fromkeys(answers)), **head)


def _id(raw: Mapping[str, Any], default: str) -> str:
    value = raw.get("id")
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _string(value, "id")


def _text(raw: Mapping[str, Any], key: str) -> str:
    if raw.get(key) is None:
        raise ValueError(f"`{key}` is missing; expected a text")
    return _string(raw[key], key)


def _string(value: Any, key: str) -> str:
    """``value`` as text without outer white space; never a converted one."""
    if isinstance(value, bool):
        raise ValueError(f'`{key}` is the truth value {value}; if it is a word such as "no" or "yes", put it in quotes')
    if isinstance(value, int | float):
        raise ValueError(f"`{key}` is the number {value!r}; if it is meant as text, put it in quotes")
    if not isinstance(value, str):
        raise ValueError(f"`{key}` is {type(value).__name__} {_short(value)}; expected a text")
    half = next((character for character in value if "\ud800" <= character <= "\udfff"), None)
    if half:
        raise ValueError(
            f"`{key}` holds \\u{ord(half):04x}, one half of a surrogate pair, which is no character; write the whole "
            "pair, or the character itself"
        )
    if not value.strip():
        raise ValueError(f"`{key}` is empty; expected a text")
    return value.strip()


def _short(value: Any) -> str:
    """A value's repr for a message, cut to a line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


_PARSERS: dict[str, Callable[[Mapping[str, Any], dict[str, str]], Row]] = {
    "choices": _multiple_choice,
    "messages": _messages,
    "completion": _completion,
    "output": _instruction,
    "answers": _open_question,
}
