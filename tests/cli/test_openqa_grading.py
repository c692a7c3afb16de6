"""From samples to grades: which answers are right, which decline, and which mean the same."""

from types import SimpleNamespace

import pytest

from calmtune.cli.openqa_grading import Grader, about_grades, make_grader
from calmtune.config_scoring import EvaluationSettings
from calmtune.samples import AnswerSamples, Sample, SampledAnswers

PARIS = ("Paris.", "the paris", "Lyon", "I don't know", "", "Paris\nQ: and?", "Not sure")


def sampled(texts=PARIS, answers=("Paris", "City of Light"), log_probability=-1.0):
    items = tuple(Sample(text, log_probability, 3, "eos") for text in texts)
    return SampledAnswers((AnswerSamples("q", "d", "Capital of France?", answers, items),), {"seed": 0})


def graded(texts=PARIS, grader=None, **how):
    return (grader or Grader(EvaluationSettings(**how))).grade(sampled(texts))


def test_grades_refusals_and_classes_by_exact_match():
    found = graded()
    (item,) = found
    assert item.correct == (True, True, False, False, False, True, False)
    assert item.refused == (False, False, False, True, False, False, True)
    assert item.classes["exact/calmtune-1"] == (0, 0, 1, 2, 3, 0, 2)
    assert found.rule == "exact/calmtune-1"
    assert list(found.meta["rules"]) == ["exact/calmtune-1", "exact/squad-1.1"]
    assert item.log_probabilities == (-1.0,) * 7


def test_the_other_normaliser_by_name():
    found = graded(("-5", "5", "3.14"), normaliser="squad-1.1")
    assert found.rule == "exact/squad-1.1"
    assert found[0].classes == {"exact/squad-1.1": (0, 0, 1), "exact/calmtune-1": (0, 1, 2)}


def test_containment_by_name_never_makes_a_refusal_right():
    (item,) = graded(("It is Paris", "I don't know if it is Paris", "Lyon"), grade_rule="containment")
    assert item.correct == (True, False, False)
    assert item.refused == (False, True, False)


def test_an_entailment_model_joins_what_entails_both_ways():
    said = []

    def entails(pairs):
        said.extend(pairs)
        return [{"Paris", "City of Light"} == {a.split("? ")[-1], b.split("? ")[-1]} for a, b in pairs]

    how = EvaluationSettings(class_rule="nli", nli_model="m")
    found = graded(("Paris", "City of Light", "Lyon"), Grader(how, entails))
    assert found.rule == "nli/calmtune-1"
    assert found[0].classes["nli/calmtune-1"] == (0, 0, 1)
    assert found[0].classes["exact/calmtune-1"] == (0, 1, 2)
    assert found.meta["models"] == {"nli": "m"}
    assert all(premise.startswith("Capital of France? ") for premise, _ in said)


def judge_that(says):
    """A judge with a fixed verdict for (accepted answers, answer)."""

    def judge_all(items):
        return [SimpleNamespace(verdict=v, correct=v == "CORRECT") for v in (says(i.aliases, i.answer) for i in items)]

    return judge_all


def test_a_judge_grades_each_distinct_line_once():
    asked = []

    def says(accepted, answer):
        asked.append(answer)
        return {"Paris": "CORRECT", "Paree": "CORRECT", "Hm": "NOT_ATTEMPTED"}.get(answer, "INCORRECT")

    how = EvaluationSettings(grade_rule="judge", judge_url="http://x", judge_model="j")
    (item,) = graded(("Paree", "Paree\nmore", "Lyon", "Hm", "", "I don't know"), Grader(how, None, judge_that(says)))
    assert sorted(asked) == ["Hm", "Lyon", "Paree"]
    assert item.correct == (True, True, False, False, False, False)
    assert item.refused == (False, False, False, True, False, True)


def test_a_judge_as_class_rule_is_asked_both_ways():
    asked = []

    def says(accepted, answer):
        asked.append((accepted[0], answer))
        return "CORRECT" if {accepted[0], answer} == {"Paris", "Paree"} or answer == "Lyon" else "INCORRECT"

    how = EvaluationSettings(class_rule="judge", judge_url="http://x", judge_model="j")
    found = graded(("Paris", "Paree", "Lyon"), Grader(how, None, judge_that(says)))
    assert found[0].classes["judge/calmtune-1"] == (0, 0, 1)  # Lyon passes one way only
    assert ("Paris", "Paree") in asked
    assert ("Paree", "Paris") in asked
    assert found.meta["rules"]["judge/calmtune-1"] == "judge-1/calmtune-1"


def test_samples_without_likelihoods_are_graded_too():
    found = Grader(EvaluationSettings()).grade(sampled(log_probability=None))
    assert found[0].log_probabilities == ()


def test_what_decides_grades_is_told():
    samples = sampled()
    base = about_grades(EvaluationSettings(), samples)
    others = (EvaluationSettings(grade_rule="containment"), EvaluationSettings(normaliser="squad-1.1"),
              EvaluationSettings(class_rule="nli", nli_model="m"))  # fmt: skip
    assert all(about_grades(how, samples) != base for how in others)
    assert about_grades(EvaluationSettings(n_bins=3, n_resamples=10), samples) == base


def test_the_exact_rule_needs_no_model(tmp_path):
    grader = make_grader(EvaluationSettings(), tmp_path / "decisions")
    assert grader.entails is grader.judge_all is None
    assert not (tmp_path / "decisions").exists()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"class_rule": "nli"}, "nli_model: class_rule: nli needs"),
        ({"grade_rule": "judge"}, "give the judge's address and its name"),
        ({"class_rule": "judge", "judge_url": "http://x"}, "give the judge's address and its name"),
        ({"nli_model": "m"}, "belongs to class_rule: nli"),
        ({"judge_model": "m"}, "belong to class_rule or grade_rule: judge"),
    ],
)
def test_settings_that_contradict_each_other(how, message):
    assert any(message in fault for fault in EvaluationSettings(**how).faults())
