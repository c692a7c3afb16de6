"""The built-in question bank ``facts``: thousands of multiple-choice items on checkable facts, made from data packages.

Nothing is downloaded and nothing is random: the same packages and seed give the same items in every process. The
question texts do not depend on the seed, which moves only the wrong answers and the place of the right one, so that a
fact keeps its side of a split whatever the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from calmtune.data.bank import calendar, elements, geography, languages, money, places, sizes
from calmtune.data.bank.fact import Fact, fold, rank
from calmtune.data.rows import MultipleChoice

OPTIONS = 4

DOMAINS: dict[str, Callable[[], Iterable[Fact]]] = {
    "calling_codes": geography.calling_codes,
    "capitals": geography.capitals,
    "city_countries": places.city_countries,
    "continents": geography.continents,
    "country_areas": sizes.country_areas,
    "country_codes": geography.country_codes,
    "country_populations": sizes.country_populations,
    "currencies": money.currencies,
    "currency_codes": money.currency_codes,
    "element_numbers": elements.element_numbers,
    "element_symbols": elements.element_symbols,
    "endonyms": languages.endonyms,
    "exonyms": languages.exonyms,
    "language_codes": languages.language_codes,
    "months": calendar.months,
    "neighbours": geography.neighbours,
    "official_languages": languages.official_languages,
    "scripts": languages.scripts,
    "subdivisions": places.subdivisions,
    "us_city_states": places.us_city_states,
    "weekdays": calendar.weekdays,
}


def facts_domains() -> tuple[str, ...]:
    """Names of the bank's domains, alphabetical.

    >>> "capitals" in facts_domains()
    True
    """
    return tuple(sorted(DOMAINS))


def facts(domains: Sequence[str] | None = None, seed: int = 0) -> list[MultipleChoice]:
    """The bank's items, each with four options of which exactly one is right.

    Args:
        domains: names out of :func:`facts_domains`; None for all of them.
        seed: chooses the wrong answers and the order of the options, never the question.

    Returns:
        Items with ids ``facts/<domain>/<subject>``, ordered by domain and subject.

    Raises:
        ValueError: a domain that does not exist or is named twice.

    >>> item = next(item for item in facts(["capitals"]) if item.id == "facts/capitals/fr")
    >>> item.choices[item.label], len(item.choices)
    ('Paris', 4)
    """
    chosen = facts_domains() if domains is None else tuple(domains)
    unknown = sorted(set(chosen) - set(DOMAINS))
    if unknown or not chosen:
        raise ValueError(f"facts: expected domains out of {', '.join(facts_domains())}; got {unknown or 'none'}")
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"facts: a domain is named twice in {list(chosen)}; name each once")
    return [
        _item(domain, fact, seed)
        for domain in sorted(chosen)
        for fact in sorted(DOMAINS[domain](), key=lambda fact: fact.subject)
    ]


def _item(domain: str, fact: Fact, seed: int) -> MultipleChoice:
    """Draw three wrong answers, near ones first, and put the right one in a place drawn uniformly."""
    key = f"facts/{domain}/{fact.subject}"
    wrong: list[str] = []
    for pool in (fact.near, fact.far):
        taken = {fold(option) for option in (fact.answer, *wrong)}
        left = [option for option in pool if fold(option) not in taken]
        wrong += sorted(left, key=lambda option: rank(seed, key, option))[: OPTIONS - 1 - len(wrong)]
    if len(wrong) < OPTIONS - 1:
        raise ValueError(f"{key}: only {len(wrong)} wrong answers; the installed data packages lack the others")
    place = rank(seed, key, "place") % OPTIONS
    choices = (*wrong[:place], fact.answer, *wrong[place:])
    return MultipleChoice(id=key, question=fact.question, choices=choices, label=place, domain=domain)
