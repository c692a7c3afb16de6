"""A small language model, what makes it overconfident, and adapters for fine-tuning it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from calmtune.bilevel import adjusted_cross_entropy
from toy_language.language import PLANS, WORDS, Language

WIDTH, HIDDEN = 16, 64
ADAPTER_RANK = 16
PRETRAIN_STEPS, PRETRAIN_BATCH, PRETRAIN_RATE = 500, 256, 3e-3
ALIGN_STEPS, ALIGN_BATCH, ALIGN_RATE = 400, 256, 1e-3
ALIGN_PULL = 0.05  # beta: weight of KL(policy || pre-trained model), small as in practice


class Adapted(nn.Linear):
    """A linear layer; :meth:`adapt` freezes it and adds a low-rank update B A, B = 0 at the start (LoRA)."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__(width_in, width_out)
        self.register_parameter("down", None)
        self.register_parameter("up", None)

    def adapt(self, generator: torch.Generator) -> None:
        """Freeze the weights and start an adapter."""
        self.requires_grad_(False)
        start = torch.randn(ADAPTER_RANK, self.in_features, generator=generator) / math.sqrt(self.in_features)
        self.down, self.up = nn.Parameter(start), nn.Parameter(torch.zeros(self.out_features, ADAPTER_RANK))

    def forward(self, input: Tensor) -> Tensor:
        """W x + b + B A x."""
        output = super().forward(input)
        return output if self.down is None or self.up is None else output + input @ self.down.T @ self.up.T


class ToyModel(nn.Module):
    """Embeddings of (relation, u, v), two hidden layers, logits over the words."""

    def __init__(self, relations: int, generator: torch.Generator) -> None:
        super().__init__()
        self.relation, self.first, self.second = (nn.Embedding(n, WIDTH) for n in (relations, WORDS, WORDS))
        self.layers = nn.ModuleList([Adapted(3 * WIDTH, HIDDEN), Adapted(HIDDEN, HIDDEN)])
        self.head = Adapted(HIDDEN, WORDS)
        for parameter in self.parameters():
            scale = 1.0 if parameter.shape[-1] == WIDTH else 1 / math.sqrt(parameter.shape[-1])
            parameter.data = torch.randn(parameter.shape, generator=generator) * scale

    def forward(self, prompts: Tensor) -> Tensor:
        """Logits [n, words] of prompts [n, 3]."""
        relation, first, second = prompts.unbind(-1)
        h = torch.cat([self.relation(relation), self.first(first), self.second(second)], -1)
        for layer in self.layers:
            h = torch.nn.functional.gelu(layer(h))
        return self.head(h)

    def adapt(self, generator: torch.Generator) -> list[nn.Parameter]:
        """Freeze everything, start adapters on every linear layer; returns their parameters: theta."""
        self.requires_grad_(False)
        for layer in [*self.layers, self.head]:
            layer.adapt(generator)
        return [p for p in self.parameters() if p.requires_grad]


def _mixture(language: Language, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A batch of all domains, each with its share: what pre-training and alignment see."""
    parts = [language.domains[plan.name].sample(round(plan.seen * count), generator) for plan in PLANS if plan.seen]
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def pretrained(language: Language, seed: int) -> ToyModel:
    """Cross-entropy on fresh samples of all domains, Adam with a linear decay."""
    generator = torch.Generator().manual_seed(seed)
    model = ToyModel(language.relations, generator)
    optimizer = torch.optim.Adam(model.parameters(), lr=PRETRAIN_RATE)
    for step in range(PRETRAIN_STEPS):
        optimizer.param_groups[0]["lr"] = PRETRAIN_RATE * (1 - step / PRETRAIN_STEPS)
        prompts, answers = _mixture(language, PRETRAIN_BATCH, generator)
        optimizer.zero_grad()
        adjusted_cross_entropy(model(prompts), answers).backward()
        optimizer.step()
    return model


def align(model: ToyModel, language: Language, seed: int) -> ToyModel:
    """Reward the right answer, as RLHF does: max E_x[ sum_y p(y|x) 1{y is right} ] - beta KL(p || pre-trained p).

    The gradient of the expected reward is exact, since the answers can be summed over. Its optimum is
    p_pre(y) exp(P(y is right) / beta), far sharper than the truth: the model becomes overconfident in every domain.
    Changes ``model`` and returns it.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=ALIGN_RATE)
    start = ToyModel(language.relations, generator)
    start.load_state_dict(model.state_dict())
    for _ in range(ALIGN_STEPS):
        prompts, answers = _mixture(language, ALIGN_BATCH, generator)
        log_p = torch.log_softmax(model(prompts), -1)
        with torch.no_grad():
            log_start = torch.log_softmax(start(prompts), -1)
        p = log_p.exp()
        reward = p.gather(-1, answers[:, None]).mean()
        pull = (p * (log_p - log_start)).sum(-1).mean()
        optimizer.zero_grad()
        (ALIGN_PULL * pull - reward).backward()
        optimizer.step()
    return model
