"""Tables as HTML hold the cells they are given."""

import xml.etree.ElementTree as ET

import pytest

from conceptbind.html_tables import html_table


def test_cells_stand_in_their_rows_and_are_escaped():
    found = ET.fromstring(html_table(["a < b", "c"], [["x & y", "1"], ["z", '"2"']]))
    assert [cell.text for cell in found.iter("th")] == ["a < b", "c", "x & y", "z"]
    assert [[cell.text for cell in row] for row in found.find("table/tbody")] == [
        ["x & y", "1"],
        ["z", '"2"'],
    ]
    assert [cell.get("scope") for cell in found.iter("th")] == ["col", "col", "row", "row"]


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"2 cells, the row \('x',\) has 1"):
        html_table(["a", "b"], [["x"]])
