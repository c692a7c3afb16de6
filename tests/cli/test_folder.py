"""A run's folder whose files were damaged or edited by hand: one message that names the file and the field."""

import json

import pytest

from calmtune.cli.folder import NEEDED, SPLITS, RunFolder

SPLIT = {"count": 1, "domains": {"sky": 1}, "fingerprint": "00", "rows": {"a": "00"}}
RECORDS = {
    "splits": {"shifts": {"sky": "ID"}, "dropped": {}, "splits": dict.fromkeys(SPLITS, SPLIT)},
    "calibration": {"format": "calmtune-calibration/1", "decision": None},
    "items": {"a": ["what?", ["blue", "red"]]},
}
CONFIG = "model_name_or_path: tiny\nuse_peft: true\nn_bins: 10\nn_resamples: 20\n"


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    for name, record in RECORDS.items():
        folder.write_json(getattr(folder, name), record)
    folder.config.write_text(CONFIG)
    folder.training_log.write_text('{"step": 1}\n{"step": 2}\n')
    return folder


def paths_in(record, place=()):
    """Every place in nested objects."""
    for key, value in record.items():
        yield (*place, key)
        if isinstance(value, dict):
            yield from paths_in(value, (*place, key))


# what is free in its form: keys chosen by the data
FREE = {"domains", "rows", "dropped", "format"}
PLACES = [
    (name, place)
    for name in ("splits", "calibration")
    for place in paths_in(RECORDS[name])
    if not FREE & set(place[:-1]) and place[-1] not in ("format", "sky")
]


def read(folder, name):
    return getattr(folder, f"read_{name}")()


def edit(folder, name, place, change):
    record = json.loads(getattr(folder, name).read_text())
    inner = record
    for key in place[:-1]:
        inner = inner[key]
    change(inner, place[-1])
    folder.write_json(getattr(folder, name), record)


def test_the_untouched_folder_is_read(folder):
    assert {name: read(folder, name) for name in RECORDS} == RECORDS
    assert folder.read_settings()["n_bins"] == 10
    assert folder.read_training_log() == [{"step": 1}, {"step": 2}]


@pytest.mark.parametrize(("name", "place"), PLACES, ids=lambda value: str(value))
def test_a_missing_field_is_named(folder, name, place):
    edit(folder, name, place, lambda inner, key: inner.pop(key))
    with pytest.raises(ValueError) as caught:
        read(folder, name)
    assert str(caught.value).startswith(f"{getattr(folder, name)}: the field {'.'.join(place)} is missing")


@pytest.mark.parametrize(("name", "place"), [*PLACES, ("splits", ("shifts", "sky"))], ids=lambda value: str(value))
def test_a_field_of_another_type_is_named(folder, name, place):
    edit(folder, name, place, lambda inner, key: inner.update({key: [1]}))
    with pytest.raises(ValueError) as caught:
        read(folder, name)
    assert str(caught.value).startswith(f"{getattr(folder, name)}: the field {'.'.join(place)} is [1]; expected ")


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"a": 1', b"[]", b"3", b"\xff\xfe{", b"[" * 100_000, b'{"a": "\xe9"}']
)
@pytest.mark.parametrize("name", RECORDS)
def test_a_file_that_is_no_object_is_named(folder, name, content):
    getattr(folder, name).write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read(folder, name)
    assert str(caught.value).startswith(f"{getattr(folder, name)}: ")


@pytest.mark.parametrize("item", [None, "x", ["what?"], ["what?", "blue"], [1, ["a"]], ["what?", ["a", 1]], {"q": []}])
def test_an_item_of_another_form_is_named(folder, item):
    folder.write_json(folder.items, {**RECORDS["items"], "b": item})
    with pytest.raises(ValueError, match=r"items.json: expected \[question, \[options\]\] for the item 'b'"):
        folder.read_items()


@pytest.mark.parametrize("line", [b"{", b"[]", b"\xe9", b"[" * 100_000])
def test_a_line_of_the_log_that_is_no_object_is_named(folder, line):
    folder.training_log.write_bytes(folder.training_log.read_bytes() + line + b"\n")
    with pytest.raises(ValueError, match="training_log.jsonl:3: "):
        folder.read_training_log()


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("value", [None, "[1]", "x y"])
def test_a_setting_that_reports_need_is_named(folder, name, value):
    if value == "x y" and NEEDED[name] is str:
        value = "null"
    lines = [line for line in CONFIG.splitlines() if not line.startswith(name)]
    folder.config.write_text("\n".join([*lines, *([] if value is None else [f"{name}: {value}"])]))
    with pytest.raises(ValueError, match=f"config.yaml: {name}: expected .*, got "):
        folder.read_settings()


@pytest.mark.parametrize("content", [b"a: [1", b"a: caf\xe9", b"- a", b"a: " + b"[" * 5000])
def test_a_damaged_configuration_names_the_file(folder, content):
    folder.config.write_bytes(content)
    with pytest.raises(ValueError, match="config.yaml:"):
        folder.read_settings()


def test_a_run_is_begun_with_its_first_checkpoint(folder):
    folder.calibration.unlink()
    assert not folder.is_begun
    (folder.path / "checkpoint-2").mkdir()
    assert folder.is_begun
    (folder.path / "checkpoint-2").rmdir()
    folder.write_json(folder.calibration, {})
    assert folder.is_begun
