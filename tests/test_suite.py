"""A suite file expands to checked runs, and all its faults are told at once."""

import re
from pathlib import Path

import pytest

import cli_run
from calmtune.config import ConfigError
from calmtune.suite import Filters, read_suite

CONFIGS = Path(__file__).parents[1] / "configs"
# configs/models has recipes of single models, configs/accelerate settings of the launcher
SHIPPED = sorted(
    path
    for path in CONFIGS.glob("*/*.yaml")
    if path.name != "common.yaml" and path.parent.name not in ("models", "accelerate")
)

SUITE = """
output_dir: runs/suite
common: {train_sources: [facts], learning_rate: 1e-4}
models:
  small: {model_name_or_path: NO}
  large: {model_name_or_path: elsewhere/large, lora_r: 64, warmup_steps: 3, save_steps: 3}
settings:
  near: {}
  far: {test_ood: ["facts:months"], train_sources: ["facts:capitals"], warmup_steps: 5, save_steps: 5}
methods:
  sft: {method: sft}
  calm: {method: calm, eta: 3, learning_rate: 2e-4, warmup_steps: 9}
seeds: [0, 7]
"""


def write(tmp_path, text=SUITE, name="suite.yaml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def faults_of(*args, **kwargs):
    with pytest.raises(ConfigError) as caught:
        read_suite(*args, **kwargs)
    return caught.value.faults


def names(suite):
    return [(run.setting, run.model, run.method, run.seed) for run in suite.runs]


def test_every_combination_once_and_a_whole_table_of_the_first_seed_first(tmp_path):
    suite = read_suite(write(tmp_path))
    assert names(suite) == [
        (setting, model, method, seed)
        for setting in ("near", "far")
        for model in ("small", "large")
        for seed in (0, 7)
        for method in ("sft", "calm")
    ]
    assert (suite.title, suite.output_dir) == ("suite", Path("runs/suite"))


def test_what_is_nearer_to_the_run_wins_and_text_stays_text(tmp_path):
    runs = {(run.setting, run.model, run.method, run.seed): run.config for run in read_suite(write(tmp_path)).runs}
    one, other = runs["near", "small", "sft", 0], runs["far", "large", "calm", 7]
    assert (one.model.model_name_or_path, one.lora.lora_r, one.data.train_sources) == ("NO", 16, ("facts",))
    assert (one.training["method"], one.training["learning_rate"], one.training["seed"]) == ("sft", 1e-4, 0)
    assert (other.model.model_name_or_path, other.lora.lora_r) == ("elsewhere/large", 64)
    assert (other.data.train_sources, other.data.test_ood) == (("facts:capitals",), ("facts:months",))
    assert (other.training["method"], other.training["eta"], other.training["seed"]) == ("calm", 3, 7)
    assert other.training["learning_rate"] == 2e-4
    assert (other.training["warmup_steps"], other.training["save_steps"]) == (9, 5)
    assert one.data.split_seed == other.data.split_seed == 0


def test_a_run_gets_its_folder_and_goes_on_from_a_checkpoint(tmp_path):
    config = read_suite(write(tmp_path)).runs[0].placed(Path("there"))
    assert (config.output_dir, config.training["resume_from_checkpoint"]) == (Path("there"), "auto")


def test_a_recipe_is_found_beside_the_suite_and_is_the_weakest(tmp_path):
    (tmp_path / "deep").mkdir()
    write(tmp_path, "output_dir: runs/other\nseed: 99\nlearning_rate: 5e-1\nlora_dropout: 0.5\n", "recipe.yaml")
    suite = read_suite(write(tmp_path / "deep", SUITE + "recipe: ../recipe.yaml\n"))
    config = suite.runs[0].config
    assert (config.training["learning_rate"], config.lora.lora_dropout, config.training["seed"]) == (1e-4, 0.5, 0)
    assert suite.output_dir == Path("runs/suite")


def test_flags_are_part_of_common(tmp_path):
    suite = read_suite(write(tmp_path), ["--lora_dropout", "0.25", "--output_dir", "elsewhere"])
    assert {run.config.lora.lora_dropout for run in suite.runs} == {0.25}
    assert suite.output_dir == Path("elsewhere")


def test_a_flag_that_a_part_of_the_suite_wins_over_is_told(tmp_path):
    path = write(tmp_path)
    (fault,) = faults_of(path, ["--eta", "9"])
    assert fault == (
        f"--eta: methods: calm sets eta itself ({path}:12), which wins; change it there, or leave calm out with "
        "--only_methods"
    )
    assert {run.config.training["eta"] for run in read_suite(path, ["--eta", "9"], Filters(methods=["sft"])).runs} == {
        9
    }


def test_filters_leave_the_order_of_the_file(tmp_path):
    filters = Filters(settings=["far"], models=["large"], methods=["calm", "sft"], seeds=[5])
    assert names(read_suite(write(tmp_path), filters=filters)) == [
        ("far", "large", "sft", 5),
        ("far", "large", "calm", 5),
    ]
    (fault,) = faults_of(write(tmp_path), filters=Filters(methods=["clam"]))
    assert fault == "--only_methods: the suite has no 'clam'; did you mean 'calm'?; it has sft, calm"


def test_excluded_combinations_are_left_out(tmp_path):
    rules = "exclude:\n  - {setting: far, method: [sft, calm], model: small}\n  - {seed: 7, method: sft}\n"
    left = names(read_suite(write(tmp_path, SUITE + rules)))
    assert len(left) == 16 - 4 - 3
    assert not [one for one in left if one[:2] == ("far", "small") or one[2:] == ("sft", 7)]
    everything = SUITE + "exclude: [{method: [sft, calm]}]\n"
    assert faults_of(write(tmp_path, everything))[0].endswith("no run is left; exclude or the filters leave nothing")


def test_every_fault_is_told_with_its_line(tmp_path):
    path = write(
        tmp_path,
        "output_dir: runs/x\nmodel: {}\ncommon:\n  train_sources: [facts]\n  learning_rte: 1\n  seed: 4\n"
        "models:\n  a b: {}\nsettings:\n  near: {output_dir: x}\nmethods:\n  sft: {method: sftt}\n"
        "  calm: {n_bins: 3, lora_r: high}\n  base: {}\nseeds: [0, 0]\nexclude: [{method: cal}, {modle: x}]\n",
    )
    told = "\n".join(faults_of(path))
    for line, words in (
        (2, "a suite has no 'model'; did you mean 'models'?"),
        (5, "there is no setting 'learning_rte'; did you mean 'learning_rate'?"),
        (6, "seed cannot stand here; give `seeds`"),
        (8, "models: 'a b' names a folder"),
        (10, "output_dir cannot stand here"),
        (12, "method: expected one of calm, sft"),
        (13, "n_bins cannot stand here; put it into common"),
        (13, "lora_r: expected a whole number, got 'high'"),
        (14, "methods: 'base' is the untrained model"),
        (15, "seeds: expected whole numbers from 0 to 4294967295, at least one, each once, got [0, 0]"),
        (16, "exclude: there is no method 'cal'; did you mean 'calm'?"),
        (16, "exclude: there is no 'modle'; did you mean 'model'?"),
    ):
        assert f"{path}:{line}: {words}" in told
    assert told.count("learning_rte") == 1  # once, although every run has it


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("models: {a: {}}\nsettings: {s: {}}\nmethods: {m: {}}\nseeds: 0\n", "output_dir: expected the folder"),
        ("output_dir: x\nsettings: {s: {}}\nmethods: {m: {}}\nseeds: 0\n", "models: expected at least one name"),
        ("output_dir: x\nmodels: {}\nsettings: {s: {}}\nmethods: {m: {}}\nseeds: 0\n", "models: expected at least one"),
        ("output_dir: x\nmodels: {a: {}}\nsettings: {s: {}}\nmethods: sft\nseeds: 0\n", "methods: expected lines"),
        ("output_dir: x\nmodels: {a: {}}\nsettings: {s: {}}\nmethods: {m: {}}\n", "seeds: expected at least one"),
        ("output_dir: x\nrecipe: gone.yaml\n", "recipe: there is no file"),
        ("- a\n", "expected lines of the form key: value"),
    ],
)
def test_what_is_missing_is_told(tmp_path, text, fault):
    assert any(fault in found for found in faults_of(write(tmp_path, text)))


