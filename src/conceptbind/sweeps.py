"""Run long sweeps that may be stopped at any moment: what is finished is stored, the rest is computed next time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tqdm.auto import tqdm

from conceptbind.execution.base import Executor, Failed, InProcess, Outcome, Task
from conceptbind.store import ResultStore


@dataclass(frozen=True)
class Job:
    """Describe fits that are computed together."""

    kind: str
    """What they are of, `"complexity"`."""
    settings: tuple[dict[str, Any], ...]
    """All that determines each fit."""
    run: Callable[[], Sequence[dict[str, Any]]]
    """Computes the numbers of every fit, in the order of `settings`. To run in another process it has to be one
    that can be pickled: a function of a module, functools.partial of one, or an instance of a module's class."""
    about: str
    """A few words for the progress line."""
    dtype: str = "float32"
    """What it computes in, for the provenance: the process that runs it does not know."""


@dataclass(frozen=True)
class FailedJob:
    """Say why a job gave no rows."""

    job: Job
    reason: str
    traceback: str


@dataclass(frozen=True)
class Ran:
    """Count the fits of a sweep."""

    done: int
    """Computed and stored now."""
    skipped: int
    """Stored already, by an earlier run or by another process."""
    failed: tuple[FailedJob, ...] = ()
    """What is missing still."""


def run_jobs(
    store: ResultStore,
    jobs: Sequence[Job],
    *,
    progress: bool = True,
    provenance: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    keep_going: bool = False,
) -> Ran:
    """Run the jobs that have a fit without a row, and store each as soon as it is finished.

    A job with any fit missing runs whole; rows that are there stay as they are. ``executor``: where they run, in this
    process one after the other unless given; only this process writes to the store. ``provenance``: that of the
    process a job ran in, and the job's dtype, unless given.
    An exception inside a job ends the sweep, or with ``keep_going`` only the job, which the result then lists; Ctrl-C
    ends the sweep. What was finished before is stored, of a job that was not nothing is.
    Raises ValueError when a job gives another number of rows than it has settings, JobFailed for an exception in
    another process, ExecutionError for jobs that cannot run where they should, and StoreError as
    :meth:`ResultStore.add` does.
    """
    absent = [len(store.missing(job.settings, kind=job.kind)) for job in jobs]
    total = sum(len(job.settings) for job in jobs)
    done, failed = 0, []
    with tqdm(total=total, initial=total - sum(absent), unit=" fits", disable=not progress) as bar:

        def tasks() -> Iterator[Task]:
            for number, job in enumerate(jobs):
                # asked again: an earlier job or another process may have stored them
                if absent[number] and store.missing(job.settings, kind=job.kind):
                    bar.set_description(job.about)
                    yield Task(number, job.about, job.run)
                else:
                    bar.update(absent[number])

        with closing((executor or InProcess()).run(tasks())) as outcomes:
            for number, outcome in outcomes:
                job, found = jobs[number], _checked(jobs[number], outcome)
                if isinstance(found, Failed):
                    if not keep_going:
                        raise found.exception()
                    failed.append(FailedJob(job, found.reason, found.traceback))
                    continue
                made_by = {**found.provenance, "dtype": job.dtype} if provenance is None else provenance
                done += store.add(job.kind, job.settings, found.numbers, made_by, found.seconds)
                bar.update(absent[number])
    n_missing = sum(len(store.missing(f.job.settings)) for f in failed)
    return Ran(done=done, skipped=total - done - n_missing, failed=tuple(failed))


def _checked(job: Job, outcome: Outcome) -> Outcome:
    if isinstance(outcome, Failed) or len(outcome.numbers) == len(job.settings):
        return outcome
    error = ValueError(
        f"job {job.about!r} of kind {job.kind!r} gave {len(outcome.numbers)} rows of numbers for "
        f"{len(job.settings)} settings: run has to give one for each, in the same order"
    )
    return Failed(str(error), error=error)
