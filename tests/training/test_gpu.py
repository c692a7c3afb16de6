"""What only a CUDA device can show; `make test PYTEST_ARGS="-m gpu"` checks it on one."""

import pytest
import torch

from toy_training import shake, trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


def one_step(folder, **arguments):
    """The gradients that one step leaves, on the CPU, alpha first."""
    made = shake(trainer(folder, **arguments))
    batches, _ = made.get_batch_samples(iter(made.get_train_dataloader()), 1, made.args.device)
    made.create_optimizer()
    made.training_step(made.model, batches[0])
    return [parameter.grad.float().cpu() for parameter in [*made.adjustment.parameters(), *made._theta()]]


@pytest.mark.parametrize("level", ["options", "vocabulary"])
@pytest.mark.parametrize(("bf16", "tolerance"), [(False, 1e-3), (True, 1e-1)])
def test_the_step_on_a_gpu_is_the_step_on_the_cpu(tmp_path, level, bf16, tolerance):
    expected = one_step(tmp_path, level=level)
    found = one_step(tmp_path, level=level, use_cpu=False, bf16=bf16)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).norm() <= tolerance * theirs.norm() + 1e-6


def test_a_run_on_a_gpu_trains_saves_and_evaluates(tmp_path):
    made = trainer(tmp_path, use_cpu=False, save_strategy="steps", save_steps=2)
    made.train()
    made.save_model()
    assert made.adjustment.logit_shift.device.type == "cuda"
    assert (tmp_path / "adjustment.safetensors").is_file()
