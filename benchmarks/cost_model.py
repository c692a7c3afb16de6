"""Step time, traffic and memory of a run on 1 to 64 GPUs: formulas, with coefficients that are measured where it runs.

    python benchmarks/cost_model.py --measure                          # this machine's coefficients, and what they miss
    python benchmarks/cost_model.py --measure --save coefficients.json # on a GPU: those to predict with
    python benchmarks/cost_model.py --coefficients coefficients.json   # the table for a model and a batch
    python benchmarks/cost_model.py --tflops 150 --bandwidth 200 --base nf4 --method sft regularization calm

What is counted exactly: parameters, bytes of gradients that are added up, passes of a step. What is measured: how many
FLOP a second a pass reaches, what a backward pass costs against a forward pass, how many bytes of activations a layer
keeps for a token. What is only given: the bandwidth between GPUs (``--bandwidth``, GB/s each way, of the slowest link).
A prediction for a model, a length or a device that was not measured is an extrapolation along these formulas: the rate
is taken to be the same for all shapes, and nothing is taken to overlap.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Base = Literal["bf16", "nf4"]
GPUS = (1, 2, 4, 8, 16, 32, 64)
GIB = 2**30
# NF4 with double quantisation: 4 bits, an 8-bit scale for 64 weights, a float32 for 256 scales
BYTES = {"bf16": 2.0, "nf4": 0.5 + 1 / 64 + 4 / (64 * 256)}
CHUNK = 2**22  # logits that exist at once, calmtune.bilevel.objectives


@dataclass(frozen=True)
class Shape:
    """A Llama-like model. ``kv`` is the width of keys (and of values)."""

    hidden: int
    intermediate: int
    layers: int
    kv: int
    vocabulary: int
    tied: bool = False

    @property
    def linear(self) -> int:
        """Weights of the linear maps of one layer: q, k, v, o, gate, up, down."""
        return 2 * self.hidden**2 + 2 * self.hidden * self.kv + 3 * self.hidden * self.intermediate

    @property
    def ends(self) -> int:
        """Weights of the embeddings and of the head."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    def adapter(self, rank: int) -> int:
        """Parameters of LoRA on every linear map."""
        h, i, kv = self.hidden, self.intermediate, self.kv
        return self.layers * rank * (2 * (h + h) + 2 * (h + kv) + 3 * (h + i))

    def forward(self, tokens: int, length: int, rank: int) -> float:
        """FLOP of a pass through the layers: two a weight and token, and causal attention over the row."""
        attention = 2 * length * self.hidden * self.layers  # scores and values, half of the row on average
        return tokens * (2 * self.layers * self.linear + 2 * self.adapter(rank) + attention)


# hidden sizes as in the models' own configurations
MODELS = {
    "Llama-3.1-Tulu-8B": Shape(4096, 14336, 32, 1024, 128264),
    "Mistral-7B": Shape(4096, 14336, 32, 1024, 32000),
    "Vicuna-7B": Shape(4096, 11008, 32, 4096, 32000),
    "OLMo-2-7B": Shape(4096, 11008, 32, 4096, 100352),
}


@dataclass(frozen=True)
class Coefficients:
    """What was measured.

    Args:
        flops: a second, of a forward pass through the layers. backward: time of a backward pass in forward passes.
        kept: bytes a token that a layer keeps for its backward pass, by hidden, intermediate and key width.
        device: where.
    """

    flops: float
    backward: float
    kept: tuple[float, float, float]
    device: str = "given"

    def kept_bytes(self, shape: Shape) -> float:
        """Bytes that one layer keeps for one token."""
        return sum(c * n for c, n in zip(self.kept, (shape.hidden, shape.intermediate, shape.kv), strict=True))


