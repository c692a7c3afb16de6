"""Made-up rows, and trainers of tiny models on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from transformers import TrainerCallback

from calmtune.training.arguments import CalmConfig
from calmtune.training.trainer import CalmTrainer
from tiny import CHAT, WORDS, tiny_llama, word_tokenizer

WALL_CLOCK = {"train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos"}


class StopAfter(TrainerCallback):
    """Interrupts training after a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise KeyboardInterrupt


def questions(count: int, seed: int, options: int = 4) -> list[dict[str, Any]]:
    """Multiple-choice rows over the words of the test tokenizer; options of one to three words."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for index in range(count):
        words = [WORDS[i] for i in torch.randint(0, len(WORDS), (40,), generator=generator).tolist()]
        choices: list[str] = []
        while len(choices) < options:
            length = 1 + len(words) % 3
            text = " ".join(words.pop() for _ in range(length))
            if text not in choices:
                choices.append(text)
        rows.append(
            {
                "id": f"q{seed}-{index}",
                "question": f"{words[0]} {words[1]} {words[2]} ?",
                "choices": choices,
                "label": index % options,
            }
        )
    return rows


def instructions(count: int, seed: int) -> list[dict[str, Any]]:
    """Instruction rows with answers of one to seven words."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for index in range(count):
        words = [WORDS[i] for i in torch.randint(0, len(WORDS), (12,), generator=generator).tolist()]
        rows.append(
            {
                "id": f"i{seed}-{index}",
                "instruction": " ".join(words[:4]) + f" {WORDS[seed]}",
                "output": " ".join(words[5 : 6 + index % 7]),
            }
        )
    return rows


def trainer(
    folder: Path,
    *,
    train: list[dict[str, Any]] | None = None,
    upper: list[dict[str, Any]] | None = None,
    evaluation: list[dict[str, Any]] | None = None,
    calibration: list[dict[str, Any]] | None = None,
    lora: dict[str, Any] | None = None,
    model: Any = None,
    callbacks: Any = None,
    base_seed: int = 0,
    **arguments: Any,
) -> CalmTrainer:
    """A trainer of a tiny random Llama on made-up rows, on the CPU, saving nothing unless told to."""
    tokenizer = word_tokenizer(chat_template=CHAT)
    settings: dict[str, Any] = {
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        **arguments,
    }
    torch.manual_seed(1)
    return CalmTrainer(
        model or tiny_llama(len(tokenizer), seed=base_seed),
        CalmConfig(str(folder), **settings),
        train_dataset=questions(16, 1) if train is None else train,
        upper_dataset=questions(12, 2) if upper is None else upper,
        eval_dataset=evaluation,
        calibration_dataset=calibration,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            **{"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **(lora or {})}
        ),
        callbacks=callbacks,
    )


def shake(made: CalmTrainer, seed: int = 3) -> CalmTrainer:
    """Move LoRA's B and alpha off their zeros, so that every gradient is generic."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made._theta():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
        for parameter in made.adjustment.parameters() if made.adjustment is not None else ():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return made
