"""Publishing: which files, under which names, and that neither a row of data nor a path of this machine is among them.

The Hub is a stand-in on this machine (tests/hub_stub.py); the client is the real one, in a process of its own.
"""

import json
import os
import subprocess
import sys

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from safetensors.torch import save_file

import hub_stub
from calmtune.cli.folder import RunFolder
from calmtune.cli.main import main
from calmtune.cli.push import push_run, refuse_early
from calmtune.cli.push_files import files_to_publish
from calmtune.predictions import save_predictions
from calmtune.report.markdown import escape
from report.cases import predictions

SECRET = "what is the secret question of the tests"


@pytest.fixture
def run(tmp_path):
    """The folder of an evaluated run: small files of the right form, no model."""
    return make_run(tmp_path / "mine", "org/base")


@pytest.fixture
def hub():
    with hub_stub.serve() as stub:
        yield stub


def make_run(path, base):
    folder = RunFolder(path)
    (path / "checkpoint-4").mkdir(parents=True)
    source = str(path.parent / "questions.jsonl")
    settings = {
        "model_name_or_path": base, "use_peft": True, "n_bins": 10, "n_resamples": 10, "method": "calm",
        "scoring": "text", "output_dir": str(path), "train_sources": [source, "hub:arc_easy/train"],
    }  # fmt: skip
    folder.config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    part = {"count": 4, "domains": {"near": 4}, "fingerprint": "x", "rows": {SECRET: "y"}}
    names = ("train", "upper", "calibration", "test_id", "test_ood")
    folder.write_json(folder.splits, {"shifts": {"near": "ID"}, "dropped": {}, "splits": dict.fromkeys(names, part)})
    record = {"base": {"name": base, "revision": None, "fingerprint": "f"}, "method": "calm", "decision": None}
    folder.write_json(folder.calibration, record)
    folder.write_json(path / "adapter_config.json", {"base_model_name_or_path": base, "r": 4})
    folder.write_json(path / "tokenizer.json", {"model": {"merges": ["/usr/lib/merges a"]}})
    save_file({"w": torch.ones(2)}, path / "adapter_model.safetensors")
    save_file({"l": torch.zeros(2)}, path / "adjustment.safetensors")
    folder.training_log.write_text(json.dumps({"step": 1, "loss": 1.0, "note": SECRET}) + "\n", encoding="utf-8")
    for name in ("report.html", "report.md", "metrics.json", "checkpoint-4/optimizer.pt"):
        (path / name).write_text(SECRET, encoding="utf-8")
    folder.write_json(folder.items, {"near-0": [SECRET, ["a", "b"]]})
    for variant, scale in (("base", 4.0), ("tuned", 2.0)):
        adjusted = 0.5 if variant == "tuned" else None
        for split, domain in (("calibration", "calibration"), ("test", "near")):
            found = predictions(domain, 12, scale=scale, adjusted=adjusted)
            save_predictions(folder.predictions(variant, split), found)
    return folder


