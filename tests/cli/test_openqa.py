"""Open questions from rows to report on a tiny model: train, evaluate, report, compare, and what is refused."""

import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import cli_run
from calmtune.cli.folder import RunFolder
from calmtune.cli.main import main
from calmtune.cli.splits import build_splits, load_scored
from calmtune.cli.train import refuse_open_rows
from calmtune.config import DataSettings, load_config, load_scoring_config
from calmtune.graded import load_graded
from calmtune.samples import load_samples

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
COLOURS = ("blue", "green", "red")


def write_open(path, count, subject):
    rows = [
        {"id": f"{path.stem}/{n}", "question": f"what is the {subject} {n}?", "answers": [COLOURS[n % 3], "deep"]}
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def write_run(folder, **change):
    """A configuration of a short run on open questions."""
    settings = {
        "train_sources": [write_open(folder / "open_sky.jsonl", 60, "sky")],
        "test_ood": [write_open(folder / "open_sea.jsonl", 12, "sea")],
        "method": "calm", "max_steps": 2, "save_steps": 2, "entropy_positions": "sample", "own_answer_tokens": 3,
        "max_new_tokens": 3, "n_samples": 4, "alpha_learning_rate": 1.0, "open_target": "central", **change,
    }  # fmt: skip
    return cli_run.write_config(folder, **settings)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a finished run, evaluated and reported."""
    folder = tmp_path_factory.mktemp("open")
    path = write_run(folder, temperature_grid=[0.5])
    for words in (["train", str(path)], ["evaluate", str(folder / "run")], ["report", str(folder / "run")]):
        assert main([*words, "--traceback"]) == 0
    return folder


def test_a_run_keeps_every_sample_and_its_grade(whole):
    run = RunFolder(whole / "run")
    names = {path.name for path in run.sample_files()}
    assert names == {
        f"{variant}.{part}.jsonl"
        for variant in ("base", "tuned", "adjusted")
        for part in ("calibration", "calibration.T0.5", "test")
    }
    splits = run.read_splits()["splits"]
    test = {*splits["test_id"]["rows"], *splits["test_ood"]["rows"]}
    for variant in ("base", "tuned", "adjusted"):
        sampled, graded = load_samples(run.samples(variant, "test")), load_graded(run.grades(variant, "test"))
        assert set(sampled.ids) == test == set(graded.ids)
        assert all(len(item.samples) == 4 for item in sampled)
        assert (sampled.meta["adjustment"] is None) == (variant != "adjusted")
    assert run.read_calibration()["decision"]["task"] == "openqa"


def test_the_report_has_its_files_and_rows(whole):
    run = whole / "run"
    record = json.loads((run / "metrics.json").read_text())
    assert [row["label"] for row in record["rows"] if not row["tempered"]] == ["base", "tuned", "tuned adjusted"]
    assert [column["shift"] for column in record["columns"]] == ["ID", "OOD"]
    assert record["definitions"]["n_samples"] == 4
    assert "Sem1-ECE" in (run / "report.html").read_text()
    assert all((run / name).is_file() for name in ("report.md", "report.txt", "table.tex", "README.md"))


def test_new_grades_need_no_model(whole, tmp_path, monkeypatch):
    shutil.copytree(whole / "run", tmp_path / "run")
    monkeypatch.setattr("calmtune.cli.train.load_base", lambda config: pytest.fail("a model was loaded"))
    words = ["evaluate", str(tmp_path / "run"), "--grade_rule", "containment", "--normaliser", "squad-1.1"]
    assert main([*words, "--traceback"]) == 0
    graded = load_graded(RunFolder(tmp_path / "run").grades("tuned", "test"))
    assert (graded.rule, graded.meta["grade"]) == ("exact/squad-1.1", "containment")
    assert load_config(tmp_path / "run" / "config.yaml").evaluation.grade_rule == "containment"


def test_settings_of_training_hold(whole, capsys):
    assert main(["evaluate", str(whole / "run"), "--open_prompt", "short"]) == 2
    assert "was trained with its own open_prompt" in capsys.readouterr().err
    assert main(["evaluate", str(whole / "run"), "--task", "mcqa"]) == 2
    assert "are of the kind openqa" in capsys.readouterr().err


def test_samples_of_other_settings_are_not_mixed(whole, tmp_path, capsys):
    shutil.copytree(whole / "run", tmp_path / "run")
    assert main(["evaluate", str(tmp_path / "run"), "--n_samples", "5"]) == 2
    assert "was made with other settings" in capsys.readouterr().err


def test_a_model_as_it_is(whole, tmp_path):
    sea = write_open(tmp_path / "sea.jsonl", 9, "sea")
    words = ["evaluate", str(whole / "model"), "--task", "openqa", "--output_dir", str(tmp_path / "base"), "--use_cpu",
             "--n_samples", "3", "--max_new_tokens", "2", "--test_sources", sea]  # fmt: skip
    assert main([*words, "--traceback"]) == 0
    record = json.loads((tmp_path / "base" / "metrics.json").read_text())
    assert [row["label"] for row in record["rows"]] == ["base"]
    assert main(["report", str(tmp_path / "base"), "--traceback"]) == 0


def test_a_trained_run_on_other_questions(whole, tmp_path, capsys):
    other = write_open(tmp_path / "red.jsonl", 6, "red")
    words = ["evaluate", str(whole / "run"), "--output_dir", str(tmp_path / "there"), "--test_sources"]
    assert main([*words, other, "--traceback"]) == 0
    record = json.loads((tmp_path / "there" / "metrics.json").read_text())
    assert [column["name"] for column in record["columns"]] == ["red"]
    assert [row["label"] for row in record["rows"]] == ["base", "tuned", "tuned adjusted"]
    assert main([*words[:3], str(tmp_path / "seen"), "--test_sources", str(whole / "open_sky.jsonl")]) == 2
    assert "was trained on, e.g. 'open_sky/" in capsys.readouterr().err


def test_a_model_at_an_endpoint(tmp_path):
    asked = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            content = {"role": "assistant", "content": COLOURS[len(asked) % 3]}
            reply = {"choices": [{"message": content, "finish_reason": "stop"}], "usage": {"completion_tokens": 2}}
            data = json.dumps({**reply, "id": "x", "object": "chat.completion"}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        words = ["evaluate", "some-model", "--task", "openqa", "--base_url", f"http://127.0.0.1:{server.server_port}/v1",
                 "--server", "transformers", "--output_dir", str(tmp_path / "there"), "--n_samples", "3",
                 "--open_prompt", "short", "--test_sources", write_open(tmp_path / "sea.jsonl", 4, "sea")]  # fmt: skip
        assert main([*words, "--traceback"]) == 0
        server.shutdown()
    assert len(asked) == 12
    assert {body["model"] for body in asked} == {"some-model"}
    assert asked[0]["messages"][0]["content"].startswith("Answer the question with a name")
    record = json.loads((tmp_path / "there" / "metrics.json").read_text())
    assert [row["label"] for row in record["rows"]] == ["base"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere", "--server", "vllm"], "--server: goes with --base_url"),
        (["nowhere", "--base_url", "http://x"], "--base_url: a model at an endpoint is asked open questions"),
        (["nowhere", "--task", "openqa"], "--output_dir: expected the folder"),
        (["nowhere", "--task", "openqa", "--output_dir", "x"], "test_sources: expected at least one source"),
        (["nowhere", "--task", "openqa", "--output_dir", "x", "--eta", "2"], "eta belongs to training"),
        (["nowhere", "--task", "mcqa", "--test_sources", "x.jsonl"], "--test_sources: goes with --task openqa"),
    ],
)
def test_what_cannot_be_asked_is_refused(words, message, capsys):
    assert main(["evaluate", *words]) == 2
    assert message in capsys.readouterr().err


# ---- rows and settings -----------------------------------------------------------------------------------------------


def faults_of(folder, **change):
    config = load_config(write_run(folder, **change))
    with pytest.raises(ValueError) as found:
        refuse_open_rows(config, build_splits(config.data))
    return str(found.value)


def test_refusals_before_a_model_is_loaded(tmp_path):
    assert "reads a reference answer" in faults_of(tmp_path, entropy_positions="response", own_answer_tokens=24)
    assert "not read while training" in faults_of(tmp_path, eta="auto")
    sky = str(tmp_path / "sky.jsonl")
    options = {"train_sources": [sky], "upper_sources": [], "open_target": "first", "level": "options",
               "entropy_positions": "auto", "own_answer_tokens": 24, "test_share": 0,
               "calibration_sources": [write_open(tmp_path / "cal.jsonl", 9, "red")]}  # fmt: skip
    assert "level: options trains an adjustment of options" in faults_of(tmp_path, **options)
    closed = {"train_sources": [sky], "test_ood": [str(tmp_path / "sea.jsonl")], "entropy_positions": "auto",
              "own_answer_tokens": 24, "open_target": "first", "open_prompt": "short"}  # fmt: skip
    assert "open_prompt: belongs to open questions" in faults_of(tmp_path, **closed)


def test_open_questions_and_options_are_not_scored_together(tmp_path):
    closed = str(cli_run.write_questions(tmp_path / "red.jsonl", 9, subject="red"))
    mixed = write_run(tmp_path, calibration_sources=[closed])
    with pytest.raises(ValueError, match="questions of two kinds"):
        build_splits(load_config(mixed).data)


def test_rows_of_a_model_that_is_not_trained(tmp_path):
    sea = write_open(tmp_path / "sea.jsonl", 9, "sea")
    splits = load_scored(DataSettings(test_ood=(sea,), test_limit=4))
    assert splits.is_open
    assert len(splits.open_test) == 4
    assert not splits.rows["train"]
    with pytest.raises(ValueError, match="share a question"):
        load_scored(DataSettings(test_ood=(sea,), calibration_sources=(sea,)))


def test_a_grid_does_not_hold_one():
    with pytest.raises(ValueError, match="temperature_grid: expected different numbers"):
        load_scoring_config(["--output_dir", "x", "--test_ood", "facts", "--temperature_grid", "0.5", "1"])


def test_inspect_shows_that_the_upper_level_gets_no_answer(tmp_path, capsys):
    assert main(["inspect", str(write_run(tmp_path))]) == 0
    out = capsys.readouterr().out
    upper = out[out.index("\nupper, ") : out.index("\ncalibration, ")]
    assert "answer         ''" in upper


def test_a_suite_on_open_questions(whole, tmp_path):
    run = whole / "run.yaml"
    suite = tmp_path / "suite.yaml"
    methods = "{sft: {method: sft, entropy_positions: auto, own_answer_tokens: 24}, calm: {method: calm}}"
    suite.write_text(
        f"title: Tiny\noutput_dir: {tmp_path / 'suite'}\nrecipe: {run}\nmodels: {{tiny: {{}}}}\n"
        f"settings: {{sky_to_sea: {{}}}}\nmethods: {methods}\nseeds: [0]\n"
    )
    assert main(["compare", str(suite), "--traceback"]) == 0
    record = json.loads((tmp_path / "suite" / "suite.json").read_text())
    assert {cell["row"] for cell in record["cells"]} == {"base", "sft", "calm", "calm adjusted"}
    base = list((tmp_path / "suite").rglob("samples/base.test.jsonl"))
    assert len(base) == 2
    assert base[0].read_bytes() == base[1].read_bytes()
    # done is done; other grades are made from what is there
    assert main(["compare", str(suite), "--report_only", "--normaliser", "squad-1.1", "--traceback"]) == 0
    record = json.loads((tmp_path / "suite" / "suite.json").read_text())
    assert record["definitions"]["rule"] == "exact/squad-1.1"
