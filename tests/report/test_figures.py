"""Figures as bytes."""

import re
import sys

import matplotlib as mpl
import pytest

from calmtune.report.figures import ACCENT, INK, new_figure, report_style, to_png, to_svg


def _figure():
    figure = new_figure(2, 1)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=ACCENT)
    axes.set_title("a < b & <script>", color=INK)
    return figure


def test_svg_is_the_same_every_time_and_needs_nothing():
    with report_style():
        first, second = (to_svg(_figure(), name="one", description='say "x" <b>') for _ in range(2))
    assert first == second
    assert first.startswith('<svg class="figure" role="img" aria-label="say &quot;x&quot; &lt;b&gt;" viewBox=')
    assert "http" not in first
    assert "<script" not in first
    assert "a &lt; b &amp; &lt;script&gt;" in first


def test_svg_takes_its_colours_from_the_page():
    with report_style():
        svg = to_svg(_figure(), name="one", description="")
    assert "var(--accent)" in svg
    assert "var(--ink)" in svg
    assert ACCENT not in svg


def test_two_figures_on_a_page_share_no_id():
    with report_style():
        one, two = (to_svg(_figure(), name=name, description="") for name in ("one", "two"))
    ids = [set(re.findall(r'id="([^"]+)"', svg)) for svg in (one, two)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for svg, known in zip((one, two), ids, strict=True):
        assert set(re.findall(r"url\(#([^)]+)\)", svg)) | set(re.findall(r'href="#([^"]+)"', svg)) <= known


def test_png_is_the_same_every_time():
    with report_style():
        assert to_png(_figure()) == to_png(_figure())


def test_the_users_own_style_is_left_alone_and_has_no_say():
    before = dict(mpl.rcParams)
    with mpl.rc_context({"lines.linewidth": 9.0}):
        with report_style():
            assert mpl.rcParams["lines.linewidth"] != 9.0
        assert mpl.rcParams["lines.linewidth"] == 9.0
    assert dict(mpl.rcParams) == before


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r"pip install 'calmtune\[plot\]'"), report_style():
        pass
