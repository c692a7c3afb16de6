"""Tables: both forms in both formats, and every fault with its row and column."""

import json

import numpy as np
import pytest

from calmtune.external import read_external
from calmtune.predictions import Prediction, Predictions, save_predictions


def csv_file(folder, text, name="said.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def json_file(folder, *records):
    path = folder / "said.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_confidences_as_csv_and_json_lines_by_domain(tmp_path):
    text = "confidence,correct,domain,id\n0.9,1,a,x\n0.4,FALSE,b,x\n1,true,a,y\n"
    records = [
        {"confidence": 0.9, "correct": True, "domain": "a", "id": "x"},
        {"confidence": 0.4, "correct": 0, "domain": "b", "id": "x"},
        {"confidence": 1, "correct": 1.0, "domain": "a", "id": "y"},
    ]
    for path in (csv_file(tmp_path, text), json_file(tmp_path, *records)):
        a, b = read_external(path)
        assert (a.domain, a.ids, a.confidence.tolist(), a.correct.tolist()) == (
            "a",
            ("x", "y"),
            [0.9, 1.0],
            [True, True],
        )
        assert (b.domain, b.confidence.tolist(), b.correct.tolist()) == ("b", [0.4], [False])
        assert not a.has_distributions


def test_distributions_of_different_lengths(tmp_path):
    text = 'label,probabilities\n1,"[0.2, 0.8]"\n0,"[0.1, 0.3, 0.6]"\n'
    records = [{"label": 1, "probabilities": [0.2, 0.8]}, {"label": 0, "probabilities": [0.1, 0.3, 0.6]}]
    for path in (csv_file(tmp_path, text), json_file(tmp_path, *records)):
        (found,) = read_external(path)
        assert (found.domain, found.ids) == ("said", ("0", "1"))
        assert found.confidence.tolist() == [0.8, 0.6]
        assert found.correct.tolist() == [True, False]
        assert found.n_options.tolist() == [2, 3]
        assert found.probabilities.tolist() == [[0.2, 0.8, 0.0], [0.1, 0.3, 0.6]]


def test_ties_go_by_the_item_s_id_as_elsewhere(tmp_path):
    records = [{"id": f"q{n}", "label": 0, "probabilities": [0.5, 0.5]} for n in range(40)]
    (found,) = read_external(json_file(tmp_path, *records))
    ours = Predictions(tuple(Prediction(f"q{n}", "d", 0, (0.0, 0.0)) for n in range(40)))
    assert found.correct.tolist() == (ours.choices() == 0).tolist()
    assert found.ties == 40
    assert 5 < found.correct.sum() < 35


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("confidence,correct\n0.9,1\n1.2,1\n", r"said.csv:3: column `confidence` is 1.2; expected a probability"),
        ("confidence,correct\n0.9,1\n-3.1,1\n", r"said.csv:3: column `confidence` is -3.1; .*Logits and per cent"),
        ("confidence,correct\n85,1\n", r"said.csv:2: column `confidence` is 85;"),
        ("confidence,correct\nx,1\n", r"said.csv:2: column `confidence` is 'x'; expected a finite number"),
        ("confidence,correct\nnan,1\n", r"said.csv:2: column `confidence` is 'nan'"),
        ("confidence,correct\n,1\n0.5,1\n", r"said.csv:2: column `confidence` is empty or missing"),
        ("confidence,correct\n0.5,2\n", r"said.csv:2: column `correct` is '2'; expected true or false"),
        ("confidence,correct\n0.5,0.7\n", r"said.csv:2: column `correct` is '0.7'"),
        ("confidence,correct\n0.5,1,1\n", r"said.csv:2: 3 cells, but 2 columns"),
        ("confidence,correct\n0.5,\n0.5,1\n", r"said.csv:2: column `correct` is empty here and filled elsewhere"),
        ("id,confidence,correct\na,0.5,1\na,0.5,1\n", r"the id 'a' occurs 2 times"),
        (
            "confidence\n0.5\n",
            r"the columns \(confidence, correct\) or \(probabilities, label\).*got confidence",
        ),
        ("confidence,correct,label\n0.5,1,0\n", r"belong to both forms"),
        ("logits,label\n0.5,1\n", r"column `logits`: logits are not read; write softmax"),
        ('probabilities,label\n"[0.5, 0.4]",1\n', r"said.csv:2: column `probabilities` sums to 0.9"),
        ('probabilities,label\n"[2.5, -1.5]",1\n', r"said.csv:2: column `probabilities\[0\]` is 2.5; .* no logit"),
        ('probabilities,label\n"[1.0]",0\n', r"said.csv:2: .*a list of at least two numbers"),
        ("probabilities,label\n0.5 0.5,0\n", r"said.csv:2: .*expected a list such as"),
        (
            'probabilities,label\n"[0.5, 0.5]",2\n',
            r"said.csv:2: column `label` is 2; .* index from 0 to 1",
        ),
        ('probabilities,label\n"[0.5, 0.5]",A\n', r"said.csv:2: column `label` is 'A'"),
        ("confidence,confidence\n1,1\n", r"said.csv:1: expected a first line of distinct column names"),
        ("", "no rows"),
        ("confidence,correct\n", "no rows"),
    ],
)
def test_every_fault_is_named_by_row_and_column(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_external(csv_file(tmp_path, text))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"said.jsonl:1: not valid UTF-8 JSON"),
        ("[1]", r"said.jsonl:1: expected an object, got list"),
        (
            '{"confidence": true, "correct": true}',
            r"said.jsonl:1: column `confidence` is True; expected a",
        ),
        ('{"confidence": 0.5, "correct": [1]}', r"said.jsonl:1: column `correct` is \[1\]"),
        ('{"confidence": 0.5, "correct": 1, "id": [1]}', r"said.jsonl:1: column `id` is \[1\]; expected text"),
        ("[" * 100_000, "said.jsonl:1: "),
    ],
)
def test_json_lines_too(tmp_path, line, message):
    path = csv_file(tmp_path, line + "\n", "said.jsonl")
    with pytest.raises(ValueError, match=message):
        read_external(path)


