"""The model card: what was trained on what, what chose what, how good the confidence is, and where it holds."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from calmtune.report.fitted import FittedRow
from calmtune.report.headline import headline
from calmtune.report.markdown import escape
from calmtune.report.measures import MEASURES
from calmtune.report.summary import Comparison, Summary, summarise
from calmtune.report.tables import column_table, notes, to_markdown

ROLES = {
    "train": "trains the weights (lower level)",
    "upper": "keeps confidence in check (upper level); inputs only, no labels",
    "calibration": "fits temperature and vector scaling, and chooses which row is used",
    "test_id": "tested only, in domain",
    "test_ood": "tested only, out of domain",
}
PACKAGES = ("calmtune", "torch", "transformers", "peft", "numpy")


def write_card(
    comparison: Comparison | Summary | None,
    directory: Path | str,
    *,
    base_model: str,
    settings: Mapping[str, Any] | None = None,
    splits: Mapping[str, Mapping[str, Any]] | None = None,
    name: str | None = None,
    library_name: str = "peft",
    n_resamples: int = 1000,
) -> Path:
    """Write README.md, the card that the Hub shows, into the adapter's folder.

    Args:
        comparison: the evaluation, or None for a model that was not evaluated, which the card then says.
        directory: the adapter's folder; a README.md in it is replaced.
        base_model: the base's name on the Hub, or what it was loaded from.
        settings: the resolved configuration, keys as in its file; by default the comparison's.
        splits: by split name (train, upper, calibration, test_id, test_ood) its ``count`` and ``domains``.
        name: the model's name; by default the folder's.
        library_name: what loads the weights: ``"peft"`` for an adapter, ``"transformers"`` for a whole model.
        n_resamples: bootstrap resamples, where ``comparison`` is still to be computed.

    Returns:
        The path of README.md.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    summary = summarise(comparison, n_resamples=n_resamples) if isinstance(comparison, Comparison) else comparison
    if settings is None:
        settings = summary.comparison.settings if summary is not None else {}
    text = render_card(
        summary,
        base_model=base_model,
        settings=settings,
        splits=splits or {},
        name=name or directory.resolve().name,
        library_name=library_name,
    )
    path = directory / "README.md"
    path.write_text(text, encoding="utf-8")
    return path


def render_card(
    summary: Summary | None,
    *,
    base_model: str,
    settings: Mapping[str, Any],
    splits: Mapping[str, Mapping[str, Any]],
    name: str,
    library_name: str,
) -> str:
    """The card as text, YAML front matter first."""
    method = str(settings["method"]) if "method" in settings else "not recorded"
    front: dict[str, Any] = {
        "base_model": base_model,
        "library_name": library_name,
        "pipeline_tag": "text-generation",
        "tags": [
            "calmtune",
            "calibration",
            *([method] if "method" in settings else []),
            *(["lora"] if library_name == "peft" else []),
        ],
    }
    if summary is not None:
        front["model-index"] = [{"name": name, "results": _results(summary)}]
    parts = [
        f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---",
        f"# {escape(name)}",
        f"{escape(base_model)}, fine-tuned with calmtune by the method {escape(method)}. The aim is a confidence that "
        "says how often the answer is right; whether it does is under Results.",
        *_result_parts(summary),
        "## Training",
        _training_table(settings),
        *_split_parts(splits),
        "## How to load it",
        _loading(base_model, library_name),
        "## What the confidence is for",
        _intended(summary, settings),
        "## When the questions change",
        _shift_text(summary),
        "## Versions",
        ", ".join(f"{package} {_version(package)}" for package in PACKAGES) + f", Python {platform.python_version()}.",
    ]
    return "\n\n".join(parts) + "\n"


def _results(summary: Summary) -> list[dict[str, Any]]:
    """The chosen row in the Hub's model-index form, one result a test domain."""
    label = summary.choice.row
    results = []
    for column in summary.columns:
        if column.pooled:
            continue
        estimates = summary.cells[label, column.name].estimates
        d = summary.definitions
        results.append(
            {
                "task": {"type": "multiple-choice", "name": "Multiple choice"},
                "dataset": {
                    "type": re.sub(r"[^A-Za-z0-9._/-]+", "-", column.name),
                    "name": f"{column.name} ({column.shift}, n = {column.n})",
                },
                "metrics": [
                    {"type": kind, "name": f"{MEASURES[key].title}{detail}", "value": round(estimates[key].value, 6)}
                    for key, kind, detail in (
                        ("conf_ece", "ece", f" ({d['n_bins']} equal-width bins, {label})"),
                        ("accuracy", "accuracy", f" ({label})"),
                    )
                ],
            }
        )
    return results


