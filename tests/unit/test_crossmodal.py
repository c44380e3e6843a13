import math

import pytest
import torch

from conceptbind.analysis.crossmodal import (
    CUTOFFS,
    IMAGE_TO_TEXT,
    TEXT_TO_IMAGE,
    cross_modal,
    same_scene_index,
    swap_concept,
    two_way,
)
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.retrieval import TIE_ULPS
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, ObjectSplit, factorial_scenes, object_split

SPACE = ConceptSpace.of_sizes(4, 3)
SCENES = factorial_scenes(SPACE, 2)
DISTINCT = factorial_scenes(SPACE, 2, repeats="distinct values")
DIRECTIONS = (IMAGE_TO_TEXT, TEXT_TO_IMAGE)


def embedded(vectors, scenes=SCENES):
    return EmbeddingSet(vectors, scenes, SPACE)


def random_set(seed, scenes=SCENES, dim=16):
    return embedded(torch.randn(len(scenes), dim, generator=torch.Generator().manual_seed(seed)), scenes)


def planted(kind, scenes=SCENES, seed=0):
    return embedded(planted_encoders(SPACE, kind, dim=256, seed=seed).scenes(scenes), scenes)


def shuffled(data, seed):
    order = torch.randperm(data.n_scenes, generator=torch.Generator().manual_seed(seed))
    return data.subset(order)


def objects_of(scene):
    return sorted(tuple(o) for o in scene.tolist())


def slow(images, texts, k=(1, 5, 10)):
    """Judge every picture by loops over plain numbers: two-way, reverse recall and recall, objects unordered."""
    a = torch.nn.functional.normalize(images.embeddings.double(), dim=1)
    b = torch.nn.functional.normalize(texts.embeddings.double(), dim=1)
    noise = TIE_ULPS * torch.finfo(torch.float32).eps
    counts = {"two_way": [], "reverse": [], **{n: [] for n in k}}
    for i, scene in enumerate(images.scenes):
        twin = scene.clone()
        twin[0, 0], twin[1, 0] = scene[1, 0], scene[0, 0]
        scores = (b @ a[i]).tolist()
        own = [j for j, s in enumerate(texts.scenes) if objects_of(s) == objects_of(scene)]
        other = [j for j, s in enumerate(texts.scenes) if objects_of(s) == objects_of(twin)]
        best = max(scores[j] for j in own)
        before = sum(scores[j] >= best - noise for j in range(len(scores)) if j not in own)
        for n in k:
            counts[n].append(before < n)
        if objects_of(scene) == objects_of(twin):
            continue
        exact = next(j for j, s in enumerate(texts.scenes) if s.tolist() == scene.tolist())
        exact_twin = next(j for j, s in enumerate(texts.scenes) if s.tolist() == twin.tolist())
        counts["two_way"].append(scores[exact] - scores[exact_twin] > noise)
        rest = max(scores[j] for j in range(len(scores)) if j not in other)
        counts["reverse"].append(max(scores[j] for j in other) > rest + noise)
    return {name: sum(found) / len(found) for name, found in counts.items()}


def test_the_twin_exchanges_one_concept_and_is_its_own_inverse():
    scene = torch.tensor([[[0, 1], [2, 0]]])
    assert swap_concept(scene).tolist() == [[[2, 1], [0, 0]]]
    assert swap_concept(scene, 1).tolist() == [[[0, 0], [2, 1]]]
    assert torch.equal(swap_concept(swap_concept(SCENES)), SCENES)
    assert scene.tolist() == [[[0, 1], [2, 0]]]


def test_with_two_concepts_either_exchange_gives_the_same_objects():
    assert torch.equal(
        same_scene_index(SPACE, swap_concept(SCENES, 0)), same_scene_index(SPACE, swap_concept(SCENES, 1))
    )
    ordered = [same_scene_index(SPACE, swap_concept(SCENES, c), ordered=True) for c in (0, 1)]
    assert not torch.equal(*ordered)


