"""The training part of the run on a GPU, rehearsed on a CPU: it measures what it says, and ends in time."""

import importlib
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from conceptbind.store import ResultStore
from conceptbind.sweeps import FailedJob, Ran
from conceptbind.training.config import config_of
from conceptbind.training.jobs import KIND, model_name, row_settings, training_jobs
from conceptbind.training.run import TrainedModel, train
from conceptbind.training.studies import study

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"
CPU = torch.device("cpu")
LIMITS = {"bfloat16_flops_per_second": 1e12}
SMOKE = study("coverage", "smoke")


@pytest.fixture(scope="module")
def part():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        return importlib.import_module("training_part")


@pytest.fixture(scope="module")
def measuring(part):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        return importlib.import_module("measuring")


def check(report):
    assert set(report) == {"agreement", "together", "paper step"}
    assert len(report["agreement"]) == 6
    assert all(step["agrees"] for step in report["agreement"].values())
    assert set(report["together"]) == {"transformer", "objects"}
    step = report["paper step"]
    assert step["milliseconds"] > step["data_milliseconds"] > 0
    assert step["data_share"] == pytest.approx(step["data_milliseconds"] / step["milliseconds"])


def test_every_part_runs_and_steps_agree(part, capsys):
    report = part.measure(CPU, True, LIMITS)
    check(report)
    for name, step in report["agreement"].items():
        least = 0 if "bfloat16" not in name else 1e-4  # or it was not in low precision
        most = 1e-5 if "bfloat16" not in name else 0.08
        assert least < step["gradient_difference"] < most, name
    assert report["paper step"]["peak_gb"] is None
    printed = capsys.readouterr().out
    assert all(title in printed for title in ("a step against float64", "together", "a step of the paper's"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_every_part_runs_and_steps_agree_on_a_gpu(part):
    report = part.measure(torch.device("cuda"), True, LIMITS)
    check(report)
    assert report["paper step"]["peak_gb"] > 0


@pytest.mark.parametrize("wrong", [1.001, math.nan])
def test_a_wrong_gradient_does_not_agree(part, monkeypatch, wrong):
    true = part.loss_and_gradients

    def spoilt(config, *arguments):
        loss, gradients = true(config, *arguments)
        if config.dtype == "float32" and "scene.C" in gradients:
            gradients["scene.C"] = gradients["scene.C"] * wrong
        return loss, gradients

    monkeypatch.setattr(part, "loss_and_gradients", spoilt)
    report = part.agreement(CPU, SMOKE[-1])
    agrees = {name: step["agrees"] for name, step in report.items()}
    # a perceptron has no such weight
    right = {"objects", "transformer, paper, bfloat16"}
    assert agrees == {name: name in right for name in part.STEPS}


def test_steps_of_the_trainer_are_those_of_train(part):
    configs = [replace(SMOKE[-1], seed=s) for s in range(2)]
    trainer = part.Trainer(configs, CPU)
    trainer.steps(5)
    trained = train(configs, stop_after=5)
    assert trainer.n_done == 5
    for name, weight in trained.parameters.items():
        torch.testing.assert_close(trainer.parameters[name], weight, rtol=0, atol=0)


def test_together_is_compared_with_all_models_one_by_one(part, monkeypatch):
    taken = []
    monkeypatch.setattr(part.Trainer, "steps", lambda self: taken.append(len(self.data.pools)))

    def one_second_for_any_number_of_models(call, device, repeats):
        taken.clear()
        call()
        return float(len(taken))

    monkeypatch.setattr(part, "seconds", one_second_for_any_number_of_models)
    report = part.together(CPU, SMOKE[-1], (1, 3))
    for found in report.values():
        assert {m: r["times_faster"] for m, r in found.items()} == {"1": 1.0, "3": 3.0}
        assert found["3"] == {
            "steps_per_second": 4.0,
            "model_steps_per_second": 12.0,
            "model_steps_per_second_one_by_one": 4.0,
            "times_faster": 3.0,
        }


def test_operations_are_those_of_all_products(part, monkeypatch):
    config = config_of("smoke", architecture="product", width=7, dim=5, batch=11, dtype="bfloat16")
    monkeypatch.setattr(part, "seconds", lambda call, device, repeats=5: 0.5)
    report = part.paper_step(CPU, config, {"bfloat16_flops_per_second": 1e6})
    # readouts of scenes and queries, cosines with queries and values; backwards by both factors
    n_queries, n_values = config.n_training_objects, sum(config.sizes)
    products = 11 * 7 * 5 + n_queries * 7 * 5 + 11 * (n_queries + n_values) * 5
    assert report["teraflops"] * 1e12 == pytest.approx(3 * 2 * products)
    seconds_a_step = 0.5 / part.STEPS_A_CALL
    assert report["milliseconds"] == pytest.approx(1e3 * seconds_a_step)
    assert report["share_of_attainable"] == pytest.approx(6 * products / seconds_a_step / 1e6)
    assert report["data_share"] == pytest.approx(1)


def test_models_are_trained_and_stored_and_found_again(part, tmp_path, capsys):
    report = part.train_models(CPU, tmp_path, 600, small=True, together=4)
    counts = ("trained", "were_there", "left")
    assert [report[n] for n in counts] == [len(SMOKE), 0, 0]
    assert [job["trained"] for job in report["jobs"]] == [4, 3]
    assert all(job["failed"] == [] for job in report["jobs"])
    assert report["seconds"] < 600
    with ResultStore(tmp_path / "results.sqlite") as store:
        rows = {row["model"]: row for row in store.rows(KIND)}
        assert store.missing([row_settings(c, 64) for c in SMOKE]) == []
        assert all(p["device"].startswith("cpu") for p in store.provenances(KIND))
    assert rows.keys() == {model_name(c) for c in SMOKE}
    # a model alone, trained by itself
    saved = TrainedModel.load(tmp_path / "models" / f"{model_name(SMOKE[2])}.safetensors")
    losses = train([SMOKE[2]]).losses[:, 0]
    torch.testing.assert_close(saved.losses, losses, rtol=1e-4, atol=1e-4)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2
    printed = capsys.readouterr().out
    assert printed.count("\n4x4 ") == len(SMOKE)
    assert "7 models trained, 0 were there, 0 left" in printed

    again = part.train_models(CPU, tmp_path, 600, small=True, together=4)
    assert [again[n] for n in counts] == [0, len(SMOKE), 0]
    assert again["jobs"] == []


@pytest.fixture
def clock(part, monkeypatch):
    """Let a job take as long as is said here, and be expected to take 5 seconds."""
    state = SimpleNamespace(now=100.0, takes=5.0, looks=1.0, long=(), started=[], fails=False)

    def guess(configs, device, n_scenes):
        state.now += state.looks
        return part.Expected(4.0, 1e6 if configs[0].coverage in state.long else 1.0)

    def run_jobs(store, jobs, **_):
        (job,) = jobs
        state.started.append(part.configs_of(job)[0].coverage)
        state.now += state.takes
        if state.fails:
            return Ran(0, 0, (FailedJob(job, "FloatingPointError: the loss", ""),))
        return Ran(len(job.settings), 0)

    monkeypatch.setattr(part, "time", SimpleNamespace(perf_counter=lambda: state.now))
    monkeypatch.setattr(part, "expected", guess)
    monkeypatch.setattr(part, "run_jobs", run_jobs)
    return state


def test_jobs_run_as_long_as_they_fit(part, clock, tmp_path):
    # each 6 s, and the third must be expected to take a fifth more than 5 s after 13 s
    assert part.train_models(CPU, tmp_path, 19.1, small=True, together=1)["trained"] == 3
    clock.started.clear()
    report = part.train_models(CPU, tmp_path, 18.9, small=True, together=1)
    assert (report["trained"], report["left"]) == (2, 5)
    assert clock.started == [0.3, 0.4]


def test_what_takes_longer_than_expected_is_learned_from(part, clock, tmp_path):
    clock.takes = 10.0
    # the second would begin at 12 s, and 12 s are expected of it
    report = part.train_models(CPU, tmp_path, 23.9, small=True, together=1)
    assert (report["trained"], report["left"]) == (1, 6)
    assert report["seconds"] < 23.9


def test_a_job_that_is_too_long_leaves_its_place(part, clock, tmp_path, capsys):
    clock.long = (0.3, 0.5)
    report = part.train_models(CPU, tmp_path, 1000, small=True, together=1)
    assert clock.started == [0.4, 0.6, 0.7, 0.8, 0.9]
    assert (report["trained"], report["left"]) == (5, 2)
    assert capsys.readouterr().out.count("no time left for it") == 2


def test_guessing_is_not_begun_without_time_for_it(part, clock, tmp_path):
    clock.looks, clock.long = 10.0, tuple(c.coverage for c in SMOKE)
    report = part.train_models(CPU, tmp_path, 25, small=True, together=1)
    assert (report["trained"], report["left"], report["seconds"]) == (0, 7, 20.0)


def test_a_job_that_fails_does_not_end_the_others(part, clock, tmp_path, capsys):
    clock.fails = True
    report = part.train_models(CPU, tmp_path, 1000, small=True, together=4)
    assert (report["trained"], report["left"], len(clock.started)) == (0, 7, 2)
    assert report["jobs"][0]["failed"] == ["FloatingPointError: the loss"]
    assert "failed: FloatingPointError" in capsys.readouterr().out


def test_a_job_is_expected_to_take_its_steps_and_its_judging(part, monkeypatch):
    monkeypatch.setattr(part, "seconds", lambda call, device, repeats: 8.0)
    ticks = iter([10.0, 13.0])
    monkeypatch.setattr(part, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    found = part.expected(SMOKE[:4], CPU, 16)
    steps = SMOKE[0].n_steps
    assert found == part.Expected(training=8.0 / part.STEPS_A_CALL * steps, judging=4 * 3.0)
    assert found.total == found.training + 12


def test_the_models_of_a_job_are_read_from_its_settings(part):
    jobs = training_jobs(SMOKE, together=3, n_scenes=16)
    assert [c for job in jobs for c in part.configs_of(job)] == sorted(SMOKE, key=lambda c: c.coverage)


def test_a_table_lines_up(measuring, capsys):
    measuring.print_table(("kernel", "n", "seconds"), [("a long name", 12, 0.123456), ("b", None, True)])
    assert capsys.readouterr().out.splitlines() == [
        "kernel        n  seconds",
        "a long name  12    0.123",
        "b             –     True",
        "",
    ]


def test_on_a_gpu_time_is_that_between_events(measuring, monkeypatch):
    order = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            order.append("event")

        def elapsed_time(self, end):
            assert order[-1] == "synchronised"
            return 2500.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: order.append("synchronised"))
    device = SimpleNamespace(type="cuda")
    assert measuring.seconds(lambda: order.append("call"), device, repeats=2) == 2.5
    assert order == ["call", *2 * ["event", "call", "event", "synchronised"]]


def test_differences_are_in_units_of_the_largest_reference(measuring):
    assert measuring.worst(torch.tensor([1.0, 4.5]), torch.tensor([1.0, 5.0])) == pytest.approx(0.1)
