"""The card's metadata, in the form that the Hub reads: base model, library, and results as a model index."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from calmtune.report.card_names import hub_name
from calmtune.report.measures import MEASURES
from calmtune.report.summary import Summary


def metadata(
    summary: Summary | None,
    *,
    base_model: str,
    settings: Mapping[str, Any],
    name: str,
    library_name: str,
    datasets: Sequence[str] = (),
) -> dict[str, Any]:
    """Keys and values of the front matter.

    Args:
        summary: the evaluation, or None: then there are no results.
        base_model: as in the settings; a model that is not on the Hub is not named.
        settings: the run's.
        name: the model's.
        library_name: what loads the weights, ``peft`` or ``transformers``.
        datasets: names on the Hub of the data sets that the training rows came from.
    """
    is_adapter = library_name == "peft"
    front: dict[str, Any] = {}
    published = hub_name(base_model)
    if published:
        front |= {"base_model": published, "base_model_relation": "adapter" if is_adapter else "finetune"}
    front |= {"library_name": library_name, "pipeline_tag": "text-generation"}
    method = [str(settings["method"])] if "method" in settings else []
    front["tags"] = ["calmtune", "calibration", *method, *(["lora"] if is_adapter else [])]
    if datasets:
        front["datasets"] = list(datasets)
    if summary is not None:
        front["model-index"] = [{"name": name, "results": results(summary)}]
    return front


def results(summary: Summary) -> list[dict[str, Any]]:
    """The chosen row in the Hub's model-index form, one result a test domain."""
    label = summary.choice.row
    detail = f" ({summary.definitions['n_bins']} equal-width bins, {label})"
    found = []
    for column in summary.columns:
        if column.pooled:
            continue
        estimates = summary.cells[label, column.name].estimates
        found.append(
            {
                "task": {"type": "multiple-choice", "name": "Multiple choice"},
                "dataset": {
                    "type": re.sub(r"[^A-Za-z0-9._/-]+", "-", column.name),
                    "name": f"{column.name} ({column.shift}, n = {column.n})",
                },
                "metrics": [
                    {"type": kind, "name": f"{MEASURES[key].title}{about}", "value": round(estimates[key].value, 6)}
                    for key, kind, about in (
                        ("conf_ece", "ece", detail),
                        ("accuracy", "accuracy", f" ({label})"),
                    )
                ],
            }
        )
    return found
