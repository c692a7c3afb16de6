"""The folder of an evaluated run, made without training: a random adapter, a random alpha, and what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import PhiConfig, PhiForCausalLM

import tiny
from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.cli.folder import RunFolder
from calmtune.data.prompts import PromptStyle, Renderer
from calmtune.data.rows import MultipleChoice
from calmtune.modeling.calibration_files import save_calibration
from calmtune.modeling.loading import describe_base, load_model
from calmtune.scoring.options import score_items

OPTIONS = ("blue", "green", "red", "deep")
WORDS = (*tiny.WORDS, *map(str, range(200)))


def rows(count: int) -> list[MultipleChoice]:
    """Questions with two to four options."""
    return [MultipleChoice(f"q/{n}", f"what is the sky {n}?", OPTIONS[: 2 + n % 3], n % 2, "sky") for n in range(count)]


def write_model(folder: Path, model: Any = None, *, chat: bool = False) -> Path:
    """A random model with its tokenizer."""
    tokenizer = tiny.word_tokenizer(WORDS, chat_template=tiny.CHAT if chat else None)
    (tiny.tiny_llama(len(tokenizer)) if model is None else model).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def vocabulary() -> int:
    """Size of the tokenizer's vocabulary."""
    return len(tiny.word_tokenizer(WORDS))


def tiny_phi(vocab: int) -> PhiForCausalLM:
    """A model whose output head has a bias."""
    torch.manual_seed(0)
    model = PhiForCausalLM(
        PhiConfig(vocab_size=vocab, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                  max_position_embeddings=256, pad_token_id=0, bos_token_id=2, eos_token_id=3, initializer_range=0.2)
    )  # fmt: skip
    model.lm_head.bias.data.normal_()
    return model.eval()


def random_alpha(classes: int, kind: Any = "vector", seed: int = 1, shift: bool = True) -> LogitAdjustment:
    """An alpha far from the identity."""
    alpha, generator = LogitAdjustment(classes, kind), torch.Generator().manual_seed(seed)
    for value in (alpha.temperature_parameter, alpha.logit_shift)[: 1 + shift]:
        value.data.copy_(torch.randn(value.shape, generator=generator) * 0.5)
    return alpha.requires_grad_(False)


def write_run(
    folder: Path,
    *,
    model: Any = None,
    base_name: str | None = None,
    alpha: LogitAdjustment | None = None,
    level: str = "vocabulary",
    scoring: Any = "letter",
    decision: dict[str, Any] | None = None,
    chat: bool = False,
    count: int = 12,
) -> RunFolder:
    """Write model (or take one by its name), adapter, alpha, predictions and records; the decision is what is used."""
    base_path = base_name or str(write_model(folder / "model", model, chat=chat))
    base, tokenizer = load_model(base_path, device="cpu")
    record = describe_base(base, base_path)
    torch.manual_seed(3)
    tuned = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear")).eval()
    for name, value in tuned.named_parameters():
        if "lora_B" in name:
            value.data.normal_(0, 0.1)
    run = RunFolder(folder / "run")
    tuned.save_pretrained(run.path)
    renderer = Renderer(tokenizer, PromptStyle(scoring, "auto"))
    settings = {
        "method": "calm", "level": level, "normalisation": "sum", "prompt": renderer.settings(), "base": record,
    }  # fmt: skip
    save_calibration(run.path, alpha, settings)
    calibration = json.loads(run.calibration.read_text())
    calibration["decision"] = decision or {"distribution": "raw", "scaling": "none", "temperature": 1.0}
    run.calibration.write_text(json.dumps(calibration))
    run.config.write_text(
        f"model_name_or_path: {base_path}\nuse_peft: true\nn_bins: 10\nn_resamples: 20\nuse_cpu: true\n"
    )
    questions = rows(count)
    score_items(tuned, questions, renderer, adjustment=alpha, level=level, path=run.predictions("tuned", "calibration"))
    run.write_json(run.items, {row.id: [row.question, list(row.choices)] for row in questions})
    return run
