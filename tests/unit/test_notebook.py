"""The first cell of a chapter."""

import sys
import types

import pytest

from conceptbind import notebook


def test_the_preset_chooses_a_size_and_an_unknown_one_is_named():
    assert notebook.choose("laptop", {"smoke": 1, "laptop": 2, "paper": 3}) == 2
    with pytest.raises(ValueError, match="smoke, laptop, paper; got 'huge'"):
        notebook.choose("huge", {"smoke": 1})


def test_colab_is_told_by_its_module(monkeypatch):
    assert not notebook.in_colab()
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    assert notebook.in_colab()


def test_the_first_line_names_versions_and_device(capsys):
    notebook.start()
    line = capsys.readouterr().out
    assert "conceptbind" in line
    assert "torch" in line
    assert "float32" in line
