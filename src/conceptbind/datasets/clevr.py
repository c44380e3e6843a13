"""The released CLEVR and CLEVR-2D pictures of the paper (section 4), from a folder of the user's.

All 24 x 24 = 576 ordered pairs of 8 colours x 3 shapes, one picture each. In the released table the shape
words ``cylinder`` and ``sphere`` are exchanged, while the shape indices are right; shapes are read by index.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from conceptbind.datasets.labelled import LabelledScenes, assemble, find_table, portable
from conceptbind.labels import read_table
from conceptbind.scenes import ConceptSpace
from conceptbind.spaces import CLEVR, CLEVR_2D


def load_clevr(folder: str | Path, *, flat: bool = False) -> LabelledScenes:
    """Load released CLEVR pictures, or CLEVR-2D when ``flat``.

    ``labels.csv`` needs the columns ``filename`` and, for objects 1 and 2, ``object1_color`` (a CLEVR colour)
    and ``object1_shape_idx`` (0 cube or square, 1 cylinder or triangle, 2 sphere or circle).

    Raises FileNotFoundError when the folder, its table or a listed picture is missing; ValueError when a
    column is missing, a label is unknown, or the pictures are not the 576 ordered pairs, one each.
    """
    table = read_table(find_table(folder, "labels.csv"))
    filename = table.column("filename")
    cells = [
        {"colour": table.column(f"object{i}_color"), "shape": table.column(f"object{i}_shape_idx")}
        for i in (1, 2)
    ]
    table.check_filled([filename])
    space = CLEVR_2D if flat else CLEVR
    # Shapes named by their numbers, so that no shape word is believed.
    numbered = ConceptSpace(space.concepts, (space.values[0], tuple(map(str, range(space.n_values[1])))))
    paths = [Path(folder) / portable(row[filename]) for row in table.rows]
    data = assemble(table, cells, paths, dataset="CLEVR-2D" if flat else "CLEVR", space=numbered)
    n_pairs, n_expected = len(data.scenes.unique(dim=0)), space.n_possible_objects**2
    if not len(data.scenes) == n_pairs == n_expected:
        raise ValueError(
            f"{table.path} lists {len(data.scenes)} pictures of {n_pairs} different ordered pairs; expected "
            f"{n_expected} of each: complete the folder, or read part of it with load_labelled_folder"
        )
    return replace(data, space=space, settings=data.settings | {"values": [list(v) for v in space.values]})
