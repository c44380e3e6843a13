"""What a worker process does: it runs what the driver sends, and ends when the driver is gone."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection

import torch
from tqdm import tqdm

from conceptbind.execution.base import Failed, Outcome, attempt_for_another

GRACE = 5.0
"""Seconds between asking a process to end and ending it."""


def work(driver: Connection, index: int, threads: int, device: str) -> None:
    """Send True when ready; then run one pickled task after the other, and send the outcome of each.

    Ends the process when the driver closes its end, and after a task that failed: it may have left the device in a
    state in which every further task fails, as an illegal access on a GPU does.
    """
    status = 0
    try:
        _serve(driver, index, threads, device)
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # at once: to take torch down would cost a second, for nothing


def _serve(driver: Connection, index: int, threads: int, device: str) -> None:
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches all processes of a terminal; the driver decides
    threading.Thread(target=_end_with_driver, daemon=True).start()
    # its own is shared between processes, and would be left behind by a worker that is killed
    tqdm.set_lock(threading.RLock())
    torch.set_num_threads(threads)
    if device == "cuda" and torch.cuda.is_available():
        torch.cuda.set_device(index % torch.cuda.device_count())
    with contextlib.suppress(EOFError, OSError):  # the driver needs nothing more, or is gone
        driver.send(True)
        failed = False
        while not failed:
            outcome = _run(driver.recv_bytes(), device)
            try:
                driver.send(outcome)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                outcome = Failed(
                    f"its numbers cannot be sent to the driver ({error}): give plain numbers and text"
                )
                driver.send(outcome)
            failed = isinstance(outcome, Failed)


def _run(sent: bytes, device: str) -> Outcome:
    # unpickled inside, so that a function which cannot be imported here is a failure like any other
    return attempt_for_another(lambda: pickle.loads(sent)(), device=device)


def _leave(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def _end_with_driver() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker is started by a driver"
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)  # first politely: half-written files are removed
    time.sleep(GRACE)
    os._exit(1)
