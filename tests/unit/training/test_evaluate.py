"""Judging: planted encoders whose recognition is known, and plain loops over the definitions."""

import itertools
import math
from dataclasses import dataclass, replace

import pytest
import torch

from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, ObjectSplit, SceneKind, object_split
from conceptbind.training import evaluate as module
from conceptbind.training import judged
from conceptbind.training.config import config_of
from conceptbind.training.evaluate import KINDS, MEASURES, evaluate, evaluate_encoders
from conceptbind.training.judged import judged_scenes, swapped_objects, swapped_scenes
from conceptbind.training.run import train

SPACE = ConceptSpace.of_sizes(5, 4)
SPLIT = object_split(SPACE, 0.5, seed=0)


@dataclass
class Tables:
    """Scenes are sums of object vectors; queries are tables, and captions too."""

    space: ConceptSpace
    of_scenes: torch.Tensor
    of_queries: torch.Tensor
    of_values: torch.Tensor
    of_captions: torch.Tensor | None = None

    def scenes(self, scenes):
        return self.of_scenes[self.space.object_index(scenes)].sum(1)

    def objects(self, index):
        return self.of_queries[index]

    def values(self):
        return self.of_values

    def captions(self, scenes):
        if self.of_captions is None:
            return None
        return self.of_captions[self.space.object_index(scenes)].sum(1)


def planted(kind, *, dim=256, space=SPACE, split=SPLIT, captions=False, strength=1.0):
    p = planted_encoders(space, kind, dim=dim, seed=0, split=split, strength=strength)
    captioned = p.query_objects if captions else None
    return Tables(space, p.scene_objects, p.query_objects, p.query_values, captioned)


def shares(evaluation, measure):
    return [evaluation.of(measure, kind).accuracy for kind in KINDS]


# ---- planted encoders


def test_an_additive_encoder_knows_concepts_and_ties_on_objects():
    found = evaluate_encoders(planted("additive"), SPLIT, n_objects=2)
    assert shares(found, "concepts") == [1, 1, 1]
    for kind in KINDS:
        assert found.of("swap", kind).accuracy == 0
        assert found.of("swap", kind).ties == 1
        # scenes of two objects that share a value have no other pair to be taken for, and only those
        index = judged_scenes(SPLIT, kind, 2, 4096, seed=0)
        sharing = float((index[:, 0] == index[:, 1]).any(1).double().mean())
        assert found.of("objects", kind).accuracy == pytest.approx(sharing)
        assert found.of("objects", kind).ties == pytest.approx(1 - sharing)
        assert found.of("swap", kind).n_vacuous == round(sharing * len(index))


def test_a_table_of_all_objects_knows_everything():
    found = evaluate_encoders(planted("memorised", split=None, captions=True), SPLIT, n_objects=2)
    for measure in ("objects", "swap", "sampled", "caption"):
        assert shares(found, measure) == [1, 1, 1]


def test_a_table_of_training_objects_knows_nothing_of_others():
    found = evaluate_encoders(planted("memorised", dim=1024), SPLIT, n_objects=2)
    assert found.of("objects", SceneKind.TRAIN).accuracy == 1
    assert found.of("objects", SceneKind.HELD_OUT).accuracy < 0.1
    assert found.of("swap", SceneKind.TRAIN).accuracy == 1
    assert found.of("swap", SceneKind.HELD_OUT).accuracy < 0.5


def test_a_product_encoder_binds_three_objects_of_three_concepts():
    space = ConceptSpace.of_sizes(4, 3, 3)
    split = object_split(space, 0.5, seed=1)
    # a wrong object of values that all three objects show gets 9 from them, a right one 3 and strength squared
    encoders = planted("product", dim=4096, space=space, split=split, strength=4.0)
    found = evaluate_encoders(encoders, split, n_objects=3, n_scenes=200)
    assert shares(found, "concepts") == [1, 1, 1]
    assert min(shares(found, "objects")) > 0.98
    assert min(shares(found, "swap")) > 0.98


# ---- against the definitions


def noisy(captions=False):
    g = torch.Generator().manual_seed(3)
    tables = [torch.randn(n, 12, generator=g).double() for n in (20, 20, 9, 20)]
    tables[1] = tables[0] + 0.6 * tables[1]
    shown = torch.cat([torch.nn.functional.one_hot(SPACE.all_objects()[:, k]) for k in range(2)], 1)
    tables[2] = shown.T.double() @ tables[0] + tables[2]
    tables[3] = tables[0] + 2 * tables[3]
    return Tables(SPACE, tables[0], tables[1], tables[2], tables[3] if captions else None)


