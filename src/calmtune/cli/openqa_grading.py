"""Stored samples to graded answers: grades, refusals, and classes of meaning by every rule that is at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calmtune.config_scoring import EvaluationSettings
from calmtune.graded import GradedAnswers, GradedQuestion
from calmtune.grading import (
    NORMALISER,
    PROMPT_VERSION,
    REFUSAL_VERSION,
    SQUAD_NORMALISER,
    Clusters,
    JudgeItem,
    Sampled,
    exact_clusters,
    first_line,
    grade,
    is_refusal,
    judge,
    load_entailment_model,
    nli_clusters,
)
from calmtune.grading.cluster import EXACT_VERSION, NLI_VERSION
from calmtune.grading.match import RULE_VERSION
from calmtune.samples import AnswerSamples, SampledAnswers

# (question, pairs of answers) to whether the first says what the second says
SaysSame = Callable[[str, Sequence[tuple[str, str]]], list[bool]]


@dataclass(frozen=True)
class Grader:
    """Grades samples by the rules of the settings.

    Args:
        how: the rules. cache: folder for the decisions of models, which are asked once.
        entails: the entailment model, where ``class_rule`` is ``nli``.
        judge_all: verdicts of judge items, where a judge is asked.
    """

    how: EvaluationSettings
    entails: Any = None
    judge_all: Callable[[Sequence[JudgeItem]], list[Any]] | None = None

    def grade(self, sampled: SampledAnswers) -> GradedAnswers:
        """Classes, grades and refusals of all samples of one file."""
        refused = [tuple(is_refusal(text, item.answers) for text in item.texts) for item in sampled]
        correct, refused = self._correct(sampled, refused)
        rules: dict[str, list[Clusters]] = {}
        for clusters in self._classes(sampled, refused):
            rules.setdefault(_name(clusters[0]), clusters)
        meta = {
            "rule": next(iter(rules)),
            "rules": {rule: clusters[0].version for rule, clusters in rules.items()},
            **about_grades(self.how, sampled),
        }
        items = tuple(
            _graded(item, {rule: clusters[i].ids for rule, clusters in rules.items()}, correct[i], refused[i])
            for i, item in enumerate(sampled)
        )
        return GradedAnswers(items, meta)

    def _classes(self, sampled: SampledAnswers, refused: Sequence[tuple[bool, ...]]) -> list[list[Clusters]]:
        """The chosen rule first, then the exact rule with each normaliser."""
        items = [Sampled(item.question, item.texts, flags) for item, flags in zip(sampled, refused, strict=True)]
        found = []
        if self.how.class_rule == "nli":
            found.append(nli_clusters(items, self.entails, normaliser=self.how.normaliser))
        elif self.how.class_rule == "judge":
            found.append([self._judged_classes(item) for item in items])
        others = [name for name in (NORMALISER, SQUAD_NORMALISER) if name != self.how.normaliser]
        for name in (self.how.normaliser, *others):
            found.append([exact_clusters(item.answers, refused=item.refused, normaliser=name) for item in items])
        return found

    def _judged_classes(self, item: Sampled) -> Clusters:
        """Answers are of one class where the judge takes each for right when the other is the accepted one."""

        def entails(pairs: Sequence[tuple[str, str]]) -> list[bool]:
            asked = [JudgeItem(item.question, item.question, said, (accepted,)) for accepted, said in pairs]
            return [verdict.correct for verdict in self._judge(asked)]

        # the question is in the judge's item, so it stays out of the compared texts
        (found,) = nli_clusters([replace(item, question="")], entails, normaliser=self.how.normaliser)
        return replace(found, rule="judge", version=f"{PROMPT_VERSION}/{self.how.normaliser}")

    def _correct(
        self, sampled: SampledAnswers, refused: Sequence[tuple[bool, ...]]
    ) -> tuple[list[tuple[bool, ...]], list[tuple[bool, ...]]]:
        """Grades, and refusals, to which a judge may add."""
        if self.how.grade_rule != "judge":
            rule, form = self.how.grade_rule, self.how.normaliser
            grades = [
                tuple(
                    not refusal and grade(text, item.answers, rule, form).correct
                    for text, refusal in zip(item.texts, flags, strict=True)
                )
                for item, flags in zip(sampled, refused, strict=True)
            ]
            return grades, list(refused)
        asked = {
            (item.id, line): JudgeItem(item.id, item.question, line, item.answers)
            for item, flags in zip(sampled, refused, strict=True)
            for text, refusal in zip(item.texts, flags, strict=True)
            if not refusal and (line := first_line(text))
        }
        said = {key: one.verdict for key, one in zip(asked, self._judge(list(asked.values())), strict=True)}
        verdicts = [[said.get((item.id, first_line(text)), "") for text in item.texts] for item in sampled]
        right = [
            tuple(verdict == "CORRECT" and not refusal for verdict, refusal in zip(row, flags, strict=True))
            for row, flags in zip(verdicts, refused, strict=True)
        ]
        declined = [
            tuple(verdict == "NOT_ATTEMPTED" or refusal for verdict, refusal in zip(row, flags, strict=True))
            for row, flags in zip(verdicts, refused, strict=True)
        ]
        return right, declined

    def _judge(self, items: Sequence[JudgeItem]) -> list[Any]:
        assert self.judge_all is not None, "the settings ask for a judge"
        return self.judge_all(items)


def about_grades(how: EvaluationSettings, sampled: SampledAnswers) -> dict[str, Any]:
    """What decides the grades of these samples, as JSON values: settings, versions of the rules, and the samples."""
    models = {"nli": how.nli_model, "judge": how.judge_model if how.asks_judge else None}
    return {
        "class_rule": how.class_rule,
        "grade": how.grade_rule,
        "normaliser": how.normaliser,
        "versions": [EXACT_VERSION, NLI_VERSION, RULE_VERSION, PROMPT_VERSION],
        "refusal": REFUSAL_VERSION,
        "models": {name: model for name, model in models.items() if model},
        "samples": dict(sampled.meta),
    }


def make_grader(how: EvaluationSettings, cache: Path) -> Grader:
    """The grader of the settings, with its models; what they decide is kept in ``cache``.

    Raises:
        ValueError: a model that cannot be loaded, or a cache of another model.
    """
    entails = judge_all = None
    if how.class_rule == "nli":
        entails = load_entailment_model(str(how.nli_model), cache=cache / "entailment.jsonl")
    if how.asks_judge:
        from calmtune.grading import Endpoint

        endpoint = Endpoint(str(how.judge_url), str(how.judge_model), api_key_env=how.judge_key_env)

        def judge_all(items: Sequence[JudgeItem]) -> list[Any]:
            return judge(items, endpoint, cache=cache / "verdicts.jsonl")

    return Grader(how, entails, judge_all)


def _name(clusters: Clusters) -> str:
    """Rule and normaliser: ``exact/calmtune-1``."""
    return f"{clusters.rule}/{clusters.version.partition('/')[2]}"


def _graded(
    item: AnswerSamples, classes: dict[str, tuple[int, ...]], correct: tuple[bool, ...], refused: tuple[bool, ...]
) -> GradedQuestion:
    known = all(sample.log_probability is not None for sample in item.samples)
    return GradedQuestion(
        id=item.id,
        domain=item.domain,
        question=item.question,
        accepted=item.answers,
        texts=item.texts,
        classes=classes,
        correct=correct,
        refused=refused,
        log_probabilities=item.log_probabilities() if known else (),
    )
