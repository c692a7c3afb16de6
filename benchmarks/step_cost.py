"""What a CALM step costs against plain fine-tuning and against BOME written straight down: time and peak memory, as
ratios.

Every variant runs in a process of its own (its peak memory is then its own), in several rounds that alternate between
the variants, and the medians are compared. The model has SmolLM2-135M's shape and random weights; the time does not
depend on them.

    python benchmarks/step_cost.py                 # batch 8 x 128 tokens, T = 1
    python benchmarks/step_cost.py --batch 4 --length 64 --inner_steps 1 5 10 --adjustment vector
    python benchmarks/step_cost.py --checkpointing # activations are made again in the backward pass
    python benchmarks/step_cost.py --top_layers 8  # adapters in the top 8 of 30 layers
    python benchmarks/step_cost.py --sweep length 32 64 128 256    # or batch, vocabulary, top_layers

Variants:
    transformers    Trainer's own loss: full logits at every position
    sft             calmtune, method: sft (logits at answer positions alone)
    regularization  calmtune, method: regularization, the single-level ablation
    calm T=k        calmtune, method: calm, upper batch as large as the lower
    calm T=1 Q      the same with an upper batch of a quarter
    bome            the algorithm written straight down: a deep copy of the model for the surrogate, full logits,
                    autograd for alpha
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LAYERS = 30


def model(options: argparse.Namespace) -> Any:
    """SmolLM2-135M's shape with random weights and LoRA on every linear layer (or the top ones'), in float32."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=options.vocabulary, hidden_size=576, intermediate_size=1536, num_hidden_layers=LAYERS,
        num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True, max_position_embeddings=2048,
    )  # fmt: skip
    base = LlamaForCausalLM(config)
    top = list(range(LAYERS - options.top_layers, LAYERS)) if options.top_layers < LAYERS else None
    linear = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    lora = LoraConfig(r=16, lora_alpha=32, target_modules=linear, task_type="CAUSAL_LM", layers_to_transform=top)
    return get_peft_model(base, lora)


def examples(options: argparse.Namespace, count: int, seed: int) -> list[Any]:
    """Token sequences whose second half is the answer."""
    import torch

    from calmtune.data.prompts import EncodedSequence

    generator, length = torch.Generator().manual_seed(seed), options.length
    return [
        EncodedSequence(
            f"{seed}-{i}",
            torch.randint(10, options.vocabulary, (length,), generator=generator).tolist(),
            length // 2,
            "",
            "",
        )
        for i in range(count)
    ]


