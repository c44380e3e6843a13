"""Grids of training runs: every combination of the values of some settings, or a random sample of them."""

from __future__ import annotations

import json
import random
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from conceptbind.training.config import TrainingConfig

MAX_POINTS = 1_000_000
"""Combinations of a grid, at most."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Hold a configuration, and the values that some of its settings take instead, in every combination.

    Raises ValueError for a setting that does not exist, or has no values.
    """

    base: TrainingConfig
    values: Mapping[str, Sequence[Any]]

    def __post_init__(self) -> None:
        for name, values in self.values.items():
            _hint(name)
            if not values:
                raise ValueError(f"{name} has no values: give at least one, or leave it out")
        object.__setattr__(self, "values", {name: tuple(dict.fromkeys(v)) for name, v in self.values.items()})

    def __len__(self) -> int:
        return prod(len(values) for values in self.values.values())

    def point(self, index: int) -> dict[str, Any]:
        """Give the settings of one combination; the last setting changes fastest."""
        which = {}
        for name, values in reversed(self.values.items()):
            index, which[name] = divmod(index, len(values))
        return {name: values[which[name]] for name, values in self.values.items()}


@dataclass(frozen=True)
class Expanded:
    """Hold the configurations of grids."""

    configs: tuple[TrainingConfig, ...]
    """All different."""
    left_out: int
    """Combinations that cannot be."""


def expand(
    grids: Sequence[Grid], *, draw: int | None = None, draw_seed: int = 0, leave_out_impossible: bool = False
) -> Expanded:
    """List the configurations of grids, or draw so many of them without replacement.

    Of one seed, a larger draw begins with the smaller one.
    Raises ValueError for an impossible combination, such as a coverage that leaves values out, unless these are left
    out; when nothing is left; for a draw of more than there is; and for more than a million combinations.
    """
    n_points = sum(map(len, grids))
    if n_points > MAX_POINTS:
        raise ValueError(
            f"a grid has at most {MAX_POINTS:,} combinations; got {n_points:,}: give fewer values"
        )
    order = list(range(n_points))
    if draw is not None:
        if not 1 <= draw <= n_points:
            raise ValueError(f"1 to {n_points} combinations can be drawn from this grid; got {draw}")
        random.Random(draw_seed).shuffle(order)
    found: dict[TrainingConfig, None] = {}
    problems = []
    for index in order:
        if len(found) == draw:
            break
        grid, point = _locate(grids, index)
        try:
            found[replace(grid.base, **point)] = None
        except ValueError as error:
            if not leave_out_impossible:
                shown = ", ".join(f"{name} {show(value)}" for name, value in point.items())
                raise ValueError(f"the combination {shown or 'given'} cannot be: {error}") from error
            problems.append(error)
    if not found:
        raise ValueError(f"none of the {n_points} combinations can be, the first because {problems[0]}")
    return Expanded(tuple(found), len(problems))


def parse(name: str, text: str) -> Any:
    """Read the value of a setting: ``24x24``, ``0.3``, ``7``, ``true``, ``none``, ``transformer``.

    Raises ValueError for a setting that does not exist, and for text that is no value of it.
    """
    kinds = _kinds(_hint(name))
    for kind in kinds:
        try:
            return _parse(kind, text)
        except ValueError:
            continue
    raise ValueError(f"{name} is {' or '.join(map(_describe, kinds))}; got {text!r}")


def show(value: Any) -> str:
    """Write the value of a setting as :func:`parse` reads it."""
    if isinstance(value, tuple | list):
        return "x".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def read_grids(path: str | Path) -> list[dict[str, list[Any]]]:
    """Read values of settings from JSON: an object, ``{"sizes": ["24x24", [50, 50]], "seed": [0, 1], "width": 64}``.

    A list of such objects is several grids. Values are those of JSON, or text as :func:`parse` reads it.
    Raises ValueError for other content, OSError when the file cannot be read.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is not JSON ({error}): expected an object of settings and their values"
        ) from None
    grids = content if isinstance(content, list) else [content]
    if not grids or not all(isinstance(grid, dict) for grid in grids):
        raise ValueError(
            f'{path} holds no grid: expected an object such as {{"coverage": [0.1, 0.3], "seed": [0, 1]}}, or a list '
            "of them"
        )
    try:
        return [
            {name: [parse(name, show(v)) for v in _several(name, given)] for name, given in grid.items()}
            for grid in grids
        ]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _several(name: str, given: Any) -> list[Any]:
    """Take one value for a list of one; the sizes of one space are a list themselves."""
    one_space = name == "sizes" and isinstance(given, list) and given and all(type(v) is int for v in given)
    return given if isinstance(given, list) and not one_space else [given]


def _locate(grids: Sequence[Grid], index: int) -> tuple[Grid, dict[str, Any]]:
    for grid in grids:
        if index < len(grid):
            return grid, grid.point(index)
        index -= len(grid)
    raise AssertionError("an index is below the number of points")


@lru_cache(maxsize=1)
def _hints() -> dict[str, Any]:
    hints = get_type_hints(TrainingConfig)
    return {f.name: hints[f.name] for f in fields(TrainingConfig)}


def _hint(name: str) -> Any:
    if name not in _hints():
        raise ValueError(f"there is no setting {name!r}; a model is determined by {', '.join(_hints())}")
    return _hints()[name]


def _kinds(hint: Any) -> list[Any]:
    if get_origin(hint) in (Union, types.UnionType):
        return [kind for part in get_args(hint) for kind in _kinds(part)]
    return [hint]


def _parse(kind: Any, text: str) -> Any:
    if get_origin(kind) is Literal:
        return _one_of({value: value for value in get_args(kind)}, text)
    if kind is types.NoneType:
        return _one_of({"none": None}, text)
    if kind is bool:
        return _one_of({"true": True, "false": False}, text)
    if get_origin(kind) is tuple:
        return tuple(int(part) for part in text.split("x"))
    return kind(text)


def _one_of(choices: Mapping[str, Any], text: str) -> Any:
    if text not in choices:
        raise ValueError(text)
    return choices[text]


def _describe(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(get_args(kind))
    if get_origin(kind) is tuple:
        return "numbers of values such as 24x24"
    names = {types.NoneType: "none", bool: "true or false", int: "a whole number", float: "a number"}
    return names[kind]
