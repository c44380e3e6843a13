"""The spectrum against additive fits and planted binding; stability against brute-force finite differences."""

import itertools
import json
import math

import pytest
import torch

from conceptbind.analysis.additive import fit_additive
from conceptbind.analysis.interactions import (
    INTERACTION_KINDS,
    STABILITY_PARTS,
    effect_stability,
    interaction_spectrum,
    mean_effect,
    mean_stability,
)
from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, factorial_scenes

SPACE = ConceptSpace.of_sizes(4, 3)
SCENES = factorial_scenes(SPACE, 2)


def noise(n, dim, seed=0):
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


def embedded(z, scenes=SCENES, space=SPACE):
    return EmbeddingSet(z.float(), scenes, space)


def planted(kind, space=SPACE, n_objects=2, **arguments):
    scenes = factorial_scenes(space, n_objects)
    z = planted_encoders(space, kind, **{"dim": 512, "seed": 0, **arguments}).scenes(scenes)
    return EmbeddingSet(z, scenes, space)


def test_kinds_explain_what_additive_fits_explain():
    # Level II with positions has the single concepts; Level I has, beyond them, all that happens within an object.
    data = embedded(noise(144, 20) + planted("product").embeddings[:, :20])
    shares = interaction_spectrum(data).by_kind()
    level_2 = fit_additive(data, level="concepts").r2
    assert shares["concepts"] == pytest.approx(level_2, abs=1e-9)
    level_1 = fit_additive(data, level="objects").r2
    assert shares["concepts"] + shares["within objects"] == pytest.approx(level_1, abs=1e-9)
    assert sum(shares.values()) == pytest.approx(1, abs=1e-12)


def test_rows_name_their_factors_kind_and_degrees_of_freedom():
    spectrum = interaction_spectrum(embedded(noise(144, 6)))
    assert spectrum.factors == ((0, "c0"), (0, "c1"), (1, "c0"), (1, "c1"))
    assert spectrum.sizes == (4, 3, 4, 3)
    assert len(spectrum.rows) == 15
    assert sum(row.df for row in spectrum.rows) == 143
    assert [len(row.factors) for row in spectrum.rows] == [1] * 4 + [2] * 6 + [3] * 4 + [4]
    kinds = [row.kind for row in spectrum.rows]
    assert [kinds.count(kind) for kind in INTERACTION_KINDS] == [4, 2, 4, 5]
    assert spectrum.row((0, "c1"), (0, "c0")).kind == "within objects"
    assert spectrum.row((1, "c0"), (0, "c0")).kind == "across objects"
    assert spectrum.row((0, "c0"), (0, "c1"), (1, "c0")).kind == "higher"
    assert spectrum.row((0, "c0"), (0, "c1"), (1, "c0")).df == 3 * 2 * 3
    with pytest.raises(KeyError, match="the factors are"):
        spectrum.row((2, "c0"))


def test_three_concepts_in_one_slot_are_within_objects():
    space = ConceptSpace.of_sizes(2, 3, 2)
    scenes = factorial_scenes(space, 2)
    spectrum = interaction_spectrum(embedded(noise(144, 4), scenes, space))
    assert spectrum.row(*[(1, f"c{k}") for k in range(3)]).kind == "within objects"
    assert spectrum.row((0, "c0"), (0, "c1"), (1, "c2")).kind == "higher"
    shares = interaction_spectrum(planted("product", space, strength=2.0)).by_kind()
    assert shares["within objects"] > 0.3
    assert shares["across objects"] == shares["higher"] == 0


def test_the_order_of_the_scenes_does_not_matter():
    data = embedded(noise(144, 6))
    mixed = torch.randperm(144, generator=torch.Generator().manual_seed(1))
    a, b = (interaction_spectrum(d) for d in (data, data.subset(mixed)))
    for one, two in zip(a.rows, b.rows, strict=True):
        assert one.share == pytest.approx(two.share, rel=1e-12)
        assert one.mean_square == pytest.approx(two.mean_square, rel=1e-12)
        assert (one.factors, one.kind, one.df) == (two.factors, two.kind, two.df)


def test_mean_squares_add_up_to_the_sum_of_squares():
    z = noise(144, 6)
    spectrum = interaction_spectrum(embedded(z))
    whole = float((z.double() - z.double().mean(0)).square().sum())
    assert math.fsum(row.mean_square * row.df for row in spectrum.rows) == pytest.approx(whole, rel=1e-12)
    assert spectrum.total == pytest.approx(whole / 144, rel=1e-12)


