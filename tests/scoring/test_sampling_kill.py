"""A process that samples and is killed in the middle of it: every item is there once, and they are the same."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from calmtune.samples import load_samples

pytestmark = pytest.mark.slow

PROGRAM = """
import sys, time
from pathlib import Path
import tiny
from calmtune.data.prompts import PromptStyle, Renderer
from calmtune.data.rows import OpenQuestion
from calmtune.scoring.sampling import sample_answers
from calmtune.scoring.sampling_settings import SamplingSettings

rows = [OpenQuestion(f"q{i}\\u2028", "what " * (1 + i % 7), ("blue",), "toy") for i in range(60)]
tokenizer = tiny.word_tokenizer()
model = tiny.tiny_llama(vocab=len(tokenizer))
sample_answers(
    model, rows, Renderer(tokenizer, PromptStyle("text")), settings=SamplingSettings(n=4, max_new_tokens=16),
    path=Path(sys.argv[1]), batch_rows=12, progress=lambda done, total: time.sleep(float(sys.argv[2])),
)
"""


def run(path, pause):
    places = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), str(pause)], env=environment)


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_killed_run_goes_on_with_every_item_once(tmp_path):
    whole, path = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    assert run(whole, 0).wait(240) == 0
    for more in (5, 9):
        start = lines(path)
        process = run(path, 0.2)
        deadline = time.monotonic() + 240
        while lines(path) < start + more and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        assert 5 < lines(path) < 61
    # and the last line of the second was cut short
    path.write_bytes(path.read_bytes()[:-3])
    assert run(path, 0).wait(240) == 0
    assert path.read_bytes() == whole.read_bytes()
    ids = [json.loads(line)["id"] for line in path.read_bytes().split(b"\n")[1:-1]]
    assert sorted(ids) == sorted(f"q{i}\u2028" for i in range(60))
    assert load_samples(path).ids == tuple(ids)
