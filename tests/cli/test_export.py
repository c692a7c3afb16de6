"""`calmtune export decision`: transformers' own pipeline and server give the run's probabilities."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

import export_run
from calmtune.cli.main import main
from calmtune.export.decision import probabilities_of, request_of
from calmtune.predictions import load_predictions

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

TS = {"distribution": "adjusted", "scaling": "TS", "temperature": 1.6}


def export(run, *words):
    return main(["export", "decision", str(run.path), *words])


def expected(run, temperature):
    """What was stored when the run was evaluated, with the temperature of its decision."""
    stored = load_predictions(run.predictions("tuned", "calibration"))
    return [torch.softmax(torch.tensor(item.adjusted) / temperature, 0).tolist() for item in stored]


@pytest.mark.parametrize("chat", [False, True])
def test_the_pipeline_gives_the_runs_probabilities_on_a_hundred_items(tmp_path, capsys, chat):
    run = export_run.write_run(
        tmp_path, alpha=export_run.random_alpha(4, "scalar"), level="options", decision=TS, chat=chat, count=100
    )
    assert export(run, "--traceback") == 0
    assert "(n = 100)" in capsys.readouterr().out
    folder = run.path / "decision"
    decide = pipeline("decision", model=str(folder), device="cpu")
    for row, ours in zip(export_run.rows(100), expected(run, 1.6), strict=True):
        answer = decide(request_of(row))
        assert probabilities_of(answer, row) == pytest.approx(ours, abs=1e-4)
        # the confidence is a number of another kind: 0 at a guess, 1 at certainty
        n = len(ours)
        assert answer["answer"]["confidence"] == pytest.approx((max(ours) - 1 / n) / (1 - 1 / n), abs=2e-4)
    record = json.loads((folder / "decision_check.json").read_text())
    assert record["n"] == 100
    assert record["largest_probability_difference"] < 1e-5
    assert json.loads((folder / "decision.json").read_text())["adapter"] == "adapter"


def test_the_adapter_alone_beside_a_base_from_elsewhere(tmp_path):
    run = export_run.write_run(tmp_path, alpha=export_run.random_alpha(4, "scalar"), level="options", decision=TS)
    assert export(run, "--weights", "none", "--traceback") == 0
    folder = run.path / "decision"
    assert not list(folder.glob("*.safetensors"))
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    decide = pipeline("decision", model=base, tokenizer=AutoTokenizer.from_pretrained(folder),
                      decision_config=str(folder), device="cpu")  # fmt: skip
    for row, ours in zip(export_run.rows(12), expected(run, 1.6), strict=True):
        assert probabilities_of(decide(request_of(row)), row) == pytest.approx(ours, abs=1e-4)


def test_an_alpha_with_a_class_a_token_is_merged_into_the_head(tmp_path, capsys):
    size = export_run.vocabulary()
    run = export_run.write_run(
        tmp_path, model=export_run.tiny_phi(size), alpha=export_run.random_alpha(size), decision=TS
    )
    assert export(run) == 2
    assert "--weights merged" in capsys.readouterr().err
    assert export(run, "--weights", "merged", "--traceback") == 0
    decide = pipeline("decision", model=str(run.path / "decision"), device="cpu")
    for row, ours in zip(export_run.rows(12), expected(run, 1.6), strict=True):
        assert probabilities_of(decide(request_of(row)), row) == pytest.approx(ours, abs=1e-4)


def test_a_head_without_a_bias_is_refused_before_the_weights(tmp_path, capsys, monkeypatch):
    run = export_run.write_run(tmp_path, alpha=export_run.random_alpha(export_run.vocabulary()), decision=TS)
    monkeypatch.setattr("calmtune.modeling.loading.AutoModelForCausalLM.from_pretrained",
                        lambda *a, **k: pytest.fail("weights loaded"))  # fmt: skip
    assert export(run, "--weights", "merged") == 2
    assert "would be a bias of the output head" in capsys.readouterr().err


def test_a_run_that_scores_texts_is_refused(tmp_path, capsys):
    run = export_run.write_run(tmp_path, scoring="text")
    assert export(run) == 2
    assert "train with scoring: letter" in capsys.readouterr().err


def test_a_pipeline_that_is_off_does_not_get_its_name(tmp_path, capsys, monkeypatch):
    run = export_run.write_run(tmp_path, alpha=export_run.random_alpha(4, "scalar"), level="options", decision=TS)
    monkeypatch.setattr("calmtune.export.decision.total_temperature", lambda use, alpha: use.temperature)
    assert export(run) == 2
    assert "the pipeline's probabilities differ from the run's by" in capsys.readouterr().err
    assert not (run.path / "decision").exists()


def ask(url, body, seconds=120):
    """A POST that waits until the server is up."""
    deadline = time.monotonic() + seconds
    while True:
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn", "openai")),
    reason="transformers serve needs fastapi, uvicorn and openai (transformers[serving])",
)
@pytest.mark.parametrize("weights", ["adapter", "merged"])
def test_a_served_process_gives_the_runs_probabilities(tmp_path, weights):
    run = export_run.write_run(
        tmp_path, alpha=export_run.random_alpha(4, "scalar"), level="options", decision=TS, chat=True, count=100
    )
    assert export(run, "--weights", weights, "--traceback") == 0
    folder = run.path / "decision"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = "import sys; from transformers.cli.transformers import main; sys.exit(main())"
    words = ["serve", str(folder), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen([sys.executable, "-c", program, *words], env=environment, stdout=log, stderr=log) as server,
    ):
        try:
            for row, ours in zip(export_run.rows(100), expected(run, 1.6), strict=True):
                body = {"model": str(folder), **request_of(row)}
                answers = ask(f"http://127.0.0.1:{port}/v1/systemone", body)["answers"]
                assert probabilities_of(answers, row) == pytest.approx(ours, abs=1e-4)
        finally:
            server.terminate()
            server.wait(30)
