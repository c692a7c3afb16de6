"""The key of a run changes when its figures could, and only then."""

import ast
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import calmtune
import cli_run
from calmtune import run_key as keys
from calmtune.cli.train import FREE
from calmtune.config import load_config
from calmtune.run_key import base_digest, changes, code_changes, code_version, data_version, run_key
from calmtune.training.checkpoint import VOLATILE

PACKAGE = Path(calmtune.__file__).parent


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return cli_run.write_config(tmp_path_factory.mktemp("key"))


def key(path, *flags):
    return run_key(load_config(path, flags))


@pytest.mark.parametrize(
    "flags",
    [
        ["--output_dir", "elsewhere"],
        ["--save_steps", "3"],
        ["--disable_tqdm", "false"],
        ["--run_name", "other"],
        ["--resume_from_checkpoint", "auto"],
        ["--n_bins", "15"],
        ["--n_resamples", "50"],
        ["--score_batch_tokens", "100"],
        ["--learning_rate", "0.01"],  # what it is already, written otherwise
    ],
)
def test_what_does_not_change_the_figures_does_not_change_the_key(path, flags):
    assert key(path, *flags).digest == key(path).digest


@pytest.mark.parametrize(
    "flags",
    [
        ["--seed", "1"],
        ["--eta", "2"],
        ["--method", "sft"],
        ["--learning_rate", "0.02"],
        ["--lora_r", "4"],
        ["--test_limit", "5"],
        ["--split_seed", "1"],
        ["--template", "plain"],
        ["--dtype", "bfloat16"],
        ["--train_sources", "facts"],
        ["--load_best_model_at_end", "--eval_strategy", "steps", "--eval_steps", "2"],
    ],
)
def test_what_changes_the_figures_changes_the_key(path, flags):
    assert key(path, *flags).digest != key(path).digest


def test_free_settings_are_those_that_train_lets_differ(path):
    assert not set(key(path).config) & (VOLATILE | FREE)


def test_when_checkpoints_are_chosen_among_their_number_counts(path):
    chosen = ["--load_best_model_at_end", "--eval_strategy", "steps", "--eval_steps", "2"]
    assert key(path, *chosen).digest != key(path, *chosen, "--save_steps", "4").digest


def test_data_counts_by_name_and_content_not_by_place(tmp_path):
    path = cli_run.write_config(tmp_path)
    before = key(path)
    (tmp_path / "there").mkdir()
    moved = shutil.copy(tmp_path / "sea.jsonl", tmp_path / "there" / "sea.jsonl")
    assert key(path, "--test_ood", str(moved)).digest == before.digest
    renamed = shutil.copy(tmp_path / "sea.jsonl", tmp_path / "lake.jsonl")
    assert changes(before.record(), key(path, "--test_ood", str(renamed))) == ["data: test_ood"]
    cli_run.write_questions(tmp_path / "sea.jsonl", 19, subject="sea")
    assert changes(before.record(), key(path)) == ["data: test_ood"]


def test_hub_data_counts_by_its_pinned_revision_and_the_bank_by_its_items(path, monkeypatch):
    from calmtune.data.hub import HUB

    data = replace(load_config(path).data, train_sources=("hub:arc_easy/train",), test_ood=("facts:months",))
    pinned = replace(data, train_sources=(f"hub:arc_easy/train@{HUB['arc_easy'].revision}",))
    assert data_version(data) == data_version(pinned)
    assert data_version(data) != data_version(replace(data, train_sources=("hub:arc_easy/train@main",)))
    before = data_version(data)
    keys._facts_version.cache_clear()
    monkeypatch.setattr(keys, "facts", lambda names: [])
    assert data_version(data)["test_ood"] != before["test_ood"]
    keys._facts_version.cache_clear()


def test_a_local_models_files_count(tmp_path):
    path = cli_run.write_config(tmp_path)
    before = key(path)
    weights = tmp_path / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    assert changes(before.record(), key(path)) == ["model: the files of the model"]
    assert keys.model_version("smollm2-135m-instruct") is None


def copy_of_the_package(tmp_path, name, edits):
    """The package with some files changed: path -> (old text, new text)."""
    target = tmp_path / name / "calmtune"
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__"))
    for file, (old, new) in edits.items():
        text = (target / file).read_text(encoding="utf-8")
        assert old in text
        (target / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    return target


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("methods/calm.py", '"""', '"""Otherwise said. ', set()),
        ("methods/calm.py", "\n\n", "\n\n# a comment\n\n\n", set()),
        ("methods/calm.py", "\nfrom ", "\nOTHER = 1\nfrom ", {"methods"}),
        ("cli/splits.py", 'ORDER = ("test_ood", "test_id"', 'ORDER = ("test_id", "test_ood"', {"cli/splits.py"}),
        ("data/bank/calendar.py", "\nfrom ", "\nOTHER = 1\nfrom ", {"data"}),
        ("report/measures.py", "\nfrom ", "\nOTHER = 1\nfrom ", set()),
        ("cli/main.py", "\nimport ", "\nOTHER = 1\nimport ", set()),
    ],
)  # fmt: skip
def test_code_counts_and_what_is_said_about_it_does_not(tmp_path, file, old, new, changed):
    before, after = code_version(), code_version(copy_of_the_package(tmp_path, "copy", {file: (old, new)}))
    assert {room for room in before if before[room] != after[room]} == changed


def test_what_counting_code_imports_counts_too():
    imported = set()
    for name in keys.CODE:
        place = PACKAGE / name
        for file in place.rglob("*.py") if place.is_dir() else [place]:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    imported |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    rooms = {name.split(".")[1] for name in imported if name.startswith("calmtune.")}
    # a configuration's values are in the key themselves, the records and an endpoint only carry what was said, and the
    # report is drawn from figures (the callback's diagram)
    carriers = {"config", "predictions", "samples", "jsonl", "endpoint", "report", "__version__"}
    assert rooms - carriers <= set(keys.CODE)


def test_a_new_file_in_a_room_counts(tmp_path):
    target = copy_of_the_package(tmp_path, "copy", {})
    (target / "scoring" / "more.py").write_text("")
    before, after = code_version(), code_version(target)
    assert {room for room in before if before[room] != after[room]} == {"scoring"}


def test_changes_name_settings_and_code(path):
    old, new = key(path), key(path, "--eta", "2", "--lora_r", "4")
    other = replace(new, code={**new.code, "training": "0"})
    assert changes(old.record(), other) == ["eta: 1.0 -> 2.0", "lora_r: 16 -> 4", "code: training"]
    assert code_changes(old.record(), new) == []


def test_a_setting_that_an_older_version_lacked_is_no_change_at_its_default(path):
    old = key(path).record()
    config = {name: value for name, value in old["config"].items() if name != "lora_r"}
    assert changes({**old, "config": config}, key(path)) == []
    assert changes({**old, "config": config}, key(path, "--lora_r", "4")) == ["lora_r: 16 -> 4"]


@pytest.mark.parametrize(
    ("flags", "same"),
    [
        (["--method", "sft"], True),
        (["--seed", "3"], True),
        (["--lora_r", "4"], True),
        (["--max_steps", "9"], True),
        (["--scoring", "letter"], False),
        (["--system_prompt", "Hm."], False),
        (["--test_limit", "5"], False),
        (["--dtype", "bfloat16"], False),
        (["--train_sources", "facts"], False),
    ],
)
def test_the_base_is_shared_by_what_only_trains_otherwise(path, flags, same):
    one, other = (base_digest(load_config(path, more), {"torch": "1"}) for more in ([], flags))
    assert (one == other) is same
    assert base_digest(load_config(path), {"torch": "2"}) != one
