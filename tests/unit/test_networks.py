"""Stacked networks against torch.nn, plain loops and torch.optim.AdamW."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conceptbind.kernels.networks import Architecture, apply, features, initialise, n_parameters, one_hot
from conceptbind.kernels.training import Schedule, train

SIZES, N_SLOTS, DIM = (4, 3), 2, 5
N_CODES = N_SLOTS * sum(SIZES)
EVERY = [
    Architecture("mlp", 16),
    Architecture("mlp", 8, 3),
    Architecture("product", 8),
    Architecture("object products", 8),
    Architecture("both products", 8),
    Architecture("decoder", 32),
    Architecture("decoder", 64, 2),
]


def label(architecture):
    return f"{architecture.kind} {architecture.width} x {architecture.depth}"


def draw_scenes(n, sizes=SIZES, n_slots=N_SLOTS, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(v, (n, n_slots), generator=g) for v in sizes], dim=2)


def weights_of(architecture, seeds=(0, 1), *, sizes=SIZES, dim=DIM):
    """Draw weights in float64, readouts and biases too, which start at zero."""
    drawn = initialise(architecture, N_SLOTS, sizes, dim, seeds=seeds)
    g = torch.Generator().manual_seed(9)
    return {name: w.double() + 0.3 * torch.randn(w.shape, generator=g).double() for name, w in drawn.items()}


# ---- functions


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 2**31))
def test_one_hot_code_is_written_slot_by_slot_and_concept_by_concept(sizes, n_slots, seed):
    scenes = draw_scenes(7, sizes, n_slots, seed)
    code = one_hot(scenes, sizes)
    for row, scene in zip(code.tolist(), scenes.tolist(), strict=True):
        expected = []
        for obj in scene:
            for value, size in zip(obj, sizes, strict=True):
                expected += [1.0 if v == value else 0.0 for v in range(size)]
        assert row == expected


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_an_mlp_is_torchs_sequential(depth):
    architecture = Architecture("mlp", 16, depth)
    weights, code = weights_of(architecture), one_hot(draw_scenes(9), SIZES).double()
    found = apply(architecture, weights, code, SIZES)
    for fit in range(2):
        layers = []
        for w, b in [("E", "b"), *((f"W{i}", f"b{i}") for i in range(1, depth)), ("C", "c")]:
            linear = torch.nn.Linear(*weights[w].shape[1:], dtype=torch.float64)
            linear.load_state_dict({"weight": weights[w][fit].T, "bias": weights[b][fit, 0]})
            layers += [linear, torch.nn.ReLU()]
        network = torch.nn.Sequential(*layers[:-1])
        with torch.no_grad():
            torch.testing.assert_close(found[fit], network(code))


def test_a_product_is_the_product_of_value_vectors_plus_their_sum():
    architecture = Architecture("product", 8)
    weights, scenes = weights_of(architecture), draw_scenes(9)
    found = apply(architecture, weights, one_hot(scenes, SIZES).double(), SIZES)
    for fit in range(2):
        for row, scene in enumerate(scenes.tolist()):
            product, total = torch.ones(8, dtype=torch.float64), weights["c"][fit, 0].clone()
            for slot, obj in enumerate(scene):
                for k, value in enumerate(obj):
                    at = slot * sum(SIZES) + sum(SIZES[:k]) + value
                    product = product * weights["V"][fit, at]
                    total = total + weights["A"][fit, at]
            torch.testing.assert_close(found[fit, row], total + product @ weights["C"][fit])


@pytest.mark.parametrize("kind", ["object products", "both products"])
def test_products_of_objects_have_a_readout_of_their_own(kind):
    """By the definition, with the global product's factors before the objects' where there are both."""
    architecture = Architecture(kind, 8)
    weights, scenes = weights_of(architecture), draw_scenes(9)
    found = apply(architecture, weights, one_hot(scenes, SIZES).double(), SIZES)
    both = kind == "both products"
    assert weights["V"].shape == (2, N_CODES, 16 if both else 8)
    assert weights["C"].shape == (2, 24 if both else 16, DIM)
    for fit in range(2):
        readouts = weights["C"][fit].split(8)
        for row, scene in enumerate(scenes.tolist()):
            total = weights["c"][fit, 0].clone()
            whole = torch.ones(8, dtype=torch.float64)
            for slot, obj in enumerate(scene):
                of_object = torch.ones(8, dtype=torch.float64)
                for k, value in enumerate(obj):
                    at = slot * sum(SIZES) + sum(SIZES[:k]) + value
                    whole = whole * weights["V"][fit, at, :8]
                    of_object = of_object * weights["V"][fit, at, -8:]
                    total = total + weights["A"][fit, at]
                total = total + of_object @ readouts[slot + both]
            if both:
                total = total + whole @ readouts[0]
            torch.testing.assert_close(found[fit, row], total)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_decoder_is_pre_norm_attention_token_by_token(depth):
    width = 64  # two heads
    architecture = Architecture("decoder", width, depth)
    weights, scenes = weights_of(architecture), draw_scenes(4)
    found = apply(architecture, weights, one_hot(scenes, SIZES).double(), SIZES)

    def norm(x):
        return (x - x.mean()) / (x.var(unbiased=False) + 1e-5).sqrt()

    for fit in range(2):
        w = {name: p[fit] for name, p in weights.items()}
        for row, scene in enumerate(scenes.tolist()):
            flat = [
                (s * sum(SIZES) + sum(SIZES[:k]) + v)
                for s, obj in enumerate(scene)
                for k, v in enumerate(obj)
            ]
            tokens = [w["E"][at] + w["P"][t] for t, at in enumerate(flat)]
            for i in range(depth):
                x = [norm(t) for t in tokens]
                mixed = [[] for _ in tokens]
                for head in (slice(0, 32), slice(32, 64)):
                    q, k, u = ([t @ w[f"{name}{i}"][:, head] for t in x] for name in "QKU")
                    for t in range(len(tokens)):
                        weight = torch.stack([q[t] @ other / math.sqrt(32) for other in k]).softmax(0)
                        mixed[t].append(sum(a * b for a, b in zip(weight, u, strict=True)))
                tokens = [t + torch.cat(m) @ w[f"O{i}"] for t, m in zip(tokens, mixed, strict=True)]
                for t in range(len(tokens)):
                    hidden = norm(tokens[t]) @ w[f"F{i}"] + w[f"f{i}"][0]
                    gelu = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
                    tokens[t] = tokens[t] + gelu @ w[f"G{i}"]
            expected = norm(sum(tokens) / len(tokens)) @ w["C"] + w["c"][0]
            torch.testing.assert_close(found[fit, row], expected)


@pytest.mark.parametrize("architecture", EVERY, ids=label)
def test_a_fit_depends_on_its_own_weights_and_scenes_only(architecture):
    weights = weights_of(architecture, (0, 1, 2))
    own = torch.stack([one_hot(draw_scenes(6, seed=s), SIZES).double() for s in range(3)])
    found = apply(architecture, weights, own, SIZES)
    for fit in range(3):
        alone = {name: w[fit : fit + 1] for name, w in weights.items()}
        torch.testing.assert_close(apply(architecture, alone, own[fit], SIZES)[0], found[fit])
    # Scenes that all fits share may be given once.
    shared = apply(architecture, weights, own[0], SIZES)
    torch.testing.assert_close(shared, apply(architecture, weights, own[:1].expand(3, -1, -1), SIZES))


@pytest.mark.parametrize("architecture", EVERY, ids=label)
def test_parameters_are_counted_as_they_are_drawn_and_every_one_is_used(architecture):
    for sizes, n_slots, dim in ((SIZES, 2, 5), ((3, 4, 2), 3, 7), ((6, 6), 1, 1)):
        drawn = initialise(architecture, n_slots, sizes, dim, seeds=[0, 1, 2])
        assert sum(w[0].numel() for w in drawn.values()) == n_parameters(architecture, n_slots, sizes, dim)
        assert all(len(w) == 3 for w in drawn.values())
    weights = {name: w.requires_grad_() for name, w in weights_of(architecture).items()}
    code = one_hot(draw_scenes(60), SIZES).double()
    loss = (apply(architecture, weights, code, SIZES) ** 2).sum()
    for name, gradient in zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True):
        assert float(gradient.abs().max()) > 0, name


@pytest.mark.parametrize("architecture", EVERY, ids=label)
def test_networks_start_at_the_mean_with_hidden_units_of_size_about_one(architecture):
    weights = initialise(architecture, N_SLOTS, SIZES, DIM, seeds=range(5))
    code = one_hot(draw_scenes(50), SIZES)
    assert bool((apply(architecture, weights, code, SIZES) == 0).all())
    hidden, _ = features(architecture, weights, code, SIZES)
    assert 0.3 < float(hidden.square().mean().sqrt()) < 3


def test_weights_come_from_the_seed_of_their_fit():
    for architecture in EVERY:
        both = initialise(architecture, N_SLOTS, SIZES, DIM, seeds=[7, 8])
        torch.manual_seed(5)
        for fit, seed in enumerate((7, 8)):
            alone = initialise(architecture, N_SLOTS, SIZES, DIM, seeds=[seed])
            assert all(torch.equal(alone[name][0], both[name][fit]) for name in both)
        assert any(not torch.equal(w[0], w[1]) for w in both.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mlp", 0), "width and depth are at least 1; got 0 and 1"),
        (("mlp", 8, 0), "width and depth are at least 1; got 8 and 0"),
        (("product", 8, 2), "a product has one hidden layer; got depth 2"),
        (("both products", 8, 3), "a product has one hidden layer; got depth 3"),
        (("decoder", 48), "the width of a decoder is a multiple of 32; got 48"),
    ],
)
def test_impossible_architectures(arguments, message):
    with pytest.raises(ValueError, match=message):
        Architecture(*arguments)


# ---- training


def reference(architecture, weights, x, y, schedule):
    """Train one fit with torch's AdamW: one group a weight, its own rate, the schedule by LambdaLR."""
    own = {name: w[:1].clone().requires_grad_() for name, w in weights.items()}
    groups = []
    for w in own.values():
        fan_in = w.shape[1]  # 1 for a bias
        groups.append({"params": [w], "lr": schedule.rate * min(1, math.sqrt(64 / fan_in))})
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.99), eps=1e-12, weight_decay=schedule.weight_decay)
    warm = max(1, round(schedule.warm_up * schedule.n_steps))

    def share(done):
        return min(1, (done + 1) / warm) * (1 + math.cos(math.pi * done / schedule.n_steps)) / 2

    rates = torch.optim.lr_scheduler.LambdaLR(optimiser, share)
    losses = []
    for _ in range(schedule.n_steps):
        optimiser.zero_grad()
        loss = torch.nn.functional.mse_loss(apply(architecture, own, x, SIZES)[0], y) * y.shape[1]
        loss.backward()
        optimiser.step()
        rates.step()
        losses.append(loss.detach())
    return {name: w.detach() for name, w in own.items()}, torch.stack(losses)


