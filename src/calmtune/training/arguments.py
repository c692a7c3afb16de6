"""CalmConfig: what one training run does, on top of transformers' TrainingArguments."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from transformers import TrainingArguments


def _option(default: object, text: str) -> object:
    return field(default=default, metadata={"help": text})


# transformers' arguments that this trainer could only ignore, with the value that they must keep
IGNORED = (
    ("label_smoothing_factor", 0.0, "label smoothing is not offered yet, and would be ignored"),
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

    method: Literal["calm", "sft"] = _option("calm", "Training method: calm (bilevel), or sft (plain cross-entropy).")  # type: ignore[assignment]
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
    max_length: int = _option(1024, "Longest allowed example in tokens; longer ones are refused by id, never cut.")  # type: ignore[assignment]

    adjustment: Literal["vector", "scalar", "none"] = _option(  # type: ignore[assignment]
        "vector", "alpha = (l, tau): one pair per class (vector), one pair for all (scalar), or none."
    )
    temperature_form: Literal["exp", "sigmoid"] = _option(  # type: ignore[assignment]
        "exp", "How tau is kept positive: tau = exp(rho), or 1/tau = sigmoid(d) (AutoBalance; can only soften)."
    )
    tau_max: float = _option(10.0, "Bound: tau stays within [1/tau_max, tau_max].")  # type: ignore[assignment]
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
    entropy_positions: Literal["auto", "first", "response"] = _option(  # type: ignore[assignment]
        "auto",
        "At vocabulary level, where the entropy is read: the position after the prompt (first, needs no label), the "
        "answer's tokens (response), or auto: first for letters, response for texts.",
    )
    entropy_target: float | None = _option(  # type: ignore[assignment]
        None,
        "Entropy in nats above which the upper level stops pushing (an item's entropy counts up to it); "
        "None: no target.",
    )
    eta: float = _option(1.0, "BOME's eta: how fast the task loss must keep falling; larger protects the task more.")  # type: ignore[assignment]
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
        super().__post_init__()
        faults = [fault for fault in self._faults() if fault]
        if faults:
            raise ValueError("\n".join(faults))

    def _faults(self) -> list[str]:
        """Every value that cannot work, one sentence each."""
        found: list[str] = []
        choices = {
            "method": ("calm", "sft"),
            "level": ("auto", "options", "vocabulary"),
            "scoring": ("text", "letter"),
            "normalisation": ("sum", "token", "byte"),
            "template": ("auto", "chat", "plain"),
            "adjustment": ("vector", "scalar", "none"),
            "temperature_form": ("exp", "sigmoid"),
            "alpha_optimizer": ("sgd", "adam"),
            "upper_gradient": ("joint", "alpha"),
            "entropy_positions": ("auto", "first", "response"),
            "barrier": ("gradient", "residual"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                found.append(f"{name}: expected one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        for name in ("alpha_learning_rate", "inner_learning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                found.append(f"{name}: expected a finite number > 0, got {getattr(self, name)}")
        for name in ("inner_steps", "max_bad_steps", "max_length"):
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
        if not 0 <= self.eta < math.inf:
            found.append(f"eta: expected a finite number >= 0, got {self.eta}")
        if not 1 < self.tau_max < math.inf:
            found.append(f"tau_max: expected a finite number > 1, got {self.tau_max}")
        if self.entropy_target is not None and not 0 < self.entropy_target < math.inf:
            found.append(f"entropy_target: expected a finite number > 0 or nothing, got {self.entropy_target}")
        for name, kept, why in IGNORED:
            if getattr(self, name, kept) != kept:
                found.append(f"{name}: {why}; leave it at {kept}")
        if self.scoring == "letter" and self.normalisation != "sum":
            found.append("normalisation: letters are one token each; leave it at sum, or use scoring: text")
        if self.method == "calm" and self.adjustment == "none" and self.upper_gradient == "alpha":
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
