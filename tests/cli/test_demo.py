"""The demo's packaged configuration and the recipes."""

from importlib.resources import files
from pathlib import Path

import pytest

from calmtune.cli import demo
from calmtune.cli.folder import RunFolder
from calmtune.cli.main import main
from calmtune.config import ConfigError, load_config

RECIPES = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


def test_the_demos_configuration_is_valid_and_small():
    config = load_config(Path(str(files("calmtune") / "configs" / "demo.yaml")))
    assert config.model.model_name_or_path == "smollm2-135m-instruct"
    assert 0 < config.training["max_steps"] <= 500
    assert config.data.test_ood
    assert all(source.startswith("facts:") for source in (*config.data.train_sources, *config.data.test_ood))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_have_no_fault_but_files_that_the_user_brings(path):
    faults = []
    try:
        load_config(path)
    except ConfigError as error:
        faults = [fault for fault in error.faults if "there is no file questions.jsonl" not in fault]
    assert faults == []


def test_there_are_recipes():
    assert RECIPES


def test_the_demo_trains_evaluates_and_reports_in_this_order(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr("calmtune.cli.train.run_training", lambda config: calls.append(("train", config)))
    monkeypatch.setattr("calmtune.cli.evaluate.run_evaluation", lambda path: calls.append(("evaluate", path)))
    monkeypatch.setattr("calmtune.cli.report.run_report", lambda paths: calls.append(("report", paths)) or "folder")
    assert demo.run_demo(str(tmp_path), ["--eta", "3", "--max_steps", "2"]) == "folder"
    assert [name for name, _ in calls] == ["train", "evaluate", "report"]
    config = calls[0][1]
    assert config.training["eta"] == 3
    assert config.training["resume_from_checkpoint"] == "auto"
    assert config.output_dir == calls[1][1] == tmp_path


@pytest.mark.parametrize("flag", ["--resume_from_checkpoint=false", "--resume-from-checkpoint=false"])
def test_the_demos_own_settings_can_be_overridden(monkeypatch, tmp_path, flag):
    seen = []
    monkeypatch.setattr("calmtune.cli.train.run_training", seen.append)
    monkeypatch.setattr("calmtune.cli.evaluate.run_evaluation", lambda path: None)
    monkeypatch.setattr("calmtune.cli.report.run_report", lambda paths: RunFolder(paths[0]))
    for words in (["--output_dir", str(tmp_path)], ["--output-dir", str(tmp_path)]):
        assert main(["demo", *words, flag, "--traceback"]) == 0
        assert (str(seen[-1].output_dir), seen[-1].training["resume_from_checkpoint"]) == (str(tmp_path), "false")
