"""The result store: one SQLite file, one row a fit, safe against a run that is killed.

A row is named by the digest of its settings, so a sweep asks which of its fits are missing and computes those
only. A batch is one transaction in write-ahead mode: it is there whole or not at all, and several processes of
one machine may write at once. On a network drive keep to one machine a file; SQLite cannot lock across machines.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from conceptbind.cache import replacing
from conceptbind.provenance import digest

SCHEMA_VERSION = 1
APPLICATION_ID = 0x63627273  # "cbrs": tells our files from other SQLite databases
BUSY_SECONDS = 60.0
OWN_COLUMNS = ("kind", "key", "seconds", "created")

_TABLE = """
    CREATE TABLE fits (
        key TEXT PRIMARY KEY, kind TEXT NOT NULL, settings TEXT NOT NULL, numbers TEXT NOT NULL,
        provenance TEXT NOT NULL, seconds REAL NOT NULL, created TEXT NOT NULL
    )
"""


class StoreError(ValueError):
    """A result store that cannot be used, or something that it cannot hold."""


class ResultStore:
    """Open a result store, or make one with its parent folders.

    ``create=False`` opens only what is there. Close it, or use it in a ``with`` statement.
    Raises FileNotFoundError when there is none and none is to be made, StoreError for any other file, which is
    left as it is.
    """

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self.path = Path(path)
        if not _holds_store(self.path):
            if not create:
                raise FileNotFoundError(f"no result store at {self.path}: give the file that a sweep wrote")
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._explained():
            self._db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            with self._explained():
                self._set_up()
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; it is then one file again, without the two that SQLite keeps beside it."""
        self._db.close()

    def add(
        self,
        kind: str,
        settings: Sequence[Mapping[str, Any]],
        numbers: Sequence[Mapping[str, Any]],
        provenance: Mapping[str, Any],
        seconds: float,
    ) -> int:
        """Add a batch of fits in one transaction, and give how many rows are new.

        ``settings``: all that determines each fit. ``numbers``: what it gave; None is stored for NaN and infinity.
        ``seconds``: what the batch took; every row gets an equal share. A row that is there stays as it is.
        Raises StoreError, and adds nothing, when the batch does not fit together or is not JSON.
        """
        if len(settings) != len(numbers):
            raise StoreError(
                f"expected as many numbers as settings; got {len(numbers)} for {len(settings)} fits of {kind!r}"
            )
        made_by = _json(provenance, f"the provenance of {kind!r}")
        created = datetime.now(timezone.utc).isoformat(timespec="seconds")
        batch = []
        for key, given, found in zip(_keys(settings), settings, numbers, strict=True):
            if clash := sorted(
                (given.keys() & found.keys()) | ((given.keys() | found.keys()) & {*OWN_COLUMNS})
            ):
                raise StoreError(
                    f"a fit of {kind!r} has {', '.join(map(repr, clash))} in both settings and numbers, or as a "
                    f"name that the store keeps for itself ({', '.join(OWN_COLUMNS)}): rename it"
                )
            texts = _json(given, "settings"), _json(_without_nan(found), f"the numbers of a fit of {kind!r}")
            batch.append((key, kind, *texts, made_by, seconds / len(settings), created))
        added = 0
        with self._explained(), self._transaction():
            for row in batch:
                if not self._stored(row[0], kind):
                    self._db.execute("INSERT INTO fits VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                    added += 1
        return added

    def missing(self, settings: Sequence[Mapping[str, Any]], *, kind: str | None = None) -> list[int]:
        """Give the indices of the settings that have no row.

        Raises StoreError when two are equal, or when one has a row of another kind than ``kind``.
        """
        with self._explained():
            return [index for index, key in enumerate(_keys(settings)) if not self._stored(key, kind)]

    def rows(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Read the rows of a kind, or all, in the order they were added.

        Every row is flat: ``kind``, the settings, the numbers, ``seconds``, ``created`` (UTC) and ``key``.
        """
        return [
            {"kind": of_kind, **given, **found, "seconds": seconds, "created": created, "key": key}
            for of_kind, given, found, seconds, created, key in self._read(kind)
        ]

    def counts(self, kind: str | None = None) -> dict[str, int]:
        """Count the rows of every kind, or of one. Raises StoreError when there is none of that kind."""
        with self._explained():
            found = dict(self._db.execute("SELECT kind, COUNT(*) FROM fits GROUP BY kind ORDER BY kind"))
        if kind is None:
            return found
        if kind not in found:
            raise StoreError(
                f"{self.path} holds no rows of kind {kind!r}; it holds {', '.join(map(repr, found)) or 'no rows'}"
            )
        return {kind: found[kind]}

    def provenances(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Read the different provenances of the rows of a kind, or of all, in the order they came."""
        query = (
            "SELECT provenance FROM fits WHERE kind = ifnull(?, kind) GROUP BY provenance ORDER BY min(rowid)"
        )
        with self._explained():
            return [json.loads(text) for (text,) in self._db.execute(query, (kind,))]

    def export(self, path: str | Path, kind: str | None = None) -> int:
        """Write the rows of a kind, or all, as ``.csv`` or ``.parquet``, in one step; give how many.

        Columns: kind, settings, numbers, seconds, created, key; in the order of the first rows that have them.
        In CSV None is an empty cell, a list or dict is JSON.
        Raises StoreError for another suffix, for no rows, without pyarrow, and for what Parquet cannot hold.
        """
        path = Path(path)
        if path.suffix not in (".csv", ".parquet"):
            raise StoreError(f"cannot export to {path}: expected a name that ends in .csv or .parquet")
        if not self.counts(kind):
            raise StoreError(f"{self.path} holds no rows to export")
        settings, numbers, rows = {}, {}, []
        for of_kind, given, found, seconds, created, key in self._read(kind):
            settings.update(dict.fromkeys(given))
            numbers.update(dict.fromkeys(found))
            own = {"kind": of_kind, "seconds": seconds, "created": created, "key": key}
            rows.append(own | given | found)
        names = list(dict.fromkeys(["kind", *settings, *numbers, "seconds", "created", "key"]))
        columns = {name: [row.get(name) for row in rows] for name in names}
        path.parent.mkdir(parents=True, exist_ok=True)
        (_write_csv if path.suffix == ".csv" else _write_parquet)(path, columns)
        return len(rows)

    def _read(
        self, kind: str | None
    ) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], float, str, str]]:
        query = (
            "SELECT kind, settings, numbers, seconds, created, key FROM fits "
            "WHERE kind = ifnull(?, kind) ORDER BY rowid"
        )
        with self._explained():
            found = self._db.execute(query, (kind,)).fetchall()
        for of_kind, given, numbers, *rest in found:
            yield of_kind, json.loads(given), json.loads(numbers), *rest

    def _set_up(self) -> None:
        # The table is made before the switch to write-ahead mode, so that the numbers that tell our files from
        # others are in the file's header from its first commit on; see _holds_store.
        if self._stamp() == (0, 0):
            with self._transaction():
                if self._stamp() == (0, 0):  # no other process was faster
                    self._db.execute(_TABLE)
                    self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        _refuse_others(self.path, *self._stamp())
        # A commit is a few milliseconds beside a batch of fits: FULL also survives a power cut.
        self._db.execute("PRAGMA synchronous = FULL")
        until = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:  # here SQLite does not wait for others by itself
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.02)

    def _stamp(self) -> tuple[int, int]:
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        return application, version

    def _stored(self, key: str, kind: str | None) -> bool:
        found = self._db.execute("SELECT kind FROM fits WHERE key = ?", (key,)).fetchone()
        if found and kind not in (None, found[0]):
            raise StoreError(
                f"a fit of {kind!r} has the same settings as one of {found[0]!r} in {self.path}: settings are all "
                "that determines a fit; add what sets the two apart"
            )
        return found is not None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(
                f"the result store {self.path} cannot be used ({error}): see that its folder can be written, the "
                "disk has space and no other process holds it, and run again; move a damaged file away"
            ) from error


