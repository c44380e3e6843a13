"""Planted embeddings bind as their formula says, exactly."""

import pytest
import torch

from conceptbind.analysis.recognition import concept_recognition, heads, object_recognition, present
from conceptbind.planted import KINDS, planted_encoders
from conceptbind.scenes import ConceptSpace, SceneKind, factorial_scenes, object_split
from conceptbind.spaces import CLEVR_2D

DISTINCT = factorial_scenes(CLEVR_2D, 2, repeats="distinct values")
ALL = factorial_scenes(CLEVR_2D, 2)
SPLIT = object_split(CLEVR_2D, 0.6, seed=0)


def swapped(scenes):
    """Exchange the second concept of the two objects."""
    other = scenes.clone()
    other[:, :, 1] = scenes.flip(1)[:, :, 1]
    return other


def test_additive_swapped_scenes_are_the_same_bit_for_bit():
    encoders = planted_encoders(CLEVR_2D, "additive", dim=48, seed=3)
    assert torch.equal(encoders.scenes(DISTINCT), encoders.scenes(swapped(DISTINCT)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dim", [16, 48, 512])
def test_additive_recognises_concepts_and_ties_on_objects(dim, seed):
    encoders = planted_encoders(CLEVR_2D, "additive", dim=dim, seed=seed)
    scores = encoders.scores(DISTINCT)
    concepts = concept_recognition(CLEVR_2D, DISTINCT, scores)
    assert concepts.overall.accuracy == 1
    objects = object_recognition(CLEVR_2D, DISTINCT, scores)
    assert (objects.accuracy, objects.ties) == (0, 1)


def test_additive_scores_follow_from_counting_shared_values():
    # <scene, object query> = dim * number of (slot, concept) matches, and every query has the same norm.
    dim = 64
    encoders = planted_encoders(CLEVR_2D, "additive", dim=dim, seed=0)
    matches = (ALL.unsqueeze(1) == CLEVR_2D.all_objects()[:, None]).sum((2, 3)).double()
    norms = encoders.scenes(ALL).double().norm(dim=1, keepdim=True) * (2 * dim) ** 0.5
    expected = dim * matches / norms
    objects = heads(CLEVR_2D)[-1]
    torch.testing.assert_close(encoders.scores(ALL)[:, objects].double(), expected, rtol=1e-6, atol=1e-7)


def test_additive_ties_do_not_depend_on_exact_integers():
    # The same embeddings in a rotated basis carry rounding noise; the tie tolerance absorbs it.
    encoders = planted_encoders(CLEVR_2D, "additive", dim=256, seed=0)
    rotation = torch.linalg.qr(torch.randn(256, 256, generator=torch.Generator().manual_seed(1)))[0]
    scenes = torch.nn.functional.normalize(encoders.scenes(DISTINCT) @ rotation)
    queries = torch.nn.functional.normalize(encoders.queries() @ rotation)
    scores = scenes @ queries.T
    assert object_recognition(CLEVR_2D, DISTINCT, scores).ties == 1
    raw = object_recognition(CLEVR_2D, DISTINCT, scores, tie_ulps=0.0)
    assert raw.accuracy > 0, "without a tolerance, rounding decides some of the ties"


@pytest.mark.parametrize("seed", range(3))
def test_product_recognises_everything(seed):
    encoders = planted_encoders(CLEVR_2D, "product", dim=2048, seed=seed, split=SPLIT)
    scores = encoders.scores(ALL)
    assert concept_recognition(CLEVR_2D, ALL, scores).overall.accuracy == 1
    assert object_recognition(CLEVR_2D, ALL, scores).accuracy == 1


def test_product_of_strength_zero_is_additive():
    additive = planted_encoders(CLEVR_2D, "additive", dim=64, seed=5)
    product = planted_encoders(CLEVR_2D, "product", dim=64, seed=5, strength=0.0)
    assert torch.equal(additive.scores(ALL), product.scores(ALL))


@pytest.mark.parametrize("seed", range(3))
def test_memorised_recognises_training_objects_only(seed):
    encoders = planted_encoders(CLEVR_2D, "memorised", dim=4096, seed=seed, split=SPLIT)
    kinds = SPLIT.kinds(ALL)
    scores = encoders.scores(ALL)
    seen, held_out = kinds == SceneKind.TRAIN, kinds == SceneKind.HELD_OUT
    assert object_recognition(CLEVR_2D, ALL[seen], scores[seen]).accuracy == 1
    assert concept_recognition(CLEVR_2D, ALL[seen], scores[seen]).overall.accuracy == 1
    assert object_recognition(CLEVR_2D, ALL[held_out], scores[held_out]).accuracy <= 0.05
    unknown = concept_recognition(CLEVR_2D, ALL[held_out], scores[held_out]).overall
    assert unknown.accuracy < 0.3 < 1


def test_memorised_encoders_agree_exactly_on_training_objects():
    encoders = planted_encoders(CLEVR_2D, "memorised", dim=256, seed=0, split=SPLIT)
    same = (encoders.scene_objects == encoders.query_objects).all(1)
    assert torch.equal(same, SPLIT.is_train)
    # Two independent sign vectors agree on about half of the coordinates: 6 standard deviations of slack.
    agreement = (encoders.scene_objects == encoders.query_objects)[~SPLIT.is_train].double().mean()
    n = int((~SPLIT.is_train).sum()) * 256
    assert abs(agreement - 0.5) < 6 * 0.5 / n**0.5


def test_memorised_value_query_is_the_mean_over_training_objects():
    encoders = planted_encoders(CLEVR_2D, "memorised", dim=64, seed=1, split=SPLIT)
    objects = CLEVR_2D.all_objects()
    has_blue = (objects[:, 0] == CLEVR_2D.values[0].index("blue")) & SPLIT.is_train
    query = encoders.queries()[CLEVR_2D.values[0].index("blue")]
    torch.testing.assert_close(query, encoders.scene_objects[has_blue].mean(0))


@pytest.mark.parametrize("kind", KINDS)
def test_scenes_are_sums_over_slots_in_any_order(kind):
    space = ConceptSpace.of_sizes(3, 4, 2)
    encoders = planted_encoders(space, kind, dim=32, seed=2)
    scenes = space.objects_from_index(torch.randint(24, (50, 3), generator=torch.Generator().manual_seed(0)))
    alone = encoders.scenes(scenes.flatten(0, 1).unsqueeze(1)).view(50, 3, 32)
    assert torch.equal(encoders.scenes(scenes), alone.sum(1))
    assert torch.equal(encoders.scenes(scenes), encoders.scenes(scenes.flip(1)))
    assert encoders.queries().shape == (9 + 24, 32)
    assert encoders.scores(scenes).shape == present(space, scenes).shape


def test_noise_is_seeded_and_has_the_asked_size():
    clean = planted_encoders(CLEVR_2D, "product", dim=256, seed=0)
    noisy = planted_encoders(CLEVR_2D, "product", dim=256, seed=0, noise=0.5)
    added = noisy.scenes(ALL) - clean.scenes(ALL)
    assert torch.equal(noisy.scenes(ALL), noisy.scenes(ALL))
    assert abs(float(added.std()) - 0.5) < 0.01
    assert torch.equal(noisy.queries(), clean.queries())


def test_errors_say_what_fits():
    with pytest.raises(ValueError, match=r"multiple of 16[^;]*; got 40, the next that fits is 48"):
        planted_encoders(CLEVR_2D, "additive", dim=40, seed=0)
    with pytest.raises(ValueError, match="another concept space"):
        planted_encoders(ConceptSpace.of_sizes(2, 2), "memorised", dim=8, seed=0, split=SPLIT)
    with pytest.raises(ValueError, match="noise"):
        planted_encoders(CLEVR_2D, "additive", dim=16, seed=0, noise=-1.0)
