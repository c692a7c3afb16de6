"""alpha = (l, tau): one temperature and one shift per class, and what they do to logits.

    z~ = z * s + l,    s = 1 / tau

With ``form="exp"`` the stored temperature parameter is rho = log tau, so s = exp(-rho); with ``form="sigmoid"``
(AutoBalance's) it is d with s = sigmoid(d), which can only soften. K classes is the vocabulary (the paper), an item's
options, or 1 (scalar).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

Kind = Literal["vector", "scalar", "none"]
Form = Literal["exp", "sigmoid"]

SIGMOID_START = 4.0  # sigmoid(4) = .982: near the identity, which this form can't reach, yet with a usable gradient


def inverse_temperature(parameter: Tensor, form: Form) -> Tensor:
    """s = 1 / tau from the stored parameter: exp(-rho) or sigmoid(d)."""
    return torch.exp(-parameter) if form == "exp" else torch.sigmoid(parameter)


def inverse_temperature_slope(parameter: Tensor, form: Form) -> Tensor:
    """ds / dparameter: -s for ``exp``, s (1 - s) for ``sigmoid``."""
    s = inverse_temperature(parameter, form)
    return -s if form == "exp" else s * (1 - s)


class LogitAdjustment(nn.Module):
    """The calibration parameters alpha = (l, tau), applied as z~ = z / tau + l.

    Args:
        num_classes: K, the size of the last axis of the logits it will meet (vocabulary size or largest option count).
        kind: ``"vector"`` one pair per class, ``"scalar"`` one pair for all (its shift changes no softmax), ``"none"``
            the identity without parameters.
        form: ``"exp"`` tau = exp(rho), starts at the exact identity; ``"sigmoid"`` 1/tau = sigmoid(d), starts at d = 4.
        tau_max: tau stays in [1/tau_max, tau_max] (``exp``) or (1, tau_max] (``sigmoid``) after :meth:`project_`.
        dtype: float32 or float64; half precision is refused because rare classes move by less than its resolution.

    Raises:
        ValueError: a size, name, bound or dtype that cannot be meant.

    Example:
        >>> import torch
        >>> adjustment = LogitAdjustment(3)
        >>> z = torch.tensor([[2.0, 0.0, -1.0]])
        >>> torch.equal(adjustment(z), z)
        True

    Source: CALM section 3 (l, tau); Li et al. 2021 (AutoBalance) for the sigmoid form.
    """

    def __init__(
        self,
        num_classes: int,
        kind: Kind = "vector",
        form: Form = "exp",
        tau_max: float = 10.0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        if num_classes < 1:
            raise ValueError(f"num_classes must be >= 1, got {num_classes}")
        if kind not in ("vector", "scalar", "none"):
            raise ValueError(f"kind must be 'vector', 'scalar' or 'none', got {kind!r}")
        if form not in ("exp", "sigmoid"):
            raise ValueError(f"form must be 'exp' or 'sigmoid', got {form!r}")
        if not (math.isfinite(tau_max) and tau_max > 1):
            raise ValueError(f"tau_max must be a finite number > 1, got {tau_max}")
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be float32 or float64, got {dtype}")
        self.num_classes, self.kind, self.form, self.tau_max = num_classes, kind, form, float(tau_max)
        size = {"vector": num_classes, "scalar": 1, "none": 0}[kind]
        start = 0.0 if form == "exp" else SIGMOID_START
        self.temperature_parameter = nn.Parameter(torch.full((size,), start, dtype=dtype, device=device))
        self.logit_shift = nn.Parameter(torch.zeros(size, dtype=dtype, device=device))

    @property
    def is_identity(self) -> bool:
        """True for ``kind="none"``: nothing to learn, nothing to apply."""
        return self.kind == "none"

    @property
    def log_temperature(self) -> Tensor:
        """rho = log tau, [K] (or [1], or [0]), without gradient."""
        return -torch.log(self.inverse_temperature.detach())

    @property
    def inverse_temperature(self) -> Tensor:
        """s = 1 / tau, [K] (or [1], or [0])."""
        return inverse_temperature(self.temperature_parameter, self.form)

    def forward(self, logits: Tensor) -> Tensor:
        """z~ = z / tau + l in float32 or better.

        Args:
            logits: [..., K], any float dtype; -inf marks an absent class and stays -inf.

        Raises:
            ValueError: the last axis is not K (for ``kind="vector"``).
        """
        z = logits if logits.dtype == torch.float64 else logits.float()
        if self.is_identity:
            return z
        if self.kind == "vector" and z.shape[-1] != self.num_classes:
            raise ValueError(f"expected logits with {self.num_classes} classes on the last axis, got {z.shape[-1]}")
        return z * self.inverse_temperature.to(z.dtype) + self.logit_shift.to(z.dtype)

    @torch.no_grad()
    def project_(self) -> None:
        """Bring the temperature parameter back into its bounds (a projection, done after each optimizer step)."""
        if self.form == "exp":
            low, high = -math.log(self.tau_max), math.log(self.tau_max)
        else:
            low, high = -math.log(self.tau_max - 1.0), math.inf
        self.temperature_parameter.clamp_(low, high)

    @torch.no_grad()
    def start_at_(self, temperature: float) -> None:
        """Set every tau to ``temperature`` and every l to 0.

        Raises:
            ValueError: a temperature outside of the bounds.

        Example:
            >>> adjustment = LogitAdjustment(3)
            >>> adjustment.start_at_(2.0)
            >>> round(adjustment.summary()["tau_mean"], 4)
            2.0
        """
        low = 1.0 if self.form == "sigmoid" else 1.0 / self.tau_max
        if not low < temperature <= self.tau_max:
            raise ValueError(
                f"a temperature of {temperature:.4g} cannot be the start: tau is kept within {low:g} and "
                f"{self.tau_max:g} (tau_max; the form {self.form})"
            )
        value = math.log(temperature) if self.form == "exp" else -math.log(temperature - 1.0)
        self.temperature_parameter.fill_(value)
        self.logit_shift.zero_()

    @torch.no_grad()
    def select(self, classes: Tensor) -> LogitAdjustment:
        """The adjustment of a subset of classes, e.g. of the option letters: a detached copy with K = len(classes)."""
        part = LogitAdjustment(
            len(classes), self.kind, self.form, self.tau_max, self.logit_shift.dtype, self.logit_shift.device
        )
        if self.kind == "vector":
            part.temperature_parameter.copy_(self.temperature_parameter[classes])
            part.logit_shift.copy_(self.logit_shift[classes])
        else:
            part.temperature_parameter.copy_(self.temperature_parameter)
            part.logit_shift.copy_(self.logit_shift)
        return part

    @torch.no_grad()
    def fold(self, weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """An output head that gives the adjusted logits by itself: row k divided by tau_k, l_k added to the bias.

        Args:
            weight: [K, H] of the output head. bias: [K] or None.

        Returns:
            The new weight and bias, in the dtype of ``weight``, computed in float64.

        Example:
            >>> import torch
            >>> adjustment = LogitAdjustment(2)
            >>> _ = adjustment.logit_shift.data.copy_(torch.tensor([1.0, -1.0]))
            >>> adjustment.fold(torch.eye(2))[1]
            tensor([ 1., -1.])
        """
        scale = self.inverse_temperature.double().expand(len(weight)) if not self.is_identity else None
        if scale is None:
            return weight.clone(), torch.zeros_like(weight[:, 0]) if bias is None else bias.clone()
        old_bias = torch.zeros_like(scale) if bias is None else bias.double()
        shift = self.logit_shift.double().expand(len(weight))
        return (weight.double() * scale[:, None]).to(weight.dtype), (old_bias * scale + shift).to(weight.dtype)

    def summary(self, classes: Tensor | None = None) -> dict[str, float]:
        """min, mean and max of tau and l, over all classes or over ``classes``; empty for ``kind="none"``."""
        if self.is_identity:
            return {}
        return dict(self._summary(self if classes is None or self.kind == "scalar" else self.select(classes)))

    @staticmethod
    def _summary(part: LogitAdjustment) -> Iterator[tuple[str, float]]:
        for name, values in (("tau", part.log_temperature.exp()), ("shift", part.logit_shift.detach())):
            yield f"{name}_min", values.min().item()
            yield f"{name}_mean", values.mean().item()
            yield f"{name}_max", values.max().item()

    def extra_repr(self) -> str:
        return f"num_classes={self.num_classes}, kind={self.kind!r}, form={self.form!r}, tau_max={self.tau_max}"
