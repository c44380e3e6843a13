"""Worker processes of this machine: each runs one task at a time; one that dies is replaced, its task tried again."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from conceptbind.execution.base import ExecutionError, Failed, Outcomes, Task
from conceptbind.execution.worker import GRACE, work

ATTEMPTS = 2
"""How often a task is begun, if the worker that runs it dies."""
STARTS = 3
"""Workers in a row that die before they are ready, until it is no accident."""

# Not forked: a copy of a process that has begun to use threads, or a GPU, may hang.
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class _Parcel:
    task: Task
    sent: bytes


@dataclass(eq=False)
class _Worker:
    index: int
    process: SpawnProcess
    connection: Connection
    parcel: _Parcel | None = None
    """What it runs; None while it starts."""


class WorkerProcesses:
    """Run tasks in ``n_workers`` processes.

    ``threads``: of torch, in each; by default they share those of this process. ``device``: where the tasks compute;
    with "cuda" the workers take turns at the GPUs of the machine. What tasks run is pickled: it has to be a function
    of a module, or functools.partial of one.
    Raises ExecutionError for numbers below 1.
    """

    def __init__(self, n_workers: int, *, threads: int | None = None, device: str = "cpu") -> None:
        if n_workers < 1:
            raise ExecutionError(f"workers are at least 1; got {n_workers}")
        if threads is not None and threads < 1:
            raise ExecutionError(f"threads are at least 1 for each worker; got {threads}")
        self.n_workers = n_workers
        self.threads = threads or max(1, torch.get_num_threads() // n_workers)
        self.device = device

    def run(self, tasks: Iterable[Task]) -> Outcomes:
        """Run tasks; see :class:`~conceptbind.execution.base.Executor`.

        Raises ExecutionError for a task that cannot be pickled, and when workers cannot be started.
        """
        crew = _Crew(self, iter(tasks))
        try:
            yield from crew.outcomes()
        finally:
            crew.end()


class _Crew:
    """The workers of one run."""

    def __init__(self, given: WorkerProcesses, tasks: Iterator[Task]) -> None:
        self.given = given
        self.parcels = (_Parcel(task, _pickled(task)) for task in tasks)
        self.waiting = deque(islice(self.parcels, given.n_workers))
        """What a worker is started for."""
        self.working: list[_Worker] = []
        self.processes: list[SpawnProcess] = []
        """All that were started, to see them end."""
        self.deaths: Counter[int] = Counter()
        self.failed_starts = 0

    def outcomes(self) -> Outcomes:
        while True:
            for _ in range(len(self.waiting) - sum(w.parcel is None for w in self.working)):
                self._start()
            if not self.working:
                return
            of = {w.connection: w for w in self.working}
            for connection in wait(list(of)):
                yield from self._hear(of[connection])

    def end(self) -> None:
        """End all workers: those at work are asked to, those that do not listen are killed."""
        for worker in self.working:
            worker.connection.close()
            worker.process.terminate()
        until = time.monotonic() + GRACE
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def _start(self) -> None:
        index = min(set(range(self.given.n_workers)) - {w.index for w in self.working})
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(
            target=work, args=(theirs, index, self.given.threads, self.given.device), daemon=True
        )
        self.processes.append(process)
        with _without_ctrl_c():
            process.start()
        theirs.close()  # so that the worker's death is the end of the pipe
        self.working.append(_Worker(index, process, ours))

    def _hear(self, worker: _Worker) -> Outcomes:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            yield from self._died(worker)
            return
        self.failed_starts = 0
        finished = worker.parcel
        if isinstance(message, Failed):
            self._dismiss(worker)
            self.waiting.extend(islice(self.parcels, 1))  # for a new worker
        else:
            self._assign(worker)
        if finished is not None:
            yield finished.task.number, message

    def _assign(self, worker: _Worker) -> None:
        worker.parcel = self.waiting.popleft() if self.waiting else next(self.parcels, None)
        if worker.parcel is None:
            self._dismiss(worker)
            return
        with contextlib.suppress(OSError):  # it has just died: the end of its pipe is heard next
            worker.connection.send_bytes(worker.parcel.sent)

    def _dismiss(self, worker: _Worker) -> None:
        self.working.remove(worker)
        worker.connection.close()

    def _died(self, worker: _Worker) -> Outcomes:
        self._dismiss(worker)
        worker.process.join(GRACE)
        how = _how_it_ended(worker.process.exitcode)
        if worker.parcel is None:
            self.failed_starts += 1
            if self.failed_starts >= STARTS:
                raise ExecutionError(
                    f"{STARTS} workers in a row ended before they were ready, the last one {how}: see the messages "
                    'above; a script that starts workers does so below `if __name__ == "__main__":`'
                )
            return
        number = worker.parcel.task.number
        self.deaths[number] += 1
        if self.deaths[number] < ATTEMPTS:
            self.waiting.appendleft(worker.parcel)
            return
        self.waiting.extend(islice(self.parcels, 1))
        yield (
            number,
            Failed(f"the worker that ran it died, and so did {ATTEMPTS - 1} more, the last one {how}"),
        )


def _pickled(task: Task) -> bytes:
    try:
        return pickle.dumps(task.run)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ExecutionError(
            f"{task.about!r} cannot be sent to another process ({error}): let it run a function of a module, or "
            "functools.partial of one, or run it in this process"
        ) from error


def _how_it_ended(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"with exit status {exitcode}"
    return f"killed by {signal.Signals(-exitcode).name}"


@contextlib.contextmanager
def _without_ctrl_c() -> Iterator[Any]:
    """Let processes that are started inside never see Ctrl-C, which also goes to them; this one sees it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
