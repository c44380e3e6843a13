"""Edits land where the planted formulas say, and agree with doing one after another by hand."""

import math

import pytest
import torch

from conceptbind.analysis import editing
from conceptbind.analysis.additive import fit_additive, fit_all, fit_single
from conceptbind.analysis.editing import (
    ANY,
    HEADS,
    edit_vectors,
    edited,
    groups,
    measure_edits,
    read_edits,
    retrieve_edits,
)
from conceptbind.analysis.edits import (
    change_concept,
    exchange_concept,
    replace_object,
    swap_objects,
)
from conceptbind.analysis.fixed_probes import fit_fixed_probes
from conceptbind.analysis.probing import OBJECTS
from conceptbind.analysis.recognition import (
    concept_recognition,
    heads,
    object_recognition,
    present,
    scene_margins,
)
from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, factorial_scenes, sample_scenes, single_object_scenes

SPACE = ConceptSpace(("colour", "shape"), (("red", "green", "blue", "grey"), ("circle", "square", "star")))
ORDERED = factorial_scenes(SPACE, 2)
INDEX = SPACE.object_index(ORDERED)
UNORDERED = ORDERED[INDEX[:, 0] <= INDEX[:, 1]]
"""One scene of each two where the order of the objects makes no difference to a planted embedding."""
MODELS = [("objects", "avg"), ("objects", "avg+pos"), ("concepts", "avg"), ("concepts", "avg+pos")]


def planted(kind, scenes=UNORDERED, *, dim=512, **arguments):
    return EmbeddingSet(
        planted_encoders(SPACE, kind, dim=dim, seed=0, **arguments).scenes(scenes), scenes, SPACE
    )


