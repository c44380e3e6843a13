"""The binding regulariser: its terms by plain loops, and what it says of planted embeddings."""

import math

import pytest
import torch
from torch.nn import functional

from conceptbind.planted import planted_encoders
from conceptbind.repair.regulariser import BindingRegulariser
from conceptbind.scenes import ConceptSpace, SceneKind, factorial_scenes, object_split, sample_scenes

SPACE = ConceptSpace.of_sizes(6, 5)
DIM = 64


def twin_of(scene):
    (a, b), (c, d) = scene
    return [[c, b], [a, d]]


def as_set(scene):
    return tuple(sorted(map(tuple, scene)))


def trained(embeddings, objects, steps=300, space=SPACE, rank=24):
    """Fit the head to frozen embeddings."""
    found = BindingRegulariser(embeddings.shape[1], space.n_values, rank=rank, form=1.0)
    optimiser = torch.optim.Adam(found.parameters(), lr=1e-2)
    for step in range(steps):
        g = torch.Generator().manual_seed(step)
        rows = torch.randperm(len(objects), generator=g)[:128]
        loss = found(embeddings[rows], objects[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return found.requires_grad_(False)


def test_both_terms_are_those_of_plain_loops():
    objects = torch.tensor([[[0, 1], [2, 3]], [[2, 1], [0, 3]], [[4, 4], [1, 4]], [[1, 0], [5, 2]]])
    module = BindingRegulariser(7, SPACE.n_values, rank=3, seed=1, scale=4.0).double().requires_grad_(False)
    z = torch.randn(4, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def vector(scene):
        total = torch.zeros(7, dtype=torch.float64)
        for a, b in scene:
            total += module.sums[a] + module.sums[6 + b]
            total += (module.factors[a] * module.factors[6 + b]) @ module.head
        return total

    p = torch.stack([vector(s) for s in objects.tolist()])
    errors = (z - z.mean(0) - p + p.mean(0)).square().sum()
    form = errors / (z - z.mean(0)).square().sum()
    scenes = objects.tolist()
    # the third scene is its own twin, the objects' shapes being equal
    candidates = [*scenes, *(twin_of(s) for i, s in enumerate(scenes) if i != 2)]
    choice = 0.0
    for i, scene in enumerate(scenes):
        scores = [4 * functional.cosine_similarity(z[i], vector(c), dim=0) for c in candidates]
        wrong = [s for s, c in zip(scores, candidates, strict=True) if as_set(c) != as_set(scene)]
        choice -= (scores[i] - torch.stack([scores[i], *wrong]).logsumexp(0)) / 4
    found = module.terms(z, objects)
    assert float(found.form) == pytest.approx(float(form), rel=1e-6)
    assert float(found.choice) == pytest.approx(float(choice), rel=1e-6)
    assert float(module(z, objects)) == pytest.approx(0.1 * float(form) + float(choice), rel=1e-6)


def test_embeddings_of_the_heads_own_form_have_no_residual():
    module = BindingRegulariser(DIM, SPACE.n_values, seed=2, scale=100.0).requires_grad_(False)
    objects = sample_scenes(SPACE, 2, 60, seed=0, repeats="distinct objects")
    # a constant is no residual
    found = module.terms(module.scene_vectors(objects) + 0.5, objects)
    assert float(found.form) < 1e-10
    assert float(module.terms(module.scene_vectors(objects), objects).choice) < 0.05


def test_gradients_flow_to_embeddings_and_head():
    module = BindingRegulariser(DIM, SPACE.n_values, seed=0)
    z = torch.randn(20, DIM, generator=torch.Generator().manual_seed(0), requires_grad=True)
    objects = sample_scenes(SPACE, 2, 20, seed=0, repeats="distinct values")
    module(z, objects).backward()
    for tensor in (z, *module.parameters()):
        assert bool(tensor.grad.isfinite().all())
        assert float(tensor.grad.abs().sum()) > 0


@pytest.mark.parametrize("seed", [0, 1])
def test_a_bag_of_concepts_cannot_choose_whatever_the_head(seed):
    planted = planted_encoders(SPACE, "additive", dim=DIM, seed=seed)
    objects = factorial_scenes(SPACE, 2, repeats="distinct values")
    twins = objects.clone()
    twins[:, 0, 0], twins[:, 1, 0] = objects[:, 1, 0], objects[:, 0, 0]
    both = torch.cat([objects, twins])
    module = trained(planted.scenes(both), both, steps=150)
    found = module.terms(planted.scenes(both), both)
    assert float(found.form) < 0.05
    assert float(found.choice) >= math.log(2) - 1e-5


def test_products_are_chosen_for_new_objects_too():
    # room for 9 + 9 sums and 4 products, and an independent vector for every object
    space, g = ConceptSpace.of_sizes(9, 9), torch.Generator().manual_seed(0)
    split = object_split(space, 0.7, seed=0)
    basis = torch.linalg.qr(torch.randn(DIM, DIM, generator=g)).Q
    objects = space.all_objects()
    factors = torch.randn(2, 9, 4, generator=g)
    products = factors[0][objects[:, 0]] * factors[1][objects[:, 1]] @ basis[18:22]
    planted = basis[objects[:, 0]] + basis[9 + objects[:, 1]] + products
    memorised = torch.randn(81, DIM, generator=g) / 4
    scenes = factorial_scenes(space, 2, repeats="distinct values")
    seen, new = (scenes[split.kinds(scenes) == kind] for kind in (SceneKind.TRAIN, SceneKind.HELD_OUT))

    def of(vectors, scenes):
        return vectors[space.object_index(scenes)].sum(1)

    product, other = (trained(of(v, seen), seen, 500, space, rank=4) for v in (planted, memorised))
    for module, vectors in ((product, planted), (other, memorised)):
        assert float(module.terms(of(vectors, seen)[:200], seen[:200]).choice) < 1
    good, bad = (m.terms(of(v, new), new) for m, v in ((product, planted), (other, memorised)))
    assert float(good.form) < 0.7 < 1.0 < float(bad.form)
    assert float(good.choice) < float(bad.choice) / 2


def test_a_descent_on_the_embeddings_alone_makes_scenes_and_twins_differ():
    module = BindingRegulariser(16, SPACE.n_values, seed=0)
    objects = torch.tensor([[[0, 1], [2, 3]], [[2, 1], [0, 3]]])
    z = torch.ones(2, 16, requires_grad=True)
    optimiser = torch.optim.Adam([z], lr=0.05)
    for _ in range(100):
        loss = module(z, objects)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert float(functional.cosine_similarity(z[0], z[1], dim=0).detach()) < 0.9
    assert float(module.terms(z, objects).choice.detach()) < 0.1


def test_empty_slots_add_nothing_and_have_no_twin():
    module = BindingRegulariser(DIM, SPACE.n_values, seed=0)
    single = torch.tensor([[[1, 2]], [[3, 4]]])
    padded = torch.cat([single, torch.full((2, 1, 2), -1)], 1)
    assert torch.equal(module.scene_vectors(single), module.scene_vectors(padded))
    z = torch.randn(2, DIM, generator=torch.Generator().manual_seed(0))
    a, b = module.terms(z, single), module.terms(z, padded)
    assert torch.equal(a.choice, b.choice)


def test_the_order_of_objects_is_no_difference():
    module = BindingRegulariser(DIM, SPACE.n_values, seed=0).requires_grad_(False)
    objects = sample_scenes(SPACE, 3, 30, seed=0, repeats="distinct values")
    z = torch.randn(30, DIM, generator=torch.Generator().manual_seed(0))
    a, b = module.terms(z, objects), module.terms(z, objects.flip(1))
    assert float(a.choice) == pytest.approx(float(b.choice), rel=1e-5)


def test_three_concepts_have_a_twin_for_each():
    module = BindingRegulariser(8, (3, 3, 3), seed=0)
    objects = torch.tensor([[[0, 0, 0], [1, 1, 1]], [[2, 2, 2], [1, 1, 2]]])
    twins, has_twin = module._twins(objects)
    found = {as_set(t) for t in twins[has_twin].tolist()}
    expected = {
        as_set([[1, 0, 0], [0, 1, 1]]),
        as_set([[0, 1, 0], [1, 0, 1]]),
        as_set([[0, 0, 1], [1, 1, 0]]),
        # the second scene's objects share the third concept
        as_set([[1, 2, 2], [2, 1, 2]]),
    }
    assert found == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_values": (4,)}, "two concepts or more"),
        ({"rank": 0}, "at least 1"),
        ({"form": -1.0}, "at least 0"),
        ({"scale": 1000.0}, "scale is within"),
    ],
)
def test_settings_out_of_range_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        BindingRegulariser(**{"dim": 8, "n_values": (4, 4), **options})


@pytest.mark.parametrize(
    ("embeddings", "objects", "message"),
    [
        ((2, 9), [[[0, 0]], [[1, 1]]], "dim=9"),
        ((1, 8), [[[0, 0]]], "2 or more; got 1"),
        ((3, 8), [[[0, 0]], [[1, 1]]], "do not fit 3 embeddings"),
        ((2, 8), [[[0, 0]], [[6, 1]]], "values of objects run"),
        ((2, 8), [[[0, -1]], [[1, 1]]], "values of objects run"),
        ((2, 8), [[[-1, -1]], [[1, 1]]], "no object at all"),
    ],
)
def test_batches_that_do_not_fit_are_named(embeddings, objects, message):
    with pytest.raises(ValueError, match=message):
        BindingRegulariser(8, SPACE.n_values)(torch.ones(embeddings), torch.tensor(objects))
