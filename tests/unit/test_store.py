"""The result store: one row a fit, batches whole or not at all, foreign files left alone."""

import csv
import json
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed

import pyarrow.parquet as pq
import pytest

from conceptbind.provenance import digest
from conceptbind.store import SCHEMA_VERSION, ResultStore, StoreError

MADE_BY = {"conceptbind": "0", "device": "cpu"}
SETTINGS = [{"width": w, "encoder": 'é, "quoted"', "seeds": [0, 1]} for w in (1, 2, 4)]
NUMBERS = [
    {"accuracy": 0.1 + 0.2, "steps": 7},
    {"accuracy": 1e-300, "steps": 8},
    {"accuracy": None, "steps": 9},
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "folders" / "fits.sqlite"


@pytest.fixture
def store(path):
    with ResultStore(path) as opened:
        yield opened


def python(code, *arguments):
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)])


def test_rows_come_back_flat_and_in_order_from_another_connection(path):
    with ResultStore(path) as store:
        assert store.add("complexity", SETTINGS, NUMBERS, MADE_BY, 6.0) == 3
        assert store.add("other", [{"width": 9}], [{"loss": 1.5}], {"device": "gpu"}, 1.0) == 1
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    with ResultStore(path, create=False) as store:
        rows = store.rows("complexity")
        assert [r["kind"] for r in store.rows()] == ["complexity"] * 3 + ["other"]
        assert store.counts() == {"complexity": 3, "other": 1}
        assert store.provenances() == [MADE_BY, {"device": "gpu"}]
        assert store.provenances("other") == [{"device": "gpu"}]
    for row, settings, numbers in zip(rows, SETTINGS, NUMBERS, strict=True):
        own = {"kind": "complexity", "seconds": 2.0, "created": row["created"], "key": digest(settings)}
        assert row == settings | numbers | own
        assert row["created"].endswith("+00:00")


def test_a_row_that_is_there_is_left_alone(store):
    store.add("k", SETTINGS[:1], [{"accuracy": 0.5}], MADE_BY, 1.0)
    before = store.rows()
    assert store.missing(SETTINGS) == [1, 2]
    reordered = [dict(reversed(s.items())) for s in SETTINGS]
    assert store.add("k", reordered, [{"accuracy": 0.75}] * 3, MADE_BY, 1.0) == 2
    assert store.rows()[0] == before[0]
    assert [r["accuracy"] for r in store.rows()] == [0.5, 0.75, 0.75]
    assert store.missing(SETTINGS) == []


def test_what_is_no_number_becomes_none_at_any_depth(store):
    nan, inf = float("nan"), float("inf")
    store.add("k", [{"a": 1}], [{"x": nan, "y": [1.0, nan, (inf,)], "z": {"w": -inf, "v": 2}}], MADE_BY, 1.0)
    (row,) = store.rows()
    assert (row["x"], row["y"], row["z"]) == (None, [1.0, None, [None]], {"w": None, "v": 2})


@pytest.mark.parametrize(
    ("settings", "numbers", "message"),
    [
        ([{"a": 1}], [], "as many numbers as settings; got 0 for 1 fits of 'k'"),
        ([{"a": 1}, {"b": 1}, {"a": 1}], [{}] * 3, "settings 0 and 2 of one batch are equal"),
        ([{"a": float("nan")}], [{}], "settings 0 cannot be written as JSON"),
        ([{"a": 1}, {"a": object()}], [{}] * 2, "settings 1 cannot be written as JSON"),
        ([{"a": 1}], [{"x": object()}], "the numbers of a fit of 'k' cannot be written as JSON"),
        ([{"a": 1}, {"b": 2}], [{"x": 1}, {"b": 2}], "has 'b' in both settings and numbers"),
        (
            [{"kind": 1}],
            [{"seconds": 1}],
            "has 'kind', 'seconds' in both .* or as a name that the store keeps",
        ),
    ],
)
def test_a_batch_that_cannot_be_stored_adds_nothing(store, settings, numbers, message):
    with pytest.raises(StoreError, match=message):
        store.add("k", settings, numbers, MADE_BY, 1.0)
    assert store.rows() == []


def test_a_batch_that_fails_half_way_adds_nothing_and_the_next_one_lands(store, path):
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON fits WHEN new.settings LIKE '%4%' "
            "BEGIN SELECT RAISE(ABORT, 'no fours'); END"
        )
    db.close()
    with pytest.raises(StoreError, match=r"fits\.sqlite cannot be used \(no fours\)"):
        store.add("k", SETTINGS, NUMBERS, MADE_BY, 1.0)
    assert store.rows() == []
    assert store.add("k", SETTINGS[:2], NUMBERS[:2], MADE_BY, 1.0) == 2