@pytest.mark.parametrize("seed", [0, 1])
def test_every_number_is_that_of_a_slow_loop(seed):
    images = random_set(seed)
    texts = shuffled(embedded(images.embeddings + 3.0 * random_set(9).embeddings), seed)
    row, expected = cross_modal(images, texts).of(), slow(images, texts)
    assert row.two_way.accuracy == pytest.approx(expected["two_way"])
    assert row.reverse_recall == pytest.approx(expected["reverse"])
    for k in CUTOFFS:
        assert row.recall[k] == pytest.approx(expected[k])
    assert 0.5 < row.two_way.accuracy < 1
    back, expected = cross_modal(images, texts).of(direction=TEXT_TO_IMAGE), slow(texts, images)
    assert back.two_way.accuracy == pytest.approx(expected["two_way"])
    assert back.reverse_recall == pytest.approx(expected["reverse"])


def test_a_planted_bag_of_concepts_ties_everywhere():
    found = cross_modal(planted("additive"), shuffled(planted("additive"), 1))
    for direction in DIRECTIONS:
        row = found.of(direction=direction)
        assert (row.two_way.accuracy, row.two_way.ties, row.two_way.margin) == (0, 1, 0)
        assert not row.two_way.anti_binding
        assert row.quads.group == 0
        # only scenes whose twin is themselves are found
        alike = (SCENES[:, 0] == SCENES[:, 1]).any(1)
        assert row.recall[1] == pytest.approx(float(alike.double().mean()))
        assert row.n_without_twin == int(alike.sum())


def test_a_bag_with_independent_noise_is_at_chance():
    bag, scale = planted("additive").embeddings, 3.0
    images = embedded(bag + scale * torch.randn(bag.shape, generator=torch.Generator().manual_seed(3)))
    texts = embedded(bag + scale * torch.randn(bag.shape, generator=torch.Generator().manual_seed(4)))
    row = cross_modal(images, texts).of()
    assert row.two_way.ties == 0
    assert row.two_way.low < 0.5 < row.two_way.high
    assert row.recall[10] > 5 * row.recall_chance[10]


def test_planted_binding_is_right_everywhere():
    found = cross_modal(planted("product"), shuffled(planted("product"), 2))
    for direction in DIRECTIONS:
        row = found.of(direction=direction)
        assert (row.two_way.accuracy, row.two_way.ties, row.reverse_recall) == (1, 0, 0)
        assert (row.recall[1], row.quads.text, row.quads.image, row.quads.group) == (1, 1, 1, 1)


def test_planted_anti_binding_is_flagged():
    texts = embedded(planted("product").embeddings, swap_concept(SCENES))
    row = cross_modal(planted("product"), texts).of()
    assert row.two_way.accuracy == 0
    assert row.two_way.anti_binding
    assert row.two_way.margin < 0
    assert row.reverse_recall == 1


def test_a_collapsed_model_is_neither_at_chance_nor_right():
    one = torch.ones(1, 16).expand(len(SCENES), -1).contiguous()
    for direction in DIRECTIONS:
        row = cross_modal(embedded(one), embedded(one)).of(direction=direction)
        assert (row.two_way.accuracy, row.two_way.ties, row.two_way.anti_binding) == (0, 1, False)
        assert set(row.recall.values()) == {0}
        assert (row.reverse_recall, row.quads.text, row.quads.image) == (0, 0, 0)


