"""The data of chapters 3 to 5: which scenes, whose singles, and what is said of encoders that are not there."""

import pytest
import torch

from conceptbind import studies
from conceptbind.embeddings import EmbeddingSet
from conceptbind.encoders import EncoderError, from_functions
from conceptbind.scenes import factorial_scenes
from conceptbind.spaces import CAPTIONS_20


def by_letters(texts):
    return torch.tensor([[text.count(c) for c in "abcdefghilmnoprstu"] for text in texts]).float()


def by_colour(pictures):
    return torch.nn.functional.adaptive_avg_pool2d(pictures.float() / 255, 4).flatten(1)


@pytest.fixture(autouse=True)
def encoders(monkeypatch):
    def try_load(spec, *, seed=0):
        if spec == "gone":
            return None, "its weights were not found"
        kind = {"texts": by_letters} if spec == "letters" else {"images": by_colour}
        return from_functions(**kind, name=spec), ""

    monkeypatch.setattr(studies, "try_load", try_load)


def test_captions_are_a_grid_with_its_single_objects():
    (study,), missing = studies.geometry_studies("laptop", data=["captions"], text_encoders=["letters"])
    assert not missing
    space = study.embedded.space
    assert space.n_values == (8, 8)
    assert torch.equal(study.embedded.scenes, factorial_scenes(space, 2))
    (alone,) = study.singles
    assert alone.scenes.shape == (64, 1, 2)
    assert study.renderer is None
    # The caption of a scene has the letters of both objects and of " and ": the embeddings must be of these scenes.
    index = space.object_index(study.embedded.scenes)
    both = alone.embeddings[index[:, 0]] + alone.embeddings[index[:, 1]] + by_letters([" and "])
    assert torch.equal(study.embedded.embeddings, both)


def test_the_papers_size_is_the_papers_space():
    assert studies.caption_space("paper") == CAPTIONS_20
    assert studies.caption_space("smoke").n_values == (3, 3)


@pytest.mark.parametrize(
    ("data", "n_slots", "n_singles"),
    [
        (studies.FLAT, 2, 2),
        (studies.FLAT_OCCLUDED, 2, 0),
        (studies.FLAT_3, 3, 0),
        (studies.SOLID, 2, 2),
        (studies.SOLID_OCCLUDED, 2, 0),
        (studies.SOLID_3, 3, 0),
    ],
)
def test_pictures_are_drawn_or_read_for_every_scene(data, n_slots, n_singles):
    (study,), _ = studies.geometry_studies("smoke", data=[data], picture_encoders=["colours"])
    e = study.embedded
    assert e.scenes.shape[1:] == (n_slots, 2)
    assert len(study.singles) == n_singles
    torch.testing.assert_close(e.embeddings[:2], by_colour(study.renderer.render(e.scenes[:2])))
    if n_singles:
        # One object at the left, one at the right: half of each picture is empty, and the empty halves differ.
        left, right = (s.embeddings.reshape(len(s.embeddings), 3, 4, 4) for s in study.singles)
        assert float((left - right)[..., :2].abs().amax()) > 0.02
        assert all(s.scenes.shape == (24, 1, 2) for s in study.singles)


@pytest.mark.parametrize("preset", ["laptop", "paper"])
@pytest.mark.parametrize("data", [studies.FLAT_OCCLUDED, studies.FLAT_3, studies.SOLID_OCCLUDED])
def test_every_size_has_its_scenes(monkeypatch, preset, data):
    def without_pictures(encoder, space, scenes, renderer):
        return EmbeddingSet(torch.zeros(len(scenes), 2), scenes, space)

    monkeypatch.setattr(studies, "encode_pictures", without_pictures)
    (study,), _ = studies.geometry_studies(preset, data=[data], picture_encoders=["colours"])
    assert study.embedded.n_scenes >= 280


def test_encoders_that_are_not_there_are_said_to_be():
    found, missing = studies.geometry_studies(
        "smoke", data=["captions", "captions, 3 objects"], text_encoders=["letters", "gone"]
    )
    assert [s.title for s in found] == ["captions, letters", "captions, 3 objects, letters"]
    assert missing == {"gone": "its weights were not found"}


def test_unknown_data_is_named():
    with pytest.raises(ValueError, match=r"data must be among .*'4-D'"):
        studies.geometry_studies("smoke", data=["4-D"])
    for data in ("captions", "3-D"):
        with pytest.raises(ValueError, match="PRESET is one of"):
            studies.geometry_studies("huge", data=[data], text_encoders=["letters"])


def test_a_text_encoder_is_not_asked_for_pictures(monkeypatch):
    monkeypatch.setattr(
        studies, "try_load", lambda spec, *, seed=0: (from_functions(texts=by_letters, name=spec), "")
    )
    with pytest.raises(EncoderError, match="does not encode images"):
        studies.geometry_studies("smoke", data=[studies.FLAT], picture_encoders=["letters"])
