"""Fits at growing coverage: what is measured of one, what a row's key stands for, which fits are made together."""

import dataclasses
import json
import math
from functools import cached_property

import pytest
import torch

from conceptbind.analysis import complexity
from conceptbind.analysis.complexity import (
    KIND,
    KINDS,
    Subject,
    Sweep,
    complexity_jobs,
    judge,
    split_of,
    sweep_of,
    sweep_of_more_objects,
)
from conceptbind.approximators.base import make_task
from conceptbind.approximators.closed_form import Additive, ObjectTable
from conceptbind.approximators.networks import Network
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.networks import Architecture
from conceptbind.kernels.training import Schedule
from conceptbind.planted import planted_encoders
from conceptbind.provenance import digest
from conceptbind.scenes import ConceptSpace, SceneKind, factorial_scenes
from conceptbind.store import ResultStore
from conceptbind.sweeps import Ran, run_jobs

SPACE = ConceptSpace.of_sizes(4, 3)
DIM = 64


def planted(kind="product", noise=0.0):
    scenes = factorial_scenes(SPACE, 2)
    encoders = planted_encoders(SPACE, kind, dim=DIM, seed=0, noise=noise)
    return EmbeddingSet(encoders.scenes(scenes), scenes, SPACE)


@pytest.fixture(scope="module")
def subject():
    return Subject("planted", planted())


@pytest.fixture(scope="module")
def noisy():
    return Subject("planted, noise", planted(noise=2.5))


def task_of(subject, coverage=0.5, seeds=(0,)):
    return make_task(subject.data, [split_of(SPACE, coverage, s) for s in seeds], seeds=seeds)


@dataclasses.dataclass
class Function:
    """A fit that is given: any function of scenes."""

    predict_scenes: object
    n_parameters = (7,)
    converged = (True,)
    details = ({"rank": 2},)

    def predict(self, fit, scenes):
        return self.predict_scenes(scenes)


def perfect(subject):
    return Function(lambda scenes: subject.data.embeddings[SPACE.scene_index(scenes)])


def test_a_perfect_approximation_reads_like_the_real_embeddings(subject):
    row = judge(subject, task_of(subject), perfect(subject), 0)
    for name in KINDS.values():
        assert row[f"r2_{name}"] == 1.0
        for head in ("concepts", "objects"):
            assert row[f"{head}_{name}"] == row[f"ceiling_{head}_{name}"] == 1.0
            assert row[f"{head}_low_{name}"] < 1 <= row[f"{head}_high_{name}"]
    assert (row["n_parameters"], row["converged"], row["chosen"], row["validated"]) == (
        7,
        True,
        {"rank": 2},
        True,
    )
    # 6 of 12 objects train
    assert (row["n_train"], row["n_mixed"], row["n_held_out"]) == (36, 72, 36)
    json.dumps(row, allow_nan=False)


def test_the_ceiling_is_of_scenes_that_the_ruler_does_not_know(noisy):
    task = task_of(noisy)
    row = judge(noisy, task, perfect(noisy), 0)
    kinds, data = task.splits[0].kinds(noisy.data.scenes), noisy.data
    for kind, name in KINDS.items():
        of_kind = kinds == kind
        new = of_kind & ~noisy.ruler.train[0]
        for rows, key in ((of_kind, "objects"), (new, "ceiling_objects")):
            found = noisy.ruler.judge_seed(0, data.embeddings[rows], data.scenes[rows])["objects"]
            assert row[f"{key}_{name}"] == found.accuracy
    assert 0 < row["ceiling_objects_mixed"] < row["objects_mixed"]


def test_r2_is_around_the_mean_of_the_judged_scenes(noisy):
    task = task_of(noisy)
    data, kinds = noisy.data, task.splits[0].kinds(noisy.data.scenes)
    fitted = Additive().fit(task)
    row = judge(noisy, task, fitted, 0)
    for kind, name in KINDS.items():
        z = data.embeddings[kinds == kind].double()
        left = z - fitted.predict(0, data.scenes[kinds == kind]).double()
        expected = 1 - left.square().sum() / (z - z.mean(0)).square().sum()
        assert row[f"r2_{name}"] == pytest.approx(float(expected), abs=1e-6)
    constant = judge(
        noisy, task, Function(lambda s: data.embeddings[kinds == 2].mean(0).expand(len(s), -1)), 0
    )
    assert constant["r2_held_out"] == pytest.approx(0, abs=1e-6)


