"""A suite on a tiny model: what is missing is run once, whatever ends, and whoever runs beside."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

import cli_run
from calmtune import run_key
from calmtune.cli import suite_plan, suite_runner
from calmtune.cli.folder import RunFolder
from calmtune.cli.main import main
from calmtune.cli.suite_folder import SuiteFolder, durations
from calmtune.cli.suite_plan import about, make_plan, remaining
from calmtune.predictions import load_predictions, save_predictions
from calmtune.suite import Filters, read_suite

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

FILES = ("adapter_model.safetensors", "predictions/base.test.jsonl", "predictions/tuned.test.jsonl",
         "predictions/tuned.calibration.jsonl", "splits.json", "config.yaml")  # fmt: skip

# the report has tests of its own; here it is a file that names what it was given
STUB = """
import json, sys, types
from dataclasses import dataclass, field
from pathlib import Path

def write(runs, directory, *, fit_temperature, fit_vector, **how):
    listed = [[one.setting, one.model, one.method, one.seed, one.tuned.name, list(one.tuned.tests)] for one in runs]
    page = Path(directory) / "report.html"
    page.write_text(json.dumps({"runs": listed, **how}))
    return page

class SuiteRun(types.SimpleNamespace):
    pass

stub = types.ModuleType("calmtune.report.suite")
stub.write_suite_report, stub.SuiteRun = write, SuiteRun
sys.modules["calmtune.report.suite"] = stub
"""


@pytest.fixture(scope="module", autouse=True)
def _stub():
    real = sys.modules.get("calmtune.report.suite")
    exec(STUB, {})
    yield
    sys.modules.pop("calmtune.report.suite")
    if real is not None:
        sys.modules["calmtune.report.suite"] = real


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, questions and a finished suite in ``suite``: sft and calm, one seed."""
    folder = tmp_path_factory.mktemp("suite")
    assert compare(cli_run.write_suite(folder)) == 0
    return folder


def compare(path, *words):
    return main(["compare", str(path), *words])


def worker(path, code, *words):
    """A process of its own that runs ``code``, then the suite."""
    program = f"{STUB}\n{code}\nfrom calmtune.cli.main import main\nsys.exit(main(['compare', *sys.argv[1:]]))"
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def runs(root):
    """Folders of a suite by method and seed."""
    found = {}
    for path in sorted(root.glob("*/*/*/suite_run.json")):
        record = json.loads(path.read_text())
        found.setdefault((record["method"], record["seed"]), []).append(path.parent)
    return found


def one(root, method, seed=0):
    (path,) = runs(root)[method, seed]
    return path


def reported(root):
    return json.loads((root / "report.html").read_text())


def trained(monkeypatch):
    """Which runs are trained from now on, in a list that grows."""
    done = []
    real = suite_runner.run_one
    monkeypatch.setattr(suite_runner, "run_one", lambda entry: (done.append(entry.run.method), real(entry)))
    return done


def other_code(monkeypatch):
    """From now on the rooms methods and report are of another version."""
    real = dict(run_key.code_version())
    monkeypatch.setattr(run_key, "_code_version", lambda package: {**real, "methods": "other"})


def test_each_run_is_an_ordinary_run_folder_with_a_decision(folder):
    for method in ("sft", "calm"):
        path = one(folder / "suite", method)
        assert path.parent == folder / "suite" / "sky" / "tiny"
        assert path.name.startswith(f"{method}-s0-")
        assert RunFolder(path).read_calibration()["decision"]["distribution"] in ("raw", "adjusted")
        assert not (path / "metrics.json").exists()
    assert main(["report", str(one(folder / "suite", "calm")), "--output_dir", str(folder / "single")]) == 0


def test_the_report_is_given_every_run_in_the_order_of_the_suite(folder):
    assert reported(folder / "suite") == {
        "runs": [["sky", "tiny", method, 0, method, ["sea", "sky"]] for method in ("sft", "calm")],
        "title": "Tiny",
        "n_bins": 10,
        "n_resamples": 20,
        "planned": [["sky", "tiny", method, 0] for method in ("sft", "calm")],
    }


