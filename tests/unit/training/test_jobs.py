"""Training runs as jobs of a sweep: grouped by shape, stored once, gone on with."""

import pickle
from dataclasses import replace

import pytest
import torch

from conceptbind.store import ResultStore
from conceptbind.sweeps import Job, Ran, run_jobs
from conceptbind.training import run
from conceptbind.training.config import TrainingConfig
from conceptbind.training.evaluate import evaluate
from conceptbind.training.gradients import loss_and_gradients
from conceptbind.training.jobs import (
    Unused,
    batch_of,
    missing_jobs,
    model_name,
    numbers_of,
    row_settings,
    run_training,
    training_jobs,
    unused_checkpoints,
)
from conceptbind.training.run import TrainedModel, train

TINY = TrainingConfig(
    sizes=(5, 4),
    coverage=0.6,
    batch=16,
    architecture="objects",
    width=8,
    feed_forward=12,
    dim=6,
    depth=1,
    n_steps=6,
    dtype="float64",
)


def test_models_of_one_shape_become_one_job():
    grid = [replace(TINY, seed=s, coverage=c, width=w) for w in (8, 16) for c in (0.8, 0.4) for s in range(3)]
    jobs = training_jobs([*grid, grid[0]], together=4, n_scenes=50)
    assert [len(job.settings) for job in jobs] == [3, 3, 3, 3]
    assert {job.kind for job in jobs} == {"training"}
    assert all(len({s["width"] for s in job.settings}) == 1 for job in jobs)
    # similar coverages come together
    assert [sorted({s["coverage"] for s in job.settings}) for job in jobs] == [[0.4], [0.8]] * 2
    listed = [s for job in jobs for s in job.settings]
    assert sorted(map(str, listed)) == sorted(str(row_settings(c, 50)) for c in grid)
    assert jobs[0].about == "3 x objects, 5x4, coverage 0.4"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"together": 0}, "together is a whole number of at least 1; got 0"),
        ({"n_scenes": 0}, "n_scenes is a whole number of at least 1; got 0"),
        ({"checkpoint_every": 0}, "checkpoint_every is a whole number of at least 1; got 0"),
        ({"device": "meta"}, "device is cpu, cuda, cuda:1 or the like; got meta"),
        ({"device": "gpu"}, "device is cpu, cuda, cuda:1 or the like; got gpu"),
    ],
)
def test_what_would_fail_after_training_is_refused_before(options, message):
    with pytest.raises(ValueError, match=message):
        training_jobs([TINY], **options)


def test_batches_are_as_even_as_can_be():
    sizes = [len(j.settings) for j in training_jobs([replace(TINY, seed=s) for s in range(9)], together=8)]
    assert sorted(sizes) == [4, 5]


def test_rows_are_those_of_models_alone_and_are_stored_once(tmp_path):
    configs = [replace(TINY, seed=s) for s in range(3)]
    jobs = training_jobs(configs, n_scenes=50, models=tmp_path / "models")
    with ResultStore(tmp_path / "runs.sqlite") as store:
        assert run_jobs(store, jobs, progress=False) == Ran(done=3, skipped=0)
        assert run_jobs(store, jobs, progress=False) == Ran(done=0, skipped=3)
        rows = store.rows("training")
    for config, row in zip(configs, rows, strict=True):
        alone = train([config]).model(0)
        found = evaluate(alone, n_scenes=50, seed=config.seed).row()
        assert row["objects_train"] == found["objects_train"]
        assert row["loss"] == pytest.approx(float(alone.losses.mean()))
        assert (row["seed"], row["n_training_objects"], row["n_possible_objects"]) == (config.seed, 12, 20)
        kept = TrainedModel.load(tmp_path / "models" / f"{row['model']}.safetensors")
        assert kept.config == config
        torch.testing.assert_close(kept.parameters["scene.E"], alone.parameters["scene.E"])


def test_names_of_models_and_jobs_follow_their_settings():
    assert model_name(TINY) == model_name(replace(TINY))
    assert model_name(TINY) != model_name(replace(TINY, seed=1))
    assert numbers_of(train([TINY]).model(0), 20)["model"] == model_name(TINY)


