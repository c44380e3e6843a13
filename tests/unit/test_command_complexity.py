"""``conceptbind complexity``: what it stores, what it refuses, and that a run which was stopped goes on."""

import itertools
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch

from conceptbind import cli, planted, subjects
from conceptbind.analysis.complexity import KIND, Sweep
from conceptbind.approximators.closed_form import Additive, ObjectTable
from conceptbind.commands import _subject
from conceptbind.embeddings import EmbeddingSet
from conceptbind.scenes import ConceptSpace, factorial_scenes
from conceptbind.store import ResultStore

PLANTED = ["complexity", "--planted", "product", "--values", "3", "--quiet"]


@pytest.fixture
def store(tmp_path):
    return tmp_path / "fits.sqlite"


def rows(path):
    with ResultStore(path, create=False) as opened:
        return opened.rows(KIND)


def test_a_smoke_run_on_planted_embeddings(store, capsys):
    command = [*PLANTED, "--preset", "smoke", "--store", str(store)]
    assert cli.main(command) == 0
    name = "planted product, 9 objects"
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == f"{name}: 4 fits computed, 0 were there; they are in {store}"
    assert err == ""
    found = {r["name"]: r for r in rows(store)}
    assert list(found) == ["additive", "object table", "object product", "MLP 16"]
    assert all(
        r["subject"] == name and r["coverage"] == 0.5 and r["n_held_out"] == 25 for r in found.values()
    )
    assert found["additive"]["how"] == Additive().settings
    assert cli.main(command) == 0
    again = capsys.readouterr().out
    assert again.splitlines()[0] == f"{name}: 0 fits computed, 4 were there; they are in {store}"
    assert again.splitlines()[1:] == out.splitlines()[1:]
    for line in out.splitlines()[2:]:
        r = next(r for r in found.values() if line.startswith(r["name"] + " "))
        assert line.split()[-7:-3] == [
            f"{r[c]:.2f}" for c in ("r2_train", "objects_train", "concepts_held_out", "objects_held_out")
        ]
    assert cli.main([*command, "--seed", "1"]) == 0
    assert "4 fits computed" in capsys.readouterr().out
    assert len({r["embeddings"] for r in rows(store)}) == 2


@pytest.fixture
def file(tmp_path):
    space = ConceptSpace.of_sizes(3, 3)
    scenes = factorial_scenes(space, 2)
    z = torch.randn(len(scenes), 8, generator=torch.Generator().manual_seed(0))
    path = tmp_path / "mine.safetensors"
    EmbeddingSet(z, scenes, space).save(path)
    return path


@pytest.fixture
def tiny(monkeypatch):
    """Sweep two closed forms at two coverages: four jobs of two fits."""
    sweep = Sweep((0.5, 0.7), (0, 1), (Additive(), ObjectTable()))
    monkeypatch.setattr("conceptbind.analysis.complexity.sweep_of", lambda preset: sweep)