def test_equal_settings_of_two_kinds_are_refused(store):
    store.add("k", SETTINGS, NUMBERS, MADE_BY, 1.0)
    new = {"width": 3}
    with pytest.raises(StoreError, match="a fit of 'other' has the same settings as one of 'k'"):
        store.add("other", [new, SETTINGS[1]], [{}] * 2, MADE_BY, 1.0)
    with pytest.raises(StoreError, match="add what sets the two apart"):
        store.missing(SETTINGS, kind="other")
    assert store.missing([new, *SETTINGS], kind="k") == [0]


def test_a_process_killed_inside_a_transaction_leaves_whole_batches(path):
    code = """
        import os, signal, sys
        from conceptbind.store import ResultStore
        store = ResultStore(sys.argv[1])
        batch = lambda b: [{"batch": b, "fit": f} for f in range(200)]
        store.add("k", batch(0), [{"x": "y" * 1000}] * 200, {}, 1.0)
        def kill(statement):
            if "INSERT" in statement and '"batch": 1, "fit": 150' in statement:
                os.kill(os.getpid(), signal.SIGKILL)
        store._db.execute("PRAGMA cache_size = 5")  # so that SQLite writes before the commit
        store._db.set_trace_callback(kill)
        store.add("k", batch(1), [{"x": "y" * 1000}] * 200, {}, 1.0)
    """
    assert python(code, path).wait() == -signal.SIGKILL
    batches = [[{"batch": b, "fit": f} for f in range(200)] for b in (0, 1)]
    with ResultStore(path) as store:
        assert store.missing(batches[0]) == []
        assert store.missing(batches[1]) == list(range(200))
        assert store.add("k", batches[1], [{"x": ""}] * 200, MADE_BY, 1.0) == 200


def test_processes_that_make_and_fill_one_store_at_once_lose_nothing(path, tmp_path):
    code = """
        import pathlib, sys, time
        from conceptbind.store import ResultStore
        path, folder, me, n = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
        (folder / f"{me}.ready").touch()
        while len(list(folder.glob("*.ready"))) < n:
            time.sleep(0.001)
        added = 0
        for turn in range(40):
            with ResultStore(path) as store:
                settings = [{"turn": turn, "fit": f, "by": by} for f in range(5) for by in (me, "all")]
                added += store.add("k", settings, [{"x": turn * s["fit"]} for s in settings], {"by": me}, 1.0)
        (folder / f"{me}.added").write_text(str(added))
    """
    writers = [python(code, path, tmp_path, name, 3) for name in "abc"]
    assert [w.wait() for w in writers] == [0, 0, 0]
    with ResultStore(path) as store:
        rows = store.rows()
    assert all(r["x"] == r["turn"] * r["fit"] for r in rows)
    expected = {(t, f, by) for t in range(40) for f in range(5) for by in ("a", "b", "c", "all")}
    assert len(rows) == len(expected) == sum(int(p.read_text()) for p in tmp_path.glob("*.added"))
    assert {(r["turn"], r["fit"], r["by"]) for r in rows} == expected


def test_many_that_make_one_store_at_the_same_moment_agree(tmp_path):
    paths = [tmp_path / f"{i}.sqlite" for i in range(60)]
    together = threading.Barrier(4)

    def make_all(me):
        for path in paths:
            together.wait()
            with ResultStore(path) as store:
                store.add("k", [{"by": me}], [{}], MADE_BY, 1.0)

    with ThreadPoolExecutor(4) as pool:
        makers = [pool.submit(make_all, me) for me in range(4)]
        for maker in as_completed(makers):
            if maker.exception():
                together.abort()
    assert [repr(m.exception()) for m in makers] == ["None"] * 4
    for path in paths:
        with ResultStore(path, create=False) as store:
            assert sorted(row["by"] for row in store.rows()) == [0, 1, 2, 3]


def filled(store):
    store.add("complexity", SETTINGS, NUMBERS, MADE_BY, 6.0)
    store.add(
        "other", [{"width": 9, "shuffled": True}], [{"loss": 1.5, "per_head": {"colour": 0.5}}], {}, 1.0
    )
    return store


