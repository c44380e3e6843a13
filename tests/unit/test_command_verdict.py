"""``conceptbind verdict``: one verdict, kept with its evidence."""

import pytest
import torch

from conceptbind import cli
from conceptbind.analysis import verdict as judging
from conceptbind.analysis.complexity import Subject
from conceptbind.analysis.verdict import KIND, Judgement, Recovery, verdict_job
from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, factorial_scenes
from conceptbind.store import ResultStore

SPACE = ConceptSpace.of_sizes(4, 4)
SCENES = factorial_scenes(SPACE, 2)


@pytest.fixture
def bag(tmp_path):
    """Save the embeddings of a bag of concepts."""
    toy = planted_encoders(SPACE, "additive", dim=32, seed=0, noise=0.1)
    path = tmp_path / "toy.safetensors"
    EmbeddingSet(toy.scenes(SCENES), SCENES, SPACE).save(path)
    return path


def test_a_bag_is_called_one_and_the_evidence_is_stored(bag, tmp_path, capsys):
    store = tmp_path / "fits.sqlite"
    command = ["verdict", "--embeddings", str(bag), "--store", str(store)]
    assert cli.main(command) == 0
    out = capsys.readouterr().out
    assert out.startswith("toy: bag of concepts: concepts are read in")
    with ResultStore(store) as opened:
        (row,) = opened.rows(KIND)
    assert row["verdict"] == "bag of concepts"
    assert row["objects"] < 0.5 < row["concepts"]
    assert row["power"] is None  # a bag needs no controls

    def again(*given):
        raise AssertionError("the verdict is there already")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "verdict", again)
        assert cli.main(command) == 0
    assert capsys.readouterr().out == out
    assert cli.main(["results", str(store), "--export", str(tmp_path / "v.csv")]) == 0
    assert "bag of concepts" in (tmp_path / "v.csv").read_text()


def test_other_embeddings_under_the_same_name_get_a_verdict_of_their_own(bag):
    data = EmbeddingSet.load(bag)
    other = EmbeddingSet(data.embeddings + 1, data.scenes, data.space)
    (first,), (second,) = (verdict_job(Subject("toy", d)).settings for d in (data, other))
    assert first != second
    assert {k: v for k, v in first.items() if k != "embeddings"} == {
        k: v for k, v in second.items() if k != "embeddings"
    }


def test_a_wrong_input_is_named_and_no_store_is_begun(tmp_path, capsys):
    scenes = SCENES[(SCENES[:, 0] == SCENES[:, 1]).all(1)]
    z = torch.randn(len(scenes), 8, generator=torch.Generator().manual_seed(0))
    EmbeddingSet(z, scenes, SPACE).save(tmp_path / "twins.safetensors")
    missing, twins = tmp_path / "none.safetensors", tmp_path / "twins.safetensors"
    store = tmp_path / "fits.sqlite"
    for path, message in ((missing, str(missing)), (twins, "")):
        assert cli.main(["verdict", "--embeddings", str(path), "--store", str(store)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("conceptbind: error: ")
        assert message in err
    with pytest.raises(SystemExit):
        cli.main(["verdict"])


def test_a_flat_row_has_the_numbers_of_the_judgement():
    recovery = Recovery("object product", 0.3, 0.1, 0.9, 0.8, True, (0.2, 0.3))
    controls = tuple(Recovery("object product", x, 0.1, 0.9, 0.8, True, (x,)) for x in (0.7, 0.4))
    row = Judgement("undetermined", "because", 1.0, 0.9, 0.8, 0.95, 0.3, recovery, controls).as_row()
    assert row["recovered"] == pytest.approx((0.3 - 0.1) / (0.9 - 0.1))
    assert row["controls_recovered"] == pytest.approx([0.75, 0.375])
    assert row["power"] == 0.5
    assert (row["held_out"], row["held_out_additive"], row["held_out_ceiling"]) == (0.3, 0.1, 0.9)
    assert (row["verdict"], row["why"], row["within"], row["converged"]) == (
        "undetermined",
        "because",
        0.3,
        True,
    )
