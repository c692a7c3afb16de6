"""The Markdown report and its pictures."""

import re

import pytest

from calmtune.report import summarise
from calmtune.report.markdown import escape, render_markdown, write_markdown
from calmtune.report.numbers import interval, number
from report.cases import comparison

QUESTION = "<script>x</script> | *bold*\n# head ``` [a](b)"


@pytest.fixture(scope="module")
def summary():
    texts = {f"{domain}-{index}": (QUESTION, ["a|b"] * 4) for domain in ("near", "far") for index in range(40)}
    return summarise(comparison(texts=texts, settings={"prompt": "```"}), n_resamples=20)


def test_every_picture_is_written_and_every_written_picture_is_shown(summary, tmp_path):
    text = write_markdown(summary, tmp_path / "report.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\]\((report_files/[^)]+)\)", text))
    assert shown == {path.relative_to(tmp_path).as_posix() for path in (tmp_path / "report_files").iterdir()}
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in shown)


def test_without_a_log_there_is_no_curve(tmp_path):
    bare = summarise(comparison({"near": "ID"}, training_log=()), n_resamples=5)
    text = write_markdown(bare, tmp_path / "report.md").read_text(encoding="utf-8")
    assert "No training log was given." in text
    assert not (tmp_path / "report_files" / "curves.png").exists()


def test_values_are_those_of_the_summary(summary):
    text = render_markdown(summary).replace("**", "")
    for cell in summary.cells.values():
        for found in cell.estimates.values():
            assert f"{number(found.value)} {interval(found)}" in text


def test_questions_are_text(summary):
    text = render_markdown(summary)
    assert "{" not in text
    assert "<script" not in text
    assert escape(QUESTION) in text
    assert escape(QUESTION) == r"&lt;script&gt;x&lt;/script&gt; \| \*bold\* \# head \`\`\` \[a\](b)"


def test_tables_are_whole(summary):
    # every line of a table has the same number of cells
    for block in re.findall(r"(?:^\|.*\n)+", render_markdown(summary), flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


def test_settings_with_a_fence_stay_inside_theirs(summary):
    assert "````text\nprompt: ```\n````" in render_markdown(summary)
