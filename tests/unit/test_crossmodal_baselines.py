import pytest
import torch

from conceptbind.analysis.crossmodal import IMAGE_TO_TEXT, TEXT_TO_IMAGE, cross_modal
from conceptbind.analysis.crossmodal_baselines import cross_modal_baselines
from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, ObjectSplit, factorial_scenes

SPACE = ConceptSpace.of_sizes(4, 3)
SCENES = factorial_scenes(SPACE, 2)
SPLIT = ObjectSplit(SPACE, (SPACE.all_objects() > 1).any(1))


def random_set(seed):
    return EmbeddingSet(
        torch.randn(len(SCENES), 16, generator=torch.Generator().manual_seed(seed)), SCENES, SPACE
    )


def test_text_alone_is_right_once_and_wrong_once():
    found = cross_modal_baselines(random_set(0), random_set(1))
    assert found["text only"].of().two_way.accuracy == 0.5
    assert found["text only"].of().quads.text == 0
    assert found["text only"].of(direction=TEXT_TO_IMAGE).two_way.ties == 1
    assert found["image only"].of(direction=TEXT_TO_IMAGE).two_way.accuracy == 0.5
    assert found["image only"].of(direction=IMAGE_TO_TEXT).two_way.ties == 1


def test_text_alone_prefers_familiar_captions():
    """The mean picture stands for what is familiar: seen scenes win where the twin is not seen, and only there."""
    seen = SPLIT.is_train[SPACE.object_index(SCENES)].sum(1, keepdim=True).float()
    texts = EmbeddingSet(torch.cat([torch.ones(len(SCENES), 1), seen], 1), SCENES, SPACE)
    images = EmbeddingSet(torch.tensor([[0.0, 1.0]]).repeat(len(SCENES), 1), SCENES, SPACE)
    found = cross_modal_baselines(images, texts, split=SPLIT)["text only"]
    assert found.of("seen").two_way.accuracy > 0
    assert found.of("seen alike").two_way.ties == 1


def test_shuffled_pairs_of_a_binding_model_are_near_chance():
    bound = EmbeddingSet(
        planted_encoders(SPACE, "product", dim=256, seed=0).scenes(SCENES)
        + 0.1 * torch.randn(len(SCENES), 256, generator=torch.Generator().manual_seed(0)),
        SCENES,
        SPACE,
    )
    assert cross_modal(bound, bound).of().two_way.accuracy == 1
    shuffled = cross_modal_baselines(bound, bound)["shuffled pairs"].of()
    assert abs(shuffled.two_way.accuracy - 0.5) < 0.25
    assert shuffled.recall[1] < 0.15
    again = cross_modal_baselines(bound, bound)["shuffled pairs"].of()
    assert again.as_dict() == shuffled.as_dict()


def test_settings_and_errors_are_those_of_cross_modal():
    with pytest.raises(ValueError, match="one concept space"):
        cross_modal_baselines(
            random_set(0), EmbeddingSet(random_set(1).embeddings, SCENES, ConceptSpace.of_sizes(5, 3))
        )
    zero = EmbeddingSet(torch.zeros(len(SCENES), 16), SCENES, SPACE)
    with pytest.raises(ValueError, match="rows of image embeddings"):
        cross_modal_baselines(zero, random_set(1))
