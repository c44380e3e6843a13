"""Geometry of parts on vectors whose angles and shares are known."""

import math

import pytest
import torch

from conceptbind.analysis.additive import fit_additive
from conceptbind.analysis.part_geometry import concept_share, part_norms, position_alignment, subspace_angles
from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, factorial_scenes

SPACE = ConceptSpace.of_sizes(4, 3)
SCENES = factorial_scenes(SPACE, 2)


def fit_of(embeddings, **arguments):
    return fit_additive(EmbeddingSet(embeddings.float(), SCENES, SPACE), **arguments)


def test_a_bag_is_all_concepts_and_memorised_objects_have_the_share_of_chance():
    shares = {
        kind: concept_share(fit_of(planted_encoders(SPACE, kind, dim=2048, seed=0).scenes(SCENES)))
        for kind in ("additive", "memorised")
    }
    assert shares["additive"].share == pytest.approx(1, abs=1e-6)
    assert shares["memorised"].expected == pytest.approx(5 / 11)
    assert shares["memorised"].share == pytest.approx(5 / 11, abs=0.02)
    assert len(shares["memorised"].by_slot) == 2


def test_the_share_of_a_product_is_its_weight():
    # |sum of concept parts|² against |product|² of +-1 coordinates, each around its mean over the grid.
    strength = 1.5
    encoders = planted_encoders(SPACE, "product", dim=4096, seed=0, strength=strength)
    parts = encoders.scene_objects.double()
    bag = planted_encoders(SPACE, "additive", dim=4096, seed=0).scene_objects.double()
    product = parts - bag
    # The product of +-1 vectors is nearly, not quite, orthogonal to functions of single concepts: take that off.
    grid = product.reshape(4, 3, -1)
    main = grid.mean(1, keepdim=True) + grid.mean(0, keepdim=True) - grid.mean((0, 1), keepdim=True)
    left = float((grid - main).square().sum())
    whole = float((parts - parts.mean(0)).square().sum())
    share = concept_share(fit_of(encoders.scenes(SCENES))).share
    assert share == pytest.approx(1 - left / whole, abs=1e-6)


def test_lengths_and_alignment_of_two_positions():
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(12, 32, generator=generator).double()
    turn = torch.linalg.qr(torch.randn(32, 32, generator=generator).double()).Q
    index = SPACE.object_index(SCENES)
    same = fit_of(u[index[:, 0]] + 0.5 * u[index[:, 1]])
    first, second = part_norms(same)
    assert first / second == pytest.approx(2, rel=1e-5)
    assert position_alignment(same) == pytest.approx(1, abs=1e-6)
    opposite = fit_of(u[index[:, 0]] - u[index[:, 1]])
    assert position_alignment(opposite) == pytest.approx(-1, abs=1e-6)
    turned = fit_of(u[index[:, 0]] + (u @ turn)[index[:, 1]])
    centred = u - u.mean(0)
    expected = float((centred * (centred @ turn)).sum() / centred.square().sum())
    assert position_alignment(turned) == pytest.approx(expected, abs=1e-5)


def test_angles_of_planted_subspaces():
    # Concept 0 in coordinates 0-2, concept 1 turned 30 degrees out of its own plane towards the first.
    generator = torch.Generator().manual_seed(0)
    one = torch.zeros(4, 12).double()
    one[:, :3] = torch.randn(4, 3, generator=generator).double()
    two = torch.zeros(3, 12).double()
    loads = torch.randn(3, 2, generator=generator).double()
    two[:, 0] = math.sin(math.radians(30)) * loads[:, 0]
    two[:, 5] = math.cos(math.radians(30)) * loads[:, 0]
    two[:, 6] = loads[:, 1]
    z = sum(one[SCENES[:, i, 0]] + two[SCENES[:, i, 1]] for i in range(2))
    (pair,) = subspace_angles(fit_of(z, level="concepts", estimator="avg"))
    assert (pair.first, pair.second) == ("c0", "c1")
    assert pair.angles == pytest.approx((60, 90), abs=0.01)
    assert pair.overlap == pytest.approx(0.25 / 2, abs=1e-5)
    assert pair.expected == pytest.approx(3 / 12)


def test_with_positions_each_concept_meets_the_others_of_its_slot_and_itself_in_the_other():
    z = planted_encoders(SPACE, "additive", dim=64, seed=0).scenes(SCENES)
    pairs = {(p.first, p.second): p for p in subspace_angles(fit_of(z, level="concepts"))}
    assert len(pairs) == 4
    assert pairs["c0, slot 0", "c1, slot 0"].overlap == pytest.approx(0, abs=1e-9)
    assert pairs["c0, slot 0", "c0, slot 1"].overlap == pytest.approx(1, abs=1e-6)


def test_random_subspaces_overlap_as_stated():
    generator = torch.Generator().manual_seed(0)
    overlaps = []
    for _ in range(40):
        z = torch.randn(144, 20, generator=generator)
        (pair,) = subspace_angles(fit_of(z, level="concepts", estimator="avg"))
        overlaps.append(pair.overlap)
    assert sum(overlaps) / 40 == pytest.approx(pair.expected, abs=0.03)


def test_requests_that_make_no_sense_are_named():
    z = torch.randn(144, 8, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="level='objects'"):
        concept_share(fit_of(z, level="concepts"))
    with pytest.raises(ValueError, match="level='concepts'"):
        subspace_angles(fit_of(z))
    with pytest.raises(ValueError, match="slots run from 0 to 1; got 2"):
        position_alignment(fit_of(z), 0, 2)
    with pytest.raises(ValueError, match="keeps positions"):
        position_alignment(fit_of(z, estimator="avg"))
