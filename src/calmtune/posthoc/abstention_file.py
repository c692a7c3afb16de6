"""``abstention.json``: a threshold with all that is needed to use it, and to notice that it no longer fits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calmtune.metrics.checks import Floats
from calmtune.metrics.shift import ShiftTest, two_sample_test

from .abstention import METHODS, NOTHING, AbstentionRule

FILE = "abstention.json"
FORMAT = "calmtune-abstention/1"
_FIELDS: Mapping[str, Any] = {
    "threshold": int | float | None, "control": str, "target": float, "confidence": float | None, "n": int,
    "n_answered": int, "n_wrong": int, "distribution": str, "scaling": str, "reference_confidences": list,
}  # fmt: skip


class Abstainer:
    """A rule as it is used: whether to answer, and whether the confidences still look like those it was made with.

    Args:
        record: what :func:`load_abstainer` read.

    Attributes:
        rule: the threshold with its promise. record: everything that the file holds.
        distribution, scaling: which confidences the threshold is for; see :meth:`confidence`.
        reference: float64 [N], the confidences that it was found on.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        threshold = record["threshold"]
        self.record = dict(record)
        self.rule = AbstentionRule(
            NOTHING if threshold is None else float(threshold),
            record["control"],
            float(record["target"]),
            record["confidence"],
            record["n"],
            record["n_answered"],
            record["n_wrong"],
        )
        self.distribution: str = record["distribution"]
        self.scaling: str = record["scaling"]
        self.reference: Floats = np.asarray(record["reference_confidences"], dtype=np.float64)

    def confidence(self, scores: ArrayLike) -> Floats:
        """The confidence that the threshold is for, from option scores of the record's ``distribution``.

        Args:
            scores: float [N, K], raw or adjusted option scores as ``distribution`` says; -inf where absent.

        Returns:
            float64 [N] in [0, 1], the largest probability of each row.

        Raises:
            ValueError: more options than vector scaling was fitted for.
        """
        z = np.asarray(scores, dtype=np.float64)
        if self.scaling == "VS":
            scale, shift = np.asarray(self.record["scale"]), np.asarray(self.record["shift"])
            if z.shape[1] > len(scale):
                raise ValueError(f"scores: expected at most {len(scale)} options, as were fitted, got {z.shape[1]}")
            log_p = np.log(_softmax(z), out=np.full_like(z, -np.inf), where=np.isfinite(z))
            present = np.isfinite(z)
            z = np.where(present, np.where(present, log_p, 0.0) * scale[: z.shape[1]] + shift[: z.shape[1]], -np.inf)
        elif self.scaling == "TS":
            z = z / float(self.record["temperature"])
        return np.asarray(_softmax(z).max(axis=1))

    def answer_or_abstain(self, confidences: ArrayLike) -> NDArray[np.bool_]:
        """True where to answer. Confidences must be those of :meth:`confidence`, not those of another reading."""
        return self.rule.answer_or_abstain(confidences)

    def shift(self, confidences: ArrayLike, *, seed: int = 0) -> ShiftTest:
        """Whether new confidences look like the reference; a small p-value says that the promise does not cover them.

        Raises:
            ValueError: confidences outside [0, 1].
        """
        return two_sample_test(self.reference, confidences, seed=seed)


def load_abstainer(path: Path | str) -> Abstainer:
    """Read ``abstention.json``, or the one of a run's folder.

    Raises:
        FileNotFoundError: it is not there. ValueError: it is damaged; file and field are named.
    """
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"{path} not found; `calmtune abstain RUN` writes it")
    try:
        record = json.loads(path.read_bytes())
    except ValueError as error:  # covers UnicodeDecodeError and JSONDecodeError
        raise ValueError(f"{path}: not valid JSON ({error}); run calmtune abstain again") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"{path}: expected an object with format {FORMAT!r}; run calmtune abstain again")
    for name, kind in _FIELDS.items():
        if name not in record or not isinstance(record[name], kind) or isinstance(record[name], bool):
            raise ValueError(f"{path}: the field {name!r} is {record.get(name)!r:.40}; run calmtune abstain again")
    if record["control"] not in METHODS:
        raise ValueError(f"{path}: control is {record['control']!r}; expected one of {', '.join(METHODS)}")
    return Abstainer(record)


def _softmax(z: Floats) -> Floats:
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(z / z.sum(axis=1, keepdims=True))
