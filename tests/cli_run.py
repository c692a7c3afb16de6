"""A tiny model and a file of questions in a folder: everything that a whole run needs."""

from __future__ import annotations

import json
from pathlib import Path

import tiny

COLORS = ("blue", "green", "red", "deep")


def write_questions(path: Path, count: int, *, start: int = 0, subject: str = "sky") -> Path:
    """``count`` multiple-choice rows with distinct questions; the right answer follows the number."""
    rows = [
        {"id": f"{path.stem}/{n}", "question": f"what is the {subject} {n}?", "choices": list(COLORS), "label": n % 3}
        for n in range(start, start + count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_model(path: Path) -> Path:
    """A random Llama with its tokenizer, as users have them."""
    tokenizer = tiny.word_tokenizer((*tiny.WORDS, *map(str, range(200))))
    tiny.tiny_llama(len(tokenizer)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def write_config(folder: Path, **settings: object) -> Path:
    """A configuration of a short run on that model and those questions."""
    if not (folder / "model").exists():
        write_model(folder / "model")
        write_questions(folder / "sky.jsonl", 120)
        write_questions(folder / "sea.jsonl", 20, subject="sea")
    values = {
        "model_name_or_path": folder / "model",
        "output_dir": folder / "run",
        "train_sources": [str(folder / "sky.jsonl")],
        "test_ood": [str(folder / "sea.jsonl")],
        "max_steps": 4,
        "save_steps": 2,
        "logging_steps": 1,
        "per_device_train_batch_size": 4,
        "learning_rate": "1e-2",
        "use_cpu": True,
        "n_resamples": 20,
        "disable_tqdm": True,
        **settings,
    }
    path = folder / "run.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in values.items()), encoding="utf-8")
    return path


def write_suite(folder: Path, *, methods: str = "{sft: {method: sft}, calm: {method: calm}}", **more: object) -> Path:
    """A suite of that run's configuration: one model, one setting, two methods and one seed."""
    write_config(folder)
    values = {
        "title": "Tiny",
        "output_dir": folder / "suite",
        "recipe": "run.yaml",
        "models": "{tiny: {}}",
        "settings": "{sky: {}}",
        "methods": methods,
        "seeds": "[0]",
        **more,
    }
    path = folder / "suite.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in values.items()), encoding="utf-8")
    return path
