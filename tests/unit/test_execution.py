"""Worker processes: real ones, and what becomes of a sweep when they, or their driver, are killed."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from conceptbind import subjects
from conceptbind.analysis.complexity import Sweep, complexity_jobs
from conceptbind.approximators.closed_form import Additive
from conceptbind.execution.base import ExecutionError, InProcess, JobFailed, Task
from conceptbind.execution.cluster import RayCluster
from conceptbind.execution.processes import WorkerProcesses
from conceptbind.provenance import provenance
from conceptbind.store import ResultStore
from conceptbind.sweeps import Job, Ran, run_jobs

HERE = Path(__file__).parent
DEADLINE = 300
"""Seconds after which a test that waits for a process has failed."""


@pytest.fixture
def toys(monkeypatch):
    """Import the toys as a module that worker processes find, too."""
    monkeypatch.syspath_prepend(HERE)
    import toy_jobs

    return toy_jobs


@pytest.fixture
def store(tmp_path):
    with ResultStore(tmp_path / "toys.sqlite") as opened:
        yield opened


def xs(store):
    return {row["name"]: row["x"] for row in store.rows("toy")}


def until(true):
    end = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_workers_share_the_jobs_and_one_that_raises_does_not_stop_the_others(toys, store, tmp_path):
    names = ["meets-2", "meets-3", "raises-4", "squares-5", "squares-6", "opaque-7"]
    workers = WorkerProcesses(2, threads=3)
    ran = run_jobs(store, toys.jobs(tmp_path, names), progress=False, executor=workers, keep_going=True)
    assert xs(store) == {"meets-2": 4, "meets-3": 9, "squares-5": 25, "squares-6": 36}
    assert (ran.done, ran.skipped) == (4, 0)
    failed = {f.job.settings[0]["name"]: f for f in ran.failed}
    assert failed.keys() == {"raises-4", "opaque-7"}
    assert failed["raises-4"].reason == "FloatingPointError: job 4 diverged"
    assert "in toy\n" in failed["raises-4"].traceback
    assert "cannot be sent to the driver" in failed["opaque-7"].reason
    (unlucky,) = toys.pids(tmp_path, "raises-4")
    assert [name for name, pid in toys.logged(tmp_path) if pid == unlucky][-1] == "raises-4"  # then replaced
    assert os.getpid() not in {pid for _, pid in toys.logged(tmp_path)}
    assert {row["torch_threads"] for row in store.rows("toy")} == {3}
    assert store.provenances() == [{**provenance(), "threads": 3}]
    begun = len(toys.logged(tmp_path))
    with pytest.raises(JobFailed, match="job 4 diverged"):
        run_jobs(store, toys.jobs(tmp_path, names[:3]), progress=False, executor=WorkerProcesses(1))
    assert [name for name, _ in toys.logged(tmp_path)[begun:]] == ["raises-4"]


def test_a_job_whose_worker_is_killed_runs_once_more(toys, store, tmp_path):
    def kill():
        until(lambda: toys.pids(tmp_path, "hangs-2"))
        os.kill(toys.pids(tmp_path, "hangs-2")[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    names = ["hangs-2", "dies-3", "squares-4"]
    ran = run_jobs(
        store, toys.jobs(tmp_path, names), progress=False, executor=WorkerProcesses(2), keep_going=True
    )
    killer.join()
    assert xs(store) == {"hangs-2": 4, "squares-4": 16}
    assert [f.reason for f in ran.failed] == [
        "the worker that ran it died, and so did 1 more, the last one killed by SIGKILL"
    ]
    assert {name: len(set(toys.pids(tmp_path, name))) for name in names} == {
        "hangs-2": 2,
        "dies-3": 2,
        "squares-4": 1,
    }


def drive(tmp_path, *names):
    """Start a driver of two workers. Its output ends when none of them is left, too: they hold its other end."""
    return subprocess.Popen(
        [sys.executable, HERE / "toy_jobs.py", tmp_path / "toys.sqlite", tmp_path, "2-workers", *names],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


NAMES = ("squares-2", "squares-3", "hangs-4", "deaf-5", "squares-6")


@pytest.mark.parametrize("how", ["driver killed", "ctrl-c"])
def test_a_sweep_whose_driver_ends_leaves_no_worker_and_goes_on_later(toys, store, tmp_path, how):
    driver = drive(tmp_path, *NAMES)
    until(lambda: len(toys.logged(tmp_path)) == 4 or driver.poll() is not None)
    until(lambda: len(store.rows()) == 2 or driver.poll() is not None)
    if how == "ctrl-c":  # of a terminal: all processes get it
        os.killpg(driver.pid, signal.SIGINT)
    else:
        driver.kill()
    out, _ = driver.communicate(timeout=DEADLINE)
    if how == "ctrl-c":
        assert out.rstrip().endswith("KeyboardInterrupt")
        assert out.count("Traceback") == 1  # the driver's; workers say nothing
    else:
        assert out == ""
    assert xs(store) == {"squares-2": 4, "squares-3": 9}
    begun = len(toys.logged(tmp_path))
    ran = run_jobs(store, toys.jobs(tmp_path, NAMES), progress=False)
    assert ran == Ran(done=3, skipped=2)
    assert [name for name, _ in toys.logged(tmp_path)[begun:]] == ["hangs-4", "deaf-5", "squares-6"]
    assert xs(store) == {name: int(name[-1]) ** 2 for name in NAMES}


def test_what_cannot_be_sent_is_named_before_anything_starts(store):
    def run():
        return [{"x": 1}]

    closure = Job("toy", ({"n": 1},), run, "a closure")
    with pytest.raises(ExecutionError, match=r"'a closure' cannot be sent to another process .*local object"):
        run_jobs(store, [closure], progress=False, executor=WorkerProcesses(1), keep_going=True)
    assert run_jobs(store, [closure], progress=False, executor=InProcess()) == Ran(done=1, skipped=0)


def test_workers_that_cannot_start_are_an_error(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        textwrap.dedent("""
            import math
            from functools import partial
            from conceptbind.execution import base, processes
            processes.STARTS = 1
            tasks = [base.Task(0, "a task", partial(math.sqrt, 4))]
            print(list(processes.WorkerProcesses(1).run(tasks)))
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert (
        "ExecutionError: 1 workers in a row ended before they were ready, the last one with exit status 1"
        in last
    )
    assert 'below `if __name__ == "__main__":`' in last


