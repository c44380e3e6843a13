"""Execute the chapters that are out of date: notebooks/*.py -> book/*.ipynb.

A chapter is out of date when its key changed: a hash of its source, of every file of src/ that it imports,
directly or not (imported_files.py), of the data files it declares, of its parameters, and of how notebooks are
built. Declare data in the head of the source:

    # jupyter:
    #   conceptbind:
    #     data: [results/sweep.csv]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import exercise_cells
import jupytext
import nbformat
from common import ROOT, write_atomically
from imported_files import imported_files
from nbformat import NotebookNode

FORMAT = 2
"""Part of every key: raise it when a change to the build has to re-execute every chapter."""
TEXT = {".py", ".js", ".css", ".json", ".csv", ".md", ".txt"}


class BuildError(Exception):
    """A chapter that cannot be built; the message is for the author."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; give the exit status."""
    args = _arguments(argv)
    root: Path = args.root.resolve()
    sources = sorted((root / "notebooks").glob("*.py"))
    if args.only:
        wanted = {Path(name).stem for name in args.only}
        if unknown := wanted - {s.stem for s in sources}:
            known = ", ".join(s.stem for s in sources) or "none"
            print(f"no notebooks/{sorted(unknown)[0]}.py; there are: {known}", file=sys.stderr)
            return 2
        sources = [s for s in sources if s.stem in wanted]
    out = args.out or (root / "book" if args.preset is None else root / "build" / f"notebooks-{args.preset}")
    parameters = {} if args.preset is None else {"PRESET": args.preset}

    if args.check:
        return _check(sources, out, root, parameters, orphaned=[] if args.only else orphans(root, out))

    failed = 0
    for source in sources:
        try:
            why = "forced" if args.force else why_stale(source, out, root, parameters)
            if not why:
                print(f"{source.stem}: up to date", flush=True)
                continue
            print(f"{source.stem}: {why}; running …", flush=True)
            seconds = build(source, out, root, parameters)
            print(f"{source.stem}: done in {seconds:.0f} s", flush=True)
        except BuildError as error:
            failed += 1
            print(
                f"{source.stem}: FAILED, {_name(out, root)} is left as it was\n{error}",
                file=sys.stderr,
                flush=True,
            )
    return 1 if failed else 0


def _check(
    sources: Sequence[Path], out: Path, root: Path, parameters: Mapping[str, Any], *, orphaned: Sequence[str]
) -> int:
    stale = [f"{name}: there is no notebooks/{name}.py for it" for name in orphaned]
    for source in sources:
        try:
            why = why_stale(source, out, root, parameters)
        except BuildError as error:
            why = str(error)
        if why:
            stale.append(f"{source.stem}: {why}")
    print("\n".join([*stale, "run `make notebooks`"]) if stale else f"{len(sources)} notebooks up to date")
    return 1 if stale else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="NAME", action="append", help="this chapter only; may be repeated")
    parser.add_argument("--preset", choices=("smoke", "laptop", "paper"), help="instead of the chapter's own")
    parser.add_argument("--out", type=Path, metavar="DIR", help="book/; with --preset, build/")
    parser.add_argument("--force", action="store_true", help="run also what is up to date")
    parser.add_argument("--check", action="store_true", help="run nothing; exit 1 if any is out of date")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)  # for the tests
    return parser.parse_args(argv)


