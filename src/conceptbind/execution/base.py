"""What runs tasks: the interface, what a task gives or why it failed, and this process as the plainest executor."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from conceptbind.provenance import provenance

Run = Callable[[], Sequence[dict[str, Any]]]


class ExecutionError(ValueError):
    """Jobs that cannot run where they were asked to."""


class JobFailed(RuntimeError):
    """A job that failed in another process; its message holds the traceback from there."""


@dataclass(frozen=True)
class Task:
    """Describe what an executor runs."""

    number: int
    """By which its outcome is told from others."""
    about: str
    """A few words for messages."""
    run: Run


@dataclass(frozen=True)
class Done:
    """Hold what a task gave."""

    numbers: Sequence[dict[str, Any]]
    seconds: float
    provenance: Mapping[str, Any]
    """Of the process that ran it: on a cluster this may be another machine. Its dtype is the usual one, see Job."""


@dataclass(frozen=True)
class Failed:
    """Say why a task gave nothing."""

    reason: str
    """One line or a few, `"FloatingPointError: the loss ..."`."""
    traceback: str = ""
    error: Exception | None = None
    """What was raised; None if that was in another process."""

    def exception(self) -> Exception:
        """Give what to raise for it."""
        return self.error or JobFailed(f"{self.reason}\n{self.traceback}".strip())


Outcome = Done | Failed
Outcomes = Generator[tuple[int, Outcome], None, None]


@runtime_checkable
class Executor(Protocol):
    """What runs tasks somewhere."""

    def run(self, tasks: Iterable[Task]) -> Outcomes:
        """Run tasks, and give number and outcome of each as soon as it is there, in any order.

        A task is taken from ``tasks`` when there is room for it. Closing the generator, also by an exception such as
        Ctrl-C, ends what still runs.
        """


@dataclass(frozen=True)
class InProcess:
    """Run tasks in this process, one after the other."""

    device: str = "cpu"
    """Where they compute, for the provenance."""

    def run(self, tasks: Iterable[Task]) -> Outcomes:
        """Run tasks in their order; see :class:`Executor`."""
        for task in tasks:
            yield task.number, attempt(task.run, device=self.device)


def attempt(run: Run, *, device: str = "cpu") -> Outcome:
    """Run a task here; an exception becomes a failure, what ends the process does not."""
    made_by = provenance(device=device)  # before it runs: sources may be edited meanwhile
    start = time.perf_counter()
    try:
        numbers = run()
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}", traceback.format_exc(), error)
    return Done(numbers, time.perf_counter() - start, made_by)


def attempt_for_another(run: Run, *, device: str = "cpu") -> Outcome:
    """Run a task for another process: the exception stays here, as it may not be fit to be sent."""
    outcome = attempt(run, device=device)
    return replace(outcome, error=None) if isinstance(outcome, Failed) else outcome
