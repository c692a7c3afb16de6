"""Questions about the names of weekdays and months in other languages."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

from calmtune.data.bank.fact import Fact, choose, fold, sample, without, words

# languages in which CLDR's names were checked by many people; small languages often hold names borrowed from English
WELL_COVERED = words(
    "af am ar bg bn ca cs cy da de el es et eu fa fi fil fr ga gl gu he hi hr hu hy id is it ja ka kk km "
    "kn ko ky lo lt lv mk ml mn mr ms my nb ne nl pa pl pt ro ru si sk sl sq sv sw ta te th tr uk ur uz "
    "vi zh zu"
)
MONTHS_KEPT = 360


def weekdays() -> Iterator[Fact]:
    """English weekday -> its name in another language; wrong answers are the other days in that language."""
    templates = (
        'What is the {language} word for "{english}"?',
        'How do you say "{english}" in {language}?',
        'Which {language} word means "{english}"?',
    )
    yield from _names("weekdays", 7, templates)


def months() -> Iterator[Fact]:
    """English month -> its name in another language; names close to the English one are left out."""
    templates = (
        "What is the month of {english} called in {language}?",
        'Which {language} word is the name of the month "{english}"?',
    )
    facts = {fact.subject: fact for fact in _names("months", 12, templates)}
    for subject in sample("months", facts, MONTHS_KEPT):
        yield facts[subject]


def _names(domain: str, expected: int, templates: tuple[str, ...]) -> Iterator[Fact]:
    from babel import Locale

    english_locale = Locale("en")
    english = _wide(english_locale, domain)
    for code in WELL_COVERED:
        names = _wide(Locale(code), domain)
        if len({fold(n) for n in names.values()}) != expected or any(c.isdigit() for n in names.values() for c in n):
            continue
        for key, name in names.items():
            if SequenceMatcher(None, fold(name), fold(english[key])).ratio() > 0.7:
                continue
            subject = f"{code}-{english[key].lower()}"
            yield Fact(
                subject=subject,
                question=choose(f"{domain}/{subject}", templates).format(
                    language=english_locale.languages[code], english=english[key]
                ),
                answer=name,
                near=without((other for k, other in names.items() if k != key), name),
            )


def _wide(locale: object, domain: str) -> dict[int, str]:
    """Full names as they stand alone, by number."""
    table = locale.days if domain == "weekdays" else locale.months  # type: ignore[attr-defined]
    return {key: str(table["stand-alone"]["wide"][key]) for key in sorted(table["stand-alone"]["wide"])}
