"""The build of the chapters, from end to end, on tiny repositories of their own."""

import importlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
build_notebooks = importlib.import_module("build_notebooks")
imported_files = importlib.import_module("imported_files").imported_files

CHAPTER = """\
# ---
# jupyter:
#   conceptbind:
#     data: [results/*.csv]
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A chapter

# %%
import os

print(os.environ["CONCEPTBIND_WIDGETS"])


def later():
    import pkg.a


# %% tags=["parameters"]
PRESET = "laptop"
SEED = 0

# %%
from conceptbind.claims import Claim, record_claim

record_claim(Claim(
    id="a", finding="F2", claim="c", paper=None, ours=1.0, interval=None, encoder="e", data="d",
    preset=PRESET, verdict="holds", figure="01_a.html#fig-a",
));

# %% [markdown]
# A control.

# %%
import ipywidgets

ipywidgets.IntSlider()
"""


@pytest.fixture
def root(tmp_path):
    for name in ("notebooks", "src/pkg", "results", "book"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "notebooks/01_a.py").write_text(CHAPTER)
    (tmp_path / "src/pkg/a.py").write_text("X = 1\n")
    (tmp_path / "results/x.csv").write_text("1\n")
    return tmp_path


def build(root, *args):
    command = [sys.executable, str(ROOT / "tools/build_notebooks.py"), "--root", str(root), *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def key(root, source="01_a", **parameters):
    return build_notebooks.key_of(root / f"notebooks/{source}.py", root, parameters)


@pytest.mark.slow
def test_a_chapter_runs_once_and_again_only_when_something_changed(root):
    target = root / "book/01_a.ipynb"
    assert build(root, "--check").returncode == 1
    first = build(root)
    assert first.returncode == 0, first.stderr
    assert "never run" in first.stdout
    notebook = nbformat.read(target, as_version=4)
    provenance = notebook.metadata.conceptbind
    assert provenance.key == key(root)
    assert (provenance.preset, provenance.source) == ("laptop", "notebooks/01_a.py")
    assert notebook.cells[1].outputs[0].text == "book\n"
    assert json.loads((root / "results/claims.json").read_text())["claims"][0]["preset"] == "laptop"
    assert list((root / "build").iterdir()) == []

    text = target.read_text()
    assert "papermill" not in text
    assert "injected" not in text
    assert str(root) not in text

    # every reference to a widget's model leads to one
    state = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"].state
    slider = state[notebook.cells[-1].outputs[0].data["application/vnd.jupyter.widget-view+json"]["model_id"]]
    assert slider.model_name == "IntSliderModel"
    assert slider.state.layout.removeprefix("IPY_MODEL_") in state

    # up to date: nothing runs
    assert "up to date" in build(root).stdout
    assert build(root, "--check").returncode == 0

    # a second run gives the same bytes, but for the run time
    assert build(root, "--force").returncode == 0
    again = nbformat.read(target, as_version=4)
    again.metadata.conceptbind.seconds = provenance.seconds
    assert nbformat.writes(again) + "\n" == text

    # src/ changed and the chapter fails: the old one stays, also in the results
    (root / "src/pkg/a.py").write_text("X = 2\n")
    broken = CHAPTER.replace('id="a"', 'id="b"') + "\n# %%\nvalue = {}['the key']\n"
    (root / "notebooks/01_a.py").write_text(broken)
    before = target.read_bytes(), (root / "results/claims.json").read_bytes()
    failed = build(root)
    assert failed.returncode == 1
    assert "value = {}['the key']" in failed.stderr
    assert "raised KeyError: 'the key'" in failed.stderr
    assert "left as it was" in failed.stderr
    assert (target.read_bytes(), (root / "results/claims.json").read_bytes()) == before
    assert list((root / "build").iterdir()) == []


@pytest.mark.slow
def test_another_preset_goes_elsewhere_and_leaves_book_and_results_alone(root):
    done = build(root, "--preset", "smoke", "--only", "01_a")
    assert done.returncode == 0, done.stderr
    notebook = nbformat.read(root / "build/notebooks-smoke/01_a.ipynb", as_version=4)
    assert notebook.metadata.conceptbind.preset == "smoke"
    assert [c.source for c in notebook.cells if "injected-parameters" in c.metadata.get("tags", [])] == [
        '# Parameters\nPRESET = "smoke"\n'
    ]
    assert list((root / "book").iterdir()) == []
    assert not (root / "results/claims.json").exists()
    assert "up to date" in build(root, "--preset", "smoke").stdout
    assert notebook.metadata.conceptbind.key != key(root)


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("notebooks/01_a.py", True),
        ("src/pkg/a.py", True),
        ("src/pkg/b.py", False),
        ("src/other/a.py", False),
        ("src/pkg/widgets/new.js", True),
        ("results/x.csv", True),
        ("results/new.csv", True),
        ("results/claims.json", False),
        ("src/pkg/__pycache__/a.cpython-311.pyc", False),
        ("src/pkg.egg-info/PKG-INFO", False),
        ("book/intro.md", False),
        ("notebooks/02_b.py", False),
    ],
)
def test_the_key_changes_with_what_determines_the_chapter(root, path, changes):
    before = key(root)
    assert before == key(root)
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text((file.read_text() if file.exists() else "") + "# more\n")
    assert (key(root) != before) is changes


