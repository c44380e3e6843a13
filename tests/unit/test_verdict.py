"""The verdict: its decisions case by case, its controls, and planted functions of which the answer is known."""

import itertools
import json
import math
import re

import pytest
import torch

from conceptbind.analysis import verdict as module
from conceptbind.analysis.additive import fit_additive
from conceptbind.analysis.calibration import planted_function
from conceptbind.analysis.complexity import Subject
from conceptbind.analysis.interactions import interaction_spectrum
from conceptbind.analysis.verdict import (
    LITTLE,
    MOST,
    SMALL,
    Judgement,
    Recovery,
    confusable,
    control,
    decide,
    recovered_share,
    recovery,
    verdict,
    within_share,
)
from conceptbind.approximators.products import ObjectProduct
from conceptbind.embeddings import EmbeddingSet
from conceptbind.scenes import ConceptSpace, factorial_scenes

SPACE = ConceptSpace.of_sizes(4, 6)

READ, UNREAD, BETWEEN = (0.9, 0.88, 0.92), (0.1, 0.08, 0.12), (0.5, 0.48, 0.52)


@pytest.mark.parametrize(
    ("case", "expected", "reason"),
    [
        ({"concepts": 0.5}, "undetermined", r"not even the concepts are read in most scenes \(0.50\)"),
        ({"concepts": 0.4, "objects": UNREAD, "within": 0.0}, "undetermined", "not even the concepts"),
        ({"objects": UNREAD, "within": 0.0}, "bag of concepts", "objects in 0.10, and interactions"),
        ({"objects": UNREAD, "within": SMALL}, "bag of concepts", "0.050 of what concepts add"),
        ({"objects": UNREAD, "within": -0.01}, "bag of concepts", "-0.010"),
        (
            {"objects": UNREAD, "within": 0.06},
            "undetermined",
            "in only 0.10 of the scenes, though .* are 0.06",
        ),
        ({"objects": UNREAD, "within": math.inf}, "undetermined", "are inf of what concepts add"),
        ({"objects": BETWEEN, "recovered": 0.9}, "undetermined", r"in 0.50 of the scenes \(0.48 to 0.52\)"),
        ({"objects": (0.6, MOST, 0.7), "recovered": 0.9}, "undetermined", r"0.50 to 0.70"),
        ({"objects": (0.4, 0.3, MOST), "within": 0.0}, "undetermined", r"0.30 to 0.50"),
        ({"recovered": 0.51, "converged": False}, "simple binding", "recovers 0.51 of the held-out objects"),
        ({"recovered": MOST}, "undetermined", "neither most nor little; .* in 3 of 3 controls"),
        ({"recovered": 0.3, "controls": (0.9, 0.9, 0.9)}, "undetermined", "neither most nor little"),
        ({"converged": False}, "undetermined", "did not converge"),
        ({"controls": (0.9, 0.5, 0.1)}, "undetermined", "might not be found either: .* in 1 of 3 controls"),
        ({"controls": (0.9, 0.6, 0.1)}, "undetermined", "might not be found either: .* in 2 of 3 controls"),
        ({"controls": (0.9, MOST)}, "undetermined", "1 of 2 controls"),
        ({"controls": ()}, "undetermined", "0 of 0 controls"),
        ({}, "memorised objects", "only 0.00 of the held-out objects are recovered, while .* in 3 of 3"),
        ({"recovered": LITTLE}, "memorised objects", "only 0.20"),
        ({"recovered": -0.1}, "memorised objects", "only -0.10"),
        ({"within": 0.0}, "memorised objects", "only 0.00"),
    ],
)
def test_decisions(case, expected, reason):
    plain = {"concepts": 0.95, "objects": READ, "within": 0.3, "recovered": 0.0, "converged": True}
    decided, why = decide(**{**plain, "controls": (0.9, 0.7, 0.51), **case})
    assert decided == expected
    assert re.search(reason, why)


@pytest.mark.parametrize(
    ("numbers", "share"),
    [((0.8, 0.2, 0.8), 1.0), ((0.2, 0.2, 0.8), 0.0), ((0.5, 0.2, 0.8), 0.5), ((0.1, 0.2, 0.7), -0.2)],
)
def test_recovered_share(numbers, share):
    assert recovered_share(*numbers) == pytest.approx(share)


def test_nothing_is_recovered_where_there_is_nothing_to_recover():
    assert recovered_share(0.9, 0.5, 0.5) == recovered_share(0.9, 0.6, 0.5) == 0.0


@pytest.mark.parametrize(("sizes", "n_objects"), [((2, 3), 2), ((2, 2, 2), 2), ((2, 2), 3), ((3,), 2)])
def test_confusable_scenes_are_those_in_which_an_exchange_of_values_makes_another_scene(sizes, n_objects):
    scenes = factorial_scenes(ConceptSpace.of_sizes(*sizes), n_objects)
    expected = []
    for scene in scenes.tolist():
        others = set()
        for i, j in itertools.combinations(range(n_objects), 2):
            for k in range(len(sizes)):
                changed = [list(o) for o in scene]
                changed[i][k], changed[j][k] = scene[j][k], scene[i][k]
                others.add(tuple(sorted(map(tuple, changed))))
        expected.append(bool(others - {tuple(sorted(map(tuple, scene)))}))
    assert confusable(scenes).tolist() == expected
    assert any(expected) == (len(sizes) > 1)


