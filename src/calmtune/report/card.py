"""The model card: what was trained on what, what chose what, how good the confidence is, and where it holds."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from calmtune.report.card_loading import loading_parts
from calmtune.report.card_metadata import metadata
from calmtune.report.card_names import shown_base, shown_source
from calmtune.report.figures import report_style, to_png
from calmtune.report.fitted import FittedRow
from calmtune.report.headline import headline
from calmtune.report.markdown import escape
from calmtune.report.reliability import plot_reliability_row
from calmtune.report.summary import Comparison, Summary, summarise
from calmtune.report.tables import column_table, notes, to_markdown

CARD = "README.md"
PICTURE = "reliability.png"
ROLES = {
    "train": "trains the weights (lower level)",
    "test_id": "tested only, in domain",
    "test_ood": "tested only, out of domain",
}
PACKAGES = ("calmtune", "torch", "transformers", "peft", "numpy")
# settings that are names of sources, of which files lose their folders
SOURCES = frozenset({"train_sources", "upper_sources", "calibration_sources", "test_id", "test_ood"})


def write_card(
    comparison: Comparison | Summary | None,
    directory: Path | str,
    *,
    base_model: str,
    settings: Mapping[str, Any] | None = None,
    splits: Mapping[str, Mapping[str, Any]] | None = None,
    checkpoint: Mapping[str, Any] | None = None,
    name: str | None = None,
    library_name: str = "peft",
    repo_id: str | None = None,
    datasets: Sequence[str] = (),
    n_resamples: int = 1000,
) -> Path:
    """Write README.md, the card that the Hub shows, into the adapter's folder, with its picture where there is one.

    Files and folders of this machine are named by their last part alone.

    Args:
        comparison: the evaluation, or None for a model that was not evaluated, which the card then says.
        directory: the adapter's folder; a README.md in it is replaced.
        base_model: the base's name on the Hub, or what it was loaded from.
        settings: the resolved configuration, keys as in its file; by default the comparison's.
        splits: by split name (train, upper, calibration, test_id, test_ood) its ``count`` and ``domains``.
        checkpoint: ``checkpoint`` of ``calibration.json``: which step's weights these are; None for the last one's.
        name: the model's name; by default the folder's.
        library_name: what loads the weights: ``"peft"`` for an adapter, ``"transformers"`` for a whole model.
        repo_id: ``owner/name`` on the Hub where the folder is published, for the code that loads it.
        datasets: names on the Hub of the data sets that the training rows came from.
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
        checkpoint=checkpoint,
        name=name or directory.resolve().name,
        library_name=library_name,
        repo_id=repo_id,
        datasets=datasets,
    )
    if summary is not None:
        _replace(directory / PICTURE, draw_card_picture(summary))
    path = directory / CARD
    _replace(path, text.encode())
    return path


def render_card(
    summary: Summary | None,
    *,
    base_model: str,
    settings: Mapping[str, Any],
    splits: Mapping[str, Mapping[str, Any]],
    name: str,
    library_name: str,
    checkpoint: Mapping[str, Any] | None = None,
    repo_id: str | None = None,
    datasets: Sequence[str] = (),
) -> str:
    """The card as text, YAML front matter first. Args as in :func:`write_card`."""
    method = str(settings["method"]) if "method" in settings else "not recorded"
    front = metadata(
        summary, base_model=base_model, settings=settings, name=name, library_name=library_name, datasets=datasets
    )
    row = summary.row(summary.choice.row) if summary is not None else None
    parts = [
        f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---",
        f"# {escape(name)}",
        f"{escape(shown_base(base_model))}, fine-tuned with calmtune by the method {escape(method)}. The aim is a "
        "confidence that says how often the answer is right; whether it does is under Results.",
        *_result_parts(summary),
        "## Training",
        _training_table(settings),
        checkpoint_text(checkpoint, settings),
        *_split_parts(splits, settings, checkpoint),
        "## How to load it",
        *loading_parts(base_model, library_name, settings, row, repo_id),
        "## What the confidence is for",
        _intended(summary, settings),
        "## When the questions change",
        _shift_text(summary),
        "## Versions",
        "This card was written with "
        + ", ".join(f"{package} {_version(package)}" for package in PACKAGES)
        + f" and Python {platform.python_version()}.",
    ]
    return "\n\n".join(parts) + "\n"


def draw_card_picture(summary: Summary) -> bytes:
    """Reliability diagrams of the first row and the chosen one, in domain and out of it, as PNG."""
    labels = dict.fromkeys((summary.first, summary.choice.row))
    panels = []
    for shift in ("ID", "OOD"):
        column = summary.column(shift)
        for label in labels if column is not None else ():
            cell = summary.cells[label, column.name]  # type: ignore[union-attr]
            panels.append((f"{label}, {shift}", cell.reliability, cell.estimates["conf_ece"]))
    with report_style():
        return to_png(plot_reliability_row(panels))


