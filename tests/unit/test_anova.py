"""Energies of ANOVA components against their definition, projections, and functions whose components are planted."""

import itertools
import math

import numpy as np
import pytest
import torch

from conceptbind.kernels import anova as kernel
from conceptbind.kernels.anova import anova_energies, degrees_of_freedom, subsets

SIZES = [(5,), (3, 4), (2, 1, 3), (4, 3, 2, 2), (2, 3, 2, 1, 3), (2, 3, 2, 2, 3, 2)]


def some_grid(sizes, dim=5, seed=0):
    return torch.randn(*sizes, dim, generator=torch.Generator().manual_seed(seed))


def components(grid):
    """Every z_S by inclusion and exclusion of broadcast means: sum over T in S of (-1)^(|S| - |T|) E[z | T]."""
    z = grid.double().numpy()
    n_factors = z.ndim - 1

    def mean_given(inside):
        away = tuple(f for f in range(n_factors) if f not in inside)
        return np.broadcast_to(z.mean(axis=away, keepdims=True), z.shape)

    found = {}
    for size in range(n_factors + 1):
        for subset in itertools.combinations(range(n_factors), size):
            parts = itertools.chain.from_iterable(
                itertools.combinations(subset, r) for r in range(len(subset) + 1)
            )
            found[subset] = sum((-1) ** (len(subset) - len(t)) * mean_given(t) for t in parts)
    return found


@pytest.mark.parametrize("sizes", SIZES)
def test_energies_are_those_of_the_definition(sizes):
    grid = some_grid(sizes)
    wanted = components(grid)
    order = subsets(len(sizes))
    assert sorted(order) == sorted(wanted)
    expected = [0.0] + [float((wanted[s] ** 2).sum(-1).mean()) for s in order[1:]]
    energies = anova_energies(grid)
    assert energies.dtype == torch.float64
    np.testing.assert_allclose(energies.numpy(), expected, rtol=1e-12, atol=1e-14)
    variance = float(grid.double().flatten(0, -2).var(0, unbiased=False).sum())
    assert float(energies.sum()) == pytest.approx(variance, rel=1e-12)


@pytest.mark.parametrize("sizes", [(3, 4), (2, 3, 3)])
def test_energies_are_those_of_least_squares_on_indicators(sizes):
    # A component is what the indicators of its factors explain beyond those of all smaller sets of factors.
    grid = some_grid(sizes)
    z = grid.double().numpy().reshape(-1, grid.shape[-1])
    cells = np.array(list(itertools.product(*map(range, sizes))))

    def explained(sets):
        columns = [np.ones((len(cells), 1))]
        for subset in sets:
            kinds = np.unique(cells[:, list(subset)], axis=0)
            columns.append((cells[:, None, list(subset)] == kinds[None]).all(-1).astype(float))
        design = np.concatenate(columns, axis=1)
        fit = design @ np.linalg.lstsq(design, z, rcond=None)[0]
        return ((fit - z.mean(0)) ** 2).sum(-1).mean(), np.linalg.matrix_rank(design)

    order = subsets(len(sizes))
    dfs = degrees_of_freedom(sizes)
    for subset, energy, df in zip(order[1:], anova_energies(grid)[1:].tolist(), dfs[1:], strict=True):
        below = [s for s in order[1:] if set(s) < set(subset)]
        full, rank = explained([*below, subset])
        part, smaller = explained(below)
        assert energy == pytest.approx(full - part, abs=1e-12)
        assert df == rank - smaller


@pytest.mark.parametrize("sizes", SIZES)
def test_degrees_of_freedom_are_all_the_directions_of_the_grid(sizes):
    assert sum(degrees_of_freedom(sizes)) == math.prod(sizes)
    assert degrees_of_freedom(sizes)[0] == 1
    assert degrees_of_freedom(sizes)[-1] == math.prod(v - 1 for v in sizes)


def test_planted_components_are_found_and_nothing_else():
    # z = 3 a b + 2 c + 0.5 a b c d with a, b, c, d = +-1 on dimensions of their own.
    signs = torch.tensor([-1.0, 1.0])
    a, b, c, d = (signs.reshape([2 if i == f else 1 for i in range(4)]) for f in range(4))
    grid = torch.stack(torch.broadcast_tensors(3 * a * b, 2 * c, 0.5 * a * b * c * d), dim=-1)
    found = dict(zip(subsets(4), anova_energies(grid).tolist(), strict=True))
    assert found.pop((0, 1)) == pytest.approx(9, rel=1e-14)
    assert found.pop((2,)) == pytest.approx(4, rel=1e-14)
    assert found.pop((0, 1, 2, 3)) == pytest.approx(0.25, rel=1e-14)
    assert set(found.values()) == {0.0}


def test_a_large_common_offset_changes_nothing():
    # Integers far from 0 are exact in float32: the same deviations must give the same energies.
    generator = torch.Generator().manual_seed(0)
    near = torch.randint(-8, 9, (4, 3, 5, 6), generator=generator).float()
    far = near + 2.0**22
    np.testing.assert_allclose(anova_energies(far).numpy(), anova_energies(near).numpy(), rtol=1e-12)


def test_tiny_components_keep_their_digits():
    # The interaction is 1e-18 of the variance: beyond what differences of mean squares in float64 could show.
    a, b = torch.arange(4.0).double(), torch.tensor([-1.0, 1.0]).double()
    centred = a - a.mean()
    grid = (1e6 * centred[:, None] + 1e-3 * centred[:, None] * b).unsqueeze(-1)
    power = float(centred.square().mean())
    _, second, first, both = anova_energies(grid).tolist()
    assert first == pytest.approx(1e12 * power, rel=1e-12)
    assert second == 0
    assert both == pytest.approx(1e-6 * power, rel=1e-5)


def test_equal_embeddings_have_no_variance():
    assert anova_energies(torch.full((3, 4, 7), 0.1)).tolist() == [0.0] * 4


def test_blocks_of_dimensions_do_not_matter(monkeypatch):
    grid = some_grid((3, 4, 2), dim=11)
    whole = anova_energies(grid)
    for at_once in (1, 24 * 3, 24 * 5 + 1):
        monkeypatch.setattr(kernel, "BLOCK_ELEMENTS", at_once)
        torch.testing.assert_close(anova_energies(grid), whole, rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_grid_itself_is_left_as_it_was(dtype):
    grid = some_grid((3, 4), dim=3).to(dtype)
    before = grid.clone()
    anova_energies(grid)
    assert torch.equal(grid, before)
    # Any layout in memory, such as dimensions first.
    turned = grid.movedim(-1, 0).contiguous().movedim(0, -1)
    torch.testing.assert_close(anova_energies(turned), anova_energies(grid), rtol=1e-13, atol=0)


def test_a_grid_without_cells_is_refused():
    with pytest.raises(ValueError, match=r"got shape \(3, 0, 4\)"):
        anova_energies(torch.zeros(3, 0, 4))
