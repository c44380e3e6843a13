"""The loss against swapped captions, by a slow loop; pairs that cannot be trained on."""

import math

import pytest
import torch

from conceptbind.repair.linear_map import LinearMap
from conceptbind.repair.swaps import MAX_SCALE, Pairs, SwapTraining, swap_loss, train_against_swaps


def drawn(n=6, dim=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(n, dim, generator=g, dtype=torch.float64) for _ in range(3)]


def cosine(a, b):
    return float(a @ b / (a.norm() * b.norm()))


def test_the_loss_is_that_of_a_plain_loop():
    images, texts, swapped = drawn()
    # captions 0 and 3 mean the same, and so does what caption 1 becomes when swapped
    meanings = torch.tensor([[0, 10], [1, 0], [2, 11], [0, 12], [4, 13], [5, 14]])
    scale, n = 7.0, len(images)
    captions, means = [*texts, *swapped], [*meanings[:, 0].tolist(), *meanings[:, 1].tolist()]
    to_text = to_image = 0.0
    for i in range(n):
        right = math.exp(scale * cosine(images[i], texts[i]))
        wrong = sum(
            math.exp(scale * cosine(images[i], captions[j])) for j in range(2 * n) if means[j] != means[i]
        )
        to_text -= math.log(right / (right + wrong)) / n
        wrong = sum(math.exp(scale * cosine(images[j], texts[i])) for j in range(n) if means[j] != means[i])
        to_image -= math.log(right / (right + wrong)) / n
    found = swap_loss(images, texts, swapped, scale, meanings)
    assert float(found) == pytest.approx((to_text + to_image) / 2, rel=1e-12)


def test_the_loss_knows_directions_only():
    images, texts, swapped = drawn()
    meanings = torch.arange(12).view(6, 2)
    lengths = torch.linspace(0.5, 3, 6, dtype=torch.float64)[:, None]
    a = swap_loss(images, texts, swapped, 3.0, meanings)
    b = swap_loss(lengths * images, 2 * texts, swapped / lengths, 3.0, meanings)
    assert float(a) == pytest.approx(float(b), rel=1e-12)


def test_a_bag_of_concepts_loses_at_least_log_two():
    images, texts, _ = drawn()
    loss = swap_loss(images, texts, texts, 50.0, torch.arange(12).view(6, 2))
    # half of the mean: text to image may be perfect
    assert float(loss) >= math.log(2) / 2


def test_meanings_are_told_by_equal_embeddings():
    images, texts, swapped = (x.float() for x in drawn(3))
    swapped[0] = texts[2]
    meanings = Pairs(images, texts, swapped).meanings
    assert int(meanings[0, 1]) == int(meanings[2, 0])
    assert len(meanings.unique()) == 5


def test_training_is_seeded_and_bounds_the_scale():
    images, texts, swapped = (x.float() for x in drawn(9))
    pairs = Pairs(images, texts, swapped)
    how = SwapTraining(n_epochs=3, batch=4, rate=0.5, scale=90.0)
    runs = []
    for seed in (1, 1, 2):
        module = LinearMap(5)
        scale, losses = train_against_swaps(module, pairs, how, seed=seed)
        assert scale <= MAX_SCALE * (1 + 1e-6)
        assert len(losses) == 3
        runs.append(module.weight.detach())
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_the_first_step_of_one_batch_is_adams():
    # from the identity, Adam's first step moves every weight by the rate against the sign of its gradient
    images, texts, swapped = (x.float() for x in drawn(8))
    pairs, how = Pairs(images, texts, swapped), SwapTraining(n_epochs=1, batch=8, rate=1e-3)
    module, same = LinearMap(5), LinearMap(5)
    loss = swap_loss(images, same(texts), same(swapped), how.scale, pairs.meanings)
    loss.backward()
    train_against_swaps(module, pairs, how, seed=0)
    moved = module.weight.detach() - torch.eye(5)
    assert torch.allclose(moved, -1e-3 * same.weight.grad.sign(), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i, t, s: (i[:0], t[:0], s[:0]), "no pairs"),
        (lambda i, t, s: (i[:-1], t, s), "do not fit"),
        (lambda i, t, s: (i, t, s[:, :-1]), "do not fit"),
        (lambda i, t, s: (i, t.index_fill(0, torch.tensor([2]), 0.0), s), r"1 rows of texts .*first: 2"),
        (lambda i, t, s: (i * math.nan, t, s), "rows of images are NaN"),
    ],
)
def test_pairs_that_do_not_fit_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        Pairs(*change(*(x.float() for x in drawn())))


def test_meanings_need_two_numbers_a_pair():
    images, texts, swapped = (x.float() for x in drawn())
    with pytest.raises(ValueError, match=r"\(6, 2\)"):
        Pairs(images, texts, swapped, torch.zeros(5, 2, dtype=torch.int64))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"n_epochs": 0}, "n_epochs"),
        ({"batch": 1}, "batch=2"),
        ({"rate": 0.0}, "rate"),
        ({"scale": 101.0}, "scale"),
    ],
)
def test_settings_out_of_range_are_named(setting, message):
    with pytest.raises(ValueError, match=message):
        SwapTraining(**setting)


def test_one_pair_cannot_be_trained_on():
    images, texts, swapped = (x.float() for x in drawn(1))
    with pytest.raises(ValueError, match="at least 2 pairs"):
        train_against_swaps(LinearMap(5), Pairs(images, texts, swapped), seed=0)