def here(hub, monkeypatch, token=hub_stub.TOKEN):
    """This process sees the stand-in and no other hub."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/there/is/no/token")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    if token:
        monkeypatch.setenv("HF_TOKEN", token)


def test_the_model_its_calibration_and_its_card_are_published_in_one_commit(run, hub):
    environment = {
        **os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": hub_stub.TOKEN, "HF_HOME": str(run.path / "home"),
    }  # fmt: skip
    command = [sys.executable, "-m", "calmtune", "push", str(run.path), "--hub_model_id", "me/mine"]
    done = subprocess.run(
        [*command, "--commit_message", "first"],
        env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"published: {hub.url}/me/mine" in done.stdout
    assert set(hub.files["me/mine"]) == {
        "README.md", "reliability.png", "calibration.json", "adjustment.safetensors", "adapter_config.json",
        "adapter_model.safetensors", "tokenizer.json",
    }  # fmt: skip
    for name, content in hub.files["me/mine"].items():
        assert content == (run.path / name).read_bytes(), name
        assert SECRET.encode() not in content, name
        assert str(run.path.parent).encode() not in content, name
    assert (hub.private, hub.commits) == ({"me/mine": False}, ["first"])
    card = ModelCard(hub.files["me/mine"]["README.md"].decode())
    assert (card.data.base_model, card.data.library_name, card.data.datasets) == (
        "org/base",
        "peft",
        ["allenai/ai2_arc"],
    )
    assert {one.metric_type for one in card.data.eval_results} == {"ece", "accuracy"}
    assert "snapshot_download('me/mine')" in card.text
    assert "questions.jsonl, hub:arc" in card.text


def test_a_name_without_an_owner_is_the_token_s_own(run, hub, monkeypatch):
    here(hub, monkeypatch)
    assert main(["push", str(run.path), "--hub_private_repo"]) == 0
    assert hub.private == {"me/mine": True}


def test_a_public_repository_is_not_taken_for_a_private_one(run, hub, monkeypatch, capsys):
    here(hub, monkeypatch)
    hub.private["me/mine"], hub.files["me/mine"] = False, {}
    assert main(["push", str(run.path), "--hub_model_id", "me/mine", "--hub_private_repo"]) == 2
    assert "me/mine is there already and public" in capsys.readouterr().err
    assert hub.files["me/mine"] == {}


@pytest.mark.parametrize(
    ("token", "message"),
    [("", "no access token for the Hub; run `hf auth login`"), ("hf_other", "me/mine: the Hub refused (")],
)
def test_without_a_token_that_may_write_nothing_is_sent(run, hub, token, message, monkeypatch, capsys):
    here(hub, monkeypatch, token)
    assert main(["push", str(run.path), "--hub_model_id", "me/mine"]) == 2
    assert message in capsys.readouterr().err
    assert hub.files == {}
    assert token or hub.requests == []


def test_a_dry_run_lists_files_and_sizes_and_asks_nobody(run, capsys):
    # the test suite's environment forbids the network and has no token
    assert main(["push", str(run.path), "--hub_model_id", "me/mine", "--dry_run"]) == 0
    said = capsys.readouterr().out
    size = (run.path / "adapter_model.safetensors").stat().st_size
    assert f"{size:,}  adapter_model.safetensors" in said
    assert "nothing was uploaded; me/mine would hold these 7 files" in said
    assert "report" not in said


def test_a_local_base_needs_its_name_on_the_hub(tmp_path, capsys):
    base = tmp_path / "base model"
    run = make_run(tmp_path / "mine", str(base))
    words = ["push", str(run.path), "--hub_model_id", "me/mine", "--dry_run"]
    assert main(words) == 2
    assert "give --base_model NAME, its name on the Hub" in capsys.readouterr().err
    assert main([*words, "--base_model", "org/theirs"]) == 0
    uploads = {one.name: one.content or one.path.read_bytes() for one in files_to_publish(run, "org/theirs")}
    assert json.loads(uploads["adapter_config.json"])["base_model_name_or_path"] == "org/theirs"
    assert json.loads(uploads["calibration.json"])["base"]["name"] == "org/theirs"
    assert not any(str(tmp_path).encode() in content for content in uploads.values())
    # the run itself still loads its own base
    assert json.loads((run.path / "calibration.json").read_text())["base"]["name"] == str(base)


def test_a_file_that_names_a_path_of_this_machine_is_refused(run):
    run.write_json(run.path / "tokenizer_config.json", {"inner": {"tokenizer_file": "/srv/models/tokenizer.json"}})
    (run.path / "README.md").write_text(f"trained in {run.path.resolve()}", encoding="utf-8")
    with pytest.raises(ValueError, match="would be published") as caught:
        files_to_publish(run)
    (run.path / "chat_template.jinja").write_text(escape(f"see {run.path.resolve()}"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"chat_template\.jinja: it has"):
        files_to_publish(run)
    assert "tokenizer_config.json: inner.tokenizer_file is '/srv/models/tokenizer.json'" in str(caught.value)
    assert f"README.md: it has {str(run.path.resolve())!r} in it" in str(caught.value)


def test_what_could_not_be_published_is_refused_before_training(monkeypatch):
    from huggingface_hub import constants

    settings = {"hub_token": "hf_x", "hub_model_id": None, "output_dir": "runs/mine", "model_name_or_path": "org/base"}
    with pytest.raises(ValueError, match="while HF_HUB_OFFLINE is set"):
        refuse_early(settings)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    refuse_early(settings)
    with pytest.raises(ValueError, match="expected owner/name, got 'a/b/c'"):
        refuse_early({**settings, "hub_model_id": "a/b/c"})
    with pytest.raises(ValueError, match="leave push_to_hub out"):
        refuse_early({**settings, "model_name_or_path": "/models/mine"})


def test_an_unevaluated_run_is_published_with_a_card_that_says_so(run, hub, monkeypatch, capsys):
    here(hub, monkeypatch)
    for file in (run.path / "predictions").iterdir():
        file.unlink()
    (run.path / "reliability.png").unlink(missing_ok=True)
    assert main(["push", str(run.path), "--hub_model_id", "me/mine"]) == 0
    assert "the card will have no figures" in capsys.readouterr().err
    assert "This model was not evaluated" in hub.files["me/mine"]["README.md"].decode()


def test_push_to_hub_of_the_settings_is_the_same_upload(run, hub, monkeypatch):
    here(hub, monkeypatch, token="")
    settings = {"hub_token": hub_stub.TOKEN, "hub_model_id": None, "hub_private_repo": True}
    assert push_run(run, settings) == f"{hub.url}/me/mine"
    assert hub.private == {"me/mine": True}
    assert "splits.json" not in hub.files["me/mine"]
    assert "adapter_model.safetensors" in hub.files["me/mine"]
