"""Settings that cannot work are refused before the weights are loaded, and a run that failed early blocks no other."""

import pytest

import cli_run
import tiny
from calmtune.cli.main import main

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refusals")
    cli_run.write_config(folder)
    return folder


EARLY = [
    (["--seed=-1"], "seed: expected at least 0, got -1"),
    (["--learning_rate=-1"], "learning_rate: expected at least 0, got -1"),
    (["--report_to", "comet_ml"], "report_to: the tracker comet_ml is not installed"),
    (["--report_to", "[none, wand]"], "report_to: there is no tracker 'wand'; did you mean 'wandb'?"),
    (["--attn_implementation", "flesh"], "attn_implementation: expected one of eager, sdpa or null, got 'flesh'"),
    (["--template", "chat"], "template is 'chat', but the tokenizer has no chat template"),
    (["--lora_dropout", "1"], "lora_dropout: expected less than 1, got 1"),
    (["--lora_target_modules", "[q_prj]"], "lora_target_modules: q_prj matches no layer"),
    (["--lora_target_modules", "[q_proj, v_prj]"], "lora_target_modules: v_prj matches no layer"),
    (
        ["--lora_target_modules", "q_proj"],
        "lora_target_modules: q_proj as a regular expression for whole paths matches",
    ),
    (["--lora_target_modules", "[mlp]"], "lora_target_modules: {'mlp'} cannot be adapted"),
    (["--deepspeed", "x.json"], "deepspeed: not supported"),
    (["--output_dir", "null"], "output_dir: expected the folder that the run is written to, got nothing"),
    (["--max_steps", "2", "--max_steps", "3"], "'max_steps' was already set by --max_steps"),
]


@pytest.mark.parametrize(("words", "message"), EARLY, ids=lambda value: " ".join(value) if value else "")
@pytest.mark.parametrize("command", ["train", "inspect"])
def test_refused_before_the_weights_and_without_a_folder(folder, monkeypatch, capsys, command, words, message):
    monkeypatch.setattr(
        "calmtune.modeling.loading.AutoModelForCausalLM.from_pretrained", lambda *a, **k: pytest.fail("weights loaded")
    )
    assert main([command, str(folder / "run.yaml"), *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert not (folder / "run").exists()


def test_faults_of_machine_model_and_tokenizer_are_told_together(folder, capsys):
    words = ["--report_to", "comet_ml", "--template", "chat", "--lora_target_modules", "[q_prj]"]
    assert main(["train", str(folder / "run.yaml"), *words]) == 2
    err = capsys.readouterr().err
    assert all(part in err for part in ("comet_ml is not installed", "no chat template", "q_prj matches no layer"))


@pytest.mark.parametrize("words", [["--template", "chat"], ["--lora_target_modules", "[q_proj, mlp.up_proj]"],
                                   ["--lora_target_modules", ".*[qv]_proj"], ["--report_to", "none"]])  # fmt: skip
def test_what_works_is_not_refused(tmp_path, words):
    cli_run.write_config(tmp_path, max_steps=1)
    tiny.word_tokenizer((*tiny.WORDS, *map(str, range(200))), chat_template=tiny.CHAT).save_pretrained(
        tmp_path / "model"
    )
    assert main(["train", str(tmp_path / "run.yaml"), *words, "--traceback"]) == 0


def test_a_run_that_failed_before_its_first_checkpoint_blocks_no_other(tmp_path, monkeypatch, capsys):
    path = cli_run.write_config(tmp_path, max_steps=1)

    def fail(*args, **kwargs):
        raise ValueError("the weights are broken")

    with monkeypatch.context() as patched:
        patched.setattr("calmtune.modeling.loading.AutoModelForCausalLM.from_pretrained", fail)
        assert main(["train", str(path)]) == 2
    assert "the weights are broken" in capsys.readouterr().err
    assert (tmp_path / "run" / "config.yaml").is_file()
    assert main(["train", str(path), "--lora_r", "4", "--traceback"]) == 0
    assert "lora_r: 4" in (tmp_path / "run" / "config.yaml").read_text()
    assert main(["train", str(path), "--lora_r", "5"]) == 2
    assert "lora_r: 4 -> 5" in capsys.readouterr().err


def test_a_damaged_configuration_of_a_run_that_never_began_is_replaced(tmp_path):
    path = cli_run.write_config(tmp_path, max_steps=1)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_bytes(b"seed: caf\xe9\n")
    (tmp_path / "run" / "splits.json").write_bytes(b"{")
    assert main(["train", str(path), "--traceback"]) == 0


@pytest.mark.parametrize("name", ["config.yaml", "splits.json", "calibration.json", "adapter_config.json"])
@pytest.mark.parametrize("command", ["train", "evaluate", "report"])
def test_damage_to_a_finished_run_is_one_message(finished, tmp_path, capsys, command, name):
    import shutil

    run = tmp_path / "run"
    shutil.copytree(finished / "run", run)
    shutil.rmtree(run / "predictions") if command == "evaluate" else None
    (run / name).write_bytes((run / name).read_bytes()[:40])
    words = ["report", str(run)] if command == "report" else [command, str(run)]
    if command == "train":
        words = ["train", str(finished / "run.yaml"), "--output_dir", str(run)]
    status = main(words)
    err = capsys.readouterr().err
    assert "Traceback" not in err
    if status:
        assert (status, name in err) == (2, True)
    else:
        # what a command does not read cannot stop it
        assert (command, name) in {("train", "calibration.json"), ("train", "adapter_config.json"),
                                   ("report", "adapter_config.json")}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    path = cli_run.write_config(folder, max_steps=1)
    for words in (["train", str(path)], ["evaluate", str(folder / "run")]):
        assert main([*words, "--traceback"]) == 0
    return folder