def test_parts_add_up_and_familiarity_is_told_apart():
    # held out: the four objects of two values of each concept, which are one another's twins
    split = ObjectSplit(SPACE, (SPACE.all_objects() > 1).any(1))
    # every training object pulls scene and caption towards one direction: familiarity, and no binding at all
    familiar = split.is_train[SPACE.object_index(SCENES)].sum(1, keepdim=True).float()
    texts = embedded(torch.cat([torch.ones(len(SCENES), 1), familiar], 1))
    images = embedded(torch.tensor([[0.0, 1.0]]).repeat(len(SCENES), 1))
    found = cross_modal(images, texts, split=split)
    seen, alike = found.of("seen"), found.of("seen alike")
    assert (alike.two_way.accuracy, alike.two_way.ties) == (0, 1)
    assert seen.two_way.n > alike.two_way.n > 0
    assert seen.two_way.accuracy == pytest.approx(1 - alike.two_way.n / seen.two_way.n)
    assert found.of("held-out").two_way == found.of("held-out alike").two_way
    mixed = found.of("mixed").two_way  # the twin of a mixed scene is mixed too, or made of seen objects only
    assert mixed.accuracy == 0
    assert mixed.margin < 0
    for key in ("n_ranked", "n_without_twin"):
        assert sum(getattr(found.of(p), key) for p in ("seen", "mixed", "held-out")) == getattr(
            found.of(), key
        )
    index = SPACE.object_index(SCENES)
    twin = SPACE.object_index(swap_concept(SCENES))
    judged = (index.sort(1).values != twin.sort(1).values).any(1) & split.is_train[index].all(1)
    assert seen.two_way.n == int(judged.sum())
    assert alike.two_way.n == int((judged & split.is_train[twin].all(1)).sum())


def test_missing_scenes_are_counted():
    images, texts = random_set(0, DISTINCT), random_set(1, DISTINCT[1:])
    missing = cross_modal(images, texts, ordered=True).of()
    assert missing.n_missing == 2  # the scene itself, and the one whose twin it is
    assert missing.two_way.n == len(DISTINCT) - 2
    assert missing.n_ranked == len(DISTINCT) - 1
    # with the order of no account the reversed caption stands in
    assert cross_modal(images, texts).of().n_missing == 0


def test_ordered_scenes_are_other_scenes():
    bag = planted("product")  # blind to order
    assert cross_modal(bag, bag).of().recall[1] == 1
    assert cross_modal(bag, bag, ordered=True).of().recall[1] < 0.2


def test_rows_are_flat_and_ready_for_json():
    import json

    split = object_split(SPACE, 0.5, seed=0)
    rows = cross_modal(random_set(0), random_set(1), split=split).as_dicts()
    assert len(rows) == 16
    assert {(r["part"], r["direction"]) for r in rows if "alike" not in r["part"]} == {
        (p, d) for p in ("all", "seen", "mixed", "held-out") for d in DIRECTIONS
    }
    for row in json.loads(json.dumps(rows, allow_nan=False)):
        assert row["recall_1"] <= row["recall_5"] <= row["recall_10"]
        assert row["group_score_chance"] == pytest.approx(1 / 6)


def test_chance_of_retrieval_is_met_by_random_embeddings():
    hits, chance = [], []
    for seed in range(8):
        row = cross_modal(random_set(2 * seed), random_set(2 * seed + 1)).of()
        hits.append(row.recall[10])
        chance.append(row.recall_chance[10])
    n = 8 * len(SCENES)
    p = sum(chance) / 8
    assert abs(sum(hits) / 8 - p) < 4 * math.sqrt(p * (1 - p) / n)


def test_some_anchors_are_drawn_and_judged_against_all():
    images, texts = random_set(0), random_set(1)
    whole, some = cross_modal(images, texts), cross_modal(images, texts, n_anchors=50, seed=3)
    for direction in DIRECTIONS:
        row = some.of(direction=direction)
        assert row.n_ranked == 50
        assert row.quads.n == min(50, whole.of().quads.n)
        assert set(some.margins["all", direction].tolist()) < set(whole.margins["all", direction].tolist())
        assert row.recall_chance == pytest.approx(whole.of(direction=direction).recall_chance, abs=0.02)
    assert cross_modal(images, texts, n_anchors=10_000).as_dicts() == whole.as_dicts()
    with pytest.raises(ValueError, match="n_anchors is at least 1"):
        cross_modal(images, texts, n_anchors=0)


