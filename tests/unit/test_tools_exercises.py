import importlib
import pkgutil
import re
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from nbformat.v4 import new_code_cell, new_notebook

from conceptbind import exercises
from conceptbind.exercises import WrongAnswer, expect_close, expect_equal

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
cells = importlib.import_module("exercise_cells")
for module in pkgutil.iter_modules(exercises.__path__):
    importlib.import_module(f"{exercises.__name__}.{module.name}")

SOLUTION = '''\
def centre(z, *, centre=None):
    """Subtract the mean scene, as `centre` says."""
    # solution begins
    mean = z.mean(0)

    return z - mean
    # solution ends'''


def run(code, **names):
    exec(code, names)
    return names


def test_the_stub_is_the_solution_without_the_lines_between_the_marks():
    stub = cells.stub_of(SOLUTION)
    head = SOLUTION.splitlines()[:2]
    assert stub.splitlines() == [*head, "    ...  # your code here (2 lines)"]
    assert run(stub)["centre"](torch.zeros(2, 2)) is None


@pytest.mark.parametrize(
    ("line", "stub"),
    [
        ("mean = z.mean(0)  # solution", "mean = ...  # your code here"),
        ("mean: Tensor = z.mean(0)  # solution", "mean: Tensor = ...  # your code here"),
        ("a, b = f(x == 1)  # solution", "a, b = ...  # your code here"),
        ("z[:, 0] = 1  # solution", "z[:, 0] = ...  # your code here"),
        ("    return z - mean  # solution", "    return ...  # your code here"),
        ("z.sub_(mean)  # solution", "...  # your code here"),
        ("f(a=1)  # solution", "...  # your code here"),
        ("x == 1  # solution", "...  # your code here"),
    ],
)
def test_a_marked_line_keeps_what_stands_left_of_its_value(line, stub):
    prefix = "def f():\n" if line.startswith(" ") else ""
    assert cells.stub_of(prefix + line) == prefix + stub


@pytest.mark.parametrize(
    ("solution", "message"),
    [
        ("x = 1", "nothing in it is marked"),
        ("# solution begins\nx = 1", "without `# solution ends`"),
        ("x = 1\n# solution ends", "without `# solution begins`"),
        ("# solution begins\n# solution begins\nx = 1\n# solution ends", "inside a solution"),
        ("for i in x:  # solution\n    pass", "its stub does not parse"),
    ],
)
def test_malformed_marks_are_named(solution, message):
    with pytest.raises(cells.ExerciseError, match=message):
        cells.stub_of(solution)


def test_the_solution_gets_its_own_name_and_has_to_pass_the_check():
    code = cells.solution_of(SOLUTION, "exercises.check_centre(centre)")
    assert code == (
        "# @title Solution\n"
        "def centre_solution(z, *, centre=None):\n"
        '    """Subtract the mean scene, as `centre` says."""\n'
        "    mean = z.mean(0)\n\n"
        "    return z - mean\n\n\n"
        "exercises.check_centre(centre_solution).require()"
    )


def test_renaming_leaves_strings_attributes_and_keyword_arguments_alone():
    code = "def f(x):\n    g(f=1)  # f\n    return f(x.f), 'f', h(f)\nf = f"
    renamed = cells._rename(code, ["f"])
    assert renamed == (
        "def f_solution(x):\n    g(f=1)  # f\n"
        "    return f_solution(x.f), 'f', h(f_solution)\nf_solution = f_solution"
    )


def exercise(solution=SOLUTION, check="exercises.check_centre(centre)", between=()):
    return new_notebook(
        cells=[
            new_code_cell(solution, metadata={"tags": ["solution"]}),
            *between,
            new_code_cell(check, metadata={"tags": ["check"]}),
        ]
    )


def test_an_exercise_becomes_stub_check_and_folded_solution():
    out = cells.expand(exercise()).cells
    assert [c.metadata.tags for c in out] == [["exercise"], ["check"], ["solution", "hide-cell"]]
    assert out[0].source == cells.stub_of(SOLUTION)
    assert out[1].source == "exercises.check_centre(centre)"
    assert out[2].metadata.jupyter.source_hidden
    assert out[2].metadata.cellView == "form"
    nbformat.validate(new_notebook(cells=out))


@pytest.mark.parametrize(
    ("notebook", "message"),
    [
        (
            exercise(between=[new_code_cell("1")]),
            "no cell with the tag `check` follows the solution: 'def centre",
        ),
        (exercise(check="x = check(centre)"), "not one call"),
        (exercise(check="check(other)"), "uses none of"),
        (exercise(solution="print(1)  # solution"), "defines nothing"),
        (
            new_notebook(cells=[new_code_cell("c(x)", metadata={"tags": ["check"]})]),
            "does not follow a solution",
        ),
    ],
)
def test_a_malformed_exercise_is_named(notebook, message):
    with pytest.raises(cells.ExerciseError, match=re.escape(message)):
        cells.expand(notebook)