PACKAGES = {
    "top/__init__.py": "from top.of_init import VALUE",
    "top/of_init.py": "VALUE = 1",
    "top/inner/__init__.py": "",
    "top/inner/leaf.py": "from . import sibling as s; from .. import up; from ..down.far import X",
    "top/inner/sibling.py": "",
    "top/inner/unused.py": "import top.of_unused",
    "top/inner/script.js": "",
    "top/up.py": "",
    "top/of_unused.py": "",
    "top/down/__init__.py": "from .reexported import *",
    "top/down/reexported.py": "__all__ = ['thing']; thing = 1",
    "top/down/far.py": """
        import typing
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from top import of_types
        elif 1 > 0:
            import top.of_else
        if typing.TYPE_CHECKING:
            from top.of_types import Y
        try:
            import missing
        except ModuleNotFoundError:
            import top.of_except
        class X:
            import top.of_class
        """,
    "top/of_types.py": "",
    "top/of_else.py": "",
    "top/of_except.py": "",
    "top/of_class.py": "",
    "top/late.py": "def f():\n    from top.lazy import deep",
    "top/lazy/__init__.py": "",
    "top/lazy/deep.py": "",
    "top/lazy/pictures/index.json": "",
    "top/lazy/pictures/__init__.py": "",
    "top/starred/__init__.py": "__all__ = ['one', 'two']",
    "top/starred/one.py": "",
    "top/starred/two/__init__.py": "",
    "top/apart/__init__.py": "",
    "top/apart/alone.py": "",
    "top/apart/second.py": "",
    "top/apart/script.js": "",
    "top/data.csv": "",
    "named/__init__.py": "from importlib import import_module\nimport_module('other.named')",
    "other/named.py": "__import__('single')",
    "other/notes.txt": "",
    "other/idle/module.py": "",
    "other/idle/second.py": "",
    "other/idle/data.txt": "",
    "single.py": "",
    "unused.py": "import top.apart.alone",
}
CELLS = [
    "import top.late as t\nt.f()",
    "def f():\n    from top.inner.leaf import s\n\nf()",
    "from top.starred import *\nimport named, json",
]
NOT_NEEDED = {
    "top/inner/unused.py",
    "top/of_unused.py",
    "top/of_types.py",
    "top/apart/__init__.py",
    "top/apart/alone.py",
    "top/apart/second.py",
    "top/apart/script.js",
    "top/lazy/pictures/__init__.py",  # stands in a folder that is read
    "other/idle/module.py",
    "other/idle/second.py",
    "other/idle/data.txt",
    "unused.py",
}
NEW = {
    "top/inner/new.css": True,
    "top/starred/new.py": True,
    "top/late/f.py": False,
    "new/__init__.py": False,
}


def write_packages(src, packages):
    for name, text in packages.items():
        file = src / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text) + "\n")
    return src


def needed(cells, src):
    return {path.relative_to(src).as_posix() for path in imported_files(cells, src)}