def test_done_runs_are_kept(folder, monkeypatch, capsys):
    done = trained(monkeypatch)
    before = {path: path.stat().st_mtime_ns for path in one(folder / "suite", "calm").rglob("*") if path.is_file()}
    assert compare(folder / "suite.yaml") == 0
    assert done == []
    del before[one(folder / "suite", "calm") / "suite.lock"]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert "2 done" in capsys.readouterr().err


def test_the_base_is_scored_once_for_all_methods(folder, tmp_path, monkeypatch):
    from calmtune.scoring import options

    scored = []
    real = options._score

    def count(reader, how, items, *more):
        scored.extend(items)
        return real(reader, how, items, *more)

    monkeypatch.setattr(options, "_score", count)
    assert compare(folder / "suite.yaml", "--output_dir", str(tmp_path)) == 0
    items = sum(len(load_predictions(one(tmp_path, "sft") / "predictions" / f"base.{split}.jsonl"))
                for split in ("calibration", "test"))  # fmt: skip
    assert len(scored) == 3 * items  # the base, and each of the two tuned models
    copy = one(tmp_path, "calm") / "predictions" / "base.test.jsonl"
    original = one(tmp_path, "sft") / "predictions" / "base.test.jsonl"
    assert copy.read_bytes() == original.read_bytes()
    assert not copy.samefile(original)


def test_a_stored_base_with_other_weights_is_refused_and_never_shown(folder, tmp_path):
    assert compare(folder / "suite.yaml", "--output_dir", str(tmp_path), "--only_methods", "sft") == 0
    path = one(tmp_path, "sft") / "predictions" / "base.test.jsonl"
    said = load_predictions(path)
    save_predictions(path, replace(said, meta={**said.meta, "weights": "0"}))
    assert compare(folder / "suite.yaml", "--output_dir", str(tmp_path)) == 2
    assert "weights: file has '0'" in (one(tmp_path, "calm") / "failed.txt").read_text()
    assert [line[2] for line in reported(tmp_path)["runs"]] == ["sft"]


def test_killed_in_mid_training_the_same_command_ends_like_an_uninterrupted_one(folder, tmp_path, capsys):
    code = (
        "import os\nfrom calmtune.training.trainer import CalmTrainer\nstep, count = CalmTrainer.training_step, [0]\n"
        "def deadly(self, *args, **kwargs):\n"
        "    count[0] += self.args.method == 'calm'\n"
        "    if count[0] == 4: os.kill(os.getpid(), 9)\n"
        "    return step(self, *args, **kwargs)\n"
        "CalmTrainer.training_step = deadly\n"
    )
    killed = worker(folder / "suite.yaml", code, "--output_dir", str(tmp_path))
    killed.communicate(timeout=300)
    assert killed.returncode == -signal.SIGKILL
    half = one(tmp_path, "calm")
    assert (half / "checkpoint-2").is_dir()
    assert not (half / "adapter_model.safetensors").exists()
    assert compare(folder / "suite.yaml", "--output_dir", str(tmp_path), "--dry_run") == 0
    assert "(1 setting, 1 model, 2 methods, 1 seed): 1 done, 1 interrupted" in capsys.readouterr().out
    assert compare(folder / "suite.yaml", "--output_dir", str(tmp_path)) == 0
    for method in ("sft", "calm"):
        whole, mended = one(folder / "suite", method), one(tmp_path, method)
        assert whole.name == mended.name
        for name in FILES:
            old, new = (place / name for place in (whole, mended))
            assert old.read_bytes().replace(bytes(folder / "suite"), b"") == new.read_bytes().replace(
                bytes(tmp_path), b""
            ), name
    # an interrupted run says nothing about how long one takes
    assert list(durations(tmp_path)) == ["sft"]