def test_binding_that_is_planted_is_found_through_noise():
    clean, noisy = (
        interaction_spectrum(planted("product", dim=4096, noise=sigma)).by_kind(corrected=True)
        for sigma in (0.0, 1.5)
    )
    for kind in INTERACTION_KINDS:
        assert noisy[kind] == pytest.approx(clean[kind], abs=0.01)
    assert interaction_spectrum(planted("product", dim=4096, noise=1.5)).by_kind()["higher"] > 0.2


def test_the_correction_is_unbiased():
    # Over many draws the corrected sums of squares have the mean of those without noise: here, those of one concept.
    signal = torch.zeros(144, 3)
    signal[:, 0] = 0.5 * SCENES[:, 0, 0]
    clean = interaction_spectrum(embedded(signal))
    sums = {row.factors: 0.0 for row in clean.rows}
    draws = 300
    for seed in range(draws):
        found = interaction_spectrum(embedded(signal + noise(144, 3, seed)))
        for row in found.rows:
            squares = row.mean_square * row.df - row.df * found.noise_mean_square
            sums[row.factors] += squares / draws / (144 * clean.total)
    for row in clean.rows:
        assert sums[row.factors] == pytest.approx(row.share, abs=0.05)


def test_corrected_shares_are_those_of_their_formula():
    spectrum = interaction_spectrum(embedded(noise(144, 6) + SCENES.flatten(1)[:, [0, 1, 2, 3, 0, 1]]))
    top = spectrum.rows[-1]
    squares = {row: row.df * row.mean_square - row.df * top.mean_square for row in spectrum.rows}
    whole = math.fsum(squares.values())
    for row in spectrum.rows:
        assert row.corrected_share == pytest.approx(squares[row] / whole, abs=1e-12)
    assert top.corrected_share == pytest.approx(0, abs=1e-12)
    assert spectrum.noise_mean_square == pytest.approx(top.mean_square, rel=1e-12)
    assert sum(spectrum.by_kind(corrected=True).values()) == pytest.approx(1, abs=1e-12)
    assert spectrum.noise_share == pytest.approx(1 - whole / (144 * spectrum.total), rel=1e-12)
    pooled = [row for row in spectrum.rows if row.kind == "within objects"]
    ratio = sum(r.df * r.mean_square for r in pooled) / sum(r.df for r in pooled) / top.mean_square
    assert spectrum.within_ratio == pytest.approx(ratio, rel=1e-12)


def test_noise_alone_has_shares_by_degrees_of_freedom_and_no_corrected_ones():
    z = noise(144, 2000, seed=3)
    spectrum = interaction_spectrum(embedded(z))
    for row in spectrum.rows:
        assert row.share == pytest.approx(row.df / 143, abs=0.01)
    assert spectrum.within_ratio == pytest.approx(1, abs=0.05)
    assert spectrum.noise_share == pytest.approx(1, abs=0.02)
    for row in effect_stability(spectrum):
        assert row.stability == pytest.approx(row.expected, abs=0.003)
        assert row.expected == pytest.approx((4 if row.concept == "c0" else 3) / 144)


def test_where_noise_leaves_nothing_corrected_shares_are_undefined():
    # All variance in the top interaction: its mean square on every degree of freedom is more than there is.
    signs = 1.0 - 2 * (factorial_scenes(ConceptSpace.of_sizes(2, 2), 2).flatten(1).sum(1) % 2)
    space = ConceptSpace.of_sizes(2, 2)
    spectrum = interaction_spectrum(embedded(signs.unsqueeze(1), factorial_scenes(space, 2), space))
    assert spectrum.by_kind()["higher"] == pytest.approx(1)
    assert all(math.isnan(share) for share in spectrum.by_kind(corrected=True).values())
    assert spectrum.as_dicts()[0]["corrected_share"] is None
    assert all(math.isnan(row.corrected_stability) for row in effect_stability(spectrum))


def test_the_ratio_without_noise_is_infinite_or_undefined():
    assert interaction_spectrum(planted("product")).within_ratio == math.inf
    assert math.isnan(interaction_spectrum(planted("additive")).within_ratio)


def test_one_slot_has_no_noise_stratum():
    spectrum = interaction_spectrum(planted("product", n_objects=1))
    assert spectrum.by_kind()["across objects"] == spectrum.by_kind()["higher"] == 0
    assert sum(spectrum.by_kind().values()) == pytest.approx(1)
    assert spectrum.by_kind()["within objects"] > 0.1
    assert math.isnan(spectrum.noise_mean_square)
    assert math.isnan(spectrum.within_ratio)
    assert all(math.isnan(share) for share in spectrum.by_kind(corrected=True).values())