@dataclass(frozen=True)
class Run:
    """What is run. ``batch`` is of all GPUs together, ``micro`` examples go through a GPU at once, ``answers`` of the
    ``length`` tokens of an example are read. T = 1; the upper batch is as large as the lower.
    """

    shape: Shape
    method: str = "calm"
    rank: int = 64
    batch: int = 16
    micro: int = 2
    length: int = 512
    answers: int = 128
    base: Base = "nf4"
    checkpointing: bool = True
    vector: bool = True
    sharded: bool = False
    gpus: int = 1

    @property
    def alpha(self) -> int:
        """Parameters of alpha, which only methods with an upper level have."""
        return 0 if self.method == "sft" else 2 * (self.shape.vocabulary if self.vector else 1)

    @property
    def mine(self) -> int:
        """Examples of the GPU that has most: with more GPUs than examples some have none."""
        return math.ceil(self.batch / self.gpus)

    def passes(self, backward: float) -> tuple[float, int]:
        """Forward passes that a step's passes cost, and how many of them have a backward pass."""
        with_gradient = 1 if self.method == "sft" else 2
        each = 1 + backward + (1 if self.checkpointing else 0)
        return with_gradient * each + (1 if self.method == "calm" else 0), with_gradient

    def compute(self, known: Coefficients) -> float:
        """Seconds of a step in the model; the head is run at answers alone, and again for its gradient."""
        units, with_gradient = self.passes(known.backward)
        layers = self.shape.forward(self.mine * self.length, self.length, self.rank)
        head = 2 * self.mine * self.answers * self.shape.vocabulary * self.shape.hidden
        forwards = 2 * with_gradient + (1 if self.method == "calm" else 0)
        return (units * layers + forwards * head) / known.flops

    def reduced(self) -> int:
        """Bytes of the gradients that one step adds up over the GPUs, in float32.

        Those of g and of f by theta and alpha, and that of g at the surrogate by alpha.
        """
        theta, alpha = self.shape.adapter(self.rank), self.alpha
        _, with_gradient = self.passes(1.0)
        return 4 * (with_gradient * (theta + alpha) + (alpha if self.method == "calm" else 0))

    def gathered(self) -> float:
        """Bytes of base weights that one GPU takes from the others in a step of FSDP2."""
        if not self.sharded:
            return 0.0
        _, with_gradient = self.passes(1.0)
        gathers = 2 * with_gradient + (1 if self.method == "calm" else 0)
        pieces = math.ceil(self.mine / self.micro)
        weights = BYTES["bf16"] * self.shape.layers * self.shape.linear
        return gathers * pieces * weights * (self.gpus - 1) / self.gpus

    def communication(self, bandwidth: float) -> float:
        """Seconds on the links: a ring moves 2 (k - 1) / k of what is added up."""
        return (2 * (self.gpus - 1) / self.gpus * self.reduced() + self.gathered()) / bandwidth

    def memory(self, known: Coefficients) -> dict[str, float]:
        """Bytes of one GPU by what they are for."""
        shape, theta = self.shape, self.shape.adapter(self.rank)
        layers = BYTES["bf16" if self.sharded else self.base] * shape.layers * shape.linear
        tokens = min(self.micro, self.mine) * self.length
        kept = known.kept_bytes(shape) * tokens
        return {
            # one layer whole while it runs, and the next one on its way
            "base": BYTES["bf16"] * shape.ends
            + (layers / self.gpus + 2 * layers / shape.layers if self.sharded else layers),
            "adapter and Adam": 12.0 * theta,
            # sft: the gradient, and what is sent; else those of g and f, the direction, and what is sent
            "gradients": (8.0 if self.method == "sft" else 16.0) * (theta + self.alpha),
            "activations": kept + 2 * shape.hidden * tokens * shape.layers
            if self.checkpointing
            else kept * shape.layers,
            "logits": 4.0 * 4 * min(CHUNK, tokens * shape.vocabulary),
        }


# ---- measuring -------------------------------------------------------------------------------------------------------