def peak_memory() -> int:
    """Peak resident memory of this process in KiB since :func:`reset_peak`."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def reset_peak() -> None:
    """Forget the peak so far (Linux)."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def calmtune_step(
    options: argparse.Namespace, method: str, inner_steps: int, upper_share: float
) -> Callable[[int], None]:
    """One optimizer step as the trainer does it."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    from calmtune.training.arguments import CalmConfig
    from calmtune.training.trainer import CalmTrainer

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")), pad_token="b"
    )
    arguments = CalmConfig(
        tempfile.mkdtemp(), method=method, level="vocabulary", adjustment=options.adjustment, inner_steps=inner_steps,
        per_device_train_batch_size=options.batch, upper_batch_size=max(1, int(options.batch * upper_share)),
        use_cpu=True, logging_steps=10**9, save_strategy="no",
        disable_tqdm=True,
    )  # fmt: skip
    trainer = CalmTrainer(
        model(options), arguments, train_dataset=examples(options, options.batch * 2, 1),
        upper_dataset=examples(options, options.batch * 2, 2), processing_class=tokenizer,
    )  # fmt: skip
    trainer.create_optimizer()
    if options.checkpointing:  # what transformers does when its loop starts
        trainer.model.gradient_checkpointing_enable({"use_reentrant": False})

    def step(number: int) -> None:
        trainer.state.global_step = number + 1  # 0 would add the check that is made once a run
        trainer.state.logging_steps = 10**9
        batch = trainer.data_collator(trainer.train_dataset[: options.batch])
        trainer._pending, trainer._seen = [batch], 0
        trainer.training_step(trainer.model, batch)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()

    return step


def plain_batch(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """input_ids and labels of one batch."""
    import torch

    ids = torch.tensor([example.input_ids for example in examples(options, options.batch, seed)])
    labels = ids.clone()
    labels[:, : options.length // 2] = -100
    return {"input_ids": ids, "labels": labels}


def transformers_step(options: argparse.Namespace) -> Callable[[int], None]:
    """Plain fine-tuning with the model's own loss."""
    import torch

    net = model(options).train()
    if options.checkpointing:
        net.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-4)
    batch = plain_batch(options, 1)

    def step(number: int) -> None:
        net(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def bome_step(options: argparse.Namespace) -> Callable[[int], None]:
    """The algorithm as it stands on paper, T = 1: deep copy, full logits, autograd for alpha."""
    import torch
    from torch.nn.functional import cross_entropy

    net = model(options).train()
    theta = [p for p in net.parameters() if p.requires_grad]
    size = {"vector": options.vocabulary, "scalar": 1}[options.adjustment]
    rho, shift = (torch.zeros(size, requires_grad=True) for _ in range(2))
    optimizer = torch.optim.AdamW(theta, lr=1e-4)
    alpha_optimizer = torch.optim.SGD([rho, shift], lr=1e-2)
    lower_batch, upper_batch = plain_batch(options, 1), plain_batch(options, 2)

    def adjusted(network: Any, batch: dict[str, Any]) -> tuple[Any, Any]:
        z = network(input_ids=batch["input_ids"]).logits.float()[:, :-1] * torch.exp(-rho) + shift
        keep = batch["labels"][:, 1:] != -100
        return z[keep], batch["labels"][:, 1:][keep]

    def lower(network: Any) -> Any:
        return cross_entropy(*adjusted(network, lower_batch))

    def step(number: int) -> None:
        surrogate = copy.deepcopy(net)
        twins = [p for p in surrogate.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(lower(surrogate), twins)
        with torch.no_grad():
            for twin, gradient in zip(twins, gradients, strict=True):
                twin -= 1e-2 * gradient
        for twin in twins:
            twin.requires_grad_(False)
        variables = [rho, shift, *theta]
        residual = lower(net) - lower(surrogate)
        d_residual = torch.autograd.grad(residual, variables)
        log_p = torch.log_softmax(adjusted(net, upper_batch)[0], -1)
        d_upper = torch.autograd.grad((log_p.exp() * log_p).sum(-1).mean(), variables)
        squared = sum((g * g).sum() for g in d_residual)
        overlap = sum((a * b).sum() for a, b in zip(d_upper, d_residual, strict=True))
        multiplier = torch.clamp((squared - overlap) / squared, min=0)
        for variable, f, q in zip(variables, d_upper, d_residual, strict=True):
            variable.grad = f + multiplier * q
        optimizer.step()
        alpha_optimizer.step()
        optimizer.zero_grad()
        alpha_optimizer.zero_grad()

    return step


def variants(options: argparse.Namespace) -> dict[str, Callable[[], Callable[[int], None]]]:
    """Name -> maker of a step function."""
    found: dict[str, Callable[[], Callable[[int], None]]] = {
        "transformers": lambda: transformers_step(options),
        "sft": lambda: calmtune_step(options, "sft", 1, 1.0),
        "regularization": lambda: calmtune_step(options, "regularization", 1, 1.0),
    }
    for inner in options.inner_steps:
        found[f"calm T={inner}"] = lambda inner=inner: calmtune_step(options, "calm", inner, 1.0)  # type: ignore[misc]
    found["calm T=1 Q"] = lambda: calmtune_step(options, "calm", 1, 0.25)
    found["bome"] = lambda: bome_step(options)
    return found


def child(options: argparse.Namespace) -> None:
    """Measure one variant and print its figures as JSON."""
    import torch

    torch.set_num_threads(options.threads)
    step = variants(options)[options.child]()
    step(0)
    reset_peak()
    times = []
    for number in range(1, options.steps + 1):
        start = time.perf_counter()
        step(number)
        times.append(time.perf_counter() - start)
    print(json.dumps({"seconds": times, "peak_kib": peak_memory()}))


def measure(options: argparse.Namespace, names: list[str]) -> dict[str, tuple[list[float], float]]:
    """Seconds of every step, and peak MiB, by variant; rounds alternate between the variants."""
    found: dict[str, tuple[list[float], float]] = {name: ([], 0.0) for name in names}
    words = [f"--{key}={value}" for key, value in vars(options).items() if key in FORWARDED]
    words += ["--inner_steps", *map(str, options.inner_steps)] + ["--checkpointing"] * options.checkpointing
    for number in range(options.rounds):
        for name in names:
            print(f"round {number + 1}/{options.rounds}: {name}", file=sys.stderr, flush=True)
            command = [sys.executable, str(Path(__file__).resolve()), *words, "--child", name]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            record = json.loads(done.stdout.splitlines()[-1])
            seconds, peak = found[name]
            found[name] = [*seconds, *record["seconds"]], max(peak, record["peak_kib"] / 1024)
    return found


def show(options: argparse.Namespace, results: dict[str, tuple[list[float], float]]) -> None:
    """Print the table: medians, spread, and ratios to plain fine-tuning and to the single-level ablation."""
    print(
        f"\n{options.batch} x {options.length} tokens, vocabulary {options.vocabulary}, LoRA in the top "
        f"{options.top_layers} of {LAYERS} layers{', checkpointing' if options.checkpointing else ''}; "
        f"{options.threads} threads, {platform.machine()}, medians of {options.steps * options.rounds} steps"
    )
    heads = ("variant", "s/step", "spread", "x sft", "x reg.", "peak MiB", "x sft")
    print("{:<15}{:>8}{:>16}{:>8}{:>8}{:>10}{:>8}".format(*heads))

    def ratio(value: float, name: str, part: int) -> str:
        if name not in results:
            return ""
        other = statistics.median(results[name][0]) if part == 0 else results[name][1]
        return f"{value / other:.2f}"

    for name, (seconds, peak) in results.items():
        median = statistics.median(seconds)
        spread = f"{min(seconds):.2f}-{max(seconds):.2f}"
        times = ratio(median, "sft", 0), ratio(median, "regularization", 0)
        print(
            f"{name:<15}{median:>8.2f}{spread:>16}{times[0]:>8}{times[1]:>8}{peak:>10.0f}{ratio(peak, 'sft', 1):>8}",
            flush=True,
        )


FORWARDED = ("batch", "length", "vocabulary", "top_layers", "steps", "adjustment", "threads")
SWEPT = ("batch", "length", "vocabulary", "top_layers")


def main() -> None:
    """Run all variants and print the table, once or for every value of what is swept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128, help="tokens of a row; the second half is the answer")
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument(
        "--top_layers", type=int, default=LAYERS, help=f"adapters in the top so many of {LAYERS} layers"
    )
    parser.add_argument(
        "--checkpointing", action="store_true", help="gradient checkpointing, in every variant but bome"
    )
    parser.add_argument("--steps", type=int, default=3, help="timed steps of a variant in a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--inner_steps", type=int, nargs="+", default=[1])
    parser.add_argument("--adjustment", choices=["vector", "scalar"], default="vector")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="+", help="variants to run")
    parser.add_argument("--sweep", nargs="+", metavar=("WHAT", "VALUE"), help=f"one of {', '.join(SWEPT)}, and values")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    names = options.only or list(variants(options))
    if unknown := [name for name in names if name not in variants(options)]:
        parser.error(f"--only: expected some of {', '.join(variants(options))}, got {', '.join(unknown)}")
    what, *values = options.sweep or ["batch", str(options.batch)]
    if what not in SWEPT or not values:
        parser.error(f"--sweep: expected one of {', '.join(SWEPT)} and values, got {options.sweep}")
    for value in values:
        setattr(options, what, int(value))
        show(options, measure(options, names))


if __name__ == "__main__":
    main()
