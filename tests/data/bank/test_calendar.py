"""Weekdays and months: the answer is CLDR's, the wrong ones are the others of the same language."""

from babel import Locale

from calmtune.data.bank import calendar


def test_weekdays_agree_with_cldr_and_wrong_answers_are_the_other_six():
    order = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
    facts = list(calendar.weekdays())
    assert len(facts) >= 300
    for fact in facts:
        code, day = fact.subject.split("-")
        names = Locale(code).days["stand-alone"]["wide"]
        assert fact.answer == names[order.index(day)]
        assert sorted((fact.answer, *fact.near)) == sorted(names.values())


def test_months_that_look_english_or_are_numbers_are_left_out():
    subjects = {fact.subject for fact in calendar.months()}
    assert 200 <= len(subjects) <= calendar.MONTHS_KEPT
    assert not {"de-august", "de-april", "nl-september", "sv-november"} & subjects
    assert not any(fact.subject.startswith(("vi-", "ja-", "ko-")) for fact in calendar.months())


def test_known_month():
    facts = {fact.subject: fact.answer for fact in calendar._names("months", 12, ("{language} {english}",))}
    assert facts["fi-november"] == "marraskuu"
    assert facts["pl-october"] == "październik"
