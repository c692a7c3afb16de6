"""A fact before it becomes a multiple-choice item: one answer and the wrong answers it may stand beside."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Fact:
    """One question with its answer and wrong answers, before options are drawn and ordered.

    Args:
        subject: what the question is about, unique within its domain; the item's id is ``facts/<domain>/<subject>``.
        question: the text, the same for every seed, so that one fact never stands on two sides of a split.
        answer: the right answer.
        near: wrong answers that are plausible; used first.
        far: wrong answers used when there are fewer than three near ones.
    """

    subject: str
    question: str
    answer: str
    near: tuple[str, ...]
    far: tuple[str, ...] = ()


def rank(*parts: object) -> int:
    """A number in [0, 2**64) fixed by ``parts`` alone: the same in every process, on every machine, in every Python.

    >>> rank("facts", 0) == rank("facts", 0), rank("facts", 0) == rank("facts", 1)
    (True, False)
    """
    return int.from_bytes(hashlib.sha256("\x00".join(map(str, parts)).encode()).digest()[:8], "big")


def words(text: str) -> list[str]:
    """The words of a long list written as running text, which reads better than a column of quotes."""
    return text.split()


def choose(key: str, options: Sequence[str]) -> str:
    """One of ``options``, fixed by ``key``."""
    return options[rank("choose", key) % len(options)]


def sample(key: str, options: Iterable[str], count: int) -> list[str]:
    """Up to ``count`` of ``options`` fixed by ``key``; an option stays or goes on its own, whatever the others are."""
    return sorted(sorted(options, key=lambda option: rank("sample", key, option))[:count])


@cache
def fold(text: str) -> str:
    """Letters and digits in lower case without accents, for telling whether two names are the same.

    >>> fold("São Tomé & Príncipe")
    'saotomeprincipe'
    """
    plain = unicodedata.normalize("NFKD", text).casefold()
    # the marks of the Indic and other scripts are vowels, not accents: only the Latin block U+0300..036F is dropped
    return "".join(c for c in plain if c.isalnum() or (unicodedata.category(c)[0] == "M" and ord(c) > 0x36F))


def slug(text: str) -> str:
    """``text`` as a part of an id: ASCII where it can be, words joined by ``-``.

    >>> slug("Côte d'Ivoire")
    'cote-d-ivoire'
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", text).casefold() if not unicodedata.combining(c))
    return re.sub(r"\W+", "-", plain).strip("-")


def without(options: Iterable[str], *taken: str) -> tuple[str, ...]:
    """``options`` in order, each once, less those equal (folded) to one of ``taken``.

    >>> without(["Lima", "Quito", "lima", "Cusco"], "Quito")
    ('Lima', 'Cusco')
    """
    seen = {fold(text) for text in taken}
    kept = []
    for option in options:
        key = fold(option)
        if key not in seen:
            seen.add(key)
            kept.append(option)
    return tuple(kept)
