"""Tables of results: written whole, read back, refused when damaged."""

import json

import pytest

from conceptbind import results

ROWS = [{"encoder": "a", "accuracy": 0.5}, {"encoder": "b", "accuracy": None}]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CONCEPTBIND_RESULTS", str(tmp_path))
    return tmp_path


def test_a_table_comes_back_with_what_made_it():
    results.write_table("t", ROWS, settings={"seeds": [0, 1]})
    table = results.read_table("t")
    assert table["rows"] == ROWS
    assert table["settings"] == {"seeds": [0, 1]}
    assert table["software"]["conceptbind"]


@pytest.mark.parametrize("bad", [{"x": float("nan")}, {"x": object()}])
def test_what_is_not_json_is_refused_and_leaves_the_old_table(bad):
    results.write_table("t", ROWS, settings={})
    with pytest.raises(ValueError, match="table 't' cannot be written"):
        results.write_table("t", [bad], settings={})
    assert results.read_table("t")["rows"] == ROWS


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"rows": []})])
def test_a_damaged_table_is_named(folder, text):
    (folder / "t.json").write_text(text)
    with pytest.raises(ValueError, match=r"t\.json is not a table of results"):
        results.read_table("t")


def test_a_missing_table_says_how_to_get_it():
    with pytest.raises(FileNotFoundError, match="RERUN"):
        results.read_table("no_such_table")
