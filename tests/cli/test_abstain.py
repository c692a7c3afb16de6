"""`calmtune abstain` on a made-up run: the file, the halves, other domains, shifts, and exit statuses."""

import json

import numpy as np
import pytest

from calmtune.cli.main import main
from calmtune.metrics.proper import softmax
from calmtune.posthoc import TemperatureScaler
from calmtune.posthoc.abstention import conformal_threshold, halves
from calmtune.posthoc.abstention_file import load_abstainer
from calmtune.predictions import Prediction, Predictions, load_predictions, save_predictions


def said(domain, n, seed, *, sharpness=2.0, skill=3.0):
    """Items with four options; higher sharpness, higher confidence; higher skill, more right answers."""
    rng = np.random.default_rng(seed)
    items = []
    for index in range(n):
        label = int(rng.integers(4))
        z = rng.normal(size=4) + skill * rng.random() * (np.arange(4) == label)
        scores = tuple((sharpness * z).tolist())
        items.append(Prediction(f"{domain}-{index}", domain, label, scores, tuple((0.7 * np.array(scores)).tolist())))
    return items


def write_run(folder, calibration, test, shifts):
    """The files of an evaluated run that the command reads."""
    names = ("train", "upper", "calibration", "test_id", "test_ood")
    split = {"count": 1, "domains": {}, "fingerprint": "x", "rows": {}}
    folder.mkdir()
    (folder / "config.yaml").write_text("model_name_or_path: m\nuse_peft: true\nn_bins: 10\nn_resamples: 20\n")
    record = {"shifts": shifts, "dropped": {}, "splits": dict.fromkeys(names, split)}
    (folder / "splits.json").write_text(json.dumps(record))
    (folder / "calibration.json").write_text(json.dumps({"decision": {"distribution": "raw", "scaling": "TS"}}))
    for variant in ("base", "tuned"):
        for name, items in (("calibration", calibration), ("test", test)):
            save_predictions(folder / "predictions" / f"{variant}.{name}.jsonl", Predictions(tuple(items), {}))
    return folder


@pytest.fixture
def run(tmp_path):
    """Two in-domain test sets that only together look like the calibration split, and one that is harder."""
    easy, hard = said("easy", 250, 0, skill=4.0), said("hard", 250, 1, skill=2.0)
    test = [*said("easy", 200, 2, skill=4.0), *said("hard", 200, 3, skill=2.0), *said("far", 200, 4, skill=0.0)]
    test = [Prediction("t" + one.id, one.domain, one.label, one.scores, one.adjusted) for one in test]
    return write_run(tmp_path / "run", [*easy, *hard], test, {"easy": "ID", "hard": "ID", "far": "OOD"})


def read(run):
    return json.loads((run / "abstention.json").read_text())


def test_the_record_by_hand(run, capsys):
    assert main(["abstain", str(run), "--target", "0.3", "--distribution", "raw", "--scaling", "TS"]) == 0
    record = read(run)
    out = capsys.readouterr().out
    calibration = load_predictions(run / "predictions" / "tuned.calibration.jsonl")
    first, second = halves(calibration.ids)
    logits, labels = calibration.logits(), calibration.labels
    t = TemperatureScaler().fit(logits[first], labels[first]).temperature
    assert record["temperature"] == pytest.approx(t)
    assert (record["n_fit"], record["n"]) == (250, 250)
    p = softmax(logits[second] / t)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels[second]
    assert record["reference_confidences"] == pytest.approx(np.sort(confidence).tolist())
    answered = confidence >= record["threshold"]
    assert (record["n_answered"], record["n_wrong"]) == (answered.sum(), (~right[answered]).sum())
    assert 0 < answered.mean() < 1
    assert record["as_decided"]
    assert (record["target"], record["confidence"], record["control"]) == (0.3, 0.95, "answered")
    assert "With probability 0.95 over the calibration items, the error rate" in out
    assert "raw distribution, temperature" in out


def test_other_domains_are_tried_and_a_shift_and_a_missed_target_are_loud(run, capsys):
    assert main(["abstain", str(run), "--target", "0.3"]) == 0
    err = capsys.readouterr().err
    record = read(run)
    found = {one["domain"]: one for one in record["domains"]}
    assert list(found) == ["ID (all)", "easy", "hard", "far"]
    # the mixture looks like the calibration split; its parts are not tested
    assert found["ID (all)"]["p_value"] > 0.01
    assert found["easy"]["p_value"] is None
    assert found["ID (all)"]["risk"]["value"] < 0.3
    assert found["far"]["shifted"]
    assert found["far"]["risk"]["low"] > 0.3
    assert "far (n = 200): its confidences do not look like those" in err.replace("\n", " ")
    assert "far (n = 200): the target of 0.3 is missed" in err
    assert "hard" not in err
    test = load_predictions(run / "predictions" / "tuned.test.jsonl").of_domain("far")
    abstainer = load_abstainer(run)
    confidence = abstainer.confidence(test.logits(adjusted=record["distribution"] == "adjusted"))
    answered = abstainer.answer_or_abstain(confidence)
    wrong = answered & (test.choices() != test.labels)
    assert (found["far"]["n_answered"], found["far"]["n_wrong"]) == (answered.sum(), wrong.sum())
    assert abstainer.shift(confidence).p_value == pytest.approx(found["far"]["p_value"])


