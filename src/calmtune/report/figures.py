"""Matplotlib figures as bytes, the same every time: PNG, and SVG that takes its colours from the page around it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#1e2329"
MUTED = "#69717d"
RULE = "#d6dae0"
ACCENT = "#2a5d8f"
WARM = "#b0521f"

# each colour is used nowhere else, so it can be exchanged for the page's own variable in the SVG text
_VARIABLES = {INK: "--ink", MUTED: "--muted", RULE: "--rule", ACCENT: "--accent", WARM: "--warm"}

_STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": [
        "DejaVu Sans"
    ],  # comes with matplotlib, so that a figure does not depend on the machine's fonts
    "font.size": 8.5,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "figure.constrained_layout.w_pad": 0.06,
    "svg.fonttype": "none",
    "axes.unicode_minus": True,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
}


@contextmanager
def report_style() -> Iterator[None]:
    """Draw inside this block: the report's look, whatever the user's own matplotlib settings are.

    Raises:
        ValueError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ValueError("figures need matplotlib, which is not installed: pip install 'calmtune[plot]'") from error
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(cast("Any", _STYLE))
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that size in inches, on the Agg canvas, outside pyplot's global list."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def to_svg(figure: Figure, *, name: str, description: str) -> str:
    """The figure as an SVG element to be set inside an HTML page.

    Ids are prefixed with ``name``, so that several figures can share a page; colours become the page's CSS variables.

    Args:
        figure: drawn inside :func:`report_style`.
        name: letters, digits and hyphens; unique within the page.
        description: what a reader who cannot see it is told.
    """
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None, "matplotlib writes a viewBox"
    text = re.sub(
        r"^<svg[^>]*>",
        f'<svg class="figure" role="img" aria-label="{escape(description)}" {box.group()}>',
        text,
        count=1,
    )
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = text.replace("url(#", f"url(#{name}-").replace('xlink:href="#', f'href="#{name}-')
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    # fonts are the page's; sizes stay
    text = re.sub(r"'DejaVu Sans', sans-serif|'DejaVu Sans'", "var(--sans)", text)
    return re.sub(r"[ \t]+\n", "\n", text).strip()


def to_png(figure: Figure, *, dpi: int = 160) -> bytes:
    """The figure as PNG on white."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()