def noisy(kind="memorised", *, space=SPACE, noise=0.4, dim=32, seed=0):
    return planted_function(space, kind, dim=dim, noise=noise, seed=seed)


@pytest.mark.parametrize("kind", ["memorised", "product", "global product", "additive"])
def test_interactions_within_objects_are_the_quotient_of_the_anova_shares(kind):
    data = noisy(kind)
    energy, freedom = ({k: 0.0 for k in ("concepts", "within objects", "rest")} for _ in range(2))
    for row in interaction_spectrum(data).rows:
        kind_of_row = row.kind if row.kind in energy else "rest"
        energy[kind_of_row] += row.share
        freedom[kind_of_row] += row.df
    noise = energy["rest"] / freedom["rest"]
    inside, main = (energy[k] - freedom[k] * noise for k in ("within objects", "concepts"))
    assert within_share(data) == pytest.approx(inside / main, abs=1e-6)


@pytest.mark.parametrize(("kind", "low", "high"), [("additive", -0.01, 0.01), ("low-rank product", 0.9, 1.1)])
def test_noise_does_not_count_as_interactions_within_objects(kind, low, high):
    assert low < within_share(noisy(kind, noise=2.0, dim=64)) < high


def test_interactions_alone_are_infinitely_many_times_the_concepts():
    signs = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    space = ConceptSpace.of_sizes(2, 2)
    scenes = factorial_scenes(space, 1)
    xor = signs[scenes[:, 0, 0], scenes[:, 0, 1]].unsqueeze(1)
    assert within_share(EmbeddingSet(xor, scenes, space)) == math.inf


def interactions(data):
    """Give the interactions within objects of every slot, (slot, object, dim)."""
    by_object, by_concept = (fit_additive(data, level=level) for level in ("objects", "concepts"))
    return by_object.parts - by_concept.object_parts()


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_a_control_has_the_concepts_and_interactions_of_that_rank_and_size(rank):
    data = noisy(noise=0.0)
    made = control(data, rank=rank, seed=3)
    assert torch.equal(made.scenes, data.scenes)
    before, after = (fit_additive(d, level="concepts") for d in (data, made))
    assert torch.allclose(before.parts, after.parts, atol=1e-4)
    assert torch.allclose(before.mean, after.mean, atol=1e-4)
    old, new = interactions(data), interactions(made)
    assert torch.allclose(old.square().sum((1, 2)), new.square().sum((1, 2)), rtol=1e-4)
    assert torch.linalg.matrix_rank(new.flatten(0, 1), rtol=1e-4) == rank
    assert not torch.allclose(old, new, atol=0.1)
    # all of it: nothing is left beside the parts of objects
    assert fit_additive(made).r2 == pytest.approx(1, abs=1e-6)
    # what it draws lies where the old interactions lay
    outside = torch.linalg.svd(old.mean(0), full_matrices=True).Vh[SPACE.n_possible_objects :]
    assert float((new @ outside.T).abs().max()) < 1e-3


def test_a_control_moves_residuals_to_other_scenes_and_keeps_them_whole():
    data, clean = noisy("memorised"), noisy("memorised")
    fitted = fit_additive(data).predict(data.scenes)
    clean = EmbeddingSet(fitted.float(), data.scenes, SPACE)
    residual = data.embeddings.double() - fitted
    # the same seed draws the same product for both
    moved = (control(data, rank=2, seed=0).embeddings - control(clean, rank=2, seed=0).embeddings).double()
    distance = torch.cdist(moved, residual)
    nearest = distance.argmin(1)
    assert float(distance.amin(1).max()) < 1e-3
    assert len(nearest.unique()) == len(residual)
    assert int((nearest == torch.arange(len(nearest))).sum()) < 10


