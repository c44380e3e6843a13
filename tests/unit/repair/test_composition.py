"""Composition models: each recovers new combinations of what it composes; sums do not recover products."""

import math

import pytest
import torch
from torch.nn import functional

from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.retrieval import retrieve
from conceptbind.repair.composition import (
    KINDS,
    Composition,
    CompositionTraining,
    convolve,
    judge_composition,
    train_composition,
)
from conceptbind.scenes import ConceptSpace, SceneKind, object_split, sample_scenes, single_object_scenes

SPACE = ConceptSpace.of_sizes(16, 16)
SPLIT = object_split(SPACE, 0.75, seed=0)
HOW = CompositionTraining(n_steps=200, batch=256)


def planted(kind, n_slots, dim=16):
    """Pictures are sums of the objects' vectors, composed of words the learner does not see."""
    truth = Composition(kind, SPACE, dim, seed=5).requires_grad_(False)
    if n_slots == 1:
        scenes = single_object_scenes(SPACE)
    else:
        scenes = sample_scenes(SPACE, 2, 6000, repeats="distinct values", seed=0)
    vectors = functional.normalize(truth.objects(), dim=1)
    return vectors[SPACE.object_index(scenes)].sum(1), scenes


def named(model, images, scenes, kind):
    """Share of pictures of one object that are nearest to its vector, among all 256."""
    keep = SPLIT.kinds(scenes) == kind
    right = SPACE.object_index(scenes[keep, 0])
    return float(retrieve(images[keep], model.objects(), right).correct.double().mean())


def chosen(model, images, scenes):
    return judge_composition(model, EmbeddingSet(images, scenes, SPACE), SPLIT).of("held-out").five_way


@pytest.mark.parametrize(("kind", "dim"), [(k, 8 if k == "type-logical" else 16) for k in KINDS])
def test_each_recovers_new_combinations_of_what_it_composes(kind, dim):
    images, scenes = planted(kind, 1, dim)
    # a matrix for each adjective has more to learn than a vector; chance is 1/256
    steps, share = (600, 0.08) if kind == "type-logical" else (200, 0.8)
    model = train_composition(kind, images, scenes, SPLIT, CompositionTraining(n_steps=steps), seed=0)
    assert named(model, images, scenes, SceneKind.TRAIN) > 0.9
    assert named(model, images, scenes, SceneKind.HELD_OUT) > share


def test_sums_do_not_recover_products():
    images, scenes = planted("mult", 1)
    products, sums = (train_composition(k, images, scenes, SPLIT, HOW, seed=0) for k in ("mult", "add"))
    right, wrong = (named(m, images, scenes, SceneKind.HELD_OUT) for m in (products, sums))
    assert wrong < 0.2 < 0.8 < right


@pytest.mark.parametrize("kind", ["mult", "conv"])
def test_products_tell_two_objects_from_recombined_ones_and_sums_do_not(kind):
    images, scenes = planted(kind, 2)
    model = train_composition(kind, images, scenes, SPLIT, HOW, seed=0)
    assert chosen(model, images, scenes).low > 0.6
    for additive in ("add", "role-filler"):
        other = train_composition(additive, images, scenes, SPLIT, HOW, seed=0)
        assert chosen(other, images, scenes).accuracy < 0.4


def test_convolution_is_that_of_a_plain_loop():
    g = torch.Generator().manual_seed(0)
    for dim in (5, 6):
        a, b = (torch.randn(dim, generator=g, dtype=torch.float64) for _ in range(2))
        expected = torch.stack([sum(a[i] * b[(j - i) % dim] for i in range(dim)) for j in range(dim)])
        assert torch.allclose(convolve(a, b), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_objects_are_composed_as_defined(kind):
    model = Composition(kind, SPACE, 6, seed=1).requires_grad_(False).double()
    found = model.objects()
    assert found.shape == (256, 6)
    for index in (0, 19, 255):
        a, n = divmod(index, 16)
        adjective, noun = model.adjectives[a], model.nouns[n]
        expected = {
            "add": lambda a=adjective, n=noun: a + n,
            "mult": lambda a=adjective, n=noun: a * n,
            "conv": lambda a=adjective, n=noun: convolve(a, n),
            "role-filler": lambda a=adjective, n=noun: (
                convolve(a, model.roles[0]) + convolve(n, model.roles[1])
            ),
            "type-logical": lambda a=adjective, n=noun: a @ n,
        }[kind]()
        assert torch.allclose(found[index], expected, rtol=1e-10, atol=1e-12)


def test_scores_are_scaled_cosines():
    model = Composition("mult", SPACE, 6, scale=5.0, seed=1).requires_grad_(False)
    images = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    one = 5 * functional.cosine_similarity(images[2], model.objects()[10], dim=0)
    assert float(model(images)[2, 10]) == pytest.approx(float(one), rel=1e-5)


def test_held_out_objects_are_not_trained_on():
    # their pictures may be anything: the words come out the same
    images, scenes = planted("mult", 1)
    how = CompositionTraining(n_steps=20)
    changed = images.clone()
    changed[SPLIT.kinds(scenes) != SceneKind.TRAIN] = 7.0
    a, b = (train_composition("mult", x, scenes, SPLIT, how, seed=0) for x in (images, changed))
    assert torch.equal(a.nouns, b.nouns)
    assert not torch.equal(a.nouns, Composition("mult", SPACE, 16, seed=0).nouns)


def test_what_cannot_be_composed_is_named():
    with pytest.raises(ValueError, match="two concepts; the space has 3"):
        Composition("add", ConceptSpace.of_sizes(2, 2, 2), 4, seed=0)
    with pytest.raises(ValueError, match="dim is at least 1"):
        Composition("add", SPACE, 0, seed=0)
    images, scenes = planted("add", 1)
    with pytest.raises(ValueError, match="one scene for each picture"):
        train_composition("add", images[:-1], scenes, SPLIT, seed=0)
    held = SPLIT.kinds(scenes) == SceneKind.HELD_OUT
    with pytest.raises(ValueError, match="training objects only"):
        train_composition("add", images[held], scenes[held], SPLIT, seed=0)
    with pytest.raises(ValueError, match="NaN or infinite"):
        train_composition("add", images * math.nan, scenes, SPLIT, seed=0)
