"""PUG:SPARE, two textured animals before a rendered landscape (paper, section 4).

12 animals x 8 textures, never the same animal and never the same texture twice: 12 * 11 * 8 * 7 = 7,392
ordered pairs a world. The data set is on no hub; the user brings the folder. Two layouts are in use: pictures
beside ``labels.csv``, or in one folder a world beside ``PUG_SPARE.csv``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from conceptbind.datasets.labelled import LabelledScenes, assemble, find_table, portable
from conceptbind.labels import Table, read_table
from conceptbind.scenes import factorial_scenes

N_ANIMALS, N_TEXTURES = 12, 8

# The first of two places, in reading order from the left or from below, as the files name them.
_RANK = {"left": 0, "below": 0, "right": 1, "above": 1}


def load_pug_spare(
    folder: str | Path,
    *,
    world: str = "Desert",
    slots: Literal["position", "character"] = "position",
    allow_missing: bool = False,
) -> LabelledScenes:
    """Load one world of PUG:SPARE; the concepts are ``animal`` and ``texture``, the values sorted by name.

    ``slots``: ``"position"`` puts the left animal in slot 0 and the right one in slot 1; ``"character"`` puts
    ``character`` in slot 0 and ``character2`` in slot 1. Where the file gives each character one and the same
    position everywhere and its words are not left and right, the two are the same.
    ``allow_missing``: load what is there of an incomplete copy, and say in ``notes`` what is not.

    Raises FileNotFoundError when the folder, its table or listed pictures are missing; ValueError when a
    column is missing, a line breaks the rules of the data set, or pairs are missing.
    """
    if slots not in ("position", "character"):
        raise ValueError(f"slots must be 'position' or 'character'; got {slots!r}")
    table = read_table(find_table(folder, "labels.csv", "PUG_SPARE.csv"))
    filename = table.column("filename")
    columns = [
        {"animal": table.column("character_name"), "texture": table.column("character_texture")},
        {"animal": table.column("character2_name"), "texture": table.column("character2_texture")},
    ]
    table = _of_world(table, world)
    table.check_filled([filename, *(c for slot in columns for c in slot.values())])
    for i, row in enumerate(table.rows):
        for concept in ("animal", "texture"):
            first, second = (row[slot[concept]] for slot in columns)
            if first == second:
                raise table.error(i, f"{concept} {first!r} twice; in PUG:SPARE the two always differ")
    if slots == "position":
        table = _left_first(table, columns)
    _check_distinct(table, columns)

    paths = [_path(Path(folder), world, row[filename]) for row in table.rows]
    notes = []
    absent = [path for path in paths if not path.is_file()]
    if absent and allow_missing:
        notes.append(
            f"{len(absent):,} of {len(paths):,} listed pictures are missing, the first is {absent[0]}"
        )
        kept = [i for i, path in enumerate(paths) if path not in set(absent)]
        if not kept:
            raise FileNotFoundError(
                f"none of the {len(paths):,} pictures listed in {table.path} is in {folder}"
            )
        table, paths = _select(table, kept), [paths[i] for i in kept]
    data = assemble(table, columns, paths, dataset=f"PUG:SPARE {world}, slots by {slots}")
    lacking = _lacking(data)
    if lacking and not allow_missing:
        raise ValueError(
            f"{table.path} is not the whole of PUG:SPARE {world}: {lacking}. Complete the folder, or load "
            "what is there with allow_missing=True"
        )
    return replace(data, notes=(*notes, *([lacking] if lacking else [])))


def _select(table: Table, rows: list[int]) -> Table:
    return replace(table, rows=tuple(table.rows[i] for i in rows), lines=tuple(table.lines[i] for i in rows))


def _of_world(table: Table, world: str) -> Table:
    column = table.column("world_name")
    rows = [i for i, row in enumerate(table.rows) if row[column] == world]
    if not rows:
        worlds = sorted({row[column] for row in table.rows})
        raise ValueError(
            f"{table.path} has no picture of the world {world!r}; give one of its worlds {worlds}"
        )
    return _select(table, rows)


def _left_first(table: Table, columns: list[dict[str, str]]) -> Table:
    """Exchange the characters of the lines whose first character stands right of the second."""
    # character1_pos is how the related PUG:SPAR on the Hugging Face hub spells it.
    names = (table.column("character_pos", "character1_pos"), table.column("character2_pos"))
    words = [{row[name].lower() for row in table.rows} for name in names]
    unknown = sorted((words[0] | words[1]) - set(_RANK))
    if unknown:
        if len(words[0]) == len(words[1]) == 1:
            return table
        raise ValueError(
            f"{table.path}: cannot tell which of the positions {unknown} is left of which; known are "
            f"{sorted(_RANK)}: use slots='character'"
        )
    rows = []
    for i, row in enumerate(table.rows):
        ranks = [_RANK[row[name].lower()] for name in names]
        if ranks[0] == ranks[1]:
            raise table.error(
                i, f"both animals are {row[names[0]]!r}: correct the line, or use slots='character'"
            )
        if ranks[0] > ranks[1]:
            exchanged = {a[k]: row[b[k]] for a, b in (columns, columns[::-1]) for k in a}
            row = row | exchanged
        rows.append(row)
    return replace(table, rows=tuple(rows))


def _check_distinct(table: Table, columns: list[dict[str, str]]) -> None:
    first_at: dict[tuple[str, ...], int] = {}
    for i, row in enumerate(table.rows):
        scene = tuple(row[c] for slot in columns for c in slot.values())
        j = first_at.setdefault(scene, i)
        if j != i:
            raise table.error(
                i, f"the same pair {scene} as line {table.lines[j]}: keep one, or use the other slots='...'"
            )


def _path(folder: Path, world: str, name: str) -> Path:
    beside, in_world = folder / portable(name), folder / world / portable(name)
    return in_world if in_world.is_file() and not beside.is_file() else beside


def _lacking(data: LabelledScenes) -> str:
    """Say in words which of the expected pairs the scenes lack; empty when none."""
    animals, textures = data.space.values
    if (len(animals), len(textures)) != (N_ANIMALS, N_TEXTURES):
        return (
            f"expected {N_ANIMALS} animals and {N_TEXTURES} textures, found {len(animals)} {animals} and "
            f"{len(textures)} {textures}"
        )
    expected = factorial_scenes(data.space, 2, repeats="distinct values")
    there = data.space.scene_index(data.scenes)
    missing = expected[~torch.isin(data.space.scene_index(expected), there)]
    if not len(missing):
        return ""
    first = " and ".join(data.space.describe(obj) for obj in missing[0])
    return f"{len(missing):,} of {len(expected):,} ordered pairs are missing, the first is {first}"
