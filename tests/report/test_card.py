"""The model card, read back by the library that the Hub uses."""

import re

import pytest
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import eval_results_to_model_index

from calmtune.report import summarise, write_card
from calmtune.report.card import checkpoint_text
from calmtune.report.numbers import interval, number
from report.cases import Vector, comparison

SPLITS = {
    "train": {"count": 700, "domains": {"near": 700}},
    "upper": {"count": 200, "domains": {"near": 200}},
    "calibration": {"count": 40, "domains": {"near": 40}},
}


@pytest.fixture(scope="module")
def summary():
    return summarise(comparison({"near": "ID", "far": "OOD", "farther": "OOD"}), n_resamples=20)


def _front(path):
    return yaml.safe_load(path.read_text(encoding="utf-8").split("---\n")[1])


def test_front_matter_is_read_by_the_hub_library(summary, tmp_path):
    path = write_card(summary, tmp_path / "adapter", base_model="org/base", splits=SPLITS)
    data = ModelCard(path.read_text(encoding="utf-8")).data
    assert data.base_model == "org/base"
    assert data.library_name == "peft"
    assert data.tags == ["calmtune", "calibration", "calm", "lora"]
    assert data.model_name == "adapter"
    found = {(one.dataset_type, one.metric_type): one.metric_value for one in data.eval_results}
    for domain in ("near", "far", "farther"):
        cell = summary.cells[summary.choice.row, domain]
        assert found[domain, "ece"] == round(cell.estimates["conf_ece"].value, 6)
        assert found[domain, "accuracy"] == round(cell.estimates["accuracy"].value, 6)
    assert len(found) == 6
    # what the library makes of its reading is what was written
    assert eval_results_to_model_index(data.model_name, data.eval_results) == _front(path)["model-index"]
    assert ModelCard(str(ModelCard(path.read_text(encoding="utf-8")))).data.to_dict() == data.to_dict()


def test_the_card_says_what_trained_what(summary, tmp_path):
    text = write_card(summary, tmp_path, base_model="org/base", splits=SPLITS).read_text(encoding="utf-8")
    assert "| train | 700 | near 700 | trains the weights (lower level) |" in text
    assert "| upper | 200 | near 200 | keeps confidence in check (upper level); inputs only, no labels |" in text
    assert "fits temperature and vector scaling, and chooses which row is used" in text
    assert "| eta | 0.5 |" in text


def test_the_table_and_the_shift_are_those_of_the_summary(summary, tmp_path):
    text = write_card(summary, tmp_path, base_model="org/base").read_text(encoding="utf-8").replace("**", "")
    for column in summary.columns:
        found = summary.cells[summary.choice.row, column.name].estimates["conf_ece"]
        assert f"{number(found.value)} {interval(found)}" in text
    gap = summary.cells[summary.choice.row, "far"].estimates["gap"]
    assert f"mean confidence minus accuracy {gap.value:+.3f}" in text
    assert "Which rows were in which split was not recorded." in text


def test_the_choice_is_on_the_card_with_its_rule_its_split_and_every_score(summary, tmp_path):
    text = write_card(summary, tmp_path, base_model="org/base").read_text(encoding="utf-8")
    assert f"The model is used as {summary.choice.row}, chosen" in text
    assert "lowest NLL on the calibration split (n = 40)" in text
    assert len(summary.choice.scores) == 6
    for label, value in summary.choice.scores.items():
        assert f"{label} {number(value)}" in text


def test_a_chosen_vector_is_written_out(tmp_path):
    decision = {"distribution": "raw", "scaling": "VS", "temperature": 1.0, **vars(Vector())}
    made = comparison({"near": "ID"}, decision=decision)
    text = write_card(made, tmp_path, base_model="org/base", n_resamples=5).read_text(encoding="utf-8")
    assert "w = (0.5000, 0.5000, 0.2500, 0.2500), b = (1.0000, 0.0000, 0.0000, -1.0000)" in text


def test_an_unevaluated_model_says_so(tmp_path):
    path = write_card(None, tmp_path, base_model="org/base", settings={"method": "sft"}, library_name="transformers")
    text = path.read_text(encoding="utf-8")
    assert "This model was not evaluated" in text
    assert "model-index" not in _front(path)
    assert "PeftModel" not in text


def test_a_comparison_is_computed_first(tmp_path):
    path = write_card(comparison({"near": "ID"}, n=6), tmp_path, base_model="org/base", name="mine", n_resamples=5)
    assert _front(path)["model-index"][0]["name"] == "mine"
    assert "Not measured: every test domain was in domain." in path.read_text(encoding="utf-8")


