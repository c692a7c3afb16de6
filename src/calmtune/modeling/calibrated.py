"""A trained run, loaded: the base with its adapter, alpha, and both distributions from one forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.modeling.calibration_files import load_calibration
from calmtune.modeling.loading import fingerprint, load_model

ADAPTER_WEIGHTS = "adapter_model.safetensors"
CHAT_TEMPLATE = "chat_template.jinja"


@dataclass(frozen=True)
class Distributions:
    """Log-probabilities in nats, float32, of the same shape: ``raw`` is log softmax(z), ``adjusted`` log
    softmax(z~).
    """

    raw: Tensor
    adjusted: Tensor


class CalmModel:
    """What ``calmtune train`` leaves behind, ready to give calibrated probabilities.

    Attributes:
        model: the base with its adapter, in eval mode. tokenizer: the base's tokenizer.
        adjustment: alpha, or None for a run without. settings: the record of ``calibration.json``.
    """

    def __init__(
        self, model: nn.Module, tokenizer: Any, adjustment: LogitAdjustment | None, settings: dict[str, Any]
    ) -> None:
        self.model, self.tokenizer, self.adjustment, self.settings = model.eval(), tokenizer, adjustment, settings
        if adjustment is not None:
            adjustment.to(next(model.parameters()).device).requires_grad_(False)

    @classmethod
    def from_pretrained(
        cls,
        directory: str | Path,
        *,
        base_model: nn.Module | None = None,
        tokenizer: Any | None = None,
        check_base: bool = True,
        **load_options: Any,
    ) -> CalmModel:
        """Load a run's directory.

        Args:
            directory: holds ``calibration.json`` and, for an adapter run, ``adapter_model.safetensors``.
            base_model, tokenizer: the base, when it is already loaded; otherwise it is loaded by its recorded name.
            check_base: refuse a base whose weights are not those the run was trained on.
            load_options: for :func:`calmtune.modeling.loading.load_model` (``device``, ``dtype``, ...).

        Raises:
            FileNotFoundError: a file is missing. ValueError: another base, or adapter tensors missing or left over.
        """
        folder = Path(directory)
        adjustment, settings = load_calibration(folder)
        base = settings["base"]
        if (folder / ADAPTER_WEIGHTS).is_file():
            if base_model is None:
                base_model, loaded = load_model(base["name"], revision=base["revision"], **load_options)
                tokenizer = tokenizer or _with_template(loaded, folder)
            if check_base:
                check_same_base(base_model, base)
            model = load_adapter(base_model, folder)
        else:
            model, loaded = load_model(str(folder), **load_options)
            tokenizer = tokenizer or loaded
        if tokenizer is None:
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(str(folder))
        return cls(model, tokenizer, adjustment, settings)

    @torch.no_grad()
    def next_token(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Distributions:
        """Both distributions of the token after each row, log-probabilities [B, V].

        Args:
            input_ids: int64 [B, L]. attention_mask: 1 for real tokens; padding may be on either side.

        Raises:
            ValueError: alpha is not per vocabulary entry (``level: options``).
        """
        if self.adjustment is not None and self.settings["level"] != "vocabulary":
            raise ValueError(
                "this run's alpha acts on option scores (level: options), not on tokens; use option_distributions, or "
                "calmtune evaluate"
            )
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = self.model(input_ids=input_ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
        columns = torch.arange(mask.shape[1], device=mask.device) * mask
        z = logits[torch.arange(len(mask), device=mask.device), columns.argmax(-1)]
        return self._both(z)

    def option_distributions(self, scores: Tensor) -> Distributions:
        """Both distributions over options from option scores [B, K] (-inf where absent), for ``level: options``."""
        if self.adjustment is not None and self.settings["level"] != "options":
            raise ValueError("this run's alpha is per vocabulary entry (level: vocabulary); use next_token")
        return self._both(scores)

    def _both(self, z: Tensor) -> Distributions:
        z = z.float()
        adjusted = z if self.adjustment is None else self.adjustment(z)
        return Distributions(torch.log_softmax(z, -1), torch.log_softmax(adjusted, -1))


def _with_template(tokenizer: Any, folder: Path) -> Any:
    """The base's tokenizer with the chat template that the run was trained with, which may be another one."""
    path = folder / CHAT_TEMPLATE
    if path.is_file():
        tokenizer.chat_template = path.read_text(encoding="utf-8")
    return tokenizer


def check_same_base(model: nn.Module, recorded: dict[str, Any]) -> None:
    """Refuse a base other than the recorded one.

    Raises:
        ValueError: the fingerprints differ; both names are given.
    """
    found = fingerprint(model)
    if found != recorded["fingerprint"]:
        name = getattr(getattr(model, "config", None), "_name_or_path", type(model).__name__)
        raise ValueError(
            f"this adapter was trained on {recorded['name']!r} (fingerprint {recorded['fingerprint'][:12]}), but the "
            f"model given, {name!r}, has other weights (fingerprint {found[:12]}); load the recorded base, or pass "
            "check_base=False if you mean it"
        )


def load_adapter(base_model: nn.Module, folder: Path) -> nn.Module:
    """The base with the folder's adapter; every tensor of the file must have its place and every place its tensor.

    Raises:
        ValueError: keys are missing or left over (the adapter would silently do nothing).
    """
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors import SafetensorError, safe_open

    path = folder / ADAPTER_WEIGHTS
    try:
        with safe_open(path, framework="pt") as file:
            stored = set(file.keys())
    except SafetensorError as error:
        raise ValueError(f"{path}: not a readable safetensors file ({error})") from error
    model = PeftModel.from_pretrained(base_model, str(folder))  # type: ignore[arg-type]
    expected = set(get_peft_model_state_dict(model, save_embedding_layers=False))
    if stored != expected:
        missing, extra = sorted(expected - stored), sorted(stored - expected)
        raise ValueError(
            f"{path} does not fit the base: {len(missing)} tensors missing (e.g. {missing[:2]}), {len(extra)} left "
            f"over (e.g. {extra[:2]}); was it saved from another architecture, or renamed?"
        )
    return model
