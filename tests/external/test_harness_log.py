"""lm-eval's logs: real ones (made by lm-eval 0.4.13 with a random model), by hand, and damaged."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from calmtune.external import read_external

LOGS = Path(__file__).parent / "logs"
DATE = "2026-12-01T05-23-49.182418"
QUESTIONS = [json.loads(line)["doc"] for line in (LOGS / f"samples_toy_index_{DATE}.jsonl").open()]


def log(task):
    return LOGS / f"samples_toy_{task}_{DATE}.jsonl"


def lines(task):
    return [json.loads(line) for line in log(task).open()]


def write(folder, records, task="made"):
    path = folder / f"samples_{task}_{DATE}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def expected(record, length=lambda option: 1.0):
    """Softmax over an item's options, by the definition."""
    scores = [
        float(pair[0]) / length(option)
        for pair, option in zip(record["filtered_resps"], record["doc"]["choices"], strict=False)
    ]
    total = math.fsum(map(math.exp, scores))
    return [math.exp(one) / total for one in scores]


@pytest.mark.parametrize("task", ["index", "text", "mutual"])
@pytest.mark.parametrize(
    ("normalisation", "verdict", "length"),
    [
        ("sum", "acc", lambda option: 1.0),
        ("character", "acc_norm", len),
        ("byte", "acc_bytes", lambda o: len(o.encode())),
    ],
)
def test_real_logs_whatever_their_targets_look_like(task, normalisation, verdict, length):
    (found,) = read_external(log(task), normalisation=normalisation)
    records = lines(task)
    assert found.domain == f"toy_{task}"
    assert found.ids == ("0", "1", "2", "3", "4")
    assert found.labels.tolist() == [doc["answer"] for doc in QUESTIONS]
    assert found.n_options.tolist() == [len(doc["choices"]) for doc in QUESTIONS]
    for place, record in enumerate(records):
        p = expected(record, length)
        assert found.probabilities[place][: len(p)] == pytest.approx(p)
        assert found.confidence[place] == pytest.approx(max(p))
        if verdict in record:
            assert found.correct[place] == bool(record[verdict])
    assert found.notes == ()


def test_several_right_options_leave_out_what_needs_one():
    (found,) = read_external(log("multi"))
    assert found.probabilities is None
    assert found.correct.tolist() == [bool(record["acc"]) for record in lines("multi")]
    assert "toy_multi: NLL, Brier and cw-ECE are left out: 5 items have several right options" in found.notes


def test_generated_answers_have_no_confidence():
    with pytest.raises(ValueError, match="only output_type multiple_choice has a confidence"):
        read_external(log("gen"))


def test_older_logs_with_numbers_and_lists_are_the_same(tmp_path):
    """Before 0.4.3 arguments were lists and log-likelihoods numbers."""
    old = []
    for record in lines("index"):
        pairs = [[float(a), b == "True"] for a, b in record["filtered_resps"]]
        arguments = [[one["arg_0"], one["arg_1"]] for one in record["arguments"].values()]
        old.append({**record, "filtered_resps": pairs, "arguments": arguments, "target": int(record["target"])})
    (found,), (new,) = read_external(write(tmp_path, old)), read_external(log("index"))
    np.testing.assert_array_equal(found.probabilities, new.probabilities)
    assert found.labels.tolist() == new.labels.tolist()


def test_a_target_that_contradicts_the_verdict_is_not_believed(tmp_path):
    records = lines("index")
    records[2]["target"] = "0"  # the harness says that the choice, option 3, is right
    (found,) = read_external(write(tmp_path, records))
    assert found.probabilities is None
    assert found.correct.tolist() == [bool(record["acc"]) for record in records]
    assert "no reading of the targets fits" in found.notes[0]


def test_targets_that_can_be_read_in_two_ways_are_not_guessed(tmp_path):
    record = lines("index")[4]  # options "1", "2", "0": the target "1" is the index of "2" or the text of option 0
    assert record["doc"]["choices"] == ["1", "2", "0"]
    (found,) = read_external(write(tmp_path, [record]))
    assert found.labels is None
    assert "read as indices and as texts" in found.notes[0]


def test_without_a_verdict_the_target_decides(tmp_path):
    records = [{key: value for key, value in record.items() if key != "acc"} for record in lines("text")]
    (found,) = read_external(write(tmp_path, records))
    assert found.correct.tolist() == [bool(record["acc"]) for record in lines("text")]
    for record in records:
        record["target"] = "none of them"
    with pytest.raises(ValueError, match="neither acc nor a right option can be read"):
        read_external(write(tmp_path, records))


def test_several_filters_must_be_chosen_among(tmp_path):
    records = lines("index") + [{**record, "filter": "other", "acc": 1 - record["acc"]} for record in lines("index")]
    path = write(tmp_path, records)
    with pytest.raises(ValueError, match="filters none, other; name one with --harness_filter"):
        read_external(path)
    (found,) = read_external(path, filter_name="none")
    assert len(found) == 5
    with pytest.raises(ValueError, match="no results of the filter 'x'"):
        read_external(path, filter_name="x")


def test_a_folder_gives_every_task_s_newest_log_and_says_what_it_left_out(tmp_path):
    folder = tmp_path / "out" / "model"
    shutil.copytree(LOGS, folder)
    shutil.copy(log("multi"), folder / "samples_toy_index_2025-01-01T00-00-00.000000.jsonl")
    found = read_external(tmp_path / "out")
    assert [one.domain for one in found] == ["toy_index", "toy_multi", "toy_mutual", "toy_text"]
    assert found[0].labels is not None
    assert found[0].notes[0] == "1 older logs of the same tasks were not read"
    assert found[0].notes[1].startswith("toy_gen was not read")
    shutil.copytree(LOGS, tmp_path / "out" / "other")
    with pytest.raises(ValueError, match="logs of 2 models"):
        read_external(tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="run lm-eval with --log_samples"):
        read_external(tmp_path / "empty")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"filtered_resps": [["x", "False"], ["-1", "False"], ["-1", "False"]]},
            ":2: the log-likelihood 'x' is no number",
        ),
        ({"filtered_resps": [["nan", "False"], ["-1", "False"], ["-1", "False"]]}, ":2: .* is not below 0"),
        ({"filtered_resps": [["-1", "False"], ["-1", "False"]]}, ":2: 2 log-likelihoods for 3 options"),
        ({"filtered_resps": [["-inf", "False"]] * 3}, ":2: every option has log-likelihood -inf"),
        ({"acc": 0.5}, ":2: acc is 0.5; expected 0 or 1"),
        ({"arguments": [["a"], ["b"], ["c"]]}, ":2: arguments are no .context, continuation. pairs"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, change, message):
    records = lines("index")
    records[1] |= change
    with pytest.raises(ValueError, match=message):
        read_external(write(tmp_path, records))
