"""Bits follow their formula, planted encoders get the right code, and no block is seen before its turn."""

import dataclasses
import json
import math
import warnings

import numpy as np
import pytest
import torch

from conceptbind.analysis.description_length import (
    COVERAGES,
    description_length,
    side_information,
    student_quantile,
)
from conceptbind.approximators.closed_form import Additive, ObjectTable
from conceptbind.approximators.networks import Network
from conceptbind.approximators.products import ObjectProduct
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.networks import Architecture
from conceptbind.kernels.training import Schedule
from conceptbind.planted import planted_encoders
from conceptbind.scenes import (
    ConceptSpace,
    factorial_scenes,
    object_split,
    sample_scenes,
    single_object_scenes,
)

SPACE = ConceptSpace.of_sizes(5, 4)
SCENES = factorial_scenes(SPACE, 2)
SUM, TABLE, PRODUCT = Additive(), ObjectTable(), ObjectProduct(head="none", restarts=2)


def planted(kind, *, space=SPACE, dim=32, noise=0.3, seed=0, scenes=None):
    scenes = factorial_scenes(space, 2) if scenes is None else scenes
    encoder = planted_encoders(space, kind, dim=dim, seed=seed, noise=noise)
    return EmbeddingSet(encoder.scenes(scenes), scenes, space)


def close_rows(found, wanted, tolerance):
    assert len(found.rows) == len(wanted.rows)
    for a, b in zip(found.rows, wanted.rows, strict=True):
        assert a.bits == pytest.approx(b.bits, abs=tolerance)


@dataclasses.dataclass(frozen=True)
class Told:
    """Predicts the same vector for every scene, whatever the fit."""

    vector: torch.Tensor
    name: str = "told"
    settings: dict = dataclasses.field(default_factory=dict)

    def fit(self, task):
        return self

    def predict(self, fit, scenes):
        return self.vector.expand(len(scenes), -1)

    n_parameters = converged = details = ()


def test_bits_of_a_tiny_case_against_the_formula_written_out_in_numpy():
    space = ConceptSpace.of_sizes(3, 2)
    scenes = factorial_scenes(space, 2)
    generator = torch.Generator().manual_seed(0)
    parts = torch.randn(6, 2, generator=generator)[space.object_index(scenes)].sum(1)
    z = (parts + 0.3 * torch.randn(len(scenes), 2, generator=generator)) * torch.tensor([3.0, 0.5])
    data = EmbeddingSet(z, scenes, space)
    found = description_length(data, [Told(torch.zeros(2))], coverages=(0.5, 0.67), seeds=(4,))

    x = z.double().numpy() - z.double().numpy().mean(0)
    axes = np.linalg.eigh(np.cov(x.T))[1]
    names = space.object_index(scenes).numpy()
    design = np.eye(6)[names].reshape(len(x), 12)  # one indicator an object and slot
    left = x - design @ np.linalg.lstsq(design, x, rcond=None)[0]
    tau = ((left @ axes) ** 2).sum(0) / (len(x) - np.linalg.matrix_rank(design))
    three = object_split(space, 0.5, seed=4).is_train.numpy()
    four = object_split(space, 0.67, seed=4).is_train.numpy()
    assert (three.sum(), four.sum()) == (3, 4)
    y = x @ axes  # told 0, the errors are the embeddings themselves

    def bits(rows, sigma):
        return np.mean(
            [
                sum(
                    0.5 * np.log2(2 * np.pi * s / t)
                    + e**2 / (2 * s * np.log(2))
                    - 0.5 * np.log2(2 * np.pi * np.e)
                    for e, s, t in zip(row, sigma, tau, strict=True)
                )
                for row in y[rows]
            ]
        )

    kinds = {
        "mixed": lambda old: old[names].any(1) & ~old[names].all(1),
        "new": lambda old: ~old[names].any(1),
    }
    of_kind = {}
    for kind, rows in kinds.items():
        first = four[names].all(1) & rows(three)
        sigma = np.maximum(y[three[names].all(1)].var(0), tau)
        of_kind[kind, 0] = bits(first, sigma)
        seen = (y[first] ** 2).mean(0)  # one new object: weight 1
        explainable = np.maximum(y[four[names].all(1)].var(0) - tau, 0)
        wrong = max(0, (seen - tau).sum() / explainable.sum())
        sigma = np.maximum((seen + tau + wrong * explainable) / 2, tau)
        of_kind[kind, 1] = bits(rows(four), sigma)
    for b, row in enumerate(found.rows):
        assert row.mixed_bits == pytest.approx(of_kind["mixed", b], rel=1e-5)
        assert row.new_bits == pytest.approx(of_kind["new", b], rel=1e-5)
        mean = (row.n_mixed * row.mixed_bits + row.n_new * row.new_bits) / row.n_scenes
        assert row.bits == pytest.approx(mean)
    assert [(r.n_new_objects, r.n_mixed, r.n_new, r.n_coded) for r in found.rows] == [
        (1, 6, 1, 7),
        (2, 16, 4, 20),
    ]
    wanted = (7 * found.rows[0].bits + 20 * found.rows[1].bits) / 27
    assert found.total("told").mean == pytest.approx(wanted)


