"""Label files: a CSV with one line a scene and one column an object and concept, ``object1_<concept>``, ....

Errors name the file, the line and the column.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from conceptbind.scenes import ConceptSpace

COLUMNS = "object{slot}_{concept}"
"""How the label columns are called; slots count from 1."""

SEPARATORS = {";": "semicolons", "\t": "tabs"}


@dataclass(frozen=True)
class Table:
    """Hold the cells of a CSV file, stripped of surrounding blanks."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    lines: tuple[int, ...]
    """For every row, the line of the file it ends on."""

    def column(self, *names: str) -> str:
        """Give the first of these spellings that the file has.

        Raises ValueError when it has none.
        """
        for name in names:
            if name in self.columns:
                return name
        raise self.lacks(" or ".join(map(repr, names)))

    def lacks(self, wanted: str, advice: str = "") -> ValueError:
        """Make the error for a column that is not there."""
        return ValueError(f"{self.path} has no column {wanted}; it has {list(self.columns)}{advice}")

    def error(self, row: int, problem: str) -> ValueError:
        """Make the error for one row."""
        return ValueError(f"{self.path}, line {self.lines[row]}: {problem}")

    def check_filled(self, columns: Iterable[str]) -> None:
        """Raise ValueError at an empty cell of these columns."""
        for name in columns:
            for i, row in enumerate(self.rows):
                if not row[name]:
                    raise self.error(i, f"column {name!r} is empty: fill it in, or remove the line")


def read_labels(
    path: str | Path,
    *,
    space: ConceptSpace | None = None,
    concepts: Sequence[str] | None = None,
    columns: str | Sequence[Sequence[str]] = COLUMNS,
) -> tuple[Int[Tensor, "scene slot concept"], ConceptSpace]:
    """Read the scenes of a label file, in its order, and their space.

    Arguments as for :func:`match_columns`, values as for :func:`scenes_of_table`; other columns are ignored.
    Raises FileNotFoundError when the file is missing, ValueError for anything that does not fit.
    """
    table = read_table(path)
    return scenes_of_table(table, match_columns(table, columns, concepts=concepts, space=space), space)


