"""A saved run loaded again: the same numbers, or an error."""

import json
import shutil

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from calmtune.modeling.calibrated import CalmModel
from tiny import tiny_llama, word_tokenizer
from toy_training import instructions, shake, trainer


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    made = shake(trainer(folder, train=instructions(8, 1), upper=instructions(8, 2)))
    made.save_model()
    made.model.eval()
    return folder, made


def base(seed=0):
    return tiny_llama(len(word_tokenizer()), seed=seed)


def test_both_distributions_come_back(saved):
    folder, made = saved
    loaded = CalmModel.from_pretrained(folder, base_model=base())
    ids = torch.tensor([[7, 8, 9, 10], [7, 8, 0, 0], [0, 0, 7, 8]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]])
    both = loaded.next_token(ids, mask)
    with torch.no_grad():
        z = made.model(input_ids=ids[:1]).logits[0, -1]
    assert torch.allclose(both.raw[0], torch.log_softmax(z, -1), atol=1e-5)
    assert torch.allclose(both.adjusted[0], torch.log_softmax(made.adjustment(z), -1), atol=1e-5)
    assert torch.allclose(both.raw[1], both.raw[2], atol=1e-5)  # padding on either side
    again = loaded.next_token(ids, mask)
    assert torch.equal(both.raw, again.raw)  # eval mode


def test_peft_alone_loads_the_adapter(saved):
    folder, made = saved
    ids = torch.tensor([[7, 8, 9]])
    with torch.no_grad():
        theirs = PeftModel.from_pretrained(base(), str(folder)).eval()(input_ids=ids).logits
        assert torch.allclose(theirs, made.model(input_ids=ids).logits, atol=1e-5)


def test_another_base_is_refused(saved):
    with pytest.raises(ValueError, match="has other weights"):
        CalmModel.from_pretrained(saved[0], base_model=base(seed=1))


@pytest.mark.parametrize("fault", ["renamed", "missing"])
def test_adapter_tensors_without_a_place_are_refused(saved, tmp_path, fault):
    folder = tmp_path / "copy"
    shutil.copytree(saved[0], folder)
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    name = next(key for key in tensors if "layers.1" in key)
    value = tensors.pop(name)
    if fault == "renamed":
        tensors[name.replace("layers.1", "layers.7")] = value
    save_file(tensors, path)
    with pytest.raises(ValueError, match="1 tensors missing"):
        CalmModel.from_pretrained(folder, base_model=base())


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda f: (f / "adjustment.safetensors").unlink(), FileNotFoundError, "adjustment.safetensors not found"),
        (lambda f: (f / "calibration.json").unlink(), FileNotFoundError, "calibration.json not found"),
        (lambda f: (f / "calibration.json").write_text("{"), ValueError, "not valid JSON"),
        (lambda f: (f / "adjustment.safetensors").write_bytes(b"xx"), ValueError, "not a readable safetensors"),
        (lambda f: save_file({"a": torch.zeros(1)}, f / "adjustment.safetensors"), ValueError, "expected the tensors"),
        (lambda f: (f / "adapter_model.safetensors").write_bytes(b"xx"), ValueError, "not a readable safetensors"),
    ],
)
def test_broken_files_are_named(saved, tmp_path, spoil, error, message):
    folder = tmp_path / "copy"
    shutil.copytree(saved[0], folder)
    spoil(folder)
    with pytest.raises(error, match=message):
        CalmModel.from_pretrained(folder, base_model=base())


def test_the_level_says_which_distribution_there_is(saved, tmp_path):
    with pytest.raises(ValueError, match="per vocabulary entry"):
        CalmModel.from_pretrained(saved[0], base_model=base()).option_distributions(torch.zeros(1, 4))
    made = shake(trainer(tmp_path))
    made.save_model()
    loaded = CalmModel.from_pretrained(tmp_path, base_model=base())
    with pytest.raises(ValueError, match="option scores"):
        loaded.next_token(torch.tensor([[7]]))
    scores = torch.tensor([[1.0, 2.0, 0.0, -torch.inf]])
    assert torch.allclose(loaded.option_distributions(scores).adjusted, torch.log_softmax(made.adjustment(scores), -1))
    assert json.loads((tmp_path / "calibration.json").read_text())["adjustment"]["num_classes"] == 4
