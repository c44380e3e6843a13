"""Sums and products by alternating least squares: planted tables, a dense ridge solution, and what must not matter."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conceptbind.kernels import products as module
from conceptbind.kernels.products import fit_products

DIM = 12


def draw(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def rows_of(sizes, n_slots):
    """Every object in every slot."""
    every = torch.cartesian_prod(*[torch.arange(v) for v in sizes])
    return torch.arange(n_slots).repeat_interleave(len(every)), every.repeat(n_slots, 1)


def planted(sizes, n_slots, rank, seed=0):
    """Sums plus products with factors of their own in every slot; by coordinate where the rank is None."""
    g = torch.Generator().manual_seed(seed)
    slots, objects = rows_of(sizes, n_slots)
    total, product = draw(g, n_slots, DIM)[slots], 1.0
    for k, size in enumerate(sizes):
        at = slots * size + objects[:, k]
        total = total + draw(g, n_slots * size, DIM)[at]
        product = product * draw(g, n_slots * size, DIM if rank is None else rank)[at]
    interaction = product if rank is None else product @ draw(g, rank, DIM)
    return total + interaction, interaction, slots, objects


def some_objects(sizes, n_slots, share, seed=1):
    """Mark a share of the objects, the same in all slots, such that every value is shown more than once."""
    _, every = rows_of(sizes, 1)
    for attempt in range(1000):
        g = torch.Generator().manual_seed(seed + 1000 * attempt)
        kept = torch.rand(len(every), generator=g).argsort().argsort() < round(share * len(every))
        if all(torch.bincount(every[kept, k], minlength=v).min() > 2 for k, v in enumerate(sizes)):
            return kept.repeat(n_slots)
    raise AssertionError("no such objects")


def fit(targets, slots, objects, weight, sizes, *, rank, ridge=1e-9, ridge_sums=0.0, seeds=(0,), **options):
    """Fit the same rows once for every seed."""
    n = len(seeds)

    def each(x):
        return torch.full((n,), x, dtype=torch.float64)

    weight = weight.to(targets).expand(n, -1).contiguous()
    return fit_products(
        targets.expand(n, -1, -1).contiguous(),
        slots,
        objects,
        weight,
        sizes,
        rank=rank,
        ridge=each(ridge),
        ridge_sums=each(ridge_sums),
        seeds=list(seeds),
        **options,
    )


# ---- planted products


@pytest.mark.parametrize("n_slots", [1, 2])
@pytest.mark.parametrize(("sizes", "rank"), [((8, 7), 2), ((5, 4, 4), 2), ((8, 7), None), ((5, 4, 4), None)])
def test_a_planted_product_is_found_on_objects_never_seen(monkeypatch, sizes, rank, n_slots):
    monkeypatch.setattr(module, "SETTLED", 1e-9)
    z, interaction, slots, objects = planted(sizes, n_slots, rank)
    kept = some_objects(sizes, n_slots, 0.8)
    found = fit(z, slots, objects, kept, sizes, rank=rank, seeds=range(8), max_sweeps=400)
    guess = found.predict(slots, objects, sizes)
    if rank is None:  # every coordinate takes its own best start
        best = found.error.argmin(0)
        guess = torch.stack([guess[s, :, d] for d, s in enumerate(best)], dim=1)
    else:
        guess = guess[found.error.argmin()]
    wrong, of = ((x[~kept] ** 2).sum(0) for x in (guess - z, interaction))
    # The sum alone must be far off, or finding the product would mean nothing.
    alone = fit(z, slots, objects, kept, sizes, rank=0).predict(slots, objects, sizes)[0]
    assert float(((alone - z)[~kept] ** 2).sum() / of.sum()) > 0.3
    if rank is None:  # 12 problems at once, each with minima of its own
        assert float((wrong / of).median()) < 1e-6
    else:
        assert float(wrong.sum() / of.sum()) < 1e-5


def test_fits_that_stop_by_themselves_are_near_the_planted_product():
    """With the default end, what is left to gain is 1e-4 of the interaction; held-out objects amplify it some."""
    for sizes in ((8, 7), (5, 4, 4)):
        z, interaction, slots, objects = planted(sizes, 2, 2)
        kept = some_objects(sizes, 2, 0.8)
        found = fit(z, slots, objects, kept, sizes, rank=2, seeds=range(6))
        best = found.error.argmin()
        assert bool(found.converged[best])
        wrong = (found.predict(slots, objects, sizes)[best] - z)[~kept].square().sum()
        assert float(wrong / interaction[~kept].square().sum()) < 1e-2


def test_one_head_serves_all_slots_and_factors_differ_by_slot():
    sizes = (8, 7)
    z, _, slots, objects = planted(sizes, 2, 1)
    kept = some_objects(sizes, 2, 0.9)
    found = fit(z, slots, objects, kept, sizes, rank=1, seeds=range(4), max_sweeps=500)
    best = found.error.argmin()
    assert found.head.shape == (4, 1, DIM)
    # The interaction of each slot is the outer product of its centred factors: compare up to scale with the table's.
    for slot in range(2):
        table = z[slots == slot].view(*sizes, DIM)
        inter = table - table.mean(0, keepdim=True) - table.mean(1, keepdim=True) + table.mean((0, 1))
        head = torch.nn.functional.normalize(found.head[best, 0], dim=0)
        assert float((inter @ head).square().sum() / inter.square().sum()) > 0.99
        for k, size in enumerate(sizes):
            factor = found.factors[k][best, slot * size : (slot + 1) * size, 0]
            factor = factor - factor.mean()
            left, _, right = torch.linalg.svd(inter @ head)
            truth = left[:, 0] if k == 0 else right[0]
            assert abs(float(factor @ truth)) > 0.99 * float(factor.norm())


# ---- the sum alone


def dense_sum(z, slots, objects, weight, sizes, ridge):
    """Solve for all u at once: rows, one-hot columns, penalties in the size of the mean count of a value."""
    n_slots = int(slots.max()) + 1
    mean = torch.stack([(weight * (slots == s)) @ z / (weight * (slots == s)).sum() for s in range(n_slots)])
    columns, penalties = [], []
    for k, size in enumerate(sizes):
        x = torch.zeros(len(z), n_slots * size, dtype=z.dtype)
        x[range(len(z)), slots * size + objects[:, k]] = 1
        counts = weight @ x
        penalties += [ridge * float(counts.sum() / (counts > 0).sum())] * (n_slots * size)
        columns.append(x)
    x, centred = torch.cat(columns, 1), z - mean[slots]
    root = weight.sqrt().unsqueeze(1)
    # Least squares of stacked equations, without normal equations.
    stacked = torch.cat([x * root, torch.tensor(penalties, dtype=z.dtype).sqrt().diag()])
    right = torch.cat([centred * root, torch.zeros(x.shape[1], z.shape[1], dtype=z.dtype)])
    return mean[slots] + x @ torch.linalg.lstsq(stacked, right, driver="gelsd").solution


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**31), st.sampled_from([(6, 5), (4, 3, 3)]), st.sampled_from([0.0, 0.05, 0.5]))
def test_rank_zero_is_the_weighted_ridge_solution(seed, sizes, ridge):
    slots, objects = rows_of(sizes, 2)
    g = torch.Generator().manual_seed(seed)
    z = draw(g, len(slots), 4)
    weight = torch.rand(len(slots), generator=g, dtype=torch.float64) * 5
    weight *= torch.rand(len(slots), generator=g) < 0.6
    weight[:: len(slots) // 2] = 1  # at least one row a slot
    found = fit(z, slots, objects, weight, sizes, rank=0, ridge_sums=ridge)
    guess, truth = found.predict(slots, objects, sizes)[0], dense_sum(z, slots, objects, weight, sizes, ridge)
    # Without a ridge, only what is judged by the rows is determined.
    judged = weight > 0 if ridge == 0 else torch.ones_like(weight, dtype=torch.bool)
    torch.testing.assert_close(guess[judged], truth[judged], rtol=0, atol=1e-8)
    torch.testing.assert_close(found.error[0], (weight @ (z - truth).square()).sum(), rtol=1e-8, atol=1e-8)
    assert bool(found.converged[0])
    assert found.n_sweeps == 0
    assert found.head.shape == (1, 0, 4)


def test_the_sum_is_exact_where_values_hang_together_by_a_thread():
    """A staircase of objects (0,0) (0,1) (1,1) ... determines all sums; concepts in turn would crawl."""
    n = 12
    slots, objects = rows_of((n, n), 1)
    weight = ((objects[:, 1] - objects[:, 0] == 0) | (objects[:, 1] - objects[:, 0] == 1)).double()
    g = torch.Generator().manual_seed(0)
    z = draw(g, n, 3)[objects[:, 0]] + draw(g, n, 3)[objects[:, 1]]
    found = fit(z, slots, objects, weight, (n, n), rank=0)
    torch.testing.assert_close(found.predict(slots, objects, (n, n))[0], z, rtol=0, atol=1e-9)


# ---- sweeps


@pytest.mark.parametrize("rank", [2, None])
def test_more_sweeps_never_fit_worse(rank):
    sizes = (6, 5, 3)
    z, _, slots, objects = planted(sizes, 2, 3, seed=4)
    g = torch.Generator().manual_seed(5)
    z = z + draw(g, *z.shape)
    weight = 1 + torch.rand(len(z), generator=g, dtype=torch.float64)
    errors = [
        fit(z, slots, objects, weight, sizes, rank=rank, seeds=range(3), max_sweeps=n).error
        for n in (0, 1, 2, 3, 5, 10, 20)
    ]
    for before, after in itertools.pairwise(errors[1:]):
        assert bool((after <= before * (1 + 1e-7)).all())
    # ... and one sweep is already no worse than the sum that it starts from.
    alone = fit(z, slots, objects, weight, sizes, rank=0).error
    assert bool((errors[1] <= alone * (1 + 1e-7)).all() if rank else errors[1].sum(1).le(alone).all())


@pytest.mark.parametrize("rank", [2, None])
def test_every_block_is_stationary_at_the_end(monkeypatch, rank):
    """No small change of any factor, sum or head lowers the squared error: its gradient by autograd vanishes."""
    monkeypatch.setattr(module, "SETTLED", 1e-12)
    sizes = (6, 5)
    z, _, slots, objects = planted(sizes, 1, rank, seed=7)
    z = z + 0.3 * draw(torch.Generator().manual_seed(8), *z.shape)
    weight = torch.ones(len(z))
    found = fit(z, slots, objects, weight, sizes, rank=rank, ridge=0.0, max_sweeps=1500)
    parts = [*found.sums, *found.factors, *([] if rank is None else [found.head])]
    parts = [p.clone().requires_grad_() for p in parts]
    moved = module.ProductFits(
        found.mean, tuple(parts[:2]), tuple(parts[2:4]), None if rank is None else parts[4],
        found.error, found.converged, 0,
    )  # fmt: skip
    error = (moved.predict(slots, objects, sizes)[0] - z).square().sum()
    assert float(error.detach()) == pytest.approx(float(found.error.sum()), rel=1e-9)
    assert float(error.detach()) > 0.1, "a fit without error would be stationary anyhow"
    norms = [float(g.norm()) for g in torch.autograd.grad(error, parts)]
    assert max(norms) < 1e-3 * float(z.norm())


def test_the_prediction_of_a_linear_head_does_not_depend_on_the_axes():
    sizes = (6, 5)
    z, _, slots, objects = planted(sizes, 2, 2, seed=9)
    turn = torch.linalg.qr(draw(torch.Generator().manual_seed(1), DIM, DIM)).Q
    kept = some_objects(sizes, 2, 0.8)
    options = {"rank": 2, "ridge": 0.1, "ridge_sums": 0.1, "max_sweeps": 5}
    ours = fit(z, slots, objects, kept, sizes, **options).predict(slots, objects, sizes)
    theirs = fit(z @ turn, slots, objects, kept, sizes, **options).predict(slots, objects, sizes)
    torch.testing.assert_close(theirs, ours @ turn, rtol=0, atol=1e-7)


def test_units_do_not_matter():
    """Ridges are relative: targets in other units, and weights in other units, give the same fit in those units."""
    sizes = (6, 5)
    for rank in (2, None):
        z, _, slots, objects = planted(sizes, 2, 2, seed=9)
        kept = some_objects(sizes, 2, 0.8).double()
        options = {"rank": rank, "ridge": 0.1, "ridge_sums": 0.1, "max_sweeps": 8}
        ours = fit(z, slots, objects, kept, sizes, **options).predict(slots, objects, sizes)
        theirs = fit(1e-3 * z, slots, objects, 50 * kept, sizes, **options).predict(slots, objects, sizes)
        torch.testing.assert_close(theirs * 1e3, ours, rtol=0, atol=1e-6)


# ---- what must not matter


@pytest.mark.parametrize("rank", [0, 2, None])
def test_rows_without_weight_change_nothing(rank):
    sizes = (6, 5)
    z, _, slots, objects = planted(sizes, 2, 2)
    kept = some_objects(sizes, 2, 0.7)
    other = torch.where(kept.unsqueeze(1), z, 1e3 * draw(torch.Generator().manual_seed(3), *z.shape))
    options = {"rank": rank, "ridge": 0.03, "ridge_sums": 0.1}
    ours, theirs = (fit(t, slots, objects, kept, sizes, **options) for t in (z, other))
    torch.testing.assert_close(
        theirs.predict(slots, objects, sizes), ours.predict(slots, objects, sizes), rtol=0, atol=1e-6
    )
    torch.testing.assert_close(theirs.error, ours.error, rtol=1e-6, atol=1e-8)
    # ... and the rows may as well be absent.
    alone = fit(z[kept], slots[kept], objects[kept], torch.ones(int(kept.sum())), sizes, **options)
    torch.testing.assert_close(
        alone.predict(slots, objects, sizes), ours.predict(slots, objects, sizes), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("rank", [2, None])
def test_a_weight_of_two_is_the_row_twice(rank):
    sizes = (5, 4)
    z, _, slots, objects = planted(sizes, 1, 2)
    weight = torch.ones(len(z))
    weight[::3] = 2
    twice = torch.arange(len(z)).repeat_interleave(weight.long())
    options = {"rank": rank, "ridge": 0.05, "ridge_sums": 0.1, "max_sweeps": 10}
    ours = fit(z, slots, objects, weight, sizes, **options)
    theirs = fit(z[twice], slots[twice], objects[twice], torch.ones(len(twice)), sizes, **options)
    torch.testing.assert_close(
        theirs.predict(slots, objects, sizes), ours.predict(slots, objects, sizes), rtol=0, atol=1e-8
    )


@pytest.mark.parametrize("rank", [2, None])
def test_a_value_that_one_object_shows_stays_additive(rank):
    """Its row is met by its u, whatever its v: without a ridge on u, v is 0 and it interacts with nothing."""
    sizes = (6, 5)
    z, _, slots, objects = planted(sizes, 1, 2)
    weight = torch.ones(len(z))
    weight[(objects[:, 0] == 2) & (objects[:, 1] != 3)] = 0
    found = fit(z, slots, objects, weight, sizes, rank=rank, ridge=0.01)
    assert float(found.factors[0][0, 2].abs().max()) < 1e-6 * float(found.factors[0][0].abs().max())
    guess = found.predict(slots, objects, sizes)[0].view(6, 5, DIM)
    additive = found.mean[0, 0] + found.sums[0][0, 2] + found.sums[1][0]
    torch.testing.assert_close(guess[2], additive, rtol=0, atol=1e-5)
    torch.testing.assert_close(guess[2, 3], z.view(6, 5, DIM)[2, 3], rtol=0, atol=1e-5)


@pytest.mark.parametrize("rank", [0, 2, None])
def test_a_value_that_no_object_shows_adds_nothing(rank):
    sizes = (6, 5)
    z, _, slots, objects = planted(sizes, 2, 2)
    weight = ((slots == 0) | (objects[:, 1] != 4)).double()
    found = fit(z, slots, objects, weight, sizes, rank=rank, ridge=0.1, ridge_sums=0.1)
    assert bool((found.sums[1][0, 5 + 4] == 0).all())
    assert bool((found.factors[1][0, 5 + 4] == 0).all())
    unknown = (slots == 1) & (objects[:, 1] == 4)
    expected = found.mean[0, 1] + found.sums[0][0, 6:]
    torch.testing.assert_close(found.predict(slots, objects, sizes)[0, unknown], expected)


@pytest.mark.parametrize("rank", [0, 1, 3, None])
def test_fits_made_together_are_fits_made_alone(rank):
    """Different targets, weights, ridges, seeds, and different numbers of sweeps until they settle."""
    sizes, n = (5, 4, 3), 4
    made = [planted(sizes, 2, rank or 2, seed=s)[0] for s in range(n)]
    slots, objects = rows_of(sizes, 2)
    g = torch.Generator().manual_seed(0)
    targets = torch.stack(made) + torch.tensor([0.0, 1.0, 0.1, 3.0])[:, None, None] * draw(g, len(slots), DIM)
    weight = torch.stack(
        [some_objects(sizes, 2, c, seed=s).double() for s, c in enumerate((0.9, 0.7, 0.6, 0.8))]
    )
    ridge = torch.tensor([1e-6, 0.1, 0.01, 0.3], dtype=torch.float64)
    sums = torch.tensor([0.0, 0.1, 0.5, 0.0], dtype=torch.float64)
    seeds = [5, 6, 7, 8]
    every = fit_products(
        targets, slots, objects, weight, sizes, rank=rank, ridge=ridge, ridge_sums=sums, seeds=seeds
    )
    guess = every.predict(slots, objects, sizes)
    for f in range(n):
        one = slice(f, f + 1)
        alone = fit_products(
            targets[one], slots, objects, weight[one], sizes,
            rank=rank, ridge=ridge[one], ridge_sums=sums[one], seeds=seeds[one],
        )  # fmt: skip
        torch.testing.assert_close(alone.predict(slots, objects, sizes)[0], guess[f], rtol=0, atol=1e-6)
        torch.testing.assert_close(alone.error[0], every.error[f], rtol=1e-6, atol=1e-8)
        assert bool(alone.converged[0]) == bool(every.converged[f])


def test_starts_come_from_the_seeds_and_from_nothing_else():
    sizes = (6, 5)
    z, _, slots, objects = planted(sizes, 1, 2)
    first = fit(z, slots, objects, torch.ones(len(z)), sizes, rank=2, seeds=[3, 4], max_sweeps=1)
    torch.manual_seed(99)
    state = torch.get_rng_state()
    again = fit(z, slots, objects, torch.ones(len(z)), sizes, rank=2, seeds=[3, 4], max_sweeps=1)
    assert torch.equal(first.error, again.error)
    assert torch.equal(state, torch.get_rng_state())
    assert float(first.error[0]) != float(first.error[1])


def test_small_blocks_change_nothing(monkeypatch):
    sizes = (6, 5)
    z, _, slots, objects = planted(sizes, 2, 5)
    options = {"rank": 5, "ridge": 0.01, "max_sweeps": 4}
    whole = fit(z, slots, objects, torch.ones(len(z)), sizes, **options).predict(slots, objects, sizes)
    monkeypatch.setattr(module, "ROW_BLOCK", len(z) * 5 * 2)
    pieces = fit(z, slots, objects, torch.ones(len(z)), sizes, **options).predict(slots, objects, sizes)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-9)


def test_a_fit_that_is_stopped_says_so():
    sizes = (8, 7)
    z, _, slots, objects = planted(sizes, 2, 2)
    found = fit(z, slots, objects, torch.ones(len(z)), sizes, rank=2, max_sweeps=2)
    assert found.n_sweeps == 2
    assert not bool(found.converged[0])


def test_targets_that_are_all_equal_are_met_without_a_product():
    slots, objects = rows_of((4, 3), 2)
    for rank in (0, 2, None):
        found = fit(
            torch.ones(len(slots), 3, dtype=torch.float64),
            slots,
            objects,
            torch.ones(len(slots)),
            (4, 3),
            rank=rank,
        )
        guess = found.predict(slots, objects, (4, 3))
        torch.testing.assert_close(guess, torch.ones_like(guess), rtol=0, atol=1e-9)
        assert math.isfinite(float(found.error.sum()))


def test_errors():
    slots, objects = rows_of((4, 3), 1)
    z, weight = torch.ones(12, 3, dtype=torch.float64), torch.ones(12)
    with pytest.raises(ValueError, match="the rank of a product is at least 0; got -1"):
        fit(z, slots, objects, weight, (4, 3), rank=-1)
    with pytest.raises(ValueError, match="at least one row of positive weight"):
        fit(z, slots, objects, 0 * weight, (4, 3), rank=1)
    each = torch.zeros(1, dtype=torch.float64)
    with pytest.raises(ValueError, match="1 fits but 2 seeds"):
        fit_products(
            z[None], slots, objects, weight[None], (4, 3), rank=1, ridge=each, ridge_sums=each, seeds=[0, 1]
        )
