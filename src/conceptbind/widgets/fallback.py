"""What both controls share: the mode, and figures as HTML that also shows where no script runs."""

from __future__ import annotations

import base64
import html
import io
import os
from typing import Literal

import matplotlib
from IPython.display import HTML, display
from matplotlib.figure import Figure

Mode = Literal["book", "live"]
ENVIRONMENT = "CONCEPTBIND_WIDGETS"

# A figure of 5 inches is 400 CSS pixels wide: near its size in print, with text near the size of the page's.
CSS_PIXELS_PER_INCH = 80

# Keyword arguments of savefig that make a figure the same bytes in each run.
_SAVE: dict[str, dict[str, object]] = {
    "webp": {"pil_kwargs": {"quality": 80, "method": 6}},
    "png": {"metadata": {"Software": None}},
    "svg": {"metadata": {"Date": None, "Creator": None}},
}


def choose_mode(mode: str | None) -> Mode:
    """Return ``mode``, or what the environment variable CONCEPTBIND_WIDGETS says, or ``"live"``.

    Raises ValueError for anything but ``"book"`` and ``"live"``.
    """
    source = "mode" if mode is not None else f"the environment variable {ENVIRONMENT}"
    chosen = mode if mode is not None else os.environ.get(ENVIRONMENT, "live")
    if chosen not in ("book", "live"):
        raise ValueError(f"{source} must be 'book' (static pages) or 'live' (with a kernel); got {chosen!r}")
    return chosen


def check_format(fmt: str, dpi: int) -> None:
    """Raise ValueError for an unknown picture format or a resolution that is not positive."""
    if fmt not in _SAVE:
        raise ValueError(f"fmt must be one of {tuple(_SAVE)}; got {fmt!r}")
    if not dpi > 0:
        raise ValueError(f"dpi must be positive; got {dpi}")


def figure_html(figure: Figure, alt: str, *, fmt: str = "webp", dpi: int = 160) -> str:
    """Draw a figure into an ``<img>`` with its data inside, on white, and leave it closed.

    Width and height stand in the tag, so the page does not jump when one frame replaces another.
    """
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "conceptbind"}):
        figure.savefig(buffer, format=fmt, dpi=dpi, facecolor="white", **_SAVE[fmt])
    width, height = (round(inches * CSS_PIXELS_PER_INCH) for inches in figure.get_size_inches())
    close(figure)
    kind = "svg+xml" if fmt == "svg" else fmt
    data = base64.b64encode(buffer.getvalue()).decode()
    # dark-light tells the theme not to dim and frame the picture in dark mode.
    return (
        f'<img class="conceptbind-frame dark-light" alt="{html.escape(alt, quote=True)}" '
        f'width="{width}" height="{height}" style="max-width:100%;height:auto" '
        f'src="data:image/{kind};base64,{data}">'
    )


def close(figure: Figure) -> None:
    """Close the figure in pyplot, so that the notebook does not show it a second time."""
    import matplotlib.pyplot as plt

    plt.close(figure)


def show_without_script(content: str) -> None:
    """Add an output that only a reader without JavaScript sees: widgets show nothing there."""
    display(HTML(f"<noscript>{content}</noscript>"))