def test_one_concept_in_two_slots_has_only_pairs_across():
    space = ConceptSpace.of_sizes(5)
    scenes = factorial_scenes(space, 2)
    spectrum = interaction_spectrum(embedded(noise(25, 4), scenes, space))
    assert [row.kind for row in spectrum.rows] == ["concepts", "concepts", "across objects"]
    assert math.isnan(spectrum.within_ratio)
    assert math.isnan(spectrum.rows[0].corrected_share)
    three = factorial_scenes(space, 3)
    assert not math.isnan(interaction_spectrum(embedded(noise(125, 4), three, space)).noise_share)


def test_a_concept_with_one_value_takes_part_without_effect():
    space = ConceptSpace.of_sizes(4, 1, 3)
    scenes = factorial_scenes(space, 2)
    z = noise(144, 6)
    spectrum = interaction_spectrum(embedded(z, scenes, space))
    without = interaction_spectrum(embedded(z))
    assert spectrum.by_kind() == pytest.approx(without.by_kind())
    assert spectrum.by_kind(corrected=True) == pytest.approx(without.by_kind(corrected=True))
    assert spectrum.within_ratio == pytest.approx(without.within_ratio)
    row = spectrum.row((0, "c1"))
    assert (row.share, row.df) == (0, 0)
    assert math.isnan(row.mean_square)
    rows = effect_stability(spectrum)
    assert [math.isnan(r.stability) for r in rows] == [False, True, False] * 2
    assert mean_stability(rows) == pytest.approx(mean_stability(effect_stability(without)))


def test_equal_embeddings_have_no_shares():
    spectrum = interaction_spectrum(embedded(torch.full((144, 3), 0.1)))
    assert all(math.isnan(share) for share in spectrum.by_kind().values())
    assert math.isnan(spectrum.within_ratio)
    assert math.isnan(spectrum.noise_share)
    assert all(math.isnan(v) for v in mean_stability(effect_stability(spectrum)).values())


def test_values_that_never_occur_are_left_out():
    few = (SCENES[..., 0] < 2).all(1)
    z = noise(144, 6)
    spectrum = interaction_spectrum(embedded(z[few], SCENES[few]))
    assert spectrum.sizes == (2, 3, 2, 3)
    small = ConceptSpace.of_sizes(2, 3)
    same = interaction_spectrum(embedded(z[few], factorial_scenes(small, 2), small))
    assert spectrum.by_kind() == pytest.approx(same.by_kind())


def test_scenes_that_are_no_grid_are_refused_with_what_is_missing():
    z = noise(144, 4)
    with pytest.raises(ValueError, match=r"4 x 3 x 4 x 3 = 144 scenes: 5 of them are missing, and 0 of"):
        interaction_spectrum(embedded(z[5:], SCENES[5:]))
    with pytest.raises(ValueError, match=r"0 of them are missing, and 2 of the 146 rows.*fit_additive"):
        interaction_spectrum(embedded(torch.cat([z, z[:2]]), torch.cat([SCENES, SCENES[:2]])))
    swapped = SCENES.clone()
    swapped[0] = swapped[1]  # as many rows as cells, and yet no grid
    with pytest.raises(ValueError, match=r"1 of them are missing, and 1 of the 144 rows"):
        interaction_spectrum(embedded(z, swapped))
    many = ConceptSpace.of_sizes(1, 1, 1, 1, 1, 1, 1, 1, 1)
    with pytest.raises(ValueError, match="18 factors, at most 16"):
        interaction_spectrum(embedded(noise(1, 4), factorial_scenes(many, 2), many))


def finite_differences(z, scenes, space, slot, concept):
    """Give mean |Delta|² over a, b and contexts, and mean over a, b of |mean over contexts of Delta|²."""
    rows = {tuple(s): v for s, v in zip(scenes.flatten(1).tolist(), z.double(), strict=True)}
    at = slot * space.n_concepts + concept
    rest = sorted({(*s[:at], *s[at + 1 :]) for s in rows})
    whole, fixed = [], []
    for a, b in itertools.product(range(space.n_values[concept]), repeat=2):
        deltas = torch.stack([rows[(*c[:at], b, *c[at:])] - rows[(*c[:at], a, *c[at:])] for c in rest])
        whole.append(float(deltas.square().sum(1).mean()))
        fixed.append(float(deltas.mean(0).square().sum()))
    return sum(whole) / len(whole), sum(fixed) / len(fixed)


def test_stability_is_that_of_all_finite_differences():
    z = noise(144, 5) + 0.5 * planted("product").embeddings[:, :5]
    spectrum = interaction_spectrum(embedded(z))
    for row in effect_stability(spectrum):
        whole, fixed = finite_differences(z, SCENES, SPACE, row.slot, int(row.concept[1]))
        assert 2 * row.total * spectrum.total == pytest.approx(whole, rel=1e-5)
        assert 2 * row.main * spectrum.total == pytest.approx(fixed, rel=1e-5)
        assert row.stability == pytest.approx(fixed / whole, rel=1e-5)
        parts = row.stability, row.same_object, row.other_objects, row.higher
        assert sum(parts) == pytest.approx(1, abs=1e-12)


