"""Who may import whom, read from the source, and what `import calmtune` loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "calmtune"

# a room (a folder, or a file beside them) and the rooms it may import, beside itself
ALLOWED = {
    "bilevel": set(),
    "metrics": set(),
    "endpoint": set(),
    "grading": {"endpoint"},
    "jsonl": set(),
    "predictions": {"jsonl"},
    "samples": {"jsonl"},
    "schema": set(),
    "data": set(),
    "modeling": {"bilevel"},
    "methods": {"bilevel"},
    # report: CalibrationCallback draws the report's reliability diagram
    "training": {"methods", "bilevel", "modeling", "data", "metrics", "posthoc", "report"},
    "scoring": {"data", "jsonl", "predictions", "samples", "endpoint", "modeling", "bilevel"},
    "posthoc": {"metrics", "predictions"},
    "external": {"metrics", "predictions"},
    "harness": {"metrics"},
    "report": {"metrics", "predictions", "graded"},
    "graded": {"jsonl"},
    "config_scoring": set(),
    "export": {"bilevel", "modeling", "data", "endpoint", "metrics", "predictions", "report"},
    "checks": {"schema"},
    "config": {"schema", "checks", "training", "config_scoring"},
    "suite": {"schema", "config", "config_scoring"},
    "run_key": {"config", "config_scoring", "data", "training"},
}
# these stay usable, and quick to import, without torch
NO_TORCH = (
    "metrics",
    "grading",
    "endpoint",
    "jsonl",
    "predictions",
    "samples",
    "graded",
    "config_scoring",
    "report",
    "posthoc",
    "external",
    "harness",
    "schema",
    "checks",
    "config",
    "suite",
    "run_key",
)
NO_TORCH_FILES = (
    "scoring/endpoint_sampling.py",
    "scoring/sampling_settings.py",
    "data/rows.py",
    "data/splits.py",
    "data/facts.py",
    "data/sources.py",
    "data/prompts.py",
    "data/messages.py",
)
HEAVY = {"torch", "transformers", "peft", "accelerate", "datasets", "httpx"}

FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(file: Path) -> str:
    """The folder under calmtune, or the file's own name."""
    first = file.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(file: Path, *, top_level_only: bool = False) -> set[str]:
    """Dotted names that a file imports; relative ones made absolute."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = _top_level(tree) if top_level_only else list(ast.walk(tree))
    package = ["calmtune", *file.relative_to(PACKAGE).parts[:-1]]
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def _top_level(tree: ast.Module) -> list[ast.stmt]:
    """Statements that run at import: not those in functions, nor under TYPE_CHECKING."""
    found: list[ast.stmt] = []
    queue: list[ast.stmt] = list(tree.body)
    while queue:
        node = queue.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            queue.extend(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node)
            queue.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))
    return found


def rooms_imported(file: Path) -> set[str]:
    own = room_of(file)
    parts = [name.split(".") for name in imports(file) if name.split(".")[0] == "calmtune"]
    return {part[1] for part in parts if len(part) > 1} - {own}


def name_of(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("file", [file for file in FILES if room_of(file) in ALLOWED], ids=name_of)
def test_a_room_imports_only_what_it_may(file):
    forbidden = rooms_imported(file) - ALLOWED[room_of(file)]
    assert not forbidden, f"{name_of(file)} imports {sorted(forbidden)}; a {room_of(file)} file may not"


def test_every_room_has_a_rule():
    free = {"cli", "__init__", "__main__"}  # cli imports everything; the package's face names what is public
    assert {room_of(file) for file in FILES} - free <= set(ALLOWED)


@pytest.mark.parametrize("file", [file for file in FILES if room_of(file) not in ("cli", "__main__")], ids=name_of)
def test_nobody_imports_the_commands(file):
    assert "cli" not in rooms_imported(file)


def test_training_and_scoring_never_import_each_other():
    assert "scoring" not in ALLOWED["training"]
    assert "training" not in ALLOWED["scoring"]


@pytest.mark.parametrize(
    "file", [file for file in FILES if room_of(file) in NO_TORCH or name_of(file) in NO_TORCH_FILES], ids=name_of
)
def test_rooms_without_torch_import_none_at_the_top(file):
    heavy = {name.split(".")[0] for name in imports(file, top_level_only=True)} & HEAVY
    assert not heavy, f"{name_of(file)} imports {sorted(heavy)} when it is imported"


@pytest.mark.parametrize(
    "statement",
    [
        "import calmtune",
        "import calmtune; dir(calmtune); calmtune.load_config",
        "import calmtune.cli.main; calmtune.cli.main.build_parser()",
        "import calmtune.grading",
        "import calmtune.metrics, calmtune.posthoc, calmtune.predictions, calmtune.data.rows, calmtune.data.facts",
    ],
)
def test_importing_loads_neither_torch_nor_transformers(statement):
    heavy = sorted(HEAVY - {"datasets", "accelerate"})
    code = f"{statement}\nimport sys\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_every_public_name_can_be_imported():
    import calmtune

    assert [name for name in calmtune.__all__ if not hasattr(calmtune, name)] == []
    assert set(calmtune._HOMES) == set(calmtune.__all__) - {"__version__"}
    with pytest.raises(AttributeError, match="has no attribute 'Calm'"):
        calmtune.Calm  # noqa: B018
