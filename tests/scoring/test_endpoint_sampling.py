import hashlib
import json
import math
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from calmtune.data.prompts import PromptStyle
from calmtune.data.rows import OpenQuestion
from calmtune.endpoint import Endpoint, EndpointError
from calmtune.samples import Sample, load_samples
from calmtune.scoring.endpoint_reply import read_reply
from calmtune.scoring.endpoint_sampling import request_fields, sample_endpoint
from calmtune.scoring.sampling_settings import SamplingSettings

pytest.importorskip("httpx", reason="the extra `judge` is not installed")

ROWS = [OpenQuestion(f"q{i}", f"Question number {i}?", ("Paris",), "toy") for i in range(6)]
TWO = SamplingSettings(n=2)


def said(body, text=None, **choice):
    """A reply as a server gives it: an answer that the seed decides, with log-probabilities."""
    answer = text if text is not None else f"A{body['seed'] % 1000}\u2028"
    terms = [{"token": answer, "logprob": -1.25}, {"token": "", "logprob": -0.5}]
    message = {"message": {"role": "assistant", "content": answer}, "logprobs": {"content": terms}}
    if "prompt" in body:
        logprobs = {"tokens": [answer, ""], "token_logprobs": [-1.25, -0.5]}
        message = {"text": answer, "logprobs": logprobs}
    # the id is the same for all: some servers do that
    return {
        "id": "one",
        "choices": [{"index": 0, "finish_reason": "stop", **message, **choice}],
        "usage": {"completion_tokens": 2},
    }