def test_a_fault_of_one_combination_names_it_and_of_all_does_not(tmp_path):
    text = SUITE.replace("eta: 3", "eta: 3, upper_gradient: alpha, adjustment: none")
    (fault,) = faults_of(write(tmp_path, text))
    assert fault.startswith("upper_gradient: alpha needs an adjustment")
    assert fault.endswith("(in near / small / calm and 3 more)")
    (everywhere,) = faults_of(write(tmp_path), ["--upper_share", "0.9"])
    assert everywhere.startswith("upper_share, calibration_share, test_share: together 1.2")
    assert "(in " not in everywhere


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no suite file"):
        read_suite(tmp_path / "gone.yaml")


def test_a_suite_for_another_machine_can_be_looked_at(tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    path = write(tmp_path, SUITE.replace("lora_r: 64", "lora_r: 64, quantization: 4bit"))
    assert len(read_suite(path, machine=False).runs) == 16
    (fault,) = faults_of(path)
    assert fault.startswith("quantization: 4bit needs a CUDA device")
    assert fault.endswith("(in near / large / sft and 3 more)")


def test_there_are_suites_for_the_paper_and_for_a_small_model():
    assert [path.relative_to(CONFIGS).as_posix() for path in SHIPPED] == [
        "paper/ablations.yaml", "paper/id_mcqa.yaml", "paper/ood_mcqa.yaml", "paper/openqa.yaml",
        "smollm2/ablations.yaml", "smollm2/openqa.yaml", "smollm2/science.yaml",
    ]  # fmt: skip


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_shipped_suite_has_no_fault(path):
    missing = [one for one in re.findall(r"\.\./[\w./]+\.jsonl", path.read_text()) if not Path(one).is_file()]
    if missing:
        pytest.skip(f"reads rows that are not here: {missing[0]}")
    suite = read_suite(path, machine=False)
    assert suite.title != path.stem
    assert {run.seed for run in suite.runs} == {0, 1, 2}
    for run in suite.runs:
        instructions = any("alpaca" in source for source in run.config.data.train_sources)
        assert not (instructions and run.config.training["method"] in ("cft", "rcft"))
        if path.parent.name == "paper":
            how = run.config.training
            assert (run.config.lora.lora_r, run.config.lora.lora_alpha, how["num_train_epochs"]) == (64, 32, 5)
            assert how["per_device_train_batch_size"] * how["gradient_accumulation_steps"] == 16


def test_the_suites_of_the_paper_have_its_four_models():
    for name in ("ood_mcqa", "id_mcqa", "openqa"):
        suite = read_suite(CONFIGS / "paper" / f"{name}.yaml", machine=False)
        assert len({run.config.model.model_name_or_path for run in suite.runs}) == 4


def test_the_tests_own_small_suite_is_valid(tmp_path):
    assert len(read_suite(cli_run.write_suite(tmp_path)).runs) == 2


def test_methods_that_would_be_scored_on_other_rows_are_refused(tmp_path):
    text = SUITE.replace("sft: {method: sft}", "sft: {method: sft, calibration_sources: [facts], test_limit: 3}")
    found = faults_of(write(tmp_path, text))
    assert sum("methods are compared on the same rows" in fault for fault in found) == 2


def test_a_method_under_the_name_of_another_is_refused(tmp_path):
    found = faults_of(write(tmp_path, SUITE.replace("sft: {method: sft}", "sft: {}")))
    assert any("sft would train calm, under the name of another method" in fault for fault in found)


@pytest.mark.parametrize("seeds", [[1, 1], [-1], [2**32]])
def test_seeds_are_checked_wherever_they_come_from(tmp_path, seeds):
    expected = "seeds: expected whole numbers from 0 to 4294967295"
    assert any(expected in fault for fault in faults_of(write(tmp_path), (), Filters(seeds=seeds)))
    text = SUITE.replace("seeds: [0, 7]", f"seeds: {seeds}")
    assert any(expected in fault for fault in faults_of(write(tmp_path, text)))


def test_a_file_in_another_encoding_is_named(tmp_path):
    path = write(tmp_path)
    path.write_bytes(SUITE.encode().replace(b"NO", b"\xff"))
    with pytest.raises(ValueError, match=r"suite.yaml:5: not UTF-8"):
        read_suite(path)
