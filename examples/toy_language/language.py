"""A language small enough to be known completely: every prompt, its probability, and the distribution of its answer.

A prompt is three words (relation r, first u, second v), its answer one word y:

    log p(y | r, u, v) = k(u, v) (shared[u, y] + second[v, y] + own_r[u, y]) + const,     k: how settled the prompt is

A domain is a few relations and a law of (u, v). Of the variance of its relations' own tables a share ``kept`` is the
trained domain's: at 1 with the same relations only the inputs shift, at 0 nothing of the relations' own part carries
over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

WORDS = 32  # u, v and the answer come from these
RELATIONS = 4  # of a domain
RANK = 6  # of the tables: what there is to learn is low-dimensional, not a list of cells
SETTLED, SETTLED_SPREAD = 2.6, 0.35  # k = 2.6 exp(.35 normal + .35 normal)
OWN = 0.9  # scale of a relation's own table; shared has 1, second .8
TILT = 0.8  # standard deviation of the log-frequencies of words
HELD_OUT = 0.2  # share of the trained relations' prompts that no fine-tuning data contain


@dataclass(frozen=True)
class Plan:
    """One domain: how much it shares, how settled its answers are, its role, and how much of it the base has seen."""

    name: str
    kept: float
    settled: float  # times k: below 1 the right answer is less certain than in the trained domain
    role: str  # "id": trained on; "dev": settings are chosen on it; "ood": reported; "unseen": reported apart
    seen: float  # share of pre-training and alignment; small for "trained", so that there is something to learn
    same_relations: bool = False


PLANS = (
    Plan("trained", 1.0, 1.0, "id", 0.04, same_relations=True),
    Plan("dev", 0.5, 0.85, "dev", 0.32),
    Plan("inputs", 1.0, 1.0, "ood", 0.0, same_relations=True),
    Plan("near", 0.7, 0.85, "ood", 0.32),
    Plan("far", 0.3, 0.7, "ood", 0.32),
    Plan("unseen", 0.3, 0.85, "unseen", 0.0),
)


@dataclass(frozen=True)
class Domain:
    """Prompts with their law and the law of their answers.

    Attributes:
        prompts: int64 [N, 3]: r, u, v. weight: float64 [N], sums to 1.
        answers: float64 [N, WORDS], rows sum to 1: the true p(y | prompt).
    """

    name: str
    role: str
    prompts: Tensor
    weight: Tensor
    answers: Tensor

    def sample(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Prompts [count, 3] and answers [count], drawn from the domain's law."""
        rows = torch.multinomial(self.weight, count, replacement=True, generator=generator)
        answers = torch.multinomial(self.answers[rows], 1, generator=generator).squeeze(-1)
        return self.prompts[rows], answers

    def part(self, rows: Tensor) -> Domain:
        """The domain given that the prompt is one of ``rows`` (bool [N] or indices)."""
        weight = self.weight[rows]
        return Domain(self.name, self.role, self.prompts[rows], weight / weight.sum(), self.answers[rows])


@dataclass(frozen=True)
class Language:
    """One language.

    Attributes:
        domains: what is reported, by name in the order of ``PLANS``; of the trained
            relations only held-out prompts.
        training: the trained domain's other prompts, from which fine-tuning data come.
    """

    domains: dict[str, Domain]
    training: Domain

    @property
    def relations(self) -> int:
        """How many relation words there are."""
        return 1 + max(int(domain.prompts[:, 0].max()) for domain in self.domains.values())

    def role(self, role: str) -> list[Domain]:
        """The domains of one role."""
        return [domain for domain in self.domains.values() if domain.role == role]


def make_language(seed: int) -> Language:
    """A language drawn at random; the same seed gives the same language.

    Example:
        >>> language = make_language(0)
        >>> [domain.role for domain in language.domains.values()]
        ['id', 'dev', 'ood', 'ood', 'ood', 'unseen']
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def table(scale: float) -> Tensor:
        return normal(WORDS, RANK) @ normal(RANK, WORDS) * (scale / math.sqrt(RANK))

    common = table(1.0)[:, None] + table(0.8)[None]  # [u, v, y]: shared[u] + second[v]
    settled = SETTLED * torch.exp(SETTLED_SPREAD * (normal(WORDS)[:, None] + normal(WORDS)[None]))
    trained = [table(OWN) for _ in range(RELATIONS)]
    held_out = torch.rand(RELATIONS * WORDS**2, generator=generator) < HELD_OUT
    whole: dict[str, Domain] = {}
    for plan, new in zip(PLANS, _numbers(), strict=True):
        fresh = [table(OWN) for _ in range(RELATIONS)]
        mixed = [math.sqrt(plan.kept) * t + math.sqrt(1 - plan.kept) * f for t, f in zip(trained, fresh, strict=True)]
        logits = plan.settled * torch.stack([settled[..., None] * (common + own[:, None]) for own in mixed])
        grid = torch.cartesian_prod(new, torch.arange(WORDS), torch.arange(WORDS))
        law_u, law_v = (torch.softmax(TILT * normal(WORDS), 0) for _ in range(2))
        weight = (law_u[:, None] * law_v).reshape(-1).repeat(RELATIONS) / RELATIONS
        answers = torch.softmax(logits.reshape(-1, WORDS), -1)
        whole[plan.name] = Domain(plan.name, plan.role, grid, weight, answers)
    domains = {p.name: whole[p.name].part(held_out) if p.same_relations else whole[p.name] for p in PLANS}
    return Language(domains, whole["trained"].part(~held_out))


def _numbers() -> list[Tensor]:
    """The relation words of each domain: new ones, or those of the trained domain (0, 1, ...)."""
    found, start = [], RELATIONS
    for plan in PLANS:
        found.append(torch.arange(RELATIONS) if plan.same_relations else torch.arange(start, start + RELATIONS))
        start += 0 if plan.same_relations else RELATIONS
    return found
