"""What a report on open questions says in words, made from the numbers, as willing to say 'not shown' as 'lower'."""

from __future__ import annotations

from calmtune.report.numbers import Difference, number, p_text, with_interval
from calmtune.report.openqa_records import OpenSummary
from calmtune.report.summary import Column

_SHIFTS = {"ID": "in domain", "OOD": "out of domain"}


def open_headline(summary: OpenSummary) -> tuple[str, ...]:
    """The verdict, a sentence for each shift, the temperatures, the choice, and warnings."""
    columns = [column for column in (summary.column("ID"), summary.column("OOD")) if column is not None]
    return (
        _verdict(summary, columns),
        *(_sentence(summary, column) for column in columns),
        *_temperatures(summary),
        *_decided(summary),
        *_warnings(summary, columns),
    )


def _verdict(summary: OpenSummary, columns: list[Column]) -> str:
    if summary.chosen == summary.first:
        parts = []
        for column in columns:
            found = summary.cells[summary.first, column.name].estimates
            parts.append(
                f"on {', '.join(column.domains)} it is right in {number(found['accuracy'].value)} of the questions, "
                f"with a mean confidence of {number(found['sem2_confidence'].value)} (Sem2)"
            )
        return f"{summary.first}: {'; '.join(parts)}."
    words = []
    for column in columns:
        change = summary.cells[summary.chosen, column.name].versus_first
        ece = _word(change["sem1_ece"], "lower", "higher")
        accuracy = _word(change["accuracy"], "lower", "higher")
        words.append(f"{_SHIFTS[column.shift]}, Sem1-ECE is {ece} and accuracy {accuracy}")
    return f"{summary.chosen} against {summary.first}: {'; '.join(words)}."


def _word(change: Difference, below: str, above: str) -> str:
    return "not shown to change" if not change.shown else below if change.value < 0 else above


def _sentence(summary: OpenSummary, column: Column) -> str:
    before = summary.cells[summary.first, column.name].estimates
    where = f"{_SHIFTS[column.shift].capitalize()} ({', '.join(column.domains)}; n = {column.n})"
    if len(summary.comparison.variants) == 1:  # nothing was trained, so there is no domain to be in
        where = f"{', '.join(column.domains)} (n = {column.n})"
    if summary.chosen == summary.first:
        return (
            f"{where}: Sem1-ECE {with_interval(before['sem1_ece'])}, Sem2-ECE {with_interval(before['sem2_ece'])}, "
            f"accuracy {with_interval(before['accuracy'])}, semantic entropy {with_interval(before['entropy'])} nats."
        )
    cell = summary.cells[summary.chosen, column.name]
    parts = []
    for key, name in (("sem1_ece", "Sem1-ECE"), ("sem2_ece", "Sem2-ECE"), ("accuracy", "accuracy")):
        change = cell.versus_first[key]
        parts.append(
            f"{name} {number(before[key].value)} → {number(cell.estimates[key].value)} "
            f"(Δ {with_interval(change, sign=True)}, {p_text(change.p_value)})"
        )
    return f"{where}: {'; '.join(parts)}."


def _temperatures(summary: OpenSummary) -> list[str]:
    found = []
    for name, one in summary.sampler_temperatures.items():
        if name not in (summary.first, summary.chosen):
            continue
        if one.temperature is not None:
            found.append(
                f"Sampled at a temperature of {one.temperature:.2f} in the place of 1, {name} would be as confident as "
                f"it is right, on average over the {one.points[0].n} calibration questions."
            )
        else:
            found.append(f"The temperature at which {name} would be as confident as it is right lies {one.told}.")
    if not summary.sampler_temperatures and summary.class_temperatures:
        found.append(
            "The sampler's own temperature was not looked for: that needs samples of the calibration questions at "
            "other temperatures (temperature_grid). The temperature of the classes (rows + T) changes the reported "
            "confidence alone."
        )
    loose = [name for name, one in summary.class_temperatures.items() if not one.identified]
    if loose:
        found.append(
            f"The class temperature of {', '.join(loose)} is not identified: the calibration questions do not "
            "determine it."
        )
    return found


def _decided(summary: OpenSummary) -> list[str]:
    decision = summary.comparison.decision
    if decision is None:
        return []
    scores = "; ".join(f"{name} {number(value)}" for name, value in decision.get("scores", {}).items())
    return [
        f"The tuned model is used with its {decision['distribution']} distribution, chosen on the {decision.get('n')} "
        f"calibration questions without a look at any test question, by the {decision.get('metric')} ({scores})."
    ]


