"""What the processes of the distributed tests do; each function runs in every process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from calmtune.training.processes import checksum
from toy_training import WALL_CLOCK, StopAfter, questions, trainer

# 9 examples make a step of 8 and one of 1, for which the second process has none
ROWS = {"train": 9, "upper": 7, "calibration": 11}
SETTINGS: dict[str, Any] = {
    "max_steps": 10,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "upper_batch_size": 5,
    "learning_rate": 1e-3,
}


def make(folder: str, effective: int, **changes: Any) -> Any:
    """A trainer whose step has ``effective`` micro-batches of two, over however many processes there are."""
    settings = {**SETTINGS, "gradient_accumulation_steps": effective // world(), **changes}
    rows = {name: questions(size, seed) for seed, (name, size) in enumerate(ROWS.items(), start=1)}
    if not settings.pop("calibrated", False):
        rows.pop("calibration")
    else:
        rows["evaluation"] = questions(5, 9)
    return trainer(Path(folder), **{**rows, **settings})


def world() -> int:
    """Processes as the launcher says."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def history(made: Any) -> list[dict[str, float]]:
    """What was logged, but for wall-clock times."""
    return [
        {key: value for key, value in record.items() if key not in WALL_CLOCK and "second" not in key}
        for record in made.state.log_history
    ]


def parameters(made: Any) -> list[torch.Tensor]:
    """Alpha and theta."""
    return [*([] if made.adjustment is None else made.adjustment.parameters()), *made._theta()]


class CountReductions(TrainerCallback):
    """How often DDP's own reducer ran."""

    def __init__(self) -> None:
        self.count = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        wrapped = self.made.model_wrapped
        self.is_wrapped = type(wrapped).__name__ == "DistributedDataParallel"
        if self.is_wrapped:
            wrapped.register_comm_hook(None, self._hook)

    def _hook(self, state, bucket):
        self.count += 1
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future


