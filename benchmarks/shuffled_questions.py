"""What a temperature buys out of domain and costs at home, and what questions without an answer say about it.

    python benchmarks/shuffled_questions.py runs/smollm2/science/... --home arc_easy.train.jsonl \
        --away mmlu=mmlu.val.jsonl medmcqa=medmcqa.train.jsonl

For the base and each run: one temperature fitted on the run's calibration split together with the same questions under
the options of others (gold drawn at random), in shares w; then conf-ECE on rows of the domain of training and on rows
of others. Give development rows, not test rows: w is chosen by what this prints. Scores are kept in --output_dir.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

SHARES = (0.0, 0.25, 0.5, 0.75)
Scores = tuple[np.ndarray, np.ndarray]  # [N, K] with -inf where an option is absent, and labels [N]


def rows_of(file: str, count: int, leave_out: set[str]) -> list[Any]:
    """So many rows of a file, chosen by a hash of their ids, without those whose ids are left out."""
    from calmtune.data.sources import load_rows
    from calmtune.data.splits import question_key

    rows = sorted((row for row in load_rows(file) if row.id not in leave_out), key=question_key)
    return rows[:count]


def read(path: Path, *, adjusted: bool) -> Scores:
    """Stored scores as a matrix, and the labels."""
    from calmtune.predictions import load_predictions

    found = load_predictions(path)
    return found.logits(adjusted=adjusted), found.labels


def fit(calibration: Scores, shuffled: Scores, share: float) -> float:
    """T by likelihood, the shuffled questions counting by ``share``."""
    from calmtune.posthoc import TemperatureScaler

    width = max(calibration[0].shape[1], shuffled[0].shape[1])
    parts, labels = [], []
    for (scores, gold), times in ((calibration, round(4 * (1 - share))), (shuffled, round(4 * share))):
        padded = np.pad(scores, ((0, 0), (0, width - scores.shape[1])), constant_values=-np.inf)
        parts += [padded] * times
        labels += [gold] * times
    return TemperatureScaler().fit(np.vstack(parts), np.concatenate(labels)).temperature


def figures(scores: Scores, temperature: float) -> str:
    """conf-ECE, mean confidence and accuracy."""
    from scipy.special import softmax

    from calmtune.metrics import expected_calibration_error

    p = softmax(scores[0] / temperature, axis=1)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == scores[1]
    return f"{expected_calibration_error(confidence, right):.3f} ({confidence.mean():.2f}, {right.mean():.2f})"


def score(options: argparse.Namespace, run: Path) -> dict[str, Path]:
    """Score the shuffled and the given rows with a run and with its base; files by ``variant name``."""
    from calmtune.cli.folder import RunFolder
    from calmtune.data.prompts import PromptStyle, Renderer
    from calmtune.data.shuffled import shuffled_options
    from calmtune.modeling.calibrated import CalmModel
    from calmtune.modeling.loading import load_model
    from calmtune.predictions import load_predictions
    from calmtune.scoring.options import score_items

    settings = json.loads((run / "calibration.json").read_text(encoding="utf-8"))
    splits = json.loads((run / "splits.json").read_text(encoding="utf-8"))["splits"]
    used = {identity for split in splits.values() for identity in split["rows"]}
    wanted = set(load_predictions(RunFolder(run).predictions("base", "calibration")).ids)
    calibration = [row for file in options.calibration for row in rows_of(file, 10**9, set()) if row.id in wanted]
    sets = {"shuffled": shuffled_options(calibration)}
    sets |= {"home": [row for file in options.home for row in rows_of(file, options.limit, used)]}
    sets |= {name: rows_of(file, options.limit, used) for name, file in options.away}
    found = {}
    model, tokenizer = load_model(settings["base"]["name"])
    tuned = CalmModel.from_pretrained(run, base_model=load_model(settings["base"]["name"])[0], tokenizer=tokenizer)
    renderer = Renderer(tokenizer, PromptStyle("text", settings["prompt"]["template"], None))
    for variant, network, alpha in (("base", model, None), (run.name, tuned.model, tuned.adjustment)):
        for name, rows in sets.items():
            path = found[f"{variant} {name}"] = options.output_dir / f"{variant}.{name}.jsonl"
            score_items(
                network, rows, renderer, adjustment=alpha, level=settings["level"], path=path,
                normalisation=settings["normalisation"], batch_tokens=options.batch_tokens, about={"rows": name},
            )  # fmt: skip
    return found


def main() -> None:
    """Score, fit and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs scored by text")
    parser.add_argument("--calibration", nargs="+", required=True, help="files that hold the runs' calibration rows")
    parser.add_argument(
        "--home", nargs="+", required=True, help="files of the domain of training; used rows are left out"
    )
    parser.add_argument("--away", nargs="+", required=True, metavar="NAME=FILE", type=lambda word: word.split("=", 1))
    parser.add_argument("--limit", type=int, default=200, help="rows of each file")
    parser.add_argument("--batch_tokens", type=int, default=2048)
    parser.add_argument("--output_dir", type=Path, default=Path("runs/shuffled_questions"))
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    names = ["home", *(name for name, _ in options.away), "shuffled"]
    print("conf-ECE (mean confidence, accuracy); T as it is, then fitted with a share w of shuffled questions")
    print("| row | w | T | calibration | " + " | ".join(names) + " |\n|---|---|---" + "|---" * (len(names) + 1) + "|")
    seen = set()
    for run in options.runs:
        files = score(options, run)
        for variant, adjusted in (("base", False), (run.name, False), (run.name, True)):
            if (variant, adjusted) in seen or (adjusted and not (run / "adjustment.safetensors").is_file()):
                continue
            seen.add((variant, adjusted))
            stored = run / "predictions" / f"{'base' if variant == 'base' else 'tuned'}.calibration.jsonl"
            parts = {name: read(files[f"{variant} {name}"], adjusted=adjusted) for name in names}
            home = read(stored, adjusted=adjusted)
            for share in (None, *SHARES):
                temperature = 1.0 if share is None else fit(home, parts["shuffled"], share)
                cells = [figures(part, temperature) for part in (home, *parts.values())]
                label = f"{variant}{' adjusted' if adjusted else ''}"
                print(f"| {label} | {'-' if share is None else share} | {temperature:.2f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