def noise(scenes=ORDERED, dim=24, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return EmbeddingSet(torch.randn(len(scenes), dim, generator=generator), scenes, SPACE)


def object_sets(scenes):
    return SPACE.object_index(scenes).sort(1).values


# --- which pairs of scenes there are ---------------------------------------------------------------------------------


def test_every_replacement_is_there_once():
    edits = replace_object(noise())
    assert len(edits) == len(ORDERED) * 2 * 11
    assert torch.equal(edits.before, ORDERED[edits.source])
    assert torch.equal(edits.after, ORDERED[edits.target])
    assert ((edits.before != edits.after).any(2).sum(1) == 1).all()  # one slot, and it did change
    assert len(torch.stack([edits.source, edits.target]).unique(dim=1).T) == len(edits)
    assert (edits.n_missing, edits.n_unchanged) == (0, 0)


def test_a_change_of_one_concept_changes_one_value():
    edits = change_concept(noise(), "colour")
    assert len(edits) == len(ORDERED) * 2 * 3
    assert (edits.n_changed == 1).all()
    assert torch.equal(edits.before[..., 1], edits.after[..., 1])
    # They are those replacements that leave the shape as it is.
    pairs = {(int(a), int(b)) for a, b in zip(edits.source, edits.target, strict=True)}
    every = replace_object(noise())
    same = (every.before[..., 1] == every.after[..., 1]).all(1)
    assert pairs == {(int(a), int(b)) for a, b in zip(every.source[same], every.target[same], strict=True)}


def test_swapping_moves_whole_objects_and_skips_pairs_of_the_same():
    edits = swap_objects(noise())
    assert torch.equal(edits.after, edits.before.flip(1))
    assert len(edits) == 12 * 11
    assert edits.n_unchanged == 12


def test_the_twin_has_other_objects_made_of_the_same_values():
    edits = exchange_concept(noise(), "colour")
    # Both values must differ: 4 x 3 colours times 3 x 2 shapes.
    assert len(edits) == 72
    assert edits.n_unchanged == len(ORDERED) - 72
    assert torch.equal(edits.before.sort(1).values, edits.after.sort(1).values)
    assert not (object_sets(edits.before) == object_sets(edits.after)).all(1).any()
    assert torch.equal(edits.before[..., 1], edits.after[..., 1])


def test_targets_that_no_scene_shows_are_counted_and_left_out():
    keep = torch.rand(len(ORDERED), generator=torch.Generator().manual_seed(3)) < 0.4
    data = noise(ORDERED[keep])
    edits = replace_object(data)
    rows = {tuple(s.flatten().tolist()): i for i, s in enumerate(data.scenes)}
    expected = set()
    for i, scene in enumerate(data.scenes):
        for slot in range(2):
            for other in SPACE.all_objects():
                after = scene.clone()
                after[slot] = other
                target = rows.get(tuple(after.flatten().tolist()))
                if target is not None and target != i:
                    expected.add((i, target))
    assert {(int(a), int(b)) for a, b in zip(edits.source, edits.target, strict=True)} == expected
    assert edits.n_missing == int(keep.sum()) * 2 * 11 - len(expected)


@pytest.mark.parametrize("listed", [True, False])
def test_a_sample_holds_different_edits_that_exist(listed, monkeypatch):
    data = noise(sample_scenes(SPACE, 3, 600, seed=0))
    every = replace_object(data)
    if not listed:
        monkeypatch.setattr("conceptbind.analysis.edits.LISTED", 1)
    some = replace_object(data, n=200, seed=1)
    all_pairs = set(zip(every.source.tolist(), every.target.tolist(), strict=True))
    pairs = list(zip(some.source.tolist(), some.target.tolist(), strict=True))
    assert len(set(pairs)) == 200
    assert set(pairs) <= all_pairs
    assert torch.equal(some.after, data.scenes[some.target])
    again, other = replace_object(data, n=200, seed=1), replace_object(data, n=200, seed=2)
    assert torch.equal(some.source, again.source)
    assert not torch.equal(some.source, other.source)


def test_a_sample_is_spread_over_slots_and_scenes(monkeypatch):
    monkeypatch.setattr("conceptbind.analysis.edits.LISTED", 1)
    edits = replace_object(noise(), n=50, seed=0)
    slot = (edits.before != edits.after).any(2).long().argmax(1)
    assert 10 <= int(slot.sum()) <= 40  # 25 +- 3.5: beyond four standard deviations
    assert int(edits.source.min()) < 30
    assert int(edits.source.max()) > len(ORDERED) - 30


def test_where_there_are_fewer_a_sample_is_all():
    data = noise()
    every, some = replace_object(data), replace_object(data, n=10_000, seed=0)
    pairs = [sorted(zip(e.source.tolist(), e.target.tolist(), strict=True)) for e in (every, some)]
    assert pairs[0] == pairs[1]


def test_edits_stay_among_the_scenes_asked_for():
    mask = torch.arange(len(ORDERED)) % 2 == 0
    edits = replace_object(noise(), among=mask)
    assert mask[edits.source].all()
    assert mask[edits.target].all()
    everywhere = replace_object(noise())
    assert len(edits) == int(everywhere.within(mask).sum())


def test_groups_tell_what_changes_and_what_is_shared():
    edits = replace_object(noise())
    group = groups(edits)
    shares = [
        any(
            bool((after[i] == after[j]).any())
            for i in range(2)
            for j in range(2)
            if i != j and not torch.equal(after[i], before[i])
        )
        for before, after in zip(edits.before, edits.after, strict=True)
    ]
    assert group["shares with neighbour"].tolist() == shares
    assert torch.equal(group["shares nothing"], ~group["shares with neighbour"])
    assert torch.equal(group["one concept"], ~group["every concept"])  # of two concepts
    assert int(group["one concept"].sum()) == len(ORDERED) * 2 * (3 + 2)
    assert "every concept" not in groups(change_concept(noise(), "shape"))


# --- the edited embedding -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "estimator"), MODELS)
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_it_agrees_with_one_edit_after_another(level, estimator, metric):
    data = noise()
    fit = fit_additive(data, level=level, estimator=estimator)
    edits = replace_object(data, n=60, seed=0)
    found = retrieve_edits(data, edits, fit, strengths=(0.5, 1.0), metric=metric)
    for at, strength in enumerate((0.5, 1.0)):
        for e in range(len(edits)):
            new = data.embeddings[edits.source[e]].double()
            for slot in range(2):
                part = slot if estimator == "avg+pos" else 0
                for scene, sign in ((edits.after[e], 1), (edits.before[e], -1)):
                    if level == "objects":
                        names = [int(SPACE.object_index(scene[slot]))]
                    else:
                        names = [int(scene[slot, 0]), 4 + int(scene[slot, 1])]
                    new = new + sign * strength * sum(fit.parts[part, n] for n in names)
            gallery = data.embeddings.double()
            if metric == "cosine":
                similar = torch.nn.functional.cosine_similarity(new.unsqueeze(0), gallery)
            else:
                similar = -(gallery - new).square().sum(1) / 2
            own = similar[edits.target[e]].item()
            similar[edits.target[e]] = -math.inf
            assert found.margin[at, e].item() == pytest.approx(own - similar.max().item(), abs=2e-5)
            nearest = int(similar.argmax()) if own < similar.max() else int(edits.target[e])
            assert int(found.nearest[at, e]) == nearest


def test_strength_zero_is_the_source_and_blocks_change_nothing(monkeypatch):
    data = noise()
    fit = fit_additive(data)
    edits = replace_object(data, n=100, seed=0)
    assert torch.equal(edited(data, edits, fit, strength=0.0), data.embeddings[edits.source])
    found = retrieve_edits(data, edits, fit, strengths=(0.0, 1.0))
    assert found.source_nearest(0.0) == 1
    assert found.rate(0.0).accuracy == 0
    monkeypatch.setattr(editing, "BLOCK_FLOATS", 7 * 2 * data.dim)
    in_blocks = retrieve_edits(data, edits, fit, strengths=(0.0, 1.0))
    torch.testing.assert_close(found.margin, in_blocks.margin)
    assert torch.equal(found.nearest, in_blocks.nearest)


def test_all_models_land_exactly_on_a_bag_and_tie_with_its_twins():
    data = planted("additive", dim=64)
    edits = replace_object(data)
    for fit in fit_all(data).values():
        new = edited(data, edits, fit)
        torch.testing.assert_close(new, data.embeddings[edits.target], atol=1e-4, rtol=0)
        found = retrieve_edits(data, edits, fit)
        # Strictly nearest only where no other scene is made of the same values.
        values = UNORDERED.sort(1).values.flatten(1)
        alone = (values.unsqueeze(1) == values).all(2).sum(1) == 1
        assert torch.equal(found.margin[0] > 0, alone[edits.target])
        assert torch.equal(found.margin[0] == 0, ~alone[edits.target])
        assert found.rate().ties == pytest.approx(float((~alone[edits.target]).double().mean()))


@pytest.mark.parametrize("kind", ["product", "memorised"])
def test_object_parts_edit_what_binds_and_what_is_memorised(kind):
    data = planted(kind)
    fit = fit_additive(data)
    for edits in (replace_object(data), exchange_concept(data, "shape")):
        found = retrieve_edits(data, edits, fit)
        assert found.rate().accuracy == 1
        assert found.source_nearest() == 0


def test_the_twin_edit_is_exactly_zero_for_concept_parts_without_position():
    data = noise()
    edits = exchange_concept(data, "colour")
    assert (edit_vectors(fit_additive(data, level="concepts", estimator="avg"), edits) == 0).all()
    assert (edit_vectors(fit_additive(data, estimator="avg"), swap_objects(data)) == 0).all()
    for level, estimator in MODELS[:2] + MODELS[3:]:
        vectors = edit_vectors(fit_additive(data, level=level, estimator=estimator), edits)
        assert (vectors.norm(dim=1) > 1e-3).all()


def test_concept_parts_cannot_make_the_twin_of_a_product():
    data = planted("product")
    edits = exchange_concept(data, "shape")
    fit = fit_additive(data, level="concepts", estimator="avg")
    found = retrieve_edits(data, edits, fit)
    assert found.source_nearest() == 1
    probes = fit_fixed_probes(data, seeds=(0,), l2=1e-4, train_fraction=0.5)
    read = read_edits(data, edits, fit, probes)
    assert read.rate("all concepts").accuracy == 1  # the twin has the same values
    assert read.rate(OBJECTS).accuracy == 0


def test_single_parts_make_the_edit_too():
    data = planted("product")
    alone = EmbeddingSet(
        planted_encoders(SPACE, "product", dim=512, seed=0).scenes(single_object_scenes(SPACE)),
        single_object_scenes(SPACE),
        SPACE,
    )
    edits = replace_object(data, n=200, seed=0)
    fit = fit_single([alone], data.embeddings.mean(0))
    torch.testing.assert_close(edited(data, edits, fit), data.embeddings[edits.target], atol=1e-4, rtol=0)


def test_parts_of_training_scenes_edit_held_out_scenes():
    scenes = factorial_scenes(SPACE, 2)
    data = planted("product", scenes)
    train = torch.rand(len(scenes), generator=torch.Generator().manual_seed(0)) < 0.6
    fit = fit_additive(data, estimator="avg", train=train)
    edits = replace_object(data, among=~train)
    assert not train[edits.target].any()
    torch.testing.assert_close(edited(data, edits, fit), data.embeddings[edits.target], atol=1e-3, rtol=0)


# --- what is read, and the table ------------------------------------------------------------------------------------


def test_reading_agrees_with_recognition_of_the_edited_scenes():
    data = planted("product", ORDERED, noise=1.0)
    probes = fit_fixed_probes(data, seeds=(0, 1), l2=1e-3)
    fit = fit_additive(data, level="concepts")  # leaves the product behind, so that not everything is right
    edits = replace_object(data, n=300, seed=0)
    read = read_edits(data, edits, fit, probes)
    assert torch.equal(read.judged, torch.stack([edits.within(~t) for t in probes.train]))
    wanted = dict.fromkeys(HEADS, 0.0)
    for seed, rows in enumerate(read.judged):
        new, after = edited(data, edits, fit)[rows], edits.after[rows]
        scores = new @ probes.probes.weight[seed] + probes.probes.bias[seed]
        concepts = concept_recognition(SPACE, after, scores).overall
        objects = object_recognition(SPACE, after, scores)
        wanted["all concepts"] += concepts.accuracy / 2
        wanted[OBJECTS] += objects.accuracy / 2
        marks = present(SPACE, after)
        right = [scene_margins(scores[:, h], marks[:, h]) > 0 for h in heads(SPACE)]
        wanted["joint"] += float(torch.stack(right).all(0).double().mean()) / 2
    for head in HEADS:
        assert read.rate(head).accuracy == pytest.approx(wanted[head])
        assert read.share(head) == pytest.approx(wanted[head])
    assert 0 < wanted["joint"] < 1


def test_the_table_has_its_controls_beside_every_model():
    data = planted("product")
    probes = fit_fixed_probes(data, seeds=(0,), l2=1e-4)
    fits = {"avg": fit_additive(data, estimator="avg"), "avg+pos": fit_additive(data)}
    edits = replace_object(data, n=400, seed=0)
    table = measure_edits(data, edits, fits, probes=probes)
    chance = 1 / data.n_scenes
    for name in fits:
        row = table.row(name)
        assert row.retrieval == 1
        assert row.retrieval_low < 1
        assert row.retrieval_chance == pytest.approx(chance)
        assert row.joint > 0.9
        assert row.n_edits == 400
        assert 0 < row.n_judged < 400
        wrong = table.row(name, control="permuted parts")
        assert wrong.retrieval < 0.2
        assert wrong.joint < 0.2
        parts = [table.row(name, group=g) for g in ("one concept", "every concept")]
        assert sum(p.n_edits for p in parts) == 400
    nothing = table.row(ANY, control="no edit")
    assert nothing.retrieval == 0
    assert nothing.source_nearest == 1
    with pytest.raises(KeyError, match="there are"):
        table.row("nothing")


def test_without_probes_the_readings_are_missing():
    data = noise()
    table = measure_edits(
        data, replace_object(data, n=20, seed=0), {"avg": fit_additive(data, estimator="avg")}
    )
    row = table.row("avg")
    assert math.isnan(row.joint)
    assert row.as_dict()["joint"] is None
    assert row.n_judged == 0


# --- wrong input ----------------------------------------------------------------------------------------------------


def test_wrong_requests_are_named():
    data = noise()
    fit = fit_additive(data)
    edits = replace_object(data, n=10, seed=0)
    with pytest.raises(ValueError, match=r"no concept 'size'; there are \('colour', 'shape'\)"):
        change_concept(data, "size")
    with pytest.raises(ValueError, match="two different ones of 0 to 1"):
        swap_objects(data, (0, 2))
    with pytest.raises(ValueError, match="at least 1; got 0"):
        replace_object(data, n=0)
    with pytest.raises(ValueError, match="one a scene"):
        replace_object(data, among=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"strength 0\.3 was not measured"):
        retrieve_edits(data, edits, fit).rate(0.3)
    with pytest.raises(ValueError, match="one an edit"):
        retrieve_edits(data, edits, fit).rate(keep=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="no edit is left of 10"):
        edits.subset(torch.zeros(10, dtype=torch.bool))
    with pytest.raises(ValueError, match="fits is empty"):
        measure_edits(data, edits, {})
    twice = EmbeddingSet(data.embeddings, torch.cat([ORDERED[:-1], ORDERED[:1]]), SPACE)
    with pytest.raises(ValueError, match="'red circle and red circle' occurs more than once"):
        replace_object(twice)
    alone = EmbeddingSet(torch.ones(1, 4), ORDERED[:1], SPACE)
    with pytest.raises(ValueError, match=r"no such edit .*: 22 targets are no scene"):
        replace_object(alone)


def test_too_many_to_list_and_sampling_them():
    space = ConceptSpace.of_sizes(60, 60)
    scenes = factorial_scenes(ConceptSpace.of_sizes(60, 60), 1)
    data = EmbeddingSet(torch.zeros(len(scenes), 2), scenes, space)
    with pytest.raises(ValueError, match="too many to list: draw some"):
        replace_object(data)
    edits = replace_object(data, n=1000, seed=0)
    assert len(edits) == 1000
    assert (edits.source != edits.target).all()


def test_probes_of_other_data_and_unknown_objects_are_refused():
    data = noise()
    edits = replace_object(data, n=10, seed=0)
    other = fit_fixed_probes(noise(UNORDERED), seeds=(0,), l2=1e-2)
    with pytest.raises(ValueError, match="fit them with fit_fixed_probes"):
        read_edits(data, edits, fit_additive(data), other)
    few = fit_additive(data, train=(INDEX < 11).all(1))
    with pytest.raises(ValueError, match="has no part"):
        retrieve_edits(data, replace_object(data), few)
    with pytest.raises(KeyError, match="no head"):
        read_edits(data, edits, fit_additive(data), fit_fixed_probes(data, seeds=(0,), l2=1e-2)).rate(
            "colour"
        )
