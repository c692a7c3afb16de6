"""Step time and peak memory on an 8B-shaped random model with QLoRA, on one GPU, in at most eight minutes.

    python benchmarks/gpu_check.py                    # NF4 with bitsandbytes, without it a bf16 base (and it says so)
    python benchmarks/gpu_check.py --out gpu.json
    python benchmarks/gpu_check.py --smoke            # the same path at toy size on the CPU; its figures say nothing

Nothing is downloaded: the weights are random, in the shape of Llama-3.1-8B; time and memory do not depend on them. Each
line is one method, with and without gradient checkpointing; ratios are to plain fine-tuning with the same setting. What
does not fit is said and left out. No variant is begun after --minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from step_cost import examples
from torch import nn

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LARGE = {
    "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8,
}  # fmt: skip
SMALL = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
VARIANTS = {
    "sft": ("sft", 1.0),
    "regularization": ("regularization", 1.0),
    "calm": ("calm", 1.0),
    "calm, quarter": ("calm", 0.25),
}  # fmt: skip


def random_model(shape: dict[str, int], device: torch.device, *, four_bit: bool) -> nn.Module:
    """A random Llama in bf16 on the device, its linear layers in NF4 if asked for."""
    from transformers import LlamaConfig, LlamaForCausalLM

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = LlamaForCausalLM(LlamaConfig(**shape, max_position_embeddings=8192))
    finally:
        torch.set_default_dtype(before)
    return in_four_bits(model, device) if four_bit else model


def in_four_bits(model: nn.Module, device: torch.device) -> nn.Module:
    """The same with every linear layer but the head in NF4, one after another."""
    import bitsandbytes as bnb

    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and name in LINEAR:
                packed = bnb.nn.Linear4bit(
                    child.in_features, child.out_features, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4"
                )
                packed.weight = bnb.nn.Params4bit(child.weight.data.cpu(), requires_grad=False, quant_type="nf4")
                setattr(module, name, packed.to(device))
    model.is_loaded_in_4bit = True
    return model


def trainer_of(options: argparse.Namespace, model: nn.Module, method: str, share: float, checkpointing: bool) -> Any:
    """A trainer with a fresh adapter of rank 64 on every linear layer."""
    from peft import LoraConfig, get_peft_model
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    from calmtune.training.arguments import CalmConfig
    from calmtune.training.trainer import CalmTrainer

    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    arguments = CalmConfig(
        tempfile.mkdtemp(), method=method, level="vocabulary", per_device_train_batch_size=options.micro,
        gradient_accumulation_steps=options.batch // options.micro,
        upper_batch_size=max(1, int(options.batch * share)), bf16=True, use_cpu=options.smoke, logging_steps=10**9,
        save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    lora = LoraConfig(r=options.rank, lora_alpha=32, target_modules=LINEAR, task_type="CAUSAL_LM")
    adapted = get_peft_model(model, lora)
    if checkpointing:
        adapted.enable_input_require_grads()
        adapted.gradient_checkpointing_enable({"use_reentrant": False})
    else:
        adapted.gradient_checkpointing_disable()
    size = SimpleNamespace(length=options.length, vocabulary=options.vocabulary)
    trainer = CalmTrainer(
        adapted, arguments, train_dataset=examples(size, options.batch, 1),
        upper_dataset=examples(size, options.batch, 2), processing_class=PreTrainedTokenizerFast(
            tokenizer_object=words, pad_token="b"
        ),
    )  # fmt: skip
    trainer.create_optimizer()
    return trainer


def measure(options: argparse.Namespace, trainer: Any) -> dict[str, float]:
    """Median seconds of a step, and peak GiB."""
    cuda = options.device.type == "cuda"
    pieces = [
        trainer.data_collator(trainer.train_dataset[start : start + options.micro])
        for start in range(0, options.batch, options.micro)
    ]
    seconds = []
    for number in range(options.steps + 1):
        if number == 1 and cuda:  # the first step makes the optimizer's state
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        trainer.state.global_step, trainer.state.logging_steps = number + 1, 10**9
        trainer._pending, trainer._seen = pieces, 0
        for piece in pieces:
            trainer.training_step(trainer.model, piece)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    found = {"seconds": statistics.median(seconds[1:])}
    return found | ({"peak_gib": torch.cuda.max_memory_allocated() / 2**30} if cuda else {})


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every variant that fits and that there is time for."""
    began, found = time.monotonic(), []
    model = random_model(SMALL if options.smoke else LARGE, options.device, four_bit=options.four_bit)
    for checkpointing in (True, False):
        for name, (method, share) in VARIANTS.items():
            line: dict[str, Any] = {"variant": name, "checkpointing": checkpointing}
            found.append(line)
            if time.monotonic() - began > 60 * options.minutes:
                line["left_out"] = f"not begun: {options.minutes:g} minutes were over"
                continue
            trainer = trainer_of(options, model, method, share, checkpointing)
            try:
                line |= measure(options, trainer)
            except torch.cuda.OutOfMemoryError:
                line["left_out"] = "does not fit"
            model = trainer.model.unload()
            del trainer
            if options.device.type == "cuda":
                torch.cuda.empty_cache()
    return found


def table(options: argparse.Namespace, lines: list[dict[str, Any]]) -> str:
    """The lines as text, with ratios to plain fine-tuning."""
    where = torch.cuda.get_device_name() if options.device.type == "cuda" else "CPU (smoke: these figures say nothing)"
    base = "NF4" if options.four_bit else "bf16" if options.smoke else "bf16 (bitsandbytes is not installed)"
    text = [
        f"{where}; base {base}, LoRA r {options.rank}, {options.batch} x {options.length} tokens, half of them answer"
    ]
    for line in lines:
        title = f"{line['variant']:<16}{'checkpointing' if line['checkpointing'] else '':<15}"
        if "left_out" in line:
            text.append(title + line["left_out"])
            continue
        plain = next(one for one in lines if one["variant"] == "sft" and one["checkpointing"] == line["checkpointing"])
        cells = [f"{line['seconds']:8.2f} s"]
        cells += [f"{line['seconds'] / plain['seconds']:.2f} x sft"] if "seconds" in plain else []
        if "peak_gib" in line:
            cells.append(f"{line['peak_gib']:7.1f} GiB")
            cells += [f"{line['peak_gib'] / plain['peak_gib']:.2f} x sft"] if "peak_gib" in plain else []
        text.append(title + "  ".join(cells))
    return "\n".join(text)


def main(words: list[str] | None = None) -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("batch", 16), ("micro", 4), ("length", 256), ("rank", 64), ("steps", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--minutes", type=float, default=6.0, help="no variant is begun later than this")
    parser.add_argument("--smoke", action="store_true", help="toy size on the CPU")
    parser.add_argument("--out", type=Path, help="also write the figures as JSON")
    options = parser.parse_args(words)
    if not options.smoke and not torch.cuda.is_available():
        parser.error("expected a CUDA device, found none; --smoke runs the same path at toy size on the CPU")
    if options.smoke:
        options.batch, options.micro, options.length, options.rank, options.steps = 4, 2, 16, 4, 1
    options.device = torch.device("cpu" if options.smoke else "cuda")
    options.vocabulary = (SMALL if options.smoke else LARGE)["vocab_size"]
    options.four_bit = not options.smoke and _has_bitsandbytes()
    lines = run(options)
    print(table(options, lines))
    if options.out is not None:
        options.out.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


def _has_bitsandbytes() -> bool:
    from importlib.util import find_spec

    return find_spec("bitsandbytes") is not None


if __name__ == "__main__":
    main()
