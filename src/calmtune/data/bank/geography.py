"""Questions about states: capitals, continents, borders, codes."""

from __future__ import annotations

from collections.abc import Iterator

from calmtune.data.bank.countries import CONTINENTS, countries, geonames_countries, names, same_continent
from calmtune.data.bank.fact import Fact, choose, fold, without, words

# more than one capital, none in law, disputed, or being moved: no single answer that everyone would give
NO_SINGLE_CAPITAL = frozenset(words("BJ BO CI CL GQ ID IL LK MM NR PW SZ TZ ZA"))
CAPITALS_CORRECTED = {
    "BR": "Brasília", "CM": "Yaoundé", "CO": "Bogotá", "CR": "San José", "KI": "South Tarawa", "KZ": "Astana",
    "MD": "Chișinău", "MV": "Malé", "PY": "Asunción", "ST": "São Tomé", "TG": "Lomé", "TO": "Nukuʻalofa",
    "US": "Washington, D.C.", "YE": "Sanaa",
}  # fmt: skip
# parts in two continents, or placed in one or the other by different authors
TWO_CONTINENTS = frozenset(words("AM AZ CY EG GE ID KZ RU TL TR"))
# borders that only distant territories have, that are contested, or that one source counts and another does not
CONTESTED_BORDERS = frozenset(
    frozenset(pair.split("-"))
    for pair in words(
        "AF-IN AM-AZ AZ-TR BR-FR BW-ZM CA-DK CN-PK CY-GB DZ-MA ES-GB ES-MA FR-NL FR-SR IL-JO IL-LB IL-SY "
        "IN-PK IN-CN CU-US AE-QA BH-SA DK-SE MY-SG KP-KR MA-MR NA-ZW IQ-SA RU-UA EG-SA CY-TR BT-CN"
    )
)
# one calling code for several states, several codes for one state, or a code not in use
SHARED_CALLING_CODES = frozenset(words("CA DO KZ RU US"))


def capitals() -> Iterator[Fact]:
    """Country -> capital; capitals that contain the country's name are left out, as they give themselves away."""
    capital = {code: CAPITALS_CORRECTED.get(code, c.capital) for code, c in countries().items()}
    for code, country in countries().items():
        answer = capital[code]
        if code in NO_SINGLE_CAPITAL or not answer or fold(country.name)[:5] in fold(answer):
            continue
        templates = (
            "What is the capital of {}?",
            "Which city is the capital of {}?",
            "Which of these cities is the capital of {}?",
        )
        yield Fact(
            subject=code.lower(),
            question=choose(f"capitals/{code}", templates).format(country.inside),
            answer=answer,
            near=without((capital[o] for o in same_continent(code) if o not in NO_SINGLE_CAPITAL), answer, ""),
        )


def continents() -> Iterator[Fact]:
    """Country -> continent, for countries that lie in one."""
    for code, country in countries().items():
        if code in TWO_CONTINENTS:
            continue
        templates = (
            "On which continent is {}?",
            "Which continent does {} belong to?",
            "In which part of the world does {} lie?",
        )
        answer = CONTINENTS[country.continent]
        yield Fact(
            subject=code.lower(),
            question=choose(f"continents/{code}", templates).format(country.inside),
            answer=answer,
            near=without(CONTINENTS.values(), answer),
        )


def neighbours() -> Iterator[Fact]:
    """Country -> a country with a land border; wrong answers come from the same continent and share no border."""
    for code, country in countries().items():
        sure = [n for n in country.neighbours if frozenset((code, n)) not in CONTESTED_BORDERS]
        if not sure:
            continue
        listed = set(filter(None, geonames_countries()[code]["neighbours"].split(",")))
        wrong = [
            other
            for other in (*same_continent(code), *countries())
            if other != code
            and other not in listed
            and code not in geonames_countries()[other]["neighbours"].split(",")
            and frozenset((code, other)) not in CONTESTED_BORDERS
        ]
        # the hard ones have a neighbour in common with the country
        hard = [o for o in wrong if set(countries()[o].neighbours) & set(country.neighbours)]
        templates = (
            "Which of these countries borders {}?",
            "Which of these countries shares a land border with {}?",
            "With which of these countries does {} have a land border?",
        )
        yield Fact(
            subject=code.lower(),
            question=choose(f"neighbours/{code}", templates).format(country.inside),
            answer=countries()[choose(f"neighbours/{code}/answer", sure)].name,
            near=without(names(hard)),
            far=without(names(wrong[:20])),
        )


def country_codes() -> Iterator[Fact]:
    """ISO 3166-1 code -> country or territory; wrong answers begin with the code's first letter where they can."""
    import pycountry

    official = {c.alpha_2 for c in pycountry.countries}
    named = {code: entry["name"].strip() for code, entry in sorted(geonames_countries().items()) if code in official}
    named.update({code: c.name for code, c in countries().items()}, PS="Palestine")
    for code, name in named.items():
        templates = (
            "Which country or territory has the two-letter ISO 3166 code {}?",
            "The ISO 3166-1 alpha-2 code {} belongs to which country or territory?",
        )
        alike = [n for c, n in named.items() if n[0] == code[0] or c[0] == code[0]]
        yield Fact(
            subject=code.lower(),
            question=choose(f"country_codes/{code}", templates).format(code),
            answer=name,
            near=without(alike, name),
            far=without(named.values(), name),
        )


def calling_codes() -> Iterator[Fact]:
    """Country -> international calling code, for codes that one state has to itself."""
    codes = {
        code: "+" + c.phone.lstrip("+").replace("-", " ")
        for code, c in countries().items()
        if code not in SHARED_CALLING_CODES and c.phone
    }
    for code, answer in codes.items():
        templates = (
            "What is the international calling code of {}?",
            "Which international telephone prefix does {} have?",
            "Which country calling code is used to phone someone in {}?",
        )
        yield Fact(
            subject=code.lower(),
            question=choose(f"calling_codes/{code}", templates).format(countries()[code].inside),
            answer=answer,
            near=without((codes[other] for other in same_continent(code) if other in codes), answer),
            far=without(codes.values(), answer),
        )
