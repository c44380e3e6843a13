"""Training runs as jobs of a sweep: grouped by shape, stored once, gone on with."""

import pickle
from dataclasses import replace

import pytest
import torch

from conceptbind.store import ResultStore
from conceptbind.sweeps import Ran, run_jobs
from conceptbind.training.config import TrainingConfig
from conceptbind.training.evaluate import evaluate
from conceptbind.training.jobs import model_name, numbers_of, row_settings, training_jobs
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
    with pytest.raises(ValueError, match="at least 1; got 0"):
        training_jobs(grid, together=0)


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


def test_a_stopped_job_goes_on_from_its_checkpoint(tmp_path):
    (job,) = training_jobs([TINY], n_scenes=20, checkpoints=tmp_path, checkpoint_every=2)
    expected = training_jobs([TINY], n_scenes=20)[0].run()
    path = job.run.keywords["checkpoint"]
    train([TINY], checkpoint=path, checkpoint_every=2, stop_after=4)
    before = path.read_bytes()
    assert job.run() == expected
    assert path.read_bytes() != before
    assert list(tmp_path.iterdir()) == [path]


def test_a_job_can_be_sent_to_another_process():
    (job,) = training_jobs([TINY], n_scenes=20)
    assert pickle.loads(pickle.dumps(job)).run() == job.run()
