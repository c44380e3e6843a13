import pytest
import torch

from conceptbind.kernels.ranking import rank, rows_with


def unit(n, dim, seed):
    x = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(x, dim=1)


def slow(queries, gallery, right, rivals):
    before, first = [], []
    for query, own, rival in zip(queries, right.tolist(), rivals.tolist(), strict=True):
        scores = [float(query @ row) for row in gallery]
        own, rival = [r for r in own if r >= 0], [r for r in rival if r >= 0]
        best = max((scores[r] for r in own), default=-torch.inf)
        before.append(sum(s >= best for i, s in enumerate(scores) if i not in own))
        rest = [s for i, s in enumerate(scores) if i not in rival]
        first.append(bool(rival) and max(scores[r] for r in rival) > max(rest))
    return before, first


@pytest.mark.parametrize("block", [1, 7, 60, 10_000])
def test_blocks_of_any_size_agree_with_a_loop(block):
    queries, gallery = unit(17, 5, 0), unit(23, 5, 1)
    labels = torch.randint(8, (23,), generator=torch.Generator().manual_seed(2))
    wanted = torch.arange(17) % 9  # label 8 has no row
    right, rivals = rows_with(labels, wanted), rows_with(labels, (wanted + 1) % 9)
    found = rank(queries, gallery, right, rivals, block=block)
    before, first = slow(queries, gallery, right, rivals)
    assert found.n_before.tolist() == before
    assert found.rival_first.tolist() == first
    assert any(first)
    assert found.within(3).tolist() == [n < 3 for n in before]


def test_ties_count_against():
    gallery = torch.eye(3)[[0, 0, 1, 2]]
    found = rank(gallery[:1], gallery, torch.tensor([[0]]), torch.tensor([[1]]))
    assert found.n_before.tolist() == [1]
    assert found.rival_first.tolist() == [False]


def test_rounding_does_not_order():
    query = unit(1, 300, 0).float()
    gallery = torch.cat([query, query * (1 + 2e-7), -query])
    for right, rival in ((0, 1), (1, 0)):
        found = rank(query, gallery, torch.tensor([[right]]), torch.tensor([[rival]]))
        assert found.n_before.tolist() == [1]
        assert found.rival_first.tolist() == [False]


def test_rows_are_listed_in_order():
    labels = torch.tensor([5, 3, 5, 9])
    assert rows_with(labels, torch.tensor([5, 4, 9, 10])).tolist() == [[0, 2], [-1, -1], [3, -1], [-1, -1]]


def test_rows_outside_the_gallery_are_an_error():
    x = torch.eye(3)
    with pytest.raises(ValueError, match="rivals names rows 0 to 2"):
        rank(x, x, torch.tensor([[0], [1], [2]]), torch.tensor([[3], [1], [2]]))
