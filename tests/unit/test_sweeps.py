"""Sweeps: what is stored is not computed again, however the last run ended."""

import signal
import subprocess
import sys
import textwrap
import time

import pytest

from conceptbind.provenance import provenance
from conceptbind.store import ResultStore, StoreError
from conceptbind.sweeps import Job, Ran, run_jobs


def job(n, *, ran, fits=2, result=None):
    """Job n squares its numbers, and notes in ``ran`` that it was run."""
    settings = tuple({"job": n, "fit": f} for f in range(fits))

    def run():
        ran.append(n)
        if isinstance(result, BaseException):
            raise result
        return [{"x": (10 * n + f) ** 2} for f in range(fits)] if result is None else result

    return Job("toy", settings, run, f"job {n}")


def xs(store):
    return {(r["job"], r["fit"]): r["x"] for r in store.rows("toy")}


@pytest.fixture
def store(tmp_path):
    with ResultStore(tmp_path / "fits.sqlite") as opened:
        yield opened


def test_a_second_run_computes_nothing(store):
    ran = []
    jobs = [job(n, ran=ran, fits=n + 1) for n in range(4)]
    assert run_jobs(store, jobs, progress=False) == Ran(done=10, skipped=0)
    assert run_jobs(store, jobs, progress=False) == Ran(done=0, skipped=10)
    assert ran == [0, 1, 2, 3]
    assert xs(store) == {(n, f): (10 * n + f) ** 2 for n in range(4) for f in range(n + 1)}
    assert store.provenances() == [provenance()]


def test_a_job_with_a_missing_row_runs_whole_and_adds_only_that(store):
    ran = []
    store.add("toy", [{"job": 1, "fit": 0}], [{"x": -1}], {}, 1.0)
    jobs = [job(n, ran=ran) for n in range(3)]
    assert run_jobs(store, jobs, progress=False, provenance={"device": "gpu"}) == Ran(done=5, skipped=1)
    assert ran == [0, 1, 2]
    assert xs(store)[1, 0] == -1
    assert xs(store)[1, 1] == 121
    assert store.provenances() == [{}, {"device": "gpu"}]


def test_a_job_that_another_process_finished_meanwhile_is_skipped(store):
    ran = []
    second = job(1, ran=ran)

    def run():
        with ResultStore(store.path) as other:
            other.add("toy", second.settings, [{"x": 0}] * 2, {}, 1.0)
        return [{"x": 5}]

    first = Job("toy", ({"job": 0, "fit": 0},), run, "first")
    assert run_jobs(store, [first, second], progress=False) == Ran(done=1, skipped=2)
    assert ran == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("diverged")], ids=["ctrl-c", "error"])
def test_a_job_that_ends_early_leaves_the_finished_ones(store, error):
    ran = []
    jobs = [job(0, ran=ran), job(1, ran=ran, result=error), job(2, ran=ran)]
    with pytest.raises(type(error)):
        run_jobs(store, jobs, progress=False)
    assert set(xs(store)) == {(0, 0), (0, 1)}
    assert run_jobs(store, [job(n, ran=ran) for n in range(3)], progress=False) == Ran(done=4, skipped=2)
    assert ran == [0, 1, 1, 2]


def test_a_sweep_that_keeps_going_lists_what_failed_and_runs_only_that_again(store):
    ran = []
    jobs = [job(0, ran=ran), job(1, ran=ran, result=RuntimeError("diverged")), job(2, ran=ran, result=[])]
    jobs.append(job(3, ran=ran))
    found = run_jobs(store, jobs, progress=False, keep_going=True)
    assert (found.done, found.skipped) == (4, 0)
    assert [(f.job, f.reason) for f in found.failed] == [
        (jobs[1], "RuntimeError: diverged"),
        (
            jobs[2],
            "job 'job 2' of kind 'toy' gave 0 rows of numbers for 2 settings: run has to give one for each, in "
            "the same order",
        ),
    ]
    assert "raise result\n" in found.failed[0].traceback
    assert ran == [0, 1, 2, 3]
    again = run_jobs(store, [job(n, ran=ran) for n in range(4)], progress=False, keep_going=True)
    assert again == Ran(done=4, skipped=4)
    assert ran[4:] == [1, 2]
    with pytest.raises(KeyboardInterrupt):  # which is no failure of the job
        run_jobs(store, [job(4, ran=ran, result=KeyboardInterrupt())], progress=False, keep_going=True)