def run(architecture, weights, x, y, schedule, seeds, **options):
    return train(
        lambda w, x: apply(architecture, w, x, SIZES), weights, x, y, schedule, seeds=seeds, **options
    )


def problem(n_fits=1, n_scenes=30, dim=DIM):
    g = torch.Generator().manual_seed(3)
    x = torch.stack([one_hot(draw_scenes(n_scenes, seed=s), SIZES).double() for s in range(n_fits)])
    return x, torch.randn(n_fits, n_scenes, dim, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("architecture", [*EVERY, Architecture("mlp", 150, 2)], ids=label)
def test_training_is_torchs_adamw(architecture):
    """Width 150 has a fan-in above 64: its rate is scaled."""
    schedule = Schedule(n_steps=25, rate=0.01, weight_decay=0.1, warm_up=0.2)
    weights = {n: w[:1] for n, w in weights_of(architecture).items()}
    x, y = problem()
    found, losses = run(architecture, weights, x, y, schedule, [0])
    expected, expected_losses = reference(architecture, weights, x[0], y[0], schedule)
    torch.testing.assert_close(losses[:, 0], expected_losses, rtol=1e-7, atol=1e-9)
    for name in weights:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-7, msg=name)


@pytest.mark.parametrize("batch", [4096, 8])
@pytest.mark.parametrize("architecture", EVERY, ids=label)
def test_a_stacked_training_is_separate_trainings(architecture, batch):
    schedule = Schedule(n_steps=12, rate=0.01, batch=batch)
    weights = weights_of(architecture, (0, 1, 2))
    x, y = problem(3)
    together, losses = run(architecture, weights, x, y, schedule, [4, 5, 6])
    for f in range(3):
        one = slice(f, f + 1)
        own = {name: w[one] for name, w in weights.items()}
        alone, own_losses = run(architecture, own, x[one], y[one], schedule, [4 + f])
        torch.testing.assert_close(own_losses[:, 0], losses[:, f], rtol=1e-6, atol=1e-9)
        for name in weights:
            torch.testing.assert_close(alone[name], together[name][one], rtol=1e-4, atol=1e-6)


