"""Two reliability diagrams, base and tuned, from the stored predictions of an evaluated run.

python examples/05_reliability_figure.py runs/first reliability.png --shift OOD
"""

from __future__ import annotations

import argparse
from pathlib import Path

from calmtune.cli.comparison import compare_runs
from calmtune.cli.folder import RunFolder
from calmtune.report import save_reliability_pair, summarise


def main() -> None:
    """Draw and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of an evaluated run")
    parser.add_argument("picture", type=Path, help="PNG to write")
    parser.add_argument("--shift", choices=["ID", "OOD"], default="OOD")
    parser.add_argument("--after", default="tuned adjusted", help="row of the report to show beside the base")
    options = parser.parse_args()
    summary = summarise(compare_runs([RunFolder(options.run)]))
    column = summary.column(options.shift)
    if column is None:
        raise SystemExit(f"the run has no {options.shift} test domain")
    sides = [
        (f"{row}, {column.title}", cell.reliability, cell.estimates["conf_ece"])
        for row in ("base", options.after)
        for cell in (summary.cells[row, column.name],)
    ]
    save_reliability_pair(options.picture, *sides)


if __name__ == "__main__":
    main()
