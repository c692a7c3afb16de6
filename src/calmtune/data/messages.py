"""The words of a prompt, before any tokenizer: what a model here and one behind an endpoint are both asked."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from calmtune.data.open_questions import OPEN_PROMPTS
from calmtune.data.rows import Instruction, MultipleChoice, OpenQuestion, Row

if TYPE_CHECKING:
    from calmtune.data.prompts import PromptStyle

Messages = Sequence[tuple[str, str]]


def messages_of(row: Row, style: PromptStyle, template: Literal["chat", "plain"]) -> Messages:
    """A row as a conversation that waits for an answer: (role, content) pairs.

    Args:
        template: ``chat``: for a chat template or a chat endpoint; ``plain``: for :func:`plain_text`, which puts the
            frame around a question itself.
    """
    if isinstance(row, Instruction):
        messages: Messages = row.messages
    else:
        body = row.question.strip()
        if isinstance(row, MultipleChoice) and style.scoring == "letter":
            listed = zip(string.ascii_uppercase, row.choices, strict=False)
            body = "\n".join([body, *(f"{letter}. {choice.strip()}" for letter, choice in listed)])
        messages = (("user", f"Question: {body}\nAnswer:" if template == "chat" else body),)
    before = [style.system_prompt] if style.system_prompt else []
    asking = OPEN_PROMPTS[style.open_prompt] if isinstance(row, OpenQuestion) else ""
    if asking and template == "chat":
        messages = (("user", f"{asking}\n\n{messages[0][1]}"),)
    elif asking:
        before.append(asking)
    if before and not any(role == "system" for role, _ in messages):
        messages = (("system", "\n\n".join(before)), *messages)
    return messages


def plain_text(messages: Messages, row_id: str) -> str:
    """A conversation as plain text.

    Raises:
        ValueError: naming the row: it ends with no user's message, or has a role that the plain template does not know.

    >>> plain_text([("user", "2 + 2?")], "a")
    'Question: 2 + 2?\\nAnswer:'
    """
    if not messages or messages[-1][0] != "user":
        raise ValueError(f"row {row_id!r}: a conversation must end with a user's message before the answer")
    frames = {"system": "{}\n\n", "user": "Question: {}\nAnswer:", "assistant": " {}\n"}
    unknown = [role for role, _ in messages if role not in frames]
    if unknown:
        raise ValueError(f"row {row_id!r}: the plain template knows the roles {', '.join(frames)}; got {unknown[0]!r}")
    return "".join(frames[role].format(content.strip()) for role, content in messages)
