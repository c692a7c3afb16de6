"""Checks of single settings that transformers makes late, or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calmtune import schema

# ranges of transformers' own arguments; ``below`` is not in the range
RANGES: dict[str, dict[str, float]] = {
    "learning_rate": {"low": 0},
    "weight_decay": {"low": 0},
    "adam_beta1": {"low": 0, "below": 1},
    "adam_beta2": {"low": 0, "below": 1},
    "adam_epsilon": {"low": 0},
    "max_grad_norm": {"low": 0},
    "warmup_steps": {"low": 0},
    "seed": {"low": 0, "high": 2**32 - 1},
    "data_seed": {"low": 0, "high": 2**32 - 1},
    "per_device_eval_batch_size": {"low": 1},
    "eval_accumulation_steps": {"low": 1},
    "eval_delay": {"low": 0},
    "dataloader_num_workers": {"low": 0},
    "dataloader_prefetch_factor": {"low": 1},
    "torch_empty_cache_steps": {"low": 1},
}


def range_faults(
    key: str, value: Any, *, low: float | None = None, high: float | None = None, below: float | None = None
) -> Iterator[str]:
    """A number outside ``low <= value <= high`` or ``value < below``; anything else than a number has no fault.

    >>> list(range_faults("adam_beta1", 1.0, low=0, below=1))
    ['adam_beta1: expected less than 1, got 1']
    """
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        return
    if low is not None and value < low:
        yield f"{key}: expected at least {low:g}, got {value:g}"
    if high is not None and value > high:
        yield f"{key}: expected at most {high:.10g}, got {value:.10g}"
    if below is not None and value >= below:
        yield f"{key}: expected less than {below:g}, got {value:g}"


def template_faults(template: str | None, style: str) -> Iterator[str]:
    """What keeps a text from being a chat template, or from being used; ``style`` is the setting ``template``.

    >>> list(template_faults("{% for m in messages %}{{ m.content }", "chat"))
    ["chat_template: line 1: unexpected '}'"]
    >>> list(template_faults("vicuna.jinja", "chat"))
    ['chat_template: expected a Jinja template of `messages`, got a text without that word; is it a file name?']
    """
    if template is None:
        return
    if style == "plain":
        yield "chat_template: template is plain, which uses none; leave it out, or set template: chat"
    from jinja2 import Environment, TemplateSyntaxError
    from jinja2.ext import loopcontrols

    try:
        Environment(extensions=[loopcontrols]).parse(template)
    except TemplateSyntaxError as error:
        yield f"chat_template: line {error.lineno}: {error.message}"
        return
    if "messages" not in template:
        yield "chat_template: expected a Jinja template of `messages`, got a text without that word; is it a file name?"


def folder_faults(entries: Mapping[str, schema.Value], typed: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with output_dir, which has no default; nothing where its text could not be typed."""
    folder = typed.get("output_dir")
    if not folder and ("output_dir" not in entries or "output_dir" in typed):
        yield "output_dir: expected the folder that the run is written to, got nothing; e.g. output_dir: runs/first"
    elif folder and Path(folder).exists() and not Path(folder).is_dir():
        yield f"output_dir: expected a folder, but {folder} is a file; choose another name"


def tracker_faults(report_to: str | Sequence[str] | None) -> Iterator[str]:
    """Trackers that are unknown, or not installed on this machine. Imports transformers."""
    from transformers.integrations import integration_utils

    names = [report_to] if isinstance(report_to, str) else list(report_to or ())
    known = [*integration_utils.INTEGRATION_TO_CALLBACK, "all", "none"]
    installed = integration_utils.get_available_reporting_integrations()  # type: ignore[no-untyped-call]
    for name in names:
        if name not in known:
            yield f"report_to: there is no tracker {name!r}{schema.nearest(name, known)}"
        # transformers lists flyte nowhere as installed, and azure_ml only in the place of mlflow
        elif name not in (*installed, "all", "none", "flyte", "azure_ml"):
            extra = "'calmtune[trackers]'" if name in ("tensorboard", "trackio", "wandb") else f"the package of {name}"
            yield f"report_to: the tracker {name} is not installed; pip install {extra}, or set report_to: none"