def test_killed_while_it_was_scored_a_run_is_not_done_and_is_scored_to_the_end(folder, tmp_path, monkeypatch):
    words = ["--output_dir", str(tmp_path), "--only_methods", "sft"]
    assert compare(folder / "suite.yaml", *words) == 0
    run = one(tmp_path, "sft")
    record = json.loads((run / "suite_run.json").read_text())
    (run / "suite_run.json").write_text(json.dumps({**record, "finished": False, "seconds": None}))
    said = run / "predictions" / "tuned.test.jsonl"
    whole = said.read_bytes()
    said.write_bytes(b"".join(whole.splitlines(keepends=True)[:3]) + b'{"id": "cut')
    done = trained(monkeypatch)
    assert compare(folder / "suite.yaml", *words) == 0
    assert done == ["sft"]
    assert said.read_bytes() == whole


def test_two_workers_share_the_runs_and_do_none_twice(folder, tmp_path):
    # each begins its first run only when both have one in hand
    code = (
        "import os, pathlib, time\nfrom calmtune.cli import suite_runner\nreal = suite_runner.run_one\n"
        f"place = pathlib.Path({str(tmp_path / 'begun')!r})\nplace.mkdir(exist_ok=True)\n"
        "def together(entry):\n"
        "    (place / f'{os.getpid()}.{entry.run.method}.{entry.run.seed}').touch()\n"
        "    end = time.monotonic() + 120\n"
        "    while len({path.name.split('.')[0] for path in place.iterdir()}) < 2 and time.monotonic() < end:\n"
        "        time.sleep(0.05)\n"
        "    real(entry)\n"
        "suite_runner.run_one = together\nsuite_runner.POLL_SECONDS = 0.1\n"
    )
    words = ["--output_dir", str(tmp_path / "shared"), "--seeds", "0", "1"]
    both = [worker(folder / "suite.yaml", code, *words) for _ in range(2)]
    ends = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    begun = sorted(path.name.split(".", 1)[1] for path in (tmp_path / "begun").iterdir())
    assert begun == ["calm.0", "calm.1", "sft.0", "sft.1"]
    assert len({path.name.split(".")[0] for path in (tmp_path / "begun").iterdir()}) == 2
    assert len(reported(tmp_path / "shared")["runs"]) == 4
    assert any("done by another worker" in err for _, err in ends)


def test_a_run_is_held_by_one_until_it_lets_go(tmp_path):
    run = SuiteFolder(tmp_path / "run")
    with run.hold() as first, run.hold() as second:
        assert (first, second) == (True, False)
    with run.hold() as third:
        assert third


def test_a_failing_run_is_written_down_and_the_others_go_on(folder, tmp_path, monkeypatch, capsys):
    from calmtune.cli import train

    real = train.run_training

    def fail(config, advance=None):
        if config.training["method"] == "sft":
            raise RuntimeError("out of memory, say")
        return real(config, advance)

    words = ["--output_dir", str(tmp_path)]
    monkeypatch.setattr(train, "run_training", fail)
    assert compare(folder / "suite.yaml", *words) == 2
    err = capsys.readouterr().err
    assert "1 of 2 runs failed" in err
    assert "sky / tiny / sft / seed 0: RuntimeError: out of memory, say" in err
    assert "Traceback" in (one(tmp_path, "sft") / "failed.txt").read_text()
    assert [line[2] for line in reported(tmp_path)["runs"]] == ["calm"]
    assert compare(folder / "suite.yaml", *words, "--dry_run") == 0
    assert "RuntimeError: out of memory, say" in capsys.readouterr().out

    monkeypatch.setattr(train, "run_training", real)
    done = trained(monkeypatch)
    assert compare(folder / "suite.yaml", *words) == 0
    assert done == ["sft"]
    assert not (one(tmp_path, "sft") / "failed.txt").exists()
    assert [line[2] for line in reported(tmp_path)["runs"]] == ["sft", "calm"]


