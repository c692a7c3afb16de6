"""How a suite's numbers were found, said once: as data, and in words for a reader who meets them for the first time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calmtune.report.suite_column import POINT_ONLY, RESAMPLED


def suite_definitions(options: Mapping[str, int]) -> dict[str, Any]:
    """What stands behind every number of the report; JSON values only."""
    return {
        **options,
        "bin_rule": "equal width, [low, high), last bin closed; mean confidence of the bin, never its centre",
        "confidence": "largest softmax probability over the item's own options",
        "over_seeds": "the mean over seeds of each seed's own number, never that of all seeds' items in one pool; "
        "± the standard deviation over seeds (divisor S - 1)",
        "interval": "95 %, over items and seeds: where the mean would lie with other test items of these domains and "
        "with other seeds of this training. Items are resampled, the same for all seeds and methods; to each resample "
        "a draw from Student's t with S - 1 degrees of freedom times the standard error over S seeds is added. With "
        "one seed, and for the base, it is over items alone. BCa for conf-ECE, percentiles for the rest",
        "interval_measures": list(RESAMPLED),
        "without_interval": list(POINT_ONLY),
        "difference": "row minus the other row, item by item on the same resamples and seed by seed; the base stands "
        "beside every seed, and two rows are compared on the seeds that both have; percentiles, 95 %, over items and "
        "seeds as above",
        "p_value": "two-sided permutation test that exchanges the two rows item by item, all seeds together; it is "
        "about these trained models and other items, not about other seeds. Whether a difference is shown is read from "
        "its interval alone",
        "best": "better than every other row of the column by a paired interval that excludes zero, and no run of the "
        "model is missing; a chosen row shares the mark of the row that it is in every seed, and in accuracy a row "
        "+ TS that of the row without, as it has the same answers",
        "chosen": "each run as its own decision on the calibration split says; no test item is looked at",
        "null_band": "conf-ECE when labels are drawn from the row's own confidences: mean over seeds and 95 % band",
    }


def suite_glossary(definitions: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """(term, explanation), with the settings that the report used.

    Args:
        definitions: of :func:`suite_definitions`.
    """
    d = definitions
    return (
        ("Confidence", f"The {d['confidence']}."),
        (
            "conf-ECE",
            f"The distance between confidence and accuracy, averaged over {d['n_bins']} bins of confidence "
            f"({d['bin_rule']}). 0 is perfect; 0.10 says that a stated 80 % means about 70 % or 90 %.",
        ),
        ("cw-ECE", "The same asked of every option, not only of the chosen one."),
        ("NLL", "Mean of -ln p(right option) in nats: a proper score, which rewards being right and knowing it."),
        ("Numbers and ±", f"Each number is {d['over_seeds']}."),
        ("Intervals", f"{d['interval']}. {d['n_resamples']} resamples, random seed {d['seed']}."),
        ("Differences and p", f"Δ is {d['difference']}. p is from a {d['p_value']}."),
        ("Best", f"Bold is {d['best']}. Where that holds for none, none is bold."),
        (
            "Raw and adjusted",
            "Raw is the model's own distribution, adjusted the one with its learned logit adjustment.",
        ),
        (
            "TS and VS",
            "Temperature scaling and vector scaling, fitted on the calibration split of the same model and used on "
            "every domain. TS changes no answer; VS can.",
        ),
        ("Chosen", f"The row holds {d['chosen']}."),
        (
            "ID and OOD",
            "In domain: the test items come from where the training items came from. Out of domain: they do not. All: "
            "the items of these domains together.",
        ),
        ("If calibrated", f"The grey band is {d['null_band']}. A conf-ECE inside it is no evidence of miscalibration."),
    )
