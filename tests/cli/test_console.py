"""Progress and warnings within a live line, where stderr is a file."""

from calmtune.cli.console import live_line, note, progress, warn


def test_a_live_line_is_its_title_alone_in_a_file(capsys):
    with live_line("[1/2] a run"):
        note("reading the data")
        with progress("training") as advance:
            advance(1, 2)
    note("after")
    assert capsys.readouterr().err.splitlines() == ["[1/2] a run", "after"]


def test_a_warning_is_told_once_for_all_runs(capsys):
    said = set()
    for title in ("one", "two"):
        with live_line(title, said):
            warn("3 rows were dropped")
            warn(f"only {title}")
    warn("3 rows were dropped")
    assert capsys.readouterr().err.splitlines() == [
        "one", "warning: 3 rows were dropped", "warning: only one", "two", "warning: only two",
        "warning: 3 rows were dropped",
    ]  # fmt: skip
