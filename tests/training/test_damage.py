"""A checkpoint damaged after it was marked whole is never resumed; the file and the newest whole one are named."""

import json
import shutil
from pathlib import Path

import pytest

from calmtune.training.checkpoint import STATE_FIELDS, STATE_FILE, damage, read_state
from toy_training import trainer

SETTINGS = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1, "save_total_limit": 3}
DAMAGES = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "emptied": lambda path: path.write_bytes(b""),
    "one byte changed": lambda path: path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])),
    "gone": lambda path: path.unlink(),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    trainer(folder, **SETTINGS).train()
    return folder


@pytest.fixture
def run(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "run"))


def test_what_was_written_is_whole(run):
    found = sorted(path for path in run.glob("checkpoint-*"))
    assert [path.name for path in found] == ["checkpoint-2", "checkpoint-3", "checkpoint-4"]
    assert [damage(path) for path in found] == [None, None, None]
    files = json.loads((found[0] / STATE_FILE).read_text())["files"]
    assert {"optimizer.pt", "adapter_model.safetensors", "adjustment.safetensors", "trainer_state.json"} <= set(files)
    assert set(files) | {STATE_FILE} == {path.name for path in found[0].iterdir()}


@pytest.mark.parametrize("how", DAMAGES)
def test_every_file_counts(run, how):
    checkpoint = run / "checkpoint-4"
    for path in sorted(checkpoint.iterdir()):
        before = path.read_bytes()
        DAMAGES[how](path)
        # the last byte of the state is a newline, and any white space is the same JSON
        if not (path.name == STATE_FILE and how == "one byte changed"):
            with pytest.raises(ValueError) as caught:
                read_state(checkpoint)
            assert f"{checkpoint} is not a whole checkpoint: " in str(caught.value)
            assert path.name in str(caught.value)
            assert str(caught.value).endswith(f"the newest whole one is {run / 'checkpoint-3'}")
        path.write_bytes(before)
    assert damage(checkpoint) is None


def test_the_advice_names_one_that_is_whole_itself(run):
    for name in ("checkpoint-4", "checkpoint-3"):
        DAMAGES["cut"](run / name / "optimizer.pt")
    with pytest.raises(ValueError, match=r"optimizer.pt has \d+ bytes.*the newest whole one is .*checkpoint-2"):
        read_state(run / "checkpoint-4")
    DAMAGES["cut"](run / "checkpoint-2" / "optimizer.pt")
    with pytest.raises(ValueError, match="there is no other whole one; begin again"):
        read_state(run / "checkpoint-4")


@pytest.mark.parametrize("name", STATE_FIELDS)
def test_every_field_of_the_state_counts(run, name):
    path = run / "checkpoint-4" / STATE_FILE
    state = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in state.items() if key != name}))
    with pytest.raises(ValueError, match=f"{STATE_FILE}: the field {name} is missing"):
        read_state(run / "checkpoint-4")
    path.write_text(json.dumps({**state, name: "x"}))
    with pytest.raises(ValueError, match=f"{STATE_FILE}: the field {name} is 'x'"):
        read_state(run / "checkpoint-4")


def test_the_trainer_does_not_go_on_from_it(run):
    DAMAGES["cut"](run / "checkpoint-4" / "optimizer.pt")
    with pytest.raises(ValueError, match="optimizer.pt has .*the newest whole one is .*checkpoint-3"):
        trainer(run, **SETTINGS).train(resume_from_checkpoint=True)
    trainer(run, **SETTINGS).train(resume_from_checkpoint=str(run / "checkpoint-3"))
    assert damage(run / "checkpoint-4") is None


def test_a_large_file_is_known_by_its_size(run, monkeypatch):
    monkeypatch.setattr("calmtune.training.checkpoint.HASHED", 10)
    made = trainer(run / "other", **SETTINGS)
    made.train()
    checkpoint = run / "other" / "checkpoint-4"
    files = json.loads((checkpoint / STATE_FILE).read_text())["files"]
    assert files["optimizer.pt"] == {"size": (checkpoint / "optimizer.pt").stat().st_size}
    DAMAGES["cut"](checkpoint / "optimizer.pt")
    assert damage(checkpoint).startswith("optimizer.pt has")