def test_embeddings_from_a_file_that_was_saved(file, store, tiny, capsys):
    assert cli.main(["complexity", "--embeddings", str(file), "--store", str(store), "--quiet"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"mine: 8 fits computed, 0 were there; they are in {store}"
    assert [line.split()[:2] for line in out[2:]] == [["additive", "0.70"], ["object", "table"]]
    assert all(line.endswith("0 of 4") for line in out[2:])
    assert {(r["subject"], r["coverage"], r["seed"]) for r in rows(store)} == {
        ("mine", c, s) for c in (0.5, 0.7) for s in (0, 1)
    }


def test_embeddings_with_a_label_file(tmp_path, store, tiny, capsys):
    names = list(itertools.product("red green blue".split(), "disc box".split()))
    lines = [",".join(a + b) for a in names for b in names]
    lines.insert(0, "object1_colour,object1_shape,object2_colour,object2_shape")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    np.save(tmp_path / "mine.npy", np.random.default_rng(0).standard_normal((36, 4)).astype("float32"))
    given = ["--embeddings", str(tmp_path / "mine.npy"), "--labels", str(tmp_path / "labels.csv")]
    status = cli.main(["complexity", *given, "--store", str(store), "--quiet"])
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    assert out.startswith("mine: 8 fits computed")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--embeddings", "{0}/none.safetensors"], "{0}/none.safetensors"),
        (
            ["--embeddings", "{0}/notes.safetensors"],
            "{0}/notes.safetensors is damaged, or no .safetensors file",
        ),
        (["--planted", "additive", "--labels", "{0}/l.csv"], "--labels belongs to --embeddings"),
        (["--planted", "additive", "--values", "0"], "2 to 20 values a concept; got --values 0"),
        (["--planted", "additive", "--values", "1"], "got --values 1"),
        (["--planted", "additive", "--values", "21"], "got --values 21"),
        (["--encoder", "random:all-MiniLM-L6-v2", "--values", "21"], "got --values 21"),
        (
            ["--embeddings", "{0}/mine.safetensors", "--values", "5"],
            "--values belongs to --encoder and --planted",
        ),
        (
            ["--embeddings", "{0}/mine.safetensors", "--labels", "{0}/l.csv"],
            "{0}/mine.safetensors holds its own",
        ),
        (["--embeddings", "{0}/mine.npy", "--labels", "{0}/none.csv"], "{0}/none.csv"),
        (["--encoder", "no-such-encoder"], "no-such-encoder"),
        (["--encoder", "random:efficientnet-lite0", "--data", "2-D", "--values", "5"], "leave out --values"),
    ],
)
def test_a_wrong_input_is_named_and_no_store_is_begun(
    file, store, tmp_path, tiny, capsys, arguments, message
):
    (tmp_path / "notes.safetensors").write_text("notes")
    np.save(tmp_path / "mine.npy", np.zeros((4, 2), "float32"))
    arguments = [a.format(tmp_path) for a in arguments]
    assert cli.main(["complexity", *arguments, "--store", str(store), "--quiet"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("conceptbind: error: ")
    assert err.count("\n") == 1
    assert message.format(tmp_path) in err
    assert not store.exists()


@pytest.mark.parametrize("arguments", [[], ["--planted", "sum"], ["--planted", "additive", "--encoder", "x"]])
def test_one_thing_is_measured(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["complexity", *arguments])
    assert stop.value.code == 2
    assert "usage: conceptbind complexity" in capsys.readouterr().err


def test_another_file_than_a_store_is_refused_untouched(tmp_path, tiny, capsys):
    path = tmp_path / "notes.txt"
    path.write_text("notes")
    assert cli.main([*PLANTED, "--store", str(path)]) == 2
    assert f"{path} is not a result store" in capsys.readouterr().err
    assert path.read_text() == "notes"


HANGS = """
    import signal, sys, threading
    from pathlib import Path
    from conceptbind import cli, planted, subjects
    from conceptbind.analysis import complexity
    from conceptbind.approximators.closed_form import Additive, ObjectTable

    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
    sweep = complexity.Sweep((0.5, 0.7), (0, 1), (Additive(), ObjectTable()))
    complexity.sweep_of = lambda preset: sweep
    hangs_at, mark, *command = sys.argv[1:]
    judged, judge = [], complexity.judge

    def slow_judge(*given):
        if len(judged) == int(hangs_at):  # in the middle of a job
            Path(mark).touch()
            threading.Event().wait()
        judged.append(judge(*given))
        return judged[-1]

    complexity.judge = slow_judge
    sys.exit(cli.main(command))
"""


def test_a_run_that_was_stopped_or_killed_goes_on_without_losing_or_repeating_fits(
    store, tmp_path, tiny, capsys
):
    command = [*PLANTED, "--store", str(store)]

    def stop(hangs_at, how):
        mark = tmp_path / f"hangs at {hangs_at} {how}"
        arguments = [sys.executable, "-c", textwrap.dedent(HANGS), str(hangs_at), str(mark), *command]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not mark.exists():
            time.sleep(0.01)
        process.send_signal(how)
        return process.communicate()[1], process.returncode

    err, status = stop(3, signal.SIGINT)
    where = f"stopped; what was finished is stored in {store}, the same command goes on from there"
    assert (status, err.splitlines()[-1:]) == (130, [where])
    assert "Traceback" not in err
    assert len(rows(store)) == 2  # of the second job one fit was judged: a job is stored whole or not at all
    _, status = stop(3, signal.SIGKILL)
    assert status == -signal.SIGKILL
    assert len(rows(store)) == 4
    assert cli.main(command) == 0
    assert "4 fits computed, 4 were there" in capsys.readouterr().out
    found = rows(store)
    assert len({r["key"] for r in found}) == len(found) == 8
    whole = tmp_path / "whole.sqlite"
    assert cli.main([*PLANTED, "--store", str(whole)]) == 0
    numbers = [
        {k: v for k, v in r.items() if k not in ("seconds", "created")} for r in (*found, *rows(whole))
    ]
    for stopped, straight in zip(numbers[:8], numbers[8:], strict=True):
        for key, value in straight.items():
            assert stopped[key] == (pytest.approx(value, abs=1e-5) if isinstance(value, float) else value)


def test_the_choices_are_those_of_the_package():
    assert (_subject.DATA, _subject.PLANTED) == (subjects.SCENES, planted.KINDS)


def test_subjects_refuse_what_they_cannot_show():
    with pytest.raises(ValueError, match="data is one of captions, 2-D, 3-D; got '4-D'"):
        subjects.encoder_subject("random:all-MiniLM-L6-v2", data="4-D")
    with pytest.raises(ValueError, match="pictures show 24 objects"):
        subjects.encoder_subject("random:efficientnet-lite0", data="2-D", values=5)
    for make in (subjects.planted_subject, subjects.encoder_subject):
        with pytest.raises(ValueError, match="2 to 20 values a concept; got 21 values"):
            make("product", values=21)