def test_a_scene_known_up_to_its_noise_costs_nothing_in_the_limit():
    found = description_length(planted("additive", dim=16), [SUM], seeds=(0,))
    last = found.rows[-1]
    assert found.rows[0].bits > 5 * abs(last.bits)
    assert last.bits < 0.1 * found.n_axes
    exact = description_length(
        planted("additive", dim=16, noise=0.0), [SUM], coverages=(0.6, 0.7, 0.8), seeds=(0,)
    )
    assert exact.n_axes == 5 + 4 - 2, "the u of two concepts, centred; both slots add the same"
    assert exact.rows[-1].bits == pytest.approx(0, abs=0.5), (
        "with the blur, an exact prediction costs nothing"
    )
    assert exact.resolution_share == pytest.approx(1e-4)


def test_the_additive_code_is_not_longer_than_the_memorising_one_for_a_sum():
    found = description_length(planted("additive"), [SUM, TABLE])
    assert found.saving("object table", "additive").low <= 0
    assert found.total("object table").mean > found.total("additive").mean - 0.05 * found.n_axes


def test_the_memorising_code_is_shorter_for_memorised_objects():
    found = description_length(planted("memorised"), [SUM, TABLE])
    saving = found.saving("object table", "additive")
    assert saving.low > 0
    back = found.saving("additive", "object table")
    assert (back.mean, back.low, back.high) == pytest.approx((-saving.mean, -saving.high, -saving.low))


def test_the_product_is_the_shortest_for_a_planted_product():
    data = planted("product", space=ConceptSpace.of_sizes(8, 8), dim=128)
    found = description_length(
        data, [SUM, TABLE, PRODUCT], coverages=(0.7, 0.8, 0.9), max_scenes_per_block=400
    )
    for other in ("additive", "object table"):
        assert found.saving(PRODUCT.name, other).low > 0
    first = next(line for line in str(found).splitlines()[1:])
    assert first.startswith(PRODUCT.name)
    assert found.saving("object table", "additive").low > 0


def test_scale_rotation_and_offset_change_nothing():
    data = planted("memorised")
    codes = [SUM, TABLE]
    wanted = description_length(data, codes, seeds=(0, 1))
    turn, _ = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(3)))
    for changed in (10 * data.embeddings, data.embeddings @ turn, data.embeddings + 3 * turn[0]):
        found = description_length(EmbeddingSet(changed, SCENES, SPACE), codes, seeds=(0, 1))
        close_rows(found, wanted, tolerance=2e-3)


def test_no_code_sees_a_block_before_its_turn():
    data = planted("product")
    side = side_information(data)
    network = Network(Architecture("mlp", 16), Schedule(n_steps=20))
    codes = [SUM, TABLE, PRODUCT, network]
    coverages = (0.5, 0.6, 0.7)
    clean = description_length(data, codes, coverages=coverages, seeds=(2,), side=side)
    later = ~object_split(SPACE, 0.6, seed=2).is_train[SPACE.object_index(SCENES)].all(1)
    hidden = data.embeddings.clone()
    hidden[later] = 50 * torch.randn(int(later.sum()), 32, generator=torch.Generator().manual_seed(9))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spoilt = description_length(
            EmbeddingSet(hidden, SCENES, SPACE), codes, coverages=coverages, seeds=(2,), side=side
        )
    for a, b in zip(clean.rows, spoilt.rows, strict=True):
        if a.coverage == 0.5:
            assert a.bits == b.bits, "its scenes are untouched"
        else:
            assert b.bits > 2 * abs(a.bits)


def test_a_sample_of_a_block_stands_for_all_of_it():
    data = planted("memorised")
    whole = description_length(data, [SUM], seeds=(0,))
    some = description_length(data, [SUM], seeds=(0,), max_scenes_per_block=16)
    for a, b in zip(whole.rows, some.rows, strict=True):
        assert (a.n_scenes, a.n_mixed, a.n_new) == (b.n_scenes, b.n_mixed, b.n_new)
        assert a.n_coded == a.n_scenes
        assert b.n_coded <= 16
        assert not math.isnan(b.new_bits), "scenes of new objects are few, but not left out"
    assert some.total("additive").mean == pytest.approx(whole.total("additive").mean, rel=0.2)
    again = description_length(data, [SUM], seeds=(0,), max_scenes_per_block=16)
    assert again == some


