"""Planted binding functions: what they hold, how large the noise is, and what a job of the calibration gives."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from conceptbind.analysis import calibration
from conceptbind.analysis.calibration import ANSWERS, KINDS, RANK, calibrate, planted_function
from conceptbind.analysis.interactions import interaction_spectrum
from conceptbind.analysis.verdict import Judgement, Recovery, within_share
from conceptbind.approximators.products import ObjectProduct
from conceptbind.results import read_table
from conceptbind.scenes import ConceptSpace, factorial_scenes
from conceptbind.store import ResultStore
from conceptbind.sweeps import Ran, run_jobs

SPACE = ConceptSpace.of_sizes(4, 5)
TOOL = Path(__file__).parents[2] / "tools" / "run_calibration.py"


def planted(kind, *, noise=0.0, seed=0, space=SPACE, dim=64, **how):
    return planted_function(space, kind, dim=dim, noise=noise, seed=seed, **how)


def object_table(data):
    """Give w_o + w_p of every pair of objects of the scenes with two objects."""
    n = data.space.n_possible_objects
    return data.embeddings.double().reshape(n, n, -1)


@pytest.mark.parametrize("kind", KINDS)
def test_all_ordered_scenes_are_embedded_the_same_every_time(kind):
    data = planted(kind, noise=0.5, seed=3)
    assert torch.equal(data.scenes, factorial_scenes(SPACE, 2))
    assert torch.equal(data.embeddings, planted(kind, noise=0.5, seed=3).embeddings)
    assert not torch.equal(data.embeddings, planted(kind, noise=0.5, seed=4).embeddings)
    assert planted(kind, n_objects=1).embeddings.shape == (20, 64)
    assert kind in ANSWERS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [0.1, 2.0])
def test_noise_is_relative_to_what_the_function_says(kind, noise):
    clean = planted(kind).embeddings.double()
    added = planted(kind, noise=noise).embeddings.double() - clean
    assert float(added.std() / clean.std(0, correction=0).square().mean().sqrt()) == pytest.approx(
        noise, rel=0.02
    )
    assert abs(float(added.mean() / added.std())) < 0.02
    # The noise says nothing about the scene: 1 / sqrt(25,600) is the standard error of a correlation.
    together = torch.corrcoef(torch.stack([added.flatten(), (clean - clean.mean(0)).flatten()]))[0, 1]
    assert abs(float(together)) < 0.03


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_has_the_embeddings_of_its_scenes(kind):
    some, every = planted(kind, n_scenes=90), planted(kind)
    assert len(some.scenes.unique(dim=0)) == 90
    place = SPACE.object_index(some.scenes) @ torch.tensor([20, 1])
    torch.testing.assert_close(some.embeddings, every.embeddings[place])
    assert not torch.equal(some.scenes, planted(kind, n_scenes=90, seed=1).scenes)
    with pytest.raises(ValueError, match="401"):
        planted(kind, n_scenes=401)


def test_a_bag_of_concepts_is_blind_to_who_has_which_value():
    swapped = {"additive": 0.0, "product": None, "low-rank product": None, "memorised": None}
    scenes = factorial_scenes(SPACE, 2)
    other = scenes.clone()
    other[:, 0, 0], other[:, 1, 0] = scenes[:, 1, 0], scenes[:, 0, 0]
    rows = SPACE.scene_index(other)
    changes = ((scenes[:, 0] != scenes[:, 1]).all(1)).nonzero().squeeze(1)
    for kind, expected in swapped.items():
        z = planted(kind).embeddings
        gap = (z[rows] - z)[changes].norm(dim=1)
        assert bool((gap == 0).all()) if expected == 0.0 else float(gap.min()) > 0.5


def test_sums_over_objects_have_no_interactions_across_them():
    for kind in ("additive", "product", "low-rank product", "memorised"):
        shares = interaction_spectrum(planted(kind)).by_kind()
        assert shares["across objects"] == pytest.approx(0, abs=1e-9)
        assert shares["higher"] == pytest.approx(0, abs=1e-9)
        if kind == "additive":
            assert shares["within objects"] == pytest.approx(0, abs=1e-9)


def test_a_low_rank_product_has_that_rank_and_interactions_as_large_as_the_concepts():
    data = planted("low-rank product")
    assert within_share(data) == pytest.approx(1, abs=1e-5)
    parts = object_table(data)[:, 0] - planted("additive").embeddings.double().reshape(20, 20, -1)[:, 0]
    assert torch.linalg.matrix_rank(parts - parts.mean(0), rtol=1e-4) == RANK
    grid = (parts - parts[0] / 2).reshape(4, 5, -1)
    for axis in (0, 1):  # the same for every value of the other concept, once means are out
        assert torch.allclose(grid.mean(axis), grid.mean((0, 1)), atol=1e-4)


def test_a_global_product_is_additive_but_for_signs_that_multiply():
    data, plain = planted("global product"), planted("additive")
    signs = (data.embeddings - plain.embeddings).double()
    assert bool((signs.abs() == 1).all())
    grid = signs.reshape(4, 5, 4, 5, -1)
    # of a product of four factors every quotient of neighbours is the same, whatever the other values are
    for axis in range(4):
        quotient = grid * grid.roll(1, axis)
        other = [a for a in range(4) if a != axis]
        first = quotient.amin(other, keepdim=True)
        assert torch.equal(quotient, first.expand_as(quotient))
    # slots have factors of their own
    assert not torch.equal(grid, grid.permute(2, 3, 0, 1, 4))


def test_a_space_without_interactions_is_left_additive():
    space = ConceptSpace.of_sizes(5)
    low, plain = (planted(k, space=space, dim=8).embeddings for k in ("low-rank product", "additive"))
    assert torch.allclose(low, plain, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "how", "message"),
    [
        ("sum", {}, "kind must be one of .* got 'sum'"),
        ("additive", {"noise": -1.0}, "noise is a standard deviation, at least 0; got -1"),
        ("global product", {"dim": 24}, "dim must be a multiple of 16"),
    ],
)
def test_a_wrong_input_is_named(kind, how, message):
    with pytest.raises(ValueError, match=message):
        planted(kind, **how)


def judged(verdict, controls=0):
    recovery = Recovery("object product", 0.5, 0.1, 0.9, 0.8, True, (0.5, 0.5, 0.5))
    return Judgement(verdict, "why", 1.0, 0.9, 0.85, 0.95, 0.3, recovery, (recovery,) * controls)


def convincing(answer):
    """Evidence for an answer, under a verdict that an older rule might have taken from it."""
    objects, within = ((0.1, 0.05, 0.15), 0.0) if answer == "bag of concepts" else ((0.9, 0.85, 0.95), 0.3)
    found = Recovery("object product", 0.8, 0.1, 0.9, 0.8, True, (0.9, 0.9, 0.9))
    nothing = Recovery("object product", 0.1, 0.1, 0.9, 0.8, True, (0.0, 0.0, 0.0))
    recovery = found if answer == "simple binding" else nothing
    controls = (found,) * 3 if answer == "memorised objects" else ()
    return Judgement("undetermined", "old", 1.0, *objects, within, recovery, controls)


def test_a_job_gives_one_row_and_whether_it_is_right(tmp_path, monkeypatch):
    given = {
        "additive": judged("bag of concepts"),
        "product": judged("undetermined", controls=2),
        "global product": judged("simple binding"),
    }
    seen = []

    def verdict(subject, *, candidates):
        seen.append((subject.data.provenance["planted"], subject.data.n_scenes, [c.name for c in candidates]))
        return given[seen[-1][0]]

    monkeypatch.setattr(calibration, "verdict", verdict)
    products = (ObjectProduct(ranks=(2,)),)
    jobs = calibrate(list(given), [SPACE], [64], [0.1], [0], candidates=products)
    with ResultStore(tmp_path / "fits.sqlite") as store:
        assert run_jobs(store, jobs, progress=False) == Ran(done=3, skipped=0)
        assert run_jobs(store, jobs, progress=False) == Ran(done=0, skipped=3)
        rows = {r["planted"]: r for r in store.rows(calibration.KIND)}
    assert seen == [(kind, 400, ["object product"]) for kind in given]
    assert [(r["right"], r["undetermined"]) for r in rows.values()] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    assert rows["product"]["recovered"] == pytest.approx(0.5)
    assert rows["product"]["power"] == 0.0  # half is not most
    assert rows["product"]["controls_ceiling"] == [0.9, 0.9]
    assert rows["additive"]["power"] is None
    assert rows["additive"]["space"] == [4, 5]


def test_everything_that_determines_a_verdict_is_in_its_settings():
    one = {"kinds": ["additive"], "spaces": [SPACE], "dims": [64], "noises": [0.1], "seeds": [0]}
    (first,) = calibrate(**one)
    for change in (
        {"kinds": ["product"]},
        {"spaces": [ConceptSpace.of_sizes(5, 4)]},
        {"dims": [128]},
        {"noises": [0.2]},
        {"seeds": [1]},
        {"candidates": (ObjectProduct(restarts=3),)},
        {"n_scenes": 100},
    ):
        (job,) = calibrate(**{**one, **change})
        assert job.settings != first.settings
        assert job.settings == calibrate(**{**one, **change})[0].settings
    everything = calibrate(KINDS, [SPACE, ConceptSpace.of_sizes(3, 3)], [64, 128], [0.1, 1.0], [0, 1])
    assert len({json.dumps(job.settings) for job in everything}) == len(everything) == 5 * 16


def test_the_tool_writes_a_table_of_what_is_stored(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(TOOL.parent)
    spec = importlib.util.spec_from_file_location("run_calibration", TOOL)
    tool = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, tool)  # dataclasses look their module up
    spec.loader.exec_module(tool)
    grid = (tool.Part((4, 5), (0.1, 0.5)), tool.Part((2, 3), (0.5,), dim=32, seed=1))
    monkeypatch.setattr(tool, "GRID", grid)
    monkeypatch.setenv("CONCEPTBIND_RESULTS", str(tmp_path))

    def verdict(subject, *, candidates):
        if subject.data.dim == 32:
            raise KeyboardInterrupt
        return convincing(ANSWERS[subject.data.provenance["planted"]])

    monkeypatch.setattr(calibration, "verdict", verdict)
    monkeypatch.setattr(sys, "argv", ["run_calibration", "--store", str(tmp_path / "fits.sqlite")])
    with pytest.raises(KeyboardInterrupt):
        tool.main()
    table = read_table("calibration")
    assert [r["planted"] for r in table["rows"]] == [k for k in KINDS for _ in range(2)]
    assert all(r["right"] and not r["undetermined"] and r["seconds"] >= 0 for r in table["rows"])
    assert all(r["verdict"] == r["answer"] and r["why"] != "old" for r in table["rows"])
    assert table["settings"]["grid"][0] == {
        "space": [4, 5],
        "noises": [0.1, 0.5],
        "dim": 64,
        "seed": 0,
        "n_scenes": None,
    }
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--table"])
    tool.main()
    assert capsys.readouterr().out == "10 of 15 verdicts: 10 right, 0 undetermined, 0 wrong\n"
