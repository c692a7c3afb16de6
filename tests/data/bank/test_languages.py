"""Languages: no wrong answer is official, spoken, written or called so."""

from babel import Locale, localedata
from babel.languages import get_official_languages, get_territory_language_info

from calmtune.data.bank import languages

ENGLISH = Locale("en").languages


def test_official_languages_are_official_and_wrong_ones_not_even_spoken():
    facts = list(languages.official_languages())
    assert len(facts) >= 150
    for fact in facts:
        code = fact.subject.upper()
        official = {ENGLISH.get(lang.split("_")[0]) for lang in get_official_languages(code)}
        spoken = {ENGLISH.get(lang.split("_")[0]) for lang in get_territory_language_info(code)}
        assert fact.answer in official, fact
        assert not spoken & {*fact.near, *fact.far}, fact


def test_twins_of_a_spoken_language_are_no_wrong_answers():
    facts = {fact.subject: fact for fact in languages.official_languages()}
    assert "Malay" not in (*facts["id"].near, *facts["id"].far)
    assert not {"Serbian", "Bosnian"} & {*facts["hr"].near, *facts["hr"].far}
    assert not {"et", "za", "ml", "us", "gb"} & set(facts)


def test_languages_written_in_two_scripts_are_left_out():
    facts = {fact.subject: fact for fact in languages.scripts()}
    assert len(facts) >= 100
    assert not {"sr", "uz", "kk", "pa", "ja", "mn", "zh", "bs"} & set(facts)
    for identifier in localedata.locale_identifiers():
        language, *rest = identifier.split("_")
        assert not (language in facts and any(len(part) == 4 and part.isalpha() for part in rest)), identifier
    assert (facts["am"].answer, facts["uk"].answer, facts["pl"].answer) == ("Ethiopic", "Cyrillic", "Latin")


def test_endonyms_belong_to_one_language_and_do_not_give_it_away():
    facts = list(languages.endonyms())
    quoted = [fact.question.split('"')[1] for fact in facts]
    assert len(quoted) == len(set(quoted)) >= 120
    for fact, name in zip(facts, quoted, strict=True):
        assert fact.answer.casefold() not in name.casefold()
        assert Locale(fact.subject).get_language_name() == name


def test_exonyms_name_one_country_in_their_language():
    facts = list(languages.exonyms())
    assert len(facts) == languages.EXONYMS_KEPT
    for fact in facts:
        language, code = fact.subject.split("-")
        local = Locale(language).territories
        name = fact.question.split('"')[1]
        assert local[code.upper()] == name
        assert list(local.values()).count(name) == 1


def test_language_codes_have_no_double():
    facts = list(languages.language_codes())
    assert len({fact.answer for fact in facts}) == len(facts) >= 150
    known = {fact.subject: fact.answer for fact in facts}
    assert (known["de"], known["eu"], known["sq"]) == ("German", "Basque", "Albanian")
