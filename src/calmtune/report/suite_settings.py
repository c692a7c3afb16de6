"""What the runs of a suite were made with: what all share, and what tells its methods apart."""

from __future__ import annotations

from collections.abc import Sequence

from calmtune.report.html import flatten
from calmtune.report.suite_runs import SuiteRun
from calmtune.report.tables import Table, TableCell

VARIES = "varies"


def common_settings(runs: Sequence[SuiteRun]) -> list[tuple[str, str]]:
    """Settings with one value in every run.

    Args:
        runs: at least one.
    """
    flat = [dict(flatten(run.settings)) for run in runs]
    return [(key, value) for key, value in flat[0].items() if all(one.get(key) == value for one in flat)]


def settings_table(runs: Sequence[SuiteRun]) -> Table | None:
    """Settings that differ between methods, a method a column; None where there are none.

    What differs between the runs of every method alike, such as the seed and the folder, is left out.
    """
    methods = tuple(dict.fromkeys(run.method for run in runs))
    flat = {method: [dict(flatten(run.settings)) for run in runs if run.method == method] for method in methods}
    rows = []
    for key in dict.fromkeys(key for of_method in flat.values() for one in of_method for key in one):
        values = [{one.get(key, "–") for one in flat[method]} for method in methods]
        texts = [next(iter(value)) if len(value) == 1 else VARIES for value in values]
        if len(set(texts)) > 1:
            rows.append((key, tuple(TableCell(text) for text in texts)))
    return Table("Settings that differ between methods", (), ("setting", *methods), tuple(rows)) if rows else None
