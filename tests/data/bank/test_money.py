"""Currencies: the answer is the only tender, and no wrong answer ever was."""

import pycountry
from babel.numbers import get_currency_name, get_territory_currencies

from calmtune.data.bank import money


def test_answers_are_the_only_tender_and_wrong_ones_were_never_tender():
    facts = list(money.currencies())
    assert len(facts) >= 150
    for fact in facts:
        code = fact.subject.upper()
        (current,) = get_territory_currencies(code)
        assert get_currency_name(current, 1, locale="en") == fact.answer
        history = {
            c["currency"] for c in get_territory_currencies(code, start_date=money.LONG_AGO, include_details=True)
        }
        names = {get_currency_name(c, 1, locale="en") for c in history}
        assert not names & {*fact.near, *fact.far}, fact


def test_countries_with_two_currencies_are_left_out():
    subjects = {fact.subject for fact in money.currencies()}
    assert not {"pa", "ls", "na", "bt", "zw", "sv"} & subjects
    assert {"ch", "jp", "ng"} <= subjects


def test_codes_are_iso_4217_and_their_names_unique():
    facts = list(money.currency_codes())
    assert len(facts) >= 130
    assert len({fact.question.split(" the ", 1)[1] for fact in facts}) >= len(facts) - 1
    for fact in facts:
        assert pycountry.currencies.get(alpha_3=fact.answer) is not None
        assert fact.answer not in (*fact.near, *fact.far)
