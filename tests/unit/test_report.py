"""A report finds out planted binding, says what it could not measure, and survives its file."""

import json
import math
from dataclasses import replace

import pytest
import torch

from conceptbind.embeddings import EmbeddingSet
from conceptbind.encoders import from_functions
from conceptbind.planted import planted_encoders
from conceptbind.report import measure, one_modality
from conceptbind.report.data import data_set, embed, sampled
from conceptbind.report.measure import binding_report, cross_verdict, report_on, untrained_of
from conceptbind.report.one_modality import fewer
from conceptbind.report.report import KEYS, Report, read_report
from conceptbind.report.sizes import size_of
from conceptbind.scenes import ConceptSpace, factorial_scenes

SPACE = ConceptSpace(("colour", "shape"), (tuple("rgbyop"), tuple("ABCDEF")))
SCENES = factorial_scenes(SPACE, 2)


def planted(kind, *, dim=64, noise=0.1, seed=0):
    embeddings = planted_encoders(SPACE, kind, dim=dim, seed=seed, noise=noise).scenes(SCENES)
    return EmbeddingSet(embeddings, SCENES, SPACE)


@pytest.fixture
def only_between(monkeypatch):
    """Leave out what is measured inside a modality: those parts have tests of their own."""
    monkeypatch.setattr(one_modality, "PARTS", {})

    def no_verdict(*_, **__):
        raise ValueError("too few scenes")

    monkeypatch.setattr(measure, "judge_binding", no_verdict)


@pytest.fixture
def only_probes(monkeypatch, only_between):
    monkeypatch.setattr(one_modality, "PARTS", {"probes": one_modality._probes})


@pytest.fixture(scope="module")
def reports():
    kinds = ("additive", "product", "memorised")
    return {kind: binding_report(embeddings=planted(kind), preset="smoke") for kind in kinds}


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("additive", "bag of concepts"),
        ("product", "simple binding"),
        ("memorised", "memorised objects"),
    ],
)
def test_the_verdict_on_planted_binding_is_right(reports, kind, verdict):
    report = reports[kind]
    assert report.verdict == report.verdicts["embedding"] == verdict
    assert report.why["embedding"]


def test_planted_numbers_are_what_they_must_be(reports):
    bag, product, table = (reports[k].metrics for k in ("additive", "product", "memorised"))
    for metrics in (bag, product, table):
        assert all(math.isfinite(v) for v in metrics.values())
        assert metrics["embedding_probe_concepts"] > 0.95
        # shuffled labels leave nothing to find
        assert metrics["embedding_probe_objects_shuffled"] < 0.05
        assert metrics["embedding_additive_r2_held_out_shuffled"] < 0.05
        assert metrics["embedding_additive_r2_avg_pos"] > 0.9
    # a bag reads the objects of scenes that are their own twin, and few more: 1 - (5/6)^2 = .31
    assert bag["embedding_probe_objects"] < 0.5 < 0.95 < product["embedding_probe_objects"]
    assert product["embedding_product_objects_held_out"] > 0.9
    assert table["embedding_product_objects_held_out"] < 0.1
    # object parts of a bag are sums of concept parts; those of a table are not
    assert bag["embedding_additive_r2_concepts"] > 0.95 > 0.6 > table["embedding_additive_r2_concepts"]


def test_what_is_measured_twice_agrees(reports, only_probes):
    again = binding_report(embeddings=planted("additive"), preset="smoke")
    assert again.metrics
    assert again.metrics.items() <= reports["additive"].metrics.items()
    assert again.settings["sha256"] == reports["additive"].settings["sha256"]


def test_untrained_embeddings_get_rows_of_their_own(only_probes):
    found = binding_report(
        texts=planted("product"), untrained_texts=planted("additive", seed=1), preset="smoke"
    )
    assert found.metrics["text_probe_objects_random_init"] < 0.5 < found.metrics["text_probe_objects"]
    assert not any(name.endswith(("_low_random_init", "_chance_shuffled")) for name in found.metrics)


