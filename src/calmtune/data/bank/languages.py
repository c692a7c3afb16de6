"""Questions about languages: where they are official, how they are written, what they are called, their codes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache

from calmtune.data.bank.countries import countries, same_continent
from calmtune.data.bank.fact import Fact, choose, fold, rank, sample, without, words

# CLDR still lists a language that has lost its status, or counts one where the law names others
STATUS_CHANGED = frozenset(words("AU BF ET GB IQ KZ ME MK ML MU NE NZ US ZA"))
# written in two scripts in our time, or in a script of several parts, although CLDR's locales show one
SEVERAL_SCRIPTS = frozenset(
    words(
        "ab ary be bgn blt bew bqi brh bua csw cop cu doi ff ha ja jv ku lrc mg mn mni ms mzn nqo ro rhg sa "
        "sdh so su sw syr szl tg tk tt tzm ug wo yi za zgh az bm bs kk kok ks ky pa sat sd sr uz yue zh shi "
        "pap kab rif gsw vai lzz gez cic cho ko trw skr apc tok"
    )
)
LATIN_KEPT = 80
# so close, or so differently named from place to place, that one could be given for the other
ALIKE = tuple(
    frozenset(group.split("+"))
    for group in words("ms+id sr+hr+bs fa+tg hi+ur zh+yue nb+nn+no fil+tl zgh+tzm+kab+shi+rif")
)
# a dialect or standard of another language in the list, so that its own name could stand for either
OVERLAPPING_NAMES = frozenset(words("isv yue zh no nb nn zgh tzm ku ckb sdh lrc bqi gsw hrx fil apc ary bgn"))
# codes that stand for the same language as another code, or for a group that contains another
OVERLAPPING_CODES = frozenset(words("ak tw no nb nn sh bh mo iw in ji tl bs hr sr hbs ms id za"))
EXONYM_LANGUAGES = words("af cs cy da de es et eu fi fr ga hr hu id is it lt lv nl pl pt ro sl sq sv sw tr vi")
EXONYMS_KEPT = 480


@cache
def english_names() -> dict[str, str]:
    """Language code -> English name, as CLDR has it."""
    from babel import Locale

    return {code: str(name) for code, name in Locale("en").languages.items()}


@cache
def locale_languages() -> tuple[str, ...]:
    """Languages that have a CLDR locale and an English name."""
    from babel import localedata

    codes = {identifier.split("_")[0] for identifier in localedata.locale_identifiers()}
    return tuple(sorted(code for code in codes if code in english_names()))


@cache
def script_of(language: str) -> str:
    """ISO 15924 code of the script CLDR thinks likely, or ``""``."""
    from babel.core import get_global

    parts = str(get_global("likely_subtags").get(language, "")).split("_")
    return parts[1] if len(parts) > 1 else ""


def official_languages() -> Iterator[Fact]:
    """Country -> an official language; wrong answers are official in the region and not spoken in the country."""
    official = {code: _official(code) for code in countries()}
    for code, own in official.items():
        if not own or code in STATUS_CHANGED:
            continue
        here = _spoken(code)
        answer = english_names()[own[0]]
        templates = (
            "Which of these is an official language of {}?",
            "Which language has official status in {}?",
        )
        region = [lang for other in same_continent(code) for lang in official[other] if lang not in here]
        world = [lang for other in official for lang in official[other] if lang not in here]
        yield Fact(
            subject=code.lower(),
            question=choose(f"official_languages/{code}", templates).format(countries()[code].inside),
            answer=answer,
            near=without((english_names()[lang] for lang in region), answer),
            far=without((english_names()[lang] for lang in world), answer),
        )


def _official(code: str) -> list[str]:
    """Languages official by law in the whole country, the most spoken first."""
    from babel.languages import get_territory_language_info

    info = get_territory_language_info(code)
    kept = [lang for lang, entry in info.items() if entry["official_status"] == "official"]
    named = [
        lang.split("_")[0] for lang in sorted(kept, key=lambda lang: -float(info[lang]["population_percent"] or 0))
    ]
    return [lang for lang in dict.fromkeys(named) if lang in english_names()]


def _spoken(code: str) -> set[str]:
    """Every language that CLDR knows to be spoken in the country, however few the speakers."""
    from babel.languages import get_territory_language_info

    spoken = {lang.split("_")[0] for lang in get_territory_language_info(code)}
    return spoken.union(*(group for group in ALIKE if group & spoken))


def scripts() -> Iterator[Fact]:
    """Language -> the script it is written in, for languages written in one."""
    from babel import Locale, localedata

    named = {code: str(name) for code, name in Locale("en").scripts.items()}
    seen: dict[str, set[str]] = defaultdict(set)
    for identifier in localedata.locale_identifiers():
        seen[identifier.split("_")[0]].update(p for p in identifier.split("_")[1:] if len(p) == 4 and p.isalpha())
    single = [c for c in locale_languages() if not seen[c] and c not in SEVERAL_SCRIPTS and script_of(c) in named]
    latin = sample("scripts/latin", (c for c in single if script_of(c) == "Latn"), LATIN_KEPT)
    common = (
        "Latn",
        "Cyrl",
        "Arab",
        "Deva",
        "Ethi",
        "Beng",
        "Grek",
        "Hebr",
        "Geor",
        "Armn",
        "Taml",
        "Thai",
        "Tibt",
        "Mymr",
    )
    for code in single:
        script = script_of(code)
        name = english_names()[code]
        if (script == "Latn" and code not in latin) or fold(named[script]) in fold(name):
            continue
        templates = (
            "In which script is {} usually written?",
            "Which writing system is normally used for {}?",
        )
        yield Fact(
            subject=code,
            question=choose(f"scripts/{code}", templates).format(name),
            answer=named[script],
            near=without((named[s] for s in common), named[script]),
        )


def endonyms() -> Iterator[Fact]:
    """A language's own name -> its English name; wrong answers are written in the same script where they can be."""
    from babel import Locale

    own = {}
    for code in locale_languages():
        name = Locale(code).get_language_name()
        if name and code != "en" and code not in OVERLAPPING_NAMES:
            own[code] = str(name)
    counts: dict[str, int] = defaultdict(int)
    for name in own.values():
        counts[fold(name)] += 1
    for code, name in own.items():
        english = english_names()[code]
        alike = SequenceMatcher(None, fold(name), fold(english)).ratio()
        if counts[fold(name)] > 1 or alike > 0.6 or fold(english) in fold(name):
            continue
        templates = (
            'Which language do its own speakers call "{}"?',
            'Which language has the native name "{}"?',
        )
        same = [english_names()[c] for c in own if c != code and script_of(c) == script_of(code)]
        yield Fact(
            subject=code,
            question=choose(f"endonyms/{code}", templates).format(name),
            answer=english,
            near=without(same, english),
            far=without((english_names()[c] for c in own if script_of(c) != "Latn"), english),
        )


