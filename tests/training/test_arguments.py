"""Settings that cannot work, or would be ignored, are refused by name."""

import math

import pytest

from toy_training import trainer


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor: belongs to method: label_smoothing"),
        ({"entropy_target": -1.0}, "entropy_target"),
        ({"eta": math.inf}, "eta: expected a finite number"),
        ({"max_steps": 0}, "train nothing"),
        ({"max_steps": -1, "num_train_epochs": 0}, "train nothing"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps: expected a whole number >= 1"),
        ({"remove_unused_columns": True}, "the collator needs every field"),
    ],
)
def test_arguments_that_would_be_ignored_are_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, **change)
