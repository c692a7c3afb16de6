"""Normalisers: the form in which two answers are compared. Each has a name that is stored with what it decided.

``calmtune-1``, step by step:

1. characters that nobody sees (soft hyphen, zero-width, direction marks, variation selectors) and trade marks go; a
   superscript ``10⁶`` becomes ``10^6`` and ``5½`` becomes ``5 1/2``, which NFKC would turn into ``106`` and ``51/2``;
2. NFKC and case folding, digits of every script as 0 to 9, every dash and the minus sign U+2212 as ``-``;
3. apostrophes within a word go (``don't``, ``O'Brien``); initials close up (``J. R. R.``, ``U.S.`` -> ``jrr``, ``us``);
4. a number stays whole: sign, thousands (``1,000`` -> ``1000``), decimals (``3.14``, ``0,1``), fractions (``1/2``); a
   currency sign at a number and a plus before it go;
5. all other punctuation, ``%`` and ``°`` become a space; symbols (emoji, ``+`` of ``C++``, ``#`` of ``C#``) and accents
   stay;
6. ``a``, ``an``, ``the`` go, except as the last word (``Hepatitis A``) or where nothing else is left (``The The``).

``squad-1.1`` is the official SQuAD 1.1 function, for comparison with published figures: there ``-5`` equals ``5`` and
``3.14`` equals ``314``. In both, an empty form means that there is nothing to compare; it never matches.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable

NORMALISER = "calmtune-1"
SQUAD_NORMALISER = "squad-1.1"
ARTICLES = frozenset({"a", "an", "the"})

_APOSTROPHES = "'‘’‛`´ʻʼʹ＇"
_BEFORE_NFKC = str.maketrans({**dict.fromkeys(_APOSTROPHES, "'"), **dict.fromkeys("™®©℠", " ")})
_SUPERSCRIPT = re.compile("[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_FRACTION = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅟↉])")
_LETTER = r"[^\W\d_]"
_IN_WORD = re.compile(rf"(?<=[^\W_])'(?={_LETTER})")
_INITIALS = re.compile(rf"(?<![^\W_])(?:{_LETTER}\. ?)+{_LETTER}\.(?:{_LETTER}(?![^\W_]))?")
_CURRENCY = "$£€¥¢₹₽₩₪₺₫₴₦₱"
_SIGNED_UNIT = re.compile(rf"(?<=[-+])[{_CURRENCY}]+(?=\.?[0-9])")
_UNIT = re.compile(rf"[{_CURRENCY}]+(?=[-+]?\.?[0-9])|(?<=[0-9])[{_CURRENCY}]+")
_BARE_DECIMAL = re.compile(r"(?<![^\W_])(?<!\.)\.(?=[0-9])")
_NUMBER = re.compile(r"[0-9]+(?:[.,/][0-9]+)*")
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_PLUS = re.compile(r"^\++(?=[0-9])")


def normalise(text: str) -> str:
    """The form of ``text`` that ``calmtune-1`` compares; see the head of this file.

    Idempotent: ``normalise(normalise(x)) == normalise(x)``. Canonically equal texts (NFC, NFD) have the same form.

    Args:
        text: any text; lone surrogates are taken as spaces.

    >>> normalise("The Beatles!"), normalise("(3.14)"), normalise("1,000"), normalise("\\u22125 °C")
    ('beatles', '3.14', '1000', '-5 c')
    >>> normalise("A"), normalise("The The"), normalise("...")
    ('a', 'the the', '')
    """
    text = _folded(text)
    text = _IN_WORD.sub("", text)
    text = _INITIALS.sub(lambda match: match.group().replace(".", "").replace(" ", "") + " ", text)
    text = _BARE_DECIMAL.sub("0.", _UNIT.sub(" ", _SIGNED_UNIT.sub("", text)))
    text = _NUMBER.sub(lambda match: _without_thousands(match.group()), text)
    words = [_PLUS.sub("", word) for word in _without_punctuation(text).split()]
    if all(word in ARTICLES for word in words):
        return " ".join(words)
    return " ".join([word for word in words[:-1] if word not in ARTICLES] + words[-1:])


def squad_normalise(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces.

    Source: ``normalize_answer`` of the SQuAD 1.1 evaluation script.

    >>> squad_normalise("The Beatles!"), squad_normalise("-5"), squad_normalise("A")
    ('beatles', '5', '')
    """
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


NORMALISERS: dict[str, Callable[[str], str]] = {NORMALISER: normalise, SQUAD_NORMALISER: squad_normalise}


def normaliser_named(name: str) -> Callable[[str], str]:
    """The normaliser of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in NORMALISERS:
        raise ValueError(f"expected a normaliser of {sorted(NORMALISERS)}, got {name!r}")
    return NORMALISERS[name]


def _folded(text: str) -> str:
    """Steps 1 and 2: invisible characters out, compatibility forms and case folded, digits and dashes as in ASCII."""
    text = "".join(character for character in text if not _invisible(character))
    text = _SUPERSCRIPT.sub(lambda match: "^" + match.group(), text.translate(_BEFORE_NFKC))
    text = _FRACTION.sub(" ", text)
    for _ in range(2):  # folding case may leave a text that NFKC composes anew
        text = unicodedata.normalize("NFKC", text).casefold()
    return "".join(map(_ascii_form, unicodedata.normalize("NFKC", text)))


def _invisible(character: str) -> bool:
    return (
        unicodedata.category(character) == "Cf"
        or character in "\u034f\u115f\u1160\u3164\uffa0"
        or _selector(ord(character))
    )


def _selector(code: int) -> bool:
    """Variation selectors, which choose how the character before them is drawn."""
    return 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF or 0x180B <= code <= 0x180F


def _ascii_form(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.decimal(character))
    if category == "Pd" or character == "\u2212":
        return "-"
    if character in _APOSTROPHES:  # NFKC makes new ones
        return "'"
    return "/" if character == "\u2044" else character


def _without_thousands(number: str) -> str:
    return number.replace(",", "") if _THOUSANDS.fullmatch(number) else number


def _without_punctuation(text: str) -> str:
    """Punctuation, separators and controls as spaces, except within a number and for its sign."""
    return "".join(
        character if _kept(text[index - 1 : index], character, text[index + 1 : index + 2]) else " "
        for index, character in enumerate(text)
    )


def _kept(before: str, character: str, after: str) -> bool:
    if character in ".,/":
        return _digit(before) and _digit(after)
    if character == "-":
        return _digit(after) and not _word(before)
    if character == "#":
        return before.isalpha()
    category = unicodedata.category(character)
    return category[0] not in "PZ" and category not in ("Cc", "Cs") and character != "°"


def _digit(character: str) -> bool:
    return character.isascii() and character.isdigit()


def _word(character: str) -> bool:
    """Whether a dash behind this character joins words instead of being a sign."""
    return bool(character) and (character.isalnum() or unicodedata.category(character)[0] in "LMN")