def test_chance_is_that_of_scores_that_know_nothing(subject):
    def noise(scenes):
        generator = torch.Generator().manual_seed(len(scenes))
        return 50 * torch.randn(len(scenes), DIM, generator=generator)

    task = task_of(subject)
    row = judge(subject, task, Function(noise), 0)
    # 6 objects: of 36 scenes 6 show one object twice, 1 in 12, and 30 show two, 1 in 66
    assert row["chance_objects_held_out"] == pytest.approx((6 / 12 + 30 / 66) / 36)
    assert row["objects_low_mixed"] <= row["chance_objects_mixed"] <= row["objects_high_mixed"]
    assert row["r2_mixed"] < 0


@pytest.mark.parametrize("coverage", [1 / 12, 0.2, 0.5, 0.9])
def test_unseen_counts_the_scenes_with_a_value_that_no_training_object_shows(subject, coverage):
    task = task_of(subject, coverage)
    row = judge(subject, task, perfect(subject), 0)
    split = task.splits[0]
    shown = [{o[k] for o in split.train_objects.tolist()} for k in range(2)]
    for kind, name in KINDS.items():
        scenes = subject.data.scenes[split.kinds(subject.data.scenes) == kind].tolist()
        new = [any(o[k] not in shown[k] for o in scene for k in range(2)) for scene in scenes]
        assert row[f"unseen_{name}"] == pytest.approx(sum(new) / len(new))
    assert row["unseen_train"] == 0.0
    assert (row["unseen_held_out"] > 0) == (coverage < 0.3)


def test_where_there_are_no_scenes_there_are_no_numbers(subject):
    kinds = split_of(SPACE, 0.5, 0).kinds(subject.data.scenes)
    data = subject.data.subset(kinds != SceneKind.HELD_OUT)
    some = Subject("some", data)
    task = make_task(data, [split_of(SPACE, 0.5, 0)], seeds=[0])
    row = judge(some, task, perfect(subject), 0)
    numbers = {key: value for key, value in row.items() if key.endswith("_held_out") and key != "n_held_out"}
    assert len(numbers) == 12
    assert set(numbers.values()) == {None}
    assert row["n_held_out"] == 0
    assert row["r2_mixed"] == 1.0


def test_one_scene_has_no_variance_to_explain(subject):
    row = judge(subject, task_of(subject, 1 / 12), perfect(subject), 0)
    assert row["n_train"] == 1
    assert row["r2_train"] is None
    assert row["objects_train"] == 1.0


def test_the_effect_is_the_change_that_one_value_makes():
    bag = Subject("bag", planted("additive"))
    task = task_of(bag)
    z = bag.data.embeddings.double()
    spread = float((z - z.mean(0)).square().sum(1).mean())
    # the vectors of values are orthogonal, each of squared length DIM
    exact = math.sqrt(2 * DIM / spread)
    assert judge(bag, task, perfect(bag), 0)["effect"] == pytest.approx(exact)
    half = Function(lambda s: perfect(bag).predict(0, s) / 2 + 5)
    assert judge(bag, task, half, 0)["effect"] == pytest.approx(exact / 2)
    nothing = Function(lambda s: torch.zeros(len(s), DIM))
    assert judge(bag, task, nothing, 0)["effect"] == 0.0


def test_a_fit_is_judged_alike_alone_and_beside_others(monkeypatch, noisy):
    monkeypatch.setattr(complexity, "MAX_JUDGED", 20)  # samples are drawn
    network = Network(Architecture("mlp", 8), Schedule(n_steps=30, rate=0.01))
    for approximator in (Additive(), network):
        together = task_of(noisy, seeds=(4, 2, 7))
        fitted = approximator.fit(together)
        for fit, seed in enumerate((4, 2, 7)):
            alone = task_of(noisy, seeds=(seed,))
            row, other = judge(noisy, together, fitted, fit), judge(noisy, alone, approximator.fit(alone), 0)
            assert row.keys() == other.keys()
            for key, value in row.items():
                assert other[key] == (
                    pytest.approx(value, abs=1e-4) if isinstance(value, float) else value
                ), key


