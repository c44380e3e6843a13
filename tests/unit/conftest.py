"""What unit tests share."""

import matplotlib as mpl
import pytest

from conceptbind import plots


@pytest.fixture
def book_style():
    """Draw without a screen, in the style of the book."""
    with mpl.rc_context():
        mpl.use("agg")
        plots.use_style()
        yield
