"""Small jobs for the tests of sweeps, in a module of their own that other processes can import; and a driver of them.

python toy_jobs.py STORE FOLDER EXECUTOR JOB ... runs jobs named as below, and prints what was run.
"""

import functools
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch

from conceptbind.execution.cluster import RayCluster
from conceptbind.execution.processes import WorkerProcesses
from conceptbind.store import ResultStore
from conceptbind.sweeps import Job, run_jobs


def toy(folder, name):
    """Run by its name: a word that says what it does, and a number that it squares."""
    word, number = name.split("-")
    with open(Path(folder) / "log", "a") as log:
        log.write(f"{name} {os.getpid()}\n")
    first_time = pids(folder, name) == [os.getpid()]
    if word == "raises":
        raise FloatingPointError(f"job {number} diverged")
    if word == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "meets":  # another job in another process
        while len({pid for _, pid in logged(folder)}) < 2:
            time.sleep(0.01)
    if word == "deaf" and first_time:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if word in ("hangs", "deaf") and first_time:
        threading.Event().wait()  # until killed
    if word == "opaque":
        return [{"x": lambda: number}]
    return [{"x": int(number) ** 2, "pid": os.getpid(), "torch_threads": torch.get_num_threads()}]


def logged(folder):
    """Give (name, pid) of every job that was begun."""
    log = Path(folder) / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [(line.split()[0], int(line.split()[1])) for line in lines]


def pids(folder, name):
    """Give the processes in which a job was begun."""
    return [pid for of, pid in logged(folder) if of == name]


def jobs(folder, names):
    """Make jobs of one fit each."""
    return [Job("toy", ({"name": n},), functools.partial(toy, str(folder), n), n) for n in names]


class NotingCluster(RayCluster):
    """A Ray cluster that writes down which of its nodes the driver is attached to."""

    def run(self, tasks):
        def noted():
            import ray

            (Path(folder) / "driver-node").write_text(ray.get_runtime_context().get_node_id())
            yield from tasks

        return super().run(noted())


def executor(text):
    """Read ``2-workers``, or a Ray address."""
    return WorkerProcesses(int(text[0]), threads=1) if text.endswith("-workers") else NotingCluster(text)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
    path, folder, where, *names = sys.argv[1:]
    with ResultStore(path) as store:
        ran = run_jobs(store, jobs(folder, names), progress=False, executor=executor(where), keep_going=True)
    print(ran.done, ran.skipped, [f.reason for f in ran.failed])