@pytest.fixture
def check_centre(monkeypatch):
    monkeypatch.setattr(exercises.machinery, "CHECKS", {})
    z = torch.tensor([[1.0, 2.0], [3.0, 6.0]])

    @exercises.check("centre")
    def check_centre(answer):
        right = z - z.mean(0)
        mistakes = {
            "the mean is over the dimensions; it should be over the scenes": z - z.mean(1, keepdim=True)
        }
        expect_close(answer(z), right, what="the centred embeddings", mistakes=mistakes)
        return "2 scenes"

    return check_centre


def test_a_reader_meets_not_yet_then_right(check_centre):
    before = check_centre(run(cells.stub_of(SOLUTION))["centre"])
    after = check_centre(run(SOLUTION)["centre"])
    assert (before.state, after.state) == ("empty", "right")
    assert repr(before).startswith("○ centre: not filled in yet")
    assert repr(after) == "✓ centre: right (2 scenes)"
    assert after.require() is after
    assert "✓ centre: right (2 scenes)</p>" in after._repr_html_()
    assert check_centre(...).state == "empty"
    with pytest.raises(AssertionError, match="not filled in yet"):
        before.require()


@pytest.mark.parametrize(
    "body",
    [
        "mean = ...\n    return z - mean",  # the stub's `...` used further down
        "return ...",
        "mean = ...\n    return mean, 1",
        "'''Docstring.'''",
        "mean = ...\n    return mean.sum()",
    ],
)
def test_every_kind_of_stub_is_not_yet(check_centre, body):
    assert check_centre(run(f"def centre(z):\n    {body}")["centre"]).state == "empty"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return z - z.mean(1, keepdim=True)", "the mean is over the dimensions"),
        ("z - z.mean(0)", "does your function end with `return`?"),
        ("return z.mean(0)", r"shape \(2,\), expected \(2, 2\)"),
        ("return z.mean(0) - z", "opposite sign"),
        ("return z", "wrong values in 100% of"),
        ("return z / 0 * 0", "NaN"),
        ("return 1.0", "is a float, expected a Tensor of shape"),
        ("return zz", "stopped with NameError: name 'zz' is not defined, in line 2 of its cell"),
        ("return z[7]", "stopped with IndexError.*line 2"),
    ],
)
def test_wrong_answers_get_a_message_that_names_the_mistake(check_centre, body, message):
    outcome = check_centre(run(f"def centre(z):\n    {body}")["centre"])
    assert outcome.state == "wrong"
    assert re.search(message, outcome.message), outcome.message


def test_a_function_with_other_arguments_is_wrong_not_an_error(check_centre):
    outcome = check_centre(run("def centre(): return 1")["centre"])
    assert outcome.state == "wrong"
    assert "takes 0 positional arguments" in outcome.message
    assert "cannot be used here" in check_centre(3).message


def test_an_error_in_the_check_itself_is_not_blamed_on_the_reader(monkeypatch):
    monkeypatch.setattr(exercises.machinery, "CHECKS", {})

    @exercises.check("f")
    def check_f(answer):
        return str(1 // 0)

    with pytest.raises(ZeroDivisionError):
        check_f(lambda: 1)


def test_one_check_for_one_answer(check_centre):
    with pytest.raises(ValueError, match="two checks for 'centre'"):

        @exercises.check("centre")
        def another(answer):
            return ""


@pytest.mark.parametrize(
    ("got", "right", "same"),
    [
        (1, 1.0, True),
        (torch.tensor(1.0), 1.0, True),
        (np.float32(1), 1.0, True),
        (0.5, 0.500001, True),
        (0.5, 0.51, False),
        (True, 1, False),
        ("a", "a", True),
        ([1, 2], (1, 2), False),
        (np.ones(2), torch.ones(2), True),
        (np.ones(2), torch.ones(3), False),
        (np.ones(1), 1.0, False),
        (None, 0.0, False),
    ],
)
def test_values_are_compared_by_kind_shape_and_tolerance(got, right, same):
    if same:
        expect_close(got, right)
    else:
        with pytest.raises(WrongAnswer):
            expect_close(got, right)


def test_expect_equal_has_no_tolerance():
    expect_equal(torch.tensor([1, 2]), torch.tensor([1, 2]))
    with pytest.raises(WrongAnswer, match=r"is 0\.5, expected 0\.5"):
        expect_equal(0.5, 0.5000001)


def forgets_to_return(_):
    return None


@pytest.mark.parametrize("name", sorted(exercises.CHECKS))
@pytest.mark.parametrize(
    "answer",
    [
        lambda *a, **k: 0,
        lambda *a, **k: forgets_to_return(a),
        lambda *a, **k: "x",
        lambda *a, **k: 1 / 0,
        lambda: 0,
        0,
        "x",
        None,
    ],
)
def test_every_check_of_the_chapters_rejects_nonsense(name, answer):
    assert exercises.CHECKS[name](answer).state == "wrong"


@pytest.mark.parametrize("name", sorted(exercises.CHECKS))
def test_every_check_of_the_chapters_takes_a_stub_as_not_yet(name):
    assert exercises.CHECKS[name](...).state == "empty"
