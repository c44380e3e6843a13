"""Training: the optimiser is torch's, a stopped run goes on as if nothing had happened, checkpoints are whole."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from conceptbind.training import run
from conceptbind.training.checkpoints import (
    FORMAT,
    CheckpointError,
    read_checkpoint,
    read_progress,
    write_checkpoint,
)
from conceptbind.training.config import TrainingConfig, config_of
from conceptbind.training.data import Data
from conceptbind.training.gradients import loss_and_gradients
from conceptbind.training.models import LOG_SCALE, initialise
from conceptbind.training.optimiser import BETAS, EPSILON, StackedAdamW, progress_of
from conceptbind.training.run import TrainedModel, train

TINY = TrainingConfig(
    sizes=(5, 4), coverage=0.6, batch=16, width=8, n_heads=2, feed_forward=12, dim=6, depth=1, n_steps=12
)
BOTH = (TINY, replace(TINY, seed=1, coverage=0.5, rate=3e-3, weight_decay=0.5))


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def test_the_rate_rises_in_a_line_and_falls_along_a_cosine():
    config = replace(TINY, n_steps=101, warm_up=0.1, final_rate=0.02)
    rates = [progress_of(config, n) for n in range(101)]
    assert rates[:10] == pytest.approx([(n + 1) / 10 for n in range(10)])
    expected = [0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * n / 90)) for n in range(91)]
    assert rates[10:] == pytest.approx(expected)
    assert rates[-1] == pytest.approx(0.02)
    assert progress_of(replace(config, n_steps=1, warm_up=0.0), 0) == 1


@pytest.mark.parametrize("configs", [BOTH, (TINY, replace(TINY, seed=1))], ids=["rates", "one rate"])
def test_steps_are_those_of_torchs_adamw_for_every_model(configs):
    parameters = {n: w.double() for n, w in initialise(configs).items()}
    g = torch.Generator().manual_seed(0)
    references = []
    for m, c in enumerate(configs):
        own = {n: torch.nn.Parameter(w[m].clone()) for n, w in parameters.items()}
        decayed = [p for n, p in own.items() if n[-2].isupper() or n[-1].isupper()]
        groups = [
            {"params": decayed, "weight_decay": c.weight_decay},
            {"params": [p for p in own.values() if not any(p is d for d in decayed)], "weight_decay": 0.0},
        ]
        references.append((own, torch.optim.AdamW(groups, betas=BETAS, eps=EPSILON)))
    optimiser = StackedAdamW(configs, parameters)
    for step in range(5):
        gradients = {n: torch.randn(w.shape, generator=g).double() for n, w in parameters.items()}
        optimiser.step(step, gradients)
        for m, (own, reference) in enumerate(references):
            for group in reference.param_groups:
                group["lr"] = configs[m].rate * progress_of(configs[m], step)
            for n, p in own.items():
                p.grad = gradients[n][m].clone()
            reference.step()
    for m, (own, _) in enumerate(references):
        for n, p in own.items():
            torch.testing.assert_close(parameters[n][m], p.detach())
    assert {n.rsplit(".", 1)[-1] for n, w in parameters.items() if w.shape[1:2] == (1,) or w.ndim == 1} == {
        *(f"{name}{i}" for name in "aofg" for i in range(1)),
        "c",
        LOG_SCALE,
    }


def test_training_is_a_plain_loop_of_gradients_and_steps():
    trained = train(BOTH)
    parameters = initialise(BOTH)
    data, optimiser = Data(BOTH), StackedAdamW(BOTH, parameters)
    for step in range(12):
        leaves = {n: w.detach().clone().requires_grad_() for n, w in parameters.items()}
        loss, gradients = loss_and_gradients(TINY, leaves, data, step)
        assert torch.equal(loss, trained.losses[step])
        optimiser.step(step, gradients)
    assert same(parameters, trained.parameters)


@pytest.mark.parametrize(
    "settings",
    [{}, {"tokens": "paper"}, {"architecture": "objects"}, {"form": "clip", "single_share": 0.25}],
    ids=str,
)
def test_models_trained_together_are_models_trained_alone(settings):
    configs = [replace(c, dtype="float64", **settings) for c in BOTH]
    trained = train(configs)
    for m, config in enumerate(configs):
        alone = train([config])
        torch.testing.assert_close(alone.losses[:, 0], trained.losses[:, m], rtol=1e-9, atol=1e-9)
        # Adam divides by the root of tiny second moments, which blows rounding up
        for name, weight in alone.parameters.items():
            torch.testing.assert_close(weight[0], trained.parameters[name][m], rtol=1e-5, atol=1e-6)


def test_a_small_model_learns():
    config = config_of("smoke")
    losses = train([config]).losses[:, 0]
    # with sure scores the soft targets alone cost log 2 + log 3 to log 4
    assert float(losses[-10:].mean()) < 3.2
    assert float(losses[0]) > 8


# ---- checkpoints


@pytest.fixture
def steps(monkeypatch):
    """Note the steps that are computed."""
    noted = []

    def noting(config, parameters, data, step):
        noted.append(step)
        return loss_and_gradients(config, parameters, data, step)

    monkeypatch.setattr(run, "loss_and_gradients", noting)
    return noted


@pytest.mark.parametrize("stop", [4, 7, 11])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, stop, steps):
    path = tmp_path / "run.safetensors"
    whole = train(BOTH)
    stopped = train(BOTH, checkpoint=path, checkpoint_every=4, stop_after=stop)
    assert len(stopped.losses) == stop
    assert len(read_checkpoint(path).losses) == stop // 4 * 4
    steps.clear()
    resumed = train(BOTH, checkpoint=path, checkpoint_every=4)
    assert steps == list(range(stop // 4 * 4, 12))
    assert torch.equal(resumed.losses, whole.losses)
    assert same(resumed.parameters, whole.parameters)
    assert list(tmp_path.iterdir()) == [path]
    # a finished run is only read
    written = path.stat().st_mtime_ns
    steps.clear()
    again = train(BOTH, checkpoint=path)
    assert steps == []
    assert same(again.parameters, whole.parameters)
    assert torch.equal(again.losses, whole.losses)
    assert path.stat().st_mtime_ns == written
    assert read_checkpoint(path).moments == {}


@pytest.mark.parametrize("part", ["scene.E", "first.scene.E", "second.scene.E"])
def test_what_a_run_goes_on_from_is_weights_and_moments(tmp_path, part):
    path = tmp_path / "run.safetensors"
    train(BOTH, checkpoint=path, checkpoint_every=4, stop_after=4)
    whole = train(BOTH)
    found = read_checkpoint(path)
    {**found.parameters, **found.moments}[part].add_(0.01)
    write_checkpoint(path, found)
    resumed = train(BOTH, checkpoint=path)
    assert torch.equal(resumed.losses[:4], whole.losses[:4])
    assert not torch.equal(resumed.parameters["scene.E"], whole.parameters["scene.E"])
    assert not torch.equal(resumed.losses[5:], whole.losses[5:])


def test_a_killed_run_goes_on_bit_for_bit(tmp_path, steps):
    path = tmp_path / "run.safetensors"
    script = """
        import sys, time
        from pathlib import Path
        import torch
        from conceptbind.training.config import TrainingConfig
        from conceptbind.training.run import train

        torch.set_num_threads(int(sys.argv[2]))
        config = TrainingConfig(
            sizes=(5, 4), coverage=0.6, batch=16, width=8, n_heads=2, feed_forward=12, dim=6, depth=1, n_steps=12
        )

        def watch(step, models):
            print(step, flush=True)
            if step == 6:
                time.sleep(60)

        train([config], checkpoint=Path(sys.argv[1]), checkpoint_every=2, watch=watch, watch_every=1)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(path), str(torch.get_num_threads())]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        for line in child.stdout:
            if int(line) == 6:
                break
        os.kill(child.pid, signal.SIGKILL)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert len(read_checkpoint(path).losses) == 6
    resumed = train([TINY], checkpoint=path)
    assert steps == list(range(6, 12))
    whole = train([TINY])
    assert torch.equal(resumed.losses, whole.losses)
    assert same(resumed.parameters, whole.parameters)