def generate(source: Path) -> NotebookNode:
    """Make the notebook of a source, not executed: exercises expanded, every cell with a stable id."""
    try:
        notebook = exercise_cells.expand(jupytext.read(source))
    except exercise_cells.ExerciseError as error:
        raise BuildError(f"exercise: {error}") from error
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        base = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:8]
        seen[base] = seen.get(base, 0) + 1
        cell["id"] = base if seen[base] == 1 else f"{base}-{seen[base]}"
    declared = notebook.metadata.get("conceptbind", {})
    notebook.metadata = nbformat.from_dict(
        {
            "conceptbind": dict(declared),
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def preset_of(notebook: NotebookNode) -> str:
    """Read PRESET from the parameters cell.

    Raises:
        BuildError: there is not exactly one parameters cell, or it sets no PRESET.
    """
    cells = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    found = re.search(r"""^PRESET\s*=\s*["'](\w+)["']""", cells[0].source, re.M) if len(cells) == 1 else None
    if found is None:
        raise BuildError('expected one cell with the tag `parameters` that sets PRESET = "laptop"')
    return found[1]


def key_of(source: Path, root: Path, parameters: Mapping[str, Any]) -> str:
    """Hash all that determines an executed chapter: 16 hexadecimal digits, the same on every machine."""
    total = hashlib.sha256()
    for name, content in _inputs(source, root, parameters):
        digest = hashlib.sha256(content).hexdigest()
        total.update(f"{name}\0{digest}\n".encode())
    return total.hexdigest()[:16]


def _inputs(source: Path, root: Path, parameters: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    yield "format", str(FORMAT).encode()
    yield "parameters", json.dumps(dict(parameters), sort_keys=True).encode()
    notebook = jupytext.read(source)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    files = [source, *imported_files(code, root / "src")]
    for pattern in notebook.metadata.get("conceptbind", {}).get("data", []):
        matches = sorted(p for p in root.glob(pattern) if p.is_file())
        if not matches:
            raise BuildError(f"its head declares the data {pattern!r}; the repository has no such file")
        files += matches
    for path in files:
        content = path.read_bytes()
        # A checkout on Windows may have other line ends.
        yield (
            path.relative_to(root).as_posix(),
            content.replace(b"\r\n", b"\n") if path.suffix in TEXT else content,
        )


def why_stale(source: Path, out: Path, root: Path, parameters: Mapping[str, Any]) -> str | None:
    """Say why a chapter has to be executed; None if it is up to date.

    Raises:
        BuildError: the source is malformed.
    """
    target = out / f"{source.stem}.ipynb"
    if not target.exists():
        return "never run"
    try:
        notebook = nbformat.read(target, as_version=4)
    except (ValueError, nbformat.reader.NotJSONError) as error:
        return f"{_name(target, root)} cannot be read ({type(error).__name__})"
    if notebook.metadata.get("conceptbind", {}).get("key") != key_of(source, root, parameters):
        return "its source, src/ or its data changed"
    ours = [(c.cell_type, c.source) for c in generate(source).cells]
    theirs = [
        (c.cell_type, c.source)
        for c in notebook.cells
        if "injected-parameters" not in c.metadata.get("tags", [])
    ]
    return None if ours == theirs else f"{_name(target, root)} was edited by hand"


def orphans(root: Path, out: Path) -> list[str]:
    """Name the executed notebooks that no source belongs to."""
    return sorted(p.stem for p in out.glob("*.ipynb") if not (root / "notebooks" / f"{p.stem}.py").exists())


def build(source: Path, out: Path, root: Path, parameters: Mapping[str, Any]) -> float:
    """Execute one chapter and put it in place; give the run time in seconds.

    Nothing is changed if a cell fails: the notebook is replaced as a whole at the end, and what the chapter
    writes to results/ goes to a folder of its own first.

    Raises:
        BuildError: a cell raised, the kernel died, or the source is malformed.
    """
    import papermill

    notebook = generate(source)
    preset = parameters.get("PRESET", preset_of(notebook))
    key = key_of(source, root, parameters)  # before the run: a change during it makes the result stale
    (root / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root / "build", prefix=f"{source.stem}-") as name:
        work = Path(name)
        (work / "run").mkdir()
        environment = {
            "CONCEPTBIND_WIDGETS": "book",
            "CONCEPTBIND_RESULTS": str(work / "results"),
            "PYTHONHASHSEED": "0",
        }
        begin = time.perf_counter()
        with _environment(environment):
            try:
                executed = papermill.execute_notebook(
                    notebook,
                    str(work / "executed.ipynb"),
                    parameters=dict(parameters),
                    kernel_name="python3",
                    progress_bar=False,
                    cwd=str(work / "run"),  # a chapter may not lean on the folder it is run in
                    request_save_on_cell_execute=False,
                )
            except papermill.PapermillExecutionError as error:
                raise BuildError(_failing_cell(error)) from error
            except Exception as error:
                raise BuildError(f"the kernel stopped: {type(error).__name__}: {error}") from error
        seconds = time.perf_counter() - begin
        clean(executed)
        executed.metadata["conceptbind"].update(
            key=key, preset=preset, seconds=round(seconds), source=source.relative_to(root).as_posix()
        )
        nbformat.validate(executed)
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / f"{source.stem}.ipynb", nbformat.writes(executed) + "\n")
        if out.resolve() == (root / "book").resolve():
            _take_results(work / "results", source.stem, root / "results")
    return seconds


def clean(notebook: NotebookNode) -> None:
    """Drop, in place, what differs from run to run or from machine to machine without meaning anything."""
    notebook.metadata.pop("papermill", None)
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        for name in ("papermill", "execution", "collapsed", "scrolled", "ExecuteTime", "lines_to_next_cell"):
            cell.metadata.pop(name, None)
        if not cell.metadata.get("tags", True):
            del cell.metadata["tags"]
        if cell.cell_type != "code":
            continue
        outputs: list[NotebookNode] = []
        for output in cell.outputs:
            last = outputs[-1] if outputs else None
            # One stream is flushed in pieces that depend on timing.
            if (
                last is not None
                and output.output_type == last.output_type == "stream"
                and output.name == last.name
            ):
                last["text"] += output["text"]
            else:
                outputs.append(output)
        cell.outputs = outputs
    _stable_widget_ids(notebook)


def _stable_widget_ids(notebook: NotebookNode) -> None:
    """Number the widget models in the order of the state: their ids are random."""
    states = [v.get("state", {}) for v in notebook.metadata.get("widgets", {}).values()]
    ids = [model for state in states for model in state]
    if not ids:
        return
    # 32 hexadecimal digits occur nowhere by chance, so the ids can be replaced in the text, where they also
    # stand behind "IPY_MODEL_".
    names = {old: f"{n:032x}" for n, old in enumerate(ids)}
    pattern = r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"
    text = re.sub(pattern, lambda m: names.get(m[0], m[0]), json.dumps(notebook))
    notebook.clear()
    notebook.update(nbformat.from_dict(json.loads(text)))


def _failing_cell(error: Any) -> str:
    """Show the cell that raised, and the end of its traceback, without colours."""
    traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback)).strip().splitlines()
    code = "\n".join(f"    {line}" for line in str(error.source).splitlines())
    tail = "\n".join(f"    {line}" for line in traceback[-12:])
    return f"  cell:\n{code}\n  raised {error.ename}: {error.evalue}\n{tail}"


def _take_results(staged: Path, page: str, results: Path) -> None:
    from conceptbind.claims import merge_claims

    if staged.exists():
        for path in sorted(p for p in staged.rglob("*") if p.is_file() and p.name != "claims.json"):
            target = results / path.relative_to(staged)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, f"{target}.tmp")
            os.replace(f"{target}.tmp", target)
    if (staged / "claims.json").exists() or (results / "claims.json").exists():
        merge_claims(staged, page, folder=results)


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a block: the kernel inherits them."""
    before = {k: os.environ.get(k) for k in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


if __name__ == "__main__":
    sys.exit(main())
