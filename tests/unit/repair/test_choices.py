"""Five-way choices: who the candidates are, and what counts."""

import math

import pytest
import torch

from conceptbind.repair.choices import five_candidates, five_way, five_way_by_part
from conceptbind.scenes import ConceptSpace, factorial_scenes, object_split, single_object_scenes

SPACE = ConceptSpace.of_sizes(5, 4)


def test_candidates_of_two_objects_are_the_exchanged_ones_and_two_others():
    scenes = factorial_scenes(SPACE, 2, repeats="distinct values")
    candidates = SPACE.objects_from_index(five_candidates(SPACE, scenes, seed=3))
    for scene, slots in zip(scenes.tolist(), candidates.tolist(), strict=True):
        for slot, five in enumerate(slots):
            (a, n), (b, m) = scene[slot], scene[1 - slot]
            assert five[0] == [a, n]
            assert len(set(map(tuple, five))) == 5
            assert {(b, n), (a, m)} < set(map(tuple, five[1:]))
            others = [c for c in five[1:] if tuple(c) not in {(b, n), (a, m)}]
            (new_a, same_n), (same_a, new_n) = sorted(others, key=lambda c: c[0] == a)
            assert (same_n, same_a) == (n, a)
            assert new_a not in (a, b)
            assert new_n not in (n, m)


def test_candidates_of_one_object_share_a_word_with_it():
    scenes = single_object_scenes(SPACE)
    candidates = SPACE.objects_from_index(five_candidates(SPACE, scenes, seed=3))
    for scene, slots in zip(scenes.tolist(), candidates.tolist(), strict=True):
        (five,) = slots
        assert five[0] == scene[0]
        assert len(set(map(tuple, five))) == 5
        shared = [(c[0] == scene[0][0]) + (c[1] == scene[0][1]) for c in five[1:]]
        assert shared == [1, 1, 1, 1]
        assert sum(c[0] == scene[0][0] for c in five[1:]) == 2


def test_other_words_are_drawn_evenly_and_by_the_seed():
    scenes = torch.tensor([[[0, 0], [1, 1]]]).expand(3000, 2, 2)
    a, b, c = (five_candidates(SPACE, scenes, seed=s) for s in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    words = SPACE.objects_from_index(a[:, 0])[..., 0]
    share = [float((words == w).any(1).double().mean()) for w in (2, 3, 4)]
    assert share == pytest.approx([1 / 3] * 3, abs=0.04)


def test_only_strictly_higher_scores_count_and_ties_are_told():
    scores = torch.tensor([[5.0, 1, 2, 3, 4, 0], [1.0, 2, 3, 4, 5, 5], [1.0, 1, 1, 1, 1, 1]])
    candidates = torch.tensor([[0, 1, 2, 3, 4], [4, 0, 1, 2, 3], [5, 4, 1, 2, 3], [0, 1, 2, 3, 4]])
    found = five_way(scores, candidates, torch.tensor([0, 1, 1, 2]))
    assert (found.accuracy, found.ties, found.n) == (0.5, 0.5, 4)
    assert 0 < found.low < 0.5 < found.high < 1


def test_rounding_does_not_decide():
    scores = torch.tensor([[1.0 + 2e-7, 1.0, 0.0, 0.0, 0.0]])
    assert five_way(scores, torch.arange(5)[None], torch.tensor([0])).ties == 1


def test_random_scores_choose_at_chance():
    scenes = factorial_scenes(SPACE, 2, repeats="distinct values")
    scores = torch.randn(len(scenes), 20, generator=torch.Generator().manual_seed(0))
    candidates = five_candidates(SPACE, scenes, seed=0).flatten(0, 1)
    found = five_way(scores, candidates, torch.arange(len(scenes)).repeat_interleave(2))
    assert found.low < 1 / 5 < found.high


def test_parts_are_pictures_of_seen_and_of_held_out_objects_only():
    split = object_split(SPACE, 0.6, seed=0)
    scenes = factorial_scenes(SPACE, 2, repeats="distinct values")
    seen = split.is_train[SPACE.object_index(scenes)]
    # scores that are right for scenes of seen objects, wrong for those of held-out ones, constant for the rest
    present = torch.zeros(len(scenes), 20).scatter_(1, SPACE.object_index(scenes), 1.0)
    sign = seen.all(1).float() - (~seen).all(1).float()
    found = five_way_by_part(split, scenes, present * sign[:, None])
    assert (found["seen"].accuracy, found["held-out"].accuracy) == (1, 0)
    assert found["seen"].n == 2 * int(seen.all(1).sum())
    assert found["held-out"].n == 2 * int((~seen).all(1).sum())
    only = scenes[seen.all(1)]
    assert set(five_way_by_part(split, only, torch.rand(len(only), 20))) == {"seen"}


@pytest.mark.parametrize(
    ("space", "scenes", "message"),
    [
        (SPACE, [[[0, 0], [0, 1]]], "share a word"),
        (SPACE, [[[0, 0], [1, 1], [2, 2]]], "1 or 2 objects of 2 concepts"),
        (ConceptSpace.of_sizes(3, 3, 3), [[[0, 0, 0], [1, 1, 1]]], "1 or 2 objects of 2 concepts"),
        (ConceptSpace.of_sizes(2, 4), [[[0, 0], [1, 1]]], "needs 3 values"),
    ],
)
def test_scenes_without_five_candidates_are_named(space, scenes, message):
    with pytest.raises(ValueError, match=message):
        five_candidates(space, torch.tensor(scenes))


def test_no_choice_and_bad_scores_are_named():
    with pytest.raises(ValueError, match="no choice to make"):
        five_way(torch.ones(1, 5), torch.zeros(0, 5, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="NaN"):
        five_way(torch.full((1, 5), math.nan), torch.arange(5)[None], torch.tensor([0]))
