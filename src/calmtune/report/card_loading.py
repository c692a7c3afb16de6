"""How to load a run, as code that runs: the confidence as it was measured, and the plain adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calmtune.report.card_names import BUILT_IN_ORIGINS, hub_name
from calmtune.report.fitted import FittedRow

FOLDER = "path/to/this/folder"
# settings of the base that loading must repeat, as `load_model` names them
_LOADING = ("gguf_file", "quantization", "trust_remote_code")


def loading_parts(
    base_model: str, library_name: str, settings: Mapping[str, Any], row: FittedRow | None, repo_id: str | None = None
) -> list[str]:
    """The section's paragraphs and code.

    Args:
        base_model: as in the settings.
        library_name: ``peft`` or ``transformers``.
        settings: the run's.
        row: the chosen form, or None for a run that was not evaluated.
        repo_id: the repository the folder is published as, or None.
    """
    form = "the form chosen on the calibration split" if row else "the adjusted distribution where there is one"
    parts = [
        f"The confidence of an answer, in {form} (the question here is a stand-in; its `label` is not looked at):",
        _block(_confidence(settings, row, repo_id)),
    ]
    if library_name == "peft":
        parts += [
            "As an ordinary adapter, which gives the raw distribution (the adjustment stays in "
            "`adjustment.safetensors`):",
            _block(_adapter(base_model, settings, repo_id)),
        ]
    return parts


def _confidence(settings: Mapping[str, Any], row: FittedRow | None, repo_id: str | None) -> list[str]:
    style = ", ".join(
        f"{name}={settings.get(name, default)!r}"
        for name, default in (("scoring", "text"), ("template", "auto"), ("system_prompt", None))
    )
    options = "".join(f", {key}={settings[key]!r}" for key in _LOADING if settings.get(key))
    return [
        "import numpy as np",
        *_imports(repo_id),
        "from calmtune import CalmModel",
        "from calmtune.data.prompts import PromptStyle, Renderer",
        "from calmtune.data.rows import MultipleChoice",
        "from calmtune.scoring.options import score_items",
        "",
        f"tuned = CalmModel.from_pretrained({_folder(repo_id)}{options})",
        f"renderer = Renderer(tuned.tokenizer, PromptStyle({style}))",
        'choices = ("oxygen", "carbon dioxide", "helium")',
        'row = MultipleChoice("1", "Which gas do plants take in?", choices, label=0, domain="mine")',
        "scored = score_items(",
        "    tuned.model, [row], renderer, adjustment=tuned.adjustment, level=tuned.settings['level'],",
        f"    normalisation={settings.get('normalisation', 'sum')!r},",
        ")",
        *_scaling(row),
        "p = np.exp(z - z.max())",
        "p /= p.sum()",
        "print(row.choices[p.argmax()], p.max())",
    ]


def _scaling(row: FittedRow | None) -> list[str]:
    """The chosen distribution's scores, and what its post-hoc fit does to them."""
    if row is None:
        return ["z = scored.logits(adjusted=scored.has_adjusted)[0]"]
    scores = "scored.logits(adjusted=True)[0]" if row.row.adjusted else "scored.logits()[0]"
    if row.vector is not None:
        w, b = ([float(value) for value in values] for values in (row.vector.scale, row.vector.shift))
        return [
            f"z = {scores}",
            f"w, b = np.array({w}), np.array({b})  # vector scaling",
            "z = w[: len(z)] * (z - np.logaddexp.reduce(z)) + b[: len(z)]",
        ]
    if row.row.scaled:
        return [f"z = {scores} / {row.temperature!r}  # the fitted temperature"]
    return [f"z = {scores}"]


def _adapter(base_model: str, settings: Mapping[str, Any], repo_id: str | None) -> list[str]:
    options = {key: settings[key] for key in _LOADING if settings.get(key)}
    # the packaged model and quantised bases are loaded as they were for training, so that the weights are the same
    ours = base_model.lower() in BUILT_IN_ORIGINS or "quantization" in options or "gguf_file" in options
    name = base_model if ours or hub_name(base_model) else "path/to/the/base"
    given = "".join(f", {key}={value!r}" for key, value in options.items())
    adapter = f"model = PeftModel.from_pretrained(base, {_where(repo_id)})"
    if ours:
        name = name if hub_name(name) else "path/to/the/base"
        loaded = f"base, tokenizer = load_model({name!r}{given})"
        return ["from peft import PeftModel", "from calmtune.modeling.loading import load_model", "", loaded, adapter]
    return [
        "from peft import PeftModel",
        "from transformers import AutoModelForCausalLM",
        "",
        f"base = AutoModelForCausalLM.from_pretrained({name!r}{given})",
        adapter,
    ]


def _imports(repo_id: str | None) -> list[str]:
    return ["from huggingface_hub import snapshot_download"] if repo_id else []


def _folder(repo_id: str | None) -> str:
    """A folder on disk, which CalmModel reads."""
    return f"snapshot_download({repo_id!r})" if repo_id else f'"{FOLDER}"'


def _where(repo_id: str | None) -> str:
    """A folder or a repository, both of which PEFT reads."""
    return f'"{repo_id or FOLDER}"'


def _block(lines: list[str]) -> str:
    return "```python\n" + "\n".join(lines) + "\n```"
