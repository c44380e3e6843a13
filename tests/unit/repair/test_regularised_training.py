"""Pocket CLIPs trained with the regulariser, which knows every caption's objects; texts against locked pictures."""

import importlib
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conceptbind.encoders.pocket import PREPROCESSING, build_pocket, read_weights, weights_file
from conceptbind.encoders.pocket_words import tokenise
from conceptbind.repair.regulariser import BindingRegulariser
from conceptbind.scenes import captions
from conceptbind.spaces import POCKET
from conceptbind.training.pocket_data import RECIPES, PocketData

pytest.importorskip("open_clip")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
locked, regularised = (importlib.import_module(name) for name in ("locked", "regularised"))
FEW = replace(RECIPES["narrow"], object_copies=2, pair_copies=1, batch=20)


def test_objects_are_those_that_the_captions_name():
    data = PocketData(FEW, seed=0)
    for step in range(3):
        batch = data.batch(step)
        objects = regularised.objects_of(data, batch.tokens)
        single, pairs = objects[: batch.n_single], objects[batch.n_single :]
        assert bool((single[:, 1] == -1).all())
        assert torch.equal(tokenise(captions(POCKET, single[:, :1])), batch.tokens[: batch.n_single])
        orders = [tokenise(captions(POCKET, scenes)) for scenes in (pairs, pairs.flip(1))]
        named = [(o == batch.tokens[batch.n_single :]).all(1) for o in orders]
        assert bool((named[0] | named[1]).all())


def test_only_the_regulariser_makes_a_difference(monkeypatch):
    monkeypatch.setitem(regularised.RECIPES, "narrow", FEW)
    runs = [regularised.train_regularised("narrow", weight=w, steps=2, seed=0) for w in (0.0, 0.0, 0.5)]
    weights = [torch.cat([p.detach().flatten() for p in model.parameters()]) for model, *_ in runs]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    plain, _, with_terms = (terms for *_, terms in runs)
    assert plain == {"form": None, "choice": None}
    assert with_terms["form"] > 0
    assert with_terms["choice"] > 0


def test_locked_pictures_stay_those_of_the_model_that_binds(monkeypatch):
    monkeypatch.setitem(locked.RECIPES, "narrow", FEW)
    model, _ = locked.train_locked(steps=1, seed=0)
    _, broad = read_weights(weights_file("broad"))
    start, found = build_pocket(seed=100).state_dict(), model.state_dict()
    visual = [name for name in found if name.startswith("visual.")]
    assert all(torch.equal(found[name], broad[name].float()) for name in visual)
    for name in ("token_embedding.weight", "text_projection"):
        assert not torch.equal(found[name], broad[name].float())
        assert not torch.equal(found[name], start[name])


def test_the_three_lines_of_the_docstring_run_with_open_clip():
    from open_clip.loss import ClipLoss

    text = textwrap.dedent(BindingRegulariser.__doc__.partition("::\n")[2].partition("``dim``")[0]).strip()
    lines = text.splitlines()
    assert len(lines) == 3
    model = build_pocket(seed=0)
    data = PocketData(FEW, seed=0)
    batch = data.batch(0)
    names = {
        "BindingRegulariser": lambda dim, n_values: BindingRegulariser(128, n_values),
        "model": model,
        "clip_loss": ClipLoss(),
        "pictures": PREPROCESSING.normalise(batch.pictures),
        "tokens": batch.tokens,
        "objects": regularised.objects_of(data, batch.tokens),
    }
    exec(text, names)
    plain = ClipLoss()(names["images"], names["texts"], names["scale"])
    assert float(names["loss"].detach()) > float(plain.detach())
    names["loss"].backward()
    assert all(p.grad is not None for p in names["binding"].parameters())
