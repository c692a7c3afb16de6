"""What `calmtune inspect` shows, without a model."""

import pytest

import cli_run
from calmtune.cli.main import main


@pytest.fixture
def no_model(monkeypatch):
    from calmtune.modeling import loading

    monkeypatch.setattr(
        loading.AutoModelForCausalLM, "from_pretrained", lambda *a, **k: pytest.fail("a model was loaded")
    )


@pytest.mark.usefixtures("no_model")
def test_options_with_ids_and_the_position_that_is_read(tmp_path, capsys):
    assert main(["inspect", str(cli_run.write_config(tmp_path)), "--traceback"]) == 0
    out = capsys.readouterr().out
    assert "level options, scoring text, template plain" in out
    assert "prompt text    'Question: what is the sky" in out
    assert "options        4, scored as text; the gold one is marked *" in out
    assert out.count("    * ") == 5  # one gold option for each of the five splits
    sizes = {line.split()[0]: int(line.split()[1]) for line in out.splitlines()[1:6]}
    assert list(sizes) == ["train", "upper", "calibration", "test_id", "test_ood"]
    assert sum(sizes.values()) == 140
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_model")
def test_the_loss_mask_of_an_answer(tmp_path, capsys):
    path = cli_run.write_config(tmp_path, level="vocabulary", scoring="letter")
    assert main(["inspect", str(path), "--traceback"]) == 0
    out = capsys.readouterr().out
    assert "1 x 1 (answer)" in out
    assert "letter ids     [" in out
    assert "loss 1  id" in out
    assert "loss 0  id" in out


@pytest.mark.usefixtures("no_model")
def test_rows_that_cannot_be_used_are_all_named(tmp_path, capsys):
    assert main(["inspect", str(cli_run.write_config(tmp_path)), "--max_length", "8"]) == 2
    err = capsys.readouterr().err
    assert "140 rows cannot be encoded" in err
    assert "sky/" in err
    assert "and 120 more" in err


def test_all_settings_can_be_listed(capsys):
    assert main(["inspect", "--settings"]) == 0
    out = capsys.readouterr().out
    assert "learning_rate: a number; default 5e-05" in out
    assert "quantization: one of 4bit, 8bit or null; default None" in out
    assert "\nmodel\n" in out


def test_without_a_configuration_it_says_what_to_give(capsys):
    assert main(["inspect"]) == 2
    assert "expected CONFIG" in capsys.readouterr().err
