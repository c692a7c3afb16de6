"""Commands in several processes: no row scored twice or left out, files of one process, and nothing lost."""

import json
import shutil

import pytest

import distributed_scenarios as scenarios
from calmtune.cli.main import main
from calmtune.predictions import load_predictions
from cli_run import write_config
from distributed_run import launch

ROWS = [str(number) for number in range(23)]


def test_every_row_is_in_one_share_and_the_file_is_that_of_one_process(tmp_path):
    shared, alone = tmp_path / "shared.jsonl", tmp_path / "alone.jsonl"
    made = launch(scenarios.share_predictions, str(shared), ROWS, count=3)
    launch(scenarios.share_predictions, str(alone), ROWS, count=1)
    assert sorted((one for part in made for one in part), key=int) == ROWS  # each exactly once
    assert max(map(len, made)) - min(map(len, made)) <= 2  # beside the first batch, equal shares
    assert shared.read_bytes() == alone.read_bytes()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["alone.jsonl", "shared.jsonl"]


def test_what_an_interrupted_command_made_is_kept_by_another_number_of_processes(tmp_path):
    path = tmp_path / "said.jsonl"
    first, last = launch(scenarios.share_predictions, str(path), ROWS, 2)
    assert last["message"] == "stopped"
    assert "error" in first  # it can't wait for ever
    kept = sum(len(file.read_bytes().split(b"\n")) - 2 for file in tmp_path.glob("said*"))
    assert kept >= 4
    made = launch(scenarios.share_predictions, str(path), ROWS, count=3)
    assert sum(map(len, made)) == len(ROWS) - kept
    assert load_predictions(path).ids == tuple(ROWS)
    assert list(tmp_path.iterdir()) == [path]


def test_a_part_of_other_settings_is_refused(tmp_path):
    path, part = tmp_path / "said.jsonl", tmp_path / "said.part1of2.jsonl"
    launch(scenarios.share_predictions, str(part), ROWS[:3], count=1)
    record = part.read_text().replace('"n": 3', '"n": 3, "model": "other"')
    part.write_text(record)
    first, second = launch(scenarios.share_predictions, str(path), ROWS)
    assert first["error"] == "ValueError"
    assert "error" in second
    assert f"{part} was made with other settings than {path} (model); delete it" in first["message"]


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """A run that two processes trained and evaluated, and the same run evaluated by one."""
    folder = tmp_path_factory.mktemp("commands")
    config = write_config(folder, per_device_train_batch_size=2, eta="auto", eta_items=8, method="calm")
    status = [launch(scenarios.command, words) for words in (["train", str(config)], ["evaluate", str(folder / "run")])]
    shutil.copytree(folder / "run", folder / "again")
    shutil.rmtree(folder / "again" / "predictions")
    assert main(["evaluate", str(folder / "again")]) == 0
    return folder, status


def test_two_processes_train_and_evaluate_one_run(commands):
    folder, status = commands
    assert status == [[0, 0], [0, 0]]
    files = {path.relative_to(folder / "run").as_posix() for path in (folder / "run").rglob("*") if path.is_file()}
    again = {path.relative_to(folder / "again").as_posix() for path in (folder / "again").rglob("*") if path.is_file()}
    assert files == again  # no part left over
    log = [json.loads(line) for line in (folder / "run" / "training_log.jsonl").read_text().splitlines()]
    assert [record["step"] for record in log if "loss" in record] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["base.calibration", "base.test", "tuned.calibration", "tuned.test"])
def test_the_predictions_are_those_of_one_process(commands, name):
    folder, _ = commands
    shared, alone = (load_predictions(folder / run / "predictions" / f"{name}.jsonl") for run in ("run", "again"))
    assert shared.meta == alone.meta
    assert shared.ids == alone.ids
    for ours, theirs in zip(shared, alone, strict=True):
        assert ours.scores == pytest.approx(theirs.scores, abs=1e-4)
        assert (ours.adjusted is None) == (theirs.adjusted is None)


def test_one_process_scores_nothing_anew_afterwards(commands, monkeypatch):
    folder, _ = commands
    before = (folder / "run" / "predictions" / "tuned.test.jsonl").read_bytes()
    monkeypatch.setattr("calmtune.scoring.options.append_predictions", lambda *_: pytest.fail("scored again"))
    assert main(["evaluate", str(folder / "run")]) == 0
    assert (folder / "run" / "predictions" / "tuned.test.jsonl").read_bytes() == before
