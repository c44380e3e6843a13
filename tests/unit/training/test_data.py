"""Scenes, queries, soft targets and swaps against plain loops over their definitions."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from conceptbind.training.config import TrainingConfig
from conceptbind.training.data import Data

SMALL = TrainingConfig(sizes=(5, 4), coverage=0.5, batch=64, width=8, n_heads=2, feed_forward=8, dim=8)
VARIANTS = {
    "every object": {},
    "held out too": {"held_out_negatives": True},
    "some objects": {"object_queries": 8},
    "others as well": {"object_queries": 140, "sizes": (20, 15), "coverage": 0.9, "batch": 32},
    "some, held out too": {"object_queries": 8, "held_out_negatives": True},
    "some, without swaps": {"object_queries": 8, "swap_negatives": False},
    "three objects": {"n_objects": 3, "object_queries": 9},
    "three concepts": {"sizes": (3, 4, 2), "repeats": "allowed"},
    "one object": {"n_objects": 1, "object_queries": 6},
    "repeats": {"repeats": "allowed", "sizes": (2, 2), "coverage": 0.5, "n_objects": 3},
}


@pytest.fixture(params=VARIANTS, scope="module")
def config(request):
    return replace(SMALL, **VARIANTS[request.param])


def models(config, n=3):
    return [replace(config, seed=s, coverage=config.coverage - 0.05 * (s % 2)) for s in range(n)]


def together(config):
    found = models(config)
    return found if len({c.asks_every_object for c in found}) == 1 else found[::2]


def test_scenes_are_made_of_training_objects_and_repeat_none_unless_allowed(config):
    configs = together(config)
    data = Data(configs)
    for step in range(5):
        batch = data.query_batch(step)
        for m, c in enumerate(configs):
            index = c.space.object_index(batch.scenes[m])
            assert bool(c.split.is_train[index].all())
            if c.repeats == "distinct objects":
                assert all(len(set(row)) == c.n_objects for row in index.tolist())


def test_queries_are_asked_once_and_held_out_ones_only_where_allowed(config):
    configs = together(config)
    data = Data(configs)
    n_held_out = 0
    for step in range(5):
        batch = data.query_batch(step)
        for m, c in enumerate(configs):
            asked = batch.objects[m][batch.asked[m]].tolist()
            assert len(set(asked)) == len(asked)
            seen = c.split.is_train[asked]
            n_held_out += int((~seen).sum())
            if c.asks_every_object:
                assert set(c.split.is_train.nonzero().flatten().tolist()) <= set(asked)
            else:
                n_scenes = min(c.batch, c.object_queries // c.n_objects)
                first = c.space.object_index(batch.scenes[m, :n_scenes]).flatten().tolist()
                assert set(first) <= set(asked)
                assert len(asked) <= c.object_queries + (2 * n_scenes if c.swaps else 0)
    assert (n_held_out > 0) == (config.held_out_negatives and config.n_objects > 1)


def test_soft_targets_share_the_mass_among_the_objects_of_a_scene(config):
    configs = together(config)
    batch = Data(configs).query_batch(2)
    for m, c in enumerate(configs):
        asked = {int(o) for o, a in zip(batch.objects[m], batch.asked[m], strict=True) if a}
        for scene, columns, weights in zip(
            batch.scenes[m], batch.columns[m], batch.weights[m].tolist(), strict=True
        ):
            true = {int(c.space.object_index(o)) for o in scene} & asked
            mass = Counter()
            for column, weight in zip(columns.tolist(), weights, strict=True):
                if weight:
                    assert bool(batch.asked[m, column])
                    mass[int(batch.objects[m, column])] += weight
            assert set(mass) == true
            assert all(w == pytest.approx(1 / len(true)) for w in mass.values())


def test_a_model_meets_the_same_data_alone_and_with_others(config):
    configs = together(config)
    data = Data(configs)
    for step in (0, 3):
        batch = data.query_batch(step)
        for m, c in enumerate(configs):
            alone = Data([c]).query_batch(step)
            assert torch.equal(alone.scenes[0], batch.scenes[m])
            assert torch.equal(alone.weights[0], batch.weights[m])
            assert torch.equal(alone.objects[0][alone.asked[0]], batch.objects[m][batch.asked[m]])


def test_steps_and_seeds_differ():
    data = Data(models(SMALL, 2))
    a, b = data.query_batch(0).scenes, data.query_batch(1).scenes
    assert not torch.equal(a, b)
    assert not torch.equal(a[0], a[1])


def test_all_scenes_of_training_objects_are_equally_likely():
    config = replace(SMALL, sizes=(3, 2), coverage=0.7, batch=4000)
    data = Data([config])
    counts = Counter()
    for step in range(6):
        index = config.space.object_index(data.query_batch(step).scenes[0])
        counts.update(map(tuple, index.tolist()))
    assert len(counts) == 4 * 3
    expected = 24_000 / 12
    assert sum((n - expected) ** 2 / expected for n in counts.values()) < 11 + 5 * 22**0.5


def exchanged(scene):
    """All scenes that come from exchanging one concept's value between two slots."""
    found = set()
    for i in range(len(scene)):
        for j in range(i):
            for k in range(len(scene[0])):
                new = [list(o) for o in scene]
                new[i][k], new[j][k] = scene[j][k], scene[i][k]
                found.add(tuple(map(tuple, new)))
    return found


