"""The documentation: every option on its page, every page in the navigation, every link to something that is there."""

import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from calmtune.config import settings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("docs_hooks", DOCS / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def options(hooks):
    return hooks.options_page()


def test_every_option_stands_once_on_the_page_with_its_help_and_default(options):
    rows = [line.split(" | ") for line in options.splitlines() if line.startswith("| `")]
    names = [row[0].removeprefix("| ").strip("`") for row in rows]
    known = settings()
    assert sorted(names) == sorted(known)
    for name, row in zip(names, rows, strict=True):
        assert len(row) == 4, row
        words = " ".join(known[name].help.split()[:3])
        assert words.replace("|", "\\|").replace("<", "&lt;") in row[3], name
    by_name = dict(zip(names, rows, strict=True))
    assert by_name["tau_max"][2] == "`10.0`"
    assert by_name["upper_share"][1:3] == ["a number (from 0 to 1)", "`0.25`"]
    assert by_name["test_ood"][1:3] == ["a list of text", "none"]


def test_our_own_training_options_stand_before_those_of_transformers(options):
    own, inherited = options.index("## Training\n"), options.index("## Training, as in transformers")
    assert own < options.index("| `alpha_learning_rate`") < inherited < options.index("| `learning_rate`")


def test_every_page_is_in_the_navigation_and_is_there(hooks):
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    pages = list(hooks.targets(hooks.on_config({"nav": nav, "docs_dir": DOCS})["nav"]))
    assert len(pages) == len(set(pages))
    assert {page for page in pages if page != "options.md"} == set(PAGES)
    assert "options.md" not in PAGES  # it is made when the site is built


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_pages_and_headings(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        if "://" in target or (name and not name.endswith((".md", ".png"))):
            continue
        file = DOCS / (name or page)
        assert file.is_file() or name == "options.md", f"{page}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
            slugs = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", one.lower()).strip()) for one in headings}
            assert anchor in slugs, f"{page}: {target}"


def test_files_that_the_pages_name_are_there():
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        for name in re.findall(r"\b((?:configs|examples|benchmarks|tests)/[\w./-]+\.(?:yaml|py))", text):
            assert (ROOT / name).is_file(), f"{page} names {name}"


def test_the_recipes_are_listed():
    text = (DOCS / "models.md").read_text(encoding="utf-8")
    for recipe in (ROOT / "configs" / "models").glob("*.yaml"):
        assert f"`{recipe.stem}`" in text
        assert yaml.safe_load(recipe.read_text(encoding="utf-8"))["model_name_or_path"] in text
