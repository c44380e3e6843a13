"""What repairs are judged by, against plain loops on planted embeddings."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import planted_encoders
from conceptbind.repair.judged import Subject, judge, pairs_of
from conceptbind.scenes import ConceptSpace, factorial_scenes, object_split, single_object_scenes

SPACE = ConceptSpace.of_sizes(5, 4)
SPLIT = object_split(SPACE, 0.6, seed=2)
DIM = 64


def planted(kind="product", noise=0.0):
    encoders = planted_encoders(SPACE, kind, dim=DIM, seed=0)
    scenes = factorial_scenes(SPACE, 2, repeats="distinct values")
    singles = single_object_scenes(SPACE)
    g = torch.Generator().manual_seed(0)

    def embed(scenes):
        z = encoders.scenes(scenes)
        return EmbeddingSet(z + noise * torch.randn(z.shape, generator=g), scenes, SPACE)

    return Subject(embed(scenes), embed(scenes), embed(singles), embed(singles), SPLIT)


def broken(texts):
    """Set half of the coordinates to those of one caption."""
    out = texts.clone()
    out[:, ::2] = texts[:1, ::2]
    return out


def cosine(a, b):
    return float(functional.cosine_similarity(a.double(), b.double(), dim=0))


def key(scene):
    return tuple(sorted(map(tuple, scene)))


def test_a_model_that_binds_needs_no_repair_and_a_bag_ties():
    for row in judge(planted()):
        assert (row["two_way"], row["two_way_pictures"], row["recall_1"]) == (1, 1, 1)
        if row["part"] != "mixed":
            assert (row["zero_shot_c0"], row["zero_shot_c1"], row["zero_shot_object"]) == (1, 1, 1)
    for row in judge(planted("additive")):
        assert (row["two_way"], row["two_way_ties"]) == (0, 1)
        assert row["recall_1"] == 0


def test_two_way_and_zero_shot_are_those_of_plain_loops():
    subject = planted(noise=2.5)
    rows = {r["part"]: r for r in judge(subject, broken)}
    scenes = subject.images.scenes.tolist()
    texts = dict(zip(map(str, scenes), broken(subject.texts.embeddings), strict=True))
    seen = {tuple(o): bool(s) for o, s in zip(SPACE.all_objects().tolist(), SPLIT.is_train, strict=True)}
    right = {"seen": [], "mixed": [], "held-out": []}
    for image, scene in zip(subject.images.embeddings, scenes, strict=True):
        (a, n), (b, m) = scene
        twin = [[b, n], [a, m]]
        counts = [sum(seen[tuple(o)] for o in s) for s in (scene, twin)]
        if counts[0] == counts[1]:
            part = ("held-out", "mixed", "seen")[counts[0]]
            right[part].append(cosine(image, texts[str(scene)]) > cosine(image, texts[str(twin)]))
    for part, hits in right.items():
        assert rows[part]["n"] == len(hits) > 0
        assert rows[part]["two_way"] == pytest.approx(sum(hits) / len(hits))
    assert {r["two_way"] for r in rows.values()} != {1.0}
    single = functional.normalize(broken(subject.single_texts.embeddings), dim=1)
    objects = [tuple(o) for o in SPACE.all_objects().tolist()]
    named = {(part, what): [] for part in ("seen", "held-out") for what in ("c0", "object")}
    for image, obj in zip(subject.single_images.embeddings, objects, strict=True):
        part = "seen" if seen[obj] else "held-out"
        nearest = max(range(len(objects)), key=lambda i: cosine(image, single[i]))
        named[part, "object"].append(objects[nearest] == obj)
        means = [
            torch.stack([t for t, o in zip(single, objects, strict=True) if o[0] == v]).mean(0)
            for v in range(5)
        ]
        named[part, "c0"].append(max(range(5), key=lambda v: cosine(image, means[v])) == obj[0])
    for (part, what), hits in named.items():
        assert rows[part][f"zero_shot_{what}"] == pytest.approx(sum(hits) / len(hits))
    assert rows["mixed"]["zero_shot_object"] is None


def test_retrieval_is_that_of_a_plain_loop():
    subject = planted(noise=6.0)
    (seen, *_) = judge(subject)
    scenes = subject.images.scenes.tolist()
    hits = []
    for image, scene in zip(subject.images.embeddings, scenes, strict=True):
        (a, n), (b, m) = scene
        kept = [SPLIT.is_train[SPACE.object_index(torch.tensor(s))].sum() for s in (scene, [[b, n], [a, m]])]
        if kept == [2, 2]:
            best = max(range(len(scenes)), key=lambda i: cosine(image, subject.texts.embeddings[i]))
            hits.append(key(scenes[best]) == key(scene))
    assert 0.02 < seen["recall_1"] < 0.98
    assert seen["recall_1"] == pytest.approx(sum(hits) / len(hits))


def test_pairs_are_scenes_with_their_twins_captions_of_training_objects_only():
    subject = planted()
    pairs = pairs_of(subject.images, subject.texts, SPLIT)
    rows = [i for i, s in enumerate(subject.images.scenes.tolist()) if all_seen(s)]
    assert len(pairs) == len(rows)
    at = {str(s): i for i, s in enumerate(subject.texts.scenes.tolist())}
    for pair, row in enumerate(rows):
        (a, n), (b, m) = subject.images.scenes[row].tolist()
        assert torch.equal(pairs.images[pair], subject.images.embeddings[row])
        assert torch.equal(pairs.texts[pair], subject.texts.embeddings[row])
        assert torch.equal(pairs.swapped[pair], subject.texts.embeddings[at[str([[b, n], [a, m]])]])
    keys = [key(s) for s in subject.images.scenes[rows].tolist()]
    alike = pairs.meanings[:, 0, None] == pairs.meanings[None, :, 0]
    assert torch.equal(alike, torch.tensor([[a == b for b in keys] for a in keys]))
    assert len(pairs_of(subject.images, subject.texts)) == subject.images.n_scenes


def all_seen(scene):
    (a, n), (b, m) = scene
    every = torch.tensor([[a, n], [b, m], [b, n], [a, m]])
    return bool(SPLIT.is_train[SPACE.object_index(every)].all())


def test_what_cannot_be_judged_is_named():
    subject = planted()
    with pytest.raises(ValueError, match="in the order of the object index"):
        replace(subject, single_texts=subject.single_texts.subset(torch.arange(3)))
    with pytest.raises(ValueError, match="one concept space"):
        replace(subject, split=object_split(ConceptSpace.of_sizes(4, 5), 0.5, seed=0))
    half = subject.texts.subset(torch.arange(5))
    with pytest.raises(ValueError, match="captions of all ordered scenes"):
        pairs_of(subject.images, half, SPLIT)
    with pytest.raises(ValueError, match="NaN"):
        judge(subject, lambda texts: texts * math.nan)