def test_a_write_that_fails_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    train([TINY], checkpoint=path, checkpoint_every=4, stop_after=4)
    before = path.read_bytes()

    def broken(source, target):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="no space left"):
        train([TINY], checkpoint=path, checkpoint_every=4)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    train(BOTH, checkpoint=path, checkpoint_every=4, stop_after=4)
    before = path.read_bytes()
    other = (BOTH[0], replace(BOTH[1], rate=1e-3, seed=7))
    with pytest.raises(
        CheckpointError, match=r"in model 1 seed is 1 there, 7 here; rate is 0\.003 there, 0\.001"
    ):
        train(other, checkpoint=path)
    with pytest.raises(CheckpointError, match="of 2 models, not of 1"):
        train([TINY], checkpoint=path)
    assert path.read_bytes() == before


def test_a_damaged_file_and_any_other_are_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        read_checkpoint(path)
    path.write_bytes(b"something else")
    with pytest.raises(CheckpointError, match="is damaged"):
        train([TINY], checkpoint=path)
    save_file({"x": torch.ones(1)}, path)
    with pytest.raises(CheckpointError, match="no checkpoint of this version"):
        train([TINY], checkpoint=path)
    for configs in ("3", "[]", "[3]", '[{"sizes": 5}]', '[{"rate": -1.0}]', '[{"colour": 1}]', "{"):
        save_file({"losses": torch.ones(1, 1)}, path, metadata={"format": FORMAT, "configs": configs})
        for read in (read_checkpoint, read_progress):
            with pytest.raises(CheckpointError, match="is damaged"):
                read(path)
    path.unlink()
    train([TINY], checkpoint=path, checkpoint_every=4, stop_after=4)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="checksum does not match"):
        train([TINY], checkpoint=path)


