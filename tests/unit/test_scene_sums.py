"""Sums over scenes against loops and numpy, whatever the block sizes and the type they are summed in."""

import numpy as np
import pytest
import torch

from conceptbind.kernels import scene_sums as kernel
from conceptbind.kernels.scene_sums import scene_sums


def some_scenes(n=50, dim=6, n_objects=7, n_slots=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dim, generator=generator) + 5
    index = torch.randint(n_objects, (n, n_slots), generator=generator) * 3  # not every index occurs
    return x, index


def test_every_sum_is_the_sum_of_a_loop_over_scenes():
    x, index = some_scenes()
    sums = scene_sums(x, index)
    z = x.double().numpy() - x.double().numpy().mean(0)
    position = {int(o): p for p, o in enumerate(sums.objects)}
    expected = np.zeros_like(sums.sums.numpy())
    together = np.zeros(sums.together.shape)
    for row, scene in zip(z, index.tolist(), strict=True):
        for i, o in enumerate(scene):
            expected[i, position[o]] += row
            for j, p in enumerate(scene):
                together[i, position[o], j, position[p]] += 1
    np.testing.assert_allclose(sums.sums.numpy(), expected, atol=1e-12)
    np.testing.assert_array_equal(sums.together.numpy(), together)
    np.testing.assert_allclose(sums.mean.numpy(), x.double().numpy().mean(0), rtol=1e-14)
    assert sums.total == pytest.approx((z**2).sum(), rel=1e-13)
    assert sums.counts.sum(1).tolist() == [50, 50, 50]


def test_summing_in_float32_blocks_gives_the_same_up_to_rounding(monkeypatch):
    x, index = some_scenes(n=3000, dim=40)
    exact = scene_sums(x, index)
    monkeypatch.setattr(kernel, "EXACT_ELEMENTS", 0)
    monkeypatch.setattr(kernel, "BLOCK_ROWS", 7)
    monkeypatch.setattr(kernel, "FLUSH_ROWS", 100)
    blocked = scene_sums(x, index)
    torch.testing.assert_close(blocked.sums, exact.sums, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(blocked.mean, exact.mean, rtol=1e-7, atol=1e-7)
    assert blocked.total == pytest.approx(exact.total, rel=1e-6)
    assert torch.equal(blocked.together, exact.together)


def test_a_large_common_offset_costs_no_precision(monkeypatch):
    # Embeddings of similar scenes share most of their length: |mean|² here is a million times the spread.
    monkeypatch.setattr(kernel, "EXACT_ELEMENTS", 0)
    x, index = some_scenes(n=2000, dim=16)
    far = x + 1000
    spread = far.double() - far.double().mean(0)
    assert scene_sums(far, index).total == pytest.approx(float(spread.square().sum()), rel=1e-6)


def test_a_large_object_space_of_which_little_occurs():
    x, index = some_scenes(n=20)
    sparse = index * 10**9
    a, b = scene_sums(x, index), scene_sums(x, sparse)
    assert torch.equal(b.objects, a.objects * 10**9)
    assert torch.equal(a.sums, b.sums)


def test_more_objects_than_the_counts_can_hold_are_refused(monkeypatch):
    monkeypatch.setattr(kernel, "MAX_PARTS", 20)
    x, index = some_scenes()
    with pytest.raises(ValueError, match="7 different objects in 3 slots make 21 parts"):
        scene_sums(x, index)


def test_scenes_without_embeddings_are_refused():
    x, index = some_scenes()
    with pytest.raises(ValueError, match="one row of objects for each embedding"):
        scene_sums(x[:4], index)
    with pytest.raises(ValueError, match="at least one"):
        scene_sums(x[:0], index[:0])
