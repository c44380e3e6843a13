import pytest
import torch

from conceptbind.analysis.probe_cosine import probe_cosine, weight_cosine
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
    found = weight_cosine(a, b, head="h")
    a, b = (w.double() - w.double().mean(0) for w in (a, b))

    def cosine(i, j):
        return float(a[i] @ b[j] / (a[i].norm() * b[j].norm()))

    assert found.cosine == pytest.approx(sum(cosine(i, i) for i in range(5)) / 5)
    assert found.permuted == pytest.approx(sum(cosine(i, j) for i in range(5) for j in range(5)) / 25)
    assert found.permuted_low < found.permuted < found.permuted_high


def test_a_common_offset_and_a_scale_change_nothing():
    a = random_matrix(5, 0)
    found = weight_cosine(a, 3 * a + random_matrix(1, 2), head="h")
    assert found.cosine == pytest.approx(1)
    assert weight_cosine(a, -a, head="h").cosine == pytest.approx(-1)


def test_shared_parts_give_a_high_cosine_and_others_none():
    shared = probe_cosine(planted(0), planted(0, noise_seed=1), l2=1e-2)
    apart = probe_cosine(planted(0), planted(5, noise_seed=1), l2=1e-2)
    assert tuple(shared) == HEADS
    for head in HEADS:
        assert shared[head].cosine > 0.7
        assert shared[head].permuted_low < 0
        assert abs(apart[head].cosine) < 0.3
    assert [shared[h].n_classes for h in HEADS] == [4, 3, 12]
    # with four classes one permutation in 24 changes nothing
    assert shared["objects"].cosine > shared["objects"].permuted_high + 0.3


def test_classes_that_only_one_set_shows_are_left_out():
    few = sample_scenes(SPACE, 2, 40, seed=0, objects=SPACE.all_objects()[:-3])  # without c0 = 3
    found = probe_cosine(planted(0, scenes=few), planted(0), l2=1e-2)
    assert [found[h].n_classes for h in HEADS] == [3, 3, 9]


def test_the_penalty_can_be_chosen_by_recognition():
    found = probe_cosine(planted(0), planted(0, noise_seed=1))
    assert found["c0"].cosine > 0.5


def test_errors_say_what_to_do():
    images = planted(0)
    with pytest.raises(ValueError, match="one concept space"):
        probe_cosine(images, EmbeddingSet(images.embeddings, SCENES, ConceptSpace.of_sizes(4, 4)))
    with pytest.raises(ValueError, match="different lengths"):
        probe_cosine(images, EmbeddingSet(images.embeddings[:, :8].contiguous(), SCENES, SPACE))
    one = images.subset((SCENES[:, :, 0] == 0).all(1))
    with pytest.raises(ValueError, match="1 values in common"):
        probe_cosine(one, images, l2=1e-2)
