"""A real OpenAI-compatible server, started here: ``transformers serve`` with a tiny model of known probabilities."""

import math
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
import torch
from scipy.stats import chisquare
from transformers.utils.import_utils import is_serve_available

import tiny
from calmtune.data.prompts import PromptStyle, Renderer
from calmtune.data.rows import OpenQuestion
from calmtune.endpoint import Endpoint
from calmtune.scoring.endpoint_sampling import sample_endpoint
from calmtune.scoring.sampling import sample_answers
from calmtune.scoring.sampling_settings import SamplingSettings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_serve_available(), reason="needs: pip install 'transformers[serving]'"),
]
pytest.importorskip("httpx", reason="the extra `judge` is not installed")

ROWS = [OpenQuestion(f"q{i}", "what " + "is the sky " * (i % 4 + 1), ("blue",), "toy") for i in range(20)]


def save(model, tokenizer, folder):
    model.generation_config.update(
        do_sample=True, temperature=0.1, top_k=1, eos_token_id=tokenizer.eos_token_id, pad_token_id=0
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Two models on one server: its address, and a folder for each."""
    root = tmp_path_factory.mktemp("models")
    # transformers looks for stop texts with the help of the word "abcdef"
    tokenizer = tiny.word_tokenizer((*tiny.WORDS, "abcdef"), adds_bos=True, chat_template=tiny.CHAT_WITH_BOS)
    llama = tiny.tiny_llama(vocab=len(tokenizer))
    constant = tiny.tiny_llama(vocab=len(tokenizer), layers=1)
    logits = torch.full((len(tokenizer),), -40.0)
    for word, value in ((" blue", 0.4), (" red", 0.3), ("</s>", 0.2), ("\n", 0.1)):
        logits[tokenizer.convert_tokens_to_ids(word)] = math.log(value)
    with torch.no_grad():
        # the same state whatever is read: one number in the first place, and a head that reads that place alone
        for layer in constant.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        constant.model.embed_tokens.weight.zero_()
        constant.model.embed_tokens.weight[:, 0] = 1.0
        constant.lm_head.weight.zero_()
        constant.lm_head.weight[:, 0] = logits / math.sqrt(32)  # a norm of 1 over 32 numbers makes the one sqrt(32)
    folders = {
        "llama": save(llama, tokenizer, root / "llama"),
        "constant": save(constant, tokenizer, root / "constant"),
    }
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", *where]
    log = (root / "server.log").open("wb")
    with subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "NO_PROXY": "127.0.0.1"}) as process:
        try:
            wait_for(f"http://127.0.0.1:{port}/health", process, root / "server.log")
            yield f"http://127.0.0.1:{port}/v1", folders, tokenizer, {"llama": llama, "constant": constant}
        finally:
            process.terminate()


def wait_for(url, process, log):
    for _ in range(600):
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    pytest.fail(f"transformers serve did not start: {log.read_text(errors='replace')[-2000:]}")


@pytest.mark.parametrize("template", ["chat", "plain"])
def test_the_most_probable_answer_is_the_one_of_the_same_model_here(server, template):
    base_url, folders, tokenizer, models = server
    style = PromptStyle("text", template, open_prompt="short")
    settings = SamplingSettings(n=1, top_k=1, max_new_tokens=12)
    here = sample_answers(models["llama"], ROWS, Renderer(tokenizer, style), settings=settings)
    endpoint = Endpoint(base_url, str(folders["llama"]), timeout=120.0)
    there = sample_endpoint(endpoint, ROWS, server="transformers", style=style, settings=settings)
    assert [item.texts for item in here] == [item.texts for item in there]
    assert len({item.texts for item in here}) > 1
    assert [s.tokens for item in here for s in item.samples] == [s.tokens for item in there for s in item.samples]


def test_answers_come_as_often_as_their_probability_says_and_a_second_run_goes_on(server, tmp_path):
    base_url, folders, _, _ = server
    endpoint = Endpoint(base_url, str(folders["constant"]), timeout=120.0)
    settings, path = SamplingSettings(n=10, max_new_tokens=6), tmp_path / "said.jsonl"
    found = sample_endpoint(endpoint, ROWS, server="transformers", settings=settings, concurrency=1, path=path)
    words = [text.split() for item in found for text in item.texts]
    assert {word for one in words for word in one} == {"blue", "red"}
    # an answer goes on with .7 at every token
    counts = [sum(len(one) == k for one in words) for k in range(3)]
    expected = [200 * 0.3 * 0.7**k for k in range(3)]
    assert chisquare([*counts, 200 - sum(counts)], [*expected, 200 - sum(expected)]).pvalue > 1e-3
    assert not found.has_log_probabilities  # this server gives none
    assert {s.finish for item in found for s in item.samples} == {"stop", "length"}
    assert len({item.texts for item in found}) == 20
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    again = sample_endpoint(endpoint, ROWS, server="transformers", settings=settings, concurrency=1, path=path)
    assert path.read_bytes() == content
    assert again == found
