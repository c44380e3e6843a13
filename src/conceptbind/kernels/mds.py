"""Classical multidimensional scaling: the best flat picture of the distances between points."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

# Coordinates this close to the largest of their axis count as equally large: which of them is the largest is
# then rounding noise, and must not decide the sign of the axis.
_SIGN_TOLERANCE = 1e-6


def classical_mds(
    points: Float[Tensor, "point dim"], n_dims: int = 3
) -> tuple[Float[Tensor, "point axis"], Float[Tensor, "axis"]]:
    """Place points in ``n_dims`` dimensions so that their squared distances are kept as well as possible.

    Returns the float64 coordinates ``(point, n_dims)``, centred and in the units of ``points``, and the share
    (0 to 1) of the total squared distance that each axis carries, the largest first. Axes that the points do
    not need are zero. The first of the largest coordinates of each axis is positive; axes that carry equal
    shares are only fixed up to a rotation among them.

    With J = I - 11'/n and D the matrix of distances, the coordinates are V sqrt(L) for the eigenvectors V and
    eigenvalues L of -1/2 J D^2 J (Torgerson 1952), computed from the singular values S of the centred points:
    L = S^2, and axis a carries S_a^2 / sum S^2 of sum_{i<j} |x_i - x_j|^2 = n sum S^2.

    Raises ValueError for fewer than two points, numbers that are not finite, points that are all the same,
    or ``n_dims`` below 1.
    """
    if n_dims < 1:
        raise ValueError(f"n_dims must be at least 1; got {n_dims}")
    if len(points) < 2:
        raise ValueError(f"distances need at least two points; got {len(points)}")
    if not points.isfinite().all():
        raise ValueError(f"points hold {int((~points.isfinite()).sum())} numbers that are not finite")
    if bool((points == points[0]).all()):
        raise ValueError(f"all {len(points)} points are the same: there are no distances to show")
    exact = points.detach().double()
    # Relative to the first point before the mean: coordinates far from 0 lose nothing to rounding.
    exact = exact - exact[0]
    left, singular, _ = torch.linalg.svd(exact - exact.mean(0), full_matrices=False)
    shares = singular.square() / singular.square().sum()
    coordinates = left * singular
    missing = max(0, n_dims - len(singular))
    coordinates = torch.nn.functional.pad(coordinates, (0, missing))[:, :n_dims]
    shares = torch.nn.functional.pad(shares, (0, missing))[:n_dims]
    large = coordinates.abs() >= (1 - _SIGN_TOLERANCE) * coordinates.abs().amax(0)
    first = coordinates.gather(0, large.int().argmax(0, keepdim=True))
    return coordinates * torch.where(first < 0, -1.0, 1.0), shares
