"""Names on a card: what may be said of a base model and of a source of rows to people on other machines."""

from __future__ import annotations

import re
from pathlib import Path, PureWindowsPath

# the packaged model is a quantised copy of this one
BUILT_IN_ORIGINS = {"smollm2-135m-instruct": "HuggingFaceTB/SmolLM2-135M-Instruct"}
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def hub_name(base: str) -> str | None:
    """The base's name on the Hub, or None for a model that lies on this machine alone.

    >>> hub_name("org/model"), hub_name("smollm2-135m-instruct"), hub_name("/home/me/model"), hub_name("a.gguf")
    ('org/model', 'HuggingFaceTB/SmolLM2-135M-Instruct', None, None)
    """
    if base.lower() in BUILT_IN_ORIGINS:
        return BUILT_IN_ORIGINS[base.lower()]
    local = base.endswith(".gguf") or not _REPOSITORY.fullmatch(base) or Path(base).exists()
    return None if local else base


def shown_base(base: str) -> str:
    """How a base is called on the card: its name, and of a folder only the last part.

    >>> shown_base("org/model"), shown_base("/home/me/model"), shown_base(r"C:\\\\models\\\\mine")
    ('org/model', 'model', 'mine')
    """
    return base if hub_name(base) else file_name(base)


def shown_source(source: str) -> str:
    """A source of rows: a file by its name without the folders, anything else as it is.

    >>> shown_source("/home/me/questions.jsonl"), shown_source("hub:mmlu/test"), shown_source("facts:chemistry")
    ('questions.jsonl', 'hub:mmlu/test', 'facts:chemistry')
    """
    return source if source.startswith("hub:") or source.partition(":")[0] == "facts" else file_name(source)


def file_name(path: str) -> str:
    """The last part of a path of either kind of system."""
    return PureWindowsPath(path).name or path
