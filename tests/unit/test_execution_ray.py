"""A Ray cluster of two nodes on this machine; its workers, one node and the driver are killed."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conceptbind.execution.base import ExecutionError
from conceptbind.execution.cluster import RayCluster
from conceptbind.store import ResultStore

pytest.importorskip("ray", reason="needs ray: pip install 'conceptbind[ray]'")

# its own warnings, of sockets and settings to come, are not ours
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

HERE = Path(__file__).parent
DEADLINE = 300
"""Seconds after which a test that waits has failed."""


@pytest.fixture
def toys(monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    import toy_jobs

    return toy_jobs


@pytest.fixture
def cluster(monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # the nodes' workers import the toys, and the same conceptbind as the tests
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    node = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        cluster.add_node(**node)
        yield cluster
    finally:
        cluster.shutdown()


def until(true, driver=None):
    end = time.monotonic() + DEADLINE
    while not true():
        assert driver is None or driver.poll() is None, driver.communicate()
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def is_alive(pid):
    """Say whether a process is there and no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def processes_of(node):
    return {info.process.pid for some in node.all_processes.values() for info in some}


def node_of(cluster, pid):
    """Find the node that a worker belongs to: it is a child of the node's raylet."""
    while pid > 1:
        for node in cluster.list_all_nodes():
            if pid in processes_of(node):
                return node
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    raise AssertionError("a worker is of some node")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks up processes in /proc")
def test_killed_workers_nodes_and_drivers_lose_no_row(cluster, toys, tmp_path):
    path = tmp_path / "toys.sqlite"

    def drive(*names):
        return subprocess.Popen(
            [sys.executable, HERE / "toy_jobs.py", path, tmp_path, cluster.address, *names],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(driver):
        out, err = driver.communicate(timeout=DEADLINE)
        assert driver.returncode == 0, err
        return out.splitlines()[-1]  # Ray prints above it that a node has died

    def xs():
        with ResultStore(path) as store:
            return {row["name"]: row["x"] for row in store.rows("toy")}

    names = ["squares-1", "hangs-2", "hangs-3", "raises-4", "squares-5"]
    driver = drive(*names)
    until(lambda: toys.pids(tmp_path, "hangs-2") and toys.pids(tmp_path, "hangs-3"), driver)
    if (tmp_path / "driver-node").read_text() != cluster.head_node.node_id:
        driver.kill()
        driver.communicate()
        pytest.skip(
            "of nodes of one machine, this version of ray chose the one to be killed for the driver: use 2.60"
        )
    workers = [toys.pids(tmp_path, name)[0] for name in ("hangs-2", "hangs-3")]
    nodes = [node_of(cluster, pid) for pid in workers]
    assert set(nodes) == set(cluster.list_all_nodes())  # one job hangs on each
    on_head, on_other = workers if nodes[0] is cluster.head_node else workers[::-1]
    os.kill(on_head, signal.SIGKILL)
    (other,) = {*nodes} - {cluster.head_node}
    for pid in {*processes_of(other), on_other}:
        os.kill(pid, signal.SIGKILL)
    assert finish(driver) == "4 0 ['FloatingPointError: job 4 diverged']"
    assert xs() == {"squares-1": 1, "hangs-2": 4, "hangs-3": 9, "squares-5": 25}
    for name in ("hangs-2", "hangs-3"):
        assert len(set(toys.pids(tmp_path, name))) == 2

    more = [name for name in names if name != "raises-4"] + ["hangs-6"]
    driver = drive(*more)
    until(lambda: toys.pids(tmp_path, "hangs-6"), driver)
    driver.kill()
    driver.communicate()
    until(lambda: not is_alive(toys.pids(tmp_path, "hangs-6")[0]))
    begun = len(toys.logged(tmp_path))
    assert finish(drive(*more)) == "1 4 []"
    assert [name for name, _ in toys.logged(tmp_path)[begun:]] == ["hangs-6"]
    assert xs()["hangs-6"] == 36


def test_a_cluster_that_is_not_there_is_an_error_at_once():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(ExecutionError, match=rf"no Ray cluster to be used at '{address}' .*refused"):
            list(RayCluster(address).run([]))
    with pytest.raises(ExecutionError, match="no Ray cluster to be used at 'nonsense'"):
        list(RayCluster("nonsense").run([]))
