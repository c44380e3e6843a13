"""``conceptbind sweep``: what it trains and stores, what it refuses, and that it goes on after it was stopped."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace

import pytest
import torch

from conceptbind import cli
from conceptbind.commands.documented import documented_fields
from conceptbind.store import ResultStore
from conceptbind.training import jobs
from conceptbind.training.checkpoints import read_checkpoint, write_checkpoint
from conceptbind.training.config import TrainingConfig, config_of
from conceptbind.training.run import TrainedModel, train

TINY = "--preset smoke --n-steps 4 --batch 16 --width 4 --dim 4 --feed-forward 4 --judged-scenes 32 --quiet".split()


@pytest.fixture
def store(tmp_path):
    return tmp_path / "sweep.sqlite"


@pytest.fixture
def trained(monkeypatch):
    """Note (coverage, seed) of the models of every batch that is trained."""
    batches, train = [], jobs.train

    def noting(configs, **options):
        batches.append([(c.coverage, c.seed) for c in configs])
        return train(configs, **options)

    monkeypatch.setattr(jobs, "train", noting)
    return batches


@pytest.fixture
def one_thread():
    """Compute as a worker of one thread does, bit for bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rows(path):
    with ResultStore(path, create=False) as opened:
        return opened.rows(jobs.KIND)


def numbers(path):
    """Give the rows but for when and how fast they were made, by model."""
    return {r["model"]: {k: v for k, v in r.items() if k not in ("seconds", "created")} for r in rows(path)}


def sweep(store, *options):
    return ["sweep", *TINY, "--store", str(store), *options]


