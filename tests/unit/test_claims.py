import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conceptbind import claims
from conceptbind.claims import Claim, ClaimsFileError, find_result, merge_claims, read_claims, record_claim

CLAIM = Claim(
    id="F3-additive",
    finding="F3",
    claim="A scene is a sum of object parts.",
    paper=0.94,
    ours=0.9361234567,
    interval=(0.93, 0.94),
    encoder="random:ViT-B-32",
    data="20 x 20 captions",
    preset="laptop",
    verdict="holds",
    figure="02_objects.html#fig-additive",
)
NOT_RUN = {"ours": None, "interval": None, "verdict": "not run here"}


def test_a_recorded_claim_comes_back_rounded_to_six_digits(tmp_path):
    stored = record_claim(CLAIM, folder=tmp_path)
    assert stored == replace(CLAIM, ours=0.936123)
    assert read_claims(tmp_path) == [stored]


def test_same_id_encoder_and_data_replaces_and_else_adds(tmp_path):
    record_claim(CLAIM, folder=tmp_path)
    record_claim(replace(CLAIM, ours=0.935), folder=tmp_path)
    record_claim(replace(CLAIM, encoder="other"), folder=tmp_path)
    record_claim(replace(CLAIM, id="F1-swap", finding="F1"), folder=tmp_path)
    found = [(c.finding, c.encoder, c.ours) for c in read_claims(tmp_path)]
    assert found == [
        ("F1", "random:ViT-B-32", 0.936123),
        ("F3", "other", 0.936123),
        ("F3", "random:ViT-B-32", 0.935),
    ]


def test_the_file_does_not_depend_on_the_order_of_writing(tmp_path):
    rows = [CLAIM, replace(CLAIM, encoder="b"), replace(CLAIM, id="F1-x", finding="F1")]
    for folder, order in (("a", rows), ("b", rows[::-1])):
        for row in order:
            record_claim(row, folder=tmp_path / folder)
    assert (tmp_path / "a/claims.json").read_bytes() == (tmp_path / "b/claims.json").read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "stays"),
    [
        ("laptop", "smoke", True),
        ("paper", "laptop", True),
        ("laptop", "laptop", False),
        ("smoke", "laptop", False),
        ("laptop", "paper", False),
    ],
)
def test_a_smaller_preset_never_replaces_a_larger_one(tmp_path, old, new, stays):
    record_claim(replace(CLAIM, preset=old), folder=tmp_path)
    stands = record_claim(replace(CLAIM, preset=new, ours=0.931), folder=tmp_path)
    assert stands == read_claims(tmp_path)[0]
    assert (stands.preset, stands.ours) == ((old, 0.936123) if stays else (new, 0.931))


def test_not_run_never_replaces_a_number_and_any_number_replaces_it(tmp_path):
    missing = replace(CLAIM, preset="paper", **NOT_RUN)
    record_claim(missing, folder=tmp_path)
    assert record_claim(CLAIM, folder=tmp_path).ours == 0.936123
    assert record_claim(missing, folder=tmp_path).ours == 0.936123


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "has space"}, "id is 'has space'"),
        ({"finding": "F10"}, "finding is 'F10', expected one of "),
        ({"preset": "tiny"}, "preset"),
        ({"verdict": "maybe"}, "verdict"),
        ({"claim": " "}, "claim"),
        ({"encoder": ""}, "encoder"),
        ({"figure": "02_objects.html"}, "figure"),
        ({"figure": "02_objects.ipynb#fig-a"}, "figure"),
        ({"ours": None, "interval": None}, "ours is None, expected a number"),
        ({"verdict": "not run here"}, "expected None"),
        ({"ours": float("nan"), "interval": None}, "finite"),
        ({"paper": float("inf")}, "paper"),
        ({"interval": (0.94, 0.95)}, "interval"),
        ({"interval": (0.94, 0.93)}, "interval"),
        ({"interval": (0.9, float("inf"))}, "interval"),
        ({**NOT_RUN, "interval": (0.0, 1.0)}, "interval"),
    ],
)
def test_a_claim_that_contradicts_itself_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(CLAIM, **change)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"claims": [{"id": "x"}]}', '{"claims": 3}', "", '{"claims": ["x"]}']
)
def test_a_corrupt_file_is_an_error_and_is_left_alone(tmp_path, text):
    path = tmp_path / "claims.json"
    path.write_text(text)
    for call in (lambda: record_claim(CLAIM, folder=tmp_path), lambda: read_claims(tmp_path)):
        with pytest.raises(ClaimsFileError, match=r"claims\.json is not a readable claims file"):
            call()
    assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]


