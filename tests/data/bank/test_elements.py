"""Elements: 118 of each, with real symbols as wrong answers."""

import periodictable

from calmtune.data.bank import elements


def test_symbols_and_numbers_of_all_118():
    symbols = {fact.subject: fact for fact in elements.element_symbols()}
    numbers = {fact.subject: fact for fact in elements.element_numbers()}
    assert len(symbols) == len(numbers) == 118
    for name, fact in symbols.items():
        assert periodictable.elements.symbol(fact.answer).name == name
        assert {periodictable.elements.symbol(s).symbol for s in fact.near} == set(fact.near)
        assert fact.answer not in fact.near
    for number, fact in numbers.items():
        assert periodictable.elements[int(number)].name == fact.answer
        assert 3 <= len(fact.near) <= 16
        assert fact.answer not in fact.near
    assert "protons" not in numbers["1"].question
