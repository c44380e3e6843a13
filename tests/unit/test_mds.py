"""Classical scaling keeps distances, and agrees with the eigenvectors of the double-centred squared distances."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conceptbind.kernels.mds import classical_mds


def cloud(n: int, dim: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("n", [2, 3, 4, 30])
def test_distances_of_a_flat_cloud_are_kept(n: int, dim: int) -> None:
    """Points of at most three dimensions, turned into 40 dimensions and moved far from the origin."""
    basis = torch.linalg.qr(cloud(40, dim, seed=1)).Q
    flat = cloud(n, dim)
    coordinates, shares = classical_mds(flat @ basis.T + 100)
    assert coordinates.shape == (n, 3)
    torch.testing.assert_close(torch.cdist(coordinates, coordinates), torch.cdist(flat, flat))
    torch.testing.assert_close(shares.sum(), torch.tensor(1.0).double())
    assert (shares[min(dim, n - 1) :] < 1e-12).all()


@pytest.mark.parametrize(("n", "dim", "n_dims"), [(28, 64, 3), (10, 5, 2), (5, 12, 6)])
def test_agrees_with_the_eigenvectors_of_the_squared_distances(n: int, dim: int, n_dims: int) -> None:
    points = cloud(n, dim)
    coordinates, shares = classical_mds(points, n_dims)
    squared = ((points[:, None] - points[None]) ** 2).sum(-1).numpy()
    centring = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-0.5 * centring @ squared @ centring)
    values, vectors = values[::-1].clip(0), vectors[:, ::-1]
    wanted = vectors * np.sqrt(values)
    for axis in range(min(n_dims, n - 1)):
        ours = coordinates[:, axis].numpy()
        np.testing.assert_allclose(ours * np.sign(ours @ wanted[:, axis]), wanted[:, axis], atol=1e-9)
    wanted_shares = np.pad(values / values.sum(), (0, n_dims))[:n_dims]
    np.testing.assert_allclose(shares.numpy(), wanted_shares, atol=1e-12)


def test_shares_are_of_the_total_squared_distance() -> None:
    """Along axis a, sum_{i<j} of the squared differences is its share of the sum of the squared distances."""
    points = cloud(12, 9)
    coordinates, shares = classical_mds(points)
    along = torch.stack([torch.pdist(coordinates[:, a : a + 1]).square().sum() for a in range(3)])
    torch.testing.assert_close(shares, along / torch.pdist(points).square().sum())


def test_a_known_rectangle() -> None:
    """Corners of 6 x 2: the axes are its sides, centred, the first corner positive; shares 36 : 4."""
    corners = torch.tensor([[0.0, 0.0], [6.0, 0.0], [0.0, 2.0], [6.0, 2.0]])
    coordinates, shares = classical_mds(corners, 3)
    wanted = torch.tensor([[3.0, 1, 0], [-3, 1, 0], [3, -1, 0], [-3, -1, 0]]).double()
    torch.testing.assert_close(coordinates, wanted)
    torch.testing.assert_close(shares, torch.tensor([0.9, 0.1, 0.0]).double())


def test_signs_do_not_depend_on_the_signs_of_the_input() -> None:
    points = cloud(20, 7)
    coordinates, _ = classical_mds(points)
    mirrored, _ = classical_mds(-points)
    moved, _ = classical_mds(points.flip(1) + 3)
    torch.testing.assert_close(coordinates.abs(), mirrored.abs())
    torch.testing.assert_close(coordinates, moved)
    for axis in (coordinates.T, mirrored.T):
        largest = axis.gather(1, axis.abs().argmax(1, keepdim=True))
        assert (largest > 0).all()


def test_float32_far_from_the_origin_is_computed_in_float64() -> None:
    points = torch.tensor([[1e6, 1e6], [1e6 + 3, 1e6], [1e6, 1e6 + 4]])
    coordinates, _ = classical_mds(points, 2)
    assert coordinates.dtype == torch.float64
    torch.testing.assert_close(torch.pdist(coordinates), torch.tensor([3.0, 4, 5]).double())


@pytest.mark.parametrize(
    ("points", "n_dims", "message"),
    [
        (torch.zeros(1, 4), 3, "at least two points; got 1"),
        (torch.tensor([[0.0, torch.nan], [torch.inf, 1.0]]), 3, "hold 2 numbers that are not finite"),
        (torch.full((5, 4), 0.1), 3, "all 5 points are the same"),
        (torch.eye(4), 0, "n_dims must be at least 1; got 0"),
    ],
)
def test_bad_input_is_named(points: torch.Tensor, n_dims: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classical_mds(points, n_dims)
