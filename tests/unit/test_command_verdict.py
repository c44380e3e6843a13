"""``conceptbind verdict``: one verdict, kept with its evidence."""

import numpy as np
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


def write(path, z, scenes=SCENES, space=SPACE):
    EmbeddingSet(z, scenes, space).save(path)


def test_a_wrong_input_is_named_and_no_store_is_begun(tmp_path, capsys):
    z = torch.randn(len(SCENES), 8, generator=torch.Generator().manual_seed(0))
    twins = SCENES[(SCENES[:, 0] == SCENES[:, 1]).all(1)]
    write(tmp_path / "twins.safetensors", z[: len(twins)], twins)
    write(tmp_path / "equal.safetensors", torch.ones(len(SCENES), 8))
    write(tmp_path / "few.safetensors", z[:5], SCENES[:5])
    single = ConceptSpace.of_sizes(6)
    write(tmp_path / "concept.safetensors", z[:36], factorial_scenes(single, 2), single)
    np.save(tmp_path / "bare.npy", z.numpy())
    np.savez(tmp_path / "nan.npz", embeddings=np.full((256, 4), np.nan, "float32"), scenes=SCENES.numpy())
    (tmp_path / "notes.safetensors").write_text("notes")
    messages = {
        "none.safetensors": "no file of embeddings at",
        "twins.safetensors": "no scene has two objects that differ in two concepts",
        "equal.safetensors": "all 256 embeddings are equal",
        "few.safetensors": "5 scenes are too few",
        "concept.safetensors": "binding needs two concepts",
        "bare.npy": "give --labels FILE.csv",
        "nan.npz": "NaN",
        "notes.safetensors": "notes.safetensors is damaged",
    }
    store = tmp_path / "fits.sqlite"
    for name, message in messages.items():
        command = ["verdict", "--embeddings", str(tmp_path / name), "--store", str(store), "--quiet"]
        assert cli.main(command) == 2, name
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("conceptbind: error: "), name
        assert err.count("\n") == 1, name
        assert message in err, name
        assert name in err or name.startswith("twins"), name
        assert not store.exists(), name


def test_embeddings_with_their_scenes_in_one_npz(tmp_path, capsys):
    toy = planted_encoders(SPACE, "additive", dim=32, seed=0, noise=0.1)
    np.savez(tmp_path / "mine.npz", embeddings=toy.scenes(SCENES).numpy(), scenes=SCENES.numpy())
    store = tmp_path / "fits.sqlite"
    assert cli.main(["verdict", "--embeddings", str(tmp_path / "mine.npz"), "--store", str(store)]) == 0
    assert capsys.readouterr().out.startswith("mine: bag of concepts")


@pytest.mark.parametrize("seed", ["-1", "99999999999999999999", "two"])
def test_seeds_that_are_none(seed, capsys):
    with pytest.raises(SystemExit):
        cli.main(["verdict", "--planted", "additive", "--seed", seed])
    assert "--seed" in capsys.readouterr().err


def test_one_thing_is_judged():
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