def train_each(folder: str, variants: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """:func:`train` for each variant."""
    return {name: train(f"{folder}/{name}", **changes) for name, changes in variants.items()}


def train(folder: str, effective: int = 4, **changes: Any) -> dict[str, Any]:
    """Train, and say what came of it."""
    count = CountReductions()
    made = make(folder, effective, callbacks=[count], **changes)
    count.made = made
    made.train()
    return {
        "history": history(made),
        "parameters": [p.detach().double().flatten().tolist() for p in parameters(made)],
        "checksum": checksum(parameters(made)),
        "reductions": count.count,
        "wrapped": count.is_wrapped,
        "bad_steps": made._bad_steps,
        "held": held(made),
        "upper": [i for batch in made.method_step.upper_batches(1) for i in batch["ids"]]
        if made.upper_examples
        else [],
    }


DROPOUT = {"lora_dropout": 0.3}


def stop_and_resume(folder: str) -> dict[str, Any]:
    """Train with checkpoints, interrupt another such run after a step and a half epochs, and go on with it."""
    saving = {
        "save_strategy": "steps",
        "save_steps": 3,
        "max_steps": 6,
        "save_total_limit": 1,
        "lora": DROPOUT,
    }
    whole = train(f"{folder}/whole", **saving)
    stopped = make(f"{folder}/stopped", 4, callbacks=[StopAfter(4)], **saving)
    with contextlib.suppress(KeyboardInterrupt):
        stopped.train()
    again = make(f"{folder}/stopped", 4, **saving)
    again.train(resume_from_checkpoint=True)
    return {
        "whole": whole,
        "again": {
            "history": history(again),
            "parameters": [p.detach().double().flatten().tolist() for p in parameters(again)],
        },
    }


def resume(folder: str) -> dict[str, Any]:
    """Go on from another number of processes."""
    make(folder, 4, save_strategy="steps", save_steps=3, max_steps=9, lora=DROPOUT).train(resume_from_checkpoint=True)
    return {}


def break_down(folder: str, kind: str) -> dict[str, Any]:
    """Train with a fault in the last process alone at the third step: ``raise``, or a loss that is not a number."""
    made = make(folder, 4, max_bad_steps=1 if kind == "end" else 3)
    level, last = made.method_step.lower, world() - 1
    lower = type(level).lower

    def broken(self, model, batch, adjustment, *, theta):
        total = lower(self, model, batch, adjustment, theta=theta)
        if made.state.global_step == 2 and made.processes.rank == last:
            if kind == "raise":
                raise ValueError("a broken item")
            return total * torch.nan
        return total

    type(level).lower = broken
    made.train()
    return {"bad_steps": made._bad_steps, "checksum": checksum(parameters(made)), "steps": made.state.global_step}


def own_answers(folder: str) -> dict[str, Any]:
    """The upper level on sampled answers: no two processes draw the same numbers, all follow the same direction."""
    return train(folder, level="vocabulary", entropy_positions="sample", own_answer_tokens=3, max_steps=2)


def drift(folder: str) -> dict[str, Any]:
    """Parameters that differ between the processes are found when the loop begins... unless DDP made them equal."""
    made = make(folder, 4)
    if made.processes.rank:
        with torch.no_grad():
            made.adjustment.logit_shift.add_(1e-6)
    made.train()
    return {}


def command(words: list[str]) -> int:
    """A command, in every process."""
    from calmtune.cli.main import main

    return main(words)


def share_predictions(path: str, rows: list[str], fails_after: int = -1, **meta: Any) -> list[str]:
    """Make records of these ids in shares, in batches of two; what this process made.

    Args:
        fails_after: batches after which the last process fails, leaving a line that was cut short.
    """
    from types import SimpleNamespace

    from calmtune.cli import ranks, shares
    from calmtune.predictions import (
        Prediction,
        Predictions,
        append_predictions,
        load_predictions,
        open_predictions,
        save_predictions,
    )

    made: list[str] = []

    def produce(rows: Any, path: Path, advance: Any) -> None:
        about = {"n": len(rows), "items": "".join(row.id for row in rows), **meta}
        done = {item.id: item for item in open_predictions(path, about)}
        for start in range(0, len(rows), 2):
            new = [
                Prediction(row.id, "x", 0, (float(row.id), 0.0))
                for row in rows[start : start + 2]
                if row.id not in done
            ]
            if not new:
                continue
            append_predictions(path, new)
            made.extend(item.id for item in new)
            done |= {item.id: item for item in new}
            if fails_after * 2 == len(made) and ranks.rank() == ranks.count() - 1:
                with path.open("ab") as file:
                    file.write(b'{"id": "cut')
                raise ValueError("stopped")
            advance(len(done), len(rows))
        save_predictions(path, Predictions(tuple(done[row.id] for row in rows), about))

    records = shares.Records(load_predictions, append_predictions)
    ranks.meet()
    shares.produce_in_shares(
        produce, [SimpleNamespace(id=one) for one in rows], Path(path), records, lambda done, total: None
    )
    return made


def sharded(name: str, *arguments: Any) -> Any:
    """Another function of this module, under FSDP2."""
    os.environ.update({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"})
    return globals()[name](*arguments)


def held(made: Any) -> float:
    """The part of the frozen layers' weights that this process holds now."""
    from torch.distributed.tensor import DTensor

    layers = [p for n, p in made.model.named_parameters() if ".layers." in n and not p.requires_grad]
    return sum(p.to_local().numel() if isinstance(p, DTensor) else p.numel() for p in layers) / sum(
        p.numel() for p in layers
    )


def all_weights(folder: str) -> dict[str, Any]:
    """Train without an adapter."""
    from calmtune.training.arguments import CalmConfig
    from calmtune.training.trainer import CalmTrainer
    from tiny import CHAT, tiny_llama, word_tokenizer

    tokenizer = word_tokenizer(chat_template=CHAT)
    CalmTrainer(
        tiny_llama(len(tokenizer)),
        CalmConfig(folder, method="sft", use_cpu=True, max_steps=1),
        train_dataset=questions(4, 1),
        processing_class=tokenizer,
    )
    return {}


def traffic(folder: str) -> dict[str, Any]:
    """Bytes in float32 that one step adds up, and what they are of."""
    from torch import distributed

    made = make(folder, 4, level="vocabulary", max_steps=2)
    seen: list[int] = []
    plain = distributed.all_reduce

    def counted(tensor: Any, *arguments: Any, **options: Any) -> Any:
        if tensor.dtype == torch.float32:
            seen.append(4 * tensor.numel())
        return plain(tensor, *arguments, **options)

    distributed.all_reduce = counted
    made.train()
    alpha, theta = (sum(p.numel() for p in part) for part in (made.adjustment.parameters(), made._theta()))
    return {"sent": sum(seen), "steps": 2, "alpha": alpha, "theta": theta}