def test_two_modalities_that_bind_alike_bind_between_them(only_between):
    both = planted_encoders(SPACE, "product", dim=64, seed=0)
    first = both.scenes(SCENES)
    noise = 0.3 * torch.randn(first.shape, generator=torch.Generator().manual_seed(0))
    images, texts = (EmbeddingSet(e.float(), SCENES, SPACE) for e in (first + noise, first))
    found = binding_report(images, texts, preset="smoke")
    assert found.verdicts["cross_modal"] == "binds"
    assert found.metrics["image_to_text_two_way"] > 0.9
    assert found.metrics["image_to_text_two_way_shuffled"] < 0.7
    # where there is no verdict inside a modality, it says why
    assert found.verdict == "undetermined"
    assert found.why["image"] == "no verdict: too few scenes"


def test_two_bags_are_a_bag_between_them(only_between):
    sums = planted_encoders(SPACE, "additive", dim=64, seed=0).scenes(SCENES)
    noise = torch.randn(2, *sums.shape, generator=torch.Generator().manual_seed(0))
    images, texts = (EmbeddingSet((sums + 0.1 * n).float(), SCENES, SPACE) for n in noise)
    found = binding_report(images, texts, preset="smoke")
    assert found.verdicts["cross_modal"] == "bag of concepts"


@pytest.mark.parametrize(
    ("share", "low", "high", "ties", "verdict"),
    [
        (0.9, 0.8, 0.95, 0.0, "binds"),
        (0.52, 0.4, 0.6, 0.0, "bag of concepts"),
        (0.0, 0.0, 0.01, 1.0, "bag of concepts"),
        (0.2, 0.1, 0.3, 0.0, "anti-binding"),
        (0.2, 0.1, 0.3, 0.2, "undetermined"),
    ],
)
def test_the_verdict_between_modalities_follows_the_interval(share, low, high, ties, verdict):
    metrics = {}
    for d in measure.DIRECTIONS:
        metrics |= {f"{d}_two_way": share, f"{d}_two_way_low": low, f"{d}_two_way_high": high}
        metrics[f"{d}_two_way_ties"] = ties
    found, why = cross_verdict(metrics)
    assert found == verdict
    assert f"{share:.2f}" in why


def test_directions_that_disagree_decide_nothing():
    metrics = {
        "image_to_text_two_way": 0.9,
        "image_to_text_two_way_low": 0.8,
        "image_to_text_two_way_high": 1.0,
    }
    metrics |= {
        "text_to_image_two_way": 0.5,
        "text_to_image_two_way_low": 0.4,
        "text_to_image_two_way_high": 0.6,
    }
    assert cross_verdict(metrics)[0] == "undetermined"


def test_what_a_sample_does_not_allow_is_noted_and_left_out():
    data = planted("product").subset(sampled(len(SCENES), 12, seed=0))
    found = binding_report(embeddings=data, preset="smoke")
    assert "embedding_additive_r2_avg" in found.metrics
    assert "embedding_edit_retrieval" not in found.metrics
    assert any(note.startswith("embedding: edits not measured: ") for note in found.notes)
    assert found.verdict == "undetermined"
    assert found.why["embedding"]


def test_large_sets_are_sampled_and_say_so(monkeypatch, only_probes):
    monkeypatch.setattr(measure, "size_of", lambda preset: replace(size_of(preset), most_scenes=300))
    found = binding_report(embeddings=planted("additive"), preset="smoke")
    assert "embedding: a sample of 300 of 1,296 scenes was measured" in found.notes
    assert found.settings["n_scenes"] == {"embedding": 1296}
    assert found.settings["sizes"]["most_scenes"] == 300


def test_a_sample_is_seeded_and_without_repetition():
    data = planted("additive")
    some = fewer(data, 100, seed=3)
    assert some.n_scenes == 100
    assert len(some.scenes.unique(dim=0)) == 100
    assert torch.equal(some.scenes, fewer(data, 100, seed=3).scenes)
    assert not torch.equal(some.scenes, fewer(data, 100, seed=4).scenes)
    assert fewer(data, 5000, seed=0) is data


def one_object():
    data = planted("additive")
    return EmbeddingSet(data.embeddings, data.scenes[:, :1], SPACE)


def one_concept():
    space = ConceptSpace(("colour", "shape"), (tuple("rgbyop"), ("A",)))
    scenes = factorial_scenes(space, 2)
    return EmbeddingSet(torch.randn(len(scenes), 4), scenes, space)