def test_many_scenes_are_sampled_by_the_seed_and_counted_in_full(monkeypatch, subject):
    whole = judge(subject, task_of(subject), perfect(subject), 0)
    seen = []
    probe = Function(lambda s: seen.append(SPACE.scene_index(s)) or perfect(subject).predict(0, s))
    monkeypatch.setattr(complexity, "MAX_JUDGED", 20)
    row = judge(subject, task_of(subject), probe, 0)
    assert row["n_mixed"] == whole["n_mixed"] == 72
    assert [len(rows.unique()) for rows in seen[:3]] == [20] * 3


# --- jobs


class Counting(Subject):
    """Fit no ruler unless it is needed."""

    @cached_property
    def ruler(self):
        raise AssertionError("listing jobs needs no ruler")


def small(**change):
    return Sweep(**{"coverages": (0.4, 0.7), "seeds": (0, 1), "approximators": (Additive(),), **change})


def settings_of(subject, sweep):
    return [s for job in complexity_jobs(subject, sweep) for s in job.settings]


def test_a_sweep_is_every_approximator_coverage_and_seed(subject):
    sweep = small(slow=(ObjectTable(),), slow_coverages=(0.7,))
    found = settings_of(Counting("planted", subject.data), sweep)
    assert [(s["name"], s["coverage"], s["seed"]) for s in found] == [
        *(("additive", c, s) for c in (0.4, 0.7) for s in (0, 1)),
        *(("object table", 0.7, s) for s in (0, 1)),
    ]


def test_stored_fits_are_not_made_again(subject, tmp_path):
    with ResultStore(tmp_path / "fits.sqlite") as store:
        assert run_jobs(store, complexity_jobs(subject, small()), progress=False) == Ran(done=4, skipped=0)
        before = store.rows(KIND)
        other = small(coverages=(0.4, 0.7, 0.9))
        again = Counting("planted", subject.data)
        assert run_jobs(store, complexity_jobs(again, small()), progress=False) == Ran(done=0, skipped=4)
        assert run_jobs(store, complexity_jobs(subject, other), progress=False) == Ran(done=2, skipped=4)
        rows = store.rows(KIND)
    assert rows[:4] == before
    assert {(r["coverage"], r["seed"]) for r in rows} == {(c, s) for c in (0.4, 0.7, 0.9) for s in (0, 1)}
    assert all(r["subject"] == "planted" and r["how"] == Additive().settings for r in rows)


def test_coverages_that_leave_no_object_on_one_side_are_left_out(subject):
    found = settings_of(subject, small(coverages=(0.01, 0.04, 0.05, 0.9, 0.95, 0.97, 0.99), seeds=(0,)))
    assert [s["coverage"] for s in found] == [0.05, 0.9, 0.95]


