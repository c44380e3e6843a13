import importlib
import sys
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from conceptbind.claims import FINDINGS, Claim, record_claim

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
build_scorecard = importlib.import_module("build_scorecard")


def claim(**change):
    row = {
        "id": "F3-additive",
        "finding": "F3",
        "claim": "Parts <add> up & more",
        "paper": 0.94,
        "ours": 0.936,
        "interval": (0.93, 0.94),
        "encoder": "random:ViT-B-32/x",
        "data": "captions",
        "preset": "laptop",
        "verdict": "holds",
        "figure": "01_a.html#fig-a",
    }
    return Claim(**{**row, **change})


@pytest.fixture
def root(tmp_path):
    figure = new_code_cell("1", metadata={"mystnb": {"figure": {"name": "fig-a"}}})
    run = {"conceptbind": {"preset": "laptop", "seconds": 150, "key": "0123456789abcdef"}}
    (tmp_path / "book").mkdir()
    notebook = new_notebook(cells=[new_markdown_cell("# A chapter\n\ntext"), figure], metadata=run)
    nbformat.write(notebook, tmp_path / "book/01_a.ipynb")
    record_claim(claim(), folder=tmp_path / "results")
    return tmp_path


def main(root, *args):
    return build_scorecard.main(["--root", str(root), *args])


def test_it_writes_once_and_check_sees_a_change(root, capsys):
    assert main(root, "--check") == 1
    assert not (root / "book/scorecard.md").exists()
    assert main(root) == 0
    first = (root / "book/scorecard.md").read_bytes()
    assert main(root, "--check") == 0
    capsys.readouterr()
    assert main(root) == 0
    assert capsys.readouterr().out == ""
    assert (root / "book/scorecard.md").read_bytes() == first
    record_claim(claim(ours=0.935), folder=root / "results")
    assert main(root, "--check") == 1
    assert "scorecard.md is out of date" in capsys.readouterr().out


class Cells(HTMLParser):
    """Text of a row by column, of the claims' headings, and the links."""

    def __init__(self, text):
        super().__init__()
        self.found, self.claims, self.links, self.place = {}, [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "td":
            self.place = attrs["data-label"]
        if tag == "th" and attrs["scope"] == "rowgroup":
            self.place = "claim"
        if tag == "a":
            self.links.append(attrs["href"])

    def handle_endtag(self, tag):
        self.place = None if tag in ("td", "th") else self.place

    def handle_data(self, data):
        if self.place == "claim":
            self.claims.append(data)
        elif self.place:
            self.found[self.place] = self.found.get(self.place, "") + data


def test_a_row_shows_all_that_a_reader_needs():
    cells = Cells(build_scorecard.scorecard([claim()]))
    assert cells.links == ["01_a.html#fig-a"]
    assert cells.claims == ["Parts <add> up & more"]
    assert cells.found == {
        "Encoder": "random:ViT-B-32/x",
        "Data": "captions",
        "Preset": "laptop",
        "Paper": "0.940",
        "Ours": "0.936 [0.930, 0.940]",
        "Verdict": "✓ holds",
    }


def test_one_heading_for_a_claim_about_several_encoders():
    cells = Cells(build_scorecard.scorecard([claim(), claim(encoder="b"), claim(id="F3-b", claim="Another")]))
    assert cells.claims == ["Parts <add> up & more", "Another"]
    assert len(cells.links) == 3


def test_verdicts_have_a_sign_besides_the_colour_and_no_number_is_a_dash():
    rows = [
        claim(verdict="does not hold", paper="above chance"),
        claim(verdict="not run here", ours=None, interval=None, paper=None),
    ]
    bad, missing = (Cells(build_scorecard.scorecard([r])).found for r in rows)
    assert (bad["Verdict"], bad["Paper"]) == ("✗ does not hold", "above chance")
    assert (missing["Verdict"], missing["Ours"], missing["Paper"]) == ("– not run here", "–", "–")


def test_findings_come_in_order_and_an_untested_one_says_so():
    page = build_scorecard.scorecard([claim()])
    tested, untested = page.split("## Not tested yet")
    assert "## F3. " in tested
    assert [line[2:].partition(".")[0] for line in untested.split("\n") if line] == [
        f for f in FINDINGS if f != "F3"
    ]
    assert "✓ 1 holds · ✗ 0 does not hold · – 0 not run here" in page


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.5, "0.500"), (-0.25, "−0.250"), (0, "0.000"), (0.00123, "0.00123"), (12.0, "12.000"), (None, "–")],
)
def test_numbers_are_rounded(number, text):
    assert build_scorecard._number(number) == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preset": "smoke"}, "is of a smoke run"),
        ({"figure": "01_a.html#fig-b"}, "01_a has the figures: fig-a"),
        ({"figure": "09_gone.html#fig-a"}, "09_gone has the figures: none"),
    ],
)
def test_claims_that_cannot_be_shown_stop_the_build(root, capsys, change, message):
    record_claim(claim(id="bad", **change), folder=root / "results")
    assert main(root) == 1
    assert message in capsys.readouterr().err


def test_a_corrupt_claims_file_stops_the_build(root, capsys):
    (root / "results/claims.json").write_text("{")
    assert main(root) == 1
    assert "not a readable claims file" in capsys.readouterr().err


def test_the_table_of_notebooks(root):
    assert build_scorecard.notebook_table(root / "book").splitlines()[2:] == [
        "| A chapter | laptop | 2.5 min | `0123456789abcdef` |"
    ]
