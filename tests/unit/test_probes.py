"""Probes against scipy, scikit-learn and the normal equations."""

import warnings

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge

from conceptbind.kernels import probes as module
from conceptbind.kernels.lbfgs import minimise
from conceptbind.kernels.probes import fit_probes

N_CLASSES = (3, 5)
EXACT = {"dtype": torch.float64, "tol": 1e-9}


def data(n_scenes=60, dim=7, n_slots=2, seed=0, dtype=torch.float64):
    """Draw inputs of very different scales and labels that depend on them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n_scenes, dim, generator=generator, dtype=dtype)
    scores = x @ torch.randn(dim, sum(N_CLASSES), generator=generator, dtype=dtype)
    scores += torch.randn(scores.shape, generator=generator, dtype=dtype)
    labels = torch.stack([s.topk(n_slots).indices for s in scores.split(N_CLASSES, 1)], dim=2)
    return x * torch.logspace(-2, 2, dim, dtype=dtype) + 3, labels


def masks(n_fits, n_scenes, share=0.7, seed=0):
    return torch.rand(n_fits, n_scenes, generator=torch.Generator().manual_seed(seed)) < share


def targets(labels, size):
    """Write the soft targets out in full: 1/m for each of the m slots."""
    y = np.zeros((len(labels), size))
    for n, row in enumerate(labels.tolist()):
        for c in row:
            y[n, c] += 1 / len(row)
    return y


def standardised(x, mask):
    rows = x[mask].double().numpy()
    mean, std = rows.mean(0), rows.std(0)
    return (rows - mean) / std, mean, std


def head_weights(fitted, fit, head, mean, std):
    """Give a head's weights and intercept in standardised coordinates."""
    start = sum(fitted.n_classes[:head])
    columns = slice(start, start + fitted.n_classes[head])
    weight, bias = fitted.weight[fit, :, columns].double().numpy(), fitted.bias[fit, columns].double().numpy()
    return weight * std[:, None], bias + mean @ weight


def objective(theta, z, y, l2, decay):
    """Give the objective of the module's docstring and its gradient, written independently."""
    theta = theta.reshape(z.shape[1] + 1, -1)
    logits = z @ theta[:-1] + theta[-1]
    value = (scipy.special.logsumexp(logits, axis=1) - (y * logits).sum(1)).mean()
    value += decay / 2 * (logits**2).sum(1).mean() + l2 / 2 * (theta**2).sum()
    pull = (scipy.special.softmax(logits, axis=1) - y + decay * logits) / len(z)
    gradient = np.vstack([z.T @ pull, pull.sum(0)]) + l2 * theta
    return value, gradient.ravel()


@pytest.mark.parametrize("decay", [0.0, 1e-2])
@pytest.mark.parametrize(("n_scenes", "dim"), [(80, 5), (20, 40)], ids=["n>p", "n<p"])
def test_softmax_is_the_optimum_scipy_finds(n_scenes, dim, decay):
    x, labels = data(n_scenes, dim)
    train = masks(2, n_scenes)
    l2 = 1e-2
    fitted = fit_probes(x, labels, N_CLASSES, train, l2=l2, decay=decay, **EXACT)
    for fit, mask in enumerate(train):
        z, mean, std = standardised(x, mask)
        for head, size in enumerate(N_CLASSES):
            y = targets(labels[mask][:, :, head], size)
            start = np.random.default_rng(0).normal(size=(dim + 1) * size)
            best = scipy.optimize.minimize(
                objective,
                start,
                (z, y, l2, decay),
                jac=True,
                method="L-BFGS-B",
                tol=1e-15,
                options={"maxiter": 20000, "maxfun": 20000, "gtol": 1e-10},
            )
            weight, bias = head_weights(fitted, fit, head, mean, std)
            found = np.vstack([weight, bias]).ravel()
            np.testing.assert_allclose(found, best.x, atol=2e-6)
            # ... and the gradient vanishes at ours.
            assert np.abs(objective(found, z, y, l2, decay)[1]).max() < 1e-8


def test_softmax_with_one_slot_is_multinomial_logistic_regression():
    x, labels = data(n_slots=1)
    train = torch.ones(1, len(x), dtype=torch.bool)
    l2 = 0.05
    fitted = fit_probes(x, labels, N_CLASSES, train, l2=l2, decay=0.0, **EXACT)
    z, mean, std = standardised(x, train[0])
    # scikit-learn minimises C * sum of losses + |w|^2 / 2; a constant input makes its intercept penalised
    # like ours.
    with_one = np.hstack([z, np.ones((len(z), 1))])
    for head in range(2):
        model = LogisticRegression(C=1 / (l2 * len(z)), fit_intercept=False, tol=1e-10, max_iter=5000)
        present = labels[:, 0, head].numpy()
        model.fit(with_one, present)
        weight, bias = head_weights(fitted, 0, head, mean, std)
        found = np.vstack([weight, bias])[:, model.classes_]
        np.testing.assert_allclose(found, model.coef_.T, atol=1e-5)