def test_a_grid_is_trained_once_and_grows(store, tmp_path, trained, capsys):
    command = sweep(store, "--coverage", ".3", ".5", "--seed", "0", "1")
    assert cli.main(command) == 0
    assert capsys.readouterr() == (f"4 models: 4 computed, 0 were there, 0 failed; they are in {store}\n", "")
    assert trained == [[(0.3, 0), (0.3, 1), (0.5, 0), (0.5, 1)]]
    assert cli.main(command) == 0
    assert capsys.readouterr().out == f"4 models: 0 computed, 4 were there, 0 failed; they are in {store}\n"
    assert cli.main([*command, "2"]) == 0
    assert "6 models: 2 computed, 4 were there, 0 failed" in capsys.readouterr().out
    assert trained[1:] == [[(0.3, 2), (0.5, 2)]]
    assert {(r["sizes"][0], r["coverage"], r["seed"]) for r in rows(store)} == {
        (6, c, s) for c in (0.3, 0.5) for s in (0, 1, 2)
    }
    assert {(r["kind"], r["width"], r["judged_scenes"]) for r in rows(store)} == {("training", 4, 32)}
    for name in ("table.csv", "table.parquet"):
        assert cli.main(["results", str(store), "--export", str(tmp_path / name), "--kind", "training"]) == 0
        assert capsys.readouterr().out == f"wrote 6 rows to {tmp_path / name}\n"
    with (tmp_path / "table.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [json.loads(row["sizes"]) for row in table] == [[6, 6]] * 6
    assert [float(row["loss"]) for row in table] == [row["loss"] for row in rows(store)]


def test_a_dry_run_lists_what_is_missing_and_begins_nothing(store, trained, capsys):
    dry = sweep(store, "--seed", "0", "1", "--width", "4", "8", "--dry-run")
    assert cli.main(dry) == 0
    about = "2 x objects, 6x6, coverage 0.7\n"
    both = [f"{about}  seed 0, width {w}\n  seed 1, width {w}\n" for w in (4, 8)]
    assert capsys.readouterr().out == (
        f"{''.join(both)}4 models: 4 to compute in 2 batches, 0 are there in {store}\n"
    )
    assert not store.exists()
    assert trained == []
    assert cli.main(sweep(store, "--seed", "1", "--width", "4")) == 0
    capsys.readouterr()
    assert cli.main(dry) == 0
    one = "1 x objects, 6x6, coverage 0.7\n  seed 0, width 4\n"
    assert capsys.readouterr().out == (
        f"{one}{both[1]}4 models: 3 to compute in 2 batches, 1 are there in {store}\n"
    )


def test_a_model_that_diverges_is_named_and_does_not_take_its_batch_along(store, trained, capsys):
    command = sweep(store, "--seed", "0", "1", "--rate", "1e-3", "1e30", "--n-steps", "8")
    assert cli.main(command) == 1
    out, err = capsys.readouterr()
    assert out == f"4 models: 2 computed, 0 were there, 2 failed; they are in {store}\n"
    assert [len(batch) for batch in trained] == [4, 1, 1, 1, 1]
    first, *failures = err.splitlines()
    assert first.startswith("1 failed batches, the first for FloatingPointError: the loss of model ")
    assert first.endswith(": their models are trained one by one")
    for seed, line in enumerate(failures):
        assert line.startswith(f"failed: FloatingPointError: the loss of model 0 (seed {seed}, rate 1e+30) ")
        assert line.endswith(f"; settings: seed {seed}, rate 1e+30")
    assert len(failures) == 2
    assert {(r["seed"], r["rate"]) for r in rows(store)} == {(0, 0.001), (1, 0.001)}
    assert cli.main(command) == 1
    assert "4 models: 0 computed, 2 were there, 2 failed" in capsys.readouterr().out


def test_a_single_model_is_told_by_what_differs_from_the_preset(store, capsys):
    assert cli.main(sweep(store, "--rate", "1e30", "--n-steps", "8")) == 1
    ending = "; settings: width 4, feed_forward 4, dim 4, batch 16, n_steps 8, rate 1e+30\n"
    assert capsys.readouterr().err.endswith(ending)
    assert cli.main(["sweep", "--preset", "smoke", "--store", str(store), "--dry-run"]) == 0
    assert "\n  those of the preset\n" in capsys.readouterr().out


def test_models_that_are_stored_without_a_file_are_counted(store, tmp_path, capsys):
    models = ["--models", str(tmp_path / "models")]
    assert cli.main(sweep(store, "--seed", "0", "1")) == 0
    capsys.readouterr()
    assert cli.main(sweep(store, "--seed", "0", "1", "2", *models)) == 1
    out, err = capsys.readouterr()
    assert out == f"3 models: 1 computed, 2 were there, 0 failed; they are in {store}\n"
    assert err.startswith(f"2 of the stored models have no file in {tmp_path / 'models'}, ")
    assert "give another --store" in err
    assert cli.main(sweep(tmp_path / "other.sqlite", "--seed", "0", "1", *models)) == 0
    assert cli.main(sweep(store, "--seed", "0", "1", "2", *models)) == 0
    assert len(list((tmp_path / "models").iterdir())) == 3


def test_a_checkpoint_of_another_batch_is_told(store, tmp_path, capsys):
    folder = tmp_path / "checkpoints"
    command = sweep(store, "--seed", "0", "1", "--checkpoints", str(folder), "--together")
    base = config_of("smoke", n_steps=4, batch=16, width=4, dim=4, feed_forward=4)
    (job,) = jobs.training_jobs([base, replace(base, seed=1)], n_scenes=32, checkpoints=folder)
    train(job.run.configs, checkpoint=job.run.checkpoint, checkpoint_every=3, stop_after=3)
    for dry in (["--dry-run"], []):
        assert cli.main([*command, "1", *dry]) == 0
        err = capsys.readouterr().err
        assert err.startswith("warning: models of this run have unfinished checkpoints in ")
        assert f"({job.run.checkpoint.name}, 2 models after 3 of 4 steps)" in err
    assert cli.main([*command, "2"]) == 0
    assert capsys.readouterr().err == ""


def test_grids_from_a_file_with_changes_and_drawn(store, tmp_path, trained, capsys):
    path = tmp_path / "grid.json"
    path.write_text('[{"coverage": [0.3, 0.5], "seed": [0, 1]}, {"coverage": 0.05, "seed": 5}]')
    command = sweep(store, "--grid", str(path))
    assert cli.main(command) == 2
    assert "the combination coverage 0.05, seed 5, width 4," in capsys.readouterr().err
    command.append("--leave-out-impossible")
    assert cli.main([*command, "--seed", "7", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("1 combinations cannot be: they are left out\n")
    assert "  coverage 0.3\n  coverage 0.5\n2 models: 2 to compute" in out
    assert cli.main([*command, "--random", "3", "--draw-seed", "1"]) == 0
    drawn = {(r["coverage"], r["seed"]) for r in rows(store)}
    assert len(drawn) == 3
    assert drawn < {(c, s) for c in (0.3, 0.5) for s in (0, 1)}
    capsys.readouterr()
    assert cli.main([*command, "--random", "4", "--draw-seed", "1"]) == 0
    assert "4 models: 1 computed, 3 were there" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--coverage", "much"], "coverage is a number; got 'much'"),
        (["--coverage", ".5", "1.5"], "cannot be: coverage is a share strictly between 0 and 1; got 1.5"),
        (["--sizes", "6by6"], "numbers of values such as 24x24; got '6by6'"),
        (["--seed", "0", "1", "--random", "3"], "1 to 2 combinations can be drawn"),
        (["--grid", "{0}/none.json"], "{0}/none.json"),
        (["--workers", "0"], "--workers is a whole number of at least 1; got 0"),
        (["--workers", "1", "--threads", "0"], "--threads is a whole number of at least 1; got 0"),
        (["--together", "0"], "--together is a whole number of at least 1; got 0"),
        (["--judged-scenes", "0"], "--judged-scenes is a whole number of at least 1; got 0"),
        (["--checkpoint-every", "0"], "--checkpoint-every is a whole number of at least 1; got 0"),
        (["--device", "meta"], "--device is cpu, cuda, cuda:1 or the like; got meta"),
        (["--device", "xpu"], "this machine has no xpu that torch can use: give another --device"),
        (["--gpus-per-job", ".5"], "--gpus-per-job belongs to --ray"),
        (["--threads", "2"], "--threads belongs to --workers and --ray"),
        (["--device", "gpu"], "--device is cpu, cuda, cuda:1 or the like; got gpu"),
        (["--device", "cuda"], "no cuda that torch can use"),
        (["--device", "cuda:1", "--ray", "local"], "on a Ray cluster a job sees only the GPUs it was given"),
    ],
)
def test_a_wrong_input_is_named_and_no_store_is_begun(store, tmp_path, capsys, monkeypatch, options, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(sweep(store, *(o.format(tmp_path) for o in options))) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("conceptbind: error: ")
    assert err.count("\n") == 1
    assert message.format(tmp_path) in err
    assert not store.exists()


def test_without_ray_the_error_says_how_to_get_it(store, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main(sweep(store, "--ray", "local")) == 2
    assert "pip install 'conceptbind[ray]'" in capsys.readouterr().err


def test_every_setting_of_a_model_is_an_option_with_its_text(capsys):
    with pytest.raises(SystemExit):
        cli.main(["sweep", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    documented = documented_fields("conceptbind.training.config", "TrainingConfig")
    assert list(documented) == [f.name for f in fields(TrainingConfig)]
    assert documented["dim"] == "Of the embeddings, d."
    for name, text in documented.items():
        assert f"--{name.replace('_', '-')} VALUE [VALUE ...] {text.split('-')[0].split('``')[0]}" in shown
    with pytest.raises(ValueError, match=r"conceptbind\.cli has no class 'Nobody'"):
        documented_fields("conceptbind.cli", "Nobody")
    with pytest.raises(ModuleNotFoundError, match=r"no module 'conceptbind\.nowhere'"):
        documented_fields("conceptbind.nowhere", "Nobody")


def test_a_worker_that_is_stopped_goes_on_and_gives_what_this_process_gives(store, tmp_path, one_thread):
    folders = [tmp_path / "checkpoints", tmp_path / "models"]
    kept = [o for folder in folders for o in (f"--{folder.name}", str(folder))]
    grid = "--coverage .3 .5 --seed 0 1 --n-steps 200".split()
    worker = ["--workers", "1", "--threads", "1", "--checkpoint-every", "10", *kept]
    command = [sys.executable, "-m", "conceptbind", *sweep(store, *grid, "--together", "2", *worker)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    driver = subprocess.Popen(command, **pipes, start_new_session=True, preexec_fn=_listens)
    while driver.poll() is None and not list(folders[0].glob("[!.]*.safetensors")):
        time.sleep(0.01)
    os.killpg(driver.pid, signal.SIGINT)
    out, err = driver.communicate()  # its output ends when the worker does, too
    assert (driver.returncode, out) == (130, "")
    where = f"what was finished is stored in {store}, the same command goes on from there"
    assert err.splitlines() == [f"stopped; {where}"]
    assert not list(folders[0].glob("*.tmp"))
    # a mark in the losses of steps that are done stays only if they are not done again
    marked = set()
    for path in folders[0].glob("*.safetensors"):
        found = read_checkpoint(path)
        found.losses[0] = 123.0
        write_checkpoint(path, found)
        marked.update(found.configs)
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout.startswith("4 models: ")
    assert again.stderr == ""
    straight = tmp_path / "straight.sqlite"
    assert cli.main(sweep(straight, *grid, "--together", "2")) == 0
    assert numbers(store) == numbers(straight)
    for row in rows(store):
        model = TrainedModel.load(folders[1] / f"{row['model']}.safetensors")
        assert (model.config.coverage, model.config.seed) == (row["coverage"], row["seed"])
        assert model.temperature == row["learned_temperature"]
        assert (float(model.losses[0]) == 123.0) == (model.config in marked)


def _listens():
    """Let a process hear Ctrl-C also where the tests run in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
