"""Open questions of a run or of a model as it is: answers sampled, graded, and turned into figures.

Three steps, each kept on disk: samples need the model; grades need the samples and, by choice, an entailment model or a
judge; figures need the grades alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calmtune.cli.console import note, progress
from calmtune.cli.folder import RunFolder

if TYPE_CHECKING:
    from calmtune.cli.console import Advance
    from calmtune.cli.splits import Splits
    from calmtune.config import RunConfig
    from calmtune.config_scoring import EvaluationSettings
    from calmtune.report.openqa_records import OpenComparison, OpenSummary, OpenVariant

# files under samples/, and the rows of the tables
ROWS = {"base": "base", "tuned": "tuned", "adjusted": "tuned adjusted"}
SPLITS = ("calibration", "test")


def sample_run(folder: RunFolder, config: RunConfig, splits: Splits, trained: RunFolder | None = None) -> None:
    """Sample the base and, where there is a trained run, the tuned model; what is there is kept.

    Args:
        folder: where to. config: the model, and how it is asked. splits: what it is asked.
        trained: the folder of the run, where it is another one.

    Raises:
        ValueError: samples of other settings are there, or the run's alpha has no meaning for tokens.
    """
    trained = trained or folder
    if samples_are_whole(folder, config, splits, trained):
        note("every answer is sampled already")
        return
    from calmtune.cli.train import load_base, placement
    from calmtune.modeling.calibrated import CalmModel

    name = config.model.model_name_or_path
    note(f"loading {name}")
    model, tokenizer = load_base(config)
    _sample(folder, config, splits, "base", model, tokenizer, {"model": name})
    if not trained.is_trained:
        return
    parts = {"base_model": model, "tokenizer": tokenizer} if config.lora.use_peft else placement(config)
    tuned = CalmModel.from_pretrained(trained.path, **parts)
    about = {"model": name, "run": tuned.settings["method"]}
    _sample(folder, config, splits, "tuned", tuned.model, tuned.tokenizer, about)
    if tuned.adjustment is not None and tuned.settings["level"] == "vocabulary":
        _sample(folder, config, splits, "adjusted", tuned.model, tuned.tokenizer, about, tuned.adjustment)


def _sample(
    folder: RunFolder,
    config: RunConfig,
    splits: Splits,
    variant: str,
    model: Any,
    tokenizer: Any,
    about: dict[str, Any],
    adjustment: Any = None,
) -> None:
    """Sample one distribution on the calibration and the test questions, with progress."""
    from calmtune.cli.shares import Records, produce_in_shares
    from calmtune.data.prompts import Renderer
    from calmtune.samples import append_samples, load_samples
    from calmtune.scoring.sampling import sample_answers

    renderer = Renderer(tokenizer, config.training_arguments().prompt_style)
    for split, temperature, rows in parts_to_sample(config, splits):

        def produce(rows: Sequence[Any], path: Path, advance: Advance, heat: float = temperature) -> None:
            sample_answers(
                model,
                rows,
                renderer,
                settings=sampling_settings(config, heat),
                adjustment=adjustment,
                batch_rows=config.evaluation.sample_batch_rows,
                max_length=config.training["max_length"],
                path=path,
                about=about,
                progress=advance,
            )

        at = f" at T = {temperature:g}" if temperature != 1 else ""
        with progress(f"{ROWS[variant]}, {split}{at}") as advance:
            path = folder.samples(variant, split, temperature)
            produce_in_shares(produce, rows, path, Records(load_samples, append_samples), advance)


def parts_to_sample(config: RunConfig, splits: Splits) -> Iterator[tuple[str, float, Sequence[Any]]]:
    """(split, temperature, questions) of every file of one distribution."""
    if splits.open_calibration:
        for temperature in (1.0, *config.sampling.temperature_grid):
            yield "calibration", temperature, splits.open_calibration
    yield "test", 1.0, splits.open_test


def sampling_settings(config: RunConfig, temperature: float) -> Any:
    """How answers are drawn at a temperature."""
    from calmtune.scoring.sampling_settings import SamplingSettings

    how = config.sampling
    return SamplingSettings(
        n=how.n_samples,
        max_new_tokens=how.max_new_tokens,
        temperature=temperature,
        stop=("\n",) if how.stop_at_line_end else (),
        seed=how.sampling_seed,
    )


def samples_are_whole(folder: RunFolder, config: RunConfig, splits: Splits, trained: RunFolder) -> bool:
    """Whether every answer that the settings ask for is on disk, so that no model is needed.

    Of which weights they are was checked when they were sampled.
    """
    variants = ["base", *(["tuned"] if trained.is_trained else [])]
    if trained.is_trained and has_token_adjustment(trained):
        variants.append("adjusted")
    for variant in variants:
        for split, temperature, rows in parts_to_sample(config, splits):
            sampled = whole_samples(folder.samples(variant, split, temperature))
            wanted = sampling_settings(config, temperature).record()
            if sampled is None or sampled.meta.get("sampling") != wanted or set(sampled.ids) != {r.id for r in rows}:
                return False
    return True


def whole_samples(path: Path) -> Any:
    """The samples of a file, or None where it is not there or not finished."""
    from calmtune.samples import load_samples

    if not path.is_file():
        return None
    sampled = load_samples(path)
    return sampled if len(sampled) == sampled.meta.get("n") else None


def has_token_adjustment(folder: RunFolder) -> bool:
    """Whether the run has an alpha that acts on tokens, so that there is an adjusted distribution to sample."""
    from calmtune.modeling.calibration_files import load_calibration

    adjustment, record = load_calibration(folder.path)
    return adjustment is not None and record["level"] == "vocabulary"


def grade_run(folder: RunFolder, config: RunConfig) -> None:
    """Grade every samples file of a folder; files with these grades are kept as they are."""
    from calmtune.cli.openqa_grading import make_grader
    from calmtune.graded import save_graded

    sampled = {path: found for path in folder.sample_files() if (found := whole_samples(path)) is not None}
    todo = {path: one for path, one in sampled.items() if not is_graded(folder.grades_of(path), one, config.evaluation)}
    if not todo:
        return
    grader = make_grader(config.evaluation, folder.path / "decisions")
    with progress("grading") as advance:
        for done, (path, one) in enumerate(todo.items(), start=1):
            save_graded(folder.grades_of(path), grader.grade(one))
            advance(done, len(todo))


def is_graded(path: Path, sampled: Any, how: EvaluationSettings) -> bool:
    """Whether a file holds the grades of these samples by these settings, and of this version of the rules."""
    from calmtune.cli.openqa_grading import about_grades
    from calmtune.graded import load_graded

    if not path.is_file():
        return False
    graded = load_graded(path)
    wanted = about_grades(how, sampled)
    return graded.ids == sampled.ids and all(graded.meta.get(key) == value for key, value in wanted.items())


def decide_open_run(folder: RunFolder) -> dict[str, Any] | None:
    """How the tuned model of a graded run is used; None where no calibration question was asked."""
    from calmtune.graded import load_graded
    from calmtune.report.openqa_choice import decide_open

    found = {name: folder.grades(name, "calibration") for name in ROWS}
    if not found["tuned"].is_file():
        return None
    candidates = {"raw": load_graded(found["tuned"])}
    if found["adjusted"].is_file():
        candidates["adjusted"] = load_graded(found["adjusted"])
    drop = float(folder.read_settings().get("selection_accuracy_drop", 0.02))
    return decide_open(candidates, load_graded(found["base"]), accuracy_drop=drop)


def compare_open_runs(folders: Sequence[RunFolder]) -> OpenComparison:
    """The base and the tuned model of each run, from their graded answers.

    Raises:
        FileNotFoundError: a run was not evaluated. ValueError: two folders have one name.
    """
    from calmtune.report.openqa_records import OpenComparison

    first, last = folders[0], folders[-1]
    shifts = first.read_splits()["shifts"]
    variants = [open_variant(first, "base", "base", shifts)]
    for folder in folders:
        own = "tuned" if len(folders) == 1 else folder.path.resolve().name
        for stored, row in (("tuned", own), ("adjusted", f"{own} adjusted")):
            if folder.grades(stored, "test").is_file():
                variants.append(open_variant(folder, stored, row, shifts))
    decision = last.read_calibration().get("decision") if last.is_trained else None
    return OpenComparison(
        variants=variants,
        shifts=shifts,
        title="Open questions, before and after: " + ", ".join(f.path.resolve().name for f in folders)
        if len(variants) > 1
        else f"Open questions: {last.read_settings()['model_name_or_path']}",
        settings=last.read_settings(),
        training_log=last.read_training_log(),
        decision=decision,
    )


def open_variant(folder: RunFolder, stored: str, name: str, domains: Any) -> OpenVariant:
    """One distribution's graded answers, by test domain."""
    from calmtune.cli.console import command
    from calmtune.graded import load_graded
    from calmtune.report.openqa_records import OpenVariant

    path = folder.grades(stored, "test")
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder.path} was not evaluated yet; run: {command('calmtune', 'evaluate', folder.path)}"
        )
    test, calibration = load_graded(path), folder.grades(stored, "calibration")
    return OpenVariant(
        name,
        {domain: test.of_domain(domain) for domain in domains},
        load_graded(calibration) if calibration.is_file() else None,
        {temperature: load_graded(one) for temperature, one in folder.grid(stored).items()},
    )


def summarise_open_runs(folders: Sequence[RunFolder]) -> OpenSummary:
    """Every figure of the runs, by the bins and resamples of the last one's settings."""
    from calmtune.report.openqa_summary import summarise_open

    settings = folders[-1].read_settings()
    options = {name: int(settings[name]) for name in ("n_bins", "n_resamples")}
    return summarise_open(compare_open_runs(folders), **options)