def exonyms() -> Iterator[Fact]:
    """A country's name in another language -> the country; only names that look different from the English one."""
    from babel import Locale

    english = Locale("en")
    facts = {}
    for language in EXONYM_LANGUAGES:
        territories = Locale(language).territories
        local = {code: str(territories[code]) for code in countries() if code in territories}
        for code, name in local.items():
            country = countries()[code]
            close = max(
                SequenceMatcher(None, fold(name), fold(n)).ratio() for n in (country.name, english.territories[code])
            )
            if close > 0.6 or list(local.values()).count(name) > 1 or "(" in name or name.isupper():
                continue
            subject = f"{language}-{code.lower()}"
            templates = ('Which country is called "{}" in {}?', 'Which country has the name "{}" in {}?')
            facts[subject] = Fact(
                subject=subject,
                question=choose(f"exonyms/{subject}", templates).format(name, english_names()[language]),
                answer=country.name,
                near=without((countries()[o].name for o in same_continent(code)), country.name),
            )
    for subject in sample("exonyms", facts, EXONYMS_KEPT):
        yield facts[subject]


def language_codes() -> Iterator[Fact]:
    """ISO 639-1 code -> language; wrong answers begin with the code's first letter where they can."""
    import pycountry

    listed = sorted(entry.alpha_2 for entry in pycountry.languages if hasattr(entry, "alpha_2"))
    named = {
        code: english_names()[code] for code in listed if code in english_names() and code not in OVERLAPPING_CODES
    }
    for code, name in named.items():
        templates = (
            'Which language has the two-letter ISO 639 code "{}"?',
            'Which language does the ISO 639-1 code "{}" stand for?',
        )
        alike = [n for c, n in named.items() if fold(n)[0] == code[0] or c[0] == code[0]]
        yield Fact(
            subject=code,
            question=choose(f"language_codes/{code}", templates).format(code),
            answer=name,
            near=without(sorted(alike, key=lambda n: rank(code, n)), name),
            far=without(named.values(), name),
        )
