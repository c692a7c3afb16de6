"""A whole run on a tiny model: train, evaluate, report; what is written, and what is refused."""

import json
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

import cli_run
from calmtune.cli.comparison import compare_runs, summary_options
from calmtune.cli.folder import RunFolder
from calmtune.cli.main import main
from calmtune.cli.splits import Splits
from calmtune.cli.train import refuse_more_options
from calmtune.config import load_config
from calmtune.data.rows import MultipleChoice
from calmtune.predictions import load_predictions, save_predictions
from calmtune.report import summarise

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a finished run, evaluated and reported."""
    folder = tmp_path_factory.mktemp("whole")
    path = cli_run.write_config(folder)
    for words in (["train", str(path)], ["evaluate", str(folder / "run")], ["report", str(folder / "run")]):
        assert main([*words, "--traceback"]) == 0
    return folder


def test_a_run_leaves_everything_in_one_folder(trained):
    names = {path.name for path in (trained / "run").iterdir()}
    assert names >= {
        "config.yaml", "splits.json", "adapter_model.safetensors", "adapter_config.json", "adjustment.safetensors",
        "calibration.json", "training_log.jsonl", "predictions", "metrics.json", "report.html", "report.md",
        "README.md", "checkpoint-4",
    }  # fmt: skip
    assert not list((trained / "run").rglob("*.partial"))


def test_the_resolved_configuration_loads_to_the_same_run(trained):
    assert load_config(trained / "run" / "config.yaml") == load_config(trained / "run.yaml")


def test_the_log_has_every_step_once(trained):
    steps = [record["step"] for record in RunFolder(trained / "run").read_training_log() if "lower_loss" in record]
    assert steps == [1, 2, 3, 4]


def test_predictions_are_of_the_recorded_rows(trained):
    folder = RunFolder(trained / "run")
    splits = folder.read_splits()["splits"]
    for variant in ("base", "tuned"):
        calibration = load_predictions(folder.predictions(variant, "calibration"))
        test = load_predictions(folder.predictions(variant, "test"))
        assert set(calibration.ids) == set(splits["calibration"]["rows"])
        assert set(test.ids) == set(splits["test_id"]["rows"]) | set(splits["test_ood"]["rows"])
        assert test.domains == ("sky", "sea")
        assert test.has_adjusted == (variant == "tuned")


def test_the_tuned_model_is_another_one_than_the_base(trained):
    folder = RunFolder(trained / "run")
    base, tuned = (load_predictions(folder.predictions(variant, "test")) for variant in ("base", "tuned"))
    assert abs(base.logits() - tuned.logits()).max() > 1e-3
    assert abs(tuned.logits() - tuned.logits(adjusted=True)).max() > 1e-6


def test_the_code_on_the_card_gives_the_measured_confidence(trained, capsys):
    folder = RunFolder(trained / "run")
    loading, adapter = re.findall(r"```python\n(.*?)```", (folder.path / "README.md").read_text(), flags=re.DOTALL)
    summary = summarise(compare_runs([folder]), **summary_options(folder))
    row = summary.row(summary.choice.row)
    test = summary.comparison.aligned("tuned", "sea")
    item, expected = test.ids[0], row.read(test).probabilities[0]
    question, choices = folder.read_items()[item]
    code = loading.replace("path/to/this/folder", str(folder.path))
    code = re.sub(r"choices = \(.*\)", lambda _: f"choices = {tuple(choices)!r}", code)
    code = code.replace("Which gas do plants take in?", question)
    found = {}
    exec(code, found)
    assert found["p"] == pytest.approx(expected, abs=1e-5)
    assert capsys.readouterr().out.startswith(choices[int(expected.argmax())])
    plain = adapter.replace("path/to/this/folder", str(folder.path)).replace("path/to/the/base", str(trained / "model"))
    exec(plain, loaded := {})
    assert loaded["model"].peft_config["default"].r == 16


def test_the_decision_is_recorded_and_is_the_best_on_calibration(trained):
    folder = RunFolder(trained / "run")
    decision = folder.read_calibration()["decision"]
    metrics = json.loads(folder.metrics.read_text())
    (row,) = (row for row in metrics["rows"] if row["label"] == metrics["choice"]["row"])
    assert (decision["distribution"] == "adjusted") == row["row"]["adjusted"] == ("adjusted" in row["label"])
    assert decision["scaling"] == row["row"]["scaling"]
    assert decision["temperature"] == pytest.approx(row["temperature"] or 1.0)
    assert (decision["scale"], decision["shift"]) == (row["scale"], row["shift"])
    assert set(decision["candidates"]) == {
        f"{kind}{scaling}" for kind in ("raw", "adjusted") for scaling in ("", " + TS", " + VS")
    }
    eligible = {key: value for key, value in decision["candidates"].items() if key not in decision["refused"]}
    key = decision["distribution"] + ("" if decision["scaling"] == "none" else f" + {decision['scaling']}")
    assert decision["candidates"][key] <= min(eligible.values()) + 1e-4
    assert "lowest NLL on the calibration split" in decision["chosen_by"]
    assert decision["chosen_by"] in (trained / "run" / "README.md").read_text(encoding="utf-8")


def test_training_again_changes_nothing(trained, capsys):
    weights = (trained / "run" / "adapter_model.safetensors").read_bytes()
    assert main(["train", str(trained / "run.yaml")]) == 0
    assert "already trained" in capsys.readouterr().err
    assert (trained / "run" / "adapter_model.safetensors").read_bytes() == weights


def test_another_run_is_never_overwritten(trained, capsys):
    assert main(["train", str(trained / "run.yaml"), "--learning_rate", "2e-2", "--lora_r", "4"]) == 2
    err = capsys.readouterr().err
    assert "learning_rate: 0.01 -> 0.02" in err
    assert "lora_r: 16 -> 4" in err


def test_evaluating_again_scores_nothing_anew(trained, monkeypatch):
    folder = RunFolder(trained / "run")
    before = {path: path.read_bytes() for path in folder.predictions("base", "test").parent.iterdir()}
    monkeypatch.setattr("calmtune.scoring.options._score", lambda *a, **k: pytest.fail("an item was scored again"))
    assert main(["evaluate", str(folder.path), "--traceback"]) == 0
    assert {path: path.read_bytes() for path in before} == before


def test_several_runs_are_rows_of_one_report(trained, tmp_path):
    other = trained / "other"
    assert main(["train", str(trained / "run.yaml"), "--method", "sft", "--output_dir", str(other), "--traceback"]) == 0
    assert main(["evaluate", str(other), "--traceback"]) == 0
    assert main(["report", str(other), str(trained / "run"), "--output_dir", str(tmp_path), "--traceback"]) == 0
    labels = [row["label"] for row in json.loads((tmp_path / "metrics.json").read_text())["rows"]]
    assert labels[:6] == ["base", "base + TS", "base + VS", "other", "other + TS", "other + VS"]
    assert "run adjusted + TS" in labels


def test_all_weights_can_be_trained_without_an_adapter(trained, tmp_path):
    run = tmp_path / "whole"
    words = ["--use_peft", "false", "--max_steps", "1", "--learning_rate", "1e-3"]
    assert main(["train", str(trained / "run.yaml"), "--output_dir", str(run), *words, "--traceback"]) == 0
    assert (run / "model.safetensors").is_file()
    assert main(["evaluate", str(run), "--traceback"]) == 0
    base, tuned = (load_predictions(RunFolder(run).predictions(variant, "test")) for variant in ("base", "tuned"))
    assert abs(base.logits() - tuned.logits()).max() > 1e-4
    same = load_predictions(RunFolder(trained / "run").predictions("base", "test"))
    assert abs(base.logits() - same.logits()).max() == 0


def test_changed_data_is_refused_by_evaluate(tmp_path, capsys):
    path = cli_run.write_config(tmp_path, max_steps=1)
    assert main(["train", str(path)]) == 0
    cli_run.write_questions(tmp_path / "sea.jsonl", 21, subject="sea")
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "changed since it was trained: test_ood" in capsys.readouterr().err


def test_an_interrupted_run_goes_on_and_ends_like_an_uninterrupted_one(trained, tmp_path, monkeypatch, capsys):
    from calmtune.training.trainer import CalmTrainer

    steps = []
    step = CalmTrainer.training_step

    def interrupt(self, *args, **kwargs):
        steps.append(1)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return step(self, *args, **kwargs)

    words = ["train", str(trained / "run.yaml"), "--output_dir", str(tmp_path / "run")]
    monkeypatch.setattr(CalmTrainer, "training_step", interrupt)
    assert main(words) == 130
    monkeypatch.setattr(CalmTrainer, "training_step", step)
    assert main(words) == 2
    assert "go on from checkpoint-2 with --resume_from_checkpoint auto" in capsys.readouterr().err
    assert main([*words, "--resume_from_checkpoint", "auto", "--traceback"]) == 0
    for name in ("adapter_model.safetensors", "adjustment.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (trained / "run" / name).read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "nowhere"], "nowhere is not a run's folder: there is no such folder"),
        (["report", "nowhere"], "nowhere is not a run's folder: there is no such folder"),
    ],
)
def test_a_folder_without_a_run_is_told(words, message, capsys):
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_an_unfinished_run_is_not_evaluated(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("output_dir: x\n")
    assert main(["evaluate", str(tmp_path)]) == 2
    assert "holds no finished training" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 2
    assert "was not evaluated yet" in capsys.readouterr().err


def test_true_needs_a_checkpoint(tmp_path, capsys):
    path = cli_run.write_config(tmp_path)
    assert main(["train", str(path), "--resume_from_checkpoint", "true"]) == 2
    assert "has no whole checkpoint to go on from" in capsys.readouterr().err


@pytest.mark.parametrize(("adjustment", "refused"), [("vector", True), ("scalar", False)])
def test_items_with_more_options_than_were_trained_are_refused_before_training(adjustment, refused):
    def row(name, options):
        return MultipleChoice(name, f"what is {name}?", tuple("abcde"[:options]), 0, "toy")

    splits = Splits(
        {"train": [row("t", 3)], "upper": [row("u", 3)], "calibration": [row("c", 3)], "test_id": [row("i", 3)],
         "test_ood": [row("o", 5)]},
        {},
    )  # fmt: skip
    arguments = SimpleNamespace(has_upper_level=True, adjustment=adjustment, method_level="auto")
    config = SimpleNamespace(training_arguments=lambda: arguments)
    if refused:
        with pytest.raises(ValueError, match="item 'o' has 5 options, but the training rows have at most 3"):
            refuse_more_options(config, splits)
    else:
        refuse_more_options(config, splits)


def test_runs_with_another_base_or_scoring_are_not_put_beside_each_other(trained, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(trained / "run", other)
    path = RunFolder(other).predictions("base", "test")
    said = load_predictions(path)
    save_predictions(path, replace(said, meta={**said.meta, "scoring": "letter"}))
    assert main(["report", str(trained / "run"), str(other), "--output_dir", str(tmp_path / "report")]) == 2
    assert "has another base" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
