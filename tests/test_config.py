"""A configuration is typed, checked and saved so that it loads to the same values; all its faults are told at once."""

import dataclasses
import re

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from calmtune import checks, schema
from calmtune import config as configuration
from calmtune.config import ConfigError, ModelSettings, RunConfig, load_config, save_config, settings

BASE = ["--train_sources", "facts", "--output_dir", "runs/x"]


def write(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def faults_of(path=None, overrides=()):
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return caught.value.faults


def test_numbers_and_words_as_the_fields_mean_them(tmp_path):
    path = write(
        tmp_path,
        "train_sources: [facts]\noutput_dir: 010\nlearning_rate: 1e-4\neta: 2e5\nrun_name: 1:30\n"
        'label_names: [A, B, NO, yes]\nlora_dropout: "0.7"\nmax_steps: 1e3\nsystem_prompt: NO\nmodel_revision: null\n'
        "lora_target_modules: [q_proj, v_proj]\n",
    )
    config = load_config(path)
    assert config.training["learning_rate"] == 0.0001
    assert isinstance(config.training["learning_rate"], float)
    assert config.training["eta"] == 200000.0
    assert config.training["run_name"] == "1:30"
    assert config.training["label_names"] == ["A", "B", "NO", "yes"]
    assert config.training["output_dir"] == "010"
    assert config.training["max_steps"] == 1000
    assert config.training["system_prompt"] == "NO"
    assert config.lora.lora_dropout == 0.7
    assert config.lora.lora_target_modules == ("q_proj", "v_proj")
    assert config.model.model_revision is None


def test_every_fault_is_listed_at_once(tmp_path):
    path = write(
        tmp_path,
        "learning_rte: 1e-4\ntrain_sources: [facts, nowhere.jsonl, mmlu]\nmethod: clam\nlora_r: 0\nmax_steps: 1:30\n"
        "seed: 1\nseed: 2\nquantization: 3bit\nupper_share: 0.5\ncalibration_share: 0.4\neta: -1\n",
    )
    found = "\n".join(faults_of(path, ["--use_pfet", "false", "--bf16=maybe"]))
    for expected in (
        "run.yaml:1: there is no setting 'learning_rte'; did you mean 'learning_rate'?",
        "train_sources: there is no file nowhere.jsonl",
        "train_sources: expected a .jsonl, .csv, .parquet file, facts[:DOMAIN+DOMAIN] or hub:NAME/SPLIT, got 'mmlu'",
        "run.yaml:3: method: expected one of",
        "did you mean 'calm'?",
        "run.yaml:4: lora_r: expected at least 1, got 0",
        "run.yaml:5: max_steps: expected a whole number, got '1:30'",
        "run.yaml:7: the key 'seed' was already set",
        "quantization: expected one of 4bit, 8bit or null, got '3bit'",
        "upper_share, calibration_share, test_share: together 1.05",
        "eta: expected a finite number >= 0 or auto, got -1",
        "--use_pfet: there is no setting 'use_pfet'; did you mean 'use_peft'?",
        "--bf16: bf16: expected true or false, got 'maybe'",
        "output_dir: expected the folder",
    ):
        assert expected in found


def test_the_message_counts_the_faults():
    with pytest.raises(ConfigError, match=r"has 2 faults:\n  - .*\n  - "):
        load_config(None, ["--output_dir", "x", "--seed", "y"])
    with pytest.raises(ConfigError, match=r"has 1 fault:\n"):
        load_config(None, ["--output_dir", "x"])


def test_flags_win_over_the_file(tmp_path):
    path = write(tmp_path, "train_sources: [facts]\noutput_dir: a\nlearning_rate: 1e-4\nseed: 3\n")
    config = load_config(path, ["--learning-rate", "2e-4", "--output_dir=b"])
    assert (config.training["learning_rate"], config.training["seed"], str(config.output_dir)) == (2e-4, 3, "b")


def test_quantisation_without_a_gpu_is_told_before_anything_is_loaded(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (fault,) = faults_of(overrides=[*BASE, "--quantization", "4bit"])
    assert fault.startswith("quantization: 4bit needs a CUDA device and this machine has none")


def test_quantisation_without_bitsandbytes_names_the_extra(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(configuration.importlib.util, "find_spec", lambda name: None)
    model = ModelSettings(quantization="8bit", gguf_file="x.gguf")
    (lacking,) = model.machine_faults()
    assert "pip install 'calmtune[quant]'" in lacking
    assert list(model.faults()) == [
        "quantization: a GGUF file is loaded dequantised; set quantization or gguf_file, not both"
    ]


def test_settings_for_another_machine_are_checked_without_this_one(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    entries, _ = schema.read_flags([*BASE, "--quantization", "4bit", "--bf16"])
    assert configuration.build_config(entries, machine=False).model.quantization == "4bit"
    with pytest.raises(ConfigError, match="needs a CUDA device"):
        configuration.build_config(entries)


@pytest.mark.parametrize("key", checks.RANGES)
def test_a_training_argument_out_of_range_is_told_before_anything_is_loaded(key):
    bounds = checks.RANGES[key]
    outside = {"low": bounds["low"] - 1} | {side: bounds[side] + (side == "high") for side in bounds if side != "low"}
    for side, value in outside.items():
        (fault,) = faults_of(overrides=[*BASE, f"--{key}={value}"])
        words = {"low": "at least", "high": "at most", "below": "less than"}[side]
        assert fault == f"--{key}: {key}: expected {words} {bounds[side]:.10g}, got {value:.10g}"
    inside = [bounds["low"], *([bounds["high"]] if "high" in bounds else [])]
    for value in inside:
        more = ["--dataloader_num_workers=1"] if key == "dataloader_prefetch_factor" else []
        assert load_config(None, [*BASE, f"--{key}={value}", *more]).training[key] == value


def test_the_ranges_are_of_settings_that_there_are():
    assert {name for name in checks.RANGES if settings()[name].section == "training"} == set(checks.RANGES)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--lora_dropout=1", "--lora_dropout: lora_dropout: expected less than 1, got 1"),
        ("--attn_implementation=flesh", "attn_implementation: expected one of eager, sdpa or null, got 'flesh'"),
        ("--attn_implementation=flash_attention_2", "attn_implementation: expected one of eager, sdpa or null"),
        ("--lora_target_modules=[]", "lora_target_modules: expected names of layers or all-linear, got nothing"),
        ('--lora_target_modules=""', "lora_target_modules: expected names of layers or all-linear, got nothing"),
        ("--lora_target_modules=(q_proj", "lora_target_modules: '(q_proj' is no regular expression"),
    ],
)
def test_settings_that_could_only_fail_later_are_told_first(flag, message):
    (fault,) = faults_of(overrides=[*BASE, flag])
    assert message in fault


@pytest.mark.parametrize("text", ["null", "~", '""', "", "''"])
def test_a_run_needs_a_folder_with_a_name(tmp_path, text):
    (fault,) = faults_of(write(tmp_path, f"train_sources: [facts]\noutput_dir: {text}\n"))
    assert fault.startswith("output_dir: expected the folder that the run is written to, got nothing")


def test_a_file_is_no_folder_for_a_run(tmp_path):
    path = write(tmp_path, f"train_sources: [facts]\noutput_dir: {tmp_path / 'run.yaml'}\n")
    assert faults_of(path) == (f"output_dir: expected a folder, but {path} is a file; choose another name",)


@pytest.mark.parametrize("installed", [False, True])
def test_deepspeed_hides_no_other_fault(monkeypatch, installed):
    if not installed:
        # as transformers without the package does
        def refuse(self, config):
            raise ImportError("DeepSpeed requires the package deepspeed")

        monkeypatch.setattr("transformers.integrations.deepspeed.HfTrainerDeepSpeedConfig.__init__", refuse)
    found = faults_of(overrides=[*BASE, "--deepspeed", "ds.json", "--eta=-1", "--seed=-1", "--fp16"])
    assert sorted(fault.partition(": ")[0] for fault in found) == ["--seed", "deepspeed", "eta", "fp16"]


def test_the_message_names_the_file(tmp_path):
    path = write(tmp_path, "train_sources: [facts]\n")
    with pytest.raises(ConfigError, match=rf"the configuration {re.escape(str(path))} has 1 fault:\n  - output_dir: "):
        load_config(path)
    path.write_bytes(b"train_sources: [facts]\noutput_dir: caf\xe9\n")
    with pytest.raises(ValueError, match="run.yaml:2: not UTF-8"):
        load_config(path)


def test_a_quantised_base_needs_an_adapter():
    found = faults_of(overrides=[*BASE, "--quantization", "8bit", "--use_peft", "no"])
    assert any(fault.startswith("use_peft: a quantised base cannot be trained itself") for fault in found)


def test_shares_of_splits_with_sources_of_their_own_do_not_count(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    own = ["--upper_sources", str(rows), "--calibration_sources", str(rows), "--test_id", str(rows)]
    config = load_config(
        None, [*BASE, "--upper_share", "0.9", "--calibration_share", "0.9", "--test_share", "0.9", *own]
    )
    assert config.data.held_out() == ()
    config = load_config(None, [*BASE, *own[:4], "--test_share", "0.5"])
    assert config.data.held_out() == (("test", 0.5),)


def test_a_missing_file_is_told_with_the_place_looked_in(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no configuration file .*nowhere.yaml \(looked in "):
        load_config(tmp_path / "nowhere.yaml")


TEXTS = st.one_of(st.text(), st.sampled_from(["NO", "1e-4", "null", "~", "010", "1:30", "yes", "None", "# x", "a: b"]))


def is_pattern(text):
    try:
        re.compile(text)
    except re.error:
        return False
    return text != ""


NUMBERS = st.floats(min_value=1e-300, max_value=1e300)


@profile(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prompt=st.none() | TEXTS,
    names=st.none() | st.lists(TEXTS, min_size=1),
    modules=TEXTS.filter(is_pattern) | st.lists(TEXTS, min_size=1).map(tuple),
    rate=NUMBERS,
    eta=NUMBERS,
    limit=st.none() | st.integers(min_value=1, max_value=10**12),
    rslora=st.booleans(),
    kwargs=st.none()
    | st.dictionaries(st.text(min_size=1), st.none() | st.booleans() | TEXTS | NUMBERS | st.integers()),
)
def test_a_saved_configuration_loads_equal(tmp_path, prompt, names, modules, rate, eta, limit, rslora, kwargs):
    start = load_config(None, BASE)
    config = dataclasses.replace(
        start,
        data=dataclasses.replace(start.data, train_limit=limit),
        lora=dataclasses.replace(start.lora, lora_target_modules=modules, use_rslora=rslora),
        training={
            **start.training, "system_prompt": prompt, "label_names": names, "learning_rate": rate, "eta": eta,
            "lr_scheduler_kwargs": kwargs,
        },
    )  # fmt: skip
    save_config(config, tmp_path / "out" / "config.yaml")
    assert load_config(tmp_path / "out" / "config.yaml") == config


def test_every_setting_is_written_even_when_it_is_a_default(tmp_path):
    save_config(load_config(None, BASE), tmp_path / "config.yaml")
    text = (tmp_path / "config.yaml").read_text()
    for key in (
        "learning_rate",
        "seed",
        "lora_r",
        "split_seed",
        "eta",
        "inner_steps",
        "model_name_or_path",
        "max_steps",
    ):
        assert f"\n{key}: " in text


def test_access_tokens_are_never_written(tmp_path):
    save_config(load_config(None, [*BASE, "--hub_token", "hf_secret"]), tmp_path / "config.yaml")
    assert "hf_secret" not in (tmp_path / "config.yaml").read_text()


def test_every_setting_of_this_package_is_described_once():
    own = {name: setting for name, setting in settings().items() if setting.section != "training"}
    assert [name for name, setting in own.items() if not setting.help.endswith(".")] == []


def test_the_trainer_gets_every_argument():
    arguments = load_config(None, [*BASE, "--learning_rate", "3e-4", "--eta", "2"]).training_arguments()
    assert (arguments.learning_rate, arguments.eta, arguments.output_dir) == (3e-4, 2.0, "runs/x")


def test_a_configuration_knows_all_its_values():
    config = load_config(None, BASE)
    assert isinstance(config, RunConfig)
    assert set(config.values()) == set(settings())