def equal():
    return EmbeddingSet(torch.ones(len(SCENES), 4), SCENES, SPACE)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (one_object, "scenes of one object have nothing to bind"),
        (one_concept, "binding needs two concepts with two values or more, the labels have 1"),
        (equal, "all 1296 embeddings are equal"),
        (lambda: planted("additive").subset(torch.arange(9)), "9 scenes are too few"),
    ],
)
def test_what_says_nothing_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        binding_report(embeddings=data(), preset="smoke")


def test_one_kind_of_input_is_needed():
    with pytest.raises(ValueError, match="give images, texts or both"):
        binding_report(preset="smoke")
    with pytest.raises(ValueError, match="give images, texts or both"):
        binding_report(planted("additive"), embeddings=planted("additive"), preset="smoke")


def test_the_file_of_a_report_is_read_back(reports, tmp_path):
    path = tmp_path / "new" / "report.json"
    reports["product"].write(path)
    assert read_report(path).as_dict() == reports["product"].as_dict()
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert set(KEYS) <= set(stored)
    assert stored["task"] == "binding_report"
    assert stored["language"] == "en"
    assert [p.name for p in path.parent.iterdir()] == ["report.json"]


def test_no_metric_is_nan_in_a_file(reports, tmp_path):
    broken = replace(reports["product"], metrics={"embedding_probe_objects": math.nan})
    with pytest.raises(ValueError, match="not finite"):
        broken.write(tmp_path / "report.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"task": "zeroshot_retrieval"}', '{"task": "binding_report"}']
)
def test_another_file_is_no_report(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=str(path)):
        read_report(path)


def test_verdicts_that_differ_are_both_named():
    found = Report(
        "d", "m", "", {}, {"image": "simple binding", "text": "undetermined", "cross_modal": "binds"}, {}
    )
    assert found.verdict == "image: simple binding; text: undetermined"
    assert replace(found, verdicts={"text": "undetermined"}).verdict == "undetermined"


@pytest.mark.parametrize(
    ("name", "n_scenes", "modalities"),
    [
        ("clevr2d", 576, ("image", "text")),
        ("clevr3d", 576, ("image", "text")),
        ("captions8", 4096, ("text",)),
        ("captions20", 160_000, ("text",)),
        ("pocket", 2304, ("image", "text")),
    ],
)
def test_data_sets_hold_what_they_say(name, n_scenes, modalities):
    data = data_set(name)
    assert len(data.scenes(10**6, seed=0)) == n_scenes
    assert data.modalities == modalities
    assert data.n_scenes == n_scenes
    assert len(data.scenes(50, seed=0)) == 50


def test_an_unknown_data_set_and_one_of_the_wrong_kind():
    with pytest.raises(ValueError, match="there is no data set 'imagenet'"):
        data_set("imagenet")
    encoder = from_functions(images=lambda x: x.float().mean((2, 3)), name="mean colour")
    with pytest.raises(ValueError, match=r"encodes images, and captions8 has none.*clevr2d"):
        embed(encoder, data_set("captions8"), most=10, seed=0)
    assert untrained_of(encoder, seed=0) is None


def test_a_sample_of_a_data_set_says_so(only_probes, monkeypatch):
    monkeypatch.setattr(measure, "size_of", lambda preset: replace(size_of(preset), most_scenes=100))
    encoder = from_functions(texts=lambda texts: [[len(t), hash(t) % 7] for t in texts], name="length")
    found = report_on(encoder, "clevr2d", preset="smoke")
    assert found.notes[0] == "clevr2d: a sample of 100 of 576 scenes was measured"
    assert found.settings["n_scenes"] == {"text": 100}


def test_a_function_gets_a_verdict():
    vectors = {}
    generator = torch.Generator().manual_seed(0)

    def words(texts):
        for text in texts:
            for word in text.split():
                if word not in vectors:
                    vectors[word] = torch.randn(48, generator=generator)
        return torch.stack([sum(vectors[w] for w in t.split()) for t in texts])

    found = report_on(from_functions(texts=words, name="words"), "clevr2d", preset="smoke")
    assert (found.model, found.dataset, found.verdict) == ("words", "clevr2d", "bag of concepts")
    assert set(found.verdicts) == {"text"}
