"""A folder of pictures with a label table: one line a picture, one column an object and concept."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from jaxtyping import Int
from PIL import Image, ImageOps
from torch import Tensor

from conceptbind.kernels.preprocessing import to_rgb
from conceptbind.labels import COLUMNS, Table, match_columns, read_table, scenes_of_table
from conceptbind.provenance import digest
from conceptbind.scenes import ConceptSpace


# Not Sequence[Image.Image]: the tests' type checks look at an item of those, which would open a file.
class ImageFiles(Sequence):
    """Open pictures when they are asked for, as RGB, turned the way the camera noted."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, index: int) -> Image.Image: ...
    @overload
    def __getitem__(self, index: slice) -> ImageFiles: ...
    def __getitem__(self, index: int | slice) -> Image.Image | ImageFiles:
        """Open one picture, or give a slice unopened. Raises ValueError when a file is not a picture."""
        if isinstance(index, slice):
            return ImageFiles(self.paths[index])
        path = self.paths[index]
        try:
            with Image.open(path) as image:
                return to_rgb(ImageOps.exif_transpose(image))
        except FileNotFoundError:
            raise _gone(path) from None
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as err:
            raise ValueError(
                f"cannot read the picture {path} ({err}): replace it by a PNG or JPEG file"
            ) from err

    def sha256(self, index: int) -> str:
        """Hash the bytes of one file."""
        path = self.paths[index]
        try:
            return hashlib.sha256(path.read_bytes()).hexdigest()
        except FileNotFoundError:
            raise _gone(path) from None


def _gone(path: Path) -> FileNotFoundError:
    return FileNotFoundError(f"the picture {path} is gone: put it back, or load the folder again")


@dataclass(frozen=True, eq=False)
class LabelledScenes:
    """Hold scenes and their pictures, in the order of the label table."""

    space: ConceptSpace
    scenes: Int[Tensor, "scene slot concept"]
    images: ImageFiles
    settings: dict[str, object]
    """What was loaded, ready for JSON: the data set, its labels, names and sizes of files."""
    notes: tuple[str, ...] = ()
    """What was left out, in words."""


def load_labelled_folder(
    folder: str | Path,
    *,
    labels: str = "labels.csv",
    filename: str = "filename",
    columns: str | Sequence[Sequence[str]] = COLUMNS,
    concepts: Sequence[str] | None = None,
    space: ConceptSpace | None = None,
) -> LabelledScenes:
    """Load pictures described by a table with a column ``filename`` and a column ``object1_<concept>``, ....

    ``columns`` and ``concepts``: see :func:`conceptbind.labels.match_columns`.
    ``space``: the values and their order; None takes the values found, sorted (numbers by size).
    File names are relative to the folder. Pictures are opened when they are used.

    Raises FileNotFoundError when the folder, the table or a listed picture is missing; ValueError when a
    column is missing, a cell is empty or a value is not in the space, or a picture is listed twice.
    """
    table = read_table(find_table(folder, labels))
    cells = match_columns(table, columns, concepts=concepts, space=space)
    name_column = table.column(filename)
    table.check_filled([name_column])
    return assemble(
        table,
        cells,
        [Path(folder) / portable(row[name_column]) for row in table.rows],
        dataset="labelled folder",
        space=space,
    )


def find_table(folder: str | Path, *names: str) -> Path:
    """Find the first of these label files that ``folder`` has.

    Raises FileNotFoundError when the folder or the file is missing.
    """
    folder = Path(folder)
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise FileNotFoundError(f"expected a folder of pictures at {folder}; found {found} there")
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        has = sorted(p.name for p in folder.iterdir())
        shown = ", ".join(has[:5]) + (f" and {len(has) - 5} more" if len(has) > 5 else "")
        raise FileNotFoundError(
            f"{folder} has no {' or '.join(names)}; it has {shown or 'no files'}: "
            "give the folder that the label file lies in"
        )
    return path


def assemble(
    table: Table,
    cells: Sequence[dict[str, str]],
    paths: Sequence[Path],
    *,
    dataset: str,
    space: ConceptSpace | None = None,
) -> LabelledScenes:
    """Build the scenes of a table; ``cells`` gives, slot by slot, the column of every concept.

    Raises as :func:`load_labelled_folder` does.
    """
    scenes, space = scenes_of_table(table, cells, space)
    twice = [path for path, n in Counter(paths).items() if n > 1]
    if twice:
        raise ValueError(f"{table.path} lists {twice[0]} more than once: keep one line a picture")
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"{table.path} lists {len(paths):,} pictures; {len(missing):,} of them are missing, the first is "
            f"{missing[0]}: put them back, or remove their lines"
        )
    return LabelledScenes(space, scenes, ImageFiles(paths), _settings(dataset, space, scenes, paths))


def _settings(
    dataset: str, space: ConceptSpace, scenes: Int[Tensor, "scene slot concept"], paths: Sequence[Path]
) -> dict[str, object]:
    # Sizes, not contents: a folder is loaded at once, and its gigabytes are read when it is encoded.
    files = [[path.name, path.stat().st_size] for path in paths]
    return {
        "dataset": dataset,
        "concepts": list(space.concepts),
        "values": [list(v) for v in space.values],
        "n_scenes": len(paths),
        "labels_sha256": digest(scenes.tolist()),
        "names_and_sizes_sha256": digest(files),
    }


def portable(name: str) -> str:
    """Make a file name of a table that was written on Windows readable anywhere."""
    return name.replace("\\", "/")