def test_three_concepts_exchange_the_one_asked_for():
    space = ConceptSpace.of_sizes(2, 2, 2)
    scenes = factorial_scenes(space, 2, repeats="distinct objects")
    # only the second concept is bound to the first: exchanging the third changes nothing
    embedding = torch.zeros(len(scenes), 8)
    for slot in (0, 1):
        pair = 2 * scenes[:, slot, 0] + scenes[:, slot, 1]
        embedding += torch.nn.functional.one_hot(pair, 4).float() @ torch.eye(4, 8)
        embedding += torch.nn.functional.one_hot(scenes[:, slot, 2] + 4, 8).float()
    data = EmbeddingSet(embedding, scenes, space)
    first, last = (cross_modal(data, data, concept=c).of().two_way for c in (0, 2))
    assert last.ties == 1
    # exchanging the first is seen only where the second differs, too
    bound = (scenes[:, 0, 0] != scenes[:, 1, 0]) & (scenes[:, 0, 1:] != scenes[:, 1, 1:]).any(1)
    seen = bound & (scenes[:, 0, 1] != scenes[:, 1, 1])
    assert first.n == int(bound.sum())
    assert first.accuracy == pytest.approx(float(seen.sum() / bound.sum()))


def test_quads_are_pairs_of_scenes_each_once():
    row = cross_modal(random_set(0, DISTINCT), random_set(1, DISTINCT)).of()
    assert row.quads.n == len(DISTINCT) // 2
    images, texts = random_set(0, DISTINCT), shuffled(random_set(1, DISTINCT), 0)
    a = torch.nn.functional.normalize(images.embeddings, dim=1)
    b = torch.nn.functional.normalize(texts.embeddings, dim=1)
    place = {str(s.tolist()): i for i, s in enumerate(DISTINCT)}
    said = {str(s.tolist()): i for i, s in enumerate(texts.scenes)}
    text, image, group = [], [], []
    for s, t in zip(DISTINCT, swap_concept(DISTINCT), strict=True):
        s, t = str(s.tolist()), str(t.tolist())
        if place[s] > place[t]:
            continue
        score = {(c, i): float(b[said[c]] @ a[place[i]]) for c in (s, t) for i in (s, t)}
        text.append(score[s, s] > score[t, s] and score[t, t] > score[s, t])
        image.append(score[s, s] > score[s, t] and score[t, t] > score[t, s])
        group.append(text[-1] and image[-1])
    found = cross_modal(images, texts).of().quads
    for share, right in ((found.text, text), (found.image, image), (found.group, group)):
        assert share == pytest.approx(sum(right) / len(right))


def test_errors_say_what_to_do():
    images = random_set(0)
    with pytest.raises(ValueError, match="one concept space"):
        cross_modal(images, EmbeddingSet(images.embeddings, SCENES, ConceptSpace.of_sizes(5, 3)))
    with pytest.raises(ValueError, match="exactly 2"):
        cross_modal(images, embedded(torch.randn(12, 16), SPACE.all_objects()[:, None]))
    with pytest.raises(ValueError, match="dimensions"):
        cross_modal(images, random_set(1, dim=8))
    same = SCENES[(SCENES[:, 0, 0] == SCENES[:, 1, 0])]
    with pytest.raises(ValueError, match="can be judged"):
        cross_modal(random_set(0, same), random_set(1, same))
    with pytest.raises(ValueError, match="text embeddings are zero"):
        cross_modal(images, embedded(torch.zeros(len(SCENES), 16)))
    with pytest.raises(ValueError, match="two objects"):
        swap_concept(SCENES[:, :1])
    with pytest.raises(ValueError, match="numbered 0 to 1"):
        swap_concept(SCENES, 2)


def test_two_way_of_plain_vectors():
    x = torch.eye(4)
    found = two_way(x, x, x.roll(1, 0))
    assert (found.accuracy, found.margin, found.n) == (1, 1, 4)
    assert found.low < 1
    anti = two_way(torch.eye(20), torch.eye(20).roll(1, 0), torch.eye(20))
    assert (anti.accuracy, anti.anti_binding) == (0, True)
    with pytest.raises(ValueError, match="one type"):
        two_way(x, x, x.double())
    with pytest.raises(ValueError, match="rows of true"):
        two_way(x, torch.zeros(4, 4), x)