def test_training_leaves_the_start_as_it_was_and_finds_what_can_be_found():
    """A wide network goes through 12 different scenes; an additive target is met by the product's sum."""
    scenes = torch.stack(torch.meshgrid(*[torch.arange(v) for v in (*SIZES, *SIZES)], indexing="ij"), -1)
    x = one_hot(scenes.view(-1, 2, 2), SIZES).double()
    table = torch.randn(N_CODES, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = x @ table
    y = y - y.mean(0)
    for architecture in (
        Architecture("mlp", 128),
        Architecture("product", 8),
        Architecture("object products", 8),
        Architecture("both products", 8),
        Architecture("decoder", 32),
    ):
        start = {n: w.double() for n, w in initialise(architecture, 2, SIZES, DIM, seeds=[0]).items()}
        before = {n: w.clone() for n, w in start.items()}
        _, losses = run(architecture, start, x[None], y[None], Schedule(n_steps=300, rate=0.01), [0])
        assert all(torch.equal(start[n], before[n]) for n in start)
        assert float(losses[0, 0]) == pytest.approx(float(y.square().sum(1).mean()))
        assert float(losses[-1, 0]) < 0.01 * float(losses[0, 0]), label(architecture)


@pytest.mark.parametrize(
    "architecture",
    [Architecture("mlp", 16), Architecture("product", 8), Architecture("both products", 8)],
    ids=label,
)
def test_plain_gradient_descent_stays_in_the_span_of_the_targets(architecture):
    """With readouts at zero, targets on the axes they span give the same steps as targets as they are."""
    n, dim = 10, 24
    x = one_hot(draw_scenes(n), SIZES).double()
    y = torch.randn(n, dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = y - y.mean(0)
    left, singular, axes = torch.linalg.svd(y, full_matrices=False)

    def descend(y, rotation):
        weights = {
            k: w.double().requires_grad_()
            for k, w in initialise(architecture, N_SLOTS, SIZES, y.shape[1], seeds=[0]).items()
        }
        for _ in range(30):
            loss = (apply(architecture, weights, x, SIZES)[0] - y).square().sum(1).mean()
            gradients = torch.autograd.grad(loss, list(weights.values()))
            weights = {
                k: (w - 0.003 * g).detach().requires_grad_()
                for (k, w), g in zip(weights.items(), gradients, strict=True)
            }
        return apply(architecture, weights, x, SIZES)[0].detach() @ rotation, float(loss.detach())

    whole, loss = descend(y, torch.eye(dim, dtype=torch.float64))
    rotated, same = descend(left * singular, axes)
    assert loss == pytest.approx(same, rel=1e-9)
    assert loss < 0.9 * float(y.square().sum(1).mean())
    torch.testing.assert_close(rotated, whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("n_scenes", "batch"), [(24, 6), (25, 6), (7, 6), (6, 6), (3, 6)])
def test_batches_run_through_the_scenes_once_an_epoch(n_scenes, batch):
    seen = []

    def predict(weights, x):
        seen.append(x[..., 0].clone())
        return x * weights["a"]

    names = torch.arange(n_scenes, dtype=torch.float64).expand(2, n_scenes)
    inputs = torch.stack([names, torch.ones_like(names)], dim=2).contiguous()
    per_epoch = max(1, n_scenes // batch)
    schedule = Schedule(n_steps=3 * per_epoch, batch=batch)
    train(
        predict, {"a": torch.ones(2, 1, 2, dtype=torch.float64)}, inputs, 2 * inputs, schedule, seeds=[0, 1]
    )
    orders = set()
    for epoch in range(3):
        for fit in range(2):
            order = torch.cat([x[fit] for x in seen[epoch * per_epoch : (epoch + 1) * per_epoch]])
            assert len(order) == min(n_scenes, per_epoch * batch)
            assert len(order.unique()) == len(order), "no scene twice in an epoch"
            orders.add(tuple(order.tolist()))
    assert len(orders) == (6 if n_scenes > batch else 1), "drawn anew each epoch, and for each fit"


def test_inputs_and_targets_of_a_batch_belong_together():
    """Each scene's target is its own number: a network that copies its input has no error."""
    inputs = torch.arange(40, dtype=torch.float64).view(2, 20, 1)
    _, losses = train(
        lambda w, x: x + 0 * w["a"],
        {"a": torch.zeros(2, 1, 1, dtype=torch.float64)},
        inputs,
        inputs.clone(),
        Schedule(n_steps=20, batch=6),
        seeds=[0, 1],
    )
    assert losses.shape == (20, 2)
    assert bool((losses == 0).all())


def test_whoever_watches_sees_the_weights_after_every_so_many_steps():
    architecture = Architecture("mlp", 8)
    weights, (x, y) = weights_of(architecture, (0,)), problem()
    seen = {}

    def watch(step, now):
        seen[step] = {name: w.clone() for name, w in now.items()}
        assert not any(w.requires_grad for w in now.values())

    schedule = Schedule(n_steps=10, rate=0.01)
    final, losses = run(architecture, weights, x, y, schedule, [0], watch=watch, watch_every=3)
    assert list(seen) == [3, 6, 9]
    # The loss that is reported for a step is that of the weights before it.
    loss = (apply(architecture, seen[9], x, SIZES) - y).square().sum(2).mean(1)
    torch.testing.assert_close(losses[9], loss)
    _, again = run(architecture, weights, x, y, schedule, [0])
    assert torch.equal(again, losses), "watching changes nothing"
    assert all(w.shape == weights[name].shape for name, w in final.items())


def test_another_number_of_seeds_than_of_fits_is_refused():
    architecture = Architecture("mlp", 8)
    x, y = problem(2)
    with pytest.raises(ValueError, match="2 fits but 1 seeds"):
        run(architecture, weights_of(architecture), x, y, Schedule(n_steps=2), [0])