def test_complexity_gives_the_same_rows_in_a_worker(tmp_path):
    threads = torch.get_num_threads()
    subject = subjects.planted_subject("product", values=3, seed=0)
    jobs = complexity_jobs(subject, Sweep((0.5, 0.7), (0, 1), (Additive(),)))
    found = []
    for name, where in (("here", InProcess()), ("there", WorkerProcesses(1, threads=threads))):
        with ResultStore(tmp_path / name) as store:
            assert run_jobs(store, jobs, progress=False, executor=where) == Ran(done=4, skipped=0)
            found.append([{**row, "seconds": 0, "created": 0} for row in store.rows()])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WorkerProcesses(0), "workers are at least 1; got 0$"),
        (lambda: WorkerProcesses(2, threads=0), "threads are at least 1 for each worker; got 0$"),
        (lambda: RayCluster("auto", threads=0), "threads are at least 1 for each job; got 0"),
        (lambda: RayCluster("auto", gpus_per_task=-0.5), "got -0.5"),
        (lambda: RayCluster("auto", gpus_per_task=1.5), "got 1.5"),
        (lambda: RayCluster("auto", device="cuda:1"), "use cuda; got cuda:1"),
    ],
)
def test_numbers_out_of_range_are_refused(make, message):
    with pytest.raises(ExecutionError, match=message):
        make()


def test_threads_are_shared_among_workers_and_a_gpu_is_one_job_unless_said():
    assert WorkerProcesses(1).threads == torch.get_num_threads()
    assert WorkerProcesses(10_000).threads == 1
    assert [RayCluster("auto", device=d).gpus_per_task for d in ("cpu", "cuda")] == [0, 1]
    assert RayCluster("auto", device="cuda", gpus_per_task=0.25).gpus_per_task == 0.25


class RayThatIsConnected:
    """What a run asks of ray when the program has called ray.init; its tasks are lost."""

    class exceptions:
        RayError = RuntimeError

    def __init__(self, message="the node died\nand more"):
        self.message = message

    def is_initialized(self):
        return True

    def get_runtime_context(self):
        return SimpleNamespace(gcs_address="10.0.0.1:6379")

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": 1}}]

    def remote(self, **_):
        return lambda run: SimpleNamespace(remote=lambda *given: given)

    def wait(self, references):
        return references[:1], references[1:]

    def get(self, reference):
        raise self.exceptions.RayError(self.message)


@pytest.mark.parametrize("address", ["10.0.0.2:6379", "local"])
def test_a_connected_program_is_told_where_its_jobs_run(monkeypatch, address):
    monkeypatch.setitem(sys.modules, "ray", RayThatIsConnected())
    with pytest.warns(UserWarning, match=f"cluster at 10.0.0.1:6379: jobs run there, not at '{address}'"):
        assert list(RayCluster(address).run([])) == []
    for asked in ("auto", "10.0.0.1:6379"):
        assert list(RayCluster(asked).run([])) == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [("the node died\nand more", "the node died"), ("", "without a message"), ("\n", "without a message")],
)
def test_an_error_of_the_cluster_is_told_in_one_line(monkeypatch, message, reason):
    monkeypatch.setitem(sys.modules, "ray", RayThatIsConnected(message))
    ((number, failed),) = RayCluster("auto").run([Task(3, "a task", print)])
    assert (number, failed.reason, failed.traceback) == (3, f"RuntimeError: {reason}", message)


def test_without_ray_the_error_says_how_to_get_it(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    job = Job("toy", ({"n": 1},), print, "a job")
    with pytest.raises(ExecutionError, match=r"pip install 'conceptbind\[ray\]'"):
        run_jobs(store, [job], progress=False, executor=RayCluster("local"))
