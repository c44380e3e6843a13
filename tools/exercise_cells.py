"""Generate the exercises of a chapter from their solutions.

The author writes two cells, the solution (tag `solution`) and its check (tag `check`):

    # %% tags=["solution"]
    def centre(z):
        \"\"\"Subtract the mean scene. z: (scene, dim).\"\"\"
        # solution begins
        mean = z.mean(0)
        return z - mean
        # solution ends

    # %% tags=["check"]
    exercises.check_centre(centre)

The book gets three: the stub that the reader fills in, the check of the reader's function, and the folded
solution under another name (`centre_solution`), which has to pass the same check.
"""

from __future__ import annotations

import ast
import copy
import io
import itertools
import re
import tokenize
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

HINT = "# your code here"
_BEGINS = re.compile(r"^(\s*)# solution begins\s*$")
_ENDS = re.compile(r"^\s*# solution ends\s*$")
_MARKED = re.compile(r"^(?P<indent>\s*)(?P<code>\S.*?)\s*# solution\s*$")
_KEPT_LEFT = re.compile(r"^(?P<left>(?:return\b)|(?:[A-Za-z_][\w.,\s\[\]]*?(?::[^=]+?)?=(?!=)))")


class ExerciseError(ValueError):
    """A solution that no exercise can be made of."""


def stub_of(solution: str) -> str:
    """Take the solution out of a solution cell's code.

    The lines between `# solution begins` and `# solution ends` become one `...`; a line that ends in
    `# solution` keeps what stands left of `=`, or `return`. The hint says how many lines are gone.

    Raises:
        ExerciseError: nothing is marked, or a `begins` has no `ends`.
    """
    lines: list[str] = []
    indent: str | None = None
    hidden = 0
    for line in solution.splitlines():
        if indent is not None:
            if _BEGINS.match(line):
                raise ExerciseError("`# solution begins` inside a solution")
            if _ENDS.match(line):
                lines.append(f"{indent}...  {HINT} ({hidden} line{'s' if hidden != 1 else ''})")
                indent = None
            elif line.strip() and not line.strip().startswith("#"):
                hidden += 1
        elif match := _BEGINS.match(line):
            indent, hidden = match[1], 0
        elif _ENDS.match(line):
            raise ExerciseError("`# solution ends` without `# solution begins`")
        elif match := _MARKED.match(line):
            left = _KEPT_LEFT.match(match["code"])
            lines.append(f"{match['indent']}{left['left'] + ' ' if left else ''}...  {HINT}")
        else:
            lines.append(line)
    if indent is not None:
        raise ExerciseError("`# solution begins` without `# solution ends`")
    if lines == solution.splitlines():
        raise ExerciseError(
            "nothing in it is marked: put `# solution begins` and `# solution ends` around it"
        )
    stub = "\n".join(lines)
    try:
        ast.parse(stub)
    except SyntaxError as error:
        raise ExerciseError(f"its stub does not parse (line {error.lineno}: {error.msg}):\n{stub}") from error
    return stub


def answers_of(solution: str) -> list[str]:
    """Name the functions and variables that a solution defines at its top level: the reader's to define."""
    names: list[str] = []
    for node in ast.parse(solution).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    return list(dict.fromkeys(names))


def solution_of(solution: str, check: str) -> str:
    """Give the solution its own name, drop the marks, and add the check it has to pass."""
    kept = [
        re.sub(r"\s*# solution\s*$", "", line)
        for line in solution.splitlines()
        if not (_BEGINS.match(line) or _ENDS.match(line))
    ]
    names = answers_of(solution)
    if not names:
        raise ExerciseError("it defines nothing at its top level, so there is nothing to check")
    tree = ast.parse(check)
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        raise ExerciseError(f"its check is not one call, such as `exercises.check_x({names[0]})`: {check!r}")
    if not any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(tree)):
        raise ExerciseError(f"its check {check!r} uses none of {names}")
    renamed = _rename("\n".join(kept), names), _rename(check.strip(), names)
    return f"# @title Solution\n{renamed[0]}\n\n\n{renamed[1]}.require()"


def expand(notebook: NotebookNode) -> NotebookNode:
    """Replace each solution cell and its check by stub, check and folded solution.

    Raises:
        ExerciseError: an exercise is malformed; the message names its first line.
    """
    out = copy.deepcopy(notebook)
    cells: list[NotebookNode] = []
    waiting = iter(out.cells)
    for cell in waiting:
        tags = cell.metadata.get("tags", [])
        if "check" in tags:
            raise ExerciseError(f"a cell with the tag `check` does not follow a solution: {_first(cell)}")
        if "solution" not in tags:
            cells.append(cell)
            continue
        check = next(waiting, None)
        if check is None or "check" not in check.metadata.get("tags", []):
            raise ExerciseError(f"no cell with the tag `check` follows the solution: {_first(cell)}")
        folded = {  # in the book, in JupyterLab and in Colab
            "mystnb": {"code_prompt_show": "Show the solution", "code_prompt_hide": "Hide the solution"},
            "jupyter": {"source_hidden": True},
            "cellView": "form",
        }
        try:
            stub = _cell(stub_of(cell.source), ["exercise"])
            solution = _cell(solution_of(cell.source, check.source), ["solution", "hide-cell"], **folded)
        except (ExerciseError, SyntaxError) as error:
            raise ExerciseError(f"the solution {_first(cell)}: {error}") from error
        cells += [stub, check, solution]
    out.cells = cells
    return out


def _cell(source: str, tags: list[str], **metadata: Any) -> NotebookNode:
    return new_code_cell(source, metadata={"tags": tags, **metadata})


def _rename(code: str, names: list[str]) -> str:
    """Append `_solution` to names in code, not in strings, comments, attributes or keyword arguments."""
    lines = code.splitlines(keepends=True)
    edits: list[tuple[int, int]] = []
    before = ""
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(code).readline) if t.type != tokenize.NL]
    for token, after in itertools.pairwise(tokens):
        depth_keyword = after.string == "=" and before in ("(", ",")
        if token.type == tokenize.NAME and token.string in names and before != "." and not depth_keyword:
            edits.append((token.end[0] - 1, token.end[1]))
        before = token.string
    for row, column in reversed(edits):
        lines[row] = f"{lines[row][:column]}_solution{lines[row][column:]}"
    return "".join(lines)


def _first(cell: NotebookNode) -> str:
    return repr(cell.source.split("\n", 1)[0])
