"""Questions about currencies, from CLDR's list of what is legal tender where."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from functools import cache

from calmtune.data.bank.countries import countries, same_continent
from calmtune.data.bank.fact import Fact, choose, fold, without, words

# a second currency is tender or in general use, or the change of currency is too recent to ask about
UNSETTLED = frozenset(words("AF BG BT CU EC HR KH LB LR LS NA SL SV SY SZ VE ZW"))
LONG_AGO = date(1900, 1, 1)


@cache
def tender() -> dict[str, str]:
    """Country code -> currency code, for states with exactly one currency on which CLDR and geonames agree."""
    from babel.numbers import get_territory_currencies

    found = {}
    for code, country in countries().items():
        current = get_territory_currencies(code)
        if code not in UNSETTLED and current == [country.currency]:
            found[code] = country.currency
    return found


@cache
def currency_name(code: str) -> str:
    """The English singular name, e.g. "Swiss franc"."""
    from babel.numbers import get_currency_name

    return str(get_currency_name(code, 1, locale="en"))


def currencies() -> Iterator[Fact]:
    """Country -> currency; wrong answers are currencies of the same continent that were never the country's."""
    from babel.numbers import get_territory_currencies

    for code, currency in tender().items():
        ever = set(get_territory_currencies(code, tender=True, non_tender=True, start_date=LONG_AGO))
        pool = [currency_name(tender()[o]) for o in same_continent(code) if o in tender() and tender()[o] not in ever]
        everywhere = [currency_name(c) for c in dict.fromkeys(tender().values()) if c not in ever]
        templates = (
            "What is the currency of {}?",
            "Which currency is used in {}?",
            "In which currency do people in {} pay?",
        )
        answer = currency_name(currency)
        yield Fact(
            subject=code.lower(),
            question=choose(f"currencies/{code}", templates).format(countries()[code].inside),
            answer=answer,
            near=without(pool, answer),
            far=without(everywhere, answer),
        )


def currency_codes() -> Iterator[Fact]:
    """Currency -> ISO 4217 code; wrong answers are codes in use that begin or end with the same letter."""
    from babel.numbers import get_territory_currencies

    used = sorted({c for code in countries() for c in get_territory_currencies(code)})
    titles = [fold(currency_name(c)) for c in used]
    for currency in used:
        name = currency_name(currency)
        if titles.count(fold(name)) > 1:
            continue
        templates = (
            "What is the ISO 4217 code of the {}?",
            "Which three-letter currency code stands for the {}?",
        )
        alike = [c for c in used if c[0] == currency[0] or c[-1] == currency[-1]]
        yield Fact(
            subject=currency.lower(),
            question=choose(f"currency_codes/{currency}", templates).format(name),
            answer=currency,
            near=without(alike, currency),
            far=without(used, currency),
        )
