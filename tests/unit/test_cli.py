"""The command line: exit status, messages, and what it imports."""

import csv
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import conceptbind
from conceptbind import cli
from conceptbind.commands import results
from conceptbind.store import ResultStore


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "fits.sqlite"
    with ResultStore(path) as store:
        store.add("complexity", [{"width": w} for w in (1, 2)], [{"x": 0.5}, {"x": 0.25}], {}, 1.0)
        store.add("other", [{"width": 3}], [{"x": 1.0}], {}, 1.0)
    return path


@pytest.mark.parametrize(
    ("kind", "expected"), [([], "complexity  2\nother  1\n"), (["--kind", "other"], "other  1\n")]
)
def test_results_counts_rows(path, capsys, kind, expected):
    assert cli.main(["results", str(path), *kind]) == 0
    assert capsys.readouterr() == (expected, "")


def test_results_says_when_there_are_no_rows(tmp_path, capsys):
    ResultStore(tmp_path / "empty").close()
    assert cli.main(["results", str(tmp_path / "empty")]) == 0
    assert capsys.readouterr().out == "no rows\n"


def test_results_exports_rows(path, tmp_path, capsys):
    target = tmp_path / "fits.csv"
    assert cli.main(["results", str(path), "--export", str(target), "--kind", "complexity"]) == 0
    assert capsys.readouterr() == (f"wrote 2 rows to {target}\n", "")
    with target.open(newline="") as file:
        assert [(r["width"], r["x"]) for r in csv.DictReader(file)] == [("1", "0.5"), ("2", "0.25")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{0}/none.sqlite"], "no result store at {0}/none.sqlite: "),
        (["{0}/notes.txt"], "{0}/notes.txt is not a result store"),
        (["{0}/fits.sqlite", "--kind", "k"], "holds no rows of kind 'k'; it holds 'complexity', 'other'"),
        (["{0}/fits.sqlite", "--export", "a.xls"], "cannot export to a.xls"),
        (["{0}/fits.sqlite", "--export", "{0}/notes.txt/a.csv"], "{0}/notes.txt"),
    ],
)
def test_a_wrong_input_is_one_line_and_status_2(path, tmp_path, capsys, arguments, message):
    (tmp_path / "notes.txt").write_text("notes")
    arguments = [a.format(tmp_path) for a in arguments]
    assert cli.main(["results", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("conceptbind: error: ")
    assert message.format(tmp_path) in err
    assert err.count("\n") == 1
    for debug in (["--debug", "results", *arguments], ["results", *arguments, "--debug"]):
        with pytest.raises((ValueError, OSError)):
            cli.main(debug)


def test_a_message_of_several_lines_becomes_one(path, capsys, monkeypatch):
    def run(args):
        raise ValueError("first\nsecond")

    monkeypatch.setattr(results, "run", run)
    assert cli.main(["results", str(path)]) == 2
    assert capsys.readouterr().err == "conceptbind: error: first second\n"


def test_an_error_that_is_no_wrong_input_keeps_its_traceback(path, monkeypatch):
    def run(args):
        raise RuntimeError("a bug")

    monkeypatch.setattr(results, "run", run)
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["results", str(path)])


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["results"], ["results", "a", "--exp", "b"]])
def test_wrong_arguments_show_the_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert "usage: conceptbind" in capsys.readouterr().err


def test_the_module_runs_as_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "conceptbind", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"conceptbind {conceptbind.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["results", "--help"], ["sweep", "--help"], ["build", "--help"]]
)
def test_help_imports_no_torch(arguments):
    code = """
        import sys
        from conceptbind.cli import COMMANDS, main
        try:
            main(sys.argv[1:])
        finally:
            print([m for m in ("torch", "numpy", "tqdm") if m in sys.modules])
    """
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *text, imported = done.stdout.splitlines()
    assert imported == "[]"
    assert text[0].startswith("usage: ")
    if arguments == ["--help"]:
        assert all(any(name in line for line in text) for name in cli.COMMANDS)


def test_only_the_command_that_is_asked_for_is_imported(path, monkeypatch):
    monkeypatch.setitem(cli.COMMANDS, "not-there", "has no module")
    assert cli.main(["results", str(path)]) == 0
    with pytest.raises(ModuleNotFoundError, match=r"conceptbind\.commands\.not_there"):
        cli.main(["not-there"])


def test_every_command_has_what_the_command_line_asks_for():
    for name in cli.COMMANDS:
        with pytest.raises(SystemExit) as stop:
            cli.main([name, "--help"])
        assert stop.value.code == 0


SLOW = """
    import signal, sys, threading, types
    from pathlib import Path
    from conceptbind import cli
    from conceptbind.store import ResultStore
    from conceptbind.sweeps import Job, run_jobs

    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background

    def run(args):
        def toy(n):
            def run():
                if n == 2 and args.hang:
                    Path(args.store + ".hangs").touch()
                    threading.Event().wait()
                return [{"x": n}]
            return Job("toy", ({"n": n},), run, f"toy {n}")
        with ResultStore(args.store) as store:
            print(run_jobs(store, [toy(n) for n in range(4)]))
        return 0

    def add_arguments(parser):
        parser.add_argument("store")
        parser.add_argument("--hang", action="store_true")

    module = types.ModuleType("conceptbind.commands.slow_toys")
    module.run, module.add_arguments = run, add_arguments
    if KEEPS:
        module.stored_in = lambda args: Path(args.store)
    sys.modules[module.__name__] = module
    cli.COMMANDS["slow-toys"] = "run slow toys"
    sys.exit(cli.main())
"""


@pytest.mark.parametrize("keeps", [True, False])
def test_ctrl_c_says_where_the_finished_work_is(tmp_path, keeps):
    path = tmp_path / "toys.sqlite"
    code = textwrap.dedent(SLOW).replace("KEEPS", str(keeps))
    command = [sys.executable, "-c", code, "slow-toys", str(path)]
    process = subprocess.Popen(
        [*command, "--hang"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not (tmp_path / "toys.sqlite.hangs").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    where = f"; what was finished is stored in {path}, the same command goes on from there" if keeps else ""
    assert err.splitlines()[-1] == f"stopped{where}"
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "Ran(done=2, skipped=2, failed=())\n"