def _holds_store(path: Path) -> bool:
    """Say whether a file is a store; False when there is none, or an empty file. Refuses any other file.

    Reads the header without SQLite, which might change another program's file by opening it.
    """
    if not path.exists():
        return False
    if not path.is_file():
        raise StoreError(f"{path} is a folder: give the file of a result store")
    with path.open("rb") as file:
        header = file.read(100)
    if not header:
        return False
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise StoreError(f"{path} is not a result store, nor any SQLite database: give another file")
    # https://www.sqlite.org/fileformat2.html#the_database_header
    _refuse_others(path, int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big"))
    return True


def _refuse_others(path: Path, application: int, version: int) -> None:
    if application != APPLICATION_ID:
        raise StoreError(f"{path} is an SQLite database, but not a result store: give another file")
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{path} is a result store of version {version}; this conceptbind reads version {SCHEMA_VERSION}: use "
            "the conceptbind that wrote it, or start a new file"
        )


def _keys(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    keys: dict[str, int] = {}
    for index, given in enumerate(settings):
        _json(given, f"settings {index}")
        key = digest(dict(given))
        if key in keys:
            raise StoreError(
                f"settings {keys[key]} and {index} of one batch are equal: {dict(given)}. Settings are all that "
                "determines a fit; add what sets the two apart, such as the seed"
            )
        keys[key] = index
    return list(keys)


def _json(value: Mapping[str, Any], what: str) -> str:
    try:
        return json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"{what} cannot be written as JSON ({error}): give numbers, text, lists and dicts; .item() and "
            ".tolist() make them from arrays"
        ) from None


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _without_nan(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return value


def _write_csv(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    def cell(value: Any) -> Any:
        return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value

    rows: Iterable[tuple[Any, ...]] = zip(*columns.values(), strict=True)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([cell(value) for value in row] for row in rows)


def _write_parquet(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise StoreError(
            "Parquet needs pyarrow: pip install 'conceptbind[parquet]', or export to .csv"
        ) from None
    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = pa.array(values)
        except (pa.ArrowException, OverflowError) as error:
            raise StoreError(
                f"Parquet cannot hold the column {name!r} ({error}): export one kind alone, or export to .csv"
            ) from None
    with replacing(path) as temporary:
        try:
            pq.write_table(pa.table(arrays), temporary)
        except pa.ArrowNotImplementedError as error:
            raise StoreError(f"Parquet cannot hold these rows ({error}): export to .csv") from None