def test_a_checkpoint_keeps_types_and_values(tmp_path):
    path = tmp_path / "deep" / "run.safetensors"
    config = replace(TINY, dtype="float64")
    train([config], checkpoint=path, checkpoint_every=4, stop_after=4)
    found = read_checkpoint(path, configs=[config])
    write_checkpoint(tmp_path / "copy.safetensors", found)
    again = read_checkpoint(tmp_path / "copy.safetensors")
    assert same(again.parameters, found.parameters)
    assert same(again.moments, found.moments)
    assert found.losses.dtype == torch.float64
    assert found.configs == (config,)
    assert read_progress(path) == ((config,), 4)
    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["provenance"])["dtype"] == "float64"


# ---- models that are trained


def test_a_model_is_saved_and_loaded(tmp_path):
    models = train(BOTH)
    model = models.model(1)
    model.save(tmp_path / "one.safetensors")
    again = TrainedModel.load(tmp_path / "one.safetensors")
    assert again.config == BOTH[1]
    assert same(again.parameters, model.parameters)
    assert torch.equal(again.losses, model.losses)
    scenes = TINY.space.all_objects()[torch.tensor([[0, 5], [3, 7]])]
    assert torch.equal(again.scenes(scenes), model.scenes(scenes))
    train(BOTH, checkpoint=tmp_path / "two.safetensors")
    with pytest.raises(CheckpointError, match="of 2 models in training"):
        TrainedModel.load(tmp_path / "two.safetensors")
    train([TINY], checkpoint=tmp_path / "stopped.safetensors", checkpoint_every=4, stop_after=5)
    with pytest.raises(CheckpointError, match="was stopped after 4 of 12 steps: finish its training first"):
        TrainedModel.load(tmp_path / "stopped.safetensors")


def test_a_model_embeds_scenes_objects_and_values():
    model = train([TINY]).model(0)
    scenes = TINY.space.all_objects()[torch.tensor([[0, 5], [3, 7], [1, 2]])]
    assert model.scenes(scenes).shape == (3, 6)
    assert model.objects(torch.arange(20)).shape == (20, 6)
    assert model.values().shape == (9, 6)
    assert model.captions(scenes) is None
    assert 0.01 <= model.temperature < 0.1
    with pytest.raises(ValueError, match="trained on scenes of 2 objects; got scenes of 3"):
        model.scenes(scenes.repeat(1, 2, 1)[:, :3])
    with pytest.raises(ValueError, match="trained on scenes of 2 objects; got scenes of 1"):
        model.scenes(scenes[:, :1])
    with pytest.raises(ValueError, match="4 values"):
        model.scenes(scenes + 3)


def test_a_caption_model_asks_for_values_by_the_mean_of_the_objects_that_show_them():
    config = replace(TINY, form="clip", single_share=0.25, architecture="objects")
    model = train([config]).model(0)
    scenes = TINY.space.all_objects()[torch.tensor([[0, 5], [3, 7]])]
    assert model.captions(scenes).shape == (2, 6)
    # of one object too, as it was trained on those
    assert model.captions(scenes[:, :1]).shape == model.scenes(scenes[:, :1]).shape == (2, 6)
    with pytest.raises(ValueError, match="scenes of 1 or 2 objects; got scenes of 4"):
        model.captions(scenes.repeat(1, 2, 1))
    pairs = TrainedModel(replace(config, single_share=0.0), model.parameters, model.losses)
    with pytest.raises(ValueError, match="scenes of 2 objects; got scenes of 1"):
        pairs.captions(scenes[:, :1])
    captions = model.objects(torch.arange(20))
    captions = captions / captions.norm(dim=1, keepdim=True)
    for k, first in ((0, 0), (1, 5)):
        for v in range(TINY.sizes[k]):
            shown = (TINY.space.all_objects()[:, k] == v) & config.split.is_train
            torch.testing.assert_close(model.values()[first + v], captions[shown].mean(0))


def test_watching_sees_every_so_many_steps_and_changes_nothing():
    seen = []
    models = train([TINY], watch=lambda step, m: seen.append((step, len(m.losses))), watch_every=5)
    assert seen == [(5, 5), (10, 10)]
    assert same(models.parameters, train([TINY]).parameters)


def test_a_loss_that_is_not_finite_stops_the_run():
    with pytest.raises(
        FloatingPointError, match=r"loss of model 1 \(seed 1, rate 1e\+30\) is not finite at step"
    ):
        train([TINY, replace(TINY, seed=1, rate=1e30)])


def test_intervals_below_one_are_refused():
    with pytest.raises(ValueError, match="at least 1; got 0 and 500"):
        train([TINY], checkpoint_every=0)
