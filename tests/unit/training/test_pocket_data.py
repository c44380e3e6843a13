"""What the pocket CLIPs are trained on: long tails, fair coins, twins in the batch."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from conceptbind.encoders.pocket_words import words
from conceptbind.scenes import factorial_scenes, object_split
from conceptbind.spaces import POCKET
from conceptbind.training.pocket_data import RECIPES, PocketData, frequencies, left_slots, swap_colours, twins

FEW = {"object_copies": 2, "pair_copies": 2}


@pytest.fixture(scope="module")
def made():
    return {name: PocketData(replace(recipe, **FEW), seed=0) for name, recipe in RECIPES.items()}


def read(batch):
    """Give the objects that every caption names, in its order."""
    return [[tuple(phrase.split()[1:]) for phrase in text.split(" and ")] for text in words(batch.tokens)]


def named(objects):
    colours, shapes = POCKET.values
    return [(colours[c], shapes[s]) for c, s in objects.tolist()]


def test_zipf_frequencies_follow_the_rank():
    found = frequencies(4, 1.0)
    torch.testing.assert_close(found, torch.tensor([12, 6, 4, 3], dtype=torch.float64) / 25)
    torch.testing.assert_close(frequencies(5, 0.0), torch.full((5,), 0.2, dtype=torch.float64))


def test_twins_equal_a_search_over_all_pairs():
    seen = object_split(POCKET, 0.6, seed=2).train_objects
    pairs = seen[torch.combinations(torch.arange(len(seen)))]
    found = twins(pairs).tolist()
    sets = [frozenset(tuple(o) for o in pair) for pair in pairs.tolist()]
    for pair, row in zip(pairs.tolist(), found, strict=True):
        (c1, s1), (c2, s2) = pair
        twin = frozenset([(c2, s1), (c1, s2)])
        expected = sets.index(twin) if twin in sets and c1 != c2 and s1 != s2 else -1
        assert row == expected
    assert sum(row >= 0 for row in found) > 50


def test_swapping_colours_twice_gives_the_scene():
    scenes = factorial_scenes(POCKET, 2)[::7]
    assert torch.equal(swap_colours(swap_colours(scenes)), scenes)
    assert swap_colours(torch.tensor([[[0, 1], [2, 3]]])).tolist() == [[[2, 1], [0, 3]]]


@pytest.mark.parametrize("name", list(RECIPES))
def test_batches_hold_seen_objects_in_the_shares_of_the_recipe(made, name):
    data, recipe = made[name], RECIPES[name]
    seen = set(named(data.split.train_objects))
    for step in range(5):
        batch = data.batch(step)
        rows = read(batch)
        assert len(rows) == len(batch.pictures) == recipe.batch
        assert [len(row) for row in rows] == [1] * batch.n_single + [2] * (recipe.batch - batch.n_single)
        assert {o for row in rows for o in row} <= seen
    assert math.isclose(1 - batch.n_single / recipe.batch, recipe.two_objects, abs_tol=1 / recipe.batch)


def test_a_batch_depends_on_its_step_and_seed_alone(made):
    data = made["narrow"]
    one, again, next_ = data.batch(7), data.batch(7), data.batch(8)
    assert torch.equal(one.tokens, again.tokens)
    assert torch.equal(one.pictures, again.pictures)
    assert not torch.equal(one.tokens, next_.tokens)


def test_pictures_show_what_their_captions_name(made):
    """Colours are exact inside a shape: the caption's must be there, and the others' absent."""
    data = made["broad"]
    batch = data.batch(3)
    for picture, row in zip(batch.pictures, read(batch), strict=True):
        for colour, rgb in data.renderer.colours.items():
            there = (picture == torch.tensor(rgb, dtype=torch.uint8)[:, None, None]).all(0).sum() > 20
            assert bool(there) == (colour in {c for c, _ in row})


def leftmost(data, picture, row):
    """Say whether the object named first lies left of the other, by the mean place of its colour."""
    places = []
    for colour, _ in row:
        rgb = torch.tensor(data.renderer.colours[colour], dtype=torch.uint8)[:, None, None]
        places.append((picture == rgb).all(0).nonzero()[:, 1].double().mean())
    return places[0] < places[1]


def lefts(data, n_steps):
    found = []
    for step in range(n_steps):
        batch = data.batch(step)
        rows = list(zip(batch.pictures, read(batch), strict=True))[batch.n_single :]
        found += [bool(leftmost(data, p, row)) for p, row in rows if row[0][0] != row[1][0]]
    return found


def test_which_object_is_left_says_nothing_about_which_is_named_first(made):
    found = lefts(made["broad"], 12)
    n = len(found)
    assert n > 700
    assert abs(sum(found) / n - 0.5) < 4 * 0.5 / math.sqrt(n)


def test_in_the_ordered_variant_the_left_object_is_named_first(made):
    found = lefts(made["ordered"], 3)
    # centres that differ by less than a pixel may round the other way
    assert sum(found) / len(found) > 0.97


def test_left_slots_are_those_of_the_layout(made):
    data = made["ordered"]
    found = left_slots(data.renderer, data.pairs[:20], 2)
    for pair, row in zip(data.pairs[:20], found.tolist(), strict=True):
        for copy, left in enumerate(row):
            centres, _ = data.renderer.layout(pair, copy=copy)
            assert centres[left, 0] <= centres[1 - left, 0]


def test_narrow_has_few_combinations_and_the_long_tail_that_it_claims(made):
    data = made["narrow"]
    assert len(data.pairs) == RECIPES["narrow"].combinations < 0.2 * math.comb(len(data.objects), 2)
    singles, pairs = Counter(), Counter()
    for step in range(400):
        batch = data.batch(step)
        for row in read(batch):
            (singles if len(row) == 1 else pairs)[tuple(sorted(row))] += 1
    for counts, ranked in ((singles, data.objects), (pairs, data.pairs)):
        total = counts.total()
        harmonic = sum(1 / r for r in range(1, len(ranked) + 1))
        for rank, scene in enumerate(ranked[:8], start=1):
            share = counts[tuple(sorted(named(scene)))] / total
            expected = 1 / rank / harmonic
            assert abs(share - expected) < 4 * math.sqrt(expected / total)


def test_broad_shows_all_pairs_of_seen_objects_equally_often(made):
    data = made["broad"]
    counts = Counter()
    for step in range(100):
        batch = data.batch(step)
        counts.update(frozenset(row) for row in read(batch)[batch.n_single :])
    n_pairs = math.comb(len(data.objects), 2)
    assert len(counts) == n_pairs == len(data.pairs)
    # a scene and its twin are drawn together, so the variance is at most twice the independent one
    spread = sum((counts[k] - counts.total() / n_pairs) ** 2 for k in counts) / n_pairs
    assert spread < 3 * counts.total() / n_pairs


def test_twins_are_in_the_batch_of_broad_and_by_chance_only_elsewhere(made):
    def share(data):
        with_twin = total = 0
        for step in range(30):
            batch = data.batch(step)
            rows = read(batch)[batch.n_single :]
            there = {frozenset(row) for row in rows}
            for (c1, s1), (c2, s2) in rows[: len(rows) // 2]:
                twin = frozenset([(c2, s1), (c1, s2)])
                if c1 != c2 and s1 != s2 and all(o in seen for o in twin):
                    total += 1
                    with_twin += twin in there
        return with_twin / total

    seen = set(named(made["broad"].split.train_objects))
    assert share(made["broad"]) == 1
    without = PocketData(replace(RECIPES["broad"], twins=False, **FEW), seed=0)
    assert share(without) < 0.4
