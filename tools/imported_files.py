"""Name the files of src/ that code depends on, without running it.

They are the modules that it imports, directly or not, and the `__init__.py` of every package on the way, which
run too; and what lies beside them that is not Python, such as a widget's script or a folder of pictures. An
import counts wherever it stands, also in a function, but not under `if TYPE_CHECKING:`.

Where the imports cannot be read off, too much counts rather than too little: all of src/ for code that does not
parse, and the whole package below src/ for a module that imports by a name it computes. Not seen are modules
that a separate process runs, and files that are read from the folder of a package that nothing imports.
"""

from __future__ import annotations

import ast
import functools
import warnings
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

IGNORED = {"__pycache__", ".DS_Store", ".ipynb_checkpoints"}
BY_NAME = {"import_module", "__import__"}
DYNAMIC = BY_NAME | {"run_module", "run_path", "load_module", "exec_module"}


def source_files(src: Path) -> list[Path]:
    """List the files of src/, without what Python, pip and editors leave there."""
    files: list[Path] = []
    for path in src.rglob("*"):
        parts = path.relative_to(src).parts
        hidden = any(p in IGNORED or p.endswith(".egg-info") for p in parts)
        if path.is_file() and not hidden and path.suffix not in {".pyc", ".tmp"}:
            files.append(path)
    return sorted(files)


def imported_files(cells: Iterable[str], src: Path) -> list[Path]:
    """List the files of src/ that the code in these cells depends on."""
    files = source_files(src)
    # By names in the listing, not by asking for a file: a Mac also finds base.py by the name of a class, Base.
    modules: dict[str, list[Path]] = defaultdict(list)
    for path in files:
        if path.suffix == ".py":
            parts = path.relative_to(src).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)].append(path)

    needed: set[Path] = set()
    waiting: list[Path] = []
    for cell in cells:
        names = _imports(cell.encode(), "")
        if names is None:
            return files
        waiting += _find(names, modules)
    while waiting:
        path = waiting.pop()
        if path in needed:
            continue
        needed.add(path)
        package = path.relative_to(src).parts[:-1]
        names = _imports(path.read_bytes(), ".".join(package))
        if names is None:
            whole = src.joinpath(*package[:1])
            waiting += [p for found in modules.values() for p in found if p.is_relative_to(whole)]
        else:
            waiting += _find(names, modules)
    on_the_way = {src, *(folder for path in needed for folder in path.parents)}
    # An __init__.py alone may stand in a folder of data, which is read and not imported.
    with_modules = {p.parent for found in modules.values() for p in found if p.name != "__init__.py"}
    beside = {p for p in files if _owner(p, on_the_way | with_modules) in on_the_way}
    return [p for p in files if p in needed or (p in beside and p.suffix != ".py")]


def _find(names: Iterable[str], modules: dict[str, list[Path]]) -> list[Path]:
    """Give the files that run when these names are imported: each module and the packages it lies in."""
    found: list[Path] = []
    for name in names:
        if name.endswith(".*"):  # modules too, if the package lists them in __all__
            found += [p for m, paths in modules.items() if m.rpartition(".")[0] == name[:-2] for p in paths]
        parts = name.split(".")
        for n in range(1, len(parts) + 1):
            found += modules.get(".".join(parts[:n]), [])
    return found


def _owner(path: Path, folders: set[Path]) -> Path:
    """Give the innermost of these folders that a file lies in."""
    return next(folder for folder in path.parents if folder in folders)


@functools.lru_cache(maxsize=1024)
def _imports(code: bytes, package: str) -> frozenset[str] | None:
    """Give the dotted names that a module of this package imports; some may be no modules. None: unknown."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of "\d", which is an error or not as the caller chose
            tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return None
    visitor = _Imports(package)
    visitor.visit(tree)
    return frozenset(visitor.names) if visitor.known else None


class _Imports(ast.NodeVisitor):
    """Collects the names that code imports; not `known` if it imports by a computed name."""

    def __init__(self, package: str) -> None:
        self.package = package.split(".") if package else []
        self.names: set[str] = set()
        self.known = True

    def visit_Import(self, node: ast.Import) -> None:
        self.names |= {alias.name for alias in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        start = self.package[: max(0, len(self.package) + 1 - node.level)] if node.level else []
        base = ".".join([*start, *([node.module] if node.module else [])])
        self.names |= {f"{base}.{alias.name}" for alias in node.names}
        if any(alias.name in DYNAMIC and alias.asname for alias in node.names):
            self.known = False

    def visit_If(self, node: ast.If) -> None:
        runs = node.orelse if _name_of(node.test) == "TYPE_CHECKING" else ast.iter_child_nodes(node)
        for part in runs:
            self.visit(part)

    def visit_Call(self, node: ast.Call) -> None:
        if _name_of(node.func) in BY_NAME and len(node.args) == 1 and not node.keywords:
            value = getattr(node.args[0], "value", None)
            if isinstance(value, str) and not value.startswith("."):
                self.names.add(value)
                return
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self.known &= node.id not in DYNAMIC

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.known &= node.attr not in DYNAMIC
        self.generic_visit(node)


def _name_of(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
