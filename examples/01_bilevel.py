"""The solver alone, on a problem that can be solved by hand.

lower    theta(alpha) = argmin (theta - 2 alpha)^2 / 2           so theta = 2 alpha
upper    min (theta - 4)^2 + (alpha - 1)^2                      so alpha = 1.8, theta = 3.6

python examples/01_bilevel.py
"""

from __future__ import annotations

import torch

from calmtune.bilevel import bome_step


def main() -> None:
    """Follow the joint direction and print where it leads."""
    alpha = [torch.zeros(1, dtype=torch.float64, requires_grad=True)]
    theta = [torch.zeros(1, dtype=torch.float64, requires_grad=True)]
    for iteration in range(6001):
        step = bome_step(
            lambda a, t: 0.5 * (t[0] - 2 * a[0]).square().sum(),
            lambda a, t: (t[0] - 4).square().sum() + (a[0] - 1).square().sum(),
            alpha,
            theta,
            inner_steps=10,
            inner_learning_rate=0.5,
            eta=0.5,
        )
        if iteration % 1000 == 0:
            reached = f"alpha {alpha[0].item():.4f}  theta {theta[0].item():.4f}"
            print(f"{iteration:5d}  {reached}  lambda {step.multiplier:.2f}")
        with torch.no_grad():
            for variable, direction in zip([*alpha, *theta], step.direction, strict=True):
                variable -= 0.02 * direction


if __name__ == "__main__":
    main()