@pytest.mark.parametrize("n_objects", [2, 3])
def test_a_swap_exchanges_one_value_between_two_objects(n_objects):
    config = replace(
        SMALL,
        sizes=(5, 4, 3),
        n_objects=n_objects,
        form="clip",
        held_out_negatives=True,
        caption_order="random",
    )
    batch = Data([config]).caption_batch(0)
    kinds = Counter()
    for scene, swapped in zip(batch.captions[0].tolist(), batch.swapped[0].tolist(), strict=True):
        assert tuple(map(tuple, swapped)) in exchanged(scene)
        kinds.update((i, k) for i in range(n_objects) for k in range(3) if swapped[i][k] != scene[i][k])
    assert len(kinds) == 3 * n_objects
    assert bool(batch.asked.all())


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("sizes", [(5, 4), (5, 4, 3)])
def test_in_order_no_caption_of_the_same_objects_is_asked(sizes, held_out):
    config = replace(SMALL, sizes=sizes, form="clip", held_out_negatives=held_out, coverage=0.8, batch=256)
    batch = Data([config]).caption_batch(0)
    wrong = Counter()
    for scene, swapped, asked in zip(
        batch.captions[0].tolist(), batch.swapped[0].tolist(), batch.asked[0].tolist(), strict=True
    ):
        others = sorted(scene) != sorted(swapped)
        seen = config.split.is_train[config.space.object_index(torch.tensor(swapped))]
        assert asked == (others and (held_out or bool(seen.all())))
        wrong[scene == swapped, others] += 1
    # there are the same caption, the same objects in another order, and other objects
    assert set(wrong) == {(True, False), (False, True)} | ({(False, False)})


def test_swapped_queries_are_those_of_the_scenes_asked_about():
    config = replace(SMALL, object_queries=8, held_out_negatives=True)
    batch = Data([config]).query_batch(0)
    asked = {tuple(config.space.objects_from_index(o).tolist()) for o in batch.objects[0][batch.asked[0]]}
    scenes = [[tuple(o) for o in scene] for scene in batch.scenes[0, :4].tolist()]
    own = {o for scene in scenes for o in scene}
    # with two concepts both exchanges give the same two objects
    swaps = {o for scene in scenes for o in next(iter(exchanged(scene)))}
    assert asked == own | swaps


def test_captions_name_the_same_objects_and_swapped_ones_no_held_out_object():
    config = replace(SMALL, form="clip", single_share=0.25, caption_order="random", n_objects=3)
    batch = Data([config]).caption_batch(1)
    assert batch.singles.shape == (1, 16, 1, 2)
    assert batch.scenes.shape == (1, 48, 3, 2)
    shown = config.space.object_index(batch.scenes[0])
    named = config.space.object_index(batch.captions[0])
    assert torch.equal(shown.sort(1).values, named.sort(1).values)
    assert not torch.equal(shown, named)
    seen = config.split.is_train[config.space.object_index(batch.swapped[0])].all(1)
    assert torch.equal(batch.asked[0], seen)
    in_order = Data([replace(config, caption_order="scene")]).caption_batch(1)
    assert torch.equal(in_order.captions, in_order.scenes)
    assert not Data([replace(config, swap_negatives=False)]).caption_batch(1).swapped.numel()
