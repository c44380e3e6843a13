import math

import pytest
import torch

from conceptbind.analysis.five_way import _others, five_way, text_only
from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, factorial_scenes, object_split, single_object_scenes

SPACE = ConceptSpace.of_sizes(5, 4)
SCENES = factorial_scenes(SPACE, 2, repeats="distinct values")
OBJECTS = single_object_scenes(SPACE)


def of(kind, *, picture_noise=0.0, query_noise=0.0, seed=0):
    encoders = planted_encoders(SPACE, kind, dim=256, seed=seed)
    images, queries = encoders.scenes(SCENES), encoders.scenes(OBJECTS)
    generator = torch.Generator().manual_seed(seed)
    images = images + picture_noise * torch.randn(images.shape, generator=generator)
    queries = queries + query_noise * torch.randn(queries.shape, generator=generator)
    return EmbeddingSet(images, SCENES, SPACE), EmbeddingSet(queries, OBJECTS, SPACE)


def random_pair(seed):
    generator = torch.Generator().manual_seed(seed)
    images, queries = (torch.randn(n, 64, generator=generator) for n in (len(SCENES), len(OBJECTS)))
    return EmbeddingSet(images, SCENES, SPACE), EmbeddingSet(queries, OBJECTS, SPACE)


def test_binding_is_always_right_and_a_bag_always_ties():
    assert five_way(*of("product")).of().five_way.accuracy == 1
    bag = five_way(*of("additive")).of()
    assert (bag.five_way.accuracy, bag.five_way.ties) == (0, 1)
    assert not bag.five_way.anti_binding
    assert (bag.recombined.ties, bag.others.accuracy) == (1, 1)


@pytest.mark.parametrize(("where", "level"), [("query_noise", 1 / 3), ("picture_noise", 1 / 4)])
def test_a_bag_with_noise_is_at_a_third_or_a_quarter(where, level):
    shares = []
    for seed in range(30):
        row = five_way(*of("additive", seed=seed, **{where: 0.3})).of()
        assert row.others.accuracy == 1
        assert row.five_way.accuracy == row.recombined.accuracy
        shares.append(row.five_way.accuracy)
    shares = torch.tensor(shares)
    error = float(shares.std()) / math.sqrt(len(shares))
    assert abs(float(shares.mean()) - level) < 4 * error
    assert error < 0.015


def test_random_embeddings_are_at_chance():
    rows = [five_way(*random_pair(seed), seed=seed).of() for seed in range(20)]
    for name, chance in (("five_way", 1 / 5), ("recombined", 1 / 3), ("others", 1 / 3)):
        shares = torch.tensor([getattr(r, name).accuracy for r in rows])
        assert abs(float(shares.mean()) - chance) < 4 * float(shares.std()) / math.sqrt(len(rows))


def test_a_model_of_recombined_objects_is_flagged():
    images, queries = of("product")
    exchanged = SCENES.clone()
    exchanged[:, :, 0] = SCENES[:, :, 0].flip(1)
    row = five_way(EmbeddingSet(images.embeddings, exchanged, SPACE), queries).of()
    assert row.five_way.accuracy == 0
    assert row.five_way.anti_binding


def test_a_collapsed_model_has_ties_and_no_right_answer():
    images, queries = of("additive")
    same = [EmbeddingSet(torch.ones_like(e.embeddings), e.scenes, SPACE) for e in (images, queries)]
    row = five_way(*same).of()
    assert (row.five_way.accuracy, row.five_way.ties) == (0, 1)


def test_without_looking_one_order_of_the_objects_decides():
    images, queries = of("product", picture_noise=1.0)
    found = text_only(images, queries)
    blind = torch.nn.functional.normalize(images.embeddings, dim=1).mean(0)
    near = torch.nn.functional.normalize(queries.embeddings, dim=1) @ blind
    own = SPACE.object_index(SCENES)
    swapped = SCENES.clone()
    swapped[:, :, 0] = SCENES[:, :, 0].flip(1)
    right = near[own] > near[SPACE.object_index(swapped)].amax(1, keepdim=True)
    assert found.of().recombined.accuracy == pytest.approx(float(right.double().mean()))
    assert found.of().five_way.low < 0.2 < found.of().five_way.high
    assert five_way(images, queries).of().five_way.accuracy > 0.9


