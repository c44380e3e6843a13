from itertools import permutations

import pytest
import torch

from conceptbind.analysis.probe_cosine import _permuted, class_cosines, probe_cosine
from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, factorial_scenes, sample_scenes

SPACE = ConceptSpace.of_sizes(4, 3)
SCENES = factorial_scenes(SPACE, 2)
HEADS = ("c0", "c1", "objects")


def planted(seed, *, noise_seed=0, scenes=SCENES):
    generator = torch.Generator().manual_seed(noise_seed)
    x = planted_encoders(SPACE, "product", dim=64, seed=seed).scenes(scenes)
    return EmbeddingSet(x + 0.5 * torch.randn(x.shape, generator=generator), scenes, SPACE)


def random_matrix(n, seed, dim=7):
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


def test_weights_are_compared_as_a_slow_loop_does():
    a, b = random_matrix(5, 0), random_matrix(5, 1)
    found = class_cosines(a, b)
    a, b = (w.double() - w.double().mean(0) for w in (a, b))
    for i in range(5):
        for j in range(5):
            assert float(found[i, j]) == pytest.approx(float(a[i] @ b[j] / (a[i].norm() * b[j].norm())))


def test_a_common_offset_and_a_scale_change_nothing():
    a = random_matrix(5, 0)
    same = class_cosines(a, 3 * a + random_matrix(1, 2)).diagonal()
    torch.testing.assert_close(same, torch.ones(5, dtype=torch.float64))


def test_permutations_are_those_of_all_orders():
    cosines = class_cosines(random_matrix(4, 0), random_matrix(4, 1))
    every = torch.tensor(
        [[float(cosines[i, j]) for i, j in enumerate(p)] for p in permutations(range(4))],
        dtype=torch.float64,
    ).mean(1)
    assert float(every.mean()) == pytest.approx(float(cosines.mean()))
    low, high = _permuted(cosines, 0)
    assert (low, high) == (pytest.approx(float(every.min())), pytest.approx(float(every.max())))


def test_shared_parts_give_a_high_cosine_and_others_none():
    shared = probe_cosine(planted(0), planted(0, noise_seed=1), l2=1e-2)
    apart = probe_cosine(planted(0), planted(5, noise_seed=1), l2=1e-2)
    assert tuple(shared) == HEADS
    for head in HEADS:
        assert shared[head].cosine > 0.7
        assert shared[head].permuted_low < 0
        assert abs(apart[head].cosine) < 0.3
        assert abs(shared[head].cosine) < 0.1 + (shared[head].images * shared[head].texts) ** 0.5
        assert shared[head].l2 == 1e-2
    assert [shared[h].n_classes for h in HEADS] == [4, 3, 12]
    # with four classes one permutation in 24 changes nothing
    assert shared["objects"].cosine > shared["objects"].permuted_high + 0.3


def test_classes_that_only_one_set_shows_are_left_out():
    few = sample_scenes(SPACE, 2, 40, seed=0, objects=SPACE.all_objects()[:-3])  # without c0 = 3
    found = probe_cosine(planted(0, scenes=few), planted(0), l2=1e-2)
    assert [found[h].n_classes for h in HEADS] == [3, 3, 9]


def test_a_large_penalty_leaves_the_differences_of_means():
    """The optimum is then the moment of the standardised inputs with the targets."""
    images, texts = planted(0), planted(3, noise_seed=1)
    found = probe_cosine(images, texts, l2=1e3, tol=1e-6)["c0"]
    vectors = []
    for data in (images, texts):
        x = data.embeddings.double()
        x = (x - x.mean(0)) / x.std(0, correction=0)
        target = torch.nn.functional.one_hot(SCENES[:, :, 0], 4).double().mean(1)
        moment = target.T @ x / data.embeddings.std(0, correction=0).double()
        vectors.append(moment - moment.mean(0))
    expected = torch.nn.functional.cosine_similarity(*vectors).mean()
    assert found.cosine == pytest.approx(float(expected), abs=1e-3)


def test_noise_lowers_the_cosine_within_a_modality():
    noisy = planted(0)
    noise = 20 * torch.randn(noisy.embeddings.shape, generator=torch.Generator().manual_seed(1))
    found = probe_cosine(planted(0), EmbeddingSet(noisy.embeddings + noise, SCENES, SPACE))["c0"]
    assert found.texts < 0.3 < 0.8 < found.images


def test_errors_say_what_to_do():
    images = planted(0)
    with pytest.raises(ValueError, match="one concept space"):
        probe_cosine(images, EmbeddingSet(images.embeddings, SCENES, ConceptSpace.of_sizes(4, 4)))
    with pytest.raises(ValueError, match="different lengths"):
        probe_cosine(images, EmbeddingSet(images.embeddings[:, :8].contiguous(), SCENES, SPACE))
    one = images.subset((SCENES[:, :, 0] == 0).all(1))
    with pytest.raises(ValueError, match="1 values in common"):
        probe_cosine(one, images, l2=1e-2)