def test_a_bag_is_stable_and_independent_objects_are_as_expected():
    for row in effect_stability(interaction_spectrum(planted("additive"))):
        assert row.stability == row.corrected_stability == 1
        assert (row.same_object, row.other_objects, row.higher) == (0, 0, 0)
    # Independent object vectors: the effect of a concept is its own 1 part of as many as the object has contexts.
    rows = effect_stability(interaction_spectrum(planted("memorised", dim=8192)))
    for row in rows:
        assert row.stability == pytest.approx(1 / (3 if row.concept == "c0" else 4), abs=0.02)
        assert row.same_object == pytest.approx(1 - row.stability, abs=1e-12)


def test_what_the_effect_depends_on_is_told_apart():
    # Two values each, as signs: z = x00 + 2 x00 x01 + 3 x00 x10 + 4 x00 x01 x11, each on a dimension of its own.
    space = ConceptSpace.of_sizes(2, 2)
    scenes = factorial_scenes(space, 2)
    x00, x01, x10, x11 = (2.0 * scenes.flatten(1) - 1).unbind(1)
    z = torch.stack([x00, 2 * x00 * x01, 3 * x00 * x10, 4 * x00 * x01 * x11], dim=1)
    first, second, third, fourth = effect_stability(interaction_spectrum(embedded(z, scenes, space)))
    assert (first.stability, first.same_object) == pytest.approx((1 / 30, 4 / 30))
    assert (first.other_objects, first.higher) == pytest.approx((9 / 30, 16 / 30))
    assert (second.stability, second.same_object, second.higher) == pytest.approx((0, 4 / 20, 16 / 20))
    assert third.other_objects == pytest.approx(1)
    assert fourth.higher == pytest.approx(1)
    mean = mean_stability([first, second, third, fourth])
    assert tuple(mean) == STABILITY_PARTS
    assert mean["stable"] == pytest.approx(1 / 120)
    assert sum(mean.values()) == pytest.approx(1)


def test_the_mean_effect_is_that_of_all_changes_of_one_value():
    z = planted("product").embeddings[:, :30].double() + 0.3 * noise(144, 30)
    changes = []
    place = {tuple(scene.flatten().tolist()): i for i, scene in enumerate(SCENES)}
    for slot, k in itertools.product(range(2), range(2)):
        of_factor = []
        for scene, i in place.items():
            for value in range(SPACE.n_values[k]):
                other = list(scene)
                other[2 * slot + k] = value
                if tuple(other) != scene:
                    of_factor.append(float((z[place[tuple(other)]] - z[i]).square().sum()))
        changes.append(sum(of_factor) / len(of_factor))
    spread = float((z - z.mean(0)).square().sum(1).mean())
    expected = math.sqrt(sum(changes) / len(changes) / spread)
    assert mean_effect(interaction_spectrum(embedded(z))) == pytest.approx(expected, rel=1e-5)


def test_values_that_change_nothing_have_no_effect():
    space = ConceptSpace.of_sizes(3, 1)
    scenes = factorial_scenes(space, 2)
    z = torch.nn.functional.one_hot(scenes[:, 0, 0], 3).float()
    # Two factors have two values or more: the first moves a scene by sqrt 2, the second not at all; spread is sqrt 2/3.
    found = mean_effect(interaction_spectrum(EmbeddingSet(z, scenes, space)))
    assert found == pytest.approx(math.sqrt((2 + 0) / 2 / (2 / 3)))
    assert math.isnan(mean_effect(interaction_spectrum(EmbeddingSet(torch.ones(9, 4), scenes, space))))


def test_noise_lowers_stability_and_the_correction_takes_it_back():
    clean = effect_stability(interaction_spectrum(planted("product", dim=4096)))
    noisy = effect_stability(interaction_spectrum(planted("product", dim=4096, noise=1.0)))
    for one, two in zip(clean, noisy, strict=True):
        assert two.stability < one.stability - 0.1
        assert two.corrected_stability == pytest.approx(one.stability, abs=0.01)


def test_tables_are_ready_for_json():
    spectrum = interaction_spectrum(planted("additive"))
    rows = json.loads(json.dumps(spectrum.as_dicts(), allow_nan=False))
    assert len(rows) == 15
    assert rows[4]["factors"] == [[0, "c0"], [0, "c1"]]
    assert rows[4]["kind"] == "within objects"
    printed = str(spectrum).splitlines()
    assert len(printed) == 5
    assert printed[1].split() == ["concepts", "1.0000", "1.0000", "10"]
