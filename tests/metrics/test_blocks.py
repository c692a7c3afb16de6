"""Errors read block by block, against loops over the items."""

import numpy as np
import pytest

from calmtune.metrics import ClasswiseError, ConfidenceError, blocks, classwise_ece, expected_calibration_error


def loop_error(p, labels, options, n_bins, tolerance=2.0**-23):
    """Class-wise ECE, item by item in plain Python."""
    total, classes = 0.0, int(max(options))
    for k in range(classes):
        sums, count = [0.0] * n_bins, 0
        for row, label, most in zip(p, labels, options, strict=True):
            if k < most:
                sums[min(int((row[k] + tolerance) * n_bins), n_bins - 1)] += (label == k) - row[k]
                count += 1
        total += sum(map(abs, sums)) / count
    return total / classes


def table(rng, n, widest=4):
    options = rng.integers(2, widest + 1, n)
    options[0] = widest
    p = rng.dirichlet(np.full(widest, 0.5), n) * (np.arange(widest) < options[:, None])
    return p / p.sum(axis=1, keepdims=True), (rng.random(n) * options).astype(int), options


@pytest.fixture(params=[7, 2**18], ids=["blocks of 7", "one block"])
def block(request, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", request.param)
    return request.param


@pytest.mark.parametrize("n_bins", [1, 10])
def test_errors_are_those_of_a_loop(block, n_bins):
    p, labels, options = table(np.random.default_rng(0), 60)
    assert classwise_ece(p, labels, n_bins, options) == pytest.approx(loop_error(p, labels, options, n_bins), abs=1e-14)
    full = np.random.default_rng(1).dirichlet(np.ones(4), 60)
    assert classwise_ece(full, labels, n_bins) == pytest.approx(
        loop_error(full, labels, np.full(60, 4), n_bins), abs=1e-14
    )
    confidence, correct = p.max(axis=1), p.argmax(axis=1) == labels
    pair = np.stack([confidence, 1 - confidence], axis=1)
    one_class = loop_error(pair[:, :1], np.where(correct, 0, 1), np.ones(60, dtype=int), n_bins)
    assert expected_calibration_error(confidence, correct, n_bins) == pytest.approx(one_class, abs=1e-14)


def test_wrong_values_are_named_by_their_index_in_the_whole(block):
    p, labels, options = table(np.random.default_rng(0), 60)
    confidence, correct = p.max(axis=1), np.ones(60)
    cases = [
        (lambda c, y: (c.__setitem__(40, np.nan), expected_calibration_error(c, y)), r"confidence\[40\] is nan"),
        (lambda c, y: (y.__setitem__(41, 2), expected_calibration_error(c, y)), r"correct\[41\] is 2"),
    ]
    for wrong, message in cases:
        with pytest.raises(ValueError, match=message):
            wrong(confidence.copy(), correct.copy())
    broken = p.copy()
    broken[50, 1] += 0.2
    with pytest.raises(ValueError, match=r"probabilities\[50\] sums to 1\.2"):
        classwise_ece(broken, labels, n_options=options)
    broken[50] = [2, -1, 0, 0]
    with pytest.raises(ValueError, match=r"probabilities\[50, 0\] is 2"):
        classwise_ece(broken, labels)
    with pytest.raises(ValueError, match=r"labels\[59\] is 4"):
        classwise_ece(p, np.append(labels[:-1], 4))
    few = options.copy()
    few[33] = 1
    with pytest.raises(ValueError, match=r"n_options\[33\] is 1"):
        classwise_ece(p, labels, n_options=few)


def test_shapes_are_refused_before_anything_is_read():
    for make, message in (
        (lambda: ConfidenceError([0.5], [1, 0]), "correct: expected shape"),
        (lambda: ConfidenceError([], []), "confidence is empty"),
        (lambda: ConfidenceError([[0.5]], [[1]]), "1-D"),
        (lambda: ConfidenceError([0.5], [1], 0), "n_bins"),
        (lambda: ClasswiseError([0.5], [1]), r"shape \[N, K\]"),
        (lambda: ClasswiseError([[0.5, 0.5]], [1, 0]), "labels: expected shape"),
        (lambda: ClasswiseError([[0.5, 0.5]], [1], n_options=[2, 2]), "n_options: expected integers of shape"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_an_array_on_disk_is_read_in_blocks(tmp_path, block):
    p, labels, _ = table(np.random.default_rng(2), 50)
    np.save(tmp_path / "p.npy", p.astype(np.float32))
    stored = np.load(tmp_path / "p.npy", mmap_mode="r")
    lengths = []

    class Watched(ClasswiseError):
        def read(self, start, stop):
            lengths.append(stop - start)
            return super().read(start, stop)

    assert Watched(stored, labels).value() == pytest.approx(classwise_ece(p.astype(np.float32), labels), abs=1e-14)
    assert max(lengths) == min(block, 50)
    assert sum(lengths) == 50