def _result_parts(summary: Summary | None) -> list[str]:
    if summary is None:
        return ["## Results", "This model was not evaluated; nothing is known about its confidence."]
    verdict, *sentences = headline(summary)
    parts = ["## Results", f"**{escape(verdict)}**", *(f"{escape(sentence)}" for sentence in sentences)]
    for column in summary.columns:
        table = column_table(summary, column)
        parts += [f"### {escape(table.caption)}", to_markdown(table).strip()]
    return [*parts, *map(escape, notes(summary))]


_SHOWN = (
    "method", "level", "scoring", "normalisation", "template", "eta", "barrier", "upper_gradient", "inner_steps",
    "inner_learning_rate", "learning_rate", "alpha_learning_rate", "num_train_epochs", "max_steps",
    "per_device_train_batch_size", "gradient_accumulation_steps", "lora_r", "lora_alpha", "lora_dropout",
    "lora_target_modules", "dtype", "quantization", "seed", "train_sources", "upper_sources", "calibration_sources",
    "test_id", "test_ood", "selection_metric", "selection_domains", "selection_accuracy_drop",
)  # fmt: skip


def _training_table(settings: Mapping[str, Any]) -> str:
    known = [(key, settings[key]) for key in _SHOWN if settings.get(key) not in (None, [], ())]
    if not known:
        return "The settings were not recorded."
    lines = [f"| {escape(key)} | {escape(_setting_text(value))} |" for key, value in known]
    return "\n".join(["| setting | value |", "| --- | --- |", *lines])


def _setting_text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _split_parts(splits: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if not splits:
        return ["Which rows were in which split was not recorded."]
    lines = ["| split | rows | domains | what it does |", "| --- | ---: | --- | --- |"]
    for name, split in splits.items():
        domains = ", ".join(f"{domain} {count}" for domain, count in split.get("domains", {}).items())
        lines.append(f"| {escape(name)} | {split['count']} | {escape(domains)} | {ROLES.get(name, '')} |")
    return ["No question is in two splits.", "\n".join(lines)]


def _loading(base_model: str, library_name: str) -> str:
    code = [
        "from calmtune import CalmModel",
        "",
        'model = CalmModel.from_pretrained("path/to/this/folder")',
        "both = model.next_token(input_ids)  # both.raw and both.adjusted: log-probabilities from one forward pass",
    ]
    text = "With both distributions:\n\n```python\n" + "\n".join(code) + "\n```"
    if library_name != "peft":
        return text
    plain = [
        "from peft import PeftModel",
        "from transformers import AutoModelForCausalLM",
        "",
        f"base = AutoModelForCausalLM.from_pretrained({base_model!r})",
        'model = PeftModel.from_pretrained(base, "path/to/this/folder")',
    ]
    return (
        f"{text}\n\nAs an ordinary adapter, which gives the raw distribution (the adjustment stays in "
        "`adjustment.safetensors`):"
        "\n\n```python\n" + "\n".join(plain) + "\n```"
    )


def _intended(summary: Summary | None, settings: Mapping[str, Any]) -> str:
    scoring = f" with the scoring `{settings['scoring']}`" if "scoring" in settings else ""
    text = (
        "The confidence is the probability of the chosen option among the options of a multiple-choice "
        f"question{scoring}. Use it to "
        "decide which answers to trust, to hand on, or to withhold. It is not the probability that a free text is "
        "true, and it says "
        "nothing about harm."
    )
    if summary is None:
        return text
    row = summary.row(summary.choice.row)
    kind = "adjusted" if row.row.adjusted else "raw"
    return (
        f"{text} The figures above hold for the {kind} distribution{_scaled(row)}, the form chosen on the calibration "
        "split."
    )


def _scaled(row: FittedRow) -> str:
    """What is done to the scores first, or nothing."""
    if row.vector is not None:
        w, b = (", ".join(f"{value:.4f}" for value in values) for values in (row.vector.scale, row.vector.shift))
        return f" with w log p + b by option in the place of the scores, w = ({w}), b = ({b})"
    return f" with the scores divided by T = {row.temperature:.4f}" if row.row.scaled else ""


def _shift_text(summary: Summary | None) -> str:
    if summary is None:
        return "Not measured."
    out = [column for column in summary.columns if column.shift == "OOD" and not column.pooled]
    if not out:
        return (
            "Not measured: every test domain was in domain. Measure it on your own questions before relying on the "
            "confidence."
        )
    parts = []
    for column in out:
        cell = summary.cells[summary.choice.row, column.name]
        gap = cell.estimates["gap"]
        word = "too sure" if gap.low > 0 else "not sure enough" if gap.high < 0 else "about right on average"
        parts.append(
            f"on {column.name} it is {word} (mean confidence minus accuracy {gap.value:+.3f} [{gap.low:+.3f}, "
            f"{gap.high:+.3f}], "
            f"n = {gap.n})"
        )
    return escape(
        f"Out of domain, {'; '.join(parts)}. Other questions may behave otherwise: measure it on your own before "
        "relying on it."
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"
