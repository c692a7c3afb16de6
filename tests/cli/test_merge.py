"""`calmtune merge`: what is written loads by itself and says what the run said, or is not there."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import export_run
import tiny
from calmtune.cli.main import main
from calmtune.data.prompts import PromptStyle, Renderer
from calmtune.predictions import load_predictions

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

ADJUSTED_TS = {"distribution": "adjusted", "scaling": "TS", "temperature": 1.8}


def merge(run, *words):
    return main(["merge", str(run.path), *words])


@torch.no_grad()
def plain_probabilities(folder, scoring="letter"):
    """Softmax over the letters of what the folder's model says, with nothing of this package but the prompts."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    renderer = Renderer(AutoTokenizer.from_pretrained(folder), PromptStyle(scoring))
    found = []
    for row in export_run.rows(12):
        item = renderer.multiple_choice(row)
        z = model(torch.tensor([item.prompt_ids])).logits[0, -1]
        found.append(torch.softmax(z[[ids[0] for ids in item.option_ids]], 0).tolist())
    return found


@pytest.mark.parametrize("tied", [False, True])
def test_a_plain_softmax_of_the_merged_model_is_the_run_as_it_is_used(tmp_path, capsys, tied):
    size = export_run.vocabulary()
    run = export_run.write_run(
        tmp_path, model=tiny.tiny_llama(size, tie_word_embeddings=tied),
        alpha=export_run.random_alpha(size, shift=False), decision=ADJUSTED_TS,
    )  # fmt: skip
    assert merge(run, "--traceback") == 0
    folder = run.path / "merged"
    stored = load_predictions(run.predictions("tuned", "calibration"))
    for said, ours in zip(stored, plain_probabilities(folder), strict=True):
        expected = torch.softmax(torch.tensor(said.adjusted) / 1.8, 0).tolist()
        assert ours == pytest.approx(expected, abs=1e-5)
    out = capsys.readouterr().out
    assert "largest logit difference" in out
    assert "conf-ECE" in out
    record = json.loads((folder / "check.json").read_text())
    assert record["n"] == 12
    assert record["largest_logit_difference"]["value"] < 1e-4
    assert record["faults"] == []
    assert json.loads((folder / "calmtune_merge.json").read_text())["use"]["temperature"] == 1.8
    assert not (folder / "adapter_config.json").exists()


def test_a_shift_goes_into_a_bias_where_the_head_has_one(tmp_path):
    size = export_run.vocabulary()
    run = export_run.write_run(
        tmp_path, model=export_run.tiny_phi(size), alpha=export_run.random_alpha(size), decision=ADJUSTED_TS
    )
    assert merge(run, "--traceback") == 0
    stored = load_predictions(run.predictions("tuned", "calibration"))
    for said, ours in zip(stored, plain_probabilities(run.path / "merged"), strict=True):
        assert ours == pytest.approx(torch.softmax(torch.tensor(said.adjusted) / 1.8, 0).tolist(), abs=1e-5)


def test_a_shift_without_a_bias_is_refused_before_the_weights_and_can_go_to_generate(tmp_path, capsys, monkeypatch):
    size = export_run.vocabulary()
    run = export_run.write_run(tmp_path, alpha=export_run.random_alpha(size), decision=ADJUSTED_TS)
    with monkeypatch.context() as patched:
        patched.setattr("calmtune.modeling.loading.AutoModelForCausalLM.from_pretrained",
                        lambda *a, **k: pytest.fail("weights loaded"))  # fmt: skip
        assert merge(run) == 2
    assert "--shift generation" in capsys.readouterr().err
    assert not (run.path / "merged").exists()
    assert merge(run, "--shift", "generation", "--traceback") == 0
    assert json.loads((run.path / "merged" / "check.json").read_text())["largest_logit_difference"]["value"] < 1e-4
    assert json.loads((run.path / "merged" / "generation_config.json").read_text())["sequence_bias"]