def test_all_faults_come_at_once_up_to_twenty(tmp_path):
    with pytest.raises(ValueError, match="25 faulty row") as caught:
        read_external(csv_file(tmp_path, "confidence,correct\n" + "2,1\n" * 25))
    assert str(caught.value).count("column `confidence`") == 20
    assert "... and 5 more" in str(caught.value)


def test_unlabelled_confidences_only_where_they_are_asked_for(tmp_path):
    path = csv_file(tmp_path, "confidence\n0.5\n0.7\n")
    (found,) = read_external(path, labelled=False)
    assert found.correct is None
    assert found.confidence.tolist() == [0.5, 0.7]
    with pytest.raises(ValueError, match="expected the columns"):
        read_external(path)


def test_our_own_predictions_raw_and_adjusted(tmp_path):
    path = tmp_path / "own.jsonl"
    items = (Prediction("a", "d", 0, (2.0, 0.0), (0.0, 1.0)), Prediction("b", "d", 1, (0.0, 0.0, 3.0), (0.0, 2.0, 1.0)))
    save_predictions(path, Predictions(items, {}))
    raw, adjusted = read_external(path)
    assert (raw.domain, adjusted.domain) == ("d raw", "d adjusted")
    assert raw.correct.tolist() == [True, False]
    assert adjusted.correct.tolist() == [False, True]
    np.testing.assert_allclose(raw.confidence[0], 1 / (1 + np.exp(-2)))


def test_other_files_are_refused(tmp_path):
    for name, message in (("said.xlsx", "ending in .jsonl or .csv"), ("none.csv", "is not there")):
        path = tmp_path / name
        if "none" not in name:
            path.write_text("x")
        with pytest.raises(ValueError, match=message):
            read_external(path)
    (tmp_path / "wide.csv").write_bytes("confidence,correct\n0.5,1\n".encode("utf-16"))
    with pytest.raises(ValueError, match="not UTF-8"):
        read_external(tmp_path / "wide.csv")
