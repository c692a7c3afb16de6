"""Random draws that belong to a question, not to its place: hashed from the seed and the question's id.

Invariant: a question's draws depend on the seed, the purpose and its id alone, so the order of the questions, their
number and the version of numpy change nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .checks import Floats

Keys = NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15


def question_keys(ids: Sequence[str], seed: int, purpose: str) -> Keys:
    """One 64-bit key a question.

    Args:
        ids: the questions' ids, N different strings.
        seed: any integer.
        purpose: what is drawn; different purposes are independent.

    Returns:
        uint64 [N].

    Raises:
        ValueError: a seed that is not an integer.

    Example:
        >>> question_keys(["a", "b"], 0, "tie")[1] == question_keys(["b"], 0, "tie")[0]
        np.True_
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ValueError(f"seed: expected an integer, got {seed!r}")
    texts = (f"{seed}\0{purpose}\0{key}".encode("utf-8", "surrogatepass") for key in ids)
    return np.array([int.from_bytes(hashlib.blake2b(t, digest_size=8).digest(), "big") for t in texts], dtype=np.uint64)


def draw(keys: Keys, n: int) -> Keys:
    """``n`` uniform 64-bit integers a question, uint64 [N, n]: SplitMix64 started at the question's key.

    A longer draw begins with the shorter one.

    Example:
        >>> draw(np.zeros(1, dtype=np.uint64), 1).tolist()
        [[16294208416658607535]]

    Source: Steele, Lea and Flood (2014), Fast splittable pseudorandom number generators.
    """
    steps = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(_GOLDEN)  # unsigned arrays wrap round, as it should be
    x = keys[:, None] + steps
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def draw_share(keys: Keys) -> Floats:
    """One uniform number in [0, 1) a question, float64 [N], from 53 bits."""
    return np.asarray((draw(keys, 1)[:, 0] >> np.uint64(11)).astype(np.float64) * 2.0**-53)