@pytest.fixture
def serve(monkeypatch):
    """A function that starts a server answering by ``behave(body, tries) -> (status, reply)``; bytes go as they are."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    started = []

    def start(behave):
        tries, requests, lock = Counter(), [], threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    requests.append((self.path, body))
                    tries[body["seed"]] += 1
                    count = tries[body["seed"]]
                status, reply = behave(body, count)
                data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
                self.send_response(status)
                # a length that is too long, where the body is cut short
                self.send_header("Content-Length", str(len(data) + (99 if data.endswith(b"cut") else 0)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        started.append(server)
        return Endpoint(
            f"http://127.0.0.1:{server.server_port}/v1", "m", backoff=0.0, retries=2, timeout=20.0
        ), requests

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def answer_of(row, number):
    return f"A{TWO.sample_seed(row.id, number) % 2**31 % 1000}"


@pytest.mark.parametrize("template", ["auto", "plain"])
def test_every_sample_is_asked_for_once_with_its_own_seed(serve, template):
    endpoint, requests = serve(lambda body, tries: (200, said(body)))
    style = PromptStyle("text", template, "Be brief.", open_prompt="short")
    seen = []
    found = sample_endpoint(
        endpoint,
        ROWS,
        server="openai",
        settings=TWO,
        style=style,
        concurrency=1,
        progress=lambda *count: seen.append(count),
    )
    assert [item.texts for item in found] == [tuple(answer_of(row, k) for k in range(2)) for row in ROWS]
    assert found[0].samples[0] == Sample(answer_of(ROWS[0], 0), -1.75, 2, "stop", None, (-1.25, -0.5))
    assert seen == [(k, 6) for k in range(1, 7)]
    assert len(requests) == 12
    path, body = requests[0]
    asked = [one["content"] for one in body["messages"]] if template == "auto" else [body["prompt"]]
    assert path == ("/v1/chat/completions" if template == "auto" else "/v1/completions")
    assert asked[0].startswith("Be brief.")
    assert asked[-1].endswith("Question: Question number 0?\nAnswer:")
    assert "Answer the question with a name" in " ".join(asked)
    assert body["temperature"] == body["top_p"] == 1
    assert body["max_tokens"] == 32
    assert body["stop"] == ["\n"]
    assert found.meta["sampling"] == TWO.record()
    assert found.meta["request"] == {k: v for k, v in body.items() if k not in ("messages", "prompt", "seed")}


def test_faults_of_a_moment_are_tried_again(serve):
    faults = [
        (500, b"busy"),
        (200, b'{"choices": [{"message'),
        (200, b"[]"),
        (200, b'{"choices": [{"message": {"content": null}, "finish_reason": "stop"}]}'),
        (200, b'{"choices": [], "cut'),
        (429, b""),
    ]

    def behave(body, tries):
        return faults[body["seed"] % 6] if tries < 3 else (200, said(body))

    endpoint, requests = serve(behave)
    found = sample_endpoint(endpoint, ROWS, server="openai", settings=TWO)
    assert [item.texts for item in found] == [tuple(answer_of(row, k) for k in range(2)) for row in ROWS]
    assert len(requests) == 36
    assert len({TWO.sample_seed(row.id, k) % 2**31 % 6 for row in ROWS for k in range(2)}) > 3  # most faults came


@pytest.mark.parametrize(
    ("status", "reply", "message"),
    [
        (404, b"no such model", "item 'q0', sample 0: http.*HTTP 404: no such model; check"),
        (503, b"busy", "item 'q0', sample 0: .*HTTP 503: busy; tried 3 times"),
        (
            200,
            said({"seed": 1}, finish_reason="content_filter"),
            "finish_reason is 'content_filter'; expected 'stop' or",
        ),
        (200, said({"seed": 1}, logprobs={"content": [{"token": "a", "logprob": "x"}]}), "log-probability is 'x'"),
        (200, b'{"choices": [{"text": "a", "cut', "no connection .RemoteProtocolError"),
    ],
)
def test_a_failing_endpoint_is_told_with_the_item(serve, status, reply, message):
    endpoint, requests = serve(lambda body, tries: (status, reply))
    with pytest.raises(EndpointError, match=message):
        sample_endpoint(endpoint, ROWS, server="openai", settings=TWO, concurrency=1)
    assert len(requests) <= 3


def test_a_failed_run_goes_on_and_gives_the_same_file(serve, tmp_path):
    whole, path = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    broken, first = {TWO.sample_seed("q3", 1) % 2**31}, []

    def behave(body, tries):
        if body["seed"] in broken and first:
            return 400, b"no"
        return 200, said(body)

    endpoint, requests = serve(behave)
    expected = sample_endpoint(endpoint, ROWS, server="openai", settings=TWO, path=whole)
    first.append(True)
    requests.clear()
    with pytest.raises(EndpointError, match="item 'q3', sample 1"):
        sample_endpoint(endpoint, ROWS, server="openai", settings=TWO, path=path, concurrency=1)
    assert sorted(load_samples(path).ids) == ["q0", "q1", "q2"]
    assert len(requests) == 8
    path.write_bytes(path.read_bytes()[:-7])
    broken.clear()
    requests.clear()
    assert sample_endpoint(endpoint, ROWS, server="openai", settings=TWO, path=path) == expected
    assert len(requests) == 8
    assert path.read_bytes() == whole.read_bytes()
    with pytest.raises(ValueError, match=r"other settings \(.*request: file has.*server: file has 'openai'"):
        sample_endpoint(endpoint, ROWS, server="vllm", settings=TWO, path=path)


def test_an_interruption_stops_the_asking_and_keeps_what_came(serve, tmp_path):
    endpoint, requests = serve(lambda body, tries: (200, said(body)))

    def stop(done, total):
        raise KeyboardInterrupt

    many = [OpenQuestion(f"m{i}", "Who?", ("Ann",), "toy") for i in range(200)]
    path = tmp_path / "cut.jsonl"
    with pytest.raises(KeyboardInterrupt):
        sample_endpoint(endpoint, many, server="openai", settings=TWO, path=path, progress=stop)
    assert len(load_samples(path)) == 1
    assert len(requests) < 100


def test_without_log_probabilities_the_record_says_so(serve):
    endpoint, _ = serve(lambda body, tries: (200, said(body, logprobs=None)))
    found = sample_endpoint(endpoint, ROWS, server="openai", settings=TWO)
    assert not found.has_log_probabilities
    assert found[0].samples[0].tokens == 2
    # away from the model's own distribution servers differ in what they report, so it is not asked for
    endpoint, requests = serve(lambda body, tries: (200, said(body)))
    found = sample_endpoint(endpoint, ROWS, server="openai", settings=SamplingSettings(n=1, temperature=0.7))
    assert not found.has_log_probabilities
    assert "logprobs" not in requests[0][1]
    assert found.meta["log_probabilities"] is None


# ---- one reply


def reply(text, terms=None, **choice):
    content = None if terms is None else {"content": [{"token": t, "logprob": v} for t, v in terms]}
    return {"choices": [{"message": {"content": text}, "finish_reason": "stop", "logprobs": content, **choice}]}


def test_a_server_that_leaves_the_stop_text_in_is_cut_with_its_log_probabilities():
    terms = [(" Par", -1.0), ("is", -0.5), (".\n", -0.25), ("Question", -3.0)]
    assert read_reply(reply(" Paris.\nQuestion", terms, finish_reason="length"), TWO) == Sample(
        "Paris.", -1.75, 3, "stop", None, (-1.0, -0.5, -0.25)
    )
    # tokens that do not make up the text: nothing is known of the cut answer
    assert read_reply(reply(" Paris.\nQuestion", [("?", -1.0)]), TWO) == Sample("Paris.", None, 0, "stop")


def test_why_an_answer_ended():
    assert read_reply(reply("a"), TWO).finish == "stop"
    assert read_reply(reply("a", stop_reason=None), TWO).finish == "eos"
    assert read_reply(reply("a", stop_reason="\n"), TWO).finish == "stop"
    assert read_reply(reply("a", finish_reason="length"), TWO).finish == "length"
    for reason in (None, "tool_calls", 3):
        with pytest.raises(ValueError, match="finish_reason is"):
            read_reply(reply("a", finish_reason=reason), TWO)


def test_an_answer_of_no_reported_token_has_no_log_probability():
    assert read_reply(reply("", []), TWO) == Sample("", None, 0, "stop")


def test_text_that_is_no_unicode_becomes_unicode():
    assert read_reply(reply("\ud83d\ude81 a\udc00b"), TWO).text == "🚁 a\ufffdb"


@pytest.mark.parametrize("value", [None, True, math.nan, math.inf, -math.inf, 0.5, "x"])
def test_a_log_probability_that_is_none_is_a_garbled_reply(value):
    with pytest.raises(ValueError, match="log-probability is"):
        read_reply(reply("a", [("a", value)]), TWO)


# ---- what is sent


def test_every_server_is_told_what_it_would_decide_by_itself():
    endpoint = Endpoint("http://localhost/v1", "m")
    cut = SamplingSettings(temperature=0.5, top_k=40, stop=())
    assert request_fields(endpoint, "vllm", TWO, "chat/completions")["top_k"] == -1
    assert request_fields(endpoint, "vllm", cut, "chat/completions")["top_k"] == 40
    sent = request_fields(endpoint, "llama.cpp", TWO, "completions")
    assert [sent[name] for name in ("top_k", "min_p", "repeat_penalty", "logprobs")] == [0, 0.0, 1.0, 1]
    sent = request_fields(endpoint, "transformers", cut, "chat/completions")
    assert json.loads(sent["generation_config"])["do_sample"] is True
    assert json.loads(sent["generation_config"])["top_k"] == 40
    assert not {"logprobs", "top_k", "stop"} & set(sent)
    assert set(request_fields(endpoint, "openai", TWO, "completions")) == {
        "model", "temperature", "top_p", "max_tokens", "stop", "logprobs",
    }  # fmt: skip


def test_options_may_add_and_take_away_but_not_contradict():
    def fields(**options):
        return request_fields(Endpoint("http://localhost/v1", "m", options=options), "openai", TWO, "chat/completions")

    sent = fields(max_tokens=None, max_completion_tokens=32, logprobs=None)
    assert sent["max_completion_tokens"] == 32
    assert not {"max_tokens", "logprobs"} & set(sent)
    with pytest.raises(ValueError, match="options hold seed, temperature, which the sampling settings decide"):
        fields(temperature=0.5, seed=1)


def test_faulty_arguments_are_named_before_anything_is_sent():
    endpoint = Endpoint("http://127.0.0.1:9/v1", "m")
    with pytest.raises(ValueError, match="server must be one of openai, vllm, llama.cpp, transformers; got 'ollama'"):
        sample_endpoint(endpoint, ROWS, server="ollama")
    with pytest.raises(ValueError, match="top_k is 5, which the standard fields do not have"):
        sample_endpoint(endpoint, ROWS, server="openai", settings=SamplingSettings(top_k=5))
    with pytest.raises(ValueError, match="item 'q0' occurs twice"):
        sample_endpoint(endpoint, [*ROWS, ROWS[0]], server="openai")
    with pytest.raises(ValueError, match="expected at least one question"):
        sample_endpoint(endpoint, [], server="openai")
    with pytest.raises(ValueError, match="concurrency must be >= 1"):
        sample_endpoint(endpoint, ROWS, server="openai", concurrency=0)


def test_the_seed_of_a_sample_never_changes():
    # samples on disk are gone on with: another seed would be another sample
    key = "7\x1f3\x1fq\u2028".encode()
    expected = int.from_bytes(hashlib.sha256(key).digest()[:8], "big") // 2
    assert SamplingSettings(seed=7).sample_seed("q\u2028", 3) == expected
