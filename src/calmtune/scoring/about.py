"""What decided a result, as JSON values for the first line of its record."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
import transformers
from torch import nn

import calmtune
from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.data.prompts import Renderer
from calmtune.modeling.loading import fingerprint
from calmtune.modeling.reading import causal_lm


def about_model(model: nn.Module, renderer: Renderer) -> dict[str, Any]:
    """The weights, how questions are put to them, and the libraries."""
    base = causal_lm(model)
    return {
        "model": type(base).__name__,
        "weights": fingerprint(model, adapters=True),
        "dtype": str(base.dtype).removeprefix("torch."),
        **renderer.settings(),
        "calmtune": calmtune.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def about_adjustment(alpha: LogitAdjustment | None) -> dict[str, Any] | None:
    """alpha's form and a digest of its numbers."""
    if alpha is None:
        return None
    digest = hashlib.sha256()
    for name, value in sorted(alpha.state_dict().items()):
        digest.update(name.encode() + value.detach().double().cpu().numpy().tobytes())
    return {"kind": alpha.kind, "form": alpha.form, "sha256": digest.hexdigest()}
