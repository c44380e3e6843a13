"""Linear maps of texts: closed forms against independent solvers, and a planted rotation that they undo."""

import pytest
import torch
from torch.nn import functional

from conceptbind.repair.files import load_repair, save_repair
from conceptbind.repair.linear_map import LinearMap, margin_map, procrustes_map, ridge_map, train_linear_map
from conceptbind.repair.swaps import Pairs, SwapTraining
from conceptbind.scenes import ConceptSpace, SceneKind, factorial_scenes, object_split

SPACE = ConceptSpace.of_sizes(9, 7)
SPLIT = object_split(SPACE, 0.7, seed=1)
DIM, RANK = 32, 14


def orthogonal(n, g):
    return torch.linalg.qr(torch.randn(n, n, generator=g, dtype=torch.float64)).Q


def planted():
    """Concept parts agree; what binds is rotated in the texts, within a subspace of its own."""
    g = torch.Generator().manual_seed(0)
    scenes = factorial_scenes(SPACE, 2, repeats="distinct values")
    twins = scenes.clone()
    twins[:, 0, 0], twins[:, 1, 0] = scenes[:, 1, 0], scenes[:, 0, 0]
    basis = orthogonal(DIM, g).float()
    concepts, room = basis[:16], basis[16 : 16 + RANK]
    colours, shapes = (torch.randn(n, RANK, generator=g) for n in SPACE.n_values)
    rotation = orthogonal(RANK, g).float()

    def embed(scenes, turn):
        parts = concepts[:9][scenes[..., 0]] + concepts[9:][scenes[..., 1]]
        products = colours[scenes[..., 0]] * shapes[scenes[..., 1]] / RANK**0.5
        return (parts + products @ turn @ room).sum(1)

    eye = torch.eye(RANK)
    pairs = Pairs(embed(scenes, eye), embed(scenes, rotation), embed(twins, rotation))
    turned_back = room.T @ rotation.T @ room + torch.eye(DIM) - room.T @ room
    return pairs, SPLIT.kinds(scenes), turned_back


def some(pairs, keep):
    return Pairs(pairs.images[keep], pairs.texts[keep], pairs.swapped[keep])


def choice(repair, pairs):
    """Share of pictures that strictly prefer their caption, by cosine."""
    with torch.no_grad():
        true, swapped = (
            functional.cosine_similarity(pairs.images, repair(x)) for x in (pairs.texts, pairs.swapped)
        )
    return float((true > swapped).double().mean())


PAIRS, KINDS, TURNED_BACK = planted()
SEEN, HELD_OUT = (some(PAIRS, kind == KINDS) for kind in (SceneKind.TRAIN, SceneKind.HELD_OUT))
MAPS = {
    "trained": lambda: train_linear_map(SEEN, seed=0)[0],
    "ridge": lambda: ridge_map(SEEN, ridge=0.01),
    "procrustes": lambda: procrustes_map(SEEN),
    "margins": lambda: margin_map(SEEN, margin=0.3, ridge=1.0),
}


def test_the_planted_texts_need_repair():
    assert choice(LinearMap(DIM), HELD_OUT) < 0.65
    assert (
        choice(LinearMap.of(TURNED_BACK.T), HELD_OUT) == 1 or choice(LinearMap.of(TURNED_BACK), HELD_OUT) == 1
    )


@pytest.mark.parametrize("name", MAPS)
def test_every_map_undoes_the_rotation_for_new_objects(name):
    found = MAPS[name]()
    assert choice(found, SEEN) > 0.95
    assert choice(found, HELD_OUT) > 0.9


def test_ridge_is_the_least_squares_of_stacked_equations():
    # independent: lstsq on the rows of texts above sqrt(l) I, targets above sqrt(l) I
    x, t = (functional.normalize(y.double(), dim=1) for y in (PAIRS.images, PAIRS.texts))
    level = 0.3 * (t.T @ t).diagonal().mean()
    eye = level.sqrt() * torch.eye(DIM, dtype=torch.float64)
    solved = torch.linalg.lstsq(torch.cat([t, eye]), torch.cat([x, eye])).solution.T
    assert torch.allclose(ridge_map(PAIRS, ridge=0.3).weight.double(), solved, atol=1e-6)