@pytest.mark.parametrize(("n_scenes", "dim"), [(80, 5), (20, 40)], ids=["n>p", "n<p"])
def test_ridge_solves_the_normal_equations(n_scenes, dim):
    x, labels = data(n_scenes, dim)
    train = masks(3, n_scenes)
    l2 = torch.tensor([[1e-3, 1.0], [1e-2, 0.1], [10.0, 1e-3]])
    fitted = fit_probes(x, labels, N_CLASSES, train, l2=l2, solver="ridge", dtype=torch.float64)
    for fit, mask in enumerate(train):
        z, mean, std = standardised(x, mask)
        for head, size in enumerate(N_CLASSES):
            y = targets(labels[mask][:, :, head], size)
            model = Ridge(alpha=float(l2[fit, head]) * len(z)).fit(z, y)
            weight, bias = head_weights(fitted, fit, head, mean, std)
            np.testing.assert_allclose(weight, model.coef_.T, atol=1e-8)
            np.testing.assert_allclose(bias, y.mean(0), atol=1e-8)


def test_a_large_decay_makes_the_softmax_ridge():
    # For decay -> infinity the logits are small and logsumexp is linear: decay W -> ridge on Y - 1/V with
    # l2/decay.
    x, labels = data()
    train = torch.ones(1, len(x), dtype=torch.bool)
    decay, l2 = 1e4, 0.1
    soft = fit_probes(x, labels, N_CLASSES, train, l2=l2 * decay, decay=decay, **EXACT)
    ridge = fit_probes(x, labels, N_CLASSES, train, l2=l2, solver="ridge", dtype=torch.float64)
    torch.testing.assert_close(soft.weight * decay, ridge.weight, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("solver", ["softmax", "ridge"])
def test_batched_is_one_by_one(solver):
    x, labels = data(50, 12)
    train = masks(4, 50)
    train[3] = train[0]  # two fits that share their inputs
    train[2, 20:] = False  # one whose training set is smaller than dim
    train[2, :8] = True
    own = torch.stack([labels, labels.flip(0), labels.roll(7, 0), labels.roll(3, 0)])
    l2 = torch.tensor([[0.1, 0.01], [1.0, 0.1], [0.01, 0.1], [0.3, 0.3]])
    together = fit_probes(x, own, N_CLASSES, train, l2=l2, solver=solver, **EXACT)
    for i in range(4):
        alone = fit_probes(x, own[i], N_CLASSES, train[i : i + 1], l2=l2[i : i + 1], solver=solver, **EXACT)
        torch.testing.assert_close(together.weight[i], alone.weight[0], rtol=0, atol=1e-7)
        torch.testing.assert_close(together.bias[i], alone.bias[0], rtol=0, atol=1e-7)


@pytest.mark.parametrize("solver", ["softmax", "ridge"])
def test_small_blocks_change_nothing(monkeypatch, solver):
    x, labels = data(50, 12)
    train = masks(3, 50).repeat_interleave(2, 0)
    whole = fit_probes(x, labels, N_CLASSES, train, l2=0.01, solver=solver, **EXACT)
    for name, size in (("LOGIT_BLOCK", 40), ("INPUT_BLOCK", 30), ("WEIGHT_BLOCK", 200)):
        monkeypatch.setattr(module, name, size)
    pieces = fit_probes(x, labels, N_CLASSES, train, l2=0.01, solver=solver, **EXACT)
    torch.testing.assert_close(pieces.weight, whole.weight, rtol=0, atol=1e-7)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**31), st.sampled_from(["softmax", "ridge"]))
