"""CalmConfig: what one training run does, on top of transformers' TrainingArguments."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from transformers import TrainingArguments

from calmtune.data.prompts import PromptStyle

Method = Literal["calm", "sft", "label_smoothing", "cft", "rcft", "regularization", "iterate"]

# what a setting belongs to; with another method it would be ignored
BELONGS = (
    ("label_smoothing_factor", 0.0, ("label_smoothing",)),
    ("entropy_weight", 0.1, ("regularization",)),
    ("rcft_weight", 1.0, ("rcft",)),
    ("rcft_bins", 10, ("rcft",)),
)


def _option(default: object, text: str) -> object:
    return field(default=default, metadata={"help": text})


# transformers' arguments that this trainer could only ignore, with the value that they must keep
IGNORED = (
    ("torch_compile", False, "the step runs the trunk by itself, so compilation would be ignored"),
    (
        "train_sampling_strategy",
        "random",
        "the order of examples is fixed by seed and epoch, so that runs can be resumed",
    ),
    ("remove_unused_columns", False, "the collator needs every field of an example"),
)


@dataclass
class CalmConfig(TrainingArguments):
    """Arguments of :class:`calmtune.CalmTrainer`.

    Everything of ``transformers.TrainingArguments`` keeps its name and meaning. ``per_device_train_batch_size`` times
    ``gradient_accumulation_steps`` is the lower batch B_T; ``upper_batch_size`` is B_V. ``max_grad_norm`` clips theta
    only.

    Raises:
        ValueError: every value that cannot work, all in one message.

    Source: CALM (arXiv 2608.07419); BOME (Ye et al. 2022) for eta, inner_steps and the barrier.
    """

    method: Method = _option(  # noqa: RUF009 - _option gives a dataclass field
        "calm",
        "Training method: calm (bilevel); sft (cross-entropy), label_smoothing, cft (cross-entropy of the answer's "
        "tokens), rcft (cft with an ECE penalty by EM); regularization (entropy as a penalty of fixed weight), iterate "
        "(task and entropy steps in turn).",
    )  # type: ignore[assignment]
    level: Literal["auto", "options", "vocabulary"] = _option(  # type: ignore[assignment]
        "auto",
        "Distribution that is trained and calibrated: options (an item's own options), vocabulary (tokens at answer "
        "positions, the paper's form), or auto: options where the rows have options, else vocabulary.",
    )
    scoring: Literal["text", "letter"] = _option(  # type: ignore[assignment]
        "text",
        "How options are scored: letter (logits of A, B, ...; the paper's) or text (log-probability of each option's "
        "text; the one at which small models are above chance).",
    )
    normalisation: Literal["sum", "token", "byte"] = _option(  # type: ignore[assignment]
        "sum", "Text scores: sum of token log-probabilities, or their mean per token or per UTF-8 byte."
    )
    template: Literal["auto", "chat", "plain"] = _option(  # type: ignore[assignment]
        "auto",
        "Prompt template: the tokenizer's chat template, a plain one, or auto: chat where the tokenizer has one.",
    )
    system_prompt: str | None = _option(None, "System prompt for the chat template.")  # type: ignore[assignment]
    open_prompt: Literal["question", "short", "short_or_unknown", "examples"] = _option(  # type: ignore[assignment]
        "question",
        "What open questions are asked with: the question alone, a request for a short answer (short), one that also "
        'allows "I don\'t know" (short_or_unknown), or four answered questions before it (examples).',
    )
    open_target: Literal["first", "central"] = _option(  # type: ignore[assignment]
        "first",
        "Which accepted answer of an open question is trained on: the first, or the one that has most words in common "
        "with the others (central).",
    )
    max_length: int = _option(1024, "Longest allowed example in tokens; longer ones are refused by id, never cut.")  # type: ignore[assignment]

    adjustment: Literal["vector", "scalar", "none"] = _option(  # type: ignore[assignment]
        "vector", "alpha = (l, tau): one pair per class (vector), one pair for all (scalar), or none."
    )
    temperature_form: Literal["exp", "sigmoid"] = _option(  # type: ignore[assignment]
        "exp", "How tau is kept positive: tau = exp(rho), or 1/tau = sigmoid(d) (AutoBalance; can only soften)."
    )
    tau_max: float = _option(10.0, "Bound: tau stays within [1/tau_max, tau_max].")  # type: ignore[assignment]
    adjustment_start: Literal["identity", "calibrated"] = _option(  # type: ignore[assignment]
        "identity",
        "Where tau begins: at 1 (identity), or at the temperature that the calibration rows ask for before the first "
        "step (calibrated), so that theta has no overconfidence to unlearn where the training rows are.",
    )
    alpha_learning_rate: float = _option(0.01, "Learning rate of alpha.")  # type: ignore[assignment]
    alpha_optimizer: Literal["sgd", "adam"] = _option(  # type: ignore[assignment]
        "sgd", "Optimizer of alpha; adam moves rarely seen vocabulary entries at full rate."
    )

    upper_batch_size: int | None = _option(  # type: ignore[assignment]
        None, "Items of the upper batch B_V in one step; by default as many as in the lower batch."
    )
    upper_micro_batch_size: int | None = _option(  # type: ignore[assignment]
        None, "Items of B_V in one forward pass; by default per_device_train_batch_size."
    )
    upper_gradient: Literal["joint", "alpha"] = _option(  # type: ignore[assignment]
        "joint", "What follows the entropy gradient: alpha and theta (joint, BOME's form), or alpha alone."
    )
    entropy_positions: Literal["auto", "first", "response", "sample"] = _option(  # type: ignore[assignment]
        "auto",
        "At vocabulary level, where the entropy is read: the position after the prompt (first, needs no label), the "
        "answer's tokens (response), the tokens of an answer that the model itself samples at each step (sample, needs "
        "no label), or auto: first for letters and open questions, response for other texts.",
    )
    own_answer_tokens: int = _option(  # type: ignore[assignment]
        24, "entropy_positions: sample: most tokens of an answer; it ends earlier at a line's end."
    )
    entropy_target: float | None = _option(  # type: ignore[assignment]
        None,
        "Entropy in nats above which the upper level stops pushing (an item's entropy counts up to it); "
        "None: no target.",
    )
    eta: float | Literal["auto"] = _option(  # type: ignore[assignment]
        1.0,
        "BOME's eta: how fast the task loss must keep falling; larger protects the task more. auto: follows the "
        "overconfidence gap of the calibration split while training (see eta_control and what follows it).",
    )
    eta_control: Literal["barrier", "pull"] = _option(  # type: ignore[assignment]
        "barrier",
        "eta: auto moves eta itself (barrier; can hold entropy back, not take it away), or leaves eta at eta_start and "
        "multiplies the upper loss by eta_gain times the gap, within -1 and 1 (pull; works both ways).",
    )
    eta_gain: float = _option(10.0, "eta_control: pull: pull per gap; 10 pulls in full from a gap of .1 on.")  # type: ignore[assignment]
    eta_rows: Literal["calibration", "training"] = _option(  # type: ignore[assignment]
        "calibration",
        "Rows whose gap eta: auto follows: the calibration split's, or the training batches', each read before the "
        "step that trains on it (no held-out label is needed; from the second epoch on these gaps look too small).",
    )
    eta_start: float = _option(1.0, "eta: auto begins here.")  # type: ignore[assignment]
    eta_min: float = _option(0.5, "eta: auto goes no lower: the share of the task's own progress that a step keeps.")  # type: ignore[assignment]
    eta_max: float = _option(100.0, "eta: auto goes no higher.")  # type: ignore[assignment]
    eta_update_steps: int = _option(5, "eta: auto measures the gap and moves every this many steps.")  # type: ignore[assignment]
    eta_items: int = _option(64, "eta: auto measures on this many calibration items at a time, in turn.")  # type: ignore[assignment]
    eta_domains: Literal["pooled", "worst"] = _option(  # type: ignore[assignment]
        "pooled", "eta: auto closes the gap of all calibration items, or of the domain among them where it is largest."
    )
    eta_shuffled: float = _option(  # type: ignore[assignment]
        0.0,
        "eta: auto also reads calibration questions under the options of others, whose accuracy is chance by "
        "construction; their gap counts by this share (0 to 1), the labelled questions' gap by the rest. More of it "
        "leaves more room for a shift, and less confidence where the training rows are.",
    )
    entropy_weight: float = _option(0.1, "method: regularization: the entropy's fixed weight.")  # type: ignore[assignment]
    rcft_weight: float = _option(1.0, "method: rcft: weight of the ECE penalty.")  # type: ignore[assignment]
    rcft_bins: int = _option(10, "method: rcft: bins of the E-step.")  # type: ignore[assignment]

    selection_metric: Literal["nll", "brier", "conf_ece"] = _option(  # type: ignore[assignment]
        "nll",
        "What is lowest on the calibration split for what is chosen there: the distribution (raw or adjusted), its "
        "post-hoc scaling, and, with load_best_model_at_end, the checkpoint.",
    )
    selection_domains: Literal["pooled", "worst"] = _option(  # type: ignore[assignment]
        "pooled", "The metric over all calibration items, or of the domain among them where it is worst."
    )
    selection_accuracy_drop: float = _option(  # type: ignore[assignment]
        0.02, "What is chosen may have a calibration accuracy lower than at the start by at most this."
    )
    barrier: Literal["gradient", "residual"] = _option(  # type: ignore[assignment]
        "gradient", "phi = eta ||grad q||^2 (gradient) or eta q (residual)."
    )
    inner_steps: int = _option(1, "T: gradient steps from theta to the surrogate.")  # type: ignore[assignment]
    inner_learning_rate: float = _option(0.01, "a: step size of the surrogate, plain gradient descent.")  # type: ignore[assignment]

    max_bad_steps: int = _option(
        3, "Steps with a non-finite loss, norm or lambda after which the run ends with a checkpoint."
    )  # type: ignore[assignment]
    chunk_size: int | None = _option(
        None, "Positions whose vocabulary logits exist at once; by default about 4M logits."
    )  # type: ignore[assignment]

    # transformers' own, with the default that this trainer needs
    remove_unused_columns: bool = _option(False, "Kept off: the collator needs every field of an example.")  # type: ignore[assignment]
    report_to: str | list[str] | None = _option("none", "Trackers: none, tensorboard, trackio, wandb, ...")  # type: ignore[assignment]  # noqa: RUF009 - _option gives a dataclass field
    logging_steps: float = _option(10, "Log every this many steps.")  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.load_best_model_at_end and self.metric_for_best_model is None:
            self.metric_for_best_model = "selection_loss"
        if self.metric_for_best_model is not None and self.greater_is_better is None:
            # transformers takes more for better unless the name ends in "loss", and would keep the worst NLL
            self.greater_is_better = self.metric_for_best_model.removeprefix("eval_") == "accuracy"
        faults: list[str] = []
        try:
            super().__post_init__()
        except (ValueError, ImportError) as error:  # theirs stands beside ours, not before
            faults.append(str(error))
        faults += self._faults()
        if faults:
            raise ValueError("\n".join(faults))

    @property
    def has_upper_level(self) -> bool:
        """Whether the method raises the entropy on S_V, and so has an alpha."""
        return self.method in ("calm", "regularization", "iterate")

    @property
    def prompt_style(self) -> PromptStyle:
        """How questions are put to the model."""
        return PromptStyle(self.scoring, self.template, self.system_prompt, self.open_prompt, self.open_target)

    @property
    def method_level(self) -> str:
        """The level, where the method does not leave it open."""
        return {"cft": "vocabulary", "rcft": "options"}.get(self.method, self.level)

    @property
    def needs_calibration_rows(self) -> bool:
        """Whether labelled held-out rows are read while training."""
        by_loss = str(self.metric_for_best_model).removeprefix("eval_") in ("loss", "loss_raw")
        return (
            (self.load_best_model_at_end and not by_loss)
            or (self.method == "calm" and self.eta == "auto" and self.eta_rows == "calibration")
            or (self.has_upper_level and self.adjustment_start == "calibrated")
        )

    def _eta_faults(self) -> list[str]:
        """What is wrong with eta and its bounds."""
        if self.eta == "auto":
            if self.method != "calm":
                return [f"eta: auto belongs to method: calm, got method: {self.method}; give a number"]
            if self.eta_control == "pull" and not 0 < self.eta_gain < math.inf:
                return [f"eta_gain: expected a finite number > 0, got {self.eta_gain}"]
            if self.eta_rows == "training" and (self.level == "vocabulary" or self.eta_shuffled):
                return [
                    "eta_rows: training reads the options of the training rows; it needs level: options and "
                    "eta_shuffled: 0"
                ]
            if not 0 <= self.eta_shuffled < 1:
                return [f"eta_shuffled: expected a share from 0 to below 1, got {self.eta_shuffled}"]
            if self.eta_control == "barrier" and self.eta_gain != 10.0:
                return ["eta_gain: belongs to eta_control: pull; leave it at 10"]
            if not 0 < self.eta_min <= self.eta_start <= self.eta_max < math.inf:
                return [
                    "eta_min, eta_start, eta_max: expected 0 < eta_min <= eta_start <= eta_max, got "
                    f"{self.eta_min}, {self.eta_start}, {self.eta_max}"
                ]
            return []
        if isinstance(self.eta, str) or not 0 <= self.eta < math.inf:
            return [f"eta: expected a finite number >= 0 or auto, got {self.eta!r}"]
        defaults = {
            "control": "barrier",
            "rows": "calibration",
            "gain": 10.0,
            "start": 1.0,
            "min": 0.5,
            "max": 100.0,
            "update_steps": 5,
            "items": 64,
            "domains": "pooled",
            "shuffled": 0.0,
        }
        changed = [f"eta_{name}" for name, default in defaults.items() if getattr(self, f"eta_{name}") != default]
        return [f"{', '.join(changed)}: belongs to eta: auto, and eta is {self.eta}"] if changed else []

    def _warm_faults(self) -> list[str]:
        """What keeps tau from beginning at a fitted temperature."""
        name = "adjustment_start: calibrated"
        if not self.has_upper_level or self.adjustment == "none":
            return [f"{name} needs an adjustment (vector or scalar), and a method that has one"]
        if self.level == "vocabulary" and self.scoring == "text":
            return [
                f"{name}: a temperature of the options' scores is none of the vocabulary's; use level: options, or "
                "scoring: letter"
            ]
        return []

    def _faults(self) -> list[str]:
        """Every value that cannot work, one sentence each."""
        found: list[str] = []
        choices = {
            "method": get_args(Method),
            "level": ("auto", "options", "vocabulary"),
            "scoring": ("text", "letter"),
            "normalisation": ("sum", "token", "byte"),
            "template": ("auto", "chat", "plain"),
            "adjustment": ("vector", "scalar", "none"),
            "temperature_form": ("exp", "sigmoid"),
            "adjustment_start": ("identity", "calibrated"),
            "eta_control": ("barrier", "pull"),
            "eta_rows": ("calibration", "training"),
            "alpha_optimizer": ("sgd", "adam"),
            "upper_gradient": ("joint", "alpha"),
            "entropy_positions": ("auto", "first", "response", "sample"),
            "open_prompt": ("question", "short", "short_or_unknown", "examples"),
            "open_target": ("first", "central"),
            "barrier": ("gradient", "residual"),
            "eta_domains": ("pooled", "worst"),
            "selection_metric": ("nll", "brier", "conf_ece"),
            "selection_domains": ("pooled", "worst"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                found.append(f"{name}: expected one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        for name in ("alpha_learning_rate", "inner_learning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                found.append(f"{name}: expected a finite number > 0, got {getattr(self, name)}")
        for name in ("inner_steps", "max_bad_steps", "max_length", "eta_update_steps", "eta_items", "rcft_bins"):
            if getattr(self, name) < 1:
                found.append(f"{name}: expected a whole number >= 1, got {getattr(self, name)}")
        for name in ("per_device_train_batch_size", "gradient_accumulation_steps"):
            if getattr(self, name) < 1:
                found.append(f"{name}: expected a whole number >= 1, got {getattr(self, name)}")
        if self.max_steps == 0 or (self.max_steps < 0 and not self.num_train_epochs > 0):
            found.append(
                f"max_steps, num_train_epochs: {self.max_steps} and {self.num_train_epochs} train nothing; expected "
                "max_steps >= 1, or max_steps -1 and num_train_epochs > 0"
            )
        for name in ("upper_batch_size", "upper_micro_batch_size", "chunk_size"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                found.append(f"{name}: expected a whole number >= 1 or nothing, got {getattr(self, name)}")
        found += self._eta_faults()
        for name in ("entropy_weight", "rcft_weight", "selection_accuracy_drop"):
            if not 0 <= getattr(self, name) < math.inf:
                found.append(f"{name}: expected a finite number >= 0, got {getattr(self, name)}")
        if self.selection_accuracy_drop > 1:
            found.append(f"selection_accuracy_drop: expected a share from 0 to 1, got {self.selection_accuracy_drop}")
        for name, default, methods in BELONGS:
            if getattr(self, name) != default and self.method not in methods:
                found.append(f"{name}: belongs to method: {', '.join(methods)}; leave it at {default}")
        if not 0 <= self.label_smoothing_factor < 1:
            found.append(f"label_smoothing_factor: expected a number in [0, 1), got {self.label_smoothing_factor}")
        if self.method == "cft" and self.level == "options":
            found.append(
                "level: cft is the cross-entropy of the answer's tokens under the vocabulary; set level: vocabulary, "
                "or method: sft for the cross-entropy over the options"
            )
        if self.method == "rcft" and self.level == "vocabulary":
            found.append("level: rcft needs the confidence over each item's options; set level: options")
        if not 1 < self.tau_max < math.inf:
            found.append(f"tau_max: expected a finite number > 1, got {self.tau_max}")
        if self.entropy_target is not None and not 0 < self.entropy_target < math.inf:
            found.append(f"entropy_target: expected a finite number > 0 or nothing, got {self.entropy_target}")
        for name, kept, why in IGNORED:
            if getattr(self, name, kept) != kept:
                found.append(f"{name}: {why}; leave it at {kept}")
        if self.scoring == "letter" and self.normalisation != "sum":
            found.append("normalisation: letters are one token each; leave it at sum, or use scoring: text")
        if self.entropy_positions != "auto" and self.level == "options":
            found.append(
                "entropy_positions: belongs to level: vocabulary; at level: options the entropy is that of each item's "
                "options; leave it at auto"
            )
        if self.own_answer_tokens < 1:
            found.append(f"own_answer_tokens: expected a whole number >= 1, got {self.own_answer_tokens}")
        elif self.own_answer_tokens != 24 and self.entropy_positions != "sample":
            found.append("own_answer_tokens: belongs to entropy_positions: sample; leave it at 24")
        if self.upper_gradient == "alpha" and self.method in ("regularization", "iterate"):
            found.append(f"upper_gradient: alpha belongs to method: calm; {self.method} moves theta with the entropy")
        if str(self.metric_for_best_model).removeprefix("eval_") == "gap":
            found.append(
                "metric_for_best_model: the gap is best at 0 and not at an end; use conf_ece or selection_loss"
            )
        if self.adjustment_start == "calibrated":
            found += self._warm_faults()
        if self.has_upper_level and self.adjustment == "none" and self.upper_gradient == "alpha":
            found.append(
                "upper_gradient: alpha needs an adjustment (vector or scalar); with none nothing would follow "
                "the entropy"
            )
        if self.fp16:
            found.append(
                "fp16: the scaler of half-precision training is not supported, because lambda needs unscaled "
                "gradients; use bf16: true, or leave both off"
            )
        if self.deepspeed:
            found.append(
                "deepspeed: not supported, because ZeRO hides the gradients that lambda is made of; use "
                "accelerate without it"
            )
        return found
