"""Copy the committed notebooks of book/ to build/smoke/ with PRESET = "smoke", for nbval to run."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from common import ROOT, write_atomically
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; give the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--book", type=Path, default=ROOT / "book")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "smoke")
    args = parser.parse_args(argv)
    copies = smoke(args.book, args.out)
    print(f"{len(copies)} notebooks at the smoke preset in {args.out}")
    return 0


def smoke(book: Path, out: Path) -> list[Path]:
    """Copy every notebook with PRESET overridden, as papermill does it; give the copies.

    The folder is emptied first, so that a removed chapter is not run again.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    copies = []
    for path in sorted(book.glob("*.ipynb")):
        notebook = parameterize_notebook(load_notebook_node(str(path)), {"PRESET": "smoke"})
        copies.append(out / path.name)
        write_atomically(copies[-1], nbformat.writes(notebook) + "\n")
    return copies


if __name__ == "__main__":
    sys.exit(main())
