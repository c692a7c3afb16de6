"""FSDP2 for a frozen base: each process holds its part of the layers' weights, and every adapter whole.

lambda needs the gradient of theta before any optimizer sees it, and the gradient at a moved theta. With theta whole in
every process both are ordinary: :mod:`calmtune.training.passes` differentiates by it and adds up what it finds, and
FSDP2 has frozen weights alone to gather and to let go. accelerate would shard theta too and make gradients of its
shards in ``loss.backward()`` only, so it is not asked to.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch import nn

from calmtune.modeling.reading import causal_lm
from calmtune.training.arguments import CalmConfig

FLAG = "ACCELERATE_USE_FSDP"


def wants_sharding(args: CalmConfig) -> bool:
    """Whether the launcher asked for FSDP, as configs/accelerate/fsdp2.yaml does.

    Raises:
        ValueError: in a form that cannot be had.
    """
    if args.fsdp:
        raise ValueError(
            "fsdp: this trainer shards the frozen base itself; leave the argument out and launch with "
            "`accelerate launch --config_file configs/accelerate/fsdp2.yaml`"
        )
    if os.environ.get(FLAG, "false").lower() != "true":
        return False
    version = os.environ.get("FSDP_VERSION", "1")
    if version != "2":
        raise ValueError(f"fsdp_version: expected 2, got {version}; version 1 hides parameters in flat buffers")
    for name, why in (
        ("OFFLOAD_PARAMS", "weights on the CPU would be gathered anew for each of the step's passes"),
        ("CPU_RAM_EFFICIENT_LOADING", "every process loads the base and keeps its part"),
        ("ACTIVATION_CHECKPOINTING", "use gradient_checkpointing: true"),
    ):
        if os.environ.get(f"FSDP_{name}", "false").lower() == "true":
            raise ValueError(f"fsdp_{name.lower()}: not supported ({why}); set it to false")
    _refuse_methods(args)
    return args.world_size > 1


def _refuse_methods(args: CalmConfig) -> None:
    """What would need more passes in one process than in another, each of which gathers weights from all."""
    if args.has_upper_level and args.entropy_positions == "sample":
        raise ValueError(
            "entropy_positions: sample: answers end at different lengths in each process, and with a sharded base none "
            "may run more passes than the others; use first or response, or plain data parallelism "
            "(configs/accelerate/ddp.yaml)"
        )
    if args.method == "rcft":
        raise ValueError("method: rcft has no sharded form yet; use configs/accelerate/ddp.yaml")


@contextmanager
def without_accelerates_own() -> Iterator[None]:
    """Inside, accelerate does not know that FSDP was asked for."""
    before = os.environ.pop(FLAG, None)
    try:
        yield
    finally:
        if before is not None:
            os.environ[FLAG] = before


def shard_base(model: nn.Module) -> None:
    """Leave each process its part of the frozen layers' weights, in place; they are whole while a layer runs.

    Embeddings, output head and everything trainable stay whole in every process.

    Raises:
        ValueError: layers that are trained themselves, or are quantised, or are not found.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    base = causal_lm(model)
    if getattr(base, "is_loaded_in_4bit", False) or getattr(base, "is_loaded_in_8bit", False):
        raise ValueError(
            "a quantised base can't be sharded: its packed weights belong to a state that would stay behind; it is "
            "small enough to be whole in every process, so use configs/accelerate/ddp.yaml"
        )
    trunk = base.get_decoder() if hasattr(base, "get_decoder") else base.base_model  # type: ignore[operator]
    found = [child for child in trunk.children() if isinstance(child, nn.ModuleList)]
    if len(found) != 1:
        raise ValueError(f"{type(trunk).__name__} has {len(found)} lists of layers, expected one; use ddp.yaml")
    inside = [p for p in found[0].parameters() if not p.requires_grad]
    frozen = {id(p) for p in inside}
    if not hasattr(model, "peft_config") or not frozen:
        raise ValueError(
            "with FSDP2 the base is sharded and the adapter is whole in every process, but all weights are trained "
            "here; use an adapter (use_peft: true), or configs/accelerate/ddp.yaml"
        )
    whole = {p for p in model.parameters() if id(p) not in frozen}
    mesh = init_device_mesh(inside[0].device.type, (dist.get_world_size(),))
    for layer in found[0]:
        fully_shard(layer, mesh=mesh, ignored_params=whole)
    fully_shard(trunk, mesh=mesh, ignored_params=whole)