def loop(encoders, scenes, measure):
    """Accuracy, mean chance and number of scenes counted, scene by scene."""
    right, chances = [], []
    for scene in scenes:
        z = encoders.scenes(scene[None])[0]
        own = {tuple(o) for o in scene.tolist()}

        def score(q, z=z):
            return float(z @ q / (z.norm() * q.norm()))

        def of_object(o):
            return score(encoders.of_queries[int(SPACE.object_index(torch.tensor(o)))])

        pair = scene.tolist()
        swaps = [{(pair[1][0], pair[0][1]), (pair[0][0], pair[1][1])}]
        if measure == "concepts":
            margin, chance = math.inf, 1.0
            for k, first in ((0, 0), (1, 5)):
                present = {o[k] for o in own}
                scores = [score(encoders.of_values[first + v]) for v in range(SPACE.n_values[k])]
                absent = [s for v, s in enumerate(scores) if v not in present]
                margin = min(margin, min(scores[v] for v in present) - max(absent))
                chance /= math.comb(SPACE.n_values[k], len(present))
            right.append(margin > 0)
            chances.append(chance)
            continue
        if measure == "objects":
            others = {tuple(o) for o in SPACE.all_objects().tolist()} - own
        elif measure.startswith("swap"):
            others = swaps[0] - own
            seen = [
                sum(bool(SPLIT.is_train[SPACE.object_index(torch.tensor(o))]) for o in p)
                for p in (pair, list(swaps[0]))
            ]
            if measure == "swap alike" and len(own) == len(swaps[0]) == 2 and seen[0] != seen[1]:
                continue
        if measure == "caption":
            if swaps[0] == own:
                continue
            caption = encoders.captions(scene[None])[0]
            other = encoders.captions(torch.tensor([list(map(list, swaps[0]))]))[0]
            right.append(score(caption) > score(other))
            chances.append(1 / 2)
        elif others:
            right.append(min(map(of_object, own)) > max(map(of_object, others)))
            chances.append(1 / math.comb(len(own | others), len(own)))
    return sum(right) / len(right), sum(chances) / len(chances), len(right)


@pytest.mark.parametrize("measure", ["concepts", "objects", "swap", "swap alike", "caption"])
@pytest.mark.parametrize("repeats", ["distinct objects", "allowed"])
def test_measures_are_their_definitions(measure, repeats, monkeypatch):
    encoders = noisy(captions=True)
    accuracies = []
    for size in (2**24, 2000):  # all objects at a time, or a few
        monkeypatch.setattr(module, "MAX_SCORES", size)
        found = evaluate_encoders(encoders, SPLIT, n_objects=2, repeats=repeats, n_scenes=70)
        for kind in KINDS:
            scenes = judged_scenes(SPLIT, kind, 2, 70, seed=0, repeats=repeats)
            accuracy, chance, n = loop(encoders, scenes, measure)
            r = found.of(measure, kind)
            assert r.accuracy == pytest.approx(accuracy)
            assert r.chance == pytest.approx(chance)
            assert r.n_scenes == n
            accuracies.append(accuracy)
    assert any(0 < a < 1 for a in accuracies)


def test_the_sample_is_of_objects_of_the_same_kind_of_scenes():
    encoders = noisy()
    # with as many as there are, a sampled query is every object that occurs in scenes of the kind
    found = evaluate_encoders(encoders, SPLIT, n_objects=2, n_sampled=20)
    for kind in (SceneKind.TRAIN, SceneKind.HELD_OUT):
        pool = (SPLIT.is_train == (kind == SceneKind.TRAIN)).nonzero().flatten().tolist()
        right, chances = [], []
        for scene in judged_scenes(SPLIT, kind, 2, 4096, seed=0):
            z = encoders.scenes(scene[None])[0]
            scores = torch.nn.functional.normalize(encoders.of_queries) @ z
            own = set(SPACE.object_index(scene).tolist())
            swapped = SPACE.object_index(swapped_objects(scene[None])[0]).flatten().tolist()
            others = (set(pool) | set(swapped)) - own
            right.append(min(scores[list(own)]) > max(scores[list(others)]))
            chances.append(1 / math.comb(len(own | others), len(own)))
        assert found.of("sampled", kind).accuracy == pytest.approx(sum(right) / len(right))
        assert found.of("sampled", kind).chance == pytest.approx(sum(chances) / len(chances))
    fewer = evaluate_encoders(encoders, SPLIT, n_objects=2, n_sampled=3)
    for kind in KINDS:
        assert fewer.of("sampled", kind).accuracy >= found.of("sampled", kind).accuracy
        assert fewer.of("sampled", kind).chance > found.of("sampled", kind).chance


