"""How answers are drawn: the numbers that decide a sample, the same for a model here and one at an endpoint."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class SamplingSettings:
    """How answers are drawn. Nothing is taken over from a model's own generation settings.

    Args:
        n: samples a question.
        max_new_tokens: most tokens of a sample, the one that ends it included.
        temperature: T > 0, divides the logits.
        top_p: smallest set of tokens with at least this probability is kept; 1 keeps all.
        top_k: this many most probable tokens are kept; 0 keeps all.
        stop: an answer ends where one of these texts begins; none: at the model's own end alone.
        seed: of all samples; with an item's id and a sample's number it gives that sample.

    Raises:
        ValueError: a number that cannot be meant; the message names it.

    >>> SamplingSettings(n=5).is_raw
    True
    """

    n: int = 10
    max_new_tokens: int = 32
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ("\n",)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("n", 1), ("max_new_tokens", 1), ("top_k", 0), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < low:
                raise ValueError(f"{name} must be a whole number, {low} or more; got {value!r}")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(
                f"temperature must be > 0, got {self.temperature}; for the most probable token use top_k = 1"
            )
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if isinstance(self.stop, str):
            raise ValueError(f"stop must be a tuple of texts, got the text {self.stop!r}; write ({self.stop!r},)")
        if not all(self.stop):
            raise ValueError("stop holds an empty text, which would end every answer; leave it out")

    @property
    def is_raw(self) -> bool:
        """Whether the model's distribution is sampled as it is: T = 1 and every token kept."""
        return self.temperature == 1 and self.top_p == 1 and self.top_k == 0

    def record(self) -> dict[str, Any]:
        """All of them as JSON values."""
        return {**asdict(self), "stop": list(self.stop)}

    def cut(self, text: str) -> str:
        """An answer as it is kept: up to the first stop text, without outer white space.

        >>> SamplingSettings().cut(" Paris\\nQuestion: and of Italy?")
        'Paris'
        """
        found = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        return text[: min(found, default=len(text))].strip()

    def sample_seed(self, item_id: str, sample: int) -> int:
        """A number in [0, 2^63) of its own for every (seed, item, sample), the same wherever and whenever it is drawn.

        >>> SamplingSettings().sample_seed("a", 0) == SamplingSettings(n=3).sample_seed("a", 0)
        True
        """
        key = f"{self.seed}\x1f{sample}\x1f{item_id}".encode(errors="surrogatepass")
        return int.from_bytes(hashlib.sha256(key).digest()[:8], "big") >> 1
