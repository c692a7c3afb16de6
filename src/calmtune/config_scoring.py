"""The settings by which a run is scored: bins and resamples, how answers are sampled, and how they are graded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal


def setting(
    default: Any, text: str, *, low: float | None = None, high: float | None = None, below: float | None = None
) -> Any:
    """A dataclass field with its description and the range of its numbers; ``below`` is not in it."""
    return field(default=default, metadata={"help": text, "low": low, "high": high, "below": below})


@dataclass(frozen=True)
class EvaluationSettings:
    """How a trained run is scored; what is read, and how, is set by the trainer's arguments, so that both agree."""

    score_batch_tokens: int | None = setting(
        None, "Tokens of one scoring batch; none finds it for the device. Changes speed and memory alone.", low=1
    )
    n_bins: int = setting(10, "Bins of the binned calibration errors.", low=1)
    n_resamples: int = setting(1000, "Bootstrap resamples behind each interval.", low=10)
    sample_batch_rows: int = setting(
        64, "Open questions: answers sampled at once; changes speed and memory, not what is meant.", low=1
    )
    class_rule: Literal["exact", "nli", "judge"] = setting(
        "exact",
        "Open questions: which answers mean the same: equal normal forms (exact), entailment in both directions by "
        "nli_model (nli), or the judge in both directions (judge).",
    )
    grade_rule: Literal["exact", "containment", "judge"] = setting(
        "exact",
        "Open questions: which answers are right: the first line equals an accepted answer (exact), contains one "
        "(containment), or the judge says so (judge).",
    )
    normaliser: Literal["calmtune-1", "squad-1.1"] = setting(
        "calmtune-1", "Open questions: the form in which two answers are compared."
    )
    nli_model: str | None = setting(None, "class_rule: nli: hub name or folder of the entailment model.")
    judge_url: str | None = setting(None, "The judge's OpenAI-compatible address, up to /chat/completions.")
    judge_model: str | None = setting(None, "The judge's name at that address.")
    judge_key_env: str | None = setting(None, "Environment variable that holds the judge's key, if it needs one.")

    def faults(self) -> Iterator[str]:
        """What is wrong with these settings."""
        if self.class_rule == "nli" and not self.nli_model:
            yield "nli_model: class_rule: nli needs an entailment model; give its hub name or folder"
        if self.asks_judge and not (self.judge_url and self.judge_model):
            yield "judge_url, judge_model: class_rule or grade_rule is judge; give the judge's address and its name"
        if self.nli_model and self.class_rule != "nli":
            yield "nli_model: belongs to class_rule: nli; set that, or leave it out"
        if (self.judge_url or self.judge_model or self.judge_key_env) and not self.asks_judge:
            yield "judge_url, judge_model, judge_key_env: belong to class_rule or grade_rule: judge; leave them out"

    @property
    def asks_judge(self) -> bool:
        """Whether a judge is needed."""
        return "judge" in (self.class_rule, self.grade_rule)


@dataclass(frozen=True)
class SampleSettings:
    """How answers to open questions are sampled; multiple choice is not sampled, and ignores these."""

    n_samples: int = setting(10, "Answers sampled for each open question; 50 is the paper's number.", low=2)
    max_new_tokens: int = setting(24, "Most tokens of a sampled answer.", low=1)
    stop_at_line_end: bool = setting(True, "A sampled answer ends where its first line does.")
    sampling_seed: int = setting(0, "Seed of the sampled answers; each belongs to (seed, id, number).", low=0)
    temperature_grid: tuple[float, ...] = setting(
        (),
        "Temperatures at which the calibration questions are sampled too, e.g. 0.5, 0.7, 1.4: among them and 1 the "
        "report looks for the one that calibrates the sampler.",
    )

    def faults(self) -> Iterator[str]:
        """What is wrong with these settings."""
        grid = self.temperature_grid
        if not all(0.01 <= value <= 100 for value in grid) or len(set(grid)) < len(grid) or 1.0 in grid:
            yield (
                f"temperature_grid: expected different numbers from 0.01 to 100 without 1, which is sampled anyway, "
                f"got {list(grid)}"
            )
