"""alpha's two files, and what stands beside them, damaged in every way: one message that names the file."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.modeling.calibration_files import load_calibration, save_calibration

SETTINGS = {
    "method": "calm",
    "level": "options",
    "normalisation": "sum",
    "prompt": {"scoring": "text"},
    "base": {"name": "tiny", "revision": None, "fingerprint": "00"},
    "decision": None,
}
PLACES = [
    *((name,) for name in ("adjustment", "method", "level", "normalisation", "prompt", "base")),
    *(("base", name) for name in ("name", "revision", "fingerprint")),
    *(("adjustment", name) for name in ("kind", "form", "tau_max", "num_classes")),
]


@pytest.fixture(params=["vector", "scalar"])
def folder(request, tmp_path):
    adjustment = LogitAdjustment(4, request.param, "exp", 5.0)
    with torch.no_grad():
        adjustment.logit_shift.fill_(0.5)
    save_calibration(tmp_path, adjustment, SETTINGS)
    return tmp_path


def edit(folder, place, change):
    path = folder / "calibration.json"
    record = json.loads(path.read_text())
    inner = record
    for key in place[:-1]:
        inner = inner[key]
    change(inner, place[-1])
    path.write_text(json.dumps(record))


def test_what_was_saved_comes_back(folder):
    adjustment, record = load_calibration(folder)
    assert adjustment.tau_max == 5.0
    assert torch.equal(adjustment.logit_shift, torch.full_like(adjustment.logit_shift, 0.5))
    assert {name: record[name] for name in SETTINGS} == SETTINGS


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_a_missing_field_is_named(folder, place):
    edit(folder, place, lambda inner, key: inner.pop(key))
    with pytest.raises(ValueError, match=rf"calibration.json: the field {'.'.join(place)} is missing"):
        load_calibration(folder)


@pytest.mark.parametrize("value", [[1], True])
@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_a_field_of_another_type_is_named(folder, place, value):
    edit(folder, place, lambda inner, key: inner.update({key: value}))
    with pytest.raises(ValueError, match=rf"calibration.json: the field {'.'.join(place)} is .*; expected "):
        load_calibration(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [("kind", "matrix"), ("form", "tanh"), ("tau_max", 0.5), ("num_classes", 0), ("num_classes", 10**15)],
)
def test_a_form_that_cannot_be_names_a_file(folder, name, value):
    edit(folder, ("adjustment", name), lambda inner, key: inner.update({key: value}))
    kind = json.loads((folder / "calibration.json").read_text())["adjustment"]["kind"]
    if kind == "scalar" and value == 10**15:
        return  # one pair for all, however many classes there are
    with pytest.raises(ValueError, match=r"(calibration.json: adjustment: |adjustment.safetensors: .* has shape)"):
        load_calibration(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe{", b"[" * 100_000])
def test_a_record_that_is_no_object_is_named(folder, content):
    (folder / "calibration.json").write_bytes(content)
    with pytest.raises(ValueError, match="calibration.json: "):
        load_calibration(folder)


def test_numbers_of_another_shape_are_refused(folder):
    path = folder / "adjustment.safetensors"
    tensors = load_file(path)
    save_file({name: torch.cat([value, value]) for name, value in tensors.items()}, path)
    with pytest.raises(ValueError, match="adjustment.safetensors: temperature_parameter has shape"):
        load_calibration(folder)


@pytest.mark.parametrize("cut", [0, 4, 40, -1])
@pytest.mark.parametrize("name", ["adjustment.safetensors", "adapter_model.safetensors", "model.safetensors"])
def test_weights_cut_short_are_named(folder, name, cut):
    save_file({"weight": torch.ones(8)}, folder / name) if name != "adjustment.safetensors" else None
    (folder / name).write_bytes((folder / name).read_bytes()[:cut])
    with pytest.raises(ValueError, match=f"{name}: not a readable safetensors file"):
        load_calibration(folder)


@pytest.mark.parametrize("name", ["adapter_config.json", "config.json", "tokenizer.json", "tokenizer_config.json"])
def test_settings_beside_it_that_are_no_json_are_named(folder, name):
    (folder / name).write_text('{"a": 1}')
    load_calibration(folder)
    (folder / name).write_text('{"a": ')
    with pytest.raises(ValueError, match=f"{name}: not valid JSON"):
        load_calibration(folder)
