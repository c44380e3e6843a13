"""Retrieval says the same as sorting all similarities, in any block, and finds ties."""

import pytest
import torch

from conceptbind.kernels import retrieval
from conceptbind.kernels.retrieval import retrieve

N_ROWS, N_QUERIES, DIM = 333, 50, 16


def data(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    gallery = torch.randn(N_ROWS, DIM, generator=generator, dtype=dtype)
    right = torch.randint(N_ROWS, (N_QUERIES,), generator=generator)
    noise = torch.randn(N_QUERIES, DIM, generator=generator, dtype=dtype)
    return gallery[right] + 0.6 * noise, gallery, right


def one_by_one(queries, gallery, right, metric):
    """Sort the rows for each query, on their own."""
    margins, nearest = [], []
    for q, r in zip(queries, right.tolist(), strict=True):
        if metric == "cosine":
            similar = torch.stack([torch.nn.functional.cosine_similarity(q, g, dim=0) for g in gallery])
        else:
            similar = torch.stack([-(q - g).square().sum() / 2 for g in gallery])
        own = similar[r].item()
        similar[r] = -torch.inf
        margins.append(own - similar.max().item())
        nearest.append(r if margins[-1] > 0 else int(similar.argmax()))
    return torch.tensor(margins, dtype=torch.float64), torch.tensor(nearest)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("block", [None, 1, 5000])
def test_it_agrees_with_sorting_one_query_after_another(metric, block):
    queries, gallery, right = data()
    found = retrieve(queries, gallery, right, metric=metric, block=block)
    margin, nearest = one_by_one(queries, gallery, right, metric)
    assert 0.2 < found.correct.double().mean() < 1  # neither trivial nor hopeless
    torch.testing.assert_close(found.margin, margin)
    assert torch.equal(found.nearest, nearest)


@pytest.mark.parametrize("n_rows", [2, 63, 64, 65, 130])
def test_no_row_is_missed_at_the_edges_of_groups(n_rows):
    gallery = torch.eye(n_rows)
    everyone = torch.arange(n_rows)
    wanted = (everyone + 1) % n_rows
    found = retrieve(gallery, gallery, wanted)  # each row is nearest to itself, and the next one is asked for
    assert torch.equal(found.nearest, everyone)
    torch.testing.assert_close(found.margin, -torch.ones(n_rows))
    assert retrieve(gallery, gallery, everyone).correct.all()


def test_lengths_change_no_cosine():
    queries, gallery, right = data()
    scale = torch.rand(N_ROWS, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    a, b = retrieve(queries, gallery, right), retrieve(queries * 1e6, gallery * scale, right)
    torch.testing.assert_close(a.margin, b.margin)
    assert torch.equal(a.nearest, b.nearest)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("block", [None, 64])
def test_a_copy_of_the_right_row_is_a_tie_wherever_it_stands(metric, block):
    queries, gallery, right = data(torch.float32)
    both = torch.cat([gallery, gallery])
    found = retrieve(queries, both, right, metric=metric, block=block)
    alone = retrieve(queries, gallery, right, metric=metric)
    assert torch.equal(found.tied, alone.correct)
    assert not found.correct.any()
    assert torch.equal(found.nearest[found.tied], right[found.tied] + N_ROWS)
    assert torch.equal(found.nearest % N_ROWS, alone.nearest)


def test_rows_at_right_angles_to_the_query_tie():
    gallery = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    query = torch.tensor([[0.0, 0.0, 5.0]])
    assert retrieve(query, gallery, torch.tensor([0])).tied.all()


def test_euclidean_and_cosine_differ_where_lengths_do():
    gallery = torch.tensor([[10.0, 1.0], [1.0, 1.0]])
    query, right = torch.tensor([[2.0, 0.2]]), torch.tensor([0])
    assert retrieve(query, gallery, right).correct.all()
    assert not retrieve(query, gallery, right, metric="euclidean").correct.any()


def test_inputs_are_left_as_they_are():
    queries, gallery, right = data()
    before = queries.clone(), gallery.clone(), right.clone()
    retrieve(queries, gallery, right)
    assert all(torch.equal(a, b) for a, b in zip(before, (queries, gallery, right), strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, g, r: (q, g[:1], r * 0), "2 rows to choose from"),
        (lambda q, g, r: (q[:0], g, r[:0]), "at least 1 query"),
        (lambda q, g, r: (q[:, :-1], g, r), "do not fit"),
        (lambda q, g, r: (q, g, r[:-1]), "do not fit"),
        (lambda q, g, r: (q, g, r + N_ROWS), "right names rows 0 to 332"),
        (lambda q, g, r: (q, g, r - N_ROWS), "right names rows 0 to 332"),
        (lambda q, g, r: (q.float(), g, r), "one type"),
        (lambda q, g, r: (q * torch.nan, g, r), "50 rows of queries hold NaN"),
        (lambda q, g, r: (q, g * 0, r), "333 rows of gallery are all zeros"),
    ],
)
def test_wrong_inputs_are_named(change, message):
    # Not through retrieve: in tests its signature is checked, too, and refuses shapes that disagree with an error of
    # its own.
    with pytest.raises(ValueError, match=message):
        retrieval._check(*change(*data()), "cosine")


def test_wrong_inputs_are_refused_by_retrieve():
    queries, gallery, right = data()
    with pytest.raises(ValueError, match="right names rows"):
        retrieve(queries, gallery, right + N_ROWS)


def test_an_unknown_metric_is_named():
    with pytest.raises(ValueError, match="'cosine' or 'euclidean'"):
        retrieval._check(*data(), "manhattan")


def test_zeros_have_a_distance():
    queries, gallery, right = data()
    queries[0] = 0
    gallery[7] = 0
    right[0] = 7
    assert retrieve(queries, gallery, right, metric="euclidean").correct[0]
