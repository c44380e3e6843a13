"""Curves, smallest approximators and gains of depth, of a table whose numbers are made up to be told by hand."""

import json

import pytest

from conceptbind.analysis.complexity import Subject, complexity_jobs, sweep_of
from conceptbind.analysis.complexity_table import COLUMNS, ComplexityTable, compact
from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, factorial_scenes
from conceptbind.store import ResultStore
from conceptbind.sweeps import run_jobs


def row(name, coverage, seed, r2, *, n_parameters=10, converged=True, kind=None, width=None, depth=None):
    return {
        "subject": "toy",
        "name": name,
        "coverage": coverage,
        "seed": seed,
        "converged": converged,
        "n_parameters": n_parameters,
        "kind": kind,
        "width": width,
        "depth": depth,
        "r2_held_out": r2,
    }


def mlp(depth, r2, n_parameters, **more):
    name = "MLP 8" + (f" x {depth}" if depth > 1 else "")
    return row(name, 0.5, 0, r2, n_parameters=n_parameters, kind="mlp", width=8, depth=depth, **more)


@pytest.fixture
def table():
    return ComplexityTable(
        [
            row("additive", 0.5, 0, 0.25),
            row("additive", 0.5, 1, 0.75),
            row("additive", 0.9, 0, 0.5),
            row("additive", 0.9, 1, 100.0, converged=False),
            mlp(1, 0.78, 100),
            mlp(2, 0.8, 200),
            mlp(3, 0.6, 300),
            row("product", 0.5, 0, 0.7, n_parameters=20),
            row("product", 0.5, 1, 0.6, n_parameters=31),
        ]
    )


def test_a_curve_has_mean_and_range_and_leaves_out_what_did_not_converge(table):
    curve = table.curve("toy", "additive", "r2_held_out")
    assert curve.coverages == (0.5, 0.9)
    assert curve.mean == (0.5, 0.5)
    assert curve.low == (0.25, 0.5)
    assert curve.high == (0.75, 0.5)
    assert curve.n_left_out == 1
    assert table.at("toy", "additive", "r2_held_out", 0.9) == 0.5


def test_the_smallest_that_reaches_a_share_of_the_best(table):
    found = {
        fraction: table.smallest("toy", "r2_held_out", coverage=0.5, fraction=fraction)
        for fraction in (1.0, 0.95, 0.8, 0.5)
    }
    # 1.0: only .8 itself. .95: .76 and above. .8: .64 and above, so the product of .65. .5: the sum.
    assert found == {
        1.0: ("MLP 8 x 2", 200),
        0.95: ("MLP 8", 100),
        0.8: ("product", 26),
        0.5: ("additive", 10),
    }


def test_the_smallest_of_a_kind_is_measured_against_the_best_of_all(table):
    rows = [*table.rows, row("product", 0.9, 0, 1.0, n_parameters=5), mlp(4, 0.1, 1, converged=True)]
    wide = ComplexityTable(rows)
    assert wide.smallest("toy", "r2_held_out", coverage=0.5, fraction=0.5, kind="mlp") == ("MLP 8", 100)
    assert wide.smallest("toy", "r2_held_out", coverage=0.9, kind="mlp") is None


def test_there_is_no_smallest_where_nothing_is_reached():
    nothing = ComplexityTable([row("additive", 0.5, 0, -0.5), row("product", 0.5, 0, 0.0)])
    assert nothing.smallest("toy", "r2_held_out", coverage=0.5) is None


def test_gains_of_depth_start_at_the_additive_fit(table):
    found = table.depth_gains("toy", "r2_held_out", coverage=0.5, width=8)
    assert [(depth, value) for depth, value, _ in found] == [(0, 0.5), (1, 0.78), (2, 0.8), (3, 0.6)]
    assert [gain for *_, gain in found] == pytest.approx([0, 0.28, 0.02, -0.2])


def test_what_is_not_there_is_named(table):
    with pytest.raises(KeyError, match="there are toy"):
        table.of("MiniLM")
    with pytest.raises(KeyError, match="there are MLP 8, MLP 8 x 2, MLP 8 x 3, additive, product"):
        ComplexityTable(sorted(table.rows, key=lambda r: r["name"])).of("toy", "forest")
    with pytest.raises(KeyError, match="no converged fit of 'additive'"):
        ComplexityTable([row("additive", 0.5, 0, 0.3, converged=False)]).at(
            "toy", "additive", "r2_held_out", 0.5
        )


def test_compact_rows_of_a_real_sweep_are_what_the_table_reads(tmp_path):
    space = ConceptSpace.of_sizes(4, 4)
    scenes = factorial_scenes(space, 2)
    planted = planted_encoders(space, "additive", dim=16, seed=0, noise=0.1)
    subject = Subject("toy", EmbeddingSet(planted.scenes(scenes), scenes, space))
    with ResultStore(tmp_path / "fits.sqlite") as store:
        run_jobs(store, complexity_jobs(subject, sweep_of("smoke")), progress=False)
        stored = store.rows("complexity")
    short = compact(stored)
    assert len(short) == len(stored) == 4
    assert json.loads(json.dumps(short)) == short
    assert set(short[0]) == {*COLUMNS, "kind", "width", "depth", "r2_all_steps"}
    table = ComplexityTable(short)
    network = next(r for r in stored if r["how"].get("kind") == "mlp")
    (compacted,) = (r for r in short if r["kind"] == "mlp")
    assert compacted["r2_all_steps"] == pytest.approx(network["chosen"]["train_r2_end"], abs=5e-5)
    good = [r for r in stored if r["converged"]]
    assert "additive" in {r["name"] for r in good}
    for r in good:
        assert table.at("toy", r["name"], "r2_train", 0.5) == pytest.approx(r["r2_train"], abs=5e-5)
    # A bag is what the additive fit can reach: nothing of fewer parameters there is.
    assert table.smallest("toy", "r2_held_out", coverage=0.5)[0] == "additive"
