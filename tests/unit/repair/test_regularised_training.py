"""Training a pocket CLIP with the regulariser: it knows every caption's objects, and weight 0 is plain training."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conceptbind.encoders.pocket_words import tokenise
from conceptbind.scenes import captions
from conceptbind.spaces import POCKET
from conceptbind.training.pocket_data import RECIPES, PocketData

pytest.importorskip("open_clip")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
regularised = importlib.import_module("regularised")
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