def test_controls_of_one_seed_are_the_same_and_of_two_are_not():
    data = noisy()
    one, again, other = (control(data, rank=4, seed=s).embeddings for s in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.allclose(one, other, atol=0.1)


def test_a_control_of_a_set_that_is_no_grid_is_finite_and_keeps_objects_that_occur():
    data = noisy()
    some = data.subset(
        torch.randperm(data.n_scenes, generator=torch.Generator().manual_seed(0))[:250].sort().values
    )
    made = control(some, rank=4, seed=0)
    assert torch.equal(made.scenes, some.scenes)
    ratio = made.embeddings.var(0).sum() / some.embeddings.var(0).sum()
    assert 0.8 < float(ratio) < 1.25


class Named:
    """An approximator that only has a name; what it would be measured at is in ``NUMBERS``."""

    settings: dict = {}  # noqa: RUF012

    def __init__(self, name):
        self.name = name

    def fit(self, task):
        return self


NUMBERS = {
    # held-out objects recognised, by seed 0, 1, 2, 3
    "additive": (0.1, 0.9, 0.3, 0.9),
    "good where it is picked": (0.2, 0.8, 0.4, 0.8),
    "good where it is judged": (0.9, 0.3, 0.9, 0.3),
}


def test_what_picks_an_approximator_does_not_judge_it(monkeypatch):
    asked = []

    def judge(subject, task, fitted, fit):
        name = getattr(fitted, "name", "additive")
        asked.append((name, task.seeds[0]))
        return {
            "objects_held_out": NUMBERS[name][task.seeds[0]],
            "ceiling_objects_held_out": None if task.seeds[0] == 1 else 1.0,
            "r2_train": task.seeds[0] / 10,
            "converged": task.seeds[0] != 3,
        }

    monkeypatch.setattr(module, "judge", judge)
    candidates = [Named(name) for name in list(NUMBERS)[1:]]
    found = recovery(Subject("planted", noisy()), candidates, coverage=0.8, seeds=(0, 1, 2, 3))
    assert sorted(asked) == sorted((name, seed) for name in NUMBERS for seed in range(4))
    assert found.approximator == "good where it is picked"
    assert found.objects == pytest.approx(0.3)
    assert found.additive == pytest.approx(0.2)
    assert found.ceiling == 1.0
    assert found.train_r2 == pytest.approx(0.1)
    assert found.converged  # seed 3 picks
    assert found.by_split == pytest.approx((0.1 / 0.9, 0.1 / 0.7))
    assert found.recovered == pytest.approx(0.1 / 0.8)


def test_splits_without_a_held_out_scene_do_not_count(monkeypatch):
    held_out = {0: 0.1, 1: None, 2: 0.2, 3: None, 4: 0.3, 5: 0.9}

    def judge(subject, task, fitted, fit):
        seed = task.seeds[0]
        numbers = {"ceiling_objects_held_out": None if held_out[seed] is None else 1.0, "r2_train": 0.5}
        return {"objects_held_out": held_out[seed], "converged": True, **numbers}

    monkeypatch.setattr(module, "judge", judge)
    subject, candidates = Subject("planted", noisy()), [Named("one")]
    found = recovery(subject, candidates, coverage=0.8, seeds=range(6))
    assert found.objects == pytest.approx(0.2)  # of seeds 0 and 4; 2 and 5 pick
    with pytest.raises(
        ValueError, match=r"only 1 of 3 splits at coverage 0\.8 have scenes of held-out objects"
    ):
        recovery(subject, candidates, coverage=0.8, seeds=(0, 1, 3))


@pytest.mark.parametrize("how", [{"seeds": (0,)}, {"candidates": ()}, {"control_candidates": ()}])
def test_a_verdict_needs_two_seeds_and_candidates(how):
    with pytest.raises(
        ValueError, match="at least two seeds, one to pick on and one to judge on, and candidates"
    ):
        verdict(Subject("planted", noisy()), **how)


def test_scenes_in_which_nothing_can_be_confused_have_no_verdict():
    with pytest.raises(ValueError, match="no scene has two objects that differ in two concepts"):
        verdict(Subject("planted", noisy(space=ConceptSpace.of_sizes(6, 1))))


QUICK = (
    ObjectProduct(ranks=(4,), ridges=(0.1,), sum_ridges=(0.0,), restarts=2),
    ObjectProduct(head="none", ridges=(0.1,), sum_ridges=(0.0,), restarts=2),
)


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("additive", "bag of concepts"),
        ("global product", "bag of concepts"),
        ("product", "simple binding"),
        ("memorised", "memorised objects"),
    ],
)
def test_planted_functions_are_known_for_what_they_are(kind, answer):
    data = planted_function(ConceptSpace.of_sizes(8, 8), kind, dim=64, noise=0.3, seed=0)
    found = verdict(
        Subject(kind, data), seeds=(0, 1), n_controls=1, candidates=QUICK, control_candidates=QUICK
    )
    assert found.verdict == answer, found.why
    assert bool(found.controls) == (kind == "memorised")
    assert found.power == (kind == "memorised")
    json.dumps(found.as_dict(), allow_nan=False)


def test_a_space_too_small_for_a_product_to_be_found_is_undetermined():
    data = planted_function(ConceptSpace.of_sizes(4, 4), "memorised", dim=32, noise=0.1, seed=0)
    found = verdict(
        Subject("small", data), seeds=(0, 1), n_controls=2, candidates=QUICK, control_candidates=QUICK
    )
    assert found.verdict == "undetermined"
    assert "a simple function might not be found either" in found.why


def test_a_judgement_as_a_row_has_the_recovered_shares():
    found = Recovery("object product", 0.5, 0.1, 0.9, 0.8, True, (0.5,))
    most = Recovery("object product", 0.8, 0.0, 1.0, 0.8, True, (0.8,))
    row = Judgement("undetermined", "why", 1.0, 0.9, 0.8, 1.0, 0.3, found, (found, most)).as_dict()
    assert row["recovery"]["recovered"] == pytest.approx(0.5)
    assert [c["recovered"] for c in row["controls"]] == pytest.approx([0.5, 0.8])
    assert row["power"] == 0.5
    assert Judgement("bag of concepts", "why", 1.0, 0.1, 0.0, 0.2, 0.0, found, ()).power == 0.0