def test_a_row_holds_every_measure_of_every_kind():
    row = evaluate_encoders(noisy(), SPLIT, n_objects=2).row()
    assert len(row) == len(MEASURES) * len(KINDS) * 6
    assert row["objects_held_out"] is not None
    assert row["objects_held_out_low"] <= row["objects_held_out"] <= row["objects_held_out_high"]
    assert row["objects_held_out_chance"] == pytest.approx(1 / math.comb(20, 2))
    assert row["caption_train"] is None
    assert row["caption_train_n"] == 0


def test_kinds_without_scenes_are_left_out():
    split = ObjectSplit(SPACE, torch.arange(20) != 7)
    found = evaluate_encoders(noisy(), split, n_objects=2)
    assert found.of("objects", SceneKind.HELD_OUT) is None
    assert found.row()["objects_held_out"] is None
    assert found.of("objects", SceneKind.MIXED).n_scenes == 2 * 19
    # a single held-out object still makes scenes where it may be repeated, or is alone
    single = evaluate_encoders(noisy(), split, n_objects=1)
    assert single.of("objects", SceneKind.HELD_OUT).n_scenes == 1
    assert single.of("swap", SceneKind.TRAIN).n_scenes == 0
    assert single.of("objects", SceneKind.MIXED) is None


def test_wrong_questions_are_refused():
    found = evaluate_encoders(noisy(), SPLIT, n_objects=2)
    with pytest.raises(ValueError, match="measure is one of concepts, objects"):
        found.of("retrieval", SceneKind.TRAIN)
    broken = noisy()
    broken.of_queries[3] = math.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        evaluate_encoders(broken, SPLIT, n_objects=2)
    with pytest.raises(ValueError, match="n_objects and n_scenes are at least 1"):
        judged_scenes(SPLIT, SceneKind.TRAIN, 0, 5, seed=0)


# ---- a trained model


def test_a_trained_model_knows_the_scenes_it_was_trained_on():
    found = evaluate(train([config_of("smoke", rate=5e-3, n_steps=200, batch=64)]).model(0))
    assert found.of("concepts", SceneKind.TRAIN).accuracy > 0.95
    assert found.of("objects", SceneKind.TRAIN).accuracy > 0.9


def test_a_bag_of_concepts_cannot_learn_to_bind():
    config = config_of("smoke", architecture="additive", query_architecture="objects", rate=2e-2)
    found = evaluate(train([config]).model(0))
    assert found.of("concepts", SceneKind.TRAIN).accuracy > 0.9
    # it may know which objects there are, and so tell a training object from one that was held out
    assert found.of("swap", SceneKind.TRAIN).accuracy > 0.3
    assert found.of("swap alike", SceneKind.TRAIN).accuracy < 0.5
    assert found.of("swap", SceneKind.HELD_OUT).accuracy < 0.2


# ---- scenes to judge on


def every_scene(split, kind, n_objects, repeats):
    found = set()
    for index in itertools.product(range(split.space.n_possible_objects), repeat=n_objects):
        seen = {bool(split.is_train[i]) for i in index}
        same = {
            SceneKind.TRAIN: seen == {True},
            SceneKind.HELD_OUT: seen == {False},
            SceneKind.MIXED: len(seen) == 2,
        }[kind]
        if same and (repeats == "allowed" or len(set(index)) == n_objects):
            found.add(index)
    return found


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "drawn"])
@pytest.mark.parametrize("repeats", ["allowed", "distinct objects"])
@pytest.mark.parametrize("n_objects", [1, 2, 3])
def test_all_scenes_of_a_kind_are_found_or_a_sample_of_them(n_objects, repeats, listed, monkeypatch):
    if not listed:
        monkeypatch.setattr(judged, "MAX_LISTED", 0)
    space = ConceptSpace.of_sizes(3, 2)
    split = object_split(space, 0.5, seed=2)
    for kind in KINDS:
        expected = every_scene(split, kind, n_objects, repeats)
        scenes = judged_scenes(split, kind, n_objects, 1000, seed=0, repeats=repeats)
        assert sorted(map(tuple, space.object_index(scenes).tolist())) == sorted(expected)
        if len(expected) > 4:
            some = judged_scenes(split, kind, n_objects, 4, seed=0, repeats=repeats)
            index = set(map(tuple, space.object_index(some).tolist()))
            assert len(index) == 4
            assert index < expected
            assert torch.equal(some, judged_scenes(split, kind, n_objects, 4, seed=0, repeats=repeats))
            assert not torch.equal(some, judged_scenes(split, kind, n_objects, 4, seed=1, repeats=repeats))


