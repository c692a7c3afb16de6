"""Checks that transformers makes late: trackers that are not installed."""

import pytest

from calmtune.checks import tracker_faults


@pytest.fixture
def only_tensorboard(monkeypatch):
    monkeypatch.setattr(
        "transformers.integrations.integration_utils.get_available_reporting_integrations", lambda: ["tensorboard"]
    )


@pytest.mark.parametrize("report_to", [None, "none", [], ["none"], "all", "tensorboard", ["tensorboard"]])
def test_what_is_there_has_no_fault(only_tensorboard, report_to):
    assert list(tracker_faults(report_to)) == []


@pytest.mark.parametrize(
    ("report_to", "faults"),
    [
        ("wandb", ["report_to: the tracker wandb is not installed; pip install 'calmtune[trackers]', or"]),
        (["tensorboard", "mlflow"], ["report_to: the tracker mlflow is not installed; pip install the package of"]),
        ("wandbb", ["report_to: there is no tracker 'wandbb'; did you mean 'wandb'?"]),
        (
            ["trackio", "nix"],
            ["report_to: the tracker trackio is not installed", "report_to: there is no tracker 'nix'"],
        ),
    ],
)
def test_what_is_not_there_is_named(only_tensorboard, report_to, faults):
    found = list(tracker_faults(report_to))
    assert [one[: len(fault)] for one, fault in zip(found, faults, strict=True)] == faults
