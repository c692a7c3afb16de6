"""Calibration as metrics of lm-eval: for a task's YAML file, or added to a task in Python.

lm-eval keeps its own accuracy; these functions add conf-ECE, cw-ECE, NLL and the overconfidence gap of the softmax over
the options' log-likelihoods. In a task's folder, ``utils.py`` holds ::

    from calmtune.harness import calibration_results

    process_results = calibration_results(lambda doc: doc["answer"])

and its YAML file ::

    output_type: multiple_choice
    process_results: !function utils.process_results
    metric_list:
      - {metric: acc, aggregation: mean, higher_is_better: true}
      - {metric: conf_ece, aggregation: !function calmtune.harness.conf_ece, higher_is_better: false}
      - {metric: cw_ece, aggregation: !function calmtune.harness.cw_ece, higher_is_better: false}
      - {metric: nll, aggregation: !function calmtune.harness.nll, higher_is_better: false}
      - {metric: overconfidence, aggregation: !function calmtune.harness.overconfidence, higher_is_better: false}

:func:`add_calibration` does the same to a task that is already there, without a file. lm-eval computes standard errors
for metrics of its own only; for intervals and diagrams let ``calmtune evaluate --predictions`` read its logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from calmtune import metrics

Outcome = tuple[float, bool]
Distribution = tuple[Sequence[float], int]

N_BINS = 10


def conf_ece(items: Iterable[Outcome]) -> float:
    """Confidence ECE of (confidence, correct) pairs; see :func:`calmtune.metrics.expected_calibration_error`.

    >>> conf_ece([(0.75, True), (0.75, False)])
    0.25
    """
    return metrics.expected_calibration_error(*_outcomes(items), N_BINS)


def overconfidence(items: Iterable[Outcome]) -> float:
    """Mean confidence minus accuracy of (confidence, correct) pairs.

    >>> overconfidence([(0.75, True), (0.75, False)])
    0.25
    """
    return metrics.overconfidence_gap(*_outcomes(items))


def cw_ece(items: Iterable[Distribution]) -> float:
    """Class-wise ECE of (probabilities, right option) pairs; see :func:`calmtune.metrics.classwise_ece`.

    >>> cw_ece([([0.75, 0.25], 0), ([0.75, 0.25], 1)])
    0.25
    """
    table, labels, n_options = _distributions(items)
    return metrics.classwise_ece(table, labels, N_BINS, n_options)


def nll(items: Iterable[Distribution]) -> float:
    """Mean negative log-likelihood in nats of (probabilities, right option) pairs.

    >>> round(nll([([0.75, 0.25], 0), ([0.75, 0.25], 1)]), 4)
    0.837
    """
    table, labels, _ = _distributions(items)
    return metrics.negative_log_likelihood(table, labels)


AGGREGATIONS: Mapping[str, Callable[[Iterable[Any]], float]] = {
    "conf_ece": conf_ece,
    "cw_ece": cw_ece,
    "nll": nll,
    "overconfidence": overconfidence,
}


def calibration_results(gold: Callable[[Mapping[str, Any]], int]) -> Callable[[Any, Any], dict[str, Any]]:
    """A ``process_results`` for a multiple-choice task: accuracy and what the aggregations above take.

    Args:
        gold: the right option's index, from the task's document.

    Example:
        >>> process = calibration_results(lambda doc: doc["answer"])
        >>> found = process({"answer": 1}, [(-1.0, False), (-1.0, True)])
        >>> found["acc"], found["conf_ece"], found["nll"]
        (0.0, (0.5, False), ([0.5, 0.5], 1))
    """

    def process_results(doc: Any, results: Any) -> dict[str, Any]:
        likelihoods = [float(likelihood) for likelihood, _ in results]
        found = measure(likelihoods, gold(doc))
        return {"acc": float(found["conf_ece"][1]), **found}

    return process_results


def measure(likelihoods: Sequence[float], label: int) -> dict[str, Any]:
    """What the aggregations take, from one question's log-likelihoods; a tie is the first option's, as in lm-eval.

    Raises:
        ValueError: fewer than two options, or a label outside them.
    """
    if len(likelihoods) < 2:
        raise ValueError(f"expected the log-likelihoods of at least two options, got {len(likelihoods)}")
    if isinstance(label, bool) or not isinstance(label, int | np.integer) or not 0 <= label < len(likelihoods):
        raise ValueError(f"the right option is {label!r}; expected an index from 0 to {len(likelihoods) - 1}")
    scores = np.asarray(likelihoods, dtype=np.float64)
    p = metrics.softmax(scores[None])[0]
    outcome = (float(p[scores.argmax()]), bool(scores.argmax() == label))
    distribution = (p.tolist(), int(label))
    return {"conf_ece": outcome, "overconfidence": outcome, "cw_ece": distribution, "nll": distribution}


def add_calibration(task: Any) -> Any:
    """Let a multiple-choice task of lm-eval also report conf-ECE, cw-ECE, NLL and the overconfidence gap.

    Its own metrics stay as they are. Use it on the tasks that ``TaskManager().load([...])`` gives under ``"tasks"``,
    before ``lm_eval.evaluator.evaluate``.

    Args:
        task: an ``lm_eval.api.task.ConfigurableTask`` with ``output_type: multiple_choice``.

    Returns:
        The same task.

    Raises:
        ValueError: it is of another kind, or its questions are in the options' place (``multiple_input``); and while
            it runs, where a question has several right options, or one that is not among its options.
    """
    if task.OUTPUT_TYPE != "multiple_choice":
        raise ValueError(f"expected a task of output_type multiple_choice, got {task.OUTPUT_TYPE!r}: no options")
    if getattr(task, "multiple_input", 0):
        raise ValueError("this task scores one continuation after several questions; its right option has no index")
    own_results, own_aggregation, own_better = task.process_results, task.aggregation, task.higher_is_better

    def process_results(doc: Any, results: Any) -> dict[str, Any]:
        options = task.doc_to_choice(doc)
        # with mutual information the same options without the question follow
        likelihoods = [float(likelihood) for likelihood, _ in results][: len(options)]
        gold = task.doc_to_target(doc)
        label = options.index(gold) if isinstance(gold, str) and gold in options else gold
        return {**own_results(doc, results), **measure(likelihoods, label)}

    task.process_results = process_results
    task.aggregation = lambda: {**own_aggregation(), **AGGREGATIONS}
    task.higher_is_better = lambda: {**own_better(), **dict.fromkeys(AGGREGATIONS, False)}
    return task


def _outcomes(items: Iterable[Outcome]) -> tuple[Any, Any]:
    pairs = list(items)
    return np.array([float(c) for c, _ in pairs]), np.array([bool(o) for _, o in pairs])


def _distributions(items: Iterable[Distribution]) -> tuple[Any, Any, Any]:
    pairs = list(items)
    table = np.zeros((len(pairs), max(len(p) for p, _ in pairs)))
    for place, (p, _) in enumerate(pairs):
        table[place, : len(p)] = p
    return table, np.array([label for _, label in pairs]), np.array([len(p) for p, _ in pairs])