def test_an_alpha_of_option_places_is_folded_into_the_letters(tmp_path, capsys):
    run = export_run.write_run(
        tmp_path, alpha=export_run.random_alpha(4, shift=False), level="options", decision=ADJUSTED_TS
    )
    assert merge(run, "--traceback") == 0
    assert "these tokens also change where the merged model writes text" in capsys.readouterr().err
    stored = load_predictions(run.predictions("tuned", "calibration"))
    for said, ours in zip(stored, plain_probabilities(run.path / "merged"), strict=True):
        assert ours == pytest.approx(torch.softmax(torch.tensor(said.adjusted) / 1.8, 0).tolist(), abs=1e-5)


def test_texts_under_a_vocabulary_alpha_are_merged(tmp_path):
    size = export_run.vocabulary()
    run = export_run.write_run(
        tmp_path, alpha=export_run.random_alpha(size, shift=False), scoring="text",
        decision={"distribution": "adjusted", "scaling": "none", "temperature": 1.0},
    )  # fmt: skip
    assert merge(run, "--traceback") == 0


@pytest.mark.parametrize(("decision", "message"), [
    ({"distribution": "raw", "scaling": "TS", "temperature": 2.0}, "divides the scores of whole texts by 2"),
    ({"distribution": "adjusted", "scaling": "none", "temperature": 1.0}, "level: options"),
    ({"distribution": "raw", "scaling": "VS", "temperature": 1.0, "scale": [1, 2, 1, 1], "shift": [0, 0, 0, 0]},
     "a factor for each option's place"),
])  # fmt: skip
def test_what_a_head_cannot_hold_is_refused(tmp_path, capsys, decision, message):
    run = export_run.write_run(
        tmp_path, alpha=export_run.random_alpha(4), level="options", scoring="text", decision=decision
    )
    assert merge(run) == 2
    assert message in capsys.readouterr().err
    assert merge(run, "--use", "raw", "--traceback") == 0


def test_a_model_that_is_off_does_not_get_its_name(tmp_path, capsys, monkeypatch):
    run = export_run.write_run(tmp_path)
    real = AutoModelForCausalLM.from_pretrained

    def damaged(*args, **kwargs):
        model = real(*args, **kwargs)
        if str(args[0]).endswith(".partial"):
            model.lm_head.weight.data[5:] *= 1.1
        return model

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", damaged)
    assert merge(run) == 2
    err = capsys.readouterr().err
    assert "the largest logit difference is" in err
    assert not (run.path / "merged").exists()
    assert json.loads((run.path / "merged.partial" / "check.json").read_text())["faults"]
    # limits that are wide enough accept it; what the failed try left is replaced
    assert merge(run, "--tolerance", "9", "--ece_tolerance", "1", "--accuracy_tolerance", "1") == 0


def test_given_questions_and_a_limit(tmp_path):
    run = export_run.write_run(tmp_path)
    path = tmp_path / "own.jsonl"
    questions = [{"question": f"what is the sea {n}?", "choices": ["blue", "red"], "label": 0} for n in range(9)]
    path.write_text("".join(json.dumps(row) + "\n" for row in questions))
    assert merge(run, "--questions", str(path), "--limit", "5", "--traceback") == 0
    assert json.loads((run.path / "merged" / "check.json").read_text())["n"] == 5


@pytest.mark.parametrize(("words", "message"), [
    (["--use", "cold"], "--use: expected one of raw"),
    (["--use", "adjusted"], "this run has no adjustment"),
    (["--limit", "0"], "--limit: expected at least 1"),
    (["--output_dir", "FULL"], "is not empty"),
])  # fmt: skip
def test_refusals(tmp_path, capsys, words, message):
    run = export_run.write_run(tmp_path)
    (tmp_path / "FULL").mkdir()
    (tmp_path / "FULL" / "file").write_text("")
    assert merge(run, *[word.replace("FULL", str(tmp_path / "FULL")) for word in words]) == 2
    assert message in capsys.readouterr().err


def test_a_run_that_was_not_evaluated(tmp_path, capsys):
    run = export_run.write_run(tmp_path)
    run.predictions("tuned", "calibration").unlink()
    assert merge(run) == 2
    assert "was not evaluated yet; run: calmtune evaluate" in capsys.readouterr().err
    assert merge(type(run)(tmp_path / "nothing")) == 2
