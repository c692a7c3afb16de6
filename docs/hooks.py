"""What mkdocs is told beside mkdocs.yml: the page of all options, made from the dataclasses when the site is built, and
the pages that the navigation does not list.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
PAGE = "options.md"
USING = "Using a calibrated model"
TITLES = {
    "model": "The model",
    "data": "The data",
    "lora": "The adapter",
    "evaluation": "Scoring and figures",
    "sampling": "Sampled answers",
    "training": "Training",
}
INHERITED = "Training, as in transformers"


def on_config(config: Any) -> Any:
    """mkdocs: a page that the navigation does not list stands in the section on using a model."""
    listed = set(targets(config["nav"]))
    section = next(entry[USING] for entry in config["nav"] if USING in entry)
    section += sorted(path.name for path in Path(config["docs_dir"]).glob("*.md") if path.name not in listed)
    return config


def targets(nav: list[Any]) -> Iterator[str]:
    """Every page of a navigation."""
    for entry in nav:
        for target in entry.values() if isinstance(entry, dict) else (entry,):
            yield from targets(target) if isinstance(target, list) else (target,)


def on_page_content(html: str, **_: Any) -> str:
    """mkdocs: names in docstrings lose the roles of another documentation tool."""
    return re.sub(r":(?:func|class|meth|data|mod|attr):(?=<code)", "", html)


def on_files(files: Any, config: Any) -> Any:
    """mkdocs: add the page."""
    from mkdocs.structure.files import File

    sys.path.insert(0, str(SOURCE))
    files.append(File.generated(config, PAGE, content=options_page()))
    return files


def options_page() -> str:
    """The page as Markdown: one table a section, one row a setting."""
    parts = [
        "# Every option",
        "This page is made from the code when the site is built. Each name is a key of the YAML file and a flag: "
        "`learning_rate: 1e-4` in the file is `--learning_rate 1e-4` on the command line, which wins. "
        "`calmtune inspect --settings` prints the same list.",
    ]
    for title, settings in sections().items():
        parts += [f"## {title}", "| option | type | default | what it does |\n| --- | --- | --- | --- |"]
        parts[-1] += "".join(f"\n{row(name, setting)}" for name, setting in settings.items())
    return "\n\n".join(parts) + "\n"


def sections() -> dict[str, dict[str, Any]]:
    """Settings by the title that they stand under; transformers' own come last."""
    import dataclasses

    from calmtune.config import settings
    from calmtune.training.arguments import CalmConfig

    # a default or a help text that is ours makes a field ours
    own = set(CalmConfig.__annotations__)
    inherited = {item.name for base in CalmConfig.__bases__ for item in dataclasses.fields(base)} - own
    found: dict[str, dict[str, Any]] = {}
    for name, setting in settings().items():
        late = setting.section == "training" and name in inherited
        title = INHERITED if late else TITLES.get(setting.section, setting.section.capitalize())
        found.setdefault(title, {})[name] = setting
    if INHERITED in found:
        found[INHERITED] = found.pop(INHERITED)
    return found


def row(name: str, setting: Any) -> str:
    """One line of the table."""
    from calmtune.schema import describe

    bounds = " ".join(bound_words(setting))
    kind = describe(setting.hint) + (f" ({bounds})" if bounds else "")
    return f"| `{name}` | {cell(kind)} | {cell(shown(setting.default))} | {cell(setting.help or 'See transformers.')} |"


def bound_words(setting: Any) -> Iterator[str]:
    """The range of a number."""
    if setting.low is not None:
        yield f"from {setting.low:g}"
    if setting.high is not None:
        yield f"to {setting.high:.10g}"
    if setting.below is not None:
        yield f"below {setting.below:g}"


def shown(default: Any) -> str:
    """A default as it would stand in the file."""
    if default is None or default in ((), []):
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`"


def cell(text: str) -> str:
    """Text that stays within its cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