def test_what_fails_at_another_worker_is_not_tried_again_here(folder, tmp_path, monkeypatch):
    suite = read_suite(folder / "suite.yaml", ["--output_dir", str(tmp_path)], Filters(methods=["sft"]))
    plan = make_plan(suite)
    plan[0].folder.write(plan[0].run, plan[0].key, "base")
    plan[0].folder.keep_failure(ValueError("there"))
    done = trained(monkeypatch)
    (entry,) = suite_runner.run_suite(suite, plan)
    assert done == []
    assert entry.state == "failed"
    assert suite_plan.failure_line(entry) == "ValueError: there"


def test_interrupting_stops_at_once(folder, tmp_path, monkeypatch):
    begun = []

    def interrupt(entry):
        begun.append(entry)
        raise KeyboardInterrupt

    monkeypatch.setattr(suite_runner, "run_one", interrupt)
    assert compare(folder / "suite.yaml", "--output_dir", str(tmp_path)) == 130
    assert len(begun) == 1


def test_a_plan_trains_nothing_and_writes_nothing(folder, tmp_path, monkeypatch, capsys):
    done = trained(monkeypatch)
    assert compare(folder / "suite.yaml", "--output_dir", str(tmp_path / "x"), "--dry_run", "--seeds", "0", "1") == 0
    out = capsys.readouterr().out
    assert done == []
    assert not (tmp_path / "x").exists()
    assert out.splitlines()[0] == "Tiny: 4 runs (1 setting, 1 model, 2 methods, 2 seeds): 4 missing"
    assert [line.split()[:5] for line in out.splitlines()[1:5]] == [
        ["sky", "tiny", method, "seed", seed] for seed in ("0", "1") for method in ("sft", "calm")
    ]
    assert out.splitlines()[-1] == "to train: 4"


def test_changed_settings_are_a_new_folder_and_the_old_one_is_told_as_stale(folder, tmp_path, capsys):
    words = ["--output_dir", str(tmp_path), "--only_methods", "sft"]
    assert compare(folder / "suite.yaml", *words) == 0
    old = one(tmp_path, "sft")
    capsys.readouterr()
    assert compare(folder / "suite.yaml", *words, "--lora_r", "4", "--dry_run") == 0
    out = capsys.readouterr().out
    assert f"stale: {old.name}" in out
    assert "lora_r: 16 -> 4" in out
    assert "to train: 1, about " in out
    assert compare(folder / "suite.yaml", *words, "--lora_r", "4") == 0
    assert len(runs(tmp_path)["sft", 0]) == 2
    assert (old / "adapter_model.safetensors").is_file()
    # settings that change no figure keep the folder
    assert compare(folder / "suite.yaml", *words, "--n_bins", "5", "--save_steps", "1") == 0
    assert len(runs(tmp_path)["sft", 0]) == 2


def test_runs_of_other_code_are_stale_unless_they_are_kept(folder, tmp_path, monkeypatch, capsys):
    words = ["--output_dir", str(tmp_path), "--only_methods", "sft"]
    assert compare(folder / "suite.yaml", *words) == 0
    other_code(monkeypatch)
    done = trained(monkeypatch)
    capsys.readouterr()
    assert compare(folder / "suite.yaml", *words, "--dry_run") == 0
    assert "code: methods" in capsys.readouterr().out
    assert compare(folder / "suite.yaml", *words, "--keep_code", "--dry_run") == 0
    assert "done by other code" in capsys.readouterr().out
    assert compare(folder / "suite.yaml", *words, "--keep_code") == 0
    assert done == []
    assert reported(tmp_path)["title"] == "Tiny (1 of 1 runs made by other code)"
    # other settings are not kept
    assert compare(folder / "suite.yaml", *words, "--keep_code", "--lora_r", "4") == 0
    assert done == ["sft"]
    assert compare(folder / "suite.yaml", *words) == 0
    assert done == ["sft", "sft"]