def small(shape: Shape, rank: int, device: str) -> Any:
    """A random model of that shape in bfloat16, with LoRA on every linear map in float32."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers, num_attention_heads=shape.hidden // 64, num_key_value_heads=shape.kv // 64,
        tie_word_embeddings=shape.tied,
    )  # fmt: skip
    base = LlamaForCausalLM(config).to(torch.bfloat16)
    lora = LoraConfig(r=rank, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(base, lora).to(device).train()


def trunk_pass(model: Any, tokens: int, length: int) -> Callable[[], Any]:
    """A pass through the layers of ``tokens`` random tokens in rows of ``length``."""
    import torch

    device = next(model.parameters()).device
    ids = torch.randint(3, 60, (max(1, tokens // length), length), device=device)
    trunk = model.get_base_model().get_decoder()

    def run() -> Any:
        with torch.autocast(device.type, torch.bfloat16):
            return trunk(input_ids=ids, use_cache=False).last_hidden_state

    return run


def kept_by(shape: Shape, rank: int, device: str, tokens: int = 64) -> float:
    """Bytes a token that autograd keeps for one layer: three layers minus two."""
    import torch

    found = []
    for layers in (2, 3):
        model = small(Shape(**{**asdict(shape), "layers": layers}), rank, device)
        weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        storages: dict[int, Any] = {}

        def keep(tensor: Any, weights: set[int] = weights, storages: dict[int, Any] = storages) -> Any:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                storages[storage.data_ptr()] = storage  # held, so that no address comes twice
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            output = trunk_pass(model, tokens, tokens)()
        found.append(sum(storage.nbytes() for storage in storages.values()))
        del output
    return (found[1] - found[0]) / tokens


def seconds(run: Callable[[], Any], device: str, rounds: int) -> float:
    """Median time."""
    import statistics

    import torch

    times = []
    for _ in range(rounds + 1):  # the first one is left out
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def measure(options: argparse.Namespace) -> tuple[Coefficients, dict[str, Any]]:
    """The coefficients of this machine, and how far the formulas are from what was measured beside them."""
    import numpy as np
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = [(256, 512, 128), (256, 1024, 128), (512, 1024, 128), (512, 1024, 512), (384, 1280, 192)]
    shapes = [Shape(h, i, 2, kv, 64) for h, i, kv in sizes]
    kept = [kept_by(shape, options.rank, device) for shape in shapes]
    # a constant stands for what does not grow with the width (the adapters' own activations, norms)
    design = np.array([[*size, 1.0] for size in sizes[:4]])
    fitted = np.linalg.solve(design, np.array(kept[:4]))
    held_out = float(np.dot([*sizes[4], 1.0], fitted))
    known = 1024 if device == "cuda" else 256
    shape = Shape(4096, 14336, 2, 1024, 64) if device == "cuda" else Shape(512, 1536, 4, 256, 64)
    model, tokens = small(shape, options.rank, device), known * (8 if device == "cuda" else 1)
    run = trunk_pass(model, tokens, known)
    theta = [p for p in model.parameters() if p.requires_grad]

    def forward() -> None:
        with torch.no_grad():
            run()

    def both() -> None:
        torch.autograd.grad(run().float().square().mean(), theta)

    forward_time, both_time = (seconds(one, device, options.rounds) for one in (forward, both))
    shorter = trunk_pass(model, tokens // 2, known // 2)

    def half() -> None:
        with torch.no_grad():
            shorter()

    name = torch.cuda.get_device_name() if device == "cuda" else f"{device}, {torch.get_num_threads()} threads"
    found = Coefficients(
        flops=shape.forward(tokens, known, options.rank) / forward_time,
        backward=both_time / forward_time - 1,
        kept=tuple(float(value) for value in fitted[:3]),  # type: ignore[arg-type]
        device=name,
    )
    checks = {
        "kept bytes of a shape that was not fitted": (held_out, kept[4]),
        "constant bytes a token and layer, left out": float(fitted[3]),
        "seconds of half the tokens": (
            shape.forward(tokens // 2, known // 2, options.rank)
            / shape.forward(tokens, known, options.rank)
            * forward_time,
            seconds(half, device, options.rounds),
        ),
    }
    return found, checks


# ---- the table -------------------------------------------------------------------------------------------------------


def table(options: argparse.Namespace, known: Coefficients) -> str:
    """One line for each number of GPUs."""
    lines = []
    for name in options.model:
        how = f"base {options.base}{', FSDP2' if options.sharded else ''}, LoRA rank {options.rank}"
        batch = f"batch {options.batch} x {options.length} tokens ({options.answers} read)"
        lines.append(f"{name}: {how}, {batch}, checkpointing {'on' if options.checkpointing else 'off'}")
        heads = [f"{method} s/step" for method in options.method]
        lines.append("  ".join(["GPUs", "examples each", *heads, "sent MB/step", "GiB a GPU"]))
        for gpus in GPUS:
            runs = [make_run(options, MODELS[name], method, gpus) for method in options.method]
            times = [run.compute(known) + run.communication(options.bandwidth * 1e9) for run in runs]
            last = runs[-1]
            sent = (last.reduced() if gpus > 1 else 0) + last.gathered()
            memory = sum(last.memory(known).values()) / GIB
            cells = [f"{gpus:4d}", f"{last.mine:13d}", *(f"{t:{len(h)}.3f}" for t, h in zip(times, heads, strict=True))]
            lines.append("  ".join([*cells, f"{sent / 1e6:12.0f}", f"{memory:9.1f}"]))
        run = make_run(options, MODELS[name], options.method[-1], 1 if not options.sharded else 8)
        parts = ", ".join(f"{key} {value / GIB:.2f}" for key, value in run.memory(known).items())
        lines += [f"GiB of one of {run.gpus}, {run.method}: {parts}", ""]
    return "\n".join(lines)


def make_run(options: argparse.Namespace, shape: Shape, method: str, gpus: int) -> Run:
    """One cell of the table."""
    names = ("rank", "batch", "micro", "length", "answers", "base", "checkpointing", "sharded")
    return Run(shape, method, gpus=gpus, **{name: getattr(options, name) for name in names})


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure coefficients here, and use them")
    parser.add_argument("--save", type=Path, help="write the measured coefficients to this file")
    parser.add_argument("--coefficients", type=Path, help="use the coefficients of this file")
    parser.add_argument(
        "--tflops", type=float, help="TFLOP a second that passes reach, in the place of the measured rate"
    )
    parser.add_argument("--bandwidth", type=float, default=20.0, help="GB/s each way between GPUs")
    parser.add_argument("--model", nargs="+", choices=MODELS, default=["Llama-3.1-Tulu-8B"])
    parser.add_argument("--method", nargs="+", choices=("sft", "regularization", "calm"),
                        default=["sft", "regularization", "calm"])  # fmt: skip
    parser.add_argument("--base", choices=tuple(BYTES), default="nf4")
    parser.add_argument("--sharded", action="store_true", help="FSDP2; the base is in bf16")
    parser.add_argument("--checkpointing", action=argparse.BooleanOptionalAction, default=True)
    for name, default in (("rank", 64), ("batch", 16), ("micro", 2), ("length", 512), ("answers", 128), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(words)
    if options.sharded:
        options.base = "bf16"
    if not (options.measure or options.coefficients):
        parser.error("give --measure, or --coefficients FILE from an earlier --measure --save FILE")
    return options


def main() -> None:
    """Measure or read, and print."""
    options = parse()
    if options.measure:
        known, checks = measure(options)
        kept = " + ".join(f"{c:.2f} {n}" for c, n in zip(known.kept, ("hidden", "intermediate", "kv"), strict=True))
        print(f"measured on {known.device}: {known.flops / 1e12:.4f} TFLOP/s forward, a backward pass is")
        print(f"{known.backward:.2f} forward passes, kept bytes a token and layer = {kept}")
        for name, value in checks.items():
            shown = (
                f"{value[0]:.4g} by the formula, {value[1]:.4g} measured"
                if isinstance(value, tuple)
                else f"{value:.4g}"
            )
            print(f"  {name}: {shown}")
        if options.save:
            options.save.write_text(json.dumps(asdict(known), indent=1) + "\n", encoding="utf-8")
    else:
        record = json.loads(options.coefficients.read_text(encoding="utf-8"))
        known = Coefficients(**{**record, "kept": tuple(record["kept"])})
    if options.tflops:
        known = Coefficients(options.tflops * 1e12, known.backward, known.kept, f"{options.tflops} TFLOP/s as given")
    print(
        f"rate: {known.device}; links: {options.bandwidth} GB/s as given; everything below is extrapolated from these\n"
    )
    print(table(options, known))


if __name__ == "__main__":
    main()