def changed(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 0.5
    if isinstance(value, tuple):
        return value[:-1]
    raise AssertionError(f"no other value of {value!r}")


def variants(thing):
    """Give copies of a dataclass with one field changed, in nested dataclasses too."""
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if dataclasses.is_dataclass(value):
            yield from (dataclasses.replace(thing, **{field.name: v}) for v in variants(value))
        elif isinstance(value, str):
            continue  # the kinds and heads of a sweep differ from each other, below
        elif field.name == "n_jobs":
            continue  # threads change no number
        elif field.name == "depth" and getattr(thing, "kind", "") == "product":
            continue
        elif field.name == "width" and getattr(thing, "kind", "") == "decoder":
            yield dataclasses.replace(thing, width=2 * value)
        elif field.name == "ranks" and getattr(thing, "head", "") == "none":
            continue  # there is no rank
        else:
            yield dataclasses.replace(thing, **{field.name: changed(value)})


def test_every_setting_of_an_approximator_is_part_of_the_key():
    sweep = sweep_of("paper")
    keys = [digest(a.settings) for a in sweep.approximators]
    assert len(set(keys)) == len(keys)
    assert len({a.name for a in sweep.approximators}) == len(keys)
    for approximator in sweep.approximators:
        others = list(variants(approximator))
        assert others
        assert len({digest(a.settings) for a in (approximator, *others)}) == len(others) + 1


def test_data_scenes_coverage_and_seed_are_part_of_the_key(subject, noisy, monkeypatch):
    def key(who, sweep):
        (settings,) = settings_of(who, sweep)
        return digest(settings)

    one = small(coverages=(0.4,), seeds=(0,))
    turned = EmbeddingSet(subject.data.embeddings.flip(0), subject.data.scenes.flip(0), SPACE)
    keys = {
        key(subject, one),
        key(subject, small(coverages=(0.7,), seeds=(0,))),
        key(subject, small(coverages=(0.4,), seeds=(1,))),
        key(Subject("planted", noisy.data), one),
        key(Subject("another name", subject.data), one),
        key(Subject("planted", turned), one),
    }
    assert len(keys) == 6
    assert key(Subject("planted", planted()), one) in keys
    monkeypatch.setattr(complexity, "PROTOCOL", complexity.PROTOCOL + 1)
    assert key(subject, one) not in keys


def irregular():
    """Scenes of which some are missing, so that splits leave unequal numbers."""
    data = planted(noise=0.5)
    generator = torch.Generator().manual_seed(5)
    return data.subset(torch.randperm(data.n_scenes, generator=generator)[:70].sort().values)


def test_seeds_with_equal_numbers_of_scenes_are_fitted_together(subject):
    grid = complexity_jobs(subject, small(seeds=tuple(range(6)), coverages=(0.5,)))
    assert [len(job.settings) for job in grid] == [6]
    data = irregular()
    jobs = complexity_jobs(Subject("some", data), small(seeds=tuple(range(6)), coverages=(0.5,)))
    assert sorted(s["seed"] for job in jobs for s in job.settings) == list(range(6))
    sizes = []
    for job in jobs:
        seeds = [s["seed"] for s in job.settings]
        task = make_task(data, [split_of(SPACE, 0.5, s) for s in seeds], seeds=seeds)
        for masks in (task.train, task.inner):
            assert len(set(masks.sum(1).tolist())) == 1
        sizes.append((int(task.train[0].sum()), int(task.inner[0].sum())))
    assert len(set(sizes)) == len(sizes) > 1


def test_splits_of_unequal_sizes_and_without_a_training_scene_are_swept(tmp_path):
    some = Subject("some", irregular())
    network = Network(Architecture("mlp", 8), Schedule(n_steps=30, rate=0.01))
    sweep = small(coverages=(0.1, 0.5), seeds=tuple(range(8)), approximators=(Additive(), network))
    able = {
        (c, s)
        for c in sweep.coverages
        for s in sweep.seeds
        if bool((split_of(SPACE, c, s).kinds(some.data.scenes) == SceneKind.TRAIN).any())
    }
    assert 8 < len(able) < 16
    with ResultStore(tmp_path / "fits.sqlite") as store:
        assert run_jobs(store, complexity_jobs(some, sweep), progress=False).done == 2 * len(able)
        rows = store.rows(KIND)
    for name in ("additive", "MLP 8"):
        assert {(r["coverage"], r["seed"]) for r in rows if r["name"] == name} == able


@pytest.mark.parametrize("preset", ["smoke", "laptop", "paper"])
@pytest.mark.parametrize("of_more_objects", [False, True])
def test_presets_list_fits_that_have_names_of_their_own(preset, of_more_objects, subject):
    sweep = (sweep_of_more_objects if of_more_objects else sweep_of)(preset)
    found = settings_of(Counting("planted", subject.data), sweep)
    assert len({digest(s) for s in found}) == len(found)
    assert len({(s["name"], s["coverage"], s["seed"]) for s in found}) == len(found)
    assert {s["seed"] for s in found} == set(sweep.seeds)


def test_another_preset_is_named():
    with pytest.raises(ValueError, match="huge"):
        sweep_of("huge")
    with pytest.raises(ValueError, match="huge"):
        sweep_of_more_objects("huge")


def test_tables_of_pairs_are_fitted_where_they_are_no_tables_of_objects(subject):
    """Two concepts: left out. Three: fitted."""
    space = ConceptSpace.of_sizes(2, 3, 2)
    scenes = factorial_scenes(space, 2)
    z = torch.randn(len(scenes), 8, generator=torch.Generator().manual_seed(0))
    three = Subject("three concepts", EmbeddingSet(z, scenes, space))
    assert subject.data.space.n_concepts == 2
    names = {
        s.name: {
            settings["name"] for job in complexity_jobs(s, sweep_of("laptop")) for settings in job.settings
        }
        for s in (subject, three)
    }
    assert names["three concepts"] - names[subject.name] == {"pair table"}
