"""The prepared run for a GPU machine works, rehearsed on a CPU: every kernel agrees with float64."""

import importlib.util
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu" / "run.py"


@pytest.fixture(scope="module")
def gpu_run():
    spec = importlib.util.spec_from_file_location("gpu_run", SCRIPT)
    module = importlib.util.module_from_spec(spec)
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
