"""The released protocol: unscaled targets, an optimiser of one rate, an epoch selected on the test scenes."""

import json

import pytest
import torch

from conceptbind.analysis.fixed_probes import fit_fixed_probes
from conceptbind.approximators.released import (
    MODELS,
    SumPlusProduct,
    build_model,
    plain_fit,
    released_protocol,
)
from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, ObjectSplit, SceneKind, factorial_scenes, object_split

SPACE = ConceptSpace.of_sizes(5, 4)
SCENES = factorial_scenes(SPACE, 2)
SPLIT = object_split(SPACE, 0.6, seed=0)
DATA = EmbeddingSet(
    planted_encoders(SPACE, "product", dim=64, seed=0, noise=0.5).scenes(SCENES), SCENES, SPACE
)


@pytest.fixture(scope="module")
def probes():
    return fit_fixed_probes(DATA, seeds=(0,))


def scaled(factor):
    return EmbeddingSet(DATA.embeddings * factor, SCENES, SPACE)


@pytest.fixture(scope="module")
def run(probes):
    return released_protocol(DATA, SPLIT, probes, width=64, n_steps=60, evaluate_every=7, seed=0)


def test_the_selected_step_is_the_best_on_held_out_scenes(run):
    assert [s.step for s in run.steps] == [7, 14, 21, 28, 35, 42, 49, 56, 60]
    accuracies = [s.objects.accuracy for s in run.steps]
    assert len(set(accuracies)) > 1, "otherwise nothing is selected"
    assert run.selected is run.steps[accuracies.index(max(accuracies))]
    assert run.last is run.steps[-1]
    kinds = SPLIT.kinds(SCENES)
    assert run.n_train == int((kinds == SceneKind.TRAIN).sum())
    assert run.last.objects.n_scenes == run.n_held_out == int((kinds == SceneKind.HELD_OUT).sum())


@pytest.mark.parametrize("model", MODELS)
def test_scaling_the_embeddings_changes_how_well_they_are_fitted(model, probes):
    """Adam moves every weight by about its rate: targets a thousand times larger are out of reach in few steps."""
    settings = {"model": model, "width": 64, "n_steps": 40, "evaluate_every": 40, "seed": 0}
    small = released_protocol(DATA, SPLIT, probes, **settings).last
    large = released_protocol(scaled(1000.0), SPLIT, probes, **settings).last
    assert small.r2 > 0.3
    assert large.r2 < small.r2 - 0.2


def test_the_two_r2_differ_by_what_is_centred(run):
    """Around another point than the training mean the total is larger by n |difference|², so R² is larger."""
    train = SPLIT.kinds(SCENES) == SceneKind.TRAIN
    z = DATA.embeddings[train].double()
    own = (z - z.mean(0)).square().sum()
    released = (z - DATA.embeddings.double().mean(0)).square().sum()
    last = run.last
    assert float(1 - last.r2_as_released) == pytest.approx(float((1 - last.r2) * own / released))
    assert last.r2_as_released > last.r2


def test_the_last_loss_and_r2_are_those_of_a_loop_of_ones_own(run, probes):
    train = SPLIT.kinds(SCENES) == SceneKind.TRAIN
    network = build_model("MLP", SPACE, 2, 64, width=64, seed=0)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    z = DATA.embeddings[train]
    for _ in range(60):
        optimiser.zero_grad()
        loss = (network(SCENES[train]) - z).square().mean()
        loss.backward()
        optimiser.step()
    assert run.last.loss == pytest.approx(loss.item(), rel=1e-3)
    error = (network(SCENES[train]).detach() - z).square().sum()
    assert run.last.r2 == pytest.approx(float(1 - error / (z - z.mean(0)).square().sum()), abs=1e-3)
    assert run.n_parameters == sum(p.numel() for p in network.parameters())
    assert run.n_parameters == 64 * 9 + 64 * (4 * 64 + 1) + 64 * 65 + 64 * 65


def test_a_seed_gives_the_same_run_and_leaves_the_global_state_alone(run, probes):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    again = released_protocol(DATA, SPLIT, probes, width=64, n_steps=60, evaluate_every=7, seed=0)
    assert torch.equal(torch.rand(3), expected)
    assert again == run
    other = released_protocol(DATA, SPLIT, probes, width=64, n_steps=7, evaluate_every=7, seed=1)
    assert other.last.loss != run.steps[0].loss


def test_held_out_targets_are_never_fitted(probes):
    train = SPLIT.kinds(SCENES) == SceneKind.TRAIN
    changed = DATA.embeddings.clone()
    changed[~train] = 0
    settings = {"width": 16, "n_steps": 5, "evaluate_every": 5, "seed": 0}
    one = released_protocol(DATA, SPLIT, probes, **settings).last
    other = released_protocol(EmbeddingSet(changed, SCENES, SPACE), SPLIT, probes, **settings).last
    assert (one.loss, one.r2, one.objects) == (other.loss, other.r2, other.objects)
    assert one.r2_as_released != other.r2_as_released


def test_sum_plus_product_is_the_formula():
    network = SumPlusProduct(SPACE, 2, 8, 6)
    scene = torch.tensor([[[1, 2], [4, 0]]])
    u, v = [t.weight for t in network.parts], [[t.weight for t in slot] for slot in network.factors]
    hidden = u[0][1] + u[1][2] + u[0][4] + u[1][0] + v[0][0][1] * v[0][1][2] + v[1][0][4] * v[1][1][0]
    torch.testing.assert_close(network(scene)[0], network.head(hidden))


def test_a_plain_fit_finds_a_function_that_it_can_represent():
    target = SumPlusProduct(SPACE, 2, 8, 6)(SCENES).detach()
    heard = []
    network = build_model("sum+product", SPACE, 2, 8, width=64, seed=0)
    loss = plain_fit(
        network, SCENES, target, n_steps=400, every=150, callback=lambda *seen: heard.append(seen)
    )
    assert [step for step, _ in heard] == [150, 300, 400]
    assert heard[-1][1] == loss
    assert loss < 1e-2 * float(target.var())


def test_a_row_is_json(run):
    row = json.loads(json.dumps(run.as_dict(), allow_nan=False))
    assert row["step_selected"] == run.selected.step
    assert row["objects_last"] == run.last.objects.accuracy
    assert row["r2_as_released_selected"] == run.selected.r2_as_released
    assert "steps" not in row
    late = sorted(s.r2 for s in run.steps[4:])
    assert row["r2_median"] == late[2]
    assert row["r2_best"] == max(s.r2 for s in run.steps) >= row["r2_last"]


def test_what_cannot_be_is_refused(probes):
    with pytest.raises(ValueError, match="model must be one of"):
        released_protocol(DATA, SPLIT, probes, model="transformer", seed=0)
    with pytest.raises(ValueError, match="one concept space"):
        released_protocol(DATA, object_split(ConceptSpace.of_sizes(3, 3), 0.5, seed=0), probes, seed=0)
    with pytest.raises(ValueError, match="0 held-out"):
        released_protocol(DATA, ObjectSplit(SPACE, torch.ones(20, dtype=torch.bool)), probes, seed=0)
    with pytest.raises(ValueError, match="n_steps and every are at least 1"):
        released_protocol(DATA, SPLIT, probes, n_steps=0, seed=0)