def read_table(path: str | Path) -> Table:
    """Read a CSV file. Raises FileNotFoundError when it is missing, ValueError when it is not a table."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no label file at {path.absolute()}")
    try:
        # utf-8-sig: spreadsheet programs put a mark before the first column's name.
        with path.open(newline="", encoding="utf-8-sig") as file:
            return _parse(path, csv.DictReader(file, skipinitialspace=True))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}): save it as CSV, UTF-8") from None
    except csv.Error as error:
        raise ValueError(f"{path} is no CSV file ({error}): save it as CSV, UTF-8") from None


def _parse(path: Path, reader: csv.DictReader[str]) -> Table:
    columns = tuple(name.strip() for name in reader.fieldnames or ())
    repeated = sorted({c for c in columns if columns.count(c) > 1})
    if not columns or repeated:
        what = f"names the columns {repeated} twice" if repeated else "is empty"
        raise ValueError(f"{path} {what}: its first line must name every column once")
    found = [name for mark, name in SEPARATORS.items() if mark in columns[0]]
    if len(columns) == 1 and found:
        raise ValueError(
            f"{path} has its columns separated by {found[0]}, the first line is {columns[0]!r}: separate them by "
            "commas"
        )
    reader.fieldnames = list(columns)
    rows, lines = [], []
    for row in reader:
        if None in row or None in row.values():
            n_cells = sum(row[c] is not None for c in columns) + len(row.get(None, ()))
            raise ValueError(
                f"{path}, line {reader.line_num}: expected {len(columns)} cells, one a column; got {n_cells}"
            )
        rows.append({name: cell.strip() for name, cell in row.items()})
        lines.append(reader.line_num)
    if not rows:
        raise ValueError(f"{path} has no line below its header: add one for every scene")
    return Table(path, columns, tuple(rows), tuple(lines))


def match_columns(
    table: Table,
    columns: str | Sequence[Sequence[str]] = COLUMNS,
    *,
    concepts: Sequence[str] | None = None,
    space: ConceptSpace | None = None,
) -> list[dict[str, str]]:
    """Give, slot by slot, the column of every concept.

    ``columns``: how they are called, ``"object{slot}_{concept}"`` or ``"{concept}_{slot}"``, slots counted
    from 1; or one list of columns an object, in the order of the concepts.
    ``concepts``: which to read; None takes those of ``space``. Without either, a pattern takes all that have
    such columns, in the order of the file, but leaves out ``<concept>_idx`` beside a ``<concept>``; lists
    call each concept by its column of object 1.
    Raises ValueError when a column is missing, or the arguments contradict each other.
    """
    if space is not None:
        if concepts is not None and tuple(concepts) != space.concepts:
            raise ValueError(
                f"concepts {tuple(concepts)} differ from the space's {space.concepts}: give one of the two"
            )
        concepts = space.concepts
    matched = (_by_pattern if isinstance(columns, str) else _by_list)(table, columns, concepts)
    missing = [c for slot in matched for c in slot.values() if c not in table.columns]
    if missing:
        shown = ", ".join(map(repr, missing[:5])) + (f" and {len(missing) - 5} more" if missing[5:] else "")
        raise table.lacks(shown, ": every object needs a column for every concept that is read")
    return matched


def _by_pattern(table: Table, pattern: str, concepts: Sequence[str] | None) -> list[dict[str, str]]:
    if pattern.count("{slot}") != 1 or pattern.count("{concept}") != 1:
        raise ValueError(f"columns must contain {{slot}} and {{concept}} once each; got {pattern!r}")
    regex = (
        re.escape(pattern).replace(r"\{slot\}", r"(?P<slot>\d+)").replace(r"\{concept\}", "(?P<concept>.+)")
    )
    matches = [m for m in (re.fullmatch(regex, name) for name in table.columns) if m]
    found = list(dict.fromkeys(m["concept"] for m in matches))
    if concepts is None:
        concepts = [c for c in found if not (c.endswith("_idx") and c.removesuffix("_idx") in found)]
    slots = {int(m["slot"]): m[0] for m in matches if m["concept"] in concepts}
    if not slots:
        wanted = pattern.replace("{slot}", "1").replace("{concept}", "<concept>")
        raise table.lacks(
            f"{wanted!r}" + (f" for the concepts {tuple(concepts)}" if concepts else ""),
            ": rename them, or say how they are called, for example columns='{concept}_{slot}'",
        )
    if 0 in slots:
        raise ValueError(f"{table.path} has a column {slots[0]!r}, but objects count from 1: rename them")
    return [
        {c: pattern.replace("{slot}", str(s)).replace("{concept}", c) for c in concepts}
        for s in range(1, max(slots) + 1)
    ]


def _by_list(
    table: Table, columns: Sequence[Sequence[str]], concepts: Sequence[str] | None
) -> list[dict[str, str]]:
    if not columns or any(isinstance(slot, str) for slot in columns):
        raise ValueError(
            f"columns must be one list an object, [['who', 'what']] for one object; got {columns!r}"
        )
    names = tuple(concepts or columns[0])
    if not names or any(len(slot) != len(names) for slot in columns):
        raise ValueError(
            f"columns must name one column a concept for every object; the concepts are {names}, "
            f"the columns {columns}"
        )
    return [dict(zip(names, slot, strict=True)) for slot in columns]


def scenes_of_table(
    table: Table, columns: Sequence[dict[str, str]], space: ConceptSpace | None = None
) -> tuple[Int[Tensor, "scene slot concept"], ConceptSpace]:
    """Turn the cells of these columns into value indices; ``columns`` as :func:`match_columns` gives them.

    ``space``: the values and their order; None takes the values found, sorted (numbers by size). Cells are
    names of values, or their indices from 0 where a space is given and no name of that concept is a number.
    Raises ValueError at an empty cell or an unknown value.
    """
    table.check_filled(c for slot in columns for c in slot.values())
    if space is None:
        found = {k: {row[slot[k]] for row in table.rows for slot in columns} for k in columns[0]}
        space = ConceptSpace(tuple(found), tuple(tuple(_sorted(v)) for v in found.values()))
    named = list(zip(space.concepts, space.values, strict=True))
    cells = [
        [_indices(table, slot[concept], concept, values) for concept, values in named] for slot in columns
    ]
    return torch.tensor(cells).permute(2, 0, 1).contiguous(), space


def _indices(table: Table, column: str, concept: str, values: tuple[str, ...]) -> list[int]:
    index = {name: i for i, name in enumerate(values)}
    are_names_only = any(name.isdecimal() for name in values)
    if not are_names_only:
        index |= {str(i): i for i in range(len(values))}
    for i, row in enumerate(table.rows):
        cell = row[column]
        if cell not in index:
            close = difflib.get_close_matches(cell, values, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            known = f"{values}" + ("" if are_names_only else f" or their indices 0 to {len(values) - 1}")
            raise table.error(
                i, f"column {column!r}: {cell!r} is no value of {concept!r}{hint}; expected one of {known}"
            )
    return [index[row[column]] for row in table.rows]


def _sorted(values: set[str]) -> list[str]:
    if all(v.isdecimal() for v in values):
        return sorted(values, key=lambda v: (int(v), v))
    return sorted(values)