def _warnings(summary: OpenSummary, columns: list[Column]) -> list[str]:
    found = []
    for column in columns:
        for row in (summary.first, *((summary.chosen,) if summary.chosen != summary.first else ())):
            estimates = summary.cells[row, column.name].estimates
            if estimates["accuracy"].value < 0.1:
                found.append(
                    f"{row} is right in {number(estimates['accuracy'].value)} of the questions of "
                    f"{', '.join(column.domains)}. With so few right answers a lower Sem-ECE mostly says that the "
                    "answers vary more, and Sem1 cannot fall below 1 / number of samples."
                )
    return found


def open_glossary(summary: OpenSummary) -> tuple[tuple[str, str], ...]:
    """(term, explanation), with the settings that the report used."""
    d = summary.definitions
    n = d["n_samples"]
    return (
        (
            "Samples",
            f"Each question was answered {n} times, at temperature 1 over the whole vocabulary, each by itself. "
            "Adjusted: the distribution with the learned logit adjustment was sampled.",
        ),
        (
            "Class of meaning",
            f"Answers that mean the same. Rule of the headline figures: {d['rule']} (version {d['rules'][d['rule']]}): "
            "exact puts answers with one normal form of their first line together; nli those that entail each other in "
            "both directions; judge those that the judge takes for the same. Empty answers are a class each, refusals "
            "one class together.",
        ),
        (
            "Right",
            f"By the rule {d['grade']} with the normaliser {d['normaliser']}, against all accepted answers. A question "
            "counts as right where its largest class is; a class is right where more than half of its answers are. "
            "Ties of the largest class are drawn by the question's id.",
        ),
        (
            "Sem1 confidence",
            "The share of the largest class. It looks for the largest class and reads it in the same samples, so it is "
            "too high at small n, and never below 1 / n.",
        ),
        (
            "Sem2 confidence",
            "The largest class of one random half, its share read in the other half, mean over ten splits. It is not "
            "pushed up by the search.",
        ),
        (
            "Sem1-ECE, Sem2-ECE",
            f"The distance between such a confidence and the share of right answers, averaged over {d['n_bins']} bins "
            f"({d['bin_rule']}).",
        ),
        (
            "Semantic entropy",
            "-sum q ln q over classes, in nats: q from counts (by frequency), or from the probability of each distinct "
            "text that was sampled (by likelihood).",
        ),
        (
            "Refusals",
            f'Answers such as "I don\'t know" ({d["refusal"]}). In the main figures a refusal is wrong, so that a '
            "confident refusal is a confident error, as in the paper; the figures where answered leave out questions "
            "whose largest class is the refusals.",
        ),
        (
            "T of classes (rows + T)",
            "The reported confidence becomes n_1^(1/T) / sum n_k^(1/T); T gives the lowest Brier score on the "
            "calibration questions. Nothing is sampled anew. Classes that were not sampled are taken to have no "
            "probability.",
        ),
        (
            "T that calibrates the sampler",
            "The temperature at which new samples of the calibration questions have a mean Sem2 confidence equal to "
            "their accuracy, on a straight line over ln T between the temperatures that were sampled. It says that "
            "the means agree, not that every bin does.",
        ),
        (
            "Curve over n",
            f"Fewer of the stored samples, drawn without replacement {d['curve_repeats']} times; the error is averaged "
            f"over the draws. Bands: {d['curve_resamples']} resamples.",
        ),
        ("Risk and coverage", "The share of wrong answers when only the most confident questions are answered."),
        ("Intervals", f"{d['interval']}. {d['n_resamples']} resamples, seed {d['seed']}."),
        (
            "If calibrated",
            "Sem1-ECE when the grades are drawn from the row's own confidences: a value in this band is no evidence of "
            "miscalibration.",
        ),
    )


def open_notes(summary: OpenSummary) -> tuple[str, ...]:
    """How the numbers of the tables were found, in a few sentences."""
    d = summary.definitions
    return (
        f"{d['n_samples']} samples a question. In brackets: {d['interval']}; {d['n_resamples']} resamples, seed "
        f"{d['seed']}. {d['n_bins']} bins, {d['bin_rule']}.",
        f"Classes: {d['rule']}. Right: {d['grade']} ({d['normaliser']}). p: two-sided permutation test that exchanges "
        "the two rows question by question.",
    )
