"""The words of the report, explained for a reader who meets them for the first time."""

from __future__ import annotations

from calmtune.report.summary import Summary


def glossary(summary: Summary) -> tuple[tuple[str, str], ...]:
    """(term, explanation), with the settings that this report used."""
    d = summary.definitions
    slow = ", ".join(key.replace("_", " ").replace("ece", "ECE") for key in d["slow_measures"])
    return (
        ("Confidence", f"The {d['confidence']}. A tie is {d['ties']}."),
        (
            "conf-ECE",
            f"The distance between confidence and accuracy, averaged over {d['n_bins']} bins of confidence "
            f"({d['bin_rule']}). "
            "0 is perfect; 0.10 says that a stated 80 % means about 70 % or 90 %.",
        ),
        (
            "cw-ECE, MCE, smooth ECE",
            "cw-ECE asks the same of every option, not only of the chosen one; MCE is the worst bin, and one item "
            "can decide it; "
            "smooth ECE needs no bins.",
        ),
        (
            "NLL and Brier",
            "Proper scores of the whole distribution: they reward being right and knowing it. NLL is in nats; "
            "Brier is summed over "
            "options. Brier reliability is its calibration part, resolution what the confidence tells right from "
            "wrong, "
            "uncertainty what no model changes.",
        ),
        ("Overconfidence gap", "Mean confidence minus accuracy: positive when the model claims more than it knows."),
        ("AUROC", "How often a right answer has more confidence than a wrong one: 0.5 says nothing, 1 is perfect."),
        (
            "TS",
            f"Temperature scaling: {d['temperature']}. It changes no answer. 'Not identified' means that the "
            "calibration split does "
            "not determine it.",
        ),
        (
            "VS",
            f"Vector scaling: {d['vector']}. It can undo a preference for an option's place, and it can change "
            "answers. It is not defined for items with more options than the calibration split has.",
        ),
        (
            "Raw and adjusted",
            "Raw is the model's own distribution. Adjusted divides each logit by a learned temperature and adds a "
            "learned shift, "
            "both trained together with the model.",
        ),
        (
            "ID and OOD",
            "In domain: the test items come from where the training items came from. Out of domain: they do not.",
        ),
        (
            "Intervals",
            f"{d['interval']}; {d['n_resamples']} resamples, {d['n_resamples_slow']} for {slow}; seed {d['seed']}. "
            "A binned error is "
            "above 0 even for a perfect model at finite n, and an interval shows how far another sample of items "
            "could move it.",
        ),
        ("If calibrated", f"The {d['null_band']}. A conf-ECE inside this band is no evidence of miscalibration."),
        (
            "Differences and best",
            f"A difference is {d['difference']}; p is from a {d['p_value']}. Bold is {d['best']}; where that holds "
            "for none, none is bold.",
        ),
    )