def test_a_failed_job_with_a_row_counts_what_it_lacks(store):
    store.add("toy", [{"job": 1, "fit": 0}], [{"x": -1}], {}, 1.0)
    found = run_jobs(
        store, [job(1, ran=[], fits=3, result=RuntimeError("diverged"))], progress=False, keep_going=True
    )
    assert (found.done, found.skipped, len(found.failed)) == (0, 1, 1)


def test_a_job_with_a_wrong_number_of_rows_is_named(store):
    ran = []
    with pytest.raises(ValueError, match=r"job 'job 3' of kind 'toy' gave 1 rows of numbers for 2 settings"):
        run_jobs(store, [job(3, ran=ran, result=[{"x": 1}])], progress=False)
    assert store.rows() == []


def test_settings_that_do_not_tell_fits_apart_are_refused_before_anything_runs(store):
    ran = []
    twice = Job("toy", ({"a": 1}, {"a": 1}), lambda: ran.append("twice"), "twice")
    with pytest.raises(StoreError, match="settings 0 and 1 of one batch are equal"):
        run_jobs(store, [job(0, ran=ran), twice], progress=False)
    run_jobs(store, [job(0, ran=ran)], progress=False)
    other = Job("other", ({"job": 0, "fit": 1},), lambda: ran.append("other"), "other")
    with pytest.raises(StoreError, match="a fit of 'other' has the same settings as one of 'toy'"):
        run_jobs(store, [job(1, ran=ran), other], progress=False)
    assert ran == [0]


def test_the_bar_counts_fits_on_stderr_and_starts_at_what_is_stored(store, capsys):
    ran = []
    run_jobs(store, [job(0, ran=ran, fits=3)], progress=False)
    assert capsys.readouterr() == ("", "")
    jobs = [job(0, ran=ran, fits=3), job(1, ran=ran, fits=4)]
    run_jobs(store, jobs)
    out, err = capsys.readouterr()
    lines = err.strip().split("\r")
    assert out == ""
    assert " 3/7 " in lines[0]
    assert " 7/7 " in lines[-1]
    assert lines[-1].startswith("job 1")


TOYS = """
    import sys, threading
    from pathlib import Path
    from conceptbind.store import ResultStore
    from conceptbind.sweeps import Job, run_jobs

    def toy(n):
        settings = tuple({"job": n, "fit": f} for f in range(20))
        def run():
            with open(sys.argv[2], "a") as log:
                log.write(f"{n}\\n")
            if n == int(sys.argv[3]):
                threading.Event().wait()  # until killed
            return [{"x": n * f} for f in range(20)]
        return Job("toy", settings, run, f"toy {n}")

    with ResultStore(sys.argv[1]) as store:
        run_jobs(store, [toy(n) for n in range(8)])
"""


def test_a_killed_sweep_goes_on_where_it_stopped(tmp_path):
    log, path = tmp_path / "log", tmp_path / "fits.sqlite"

    def start(hangs_at):
        command = [sys.executable, "-c", textwrap.dedent(TOYS), str(path), str(log), str(hangs_at)]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def ran():
        return log.read_text().split() if log.exists() else []

    for hangs_at in (0, 3, 5):
        process = start(hangs_at)
        while process.poll() is None and str(hangs_at) not in ran()[-1:]:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        with ResultStore(path) as store:
            assert {n for n, _ in xs(store)} == set(range(hangs_at))
    assert start(-1).wait() == 0
    # only the jobs that were killed ran a second time
    assert ran() == [*"0", *"0123", *"345", *"567"]
    with ResultStore(path) as store:
        assert len(store.rows()) == 160
        assert xs(store) == {(n, f): n * f for n in range(8) for f in range(20)}
