"""Grading by text: is an answer one of the accepted ones? Both sides go through the same normaliser, always."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .normalise import NORMALISER, normaliser_named

RULE_VERSION = "1"


@dataclass(frozen=True)
class Grade:
    """What a rule made of an answer.

    Args:
        correct: whether the answer counts as right.
        rule: ``"exact"`` or ``"containment"``.
        version: the rule's version.
        normaliser: name of the normaliser both sides went through.
        alias: the accepted answer that matched, as it was given; None where none did.
    """

    correct: bool
    rule: str
    version: str
    normaliser: str
    alias: str | None = None


def grade(answer: str, aliases: Sequence[str], rule: str = "exact", normaliser: str = NORMALISER) -> Grade:
    """Grade the first line of ``answer`` against every accepted answer.

    ``exact``: the normal forms are equal. ``containment``: the alias's words stand in the answer, whole and in order;
    that also accepts "not Paris" and lists of guesses, so it is never the default. An empty form matches nothing.

    Args:
        answer: what the model said.
        aliases: one or more accepted answers.
        rule: ``"exact"`` or ``"containment"``.
        normaliser: a key of ``NORMALISERS``.

    Raises:
        ValueError: no aliases, or an unknown rule or normaliser.

    >>> grade("The Beatles\\nQ: ...", ["beatles"]).correct, grade("314", ["3.14"]).correct
    (True, False)
    """
    if rule not in RULES:
        raise ValueError(f"expected a rule of {sorted(RULES)}, got {rule!r}")
    if isinstance(aliases, str) or not aliases:
        raise ValueError(f"expected a list with at least one accepted answer, got {aliases!r}")
    form, matches = normaliser_named(normaliser), RULES[rule]
    said = form(first_line(answer))
    alias = next((alias for alias in aliases if matches(said, form(alias))), None)
    return Grade(alias is not None, rule, RULE_VERSION, normaliser, alias)


def first_line(text: str) -> str:
    """The first line that is not blank, without outer white space; U+2028 and its like end a line too.

    >>> first_line("\\n Paris \\nQ: Where is Rome?")
    'Paris'
    """
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def token_f1(answer: str, aliases: Sequence[str], normaliser: str = NORMALISER) -> float:
    """Largest token F1 of the first line against the accepted answers, in [0, 1].

    ``F1 = 2 P R / (P + R)`` with precision P and recall R of the multiset of words shared with one alias; 0 where
    either form is empty. Words are those of the chosen normaliser; ``squad-1.1`` gives the official figure.

    Raises:
        ValueError: no aliases, or an unknown normaliser.

    Source: ``f1_score`` and ``metric_max_over_ground_truths`` of the SQuAD 1.1 evaluation script.

    >>> token_f1("the tall Eiffel Tower", ["Eiffel Tower"])
    0.8
    """
    if isinstance(aliases, str) or not aliases:
        raise ValueError(f"expected a list with at least one accepted answer, got {aliases!r}")
    form = normaliser_named(normaliser)
    said = form(first_line(answer)).split()
    return max(_f1(said, form(alias).split()) for alias in aliases)


def _f1(said: Sequence[str], accepted: Sequence[str]) -> float:
    shared = (Counter(said) & Counter(accepted)).total()
    return 2 * shared / (len(said) + len(accepted)) if shared else 0.0


def _equal(said: str, accepted: str) -> bool:
    return bool(accepted) and said == accepted


def _contains(said: str, accepted: str) -> bool:
    return bool(accepted) and f" {accepted} " in f" {said} "


RULES: dict[str, Callable[[str, str], bool]] = {"exact": _equal, "containment": _contains}
