"""The order of examples is a function of seed and step alone."""

from collections import Counter

import pytest

from calmtune.training.streams import EpochSampler, batch_at, micro_batches, permutation


@pytest.mark.parametrize(("size", "batch"), [(7, 3), (4, 4), (3, 8), (1, 2)])
def test_every_example_comes_equally_often(size, batch):
    stream = [i for step in range(size * 2) for i in batch_at(step, batch, size, seed=5)]
    assert set(Counter(stream).values()) == {2 * batch}
    for start in range(0, len(stream), size):
        assert sorted(stream[start : start + size]) == list(range(size))


def test_epochs_and_seeds_differ_and_repeat():
    assert permutation(20, 1, 0) != permutation(20, 1, 1) != permutation(20, 2, 1)
    sampler = EpochSampler(20, 1)
    sampler.set_epoch(1)
    assert list(sampler) == list(sampler) == permutation(20, 1, 1)


def test_micro_batches_keep_everything():
    assert micro_batches(list(range(5)), 2) == [[0, 1], [2, 3], [4]]
