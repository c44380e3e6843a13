"""Tables as HTML, for figures that show one of several (:func:`conceptbind.widgets.explore` passes HTML through)."""

from __future__ import annotations

import html
from collections.abc import Sequence


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table whose first column names the rows; cells are text, and escaped.

    Raises ValueError for a row with another number of cells than the head has.
    """
    for row in rows:
        if len(row) != len(head):
            raise ValueError(f"the head has {len(head)} cells, the row {tuple(row)} has {len(row)}")
    top = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
    body = "".join(
        "<tr>"
        + f'<th scope="row">{html.escape(row[0])}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    # wider than a phone: the table scrolls, not the page
    return (
        '<div style="overflow-x: auto"><table class="table">'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )
