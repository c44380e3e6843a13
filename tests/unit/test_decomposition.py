"""The decomposition table on planted embeddings, whose answers are known."""

import math

import pytest
import torch

from conceptbind.analysis import decomposition
from conceptbind.analysis.additive import fit_additive
from conceptbind.analysis.decomposition import decompose, reconstruct
from conceptbind.analysis.fixed_probes import fit_fixed_probes
from conceptbind.analysis.recognition import pigeonhole_interval
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.retrieval import retrieve
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, factorial_scenes, single_object_scenes

SPACE = ConceptSpace.of_sizes(4, 3)
SCENES = factorial_scenes(SPACE, 2)


def planted(kind, noise=0.0, dim=64):
    encoders = planted_encoders(SPACE, kind, dim=dim, seed=1, noise=noise)
    alone = single_object_scenes(SPACE)
    singles = EmbeddingSet(encoders.scenes(alone), alone, SPACE)
    return EmbeddingSet(encoders.scenes(SCENES), SCENES, SPACE), singles


@pytest.fixture(scope="module")
def clean():
    return {kind: decompose(planted(kind)[0]) for kind in ("additive", "product", "memorised")}


@pytest.mark.parametrize("kind", ["additive", "product", "memorised"])
def test_object_parts_explain_every_planted_scene_so_r2_tells_none_from_the_others(clean, kind):
    for estimator in ("avg", "avg+pos"):
        row = clean[kind].row("objects", estimator)
        assert row.r2 == pytest.approx(1, abs=1e-9)
        assert row.r2_held_out == pytest.approx(1, abs=1e-9)
        assert row.concepts == 1


def test_concept_parts_are_enough_for_the_bag_alone(clean):
    r2 = {kind: d.row("concepts", "avg").r2_held_out for kind, d in clean.items()}
    assert r2["additive"] == pytest.approx(1, abs=1e-9)
    assert r2["memorised"] < r2["product"] < 0.9


def test_a_scene_without_order_ties_with_its_mirror_and_a_bag_with_its_twins_too(clean):
    # a + b = b + a bit for bit: only the 12 scenes that show one object twice are alone with their embedding,
    # for a bag fewer still, since "red circle, blue square" and its twin share theirs.
    for kind in ("product", "memorised"):
        row = clean[kind].row("objects", "avg")
        assert row.retrieval == pytest.approx(12 / 144)
        assert row.retrieval_ties == pytest.approx(132 / 144)
    sums = [tuple(sorted(o[k] for o in scene)) for scene in SCENES.tolist() for k in range(2)]
    pairs = list(zip(sums[::2], sums[1::2], strict=True))
    alone = sum(pairs.count(p) == 1 for p in pairs)
    assert clean["additive"].row("objects", "avg").retrieval == pytest.approx(alone / 144)


def test_probes_read_the_objects_off_the_reconstruction_if_they_are_in_it(clean):
    assert clean["product"].row("objects", "avg+pos").objects == 1
    assert clean["memorised"].row("objects", "avg+pos").objects == 1
    # The parts of a memorised object that concepts explain do not hold the object.
    assert clean["memorised"].row("concepts", "avg+pos").objects < 0.7
    assert clean["product"].probed["objects"].accuracy == 1


def test_labels_that_say_nothing_reach_what_their_parameters_buy():
    data, _ = planted("product", noise=1.0, dim=512)
    table = decompose(data, probes=False)
    for labels in ("shuffled", "noise"):
        for level, p in (("objects", 11), ("concepts", 5)):
            for estimator, sets in (("avg", 1), ("avg+pos", 2)):
                row = table.row(level, estimator, labels=labels)
                assert row.n_parameters == 1 + p * sets
                assert row.r2_expected == pytest.approx(p * sets / 143)
                # Shuffled scenes of few distinct embeddings are no independent draws: some slack.
                assert row.r2 == pytest.approx(row.r2_expected, abs=0.03)
                assert row.r2_held_out < 0
                assert math.isnan(row.objects)


def test_noise_has_the_r2_of_a_known_ratio():
    # Scenes are a sum of two vectors of +-1 (variance 2 (1 - 1/12) a coordinate on the grid, up to the parts' own
    # mean) plus noise of variance s². Held-out R² is at most signal / (signal + noise).
    dim, s = 4096, 1.5
    data, _ = planted("memorised", noise=s, dim=dim)
    signal = float(planted("memorised", dim=dim)[0].embeddings.var(0, correction=0).mean())
    row = decompose(data, probes=False, baselines=False).row("objects", "avg+pos")
    p = 22 / 144
    assert row.r2 == pytest.approx((signal + s**2 * p) / (signal + s**2), abs=0.01)
    assert row.r2_low < row.r2 < row.r2_high
    assert row.r2_held_out < signal / (signal + s**2) < row.r2


