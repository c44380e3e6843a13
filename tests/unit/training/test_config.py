"""Settings: what fits together, what may be trained together, and the sizes of the presets."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from conceptbind.kernels.counter_random import below, draws, key_of, mix, seed_of
from conceptbind.presets import PRESETS
from conceptbind.scenes import object_split
from conceptbind.spaces import CLEVR
from conceptbind.training.config import TrainingConfig, check_together, config_of
from conceptbind.training.jobs import model_name
from conceptbind.training.models import initialise, n_parameters


def unchecked(settings):
    """Make a configuration past beartype, which only runs in tests and refuses some settings by their type."""
    config = object.__new__(TrainingConfig)
    for name, value in (TrainingConfig().settings() | settings).items():
        object.__setattr__(config, name, value)
    config.__post_init__()
    return config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sizes": ()}, "numbers of values of one or more concepts"),
        ({"sizes": (4, 0)}, "numbers of values"),
        ({"form": "both"}, "form is one of query, clip; got 'both'"),
        ({"tokens": "short"}, "tokens is one of paper, compact"),
        ({"architecture": "lstm"}, "architecture is one of transformer"),
        ({"query_architecture": "lstm"}, "query_architecture is one of"),
        ({"repeats": "distinct values"}, "repeats is one of allowed, distinct objects"),
        ({"caption_order": "random"}, 'belong to form="clip"'),
        ({"single_share": 0.5}, 'belong to form="clip"'),
        ({"form": "clip", "single_share": 0.5, "n_objects": 1}, "one object each already"),
        ({"form": "clip", "batch": 1}, "batch is at least 2"),
        ({"dtype": "float16"}, "dtype is one of"),
        ({"batch": 0}, "batch is a whole number of at least 1"),
        ({"depth": 1.5}, "depth is a whole number"),
        ({"rate": 0.0}, "rate is a positive number"),
        ({"temperature": -1.0}, "temperature is a positive number"),
        ({"weight_decay": -0.1}, "weight_decay is a number of at least 0"),
        ({"warm_up": 1.5}, "warm_up is a share"),
        ({"width": 30}, "multiple of its heads; got width 30 and 4 heads"),
        ({"held_out_negatives": True, "swap_negatives": False}, "held_out_negatives needs swap_negatives"),
        ({"object_queries": 1}, "at least the number of objects in a scene, 2; got 1"),
        ({"coverage": 1.0}, "coverage is a share strictly between 0 and 1"),
        ({"coverage": 0.01}, "trains on 6: at least 24"),
        ({"sizes": (9,)}, r"two concepts of two or more values; got sizes \(9,\)"),
        ({"sizes": (1, 6)}, r"two concepts of two or more values; got sizes \(1, 6\)"),
        ({"sizes": (2, 2), "coverage": 0.9}, "at least one must be held out"),
        ({"sizes": 24}, "sizes are the numbers of values of one or more concepts; got 24"),
        ({"sizes": "24"}, "numbers of values of one or more concepts; got '24'"),
        ({"sizes": (4, 2.0)}, r"every one of sizes is a whole number; got 2\.0"),
        ({"sizes": (4, True)}, "every one of sizes is a whole number; got True"),
        ({"rate": True}, "rate is a number; got True"),
        ({"coverage": "0.5"}, r"coverage is a number; got '0\.5'"),
        ({"coverage": None}, "coverage is a number; got None"),
        ({"seed": 1.0}, r"seed is a whole number; got 1\.0"),
        ({"seed": False}, "seed is a whole number; got False"),
        ({"split_seed": "3"}, "split_seed is a whole number or None; got '3'"),
        ({"depth": True}, "depth is a whole number; got True"),
        ({"swap_negatives": 1}, "swap_negatives is True or False; got 1"),
        ({"sizes": (2, 2), "coverage": 0.5, "n_objects": 3}, "of 3 different ones: use a larger coverage"),
        ({"sizes": (2, 2), "coverage": 0.5, "n_objects": 4}, "of 4 different ones: use larger sizes"),
        ({"sizes": (2000, 2000, 2000)}, "fewer than 2\\*\\*31"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        unchecked(settings)
    # an error of the settings alone, not of how they were given
    assert unchecked({}) == TrainingConfig()


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("rate", 1, 1.0),
        ("weight_decay", np.float32(0.5), 0.5),
        ("weight_decay", -0.0, 0.0),
        ("linear_scale", np.int64(2), 2.0),
        ("seed", np.int64(3), 3),
        ("split_seed", np.int64(3), 3),
        ("sizes", [np.int64(6), 6], (6, 6)),
    ],
)
def test_equal_models_have_equal_settings_and_names(name, given, value):
    found, expected = unchecked({name: given}), replace(TrainingConfig(), **{name: value})
    assert found == expected
    assert json.dumps(found.settings()) == json.dumps(expected.settings())
    assert model_name(found) == model_name(expected)


def test_settings_go_through_json_and_back():
    config = TrainingConfig.of_space(CLEVR, architecture="product", split_seed=3)
    assert config.sizes == (8, 3)
    assert TrainingConfig.from_settings(json.loads(json.dumps(config.settings()))) == config
    with pytest.raises(ValueError, match=r"unknown settings \['colour'\]"):
        TrainingConfig.from_settings({"colour": 1})


def test_the_split_follows_its_own_seed_if_it_has_one():
    config = TrainingConfig(seed=1)
    for split_seed, seed in ((None, 1), (5, 5)):
        found = replace(config, split_seed=split_seed).split
        assert torch.equal(found.is_train, object_split(config.space, 0.7, seed=seed).is_train)
        assert int(found.is_train.sum()) == config.n_training_objects


def test_models_that_differ_in_a_shape_are_not_trained_together():
    config = TrainingConfig()
    check_together([config, replace(config, seed=1, coverage=0.3, rate=1.0, weight_decay=0.0)])
    with pytest.raises(
        ValueError, match="models 0 and 1 cannot be trained together, they differ in batch, width"
    ):
        check_together([config, replace(config, width=64, batch=8)])
    # one asks all its training objects, the other cannot
    with pytest.raises(ValueError, match="differ in asks_every_object"):
        check_together([replace(config, coverage=c, object_queries=300) for c in (0.5, 0.9)])
    with pytest.raises(ValueError, match="at least one TrainingConfig"):
        check_together([])


def test_presets_are_of_the_sizes_they_promise():
    assert {config_of(preset).form for preset in PRESETS} == {"query"}
    paper = config_of("paper")
    assert paper.space.n_possible_objects == 125_000
    assert (paper.width, len(paper.sizes)) == (512, 3)
    assert all(18e6 < n < 22e6 for n in n_parameters(paper).values())
    assert config_of("smoke", sizes=(5, 4)).sizes == (5, 4)
    with pytest.raises(ValueError, match="PRESET is one of"):
        config_of("huge")


@pytest.mark.parametrize("tokens", ["paper", "compact"])
@pytest.mark.parametrize("architecture", ["transformer", "objects", "additive", "product"])
def test_parameters_are_counted_as_they_are_made(architecture, tokens):
    config = config_of("smoke", architecture=architecture, tokens=tokens, depth=3)
    made = initialise([config, replace(config, seed=1)])
    counts = n_parameters(config)
    for side in ("scene", "query"):
        assert counts[side] == sum(w[0].numel() for n, w in made.items() if n.startswith(side))


# ---- random numbers that are functions of a counter


def test_mixing_a_counter_gives_the_published_outputs_of_splitmix64():
    # the first five outputs for seed 1234567, as listed for SplitMix64 at Rosetta Code
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    gamma = 0x9E3779B97F4A7C15 - 2**64
    found = mix(1234567 + torch.arange(1, 6) * gamma)
    assert [n % 2**64 for n in found.tolist()] == published


def test_a_draw_depends_on_its_key_its_step_and_its_place_only():
    keys = torch.tensor([key_of(seed, "slot 0") for seed in range(3)])
    many = draws(keys, 7, 100)
    assert torch.equal(draws(keys[1:2], 7, 20)[0], many[1, :20])
    assert not torch.equal(draws(keys, 8, 100), many)
    assert int(many.min()) >= 0
    assert int(many.max()) < 2**32
    assert len(many.unique()) > 290
    assert 0 <= seed_of(3, "weights") < 2**63


@pytest.mark.parametrize("high", [1, 2, 7, 125_000])
def test_integers_are_uniform(high):
    found = below(draws(torch.tensor([key_of(0, "x"), key_of(1, "x")]), 3, 200_000), high)
    assert int(found.min()) >= 0
    assert int(found.max()) < high
    bins = min(high, 50)
    counts = torch.bincount((found * bins // high).flatten(), minlength=bins).double()
    # chi-squared of bins - 1 degrees of freedom: mean bins - 1, variance twice that
    chi = float(((counts - 400_000 / bins) ** 2 / (400_000 / bins)).sum())
    assert abs(chi - (bins - 1)) < 5 * (2 * bins) ** 0.5
    # two streams have nothing to do with each other
    a, b = (found.double() - found.double().mean()).unbind(0)
    if high > 1:
        assert abs(float((a * b).mean() / (a.std() * b.std()))) < 5 / 200_000**0.5