def test_the_report_alone_is_of_what_is_done(folder, tmp_path, monkeypatch, capsys):
    done = trained(monkeypatch)
    words = ["--output_dir", str(folder / "suite"), "--seeds", "0", "1", "--report_only"]
    assert compare(folder / "suite.yaml", *words) == 0
    assert done == []
    assert len(reported(folder / "suite")["runs"]) == 2
    assert compare(folder / "suite.yaml", "--output_dir", str(tmp_path), "--report_only") == 2
    assert "nothing to report" in capsys.readouterr().err


def test_every_fault_is_told_before_anything_is_loaded(folder, tmp_path, monkeypatch, capsys):
    from calmtune.modeling import loading

    monkeypatch.setattr(
        loading.AutoModelForCausalLM, "from_pretrained", lambda *a, **k: pytest.fail("a model was loaded")
    )
    path = cli_run.write_suite(tmp_path, methods="{sft: {method: sftt}, calm: {eta_: 1}}")
    assert compare(path, "--lora_rr", "3") == 2
    err = capsys.readouterr().err
    for fault in ("method: expected one of", "there is no setting 'eta_'", "--lora_rr: there is no setting 'lora_rr'"):
        assert err.count(fault) == 1
    assert not (tmp_path / "suite").exists()


def test_help_behind_the_suite_says_where_it_goes(folder, capsys):
    with pytest.raises(SystemExit) as stopped:
        compare(folder / "suite.yaml", "--help")
    assert stopped.value.code == 0
    assert "calmtune compare" in capsys.readouterr().out


def test_the_rest_takes_as_long_as_its_method_took_or_any():
    entry = lambda method: SimpleNamespace(run=SimpleNamespace(method=method))  # noqa: E731
    known = {"sft": [10.0, 20.0], "calm": [60.0]}
    assert remaining([entry("sft"), entry("calm")], known) == 75.0
    assert remaining([entry("new")], known) == 30.0
    assert remaining([entry("new")], {}) is None
    assert about(3600 * 2 + 60 * 5) == "2 h 5 min"


def test_each_line_says_where_the_suite_is(folder, tmp_path, capsys):
    assert compare(folder / "suite.yaml", "--output_dir", str(tmp_path)) == 0
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if "done in" in line]
    assert [line[:5] for line in lines] == ["[1/2]", "[2/2]"]
    assert " so far, about " in lines[0]
    assert captured.out.splitlines() == [
        f"the report: {tmp_path / 'report.html'}", f"the tables: {tmp_path / 'tables.txt'}"
    ]  # fmt: skip
    assert "{'loss'" not in captured.out + captured.err
    assert "it/s" not in captured.err


def test_a_lock_file_of_a_dead_worker_holds_nothing(folder, tmp_path):
    code = (
        "import os\nfrom calmtune.cli import suite_runner\nsuite_runner.run_one = lambda entry: os.kill(os.getpid(), 9)"
    )
    dead = worker(folder / "suite.yaml", code, "--output_dir", str(tmp_path))
    dead.communicate(timeout=300)
    assert dead.returncode == -signal.SIGKILL
    assert list(tmp_path.rglob("suite.lock"))
    assert compare(folder / "suite.yaml", "--output_dir", str(tmp_path)) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "expected a record with format"),
        (b'{"format": "calmtune-suite-run/1"}', "key, parts, base, finished, method, seed missing"),
        (b"\xff", "not valid JSON"),
        (b"", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_a_damaged_record_is_told_with_its_file(tmp_path, content, message):
    (tmp_path / "suite_run.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"suite_run.json: .*{message}.*|suite_run.json: {message}"):
        SuiteFolder(tmp_path).read()


@pytest.mark.parametrize("keep", [0.5, 0.0])
def test_a_run_whose_predictions_were_cut_is_not_done(folder, tmp_path, keep):
    copy = tmp_path / "suite"
    shutil.copytree(folder / "suite", copy)
    record = next(copy.glob("*/*/*/suite_run.json"))
    run = SuiteFolder(record.parent)
    assert run.is_finished
    path = run.run.predictions("tuned", "test")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    assert not run.is_finished
