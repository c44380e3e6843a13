"""What every committed chapter keeps to; nbval runs them at the smoke preset besides (`make test`)."""

import importlib
import importlib.metadata
import itertools
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import matplotlib as mpl
import nbformat
import pytest
import yaml

from conceptbind.claims import read_claims
from conceptbind.exercises import CHECKS

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
build_notebooks = importlib.import_module("build_notebooks")
exercise_cells = importlib.import_module("exercise_cells")
jupytext = importlib.import_module("jupytext")

SOURCES = sorted((ROOT / "notebooks").glob("*.py"))
CHAPTERS = sorted((ROOT / "book").glob("*.ipynb"))
IMAGES = ("image/png", "image/jpeg", "image/webp", "image/svg+xml")
LOCAL_PATH = re.compile(
    r"(?<![\w.-])(?:/(?:work|root|home|tmp|Users|private|var/folders)/|[A-Z]:\\\\Users)[\w.-]*"
)

each_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
each_source = pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.stem)


def read(path):
    return nbformat.read(path, as_version=4)


def tags(cell):
    return cell.metadata.get("tags", [])


def code(notebook):
    return [c for c in notebook.cells if c.cell_type == "code"]


def outputs(notebook):
    return [(c, o) for c in code(notebook) for o in c.outputs]


def test_there_are_chapters():
    assert SOURCES


@each_source
def test_it_was_executed_from_its_present_source(source):
    assert build_notebooks.why_stale(source, ROOT / "book", ROOT, {}) is None, "run `make notebooks`"


def test_every_executed_notebook_has_a_source():
    assert build_notebooks.orphans(ROOT, ROOT / "book") == []


