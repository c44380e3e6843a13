"""Run long sweeps that may be stopped at any moment: what is finished is stored, the rest is computed next time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm.auto import tqdm

from conceptbind import provenance as software
from conceptbind.store import ResultStore


@dataclass(frozen=True)
class Job:
    """Describe fits that are computed together."""

    kind: str
    """What they are of, `"complexity"`."""
    settings: tuple[dict[str, Any], ...]
    """All that determines each fit."""
    run: Callable[[], Sequence[dict[str, Any]]]
    """Computes the numbers of every fit, in the order of `settings`."""
    about: str
    """A few words for the progress line."""


@dataclass(frozen=True)
class Ran:
    """Count the fits of a sweep."""

    done: int
    """Computed and stored now."""
    skipped: int
    """Stored already, by an earlier run or by another process."""


def run_jobs(
    store: ResultStore,
    jobs: Sequence[Job],
    *,
    progress: bool = True,
    provenance: Mapping[str, Any] | None = None,
) -> Ran:
    """Run the jobs that have a fit without a row, one after the other, and store each as soon as it is finished.

    A job with any fit missing runs whole; rows that are there stay as they are. ``provenance`` is
    :func:`conceptbind.provenance.provenance` unless given, as for another device. An exception or Ctrl-C inside a job
    ends the sweep: jobs before it are stored, of the job itself nothing is.
    Raises ValueError when a job gives another number of rows than it has settings, and StoreError as
    :meth:`ResultStore.add` does.
    """
    made_by = software.provenance() if provenance is None else provenance
    absent = [len(store.missing(job.settings, kind=job.kind)) for job in jobs]
    total = sum(len(job.settings) for job in jobs)
    done = 0
    with tqdm(total=total, initial=total - sum(absent), unit=" fits", disable=not progress) as bar:
        for job, n_absent in zip(jobs, absent, strict=True):
            # asked again: an earlier job or another process may have stored them
            if n_absent and store.missing(job.settings, kind=job.kind):
                bar.set_description(job.about)
                start = time.perf_counter()
                numbers = job.run()
                seconds = time.perf_counter() - start
                if len(numbers) != len(job.settings):
                    raise ValueError(
                        f"job {job.about!r} of kind {job.kind!r} gave {len(numbers)} rows of numbers for "
                        f"{len(job.settings)} settings: run has to give one for each, in the same order"
                    )
                done += store.add(job.kind, job.settings, numbers, made_by, seconds)
            bar.update(n_absent)
    return Ran(done=done, skipped=total - done)
