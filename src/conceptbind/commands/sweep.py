"""``conceptbind sweep``: train models on a grid of settings, here, in worker processes, or on a Ray cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conceptbind.commands.documented import documented_fields

if TYPE_CHECKING:
    from conceptbind.execution.base import Executor
    from conceptbind.store import ResultStore
    from conceptbind.sweeps import Job, Ran
    from conceptbind.training.config import TrainingConfig
    from conceptbind.training.grid import Expanded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "%(prog)s [options] [--SETTING VALUE [VALUE ...]] ..."
    parser.add_argument(
        "--preset", choices=("smoke", "laptop", "paper"), default="laptop", help="the settings not named"
    )
    parser.add_argument(
        "--grid", metavar="FILE", type=Path, help='settings as JSON: {"coverage": [0.1, 0.5], "width": 64}'
    )
    parser.add_argument("--random", metavar="N", type=int, help="draw N combinations of the grid")
    parser.add_argument("--draw-seed", metavar="SEED", type=int, default=0, help="of --random (default: 0)")
    parser.add_argument(
        "--leave-out-impossible", action="store_true", help="go without combinations that cannot be"
    )
    parser.add_argument(
        "--judged-scenes", metavar="N", type=int, help="of each kind, at most (default: 4096)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="list what would run, and how many are there already"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")

    where = parser.add_argument_group("where they run (default: in this process, one batch after the other)")
    one = where.add_mutually_exclusive_group()
    one.add_argument("--workers", metavar="N", type=int, help="N processes of this machine")
    one.add_argument("--ray", metavar="ADDRESS", help="a Ray cluster: host:port of its head, auto, or local")
    where.add_argument("--threads", metavar="N", type=int, help="threads of a worker, or cores of a Ray job")
    where.add_argument(
        "--gpus-per-job",
        metavar="SHARE",
        type=float,
        help="on Ray; .25 puts four on a GPU (default: 1 with cuda)",
    )
    where.add_argument("--device", default="cpu", help="cpu, cuda, ... (default: cpu)")
    where.add_argument(
        "--together", metavar="M", type=int, help="models trained as one batch at most (default: 8)"
    )

    kept = parser.add_argument_group("what is kept; with --ray, in folders that every node sees")
    kept.add_argument(
        "--store", metavar="FILE", type=Path, default=Path("sweep.sqlite"), help="result store to fill"
    )
    kept.add_argument("--models", metavar="FOLDER", type=Path, help="gets every trained model")
    kept.add_argument(
        "--checkpoints", metavar="FOLDER", type=Path, help="a batch that was stopped goes on from here"
    )
    kept.add_argument(
        "--checkpoint-every", metavar="N", type=int, default=500, help="steps between two (default: 500)"
    )

    grid = parser.add_argument_group(
        "settings, each with one or more values; every combination is trained",
        "--sizes 24x24 50x50 --coverage .1 .3 .5 --seed 0 1 2 is 18 models; others: true, false, none",
    )
    for name, text in _settings().items():
        grid.add_argument(
            f"--{name.replace('_', '-')}",
            nargs="+",
            metavar="VALUE",
            help=text.replace("``", "").replace("%", "%%"),
        )


def stored_in(args: argparse.Namespace) -> Path:
    """Say where finished models are kept."""
    return args.store


def run(args: argparse.Namespace) -> int:
    """Train the models that are missing from the store, and say what there is; 1 if any failed."""
    from conceptbind.store import ResultStore
    from conceptbind.sweeps import run_jobs

    grid = _grid(args)
    if grid.left_out:
        print(f"{grid.left_out} combinations cannot be: they are left out")
    executor, batches, n_models = _executor(args), _batches(args, grid.configs), len(grid.configs)
    if args.dry_run:
        return _list(args, grid.configs, batches)
    with ResultStore(args.store) as store:

        def run_batches(jobs: Sequence[Job]) -> Ran:
            return run_jobs(store, jobs, progress=not args.quiet, executor=executor, keep_going=True)

        ran = run_batches(_missing(args, batches, store))
        n_done, failed = ran.done, [f for f in ran.failed if len(f.job.settings) == 1]
        if broken := [f.job for f in ran.failed if len(f.job.settings) > 1]:
            # one model that diverges takes its batch along
            print(f"{len(broken)} failed batches: their models are trained one by one", file=sys.stderr)
            configs = [config for job in broken for config in _configs(job)]
            ran = run_batches(_batches(args, configs, together=1))
            n_done, failed = n_done + ran.done, [*failed, *ran.failed]
    for one in failed:
        print(f"failed: {_settings_of(one.job, grid.configs)}: {_one_line(one.reason)}", file=sys.stderr)
        if args.debug:
            print(one.traceback, file=sys.stderr)
    n_there = n_models - n_done - len(failed)
    print(
        f"{n_models} models: {n_done} computed, {n_there} were there, {len(failed)} failed; they are in {args.store}"
    )
    return 1 if failed else 0


def _settings() -> dict[str, str]:
    return documented_fields("conceptbind.training.config", "TrainingConfig")


def _grid(args: argparse.Namespace) -> Expanded:
    from conceptbind.training.config import config_of
    from conceptbind.training.grid import Grid, expand, parse, read_grids

    base = config_of(args.preset)
    given = {name: getattr(args, name) for name in _settings() if getattr(args, name) is not None}
    values = {name: [parse(name, text) for text in texts] for name, texts in given.items()}
    grids = [Grid(base, read | values) for read in (read_grids(args.grid) if args.grid else [{}])]
    return expand(
        grids, draw=args.random, draw_seed=args.draw_seed, leave_out_impossible=args.leave_out_impossible
    )


def _executor(args: argparse.Namespace) -> Executor:
    import torch

    from conceptbind.execution.base import InProcess
    from conceptbind.execution.cluster import RayCluster
    from conceptbind.execution.processes import WorkerProcesses

    try:
        device = torch.device(args.device)
    except RuntimeError:
        raise ValueError(f"--device is cpu, cuda, cuda:1 or the like; got {args.device}") from None
    if args.ray is not None:
        return RayCluster(
            args.ray, threads=args.threads or 1, gpus_per_task=args.gpus_per_job, device=args.device
        )
    if args.gpus_per_job is not None:
        raise ValueError("--gpus-per-job belongs to --ray: worker processes take turns at the GPUs")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"this machine has no GPU that torch can use: leave out --device {args.device}")
    if args.workers is not None:
        return WorkerProcesses(args.workers, threads=args.threads, device=args.device)
    if args.threads is not None:
        raise ValueError("--threads belongs to --workers and --ray: in this process, set OMP_NUM_THREADS")
    return InProcess(device=args.device)


def _batches(
    args: argparse.Namespace, configs: Sequence[TrainingConfig], *, together: int | None = None
) -> list[Job]:
    from conceptbind.training.evaluate import N_SCENES
    from conceptbind.training.jobs import TOGETHER, training_jobs

    if together is None:
        # without --together no worker is idle for want of a batch
        at_most = TOGETHER if args.workers is None else min(TOGETHER, -(-len(configs) // args.workers))
        together = at_most if args.together is None else args.together
    return training_jobs(
        configs,
        together=together,
        n_scenes=N_SCENES if args.judged_scenes is None else args.judged_scenes,
        device=args.device,
        # a worker may run in another folder
        checkpoints=None if args.checkpoints is None else args.checkpoints.resolve(),
        checkpoint_every=args.checkpoint_every,
        models=None if args.models is None else args.models.resolve(),
    )


def _missing(args: argparse.Namespace, batches: Sequence[Job], store: ResultStore | None) -> list[Job]:
    """List the batches with a model that is not stored; when the grid has grown, without those that are.

    The batches are those of the whole grid: so the same command makes the same again, and finds their checkpoints.
    """
    jobs = []
    for job in batches:
        missing = range(len(job.settings)) if store is None else store.missing(job.settings, kind=job.kind)
        if len(missing) == len(job.settings):
            jobs.append(job)
        elif missing:
            some = [_configs(job)[index] for index in missing]
            jobs += _batches(args, some, together=len(some))
    return jobs


def _configs(job: Job) -> list[TrainingConfig]:
    from conceptbind.training.config import TrainingConfig

    names = _settings()
    own = [{name: value for name, value in row.items() if name in names} for row in job.settings]
    return [TrainingConfig(**{**settings, "sizes": tuple(settings["sizes"])}) for settings in own]


def _list(args: argparse.Namespace, configs: Sequence[TrainingConfig], batches: Sequence[Job]) -> int:
    from conceptbind.store import ResultStore

    if args.store.exists():
        with ResultStore(args.store, create=False) as store:
            jobs = _missing(args, batches, store)
    else:
        jobs = _missing(args, batches, None)
    for job in jobs:
        print(job.about)
        for settings in job.settings:
            print(f"  {_shown(settings, _varying(configs))}")
    n_missing = sum(len(job.settings) for job in jobs)
    n_there = len(configs) - n_missing
    print(
        f"{len(configs)} models: {n_missing} to compute in {len(jobs)} batches, {n_there} are there in {args.store}"
    )
    return 0


def _settings_of(job: Job, configs: Sequence[TrainingConfig]) -> str:
    return "; ".join(_shown(settings, _varying(configs)) for settings in job.settings)


def _varying(configs: Sequence[TrainingConfig]) -> list[str]:
    """Name the settings in which models differ; all, when there is one model."""
    names = _settings()
    return [n for n in names if len(configs) == 1 or len({getattr(c, n) for c in configs}) > 1]


def _shown(settings: dict[str, Any], names: Sequence[str]) -> str:
    from conceptbind.training.grid import show

    return ", ".join(f"{name} {show(settings[name])}" for name in names)


def _one_line(text: str) -> str:
    return " ".join(text.split())