def test_strict_fails_for_each_reason_and_passes_without_one(run, tmp_path, capsys):
    assert main(["abstain", str(run), "--target", "0.3", "--strict"]) == 2
    assert "--strict: 2 warnings" in capsys.readouterr().err
    calm = write_run(tmp_path / "calm", said("a", 400, 5), [
        Prediction("t" + one.id, "a", one.label, one.scores, one.adjusted) for one in said("a", 300, 6)
    ], {"a": "ID"})  # fmt: skip
    assert main(["abstain", str(calm), "--target", "0.4", "--strict"]) == 0
    assert not load_abstainer(calm).rule.answers_nothing


def test_no_threshold_is_said_and_means_to_answer_nothing(run, capsys):
    assert main(["abstain", str(run), "--target", "0.001"]) == 0
    captured = capsys.readouterr()
    assert "the rule is to answer nothing" in captured.out
    assert "the rule is to answer nothing" in captured.err
    record = read(run)
    assert record["threshold"] is None
    assert not load_abstainer(run).answer_or_abstain([1.0, 0.5]).any()
    assert all(one["n_answered"] == 0 for one in record["domains"])
    assert main(["abstain", str(run), "--target", "0.001", "--strict"]) == 2


def test_conformal_risk_control_is_called_by_its_name(run, capsys):
    assert main(["abstain", str(run), "--target", "0.2", "--control", "joint"]) == 0
    record = read(run)
    assert record["method"] == "conformal risk control"
    assert record["confidence"] is None
    assert "On average at most 0.2 of all questions" in capsys.readouterr().out
    second = halves(load_predictions(run / "predictions" / "tuned.calibration.jsonl").ids)[1]
    half = load_predictions(run / "predictions" / "tuned.calibration.jsonl")
    half = Predictions(tuple(half[int(place)] for place in second))
    how = {"adjusted": record["distribution"] == "adjusted", "temperature": record["temperature"] or 1.0}
    assert record["threshold"] == conformal_threshold(*half.confidence_and_correct(**how), 0.2).threshold


def test_a_reading_other_than_the_run_s_decision_is_told(run, capsys):
    assert main(["abstain", str(run), "--target", "0.3", "--distribution", "adjusted", "--scaling", "none"]) == 0
    captured = capsys.readouterr()
    assert "adjusted distribution; fixed-sequence" in captured.out
    assert "the run's own decision" in captured.err
    assert not read(run)["as_decided"]


def test_the_second_half_decides_nothing_but_the_threshold(run):
    """Other outcomes in the second half change neither the reading nor the thresholds that are tried."""
    main(["abstain", str(run), "--target", "0.3"])
    before = read(run)
    for variant in ("base", "tuned"):
        path = run / "predictions" / f"{variant}.calibration.jsonl"
        calibration = load_predictions(path)
        second = set(halves(calibration.ids)[1].tolist())
        items = tuple(
            Prediction(one.id, one.domain, (one.label + 1) % 4, one.scores, one.adjusted) if place in second else one
            for place, one in enumerate(calibration)
        )
        save_predictions(path, Predictions(items, {}))
    main(["abstain", str(run), "--target", "0.3"])
    after = read(run)
    assert after["threshold"] is None
    for name in ("distribution", "scaling", "temperature", "reference_confidences", "as_decided"):
        assert before[name] == after[name]


def test_further_files_with_and_without_outcomes(run, tmp_path, capsys):
    rng = np.random.default_rng(8)
    (tmp_path / "bare.csv").write_text("confidence\n" + "".join(f"{one}\n" for one in rng.random(80) ** 3))
    files = [tmp_path / "bare.csv", run / "predictions" / "tuned.test.jsonl"]
    assert main(["abstain", str(run), "--target", "0.3", "--check", *map(str, files)]) == 0
    found = {one["domain"]: one for one in read(run)["domains"]}
    assert found["bare.csv: bare"]["risk"] is None
    assert found["bare.csv: bare"]["shifted"]
    own = found["tuned.test.jsonl: far"]
    assert {key: own[key] for key in ("n_answered", "n_wrong", "ks")} == {
        key: found["far"][key] for key in ("n_answered", "n_wrong", "ks")
    }
    assert "bare.csv: bare (n = 80): its confidences" in capsys.readouterr().err.replace("\n", " ")


def test_the_page_and_its_picture(run):
    main(["abstain", str(run), "--target", "0.3"])
    text = (run / "abstention.md").read_text()
    assert text.startswith("# When to answer\n\n**Answer where the confidence is at least")
    assert "chosen" in text
    assert (run / "report_files" / "abstention.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "0"], "--target: expected a share between 0 and 1"),
        (["--confidence", "1"], "--confidence: expected a share between 0 and 1"),
        (["--scaling", "TS"], "give --distribution and --scaling together"),
        (["--seed", "-1"], "--seed: expected a whole number"),
    ],
)
def test_settings_that_make_no_sense(run, words, message, capsys):
    assert main(["abstain", str(run), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_run_that_was_not_evaluated_says_what_to_do(run, capsys):
    (run / "predictions" / "tuned.test.jsonl").unlink()
    assert main(["abstain", str(run)]) == 2
    assert "was not evaluated yet; run: calmtune evaluate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:40], "not valid JSON"),
        (lambda text: "[]", "expected an object with format"),
        (lambda text: text.replace('"reference_confidences"', '"other"'), "the field 'reference_confidences' is None"),
        (lambda text: text.replace('"control": "answered"', '"control": "x"'), "control is 'x'"),
    ],
)
def test_a_damaged_rule_is_refused(run, change, message):
    main(["abstain", str(run), "--target", "0.3"])
    path = run / "abstention.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(ValueError, match=message):
        load_abstainer(run)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="calmtune abstain RUN"):
        load_abstainer(run)
