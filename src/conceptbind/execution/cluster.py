"""A Ray cluster: tasks run wherever it has room; those whose worker or node dies are run again by it."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from conceptbind.execution.base import (
    ExecutionError,
    Failed,
    Outcome,
    Outcomes,
    Run,
    Task,
    attempt_for_another,
)

RETRIES = 3
"""How often Ray runs a task again whose worker or node dies."""

CONNECT_SECONDS = 10.0

LOCAL = "local"
"""Address that stands for a cluster of this machine alone, which lives as long as the run."""


class RayCluster:
    """Run tasks on the Ray cluster at ``address``: "host:port", "auto" for the one this machine is part of, or "local".

    ``threads``: cores that Ray keeps for a task, and threads of torch in it. ``gpus_per_task``: may be a fraction, so
    that several share a GPU; without it, 1 when ``device`` is "cuda". conceptbind has to be installed on every node.
    Raises ExecutionError for numbers out of range, and for a GPU by number, which Ray chooses.
    """

    def __init__(
        self, address: str, *, threads: int = 1, gpus_per_task: float | None = None, device: str = "cpu"
    ) -> None:
        if threads < 1:
            raise ExecutionError(f"threads are at least 1 for each job; got {threads}")
        if gpus_per_task is not None and not (
            0 < gpus_per_task <= 1 or (gpus_per_task > 1 and gpus_per_task % 1 == 0)
        ):
            raise ExecutionError(
                f"a job takes a share of a GPU, or a number of whole ones; got {gpus_per_task}"
            )
        if device.startswith("cuda:"):
            raise ExecutionError(
                f"on a Ray cluster a job sees only the GPUs it was given: use cuda; got {device}"
            )
        self.address = address
        self.threads = threads
        self.gpus_per_task = gpus_per_task or float(device == "cuda")
        self.device = device

    def run(self, tasks: Iterable[Task]) -> Outcomes:
        """Run tasks; see :class:`~conceptbind.execution.base.Executor`. All are handed to the cluster at once.

        Raises ExecutionError without ray, when the cluster cannot be reached, when it is local and has too few cores
        or GPUs for a task, and for a task that cannot be pickled. Warns when a cluster has no node for a task yet, and
        when the program is connected to a cluster already: tasks then run on that one.
        """
        ray = _ray()
        with self._connected(ray):
            remote = ray.remote(num_cpus=self.threads, num_gpus=self.gpus_per_task, max_retries=RETRIES)(_run)
            running = {}
            try:
                for task in tasks:
                    running[_handed_in(remote, task, self.threads, self.device)] = task
                while running:
                    (reference,), _ = ray.wait(list(running))
                    task = running.pop(reference)
                    yield task.number, _outcome(ray, reference)
            finally:
                for reference in running:
                    ray.cancel(reference, force=True)

    @contextlib.contextmanager
    def _connected(self, ray: Any) -> Iterator[None]:
        if ray.is_initialized():  # by the program that calls us: it goes on using it
            # a client of a cluster does not know its address
            self._say_where(getattr(ray.get_runtime_context(), "gcs_address", "another address"))
            self._look_for_a_node(ray)
            yield
            return
        _reach(self.address)
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.address == LOCAL:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to its makers unasked
            options["include_dashboard"] = False
        try:
            ray.init(address=self.address, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _unusable(self.address, error) from error
        try:
            self._look_for_a_node(ray)
            yield
        finally:
            ray.shutdown()

    def _say_where(self, connected: str) -> None:
        """Warn when this process is connected to a cluster that is not known to be the one asked for."""
        if self.address not in ("auto", connected):
            warnings.warn(
                f"this process is connected to the Ray cluster at {connected}: jobs run there, not at "
                f"{self.address!r}; to change that, call ray.shutdown() first",
                stacklevel=2,
            )

    def _look_for_a_node(self, ray: Any) -> None:
        wanted = {"CPU": self.threads, "GPU": self.gpus_per_task}
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if any(all(node.get(name, 0) >= n for name, n in wanted.items()) for node in nodes):
            return
        size = f"{self.threads} cores and {self.gpus_per_task:g} GPUs"
        message = f"no node of the Ray cluster at {self.address!r} has {size}"
        if self.address == LOCAL:
            raise ExecutionError(f"{message} for a job: ask for fewer")
        warnings.warn(f"{message} now: jobs wait until one joins", stacklevel=2)


def _reach(address: str) -> None:
    """See that somebody listens at host:port; Ray itself would wait for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
        except OSError as error:
            raise _unusable(address, error) from error


def _unusable(address: str, error: Exception) -> ExecutionError:
    return ExecutionError(
        f"there is no Ray cluster to be used at {address!r} ({error}): give host:port of its head node, "
        f'"auto" on one of its nodes, or "{LOCAL}"'
    )


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ExecutionError(
            "a Ray cluster needs ray: pip install 'conceptbind[ray]', or use worker processes of this machine"
        ) from None
    return ray


def _run(run: Run, threads: int, device: str) -> Outcome:
    torch.set_num_threads(threads)
    return attempt_for_another(run, device=device)


def _handed_in(remote: Any, task: Task, threads: int, device: str) -> Any:
    try:
        return remote.remote(task.run, threads, device)
    except TypeError as error:  # ray's way to say that something cannot be pickled
        raise ExecutionError(f"{task.about!r} cannot be sent to another process: {error}") from error


def _outcome(ray: Any, reference: Any) -> Outcome:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        first, *_ = [*str(error).strip().splitlines(), "without a message"]
        reason = f"{type(error).__name__}: {first}"
        return Failed(reason, str(error))