def test_the_modules_a_chapter_needs_are_those_that_python_loads(tmp_path):
    src = write_packages(tmp_path / "src", PACKAGES)
    loaded = "import sys\nfor m in [*sys.modules.values()]: print(getattr(m, '__file__', None) or '')"
    command = [sys.executable, "-c", "\n".join([*CELLS, loaded])]
    environment = {**os.environ, "PYTHONPATH": str(src)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    files = {Path(line) for line in done.stdout.splitlines()}
    names = {p.relative_to(src).as_posix() for p in files if p.is_relative_to(src)}
    assert names == {name for name in needed(CELLS, src) if name.endswith(".py")}
    assert needed(CELLS, src) == set(PACKAGES) - NOT_NEEDED


@pytest.mark.parametrize("name", [*PACKAGES, *NEW])
def test_a_chapter_is_out_of_date_if_a_file_it_needs_changes_comes_or_goes(tmp_path, name):
    src = write_packages(tmp_path / "src", PACKAGES)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks/01_a.py").write_text("\n\n".join(f"# %%\n{cell}" for cell in CELLS))
    before = key(tmp_path)
    write_packages(src, {name: PACKAGES.get(name, "") + "\n"})
    stale = NEW.get(name, name not in NOT_NEEDED)
    assert (key(tmp_path) != before) is stale
    (src / name).unlink()
    assert (key(tmp_path) != before) is (stale and name in PACKAGES)


SMALL = {
    "a/__init__.py": "",
    "a/b.py": "",
    "a/base.py": "",
    "a/x.js": "",
    "a/computes.py": "import importlib\ndef f(name):\n    return importlib.import_module(f'a.{name}')",
    "c.py": "",
    "d/renames.py": "from importlib import import_module as load",
    "d/e.py": "import c",
    "d/f/__init__.py": "",
    "d/f/y.json": "{}",
    "g/broken.py": "import (",
    "g/h.py": "",
    "h/i/computes.py": "__import__(' '.strip() or 'c')",
    "h/j/k.py": "",
    "p/data.txt": "",
    "p/unused.py": "",
    "p/q/m.py": "",
    "computes.py": "def f(name):\n    __import__(name)",
}
ALL = set(SMALL)


@pytest.mark.parametrize(
    ("cells", "files"),
    [
        (["import torch, json.decoder", "'import c'  # import c"], set()),
        (["import a"], {"a/__init__.py", "a/x.js"}),
        (["import a.b"], {"a/__init__.py", "a/b.py", "a/x.js"}),
        (["from a import b"], {"a/__init__.py", "a/b.py", "a/x.js"}),
        (["import p.q.m"], {"p/data.txt", "p/q/m.py"}),
        (["from a import Base"], {"a/__init__.py", "a/x.js"}),
        (["x = 1", "if x:\n    import c"], {"c.py"}),
        (["import importlib\nimportlib.import_module('a.b')"], {"a/__init__.py", "a/b.py", "a/x.js"}),
        # A module that imports by a computed name, or does not parse, needs its whole package.
        (["import a.computes"], {"a/__init__.py", "a/b.py", "a/base.py", "a/computes.py", "a/x.js"}),
        (["import d.renames"], {"c.py", "d/renames.py", "d/e.py", "d/f/__init__.py", "d/f/y.json"}),
        (["import g.broken"], {"g/broken.py", "g/h.py"}),
        (["import h.i.computes"], {"h/i/computes.py", "h/j/k.py"}),
        (["import computes"], ALL),
        # So does a chapter, which is in none.
        (["import c", "%matplotlib inline"], ALL),
        (["!python -m a"], ALL),
        (["import a.b as"], ALL),
        (["import importlib", "m = importlib.import_module(name)"], ALL),
        (["m = __import__('a', fromlist=['b'])"], ALL),
        (["from importlib import import_module as load", "load('a.b')"], ALL),
        (["import importlib", "load = importlib.import_module"], ALL),
        (["import runpy", "runpy.run_module('a.b')"], ALL),
    ],
)
def test_what_an_import_needs(tmp_path, cells, files):
    assert needed(cells, write_packages(tmp_path, SMALL)) == files


def test_the_key_is_the_same_in_another_place_and_with_other_line_ends(root, tmp_path_factory):
    other = tmp_path_factory.mktemp("elsewhere")
    for path in (p for p in root.rglob("*") if p.is_file()):
        copy = other / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert key(other) == key(root)
    assert key(root, PRESET="smoke") != key(root, PRESET="paper") != key(root)


def test_missing_data_unknown_names_and_bad_sources_are_named(root, capsys):
    (root / "results/x.csv").unlink()
    assert build_notebooks.main(["--root", str(root), "--check"]) == 1
    assert build_notebooks.main(["--root", str(root), "--only", "03_c"]) == 2
    said = capsys.readouterr()
    assert "never run" in said.out
    assert "no notebooks/03_c.py; there are: 01_a" in said.err
    with pytest.raises(build_notebooks.BuildError, match=r"declares the data 'results/\*\.csv'"):
        key(root)
    with pytest.raises(build_notebooks.BuildError, match="one cell with the tag `parameters`"):
        build_notebooks.preset_of(new_notebook(cells=[new_code_cell("PRESET = 'laptop'")]))


def test_check_finds_hand_edits_orphans_and_what_cannot_be_read(root, capsys):
    source, target = root / "notebooks/01_a.py", root / "book/01_a.ipynb"
    notebook = build_notebooks.generate(source)
    notebook.metadata.conceptbind["key"] = key(root)
    nbformat.write(notebook, target)
    assert build_notebooks.main(["--root", str(root), "--check"]) == 0
    notebook.cells[1].source += "\nprint(1)"
    nbformat.write(notebook, target)
    nbformat.write(notebook, root / "book/09_gone.ipynb")
    assert build_notebooks.main(["--root", str(root), "--check"]) == 1
    said = capsys.readouterr().out
    assert "01_a: book/01_a.ipynb was edited by hand" in said
    assert "09_gone: there is no notebooks/09_gone.py for it" in said
    target.write_text("<<<<<<< HEAD")
    assert "cannot be read" in build_notebooks.why_stale(source, target.parent, root, {})


def test_generated_cells_have_stable_distinct_ids(root):
    source = root / "notebooks/01_a.py"
    source.write_text(CHAPTER + "\n# %%\nx = 1\n\n# %%\nx = 1\n")
    one, two = (build_notebooks.generate(source) for _ in range(2))
    ids = [c.id for c in one.cells]
    assert ids == [c.id for c in two.cells]
    assert len(set(ids)) == len(ids)
    nbformat.validate(one)


def test_cleaning_joins_streams_and_drops_times():
    stream = [new_output("stream", name="stdout", text=t) for t in ("a\n", "b\n")]
    outputs = [
        *stream,
        new_output("stream", name="stderr", text="c"),
        new_output("execute_result", execution_count=3),
    ]
    cell = new_code_cell(
        "x", execution_count=3, outputs=outputs, metadata={"execution": {"t": "1"}, "tags": []}
    )
    notebook = new_notebook(cells=[cell], metadata={"papermill": {"input_path": "/somewhere"}})
    build_notebooks.clean(notebook)
    (cell,) = notebook.cells
    assert dict(cell.metadata) == {}
    assert cell.execution_count == 3  # nbval takes a cell without one for never run
    assert [o.get("text") for o in cell.outputs] == ["a\nb\n", "c", None]
    assert "papermill" not in notebook.metadata


def test_smoke_copies_override_the_preset_only(root):
    notebook = build_notebooks.generate(root / "notebooks/01_a.py")
    nbformat.write(notebook, root / "book/01_a.ipynb")
    stale = root / "smoke/00_removed.ipynb"
    stale.parent.mkdir()
    stale.write_text("{}")
    smoke = [
        sys.executable,
        str(ROOT / "tools/smoke_notebooks.py"),
        "--book",
        str(root / "book"),
        "--out",
        str(stale.parent),
    ]
    subprocess.run(smoke, check=True, capture_output=True, env=dict(os.environ))
    copy = nbformat.read(root / "smoke/01_a.ipynb", as_version=4)
    assert not stale.exists()
    injected = [c for c in copy.cells if "injected-parameters" in c.metadata.get("tags", [])]
    assert [c.source for c in injected] == ['# Parameters\nPRESET = "smoke"\n']
    assert [c.source for c in copy.cells if c not in injected] == [c.source for c in notebook.cells]
