"""Questions that compare states: which of four is the largest or the smallest, by area and by population."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from calmtune.data.bank.countries import Country, countries
from calmtune.data.bank.fact import Fact, choose, sample

# far enough apart that old figures and other definitions (inland water, residents) cannot change the answer
MARGIN = 1.5
REACH = 8.0


def country_areas() -> Iterator[Fact]:
    """Four states -> the one with the largest, or the smallest, area."""
    templates = {
        "largest": ("Which of these countries has the largest area: {}?", "Which country is the biggest by area: {}?"),
        "smallest": (
            "Which of these countries has the smallest area: {}?",
            "Which country is the smallest by area: {}?",
        ),
    }
    yield from _comparisons("country_areas", lambda country: country.area, templates)


def country_populations() -> Iterator[Fact]:
    """Four states -> the one with the most, or the fewest, inhabitants."""
    templates = {
        "largest": (
            "Which of these countries has the largest population: {}?",
            "Which country has the most inhabitants: {}?",
        ),
        "smallest": (
            "Which of these countries has the smallest population: {}?",
            "Which country has the fewest inhabitants: {}?",
        ),
    }
    yield from _comparisons("country_populations", lambda country: float(country.population), templates)


def _comparisons(
    domain: str, size: Callable[[Country], float], templates: Mapping[str, tuple[str, ...]]
) -> Iterator[Fact]:
    """Each state once as the largest and once as the smallest of a group that is the same for every seed."""
    states = [country for country in countries().values() if size(country) > 0]
    for country in states:
        for extreme in ("largest", "smallest"):

            def clearly(other: Country, *, home: Country = country, side: str = extreme) -> bool:
                ratio = size(home) / size(other) if side == "largest" else size(other) / size(home)
                return MARGIN <= ratio <= REACH

            subject = f"{country.code}-{extreme}".lower()
            others = sample(f"{domain}/{subject}", (other.code for other in states if clearly(other)), 3)
            if len(others) < 3:
                continue
            group = sorted((country.code, *others))
            listed = [countries()[code].inside for code in group]
            yield Fact(
                subject=subject,
                question=choose(f"{domain}/{subject}", templates[extreme]).format(
                    f"{', '.join(listed[:-1])} or {listed[-1]}"
                ),
                answer=country.name,
                near=tuple(countries()[code].name for code in others),
            )