def test_a_stopped_job_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    steps = []

    def noting(config, parameters, data, step):
        steps.append(step)
        return loss_and_gradients(config, parameters, data, step)

    (job,) = training_jobs([TINY], n_scenes=20, checkpoints=tmp_path, checkpoint_every=2)
    expected = training_jobs([TINY], n_scenes=20)[0].run()
    path = job.run.checkpoint
    train([TINY], checkpoint=path, checkpoint_every=2, stop_after=4)
    before = path.read_bytes()
    monkeypatch.setattr(run, "loss_and_gradients", noting)
    assert job.run() == expected
    assert steps == [4, 5]
    assert path.read_bytes() != before
    assert list(tmp_path.iterdir()) == [path]


def test_a_job_can_be_sent_to_another_process():
    (job,) = training_jobs([TINY], n_scenes=20)
    assert pickle.loads(pickle.dumps(job)).run() == job.run()


def test_rows_say_in_which_type_they_were_computed(tmp_path):
    jobs = training_jobs([TINY, replace(TINY, dtype="bfloat16")], n_scenes=20)
    with ResultStore(tmp_path / "runs.sqlite") as store:
        run_jobs(store, jobs, progress=False)
        assert [p["dtype"] for p in store.provenances()] == ["float64", "bfloat16"]


def test_a_model_that_diverges_ends_nothing_and_takes_no_other_along(tmp_path):
    wild = replace(TINY, seed=1, rate=1e30)
    configs = [TINY, wild, *(replace(TINY, seed=s, width=16) for s in (0, 1))]
    jobs, told = training_jobs(configs, n_scenes=20, models=tmp_path), []
    with ResultStore(tmp_path / "runs.sqlite") as store:
        run_training(store, training_jobs([replace(TINY, seed=1, width=16)], n_scenes=20), progress=False)
        ran = run_training(store, jobs, progress=False, on_retry=told.append)
        assert (ran.done, ran.skipped) == (2, 1)
        assert [batch_of(f.job).configs for f in ran.failed] == [(wild,)]
        assert ran.failed[0].reason.startswith("FloatingPointError: the loss of model 0 (seed 1, rate 1e+30)")
        assert [[f.job for f in batches] for batches in told] == [[jobs[0]]]
        # alone from the first, it is not tried twice
        (left,) = missing_jobs(store, jobs)
        assert batch_of(left).configs == (wild,)
        again = run_training(store, [left], progress=False, on_retry=told.append)
        assert (again.done, again.skipped, len(again.failed), len(told)) == (0, 0, 1, 1)
        # what was stored of a batch that fails is no new row
        ran = run_training(store, jobs, progress=False)
        assert (ran.done, ran.skipped, len(ran.failed)) == (0, 3, 1)
        with pytest.raises(ValueError, match="'other' of kind 'toy' trains no models"):
            run_training(store, [Job("toy", ({"n": 1},), dict, "other")])


def test_checkpoints_that_other_batches_left_are_listed(tmp_path):
    configs = [replace(TINY, seed=s) for s in range(4)]
    folder = tmp_path / "checkpoints"

    def jobs_of(some, together=2):
        return training_jobs(some, together=together, n_scenes=20, checkpoints=folder)

    first, second = jobs_of(configs)
    train(first.run.configs, checkpoint=first.run.checkpoint, checkpoint_every=2, stop_after=4)
    train(second.run.configs, checkpoint=second.run.checkpoint)
    (folder / "text.safetensors").write_text("something else")
    left = Unused(first.run.checkpoint, 2, 4, 6)
    with ResultStore(tmp_path / "runs.sqlite") as store:
        assert unused_checkpoints(store, jobs_of(configs)) == []
        for other in (jobs_of(configs, 4), jobs_of(configs, 1), jobs_of([configs[1], configs[2]])):
            assert unused_checkpoints(store, other) == unused_checkpoints(None, other) == [left]
        # of no use here: those of other models, and of no folder
        assert unused_checkpoints(store, jobs_of(configs[2:], 1)) == []
        assert unused_checkpoints(store, training_jobs(configs, together=1)) == []
        # its models are trained alone when a batch fails
        alone = training_jobs(configs[:1], checkpoints=folder)[0].run
        train(alone.configs, checkpoint=alone.checkpoint, checkpoint_every=2, stop_after=4)
        assert unused_checkpoints(store, jobs_of(configs)) == []
        # or were trained already
        store.add("training", first.settings[:1], [{}], {}, 1.0)
        assert unused_checkpoints(store, jobs_of(configs[1:], 3)) == []
