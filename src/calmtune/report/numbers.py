"""A number together with how far it can be trusted, and the one way in which the report writes it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A measured value with its interval.

    Args:
        value: the estimate; NaN where it is not defined (AUROC of a model that is always right).
        low: lower end of the interval.
        high: upper end of the interval.
        n: items it was measured on.
    """

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Difference:
    """A paired difference, this row minus the reference row, on the same items.

    Args:
        value: the difference.
        low: lower end of its interval.
        high: upper end of its interval.
        p_value: of a permutation test that swaps the two rows' predictions item by item.
        n: items.
    """

    value: float
    low: float
    high: float
    p_value: float
    n: int

    @property
    def shown(self) -> bool:
        """Whether the interval excludes zero, so that a change can be spoken of."""
        return self.low > 0 or self.high < 0


def number(value: float, *, sign: bool = False) -> str:
    """Three decimals, with a true minus sign; a dash where there is no value.

    >>> number(0.12345), number(-0.5), number(0.2, sign=True), number(math.nan), number(math.inf)
    ('0.123', '−0.500', '+0.200', '–', '∞')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:+.3f}" if sign else f"{value:.3f}"
    if float(text) == 0:
        text = "0.000"
    return text.replace("-", "−")


def interval(one: Estimate | Difference, *, sign: bool = False) -> str:
    """The interval in square brackets.

    >>> interval(Estimate(0.2, 0.1, 0.3, 50))
    '[0.100, 0.300]'
    """
    return f"[{number(one.low, sign=sign)}, {number(one.high, sign=sign)}]"


def with_interval(one: Estimate | Difference, *, sign: bool = False) -> str:
    """Value and interval.

    >>> with_interval(Estimate(0.2, 0.1, 0.3, 50))
    '0.200 [0.100, 0.300]'
    """
    return f"{number(one.value, sign=sign)} {interval(one, sign=sign)}"


def p_text(p_value: float) -> str:
    """A p-value for reading.

    >>> p_text(0.0004), p_text(0.25)
    ('p < 0.001', 'p = 0.250')
    """
    if math.isnan(p_value):
        return "p not defined"
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def compact(text: str) -> str:
    """Numbers without the zero before the point, for narrow terminals.

    >>> compact("0.200 [−0.100, 10.300]")
    '.200 [−.100, 10.300]'
    """
    return re.sub(r"(?<![\d.])0\.(?=\d)", ".", text)
