"""The command line itself: help, exit codes, and errors a user can read."""

import subprocess
import sys
import time
import warnings

import pytest

from calmtune import __version__
from calmtune.cli import main as cli
from calmtune.cli.main import COMMANDS, main

NAMES = [command.__name__.rsplit(".", 1)[1] for command in COMMANDS]


def failing(monkeypatch, error):
    """`calmtune env`, made to raise ``error``."""

    def run(options):
        raise error

    monkeypatch.setattr(cli.env, "run", run)
    return ["env"]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_an_example(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    out = capsys.readouterr().out
    assert stopped.value.code == 0
    assert f"example:\n  calmtune {name}" in out


def test_the_commands_are_the_documented_ones():
    assert sorted(NAMES) == [
        "abstain",
        "check",
        "compare",
        "demo",
        "env",
        "evaluate",
        "export",
        "inspect",
        "merge",
        "push",
        "report",
        "train",
    ]


def test_help_and_version(capsys):
    for words, expected in ((["--help"], "calmtune demo"), (["--version"], __version__)):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 0
        assert expected in capsys.readouterr().out


def test_the_module_is_the_command_and_quick():
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "calmtune", "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0
    assert done.stdout.startswith("usage: calmtune")
    # generous for a busy machine; torch and transformers alone take longer to import
    assert time.monotonic() - start < 2.5


@pytest.mark.parametrize(
    "error", [ValueError("row 3 is broken"), FileNotFoundError("there is no file x"), ModuleNotFoundError("gone")]
)
def test_an_error_is_one_message_and_status_2(monkeypatch, capsys, error):
    assert main(failing(monkeypatch, error)) == 2
    captured = capsys.readouterr()
    assert f"error: {error}" in captured.err
    assert "Traceback" not in captured.err
    assert "--traceback" in captured.err
    assert captured.out == ""


def test_traceback_is_shown_on_demand_wherever_it_stands(monkeypatch):
    words = failing(monkeypatch, ValueError("row 3 is broken"))
    with pytest.raises(ValueError, match="row 3"):
        main([*words, "--traceback"])
    with pytest.raises(ValueError, match="row 3"):
        main(["--traceback", *words])


def test_a_fault_of_the_program_is_never_dressed_up(monkeypatch):
    with pytest.raises(AssertionError, match="impossible"):
        main(failing(monkeypatch, AssertionError("impossible")))


def test_giving_up_training_is_a_message_but_a_crash_is_a_crash(monkeypatch, capsys):
    from calmtune.training.trainer import NonFiniteError

    assert main(failing(monkeypatch, NonFiniteError("3 steps were not finite"))) == 2
    assert "error: 3 steps were not finite" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="out of memory"):
        main(failing(monkeypatch, RuntimeError("out of memory")))


def test_a_warning_to_users_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(cli.env, "run", lambda options: warnings.warn("row 3 is odd", stacklevel=1))
    assert main(["env"]) == 0
    assert capsys.readouterr().err == "warning: row 3 is odd\n"


def test_interrupting_says_how_to_go_on(monkeypatch, capsys):
    assert main(failing(monkeypatch, KeyboardInterrupt())) == 130
    assert "--resume_from_checkpoint auto" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["trian"], ["env", "--eta", "1"], ["report"], ["train"]])
def test_wrong_usage_is_status_2(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert "usage: calmtune" in capsys.readouterr().err


def test_square_brackets_are_printed_as_they_are(monkeypatch, capsys):
    main(failing(monkeypatch, ValueError("row [3] of [bold]x[/bold]")))
    assert "row [3] of [bold]x[/bold]" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["train", "inspect"])
def test_every_fault_of_a_configuration_before_any_data_is_read(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("calmtune.data.sources.load_rows", lambda *a, **k: pytest.fail("data was read"))
    path = tmp_path / "run.yaml"
    path.write_text("learning_rte: 1e-4\ntrain_sources: [facts]\neta: minus\n")
    assert main([name, str(path), "--lora_r", "x", "--output_dir", "runs/x"]) == 2
    err = capsys.readouterr().err
    assert "has 3 faults" in err
    assert "did you mean 'learning_rate'?" in err
    assert "eta: expected one of auto or a number, got 'minus'" in err
    assert "lora_r: expected a whole number, got 'x'" in err


@pytest.mark.parametrize("name", ["train", "inspect"])
def test_help_behind_the_configuration_says_where_it_goes(name, capsys):
    assert main([name, "x.yaml", "--help"]) == 2
    assert f"calmtune {name} --help" in capsys.readouterr().err


def test_the_demo_takes_settings(monkeypatch):
    seen = {}
    monkeypatch.setattr(cli.demo, "run", lambda options: seen.update(vars(options)))
    assert main(["demo", "--eta", "2", "--output_dir", "x", "--max_steps=3"]) == 0
    assert seen["settings"] == ["--eta", "2", "--max_steps=3"]
    assert seen["output_dir"] == "x"


def test_env_is_a_table_of_versions(capsys):
    assert main(["env"]) == 0
    out = capsys.readouterr().out
    for name in ("python", "torch", "transformers", "peft", "bitsandbytes", "cpu", "cuda"):
        assert f"\n| {name} | " in out