@each_chapter
def test_it_is_valid_small_and_shows_the_laptop_preset(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert path.stat().st_size <= 3_000_000
    assert notebook.metadata.conceptbind.preset == "laptop"


@each_chapter
def test_it_opens_with_title_setup_and_parameters(path):
    notebook = read(path)
    title, setup = notebook.cells[:2]
    assert title.cell_type == "markdown"
    assert re.match(r"(\([\w-]+\)=\n)?# \S", title.source)
    assert "minutes" in title.source, "say how long it takes"
    assert setup.cell_type == "code"
    assert '"google.colab" in sys.modules' in setup.source, "Colab is detected by code"
    assert "notebook.start()" in setup.source
    with_parameters = [c for c in code(notebook) if "parameters" in tags(c)]
    assert with_parameters == [code(notebook)[1]]
    assert re.search(r'^PRESET = "laptop"$', with_parameters[0].source, re.M)
    assert re.search(r"^SEED = \d+$", with_parameters[0].source, re.M)


@each_chapter
def test_no_cell_failed_or_warned(path):
    for cell, output in outputs(read(path)):
        assert output.output_type != "error", cell.source
        assert not (output.output_type == "stream" and output.name == "stderr"), output.text


@each_chapter
def test_its_images_have_alt_text_and_its_figures_a_caption(path):
    names = []
    for cell, output in outputs(read(path)):
        rendering = cell.metadata.get("mystnb", {})
        if any(kind in output.get("data", {}) for kind in IMAGES):
            assert rendering.get("image", {}).get("alt", "").strip(), f"no alt text: {cell.source}"
        if "figure" in rendering:
            assert rendering["figure"].get("caption", "").strip()
            assert rendering["figure"].get("name", "").startswith("fig-")
            names.append(rendering["figure"]["name"])
        html = "".join(output.get("data", {}).get("text/html", ""))
        for image in re.findall(r"<img\b[^>]*>", html):
            assert re.search(r'\balt="[^"]+"', image), f"no alt text: {cell.source}"
    assert len(names) == len(set(names))


@each_chapter
def test_it_holds_no_path_of_the_machine_that_ran_it(path):
    # Not in the text: base64 holds every short string by chance.
    text = re.sub(r"[A-Za-z0-9+/=\\n]{200,}", "", path.read_text(encoding="utf-8"))
    assert LOCAL_PATH.findall(text) == []


@pytest.mark.parametrize("path", ["/tmp/x", '"/work/main/a"', "in /Users/me/x", "/home/me"])
def test_local_paths_are_seen(path):
    assert LOCAL_PATH.search(path)


@pytest.mark.parametrize("text", ["https://x.org/home/a", "a/tmp/b", "work/main", "of 1/work"])
def test_other_paths_are_not_taken_for_local_ones(text):
    assert not LOCAL_PATH.search(text)


@each_chapter
def test_on_colab_the_first_cell_installs_the_package_and_finds_the_committed_results(
    path, tmp_path, monkeypatch
):
    commands = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCEPTBIND_RESULTS", "")
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    with mpl.rc_context():
        exec(code(read(path))[0].source, {})
    clone, install = commands
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert clone[:2] == ["git", "clone"]
    # What the cell installs is what the launch button opens.
    assert clone[-2] == config["repository"]["url"]
    assert f"--branch={config['repository']['branch']}" in clone
    assert install[:4] == [sys.executable, "-m", "pip", "install"]
    # Only the package, with extras that its metadata has: lower bounds leave Colab's torch and numpy alone.
    assert install[4:] == ["--quiet", f"./{clone[-1]}[encoders,notebooks]"]
    assert {"encoders", "notebooks"} <= set(
        importlib.metadata.metadata("conceptbind").get_all("Provides-Extra")
    )
    assert Path(os.environ["CONCEPTBIND_RESULTS"]) == tmp_path / clone[-1] / "results"


@each_chapter
def test_colab_opens_a_file_that_is_committed(path):
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    assert config["launch_buttons"]["colab_url"].startswith("https://colab.research.google.com")
    # sphinx-book-theme: <repository>/blob/<branch>/<path_to_book>/<page>.ipynb
    page = Path(config["repository"]["path_to_book"]) / path.relative_to(ROOT)
    assert (ROOT / page).is_file()
    if (ROOT / ".git").exists():
        ignored = subprocess.run(["git", "check-ignore", "-q", str(path)], cwd=ROOT, check=False)
        assert ignored.returncode == 1


def exercise_pairs():
    for source in SOURCES:
        cells = jupytext.read(source).cells
        for solution, check in itertools.pairwise(cells):
            if "solution" in tags(solution):
                yield pytest.param(
                    source, solution.source, check.source, id=f"{source.stem}-{len(solution.source)}"
                )


each_exercise = pytest.mark.parametrize(("source", "solution", "check"), list(exercise_pairs()))


@each_source
def test_it_has_two_exercises_or_more(source):
    assert sum("solution" in tags(c) for c in jupytext.read(source).cells) >= 2


@each_exercise
def test_an_exercise_is_its_solution_without_the_marked_lines(source, solution, check):
    cells = read(ROOT / "book" / f"{source.stem}.ipynb").cells
    stub = exercise_cells.stub_of(solution)
    (position,) = [n for n, c in enumerate(cells) if c.source == stub]
    assert [c.source for c in cells[position : position + 3]] == [
        stub,
        check,
        exercise_cells.solution_of(solution, check),
    ]
    # Every line of the stub is the solution's, but for the hints.
    theirs = [line.strip() for line in solution.splitlines()]
    assert all(line.strip() in theirs for line in stub.splitlines() if exercise_cells.HINT not in line)
    shown = ["".join(o.data["text/plain"]) for c in cells[position : position + 3] for o in c.outputs]
    name = exercise_cells.answers_of(solution)[0]
    assert shown[0].startswith("○ "), f"the stub of {name} is not taken as not filled in"
    assert shown[1].startswith("✓ "), f"the solution of {name} does not pass"


@each_source
def test_it_imports_the_checks_of_its_own_exercises(source):
    topic = source.stem.partition("_")[2]
    imports = re.findall(r"^from conceptbind.* import .*\bexercises\b.*$", source.read_text("utf-8"), re.M)
    assert imports == [f"from conceptbind.exercises import {topic} as exercises"]


@each_exercise
def test_the_checks_of_the_chapter_exist(source, solution, check):
    exercises = importlib.import_module(f"conceptbind.exercises.{source.stem.partition('_')[2]}")
    name = re.match(r"exercises\.(check_\w+)\(", check)
    assert name, f"{check!r} is not a check of conceptbind.exercises"
    assert getattr(exercises, name[1]).__module__ == exercises.__name__
    assert set(exercise_cells.answers_of(solution)) & set(CHECKS)


def test_every_claim_is_of_a_chapter_and_none_of_a_smoke_run():
    claims = read_claims(ROOT / "results")
    assert {c.page for c in claims} <= {p.stem for p in CHAPTERS}
    assert "smoke" not in {c.preset for c in claims}