def test_a_preference_for_values_wins_a_quarter_without_looking():
    values = torch.randn(9, generator=torch.Generator().manual_seed(0))
    near = values[OBJECTS[:, 0, 0]] + values[5 + OBJECTS[:, 0, 1]]
    queries = torch.stack([near.exp(), torch.ones_like(near)], 1)
    images = torch.tensor([[1.0, 0.0]]).repeat(len(SCENES), 1)
    found = text_only(EmbeddingSet(images, SCENES, SPACE), EmbeddingSet(queries, OBJECTS, SPACE)).of()
    # of the four objects of a scene and its twin only the one of both preferred values wins
    assert (found.recombined.accuracy, found.recombined.ties) == (0.25, 0)


def test_others_are_neither_there_nor_recombined():
    own, recombined = torch.tensor([[0, 5], [7, 2]]), torch.tensor([[1, 4], [6, 3]])
    generator = torch.Generator().manual_seed(0)
    seen = torch.zeros(2, 9)
    for _ in range(300):
        others = _others(own, recombined, 9, generator)
        assert (others[:, :, 0] != others[:, :, 1]).all()
        seen += torch.zeros(2, 9).scatter_add_(1, others.flatten(1), torch.ones(2, 4))
    assert (seen.gather(1, torch.cat([own, recombined], 1)) == 0).all()
    # 4 draws of 5 objects, 300 times: 240 each
    assert ((seen[seen > 0] - 240).abs() < 60).all()


def test_parts_say_what_is_asked_for():
    split = object_split(SPACE, 0.5, seed=1)
    found = five_way(*of("product"), split=split)
    own = SPACE.object_index(SCENES)
    n_seen = int(split.is_train[own].sum())
    assert (found.of("seen").five_way.n, found.of("held-out").five_way.n) == (n_seen, own.numel() - n_seen)
    assert 0 < found.of("seen alike").five_way.n < n_seen
    assert found.n_left_out == 0
    assert len(found.as_dicts()) == 5
    assert found.as_dicts()[0]["five_way_chance"] == 0.2


def test_pictures_that_recombine_into_themselves_are_left_out():
    every = factorial_scenes(SPACE, 2)
    encoders = planted_encoders(SPACE, "product", dim=256, seed=0)
    images = EmbeddingSet(encoders.scenes(every), every, SPACE)
    found = five_way(images, of("product")[1])
    assert found.n_left_out == len(every) - len(SCENES)
    assert found.of().five_way.n == 2 * len(SCENES)


def test_errors_say_what_to_do():
    images, queries = of("product")
    with pytest.raises(ValueError, match="19 of the 20 objects"):
        five_way(images, queries.subset(torch.arange(19)))
    with pytest.raises(ValueError, match="single ones"):
        five_way(images, images)
    with pytest.raises(ValueError, match="dimensions"):
        five_way(images, EmbeddingSet(queries.embeddings[:, :8].contiguous(), OBJECTS, SPACE))
    other = ConceptSpace.of_sizes(5, 5)
    with pytest.raises(ValueError, match="one concept space"):
        five_way(images, queries, split=object_split(other, 0.5, seed=0))
    small = ConceptSpace.of_sizes(2, 2)
    scenes, objects = factorial_scenes(small, 2), single_object_scenes(small)
    with pytest.raises(ValueError, match="at least 6 objects"):
        five_way(
            EmbeddingSet(torch.ones(len(scenes), 4), scenes, small),
            EmbeddingSet(torch.ones(4, 4), objects, small),
        )
    alike = factorial_scenes(SPACE, 2)
    alike = alike[alike[:, 0, 0] == alike[:, 1, 0]]
    with pytest.raises(ValueError, match="share a value"):
        five_way(EmbeddingSet(torch.ones(len(alike), 256), alike, SPACE), queries)
