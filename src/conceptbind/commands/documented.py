"""The fields of a dataclass and what is written under them, read from its source: importing it may need torch."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path


def documented_fields(module: str, name: str) -> dict[str, str]:
    """Give the fields of a class of a module, each with the text below it, in one line; "" where there is none.

    Raises ValueError when the module has no such class, ModuleNotFoundError when there is no such module.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no module {module!r} with a source file", name=module)
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    found = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)
    if found is None:
        raise ValueError(f"{module} has no class {name!r}")
    texts: dict[str, str] = {}
    last = None
    for node in found.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.target.id
            texts[last] = ""
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and last:
            texts[last] = " ".join(str(node.value.value).split())
        else:
            last = None
    return texts