def test_the_default_coverages_show_every_value_and_can_be_coded():
    def coverages(space, scenes):
        return description_length(planted("additive", space=space, scenes=scenes), [SUM]).coverages

    assert coverages(SPACE, SCENES) == COVERAGES
    narrow = ConceptSpace.of_sizes(8, 3)
    assert coverages(narrow, factorial_scenes(narrow, 2)) == COVERAGES[1:], "8 of 24 objects show every value"
    small = ConceptSpace.of_sizes(3, 3)
    assert coverages(small, factorial_scenes(small, 2)) == (0.3, 0.4, 0.6, 0.7, 0.8, 0.9), (
        "at 0.5 none of 9 is added"
    )
    triples = sample_scenes(SPACE, 3, 400, seed=0)
    assert coverages(SPACE, triples)[0] >= 0.3


def test_networks_are_fitted_where_seeds_have_different_numbers_of_scenes():
    data = planted("additive", scenes=sample_scenes(SPACE, 2, 250, seed=0))
    network = Network(Architecture("mlp", 8), Schedule(n_steps=10))
    found = description_length(data, [network], coverages=(0.5, 0.8), seeds=(0, 1, 2))
    assert len({row.n_scenes for row in found.rows if row.coverage == 0.5}) > 1
    assert all(math.isfinite(row.bits) for row in found.rows)


def test_rows_intervals_and_the_table():
    found = description_length(planted("memorised"), [SUM, TABLE], seeds=(0, 1, 5))
    assert len(found.rows) == 2 * 3 * len(COVERAGES)
    assert json.loads(json.dumps(found.as_dicts()))[0]["approximator"] == "additive"
    total = found.total("additive")
    assert (total.low, total.high) == (min(total.by_seed), max(total.by_seed))
    saving = found.saving("object table", "additive")
    pairs = zip(found.total("additive").by_seed, found.total("object table").by_seed, strict=True)
    assert saving.by_seed == pytest.approx([a - b for a, b in pairs])
    half = 4.302653 * np.std(saving.by_seed, ddof=1) / math.sqrt(3)
    assert (saving.low, saving.high) == pytest.approx((saving.mean - half, saving.mean + half))
    for scenes in ("mixed", "new"):
        rows = [row for row in found.rows if row.approximator == "additive" and row.seed == 5]
        n = np.array([getattr(row, f"n_{scenes}") for row in rows])
        bits = np.array([getattr(row, f"{scenes}_bits") for row in rows])
        assert found.total("additive", scenes=scenes).by_seed[2] == pytest.approx((n * bits).sum() / n.sum())
    with pytest.raises(ValueError, match="scenes must be one of 'all', 'mixed', 'new'; got 'old'"):
        found.total("additive", scenes="old")
    assert "additive" in str(found)
    one = description_length(planted("memorised"), [SUM, TABLE], seeds=(0,))
    assert math.isnan(one.saving("additive", "object table").low)
    with pytest.raises(KeyError, match="no code 'tree'; there are 'additive'"):
        found.total("tree")


@pytest.mark.parametrize(
    ("df", "wanted"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (9, 2.26216), (30, 2.04227)]
)
def test_quantiles_of_student_against_printed_tables(df, wanted):
    assert student_quantile(df) == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coverages": (0.5,)}, "at least 2"),
        ({"coverages": (0.6, 0.5)}, "must increase"),
        ({"coverages": (0.5, 0.5)}, "must increase"),
        ({"coverages": (0.5, 1.0)}, "strictly between 0 and 1"),
        ({"coverages": (0.50, 0.51)}, "no scene arrives between coverage 0.50 and 0.51"),
        ({"seeds": ()}, "seeds must be at least one"),
        ({"seeds": (1, 1)}, "and differ"),
        ({"approximators": []}, "at least one"),
        ({"approximators": [SUM, SUM]}, "different names"),
        ({"approximators": [Told(torch.full((32,), torch.nan))]}, "'told', fitted at coverage 0.30 .* NaN"),
        ({"max_scenes_per_block": 2}, "at least 4"),
        ({"floor": 0.0}, "above 0"),
        ({"side": side_information(planted("additive", dim=16))}, "16 dimensions, the embeddings have 32"),
    ],
)
def test_requests_that_cannot_be_met_say_why(change, message):
    values = {"approximators": [SUM], "seeds": (0,), **change}
    with pytest.raises(ValueError, match=message):
        description_length(planted("additive"), values.pop("approximators"), **values)


def test_data_that_cannot_be_coded_say_why():
    few = planted("additive", scenes=SCENES[::5])
    with pytest.raises(ValueError, match=r"no scene of training objects only among 80 scenes"):
        description_length(few, [SUM], coverages=(0.05, 0.9), seeds=(3,))
    alone = planted("additive", scenes=single_object_scenes(SPACE))
    with pytest.raises(ValueError, match="leave no degree of freedom"):
        side_information(alone)
    equal = EmbeddingSet(torch.ones(400, 3), SCENES, SPACE)
    with pytest.raises(ValueError, match="all 400 embeddings are equal"):
        side_information(equal)
    with pytest.raises(ValueError, match=r"of the default coverages .* give coverages"):
        description_length(planted("additive", scenes=SCENES[:3]), [SUM])
