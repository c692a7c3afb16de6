"""All files of a report in one folder."""

from __future__ import annotations

from pathlib import Path

from calmtune.report.figures import report_style
from calmtune.report.html import write_html
from calmtune.report.markdown import write_markdown
from calmtune.report.summary import Comparison, Summary, summarise
from calmtune.report.tables import overview_table, to_csv, to_latex


def write_report(
    comparison: Comparison | Summary, directory: Path | str, *, n_bins: int = 10, seed: int = 0, n_resamples: int = 1000
) -> Path:
    """Write report.html, report.md with report_files/, metrics.json, metrics.csv and table.tex.

    Args:
        comparison: what to compare, or a summary that was already computed (then the settings below are its own).
        directory: made if it is not there; files of these names are replaced.
        n_bins: bins of the binned errors.
        seed: of the resampling.
        n_resamples: bootstrap resamples.

    Returns:
        The path of report.html. Two runs on the same predictions write the same bytes.

    Raises:
        ValueError: matplotlib is missing, or see :func:`calmtune.report.summary.summarise`.
    """
    with report_style():
        pass  # a missing matplotlib is told before anything is computed
    summary = comparison
    if isinstance(summary, Comparison):
        summary = summarise(summary, n_bins=n_bins, seed=seed, n_resamples=n_resamples)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "metrics.json").write_text(summary.to_text(), encoding="utf-8")
    (directory / "metrics.csv").write_text(to_csv(summary), encoding="utf-8")
    (directory / "table.tex").write_text(to_latex(overview_table(summary)), encoding="utf-8")
    write_markdown(summary, directory / "report.md")
    return write_html(summary, directory / "report.html")
