"""Questions about the chemical elements."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from calmtune.data.bank.fact import Fact, choose, without


@cache
def elements() -> tuple[tuple[int, str, str], ...]:
    """(atomic number, symbol, name) of every named element, in order."""
    import periodictable

    return tuple((e.number, e.symbol, e.name) for e in periodictable.elements if e.number > 0)


def element_symbols() -> Iterator[Fact]:
    """Element -> symbol; wrong answers are real symbols, those with a letter in common first."""
    for _, symbol, name in elements():
        templates = (
            "What is the chemical symbol of {}?",
            "Which symbol does the element {} have?",
            "How is the element {} written in chemical formulas?",
        )
        alike = [s for _, s, _ in elements() if s[0] == symbol[0] or s[-1].lower() in name[:3]]
        yield Fact(
            subject=name,
            question=choose(f"element_symbols/{name}", templates).format(name),
            answer=symbol,
            near=without(alike, symbol),
            far=without((s for _, s, _ in elements()), symbol),
        )


def element_numbers() -> Iterator[Fact]:
    """Atomic number -> element; wrong answers stand at most eight places away."""
    for number, _, name in elements():
        templates = (
            "Which element has the atomic number {}?",
            "Which chemical element has {} protons in its nucleus?",
        )
        close = [other for n, _, other in elements() if 0 < abs(n - number) <= 8]
        yield Fact(
            subject=str(number),
            question=choose(f"element_numbers/{number}", templates if number > 1 else templates[:1]).format(number),
            answer=name,
            near=without(close, name),
        )
