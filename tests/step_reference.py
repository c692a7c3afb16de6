"""What a training step should compute, by plain autograd on full logits, and what the trainer computed."""

from __future__ import annotations

import torch
from torch.func import functional_call


def reference_losses(made, batch_rows, upper_rows):
    """g and f of whole batches, from full logits of one unpadded row per option, by plain autograd."""
    model, level = made.model, made.level
    names = [n for n, p in model.named_parameters() if p.requires_grad]

    def log_p(theta, ids):
        tied = dict(zip(names, theta, strict=True))
        logits = functional_call(model, tied, kwargs={"input_ids": torch.tensor([ids]), "use_cache": False}).logits[0]
        return torch.log_softmax(logits.double(), -1), logits.double()

    def adjusted(z, alpha):
        if not alpha:
            return z
        return z * torch.exp(-alpha[0].double()) + alpha[1].double()

    def scores(theta, item):
        found = []
        for option in item.option_ids:
            ids = item.prompt_ids + option
            values, _ = log_p(theta, ids)
            at = range(len(item.prompt_ids) - 1, len(ids) - 1)
            found.append(sum(values[p, ids[p + 1]] for p in at))
        return torch.stack(found)

    def tokens(theta, alpha, row):
        _, logits = log_p(theta, row.input_ids)
        z = adjusted(logits[row.answer_start - 1 : -1], alpha)
        return z, torch.tensor(row.input_ids[row.answer_start :])

    def lower(alpha, theta):
        if level.name == "options":
            terms = [
                torch.nn.functional.cross_entropy(
                    adjusted(scores(theta, item), alpha)[None], torch.tensor([item.label])
                )
                for item in batch_rows
            ]
            return torch.stack(terms).mean()
        pieces = [tokens(theta, alpha, row) for row in batch_rows]
        total = sum(torch.nn.functional.cross_entropy(z, y, reduction="sum") for z, y in pieces)
        return total / sum(len(y) for _, y in pieces)

    def upper(alpha, theta):
        rows = [
            adjusted(scores(theta, i), alpha)[None] if level.name == "options" else tokens(theta, alpha, i)[0]
            for i in upper_rows
        ]
        entropies = torch.cat([torch.special.entr(torch.softmax(z, -1)).sum(-1) for z in rows])
        return -entropies.mean()

    return lower, upper


def directions(made):
    """Run one step of the trainer and take what it put into the gradients, alpha first."""
    loader = made.get_train_dataloader()
    batches, _ = made.get_batch_samples(iter(loader), made.args.gradient_accumulation_steps, made.args.device)
    made.create_optimizer()
    for batch in batches:
        made.training_step(made.model, batch)
    alpha = [] if made.adjustment is None else list(made.adjustment.parameters())
    ids = [identity for batch in batches for identity in batch["ids"]]
    return [p.grad.clone() for p in [*alpha, *made._theta()]], ids
