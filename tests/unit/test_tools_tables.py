"""Tables that the tools write: a part that is computed again loses nothing of the rest."""

import importlib
import sys
from pathlib import Path

import pytest

from conceptbind.results import read_table

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
common = importlib.import_module("common")


@pytest.fixture
def results(tmp_path, monkeypatch):
    folder = tmp_path / "results"
    monkeypatch.setenv("CONCEPTBIND_RESULTS", str(folder))
    return folder


def write(tmp_path, rows, commit, **options):
    options = {"preset": "laptop", "folder": tmp_path / "runs", **options}
    common.write_merged("tried", rows, made_by=[{"commit": commit}], **options)


def test_rows_of_others_stay_and_those_of_the_same_are_replaced(tmp_path, results):
    write(tmp_path, [{"model": "a", "n": 1}, {"model": "b", "n": 2}, {"model": "b", "n": 3}], "first")
    write(tmp_path, [{"model": "b", "n": 4}], "second")
    found = read_table("tried")
    assert found["rows"] == [{"model": "a", "n": 1}, {"model": "b", "n": 4}]
    assert found["settings"]["made_by"] == [{"commit": "first"}, {"commit": "second"}]


def test_provenances_of_rows_that_are_gone_are_gone(tmp_path, results):
    write(tmp_path, [{"subject": "a", "n": 1}], "first", by="subject")
    write(tmp_path, [{"subject": "a", "n": 2}], "second", by="subject")
    assert read_table("tried")["settings"]["made_by"] == [{"commit": "second"}]


def test_another_preset_leaves_the_table_of_the_book_alone(tmp_path, results):
    write(tmp_path, [{"model": "a", "n": 1}], "first")
    before = (results / "tried.json").read_bytes()
    write(tmp_path, [{"model": "a", "n": 9}], "second", preset="smoke")
    assert (results / "tried.json").read_bytes() == before
    assert read_table("tried")["rows"] == [{"model": "a", "n": 9}]
    assert (tmp_path / "runs" / "tried.json").is_file()