def test_csv_holds_every_row(store, tmp_path):
    target = tmp_path / "exports" / "fits.csv"
    assert filled(store).export(target) == 4
    with target.open(encoding="utf-8", newline="") as file:
        header, *_ = lines = list(csv.reader(file))
    assert header == [
        *("kind", "width", "encoder", "seeds", "shuffled", "accuracy", "steps", "loss", "per_head"),
        *("seconds", "created", "key"),
    ]
    read = [dict(zip(header, line, strict=True)) for line in lines[1:]]
    for cells, row in zip(read, store.rows(), strict=True):
        for name, cell in cells.items():
            value = row.get(name)
            if value is None:
                assert cell == ""
            elif isinstance(value, list | dict):
                assert json.loads(cell) == value
            else:
                assert type(value)(cell) == value
    assert [p.name for p in target.parent.iterdir()] == ["fits.csv"]


def test_parquet_holds_every_row(store, tmp_path):
    target = tmp_path / "exports" / "fits.parquet"
    assert filled(store).export(target) == 4
    for read, row in zip(pq.read_table(target).to_pylist(), store.rows(), strict=True):
        assert read == dict.fromkeys(read) | row
    assert store.export(target, "other") == 1
    assert pq.read_table(target).to_pylist() == store.rows("other")
    assert [p.name for p in target.parent.iterdir()] == ["fits.parquet"]


def test_an_export_that_fails_leaves_the_old_file(store, tmp_path, monkeypatch):
    target = tmp_path / "fits.parquet"
    target.write_text("old")
    with pytest.raises(StoreError, match="holds no rows to export"):
        store.export(target)
    store.add("k", [{"x": 1}, {"x": "text"}], [{}, {}], MADE_BY, 1.0)
    with pytest.raises(StoreError, match="Parquet cannot hold the column 'x'"):
        store.export(target)
    store.add("empty", [{"x": 2}], [{"nothing": {}}], MADE_BY, 1.0)
    with pytest.raises(StoreError, match=r"Parquet cannot hold these rows .*export to \.csv"):
        store.export(target, "empty")
    with pytest.raises(StoreError, match="no rows of kind 'j'; it holds 'empty', 'k'"):
        store.export(target, "j")
    with pytest.raises(StoreError, match=r"fits\.xlsx: expected a name that ends in \.csv or \.parquet"):
        store.export(tmp_path / "fits.xlsx")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(StoreError, match=r"Parquet needs pyarrow: pip install 'conceptbind\[parquet\]', or"):
        store.export(target)
    assert target.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fits.parquet", "new"]


def foreign_database(path, *pragmas):
    db = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", *pragmas, "CREATE TABLE fits (other TEXT)"):
        db.execute(statement)
    db.close()


def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(tmp_path):
    text, short, other, damaged = (tmp_path / n for n in ("a.csv", "b.txt", "c.sqlite", "d.sqlite"))
    text.write_text("a,b\n" * 100)
    short.write_text("x")
    foreign_database(other)
    damaged.write_bytes(other.read_bytes()[:99])
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    for path in (text, short, damaged):
        with pytest.raises(StoreError, match=f"{path.name} is not a result store, nor any SQLite database"):
            ResultStore(path)
    with pytest.raises(StoreError, match=r"c\.sqlite is an SQLite database, but not a result store"):
        ResultStore(other)
    with pytest.raises(StoreError, match="is a folder"):
        ResultStore(tmp_path)
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_store_of_another_version_is_refused_and_left_as_it_is(path):
    with ResultStore(path) as store:
        store.add("k", SETTINGS, NUMBERS, MADE_BY, 1.0)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    before = path.read_bytes()
    message = (
        rf"fits\.sqlite is a result store of version {SCHEMA_VERSION + 1}; .* reads version {SCHEMA_VERSION}"
    )
    with pytest.raises(StoreError, match=message):
        ResultStore(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_damaged_store_is_named(path):
    with ResultStore(path) as store:
        store.add("k", [{"a": i} for i in range(500)], [{"x": "y" * 100}] * 500, MADE_BY, 1.0)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with (
        ResultStore(path) as store,
        pytest.raises(StoreError, match=r"fits\.sqlite cannot be used .*malformed"),
    ):
        store.rows()


def test_no_store_is_made_where_none_is_asked_for(path, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no result store at .*fits\.sqlite"):
        ResultStore(path, create=False)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_becomes_a_store(path):
    path.parent.mkdir(parents=True)
    path.touch()
    with ResultStore(path) as store:
        assert store.add("k", SETTINGS, NUMBERS, MADE_BY, 1.0) == 3