def test_predictions_ignore_units_and_follow_permutations(seed, solver):
    x, labels = data(40, 6, seed=seed % 1000)
    generator = torch.Generator().manual_seed(seed)
    train = masks(2, 40, seed=seed % 1000)
    options = {"l2": 0.05, "solver": solver, **EXACT}
    scores = fit_probes(x, labels, N_CLASSES, train, **options).scores(x)

    units = torch.logspace(-1, 1, 6, dtype=torch.float64)[torch.randperm(6, generator=generator)]
    scaled = x * units - 5
    torch.testing.assert_close(
        fit_probes(scaled, labels, N_CLASSES, train, **options).scores(scaled), scores, rtol=0, atol=1e-6
    )
    order = torch.randperm(40, generator=generator)
    moved = fit_probes(x[order], labels[order], N_CLASSES, train[:, order], **options).scores(x)
    torch.testing.assert_close(moved, scores, rtol=0, atol=1e-6)

    renamed = torch.randperm(5, generator=generator)
    other = labels.clone()
    other[:, :, 1] = renamed[labels[:, :, 1]]
    got = fit_probes(x, other, N_CLASSES, train, **options).scores(x)
    torch.testing.assert_close(got[:, :, 3:][:, :, renamed], scores[:, :, 3:], rtol=0, atol=1e-6)


def test_the_held_out_scenes_do_not_matter():
    x, labels = data()
    train = masks(1, len(x))
    other_x, other_labels = x.clone(), labels.clone()
    other_x[~train[0]] = 1e3
    other_labels[~train[0]] = 0
    ours = fit_probes(x, labels, N_CLASSES, train, l2=0.01)
    theirs = fit_probes(other_x, other_labels, N_CLASSES, train, l2=0.01)
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)


def test_float32_agrees_with_float64():
    x, labels = data(200, 16)
    train = masks(2, 200)
    exact = fit_probes(x, labels, N_CLASSES, train, l2=1e-3, **EXACT).scores(x)
    single = fit_probes(x.float(), labels, N_CLASSES, train, l2=1e-3, tol=1e-5).scores(x.float())
    assert float((single.double() - exact).abs().max()) < 1e-3 * float(exact.abs().max())


def test_constant_inputs_and_absent_classes_stay_finite():
    x, labels = data(30, 6)
    x[:, 2] = 0.1
    labels = labels % 3  # classes 3 and 4 of the second head never occur
    train = masks(1, 30)
    for solver in ("softmax", "ridge"):
        fitted = fit_probes(x, labels, N_CLASSES, train, l2=1e-3, solver=solver, **EXACT)
        assert bool(fitted.weight.isfinite().all())
        assert bool((fitted.weight[0, 2] == 0).all())
        scores = fitted.scores(x)[0, train[0]]
        assert float(scores[:, 3 + 3 :].amax()) < float(scores[:, 3 : 3 + 3].amax())


@pytest.mark.parametrize("solver", ["softmax", "ridge"])
@pytest.mark.parametrize("size", [0.0, 1e-33, 1e-10])
@pytest.mark.parametrize(("n_scenes", "dim"), [(200, 16), (40, 60)], ids=["n>p", "n<p"])
def test_a_dead_input_does_not_drown_the_others(n_scenes, dim, size, solver):
    """An encoder's unit that varies by nothing to speak of, among inputs of size one: the probe never reads it.

    Put to vectors where that input is not exactly dead, such as predicted embeddings, it scores as a probe without it.
    """
    x, labels = data(n_scenes, dim, dtype=torch.float32)
    x = (x - 3) / torch.logspace(-2, 2, dim)
    train = masks(2, n_scenes)
    g = torch.Generator().manual_seed(4)
    dead = size * torch.randn(n_scenes, 1, generator=g)
    noisy = 1e-3 * torch.randn(n_scenes, 1, generator=g)
    options = {"l2": 1e-2, "solver": solver}
    without = fit_probes(x, labels, N_CLASSES, train, **options).scores(x)
    with_it = fit_probes(torch.cat([x, dead], 1), labels, N_CLASSES, train, **options)
    assert bool((with_it.weight[:, -1] == 0).all())
    scores = with_it.scores(torch.cat([x, noisy], 1))
    torch.testing.assert_close(scores, without, rtol=0, atol=1e-3 * float(without.abs().max()))


@pytest.mark.parametrize("n_scenes", [200, 12])
def test_a_small_input_that_is_not_dead_is_read(n_scenes):
    """A thousandth of the others, it still says all: what is small is not yet constant."""
    _, labels = data(n_scenes, 16, n_slots=1, dtype=torch.float32)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n_scenes, 16, generator=g)
    x[:, :3] = 1e-4 * torch.nn.functional.one_hot(labels[:, 0, 0], 3)
    train = torch.ones(1, n_scenes, dtype=torch.bool)
    scores = fit_probes(x, labels, N_CLASSES, train, l2=1e-3).scores(x)[0, :, :3]
    assert torch.equal(scores.argmax(1), labels[:, 0, 0])


