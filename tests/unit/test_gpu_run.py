"""The prepared run for a GPU machine works, rehearsed on a CPU: every kernel agrees with float64."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu" / "run.py"


@pytest.fixture(scope="module")
def gpu_run():
    spec = importlib.util.spec_from_file_location("gpu_run", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent)
        spec.loader.exec_module(module)
    return module


def check(report):
    names = {"scene_sums", "fit_all", "anova", "retrieve", "fit_probes", "fit_products", "train"}
    assert set(report["kernels"]) == names
    for name, kernel in report["kernels"].items():
        assert kernel["worst_difference"] < 1e-4, name
        assert kernel["seconds"] > 0


def test_every_kernel_agrees_with_the_reference(gpu_run):
    check(gpu_run.run(torch.device("cpu"), small=True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_every_kernel_agrees_on_a_gpu(gpu_run):
    check(gpu_run.run(torch.device("cuda"), small=True))


def test_without_a_gpu_it_says_what_to_do(gpu_run, monkeypatch):
    monkeypatch.setattr("sys.argv", ["run.py"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="--device cpu --small"):
        gpu_run.main()


@pytest.fixture
def stubs(gpu_run, monkeypatch):
    """Put names in the place of what is measured; give what is called."""
    calls = []

    def run(device, small):
        calls.append("kernels")
        kernel = {"worst_difference": 1e-6, "seconds": 0.5, "share_of_attainable": 0.25}
        return {"attainable": {"of": "kernels"}, "kernels": {"a kernel": kernel}}

    def attainable(device, small):
        calls.append("attainable")
        return {"of": "training"}

    def measure(device, small, limits, report):
        calls.append(("training", limits["of"]))
        report["agreement"] = {"objects": {"agrees": True}, "clip": {"agrees": True}}

    def train_models(device, folder, allowed, *, small):
        calls.append(("models", str(folder), allowed, small))
        return {"trained": 3}

    monkeypatch.setattr(gpu_run, "run", run)
    monkeypatch.setattr(gpu_run, "attainable", attainable)
    monkeypatch.setattr(gpu_run, "training_part", SimpleNamespace(measure=measure, train_models=train_models))
    return calls


REHEARSE = ["run.py", "--device", "cpu", "--small"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["kernels", ("training", "kernels")]),
        (["kernels"], ["kernels"]),
        (["training"], ["attainable", ("training", "training")]),
        (
            ["kernels", "--train-seconds", "30", "--folder", "there"],
            ["kernels", ("models", "there", 30.0, True)],
        ),
    ],
)
def test_the_parts_that_are_named_are_run(gpu_run, stubs, monkeypatch, capsys, arguments, expected):
    monkeypatch.setattr("sys.argv", REHEARSE + arguments)
    gpu_run.main()
    assert stubs == expected
    printed = capsys.readouterr().out
    assert ("a kernel" in printed) == ("kernels" in expected)
    assert "total_seconds" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed"], "there are no parts speed: name some of kernels, training"),
        (["--train-seconds", "-1"], "at least 0; got -1"),
        (["--train-seconds", "nan"], "at least 0; got nan"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(gpu_run, stubs, monkeypatch, capsys, arguments, message):
    monkeypatch.setattr("sys.argv", REHEARSE + arguments)
    with pytest.raises(SystemExit):
        gpu_run.main()
    assert message in capsys.readouterr().err
    assert stubs == []


@pytest.fixture
def written(monkeypatch):
    """Pretend that there is a GPU; give the reports that are written."""
    reports = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr("sys.path", list(sys.path))
    common = SimpleNamespace(write_report=lambda name, report: reports.append((name, report)))
    monkeypatch.setitem(sys.modules, "common", common)
    monkeypatch.setattr("sys.argv", ["run.py", "--train-seconds", "5"])
    return reports


def test_on_a_gpu_the_report_is_written(gpu_run, stubs, written):
    gpu_run.main()
    ((name, report),) = written
    assert (name, report["device"], report["models"]) == ("gpu", "a GPU", {"trained": 3})
    assert report.keys() >= {"attainable", "kernels", "training", "total_seconds"}


def test_what_was_measured_before_a_failure_is_written(gpu_run, stubs, written, monkeypatch):
    def fail(device, small, limits, report):
        report["agreement"] = {}
        raise RuntimeError("out of memory")

    monkeypatch.setattr(gpu_run.training_part, "measure", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        gpu_run.main()
    ((_, report),) = written
    assert report["kernels"]
    assert report["training"] == {"agreement": {}}


def test_a_step_that_does_not_agree_is_a_failure_and_written(gpu_run, stubs, written, monkeypatch):
    def differ(device, small, limits, report):
        report["agreement"] = {"objects": {"agrees": True}, "clip": {"agrees": False}}

    monkeypatch.setattr(gpu_run.training_part, "measure", differ)
    with pytest.raises(SystemExit, match=r"more than the tolerance: clip$"):
        gpu_run.main()
    assert written
