"""Stored predictions of one or more runs, put side by side; no model and no data source is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calmtune.cli.console import command
from calmtune.cli.folder import RunFolder
from calmtune.posthoc import TemperatureScaler, VectorScaler
from calmtune.predictions import Predictions, load_predictions
from calmtune.report import Comparison, Variant
from calmtune.report.scaling import widest
from calmtune.report.selection import decide

# the post-hoc fits of every report and every choice
FITS: dict[str, Any] = {
    "fit_temperature": lambda logits, labels: TemperatureScaler().fit(logits, labels),
    "fit_vector": lambda logits, labels: VectorScaler().fit(logits, labels),
}


def compare_runs(folders: Sequence[RunFolder]) -> Comparison:
    """The base and the tuned model of each run.

    Args:
        folders: evaluated runs on the same questions; base, texts and order of the domains are the first one's,
            settings, log and decision the last one's; without a recorded decision the report makes one.

    Raises:
        FileNotFoundError: a run was not evaluated.
        ValueError: the runs were tested on other questions, or two folders have one name.
    """
    for folder in folders:
        folder.require()
        for variant, split in (("base", "calibration"), ("base", "test"), ("tuned", "calibration"), ("tuned", "test")):
            if not folder.predictions(variant, split).is_file():
                raise FileNotFoundError(
                    f"{folder.path} was not evaluated yet; run: {command('calmtune', 'evaluate', folder.path)}"
                )
    refuse_other_bases(folders)
    first, last = folders[0], folders[-1]
    shifts: Mapping[str, Any] = first.read_splits()["shifts"]
    names = ["tuned"] if len(folders) == 1 else [folder.path.resolve().name for folder in folders]
    variants = [read_variant(first, "base", "base", shifts)]
    variants += [read_variant(folder, "tuned", name, shifts) for folder, name in zip(folders, names, strict=True)]
    return Comparison(
        variants=variants,
        shifts=shifts,
        **FITS,
        training_log=last.read_training_log(),
        settings=last.read_settings(),
        decision=last.read_calibration().get("decision"),
        texts={key: (question, tuple(choices)) for key, (question, choices) in first.read_items().items()},
        title="Calibration before and after: " + ", ".join(folder.path.resolve().name for folder in folders),
    )


# what the base's scores depend on, beside the questions
SCORED_BY = ("weights", "scoring", "template", "template_sha256", "system_prompt", "normalisation")


def refuse_other_bases(folders: Sequence[RunFolder]) -> None:
    """The base is shown once, so every run must have had the same one, scored in the same way.

    Raises:
        ValueError: names the run and what differs.
    """
    metas = [load_predictions(folder.predictions("base", "test")).meta for folder in folders]
    for folder, meta in zip(folders[1:], metas[1:], strict=True):
        changed = [key for key in SCORED_BY if meta.get(key) != metas[0].get(key)]
        if changed:
            listed = "; ".join(f"{key}: {metas[0].get(key)!r} and {meta.get(key)!r}" for key in changed)
            raise ValueError(
                f"{folder.path} has another base than {folders[0].path}, or scored it otherwise ({listed}); "
                "report such runs one by one"
            )


def summary_options(folder: RunFolder) -> dict[str, int]:
    """How a run's figures are computed: bins and resamples from its settings."""
    settings = folder.read_settings()
    return {"n_bins": int(settings["n_bins"]), "n_resamples": int(settings["n_resamples"])}


def read_variant(folder: RunFolder, stored: str, name: str, domains: Mapping[str, Any]) -> Variant:
    """One model's predictions, by test domain."""
    test = load_predictions(folder.predictions(stored, "test"))
    tests: dict[str, Predictions] = {domain: test.of_domain(domain) for domain in domains}
    return Variant(name, load_predictions(folder.predictions(stored, "calibration")), tests)


def decide_run(folder: RunFolder) -> dict[str, Any]:
    """How the tuned model of a scored run is used, by the rule of its settings; of the test split only the largest
    number of options is looked at.

    Returns:
        The record of :func:`calmtune.report.selection.decide`, for ``decision`` in ``calibration.json``.
    """
    tuned, base = (load_predictions(folder.predictions(name, "calibration")) for name in ("tuned", "base"))
    options = widest(load_predictions(folder.predictions("tuned", "test")))
    return decide(tuned, base, folder.read_settings(), **FITS, options=options)
