"""Training a pocket CLIP: it goes on where it stopped, and follows its settings."""

import math
from dataclasses import replace

import pytest
import torch

from conceptbind.encoders import load
from conceptbind.encoders.pocket import build_pocket, read_weights
from conceptbind.training.checkpoints import CheckpointError
from conceptbind.training.pocket import MAX_LOG_SCALE, Optimiser, save_pocket, train_pocket
from conceptbind.training.pocket_data import RECIPES, PocketData

TINY = replace(RECIPES["narrow"], batch=10, steps=6, combinations=5, object_copies=1, pair_copies=1)


@pytest.fixture(scope="module")
def data():
    return PocketData(TINY, seed=4)


@pytest.fixture(scope="module")
def trained(data):
    return train_pocket(data)


def test_an_interrupted_run_ends_at_the_same_weights(data, trained, tmp_path):
    path = tmp_path / "folder" / "run.safetensors"
    told = []
    _, first = train_pocket(data, checkpoint=path, every=2, stop_after=3)
    model, losses = train_pocket(data, checkpoint=path, every=2, tell=lambda step, loss: told.append(step))
    whole, expected = trained
    assert len(first) == 3
    assert told == [3, 4, 5]
    assert losses == expected
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name]), name
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_training_starts_at_the_seed_and_moves_every_weight(data, trained):
    before = build_pocket(seed=4).state_dict()
    after = trained[0].state_dict()
    words_of_text = data.object_tokens.unique()
    for name in before:
        if name == "token_embedding.weight":
            assert not torch.equal(before[name][words_of_text], after[name][words_of_text])
        else:
            assert not torch.equal(before[name], after[name]), name
    assert trained[1][0] == pytest.approx(math.log(10), abs=0.7)  # untrained, one of ten is a guess


def test_checkpoints_of_other_settings_or_damaged_ones_are_refused(data, tmp_path):
    path = tmp_path / "run.safetensors"
    train_pocket(data, checkpoint=path, stop_after=1)
    other = PocketData(replace(TINY, steps=7), seed=4)
    with pytest.raises(CheckpointError, match="other settings or data: move it away"):
        train_pocket(other, checkpoint=path)
    content = bytearray(path.read_bytes())
    content[-300_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="checksum does not match"):
        train_pocket(data, checkpoint=path)
    path.write_bytes(content[:900])
    with pytest.raises(CheckpointError, match="is damaged"):
        train_pocket(data, checkpoint=path)


def test_the_rate_warms_up_and_follows_a_cosine():
    given = Optimiser(rate=2.0, warm_up=0.1)
    rates = [given.rate_at(step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * (i + 1) for i in range(10)])
    assert rates[10:] == pytest.approx([1 + math.cos(math.pi * i / 90) for i in range(90)])


def test_the_temperature_stays_within_open_clips_bound(trained):
    assert 0 <= trained[0].logit_scale.item() <= MAX_LOG_SCALE


def test_saved_weights_load_as_they_were_up_to_half_precision(data, trained, tmp_path):
    path = tmp_path / "mine.safetensors"
    model, losses = trained
    save_pocket(
        path, model, data, variant="narrow", steps=len(losses), command="python tools/train_pocket.py"
    )
    encoder = load(f"pocket:{path}", device="cpu")
    for name, weight in model.state_dict().items():
        assert torch.equal(encoder.model.state_dict()[name], weight.half().float()), name
    described, _ = read_weights(path, tensors=False)
    assert described["recipe"] == vars(TINY)
    assert described["seed"] == described["split_seed"] == 4
    assert described["seen_objects"] == data.split.is_train.nonzero().squeeze(1).tolist()