def test_scenes_that_are_drawn_are_equally_likely(monkeypatch):
    monkeypatch.setattr(judged, "MAX_LISTED", 0)
    space = ConceptSpace.of_sizes(3, 2)
    split = object_split(space, 0.7, seed=2)
    expected = every_scene(split, SceneKind.MIXED, 3, "distinct objects")
    counts = dict.fromkeys(expected, 0)
    n = 400
    for seed in range(n):
        scenes = judged_scenes(split, SceneKind.MIXED, 3, 10, seed=seed)
        for index in map(tuple, space.object_index(scenes).tolist()):
            counts[index] += 1
    mean = 10 * n / len(expected)
    # draws of one call differ from each other, which only makes counts more equal
    assert (
        sum((c - mean) ** 2 / mean for c in counts.values()) < len(expected) + 5 * (2 * len(expected)) ** 0.5
    )


def test_many_objects_are_judged_without_listing_scenes():
    space = ConceptSpace.of_sizes(50, 50, 50)
    split = object_split(space, 0.4, seed=0)
    for kind in KINDS:
        scenes = judged_scenes(split, kind, 2, 300, seed=0)
        assert scenes.shape == (300, 2, 3)
        assert set(split.kinds(scenes).tolist()) == {int(kind)}


@pytest.mark.parametrize(
    ("sizes", "n_objects", "n_swaps"), [((5, 4), 2, 1), ((5, 4), 3, 3), ((3, 2, 4), 2, 3)]
)
def test_swaps_are_all_exchanges_that_give_other_objects(sizes, n_objects, n_swaps):
    space = ConceptSpace.of_sizes(*sizes)
    g = torch.Generator().manual_seed(0)
    scenes = torch.stack([torch.randint(v, (50, n_objects), generator=g) for v in sizes], 2)
    pairs, whole = swapped_objects(scenes), swapped_scenes(scenes)
    assert pairs.shape == (50, n_swaps, 2, len(sizes))
    assert whole.shape == (50, n_swaps, n_objects, len(sizes))
    for scene, after, full in zip(scenes.tolist(), pairs.tolist(), whole.tolist(), strict=True):
        expected = set()
        for i, j in itertools.combinations(range(n_objects), 2):
            for k in range(len(sizes)):
                new = [list(o) for o in scene]
                new[i][k], new[j][k] = scene[j][k], scene[i][k]
                expected.add(tuple(sorted(map(tuple, new))))
        assert {tuple(sorted(map(tuple, f))) for f in full} == expected
        for two, f in zip(after, full, strict=True):
            assert all(o in f for o in two)
    assert space.n_concepts == len(sizes)


def test_one_object_or_one_concept_has_no_swap():
    scenes = torch.zeros(3, 1, 2, dtype=torch.int64)
    assert swapped_objects(scenes).shape == (3, 0, 2, 2)
    assert swapped_scenes(scenes).shape == (3, 0, 1, 2)
    assert swapped_objects(torch.zeros(3, 2, 1, dtype=torch.int64)).shape == (3, 0, 2, 1)


def test_a_caption_model_is_judged_on_captions_too():
    config = config_of("smoke", form="clip", single_share=0.25, caption_order="random", rate=5e-3, batch=64)
    found = evaluate(train([replace(config, n_steps=150)]).model(0), n_scenes=500)
    for kind in KINDS:
        assert found.of("caption", kind).chance == pytest.approx(0.5)
    assert found.of("caption", SceneKind.TRAIN).accuracy > 0.9
    assert found.of("concepts", SceneKind.TRAIN).accuracy > 0.5