def test_retrieval_in_sample_is_flattered_and_held_out_is_not():
    # Pure noise: a scene's own embedding has a share in its reconstruction, and in no other as much.
    table = decompose(planted("product", noise=0.1)[0], probes=False)
    row = table.row("objects", "avg+pos", labels="noise")
    assert row.retrieval > 5 * row.retrieval_chance
    assert row.retrieval_held_out < 0.05


def test_probes_find_nothing_in_sums_of_parts_of_pure_noise():
    # Parts hold some noise of the scenes they were fitted to: probes fitted to the same scenes would find it.
    space = ConceptSpace.of_sizes(8, 3)
    scenes = factorial_scenes(space, 2)
    noise = torch.randn(len(scenes), 512, generator=torch.Generator().manual_seed(0))
    table = decompose(EmbeddingSet(noise, scenes, space), baselines=False, levels=("objects",))
    for row in table.rows:
        assert row.objects < 0.02
        assert row.concepts < 0.05
    shared = fit_fixed_probes(EmbeddingSet(noise, scenes, space), seeds=(0,))
    leak = reconstruct(
        EmbeddingSet(noise, scenes, space),
        fit_additive(EmbeddingSet(noise, scenes, space), train=shared.train[0]),
    )
    assert shared.judge(leak, scenes)["objects"].accuracy > 0.9, "what the split of scenes prevents"


def test_retrieval_has_the_interval_of_scenes_that_share_objects():
    data, _ = planted("product", noise=2.5)
    row = decompose(data, probes=False, baselines=False).row("objects", "avg+pos")
    sums = fit_additive(data).predict(SCENES)
    found = retrieve(sums, data.embeddings.double(), torch.arange(len(SCENES)))
    low, high = pigeonhole_interval(found.correct, SPACE.object_index(SCENES))
    assert 0 < row.retrieval < 1
    assert row.retrieval == pytest.approx(float(found.correct.double().mean()))
    ends = min(low, row.retrieval), max(high, row.retrieval)
    assert (row.retrieval_low, row.retrieval_high) == pytest.approx(ends)


@pytest.mark.parametrize(
    ("arguments", "message"), [({"seeds": ()}, "seeds is empty"), ({"n_queries": 0}, "n_queries")]
)
def test_requests_without_sense_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        decompose(planted("product")[0], **arguments)


def test_single_objects_join_where_they_are_given():
    data, singles = planted("product")
    table = decompose(data, singles=[singles], baselines=False)
    row = table.row("objects", "single")
    assert row.r2 == pytest.approx(1, abs=1e-6)
    assert math.isnan(row.r2_expected)
    assert table.as_dicts()[-1]["r2_expected"] is None
    with pytest.raises(KeyError, match="there are"):
        table.row("objects", "single", labels="shuffled")


def test_many_scenes_are_asked_for_by_sample():
    data, _ = planted("product", noise=1.0)
    few = decompose(data, probes=False, baselines=False, n_queries=40)
    assert few.settings["n_queries"] == 40
    share = few.row("objects", "avg+pos").retrieval
    assert share * 40 == pytest.approx(round(share * 40))


def test_scenes_with_a_part_that_the_other_folds_never_show_are_left_out_and_counted():
    data, _ = planted("product")
    # Object 7 occurs in one scene only: the four folds without it cannot predict it.
    rare = (SPACE.object_index(SCENES) != 7).all(1)
    rare[SPACE.scene_index(torch.tensor([[[2, 1], [0, 0]]]))] = True
    row = decompose(data.subset(rare), probes=False, baselines=False).row("objects", "avg")
    assert row.n_left_out == 1
    assert row.r2_held_out == pytest.approx(1, abs=1e-9)


def test_the_interval_of_a_large_set_agrees_with_the_bootstrap(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    residual, total = (torch.rand(20_000, generator=generator).double() for _ in range(2))
    drawn = decomposition._ratio_interval(residual, total, 0)
    closed = decomposition._ratio_interval(residual.repeat(2)[:20_001], total.repeat(2)[:20_001], 0)
    assert closed == pytest.approx(drawn, abs=2e-3)


def test_reconstructions_are_predictions():
    data, _ = planted("product")
    fit = fit_additive(data)
    torch.testing.assert_close(reconstruct(data, fit), data.embeddings)
    assert reconstruct(data, fit, torch.tensor([3, 5])).shape == (2, 64)


def test_too_few_scenes_are_refused():
    data, _ = planted("product")
    with pytest.raises(ValueError, match="at least 10 scenes"):
        decompose(data.subset(torch.arange(9)))
