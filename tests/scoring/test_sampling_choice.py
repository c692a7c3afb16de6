import math

import pytest
import torch
from scipy.stats import chisquare

from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.scoring.sampling_choice import Chooser, Noise
from calmtune.scoring.sampling_settings import SamplingSettings

CPU = torch.device("cpu")


def draw(logits, count, settings=None, adjustment=None, seed=0):
    """``count`` independent draws from one row of logits."""
    choose = Chooser(settings or SamplingSettings(), adjustment)
    noise = Noise(range(seed, seed + count), CPU).draw(range(count), len(logits))
    return choose(torch.tensor(logits).expand(count, -1), noise)


def frequencies_fit(tokens, probabilities):
    """p-value of the tokens' counts under their probabilities, 0 where an impossible token came."""
    counts = torch.bincount(tokens, minlength=len(probabilities)).double()
    expected = torch.as_tensor(probabilities, dtype=torch.float64) * len(tokens)
    if counts[expected == 0].sum() > 0:
        return 0.0
    return chisquare(counts[expected > 0], expected[expected > 0]).pvalue


P = [0.4, 0.25, 0.15, 0.1, 0.06, 0.04]
LOG_P = [math.log(p) for p in P]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, P),
        ({"temperature": 2.0}, [math.sqrt(p) / sum(map(math.sqrt, P)) for p in P]),
        ({"top_k": 3}, [0.5, 0.3125, 0.1875, 0, 0, 0]),
        ({"top_p": 0.7}, [0.5, 0.3125, 0.1875, 0, 0, 0]),
        ({"temperature": 0.5, "top_k": 2}, [0.16 / 0.2225, 0.0625 / 0.2225, 0, 0, 0, 0]),
    ],
)
def test_tokens_come_as_often_as_their_probability_says(settings, expected):
    chosen = draw([z + 7 for z in LOG_P], 6000, SamplingSettings(**settings))
    assert frequencies_fit(chosen.token, expected) > 1e-3
    # log-probabilities are the model's own, whatever was made of the logits before drawing
    assert torch.allclose(chosen.raw, torch.tensor(LOG_P)[chosen.token], atol=1e-6)
    assert chosen.adjusted is None


def test_case_b30_log_probabilities_come_from_raw_logits():
    for settings in (SamplingSettings(temperature=0.5), SamplingSettings(temperature=0.5, top_k=1)):
        chosen = draw([1.0, 0.0], 50, settings)
        assert chosen.raw[chosen.token == 0].tolist() == pytest.approx(
            [-0.313262] * int((chosen.token == 0).sum()), abs=1e-6
        )
    assert set(chosen.token.tolist()) == {0}


def test_alpha_comes_before_the_temperature_and_both_log_probabilities_are_kept():
    alpha = LogitAdjustment(3)
    alpha.logit_shift.data = torch.tensor([0.0, 1.0, -1.0])
    alpha.temperature_parameter.data = torch.tensor([math.log(2.0), 0.0, math.log(0.5)])
    chosen = draw([1.0, -1.0, 0.5], 6000, SamplingSettings(temperature=2.0), alpha)
    # z~ = (1 / 2 + 0, -1 + 1, 0.5 * 2 - 1) = (0.5, 0, 0); drawn at T = 2: (0.25, 0, 0)
    drawn = [math.exp(0.25), 1.0, 1.0]
    assert frequencies_fit(chosen.token, [w / sum(drawn) for w in drawn]) > 1e-3
    adjusted = torch.tensor([0.5, 0.0, 0.0]) - math.log(math.exp(0.5) + 2)
    raw = torch.tensor([1.0, -1.0, 0.5]) - math.log(math.exp(1) + math.exp(-1) + math.exp(0.5))
    assert torch.allclose(chosen.adjusted, adjusted[chosen.token], atol=1e-6)
    assert torch.allclose(chosen.raw, raw[chosen.token], atol=1e-6)


def test_tokens_that_hardly_can_come_do_not():
    # 50,000 tokens share a probability of 1e-9; noise in single precision would bring them up about six times
    logits = torch.full((50_001,), math.log(1e-9 / 50_000))
    logits[25_000] = 0.0
    choose = Chooser(SamplingSettings(), None)
    noise = Noise(range(2000), CPU)
    for start in range(0, 2000, 100):
        rows = range(start, start + 100)
        assert set(choose(logits.expand(100, -1), noise.draw(rows, 50_001)).token.tolist()) == {25_000}


def test_a_masked_token_never_comes():
    assert draw([0.0, -math.inf, 0.0], 500).token.eq(1).sum() == 0


def test_each_row_has_its_own_numbers_whichever_rows_are_drawn():
    together = Noise([5, 6, 7], CPU)
    first, second = together.draw([0, 1, 2], 4), together.draw([0, 2], 4)
    alone = Noise([7], CPU)
    assert torch.equal(alone.draw([0], 4)[0], first[2])
    assert torch.equal(alone.draw([0], 4)[0], second[1])
    assert not torch.equal(first[0], first[1])


@pytest.mark.gpu
def test_on_a_gpu_tokens_come_as_often_as_their_probability_says():
    device = torch.device("cuda")
    noise = Noise(range(6000), device).draw(range(6000), len(P))
    chosen = Chooser(SamplingSettings(), None)(torch.tensor(LOG_P, device=device).expand(6000, -1), noise)
    assert frequencies_fit(chosen.token.cpu(), P) > 1e-3
    assert torch.equal(Noise([3], device).draw([0], 9)[0], Noise([1, 3], device).draw([1], 9)[0])