def checkpoint_text(checkpoint: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> str:
    """Which step's weights these are, and why.

    >>> checkpoint_text(None, {})
    'The weights are those of the last step; no checkpoint was chosen.'
    """
    if checkpoint is None:
        return "The weights are those of the last step; no checkpoint was chosen."
    text = f"The weights are those of step {checkpoint.get('step')}, the best checkpoint"
    metric = str(checkpoint.get("metric")).removeprefix("eval_")
    value = checkpoint.get("value")
    shown = f" {value:.4f}" if isinstance(value, int | float) else ""
    if metric != "selection_loss":
        return f"{text} by {escape(metric)}{shown}."
    names = {"nll": "NLL", "brier": "Brier score", "conf_ece": "conf-ECE"}
    asked = str(checkpoint.get("selection_metric", settings.get("selection_metric", "nll")))
    worst = checkpoint.get("selection_domains") == "worst"
    text += (
        f": it has the lowest {names.get(asked, asked)} of the adjusted distribution on the calibration split"
        f"{', in the domain where that is worst' if worst else ''}"
    )
    start, drop = checkpoint.get("start_accuracy"), checkpoint.get("accuracy_drop")
    if start is None or drop is None:
        return f"{text} ({shown.strip()})."
    return (
        f"{text} ({shown.strip()}, which counts each point of accuracy below {start - drop:.3f} against it: that is "
        f"{drop:g} below the {start:.3f} before training)."
    )


def _replace(path: Path, content: bytes) -> None:
    """Write a file so that it is either the old one or the new one."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_bytes(content)
    temporary.replace(path)


def _result_parts(summary: Summary | None) -> list[str]:
    if summary is None:
        return ["## Results", "This model was not evaluated; nothing is known about its confidence."]
    verdict, *sentences = headline(summary)
    parts = ["## Results", f"**{escape(verdict)}**", *(f"{escape(sentence)}" for sentence in sentences)]
    for column in summary.columns:
        table = column_table(summary, column)
        parts += [f"### {escape(table.caption)}", to_markdown(table).strip()]
    parts += map(escape, notes(summary))
    about = "Reliability diagrams: accuracy against confidence, before and after, with conf-ECE and n"
    return [*parts, f"![{about}]({PICTURE})"]


_SHOWN = (
    "method", "level", "scoring", "normalisation", "template", "adjustment", "adjustment_start", "eta", "barrier",
    "upper_gradient", "inner_steps", "inner_learning_rate", "learning_rate", "alpha_learning_rate",
    "num_train_epochs", "max_steps", "per_device_train_batch_size", "gradient_accumulation_steps", "lora_r",
    "lora_alpha", "lora_dropout", "lora_target_modules", "dtype", "quantization", "seed", "train_sources",
    "upper_sources", "calibration_sources", "test_id", "test_ood", "selection_metric", "selection_domains",
    "selection_accuracy_drop",
)  # fmt: skip


def _training_table(settings: Mapping[str, Any]) -> str:
    known = [(key, _shown(key, settings[key])) for key in _SHOWN if settings.get(key) not in (None, [], ())]
    if not known:
        return "The settings were not recorded."
    lines = [f"| {escape(key)} | {escape(text)} |" for key, text in known]
    return "\n".join(["| setting | value |", "| --- | --- |", *lines])


def _shown(key: str, value: Any) -> str:
    """A setting for people elsewhere: a list as words, and files without their folders."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    return ", ".join(shown_source(str(one)) if key in SOURCES else str(one) for one in values)


def _split_parts(
    splits: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any], checkpoint: Mapping[str, Any] | None
) -> list[str]:
    if not splits:
        return ["Which rows were in which split was not recorded."]
    roles = {**ROLES, "upper": _upper_role(settings), "calibration": _calibration_role(settings, checkpoint)}
    lines = ["| split | rows | domains | what it does |", "| --- | ---: | --- | --- |"]
    for name, split in splits.items():
        domains = ", ".join(f"{domain} {count}" for domain, count in split.get("domains", {}).items())
        lines.append(f"| {escape(name)} | {split['count']} | {escape(domains)} | {roles.get(name, '')} |")
    return ["No question is in two splits.", "\n".join(lines)]


def _calibration_role(settings: Mapping[str, Any], checkpoint: Mapping[str, Any] | None) -> str:
    """Everything that this split had a say in."""
    role = "fits temperature and vector scaling, and chooses which row is used"
    if checkpoint is not None and str(checkpoint.get("metric")).endswith("selection_loss"):
        role += "; chose the checkpoint"
    if settings.get("eta") == "auto":
        role += "; steered eta while training"
    if settings.get("adjustment_start") == "calibrated":
        role += "; gave tau its first value"
    return role


def _upper_role(settings: Mapping[str, Any]) -> str:
    if settings.get("method", "calm") not in ("calm", "regularization", "iterate"):
        return "held out; this method does not use it"
    positions = settings.get("entropy_positions", "auto")
    along = positions == "response" or (positions == "auto" and settings.get("level") == "vocabulary")
    what = "read along its reference answers" if along else "inputs only, no labels"
    return f"keeps confidence in check (upper level); {what}"


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