def test_names_that_would_break_the_front_matter(tmp_path):
    path = write_card(None, tmp_path, base_model="a: b # c\n---", settings={"method": "x: [y"}, datasets=["d: e"])
    front = _front(path)
    assert front["tags"] == ["calmtune", "calibration", "x: [y", "lora"]
    assert front["datasets"] == ["d: e"]
    assert "base_model" not in front  # such a name is none on the Hub


def test_files_and_folders_of_this_machine_are_named_by_their_last_part(summary, tmp_path):
    base = tmp_path / "base model"
    settings = {
        "method": "calm",
        "train_sources": [str(tmp_path / "mine.jsonl"), "hub:mmlu/test"],
        "test_ood": ["facts"],
    }
    path = write_card(summary, tmp_path / "out", base_model=str(base), settings=settings, splits=SPLITS)
    text = path.read_text(encoding="utf-8").replace("\\", "")  # Markdown writes a_b as a\_b
    assert str(tmp_path) not in text
    assert "\nbase model, fine-tuned with calmtune" in text
    assert "| train_sources | mine.jsonl, hub:mmlu/test |" in text
    assert "base_model" not in _front(path)


def test_the_packaged_model_is_named_by_its_origin(tmp_path):
    path = write_card(None, tmp_path, base_model="smollm2-135m-instruct", settings={"method": "sft"})
    front = _front(path)
    assert (front["base_model"], front["base_model_relation"]) == ("HuggingFaceTB/SmolLM2-135M-Instruct", "adapter")
    # but loaded by the name under which its weights are the same
    assert "load_model('smollm2-135m-instruct')" in path.read_text(encoding="utf-8")


RECORD = {
    "step": 30, "metric": "selection_loss", "value": 1.23456, "selection_metric": "nll", "selection_domains": "worst",
    "start_accuracy": 0.45, "accuracy_drop": 0.02,
}  # fmt: skip


def test_the_chosen_checkpoint_its_rule_and_its_split_are_on_the_card(tmp_path):
    settings = {"method": "calm", "eta": "auto", "adjustment_start": "calibrated"}
    path = write_card(None, tmp_path, base_model="o/b", settings=settings, splits=SPLITS, checkpoint=RECORD)
    text = path.read_text(encoding="utf-8")
    assert (
        "The weights are those of step 30, the best checkpoint: it has the lowest NLL of the adjusted distribution on "
        "the calibration split, in the domain where that is worst (1.2346, which counts each point of accuracy "
        "below 0.430 against it: that is 0.02 below the 0.450 before training)."
    ) in text
    role = "and chooses which row is used; chose the checkpoint; steered eta while training; gave tau its first value |"
    assert role in text


def test_other_ways_to_end_training():
    assert checkpoint_text({**RECORD, "start_accuracy": None}, {}).endswith("where that is worst (1.2346).")
    by_loss = checkpoint_text({**RECORD, "metric": "eval_loss"}, {})
    assert by_loss == "The weights are those of step 30, the best checkpoint by loss 1.2346."
    assert checkpoint_text(None, {}) == "The weights are those of the last step; no checkpoint was chosen."


@pytest.mark.parametrize(
    ("settings", "role"),
    [
        ({"method": "sft"}, "held out; this method does not use it"),
        ({"method": "calm", "level": "vocabulary"}, "upper level); read along its reference answers"),
        (
            {"method": "calm", "level": "vocabulary", "entropy_positions": "first"},
            "upper level); inputs only, no labels",
        ),
    ],
)
def test_what_the_upper_split_did(tmp_path, settings, role):
    path = write_card(None, tmp_path, base_model="o/b", settings=settings, splits=SPLITS)
    assert role in path.read_text(encoding="utf-8")


def test_the_picture_is_beside_the_card_that_shows_it(summary, tmp_path):
    path = write_card(summary, tmp_path, base_model="org/base")
    (name,) = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
    assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["README.md", name]


def test_the_code_loads_a_published_run_from_the_hub(summary, tmp_path):
    path = write_card(summary, tmp_path, base_model="org/base", repo_id="me/mine")
    for block in re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL):
        compile(block, "card", "exec")
        assert "path/to" not in block
    assert "CalmModel.from_pretrained(snapshot_download('me/mine'))" in path.read_text(encoding="utf-8")
    assert 'PeftModel.from_pretrained(base, "me/mine")' in path.read_text(encoding="utf-8")
