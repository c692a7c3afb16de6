"""The model card, read back by the library that the Hub uses."""

import pytest
import yaml
from huggingface_hub import ModelCard

from calmtune.report import summarise, write_card
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
    path = write_card(None, tmp_path, base_model="a: b # c\n---", settings={"method": "x: [y"})
    assert _front(path)["base_model"] == "a: b # c\n---"