def test_one_training_scene_is_enough_to_fit_an_intercept():
    x, labels = data(5, 4)
    train = torch.zeros(1, 5, dtype=torch.bool)
    train[0, 0] = True
    fitted = fit_probes(x, labels, N_CLASSES, train, l2=0.1)
    assert bool((fitted.weight == 0).all())
    assert set(fitted.bias[0, :3].topk(2).indices.tolist()) == set(labels[0, :, 0].tolist())


def test_a_fit_that_does_not_converge_warns_and_says_so():
    x, labels = data()
    train = masks(1, len(x))
    with pytest.warns(RuntimeWarning, match="did not converge in 3 evaluations"):
        fitted = fit_probes(x, labels, N_CLASSES, train, l2=1e-6, max_evaluations=3)
    assert not bool(fitted.converged.all())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = fit_probes(x, labels, N_CLASSES, train, l2=1e-2)
    assert bool(fitted.converged.all())
    assert float(fitted.gradient.max()) <= 1e-4


def test_lbfgs_finds_the_minimum_of_separate_quadratics_and_quartics():
    # Problem 0: sum_j a_j (x_j - 1)^2 / 2 with condition 1e4; problem 1: sum_j (x_j - 2)^4 / 4.
    curvature = torch.logspace(0, 4, 10, dtype=torch.float64)
    start = torch.full((2, 10, 2), 5.0, dtype=torch.float64)
    start[1] = -start[1]

    def fun(point):
        a, b = point[..., 0] - 1, point[..., 1] - 2
        loss = torch.stack([(curvature * a**2).sum(1) / 2, (b**4).sum(1) / 4], dim=1)
        return loss, torch.stack([curvature * a, b**3], dim=2)

    result = minimise(
        fun,
        start,
        problem=torch.tensor([0, 1]),
        inverse_hessian=torch.ones_like(start),
        tolerance=torch.full((2, 2), 1e-9, dtype=torch.float64),
    )
    assert bool(result.converged.all())
    torch.testing.assert_close(
        result.point[..., 0], torch.ones(2, 10, dtype=torch.float64), rtol=0, atol=1e-8
    )
    torch.testing.assert_close(
        result.point[..., 1], torch.full((2, 10), 2.0, dtype=torch.float64), rtol=0, atol=2e-3
    )


def test_lbfgs_survives_overflow_and_different_starts():
    # exp(a x) - a x has its minimum at 0; the first trial step from -20 overflows.
    curvature = torch.tensor([[[1.0, 2.0, 3.0]]], dtype=torch.float64)

    def fun(point):
        return (torch.exp(curvature * point) - curvature * point)[:, 0], curvature * (
            torch.exp(curvature * point) - 1
        )

    for start in (-20.0, -1.0, 1.0, 5.0):
        result = minimise(
            fun,
            torch.full((1, 1, 3), start, dtype=torch.float64),
            problem=torch.arange(3),
            inverse_hessian=torch.full((1, 1, 3), 1e3, dtype=torch.float64),
            tolerance=torch.full((1, 3), 1e-9, dtype=torch.float64),
        )
        assert bool(result.converged.all())
        torch.testing.assert_close(result.point, torch.zeros_like(result.point), rtol=0, atol=1e-8)


def test_errors_name_the_problem():
    x, labels = data()
    train = masks(2, len(x))
    with pytest.raises(ValueError, match=r"head 1 has 4 classes, 0 to 3; labels run from 0 to 4"):
        fit_probes(x, labels, (3, 4), train)
    with pytest.raises(ValueError, match="labels have 2 heads"):
        fit_probes(x, labels, (3,), train)
    with pytest.raises(ValueError, match="above 0"):
        fit_probes(x, labels, N_CLASSES, train, l2=0.0)
    with pytest.raises(ValueError, match="at least one training scene"):
        fit_probes(x, labels, N_CLASSES, train & torch.tensor([[True], [False]]))
    x[3, 2] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        fit_probes(x, labels, N_CLASSES, train)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("solver", ["softmax", "ridge"])
def test_cuda_agrees_with_cpu(solver):
    x, labels = data(200, 16)
    train = masks(3, 200)
    ours = fit_probes(x, labels, N_CLASSES, train, l2=1e-3, solver=solver, **EXACT)
    theirs = fit_probes(x.cuda(), labels.cuda(), N_CLASSES, train.cuda(), l2=1e-3, solver=solver, **EXACT)
    torch.testing.assert_close(theirs.weight.cpu(), ours.weight, rtol=0, atol=1e-7)
