"""The lm-eval hook: aggregations against the metrics, and the real harness with a made-up model."""

import json

import numpy as np
import pytest

from calmtune import harness, metrics

ITEMS = [
    {"question": "sky", "choices": ["blue", "green", "red"], "answer": 0, "gold": "blue"},
    {"question": "sea", "choices": ["deep", "red"], "answer": 0, "gold": "deep"},
    {"question": "grass", "choices": ["blue", "green", "red", "deep"], "answer": 1, "gold": "green"},
    {"question": "blood", "choices": ["blue", "green", "red"], "answer": 2, "gold": "red"},
]
YAML = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{target}"
doc_to_choice: choices
"""
METRICS = """
process_results: !function utils.process_results
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: conf_ece, aggregation: !function calmtune.harness.conf_ece, higher_is_better: false}
  - {metric: cw_ece, aggregation: !function calmtune.harness.cw_ece, higher_is_better: false}
  - {metric: nll, aggregation: !function calmtune.harness.nll, higher_is_better: false}
  - {metric: overconfidence, aggregation: !function calmtune.harness.overconfidence, higher_is_better: false}
"""
UTILS = """
from calmtune.harness import calibration_results

process_results = calibration_results(lambda doc: doc["answer"])
"""
OWN = """
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
"""


def likelihood(question, option):
    """A made-up model."""
    return -1.0 - (sum(map(ord, question + option)) % 17) / 4


def by_hand():
    """conf-ECE, cw-ECE, NLL and gap of the made-up model, from the metrics room."""
    table = np.zeros((len(ITEMS), 4))
    for place, item in enumerate(ITEMS):
        z = np.exp([likelihood(item["question"], option) for option in item["choices"]])
        table[place, : len(z)] = z / z.sum()
    labels, n_options = np.array([item["answer"] for item in ITEMS]), np.array([len(i["choices"]) for i in ITEMS])
    confidence, correct = table.max(axis=1), table.argmax(axis=1) == labels
    return {
        "acc": correct.mean(),
        "conf_ece": metrics.expected_calibration_error(confidence, correct),
        "cw_ece": metrics.classwise_ece(table, labels, 10, n_options),
        "nll": metrics.negative_log_likelihood(table, labels),
        "overconfidence": metrics.overconfidence_gap(confidence, correct),
    }


def test_the_functions_of_a_yaml_file():
    process = harness.calibration_results(lambda doc: doc["answer"])
    results = [
        process(item, [(likelihood(item["question"], option), False) for option in item["choices"]]) for item in ITEMS
    ]
    expected = by_hand()
    assert np.mean([one["acc"] for one in results]) == expected.pop("acc")
    for name, aggregate in harness.AGGREGATIONS.items():
        assert aggregate([one[name] for one in results]) == pytest.approx(expected.pop(name)), name
    assert not expected


@pytest.mark.parametrize("label", [2, -1, "blue", True, [0]])
def test_a_label_that_is_no_option_is_refused(label):
    with pytest.raises(ValueError, match="the right option is .*; expected an index from 0 to 1"):
        harness.measure([-1.0, -2.0], label)


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """A task folder of lm-eval's, and what loads it."""
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (pip install 'calmtune[harness]')")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    data = tmp_path / "items.jsonl"
    data.write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    (tmp_path / "utils.py").write_text(UTILS)
    for name, target, more in (
        ("by_yaml", "{{answer}}", METRICS),
        ("by_text", "gold", OWN),
        ("by_index", "{{answer}}", OWN),
    ):
        text = YAML.format(name=name, data=data, target=target)
        (tmp_path / f"{name}.yaml").write_text(text + more)
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=str(tmp_path), include_defaults=False)


@pytest.mark.parametrize("name", ["by_yaml", "by_text", "by_index"])
def test_the_real_harness_reports_them(tasks, name):
    from lm_eval import evaluator
    from lm_eval.api.model import LM

    class MadeUp(LM):
        def loglikelihood(self, requests):
            return [(likelihood(one.args[0], one.args[1].strip()), False) for one in requests]

        def loglikelihood_rolling(self, requests):
            raise AssertionError

        def generate_until(self, requests):
            raise AssertionError

    loaded = tasks.load([name])
    if name != "by_yaml":
        for task in loaded["tasks"].values():
            harness.add_calibration(task)
    results = evaluator.evaluate(lm=MadeUp(), task_dict=loaded, bootstrap_iters=0)["results"][name]
    for key, value in by_hand().items():
        assert results[f"{key},none"] == pytest.approx(value), key


def test_another_kind_of_task_is_refused():
    class Generation:
        OUTPUT_TYPE = "generate_until"

    with pytest.raises(ValueError, match="expected a task of output_type multiple_choice, got 'generate_until'"):
        harness.add_calibration(Generation())