def test_a_row_out_of_range_in_the_file_is_named(tmp_path):
    record_claim(CLAIM, folder=tmp_path)
    path = tmp_path / "claims.json"
    path.write_text(path.read_text().replace('"holds"', '"maybe"'))
    with pytest.raises(ClaimsFileError, match=r"F3-additive.*verdict is 'maybe'"):
        read_claims(tmp_path)


def test_concurrent_writers_lose_nothing(tmp_path):
    code = """if True:
        import sys
        from dataclasses import replace
        from pathlib import Path
        from conceptbind.claims import Claim, record_claim
        writer, folder = sys.argv[1], Path(sys.argv[2])
        for n in range(25):
            record_claim(Claim(id=f"w{writer}-{n}", finding="F2", claim="c", paper=None, ours=1.0,
                interval=None,
                encoder="e", data="d", preset="smoke", verdict="holds", figure="a.html#b"), folder=folder)
    """
    writers = [subprocess.Popen([sys.executable, "-c", code, str(n), str(tmp_path)]) for n in range(4)]
    assert [w.wait() for w in writers] == [0] * 4
    assert len(read_claims(tmp_path)) == 100
    assert [p.name for p in tmp_path.iterdir()] == ["claims.json"]


def test_merging_a_page_drops_what_it_no_longer_records(tmp_path):
    final, staged = tmp_path / "final", tmp_path / "staged"
    record_claim(CLAIM, folder=final)
    record_claim(replace(CLAIM, id="gone"), folder=final)
    record_claim(replace(CLAIM, id="from-the-cluster", preset="paper"), folder=final)
    record_claim(replace(CLAIM, id="of-another-page", figure="01_what.html#fig-a"), folder=final)
    record_claim(replace(CLAIM, ours=0.934), folder=staged)
    merge_claims(staged, "02_objects", folder=final)
    assert {c.id: c.ours for c in read_claims(final)} == {
        "F3-additive": 0.934,
        "from-the-cluster": 0.936123,
        "of-another-page": 0.936123,
    }


def test_results_go_where_the_variable_says_else_to_the_repository_else_here(tmp_path, monkeypatch):
    monkeypatch.setenv("CONCEPTBIND_RESULTS", str(tmp_path / "given"))
    assert claims.results_dir() == tmp_path / "given"
    monkeypatch.delenv("CONCEPTBIND_RESULTS")
    assert claims.results_dir() == Path(__file__).resolve().parents[2] / "results"
    # installed without a repository, as on Colab
    monkeypatch.setattr(claims, "__file__", str(tmp_path / "lib/site-packages/conceptbind/claims.py"))
    monkeypatch.chdir(tmp_path)
    assert claims.results_dir() == tmp_path / "results"
    record_claim(CLAIM)
    assert json.loads((tmp_path / "results/claims.json").read_text())["claims"][0]["id"] == "F3-additive"


def test_find_result_looks_in_the_results_of_the_run_then_in_the_repository(tmp_path, monkeypatch):
    repository = tmp_path / "repository"
    (repository / "results").mkdir(parents=True)
    (repository / "results/sweep.csv").write_text("committed")
    monkeypatch.setattr(claims, "repository_root", lambda: repository)
    monkeypatch.setenv("CONCEPTBIND_RESULTS", str(tmp_path / "run"))
    assert find_result("sweep.csv").read_text() == "committed"
    (tmp_path / "run").mkdir()
    (tmp_path / "run/sweep.csv").write_text("new")
    assert find_result("sweep.csv").read_text() == "new"
    with pytest.raises(FileNotFoundError, match=r"no result 'other\.csv' in"):
        find_result("other.csv")