def test_a_large_ridge_changes_nothing():
    for found in (ridge_map(PAIRS, ridge=1e9), margin_map(PAIRS, ridge=1e9)):
        assert torch.allclose(found.weight, torch.eye(DIM), atol=1e-6)


def test_without_a_ridge_directions_that_neither_has_stay():
    found = ridge_map(SEEN, ridge=0.0).weight.double()
    assert bool(found.isfinite().all())
    _, s, vh = torch.linalg.svd(SEEN.texts.double())
    unused = vh[int((s > 1e-3).sum()) :]
    assert len(unused) > 0
    assert torch.allclose(found @ unused.T, unused.T, atol=1e-3)


def test_procrustes_finds_a_planted_rotation():
    g = torch.Generator().manual_seed(1)
    rotation, texts = orthogonal(6, g), torch.randn(50, 6, generator=g, dtype=torch.float64)
    pairs = Pairs((texts @ rotation.T).float(), texts.float(), texts.flip(0).float())
    assert torch.allclose(procrustes_map(pairs).weight.double(), rotation, atol=1e-5)


def test_margins_are_the_ridge_regression_over_all_entries_of_the_matrix():
    g = torch.Generator().manual_seed(2)
    pairs = Pairs(*(torch.randn(12, 4, generator=g) for _ in range(3)))
    x, t, s = (functional.normalize(y.double(), dim=1) for y in (pairs.images, pairs.texts, pairs.swapped))
    features = torch.einsum("ni,nj->nij", x, t - s).flatten(1)
    level = 0.2 * features.square().sum(1).mean()
    before = features @ torch.eye(4, dtype=torch.float64).flatten()
    normal = features.T @ features + level * torch.eye(16, dtype=torch.float64)
    change = torch.linalg.solve(normal, features.T @ (0.5 - before)).view(4, 4)
    found = margin_map(pairs, margin=0.5, ridge=0.2).weight.double()
    assert torch.allclose(found, torch.eye(4, dtype=torch.float64) + change, atol=1e-6)


def test_few_margins_are_met_exactly_when_the_ridge_vanishes():
    g = torch.Generator().manual_seed(3)
    pairs = Pairs(*(torch.randn(5, 8, generator=g) for _ in range(3)))
    x, t, s = (functional.normalize(y, dim=1) for y in (pairs.images, pairs.texts, pairs.swapped))
    found = margin_map(pairs, margin=0.25, ridge=1e-9)
    assert torch.allclose((x * found(t - s)).sum(1), torch.full((5,), 0.25), atol=1e-5)


def test_what_is_saved_is_loaded(tmp_path):
    found = procrustes_map(SEEN)
    save_repair(found, tmp_path / "map.safetensors")
    again = load_repair(tmp_path / "map.safetensors")
    assert isinstance(again, LinearMap)
    assert torch.equal(again(PAIRS.texts), found(PAIRS.texts))


def test_training_reports_its_losses_and_its_scale():
    _, how = train_linear_map(SEEN, SwapTraining(n_epochs=5), seed=0)
    assert len(how["losses"]) == 5
    assert how["losses"][-1] < how["losses"][0]
    assert 0 < how["scale"] <= 100.001


@pytest.mark.parametrize(
    "solve", [ridge_map, procrustes_map, margin_map, lambda pairs: train_linear_map(pairs, seed=0)]
)
def test_images_and_texts_of_different_dimensions_are_named(solve):
    pairs = Pairs(PAIRS.images[:, :20], PAIRS.texts, PAIRS.swapped)
    with pytest.raises(ValueError, match="images have 20 dimensions, texts 32"):
        solve(pairs)


def test_settings_out_of_range_are_named():
    with pytest.raises(ValueError, match="ridge must be a finite number"):
        ridge_map(SEEN, ridge=-1.0)
    with pytest.raises(ValueError, match="margin and ridge must be positive"):
        margin_map(SEEN, ridge=0.0)
    with pytest.raises(ValueError, match="at least 1; got 0 to 0"):
        LinearMap(0)


def test_a_text_encoder_without_order_is_told():
    with pytest.raises(ValueError, match="lost the order of the words"):
        margin_map(Pairs(PAIRS.images, PAIRS.texts, PAIRS.texts))


def test_too_many_pairs_for_the_kernel_are_told():
    many = torch.ones(8193, 2)
    with pytest.raises(ValueError, match="draw at most 8,192"):
        margin_map(Pairs(many, many, many))
