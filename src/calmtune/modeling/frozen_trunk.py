"""The layers below the lowest one that is trained: what they say of a batch is the same for every pass of a step.

With adapters in the top layers alone, a step that reads a batch twice (at theta, and at the surrogate) need run the
layers below once. That is exact: nothing in them depends on theta.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from calmtune.modeling.reading import causal_lm


@dataclass
class FrozenTrunk:
    """Remembers the last frozen layer's output by batch.

    Args:
        layers: the frozen ones, from the bottom; none turns everything here into nothing.
    """

    layers: tuple[nn.Module, ...] = ()
    _kept: dict[int, tuple[Any, Any]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, model: nn.Module) -> FrozenTrunk:
        """The frozen layers of a causal language model; none where they are random (dropout) or sit on something that
        is trained.
        """
        base = causal_lm(model)
        trunk = base.get_decoder() if hasattr(base, "get_decoder") else base.base_model  # type: ignore[operator]
        layers = getattr(trunk, "layers", None)
        if not isinstance(layers, nn.ModuleList) or _random(base.config):
            return cls()
        count = 0
        while count < len(layers) and not _trained(layers[count]):
            count += 1
        upper = {id(p) for layer in layers[count:] for p in layer.parameters()}
        norm = getattr(trunk, "norm", None)  # comes after the layers
        upper |= {id(p) for p in norm.parameters()} if isinstance(norm, nn.Module) else set()
        beside = any(p.requires_grad and id(p) not in upper for p in trunk.parameters())
        return cls() if beside else cls(tuple(layers[:count]))

    @contextmanager
    def reading(self, batch: Mapping[str, Any]) -> Iterator[None]:
        """Inside, the model reads this batch: the frozen layers run the first time and are skipped the next times.

        The batch is known by its identity and kept until :meth:`forget`, so it must not be changed meanwhile.
        """
        if not self.layers:
            yield
            return
        known = self._kept.get(id(batch))
        handle = None
        try:
            if known is None:
                handle = self.layers[-1].register_forward_hook(lambda *call: self._keep(batch, call[-1]))
            else:
                for layer in self.layers[:-1]:
                    layer.forward = _pass_on
                self.layers[-1].forward = lambda *args, **kwargs: known[1]
            yield
        finally:
            if handle is not None:
                handle.remove()
            for layer in self.layers:
                layer.__dict__.pop("forward", None)

    def _keep(self, batch: Mapping[str, Any], output: Any) -> Any:
        """Remember the output; without a graph, as no gradient has anything to do below."""
        if isinstance(output, tuple):
            kept: Any = tuple(part.detach() if isinstance(part, Tensor) else part for part in output)
        else:
            kept = output.detach()
        self._kept[id(batch)] = (batch, kept)
        return kept

    def forget(self) -> None:
        """Drop what is remembered: a step is over."""
        self._kept.clear()


def _trained(module: nn.Module) -> bool:
    return any(p.requires_grad for p in module.parameters())


def _random(config: Any) -> bool:
    """Whether the configuration has any dropout: skipped layers would then leave other random numbers to the rest."""
    values = config.to_dict()
    return any("dropout" in name or name.endswith("pdrop") for name, value in values.items() if _positive(value))


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _pass_on(hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
    return hidden_states
