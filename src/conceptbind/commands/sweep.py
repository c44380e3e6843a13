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
    from conceptbind.sweeps import FailedJob, Job
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
    kept.add_argument("--models", metavar="FOLDER", type=Path, help="gets every model that is trained now")
    kept.add_argument(
        "--checkpoints",
        metavar="FOLDER",
        type=Path,
        help="a batch that was stopped goes on from here; with other models, --together or --workers it is another "
        "batch, and starts anew",
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
    """Train the models that are missing from the store, and say what there is; 1 if a model or its file is missing."""
    from conceptbind.store import ResultStore
    from conceptbind.training.jobs import missing_jobs, run_training

    _check(args)
    grid = _grid(args)
    if grid.left_out:
        print(f"{grid.left_out} combinations cannot be: they are left out")
    executor, batches, n_models = _executor(args), _batches(args, grid.configs), len(grid.configs)
    if args.dry_run:
        return _list(args, grid.configs, batches)
    with ResultStore(args.store) as store:
        jobs = missing_jobs(store, batches)
        _tell_unused(args, store, jobs)
        ran = run_training(store, jobs, progress=not args.quiet, executor=executor, on_retry=_tell_retry)
        n_without = _n_without_file(store, batches)
    for one in ran.failed:
        shown = _shown(one.job.settings[0], _telling(args, grid.configs))
        print(f"failed: {_one_line(one.reason)}; settings: {shown}", file=sys.stderr)
        if args.debug:
            print(one.traceback, file=sys.stderr)
    if n_without:
        print(
            f"{n_without} of the stored models have no file in {args.models}, and what is stored is not trained again: "
            "to get them, give another --store, and the same --checkpoints if there were any",
            file=sys.stderr,
        )
    n_failed = len(ran.failed)
    print(
        f"{n_models} models: {ran.done} computed, {n_models - ran.done - n_failed} were there, {n_failed} failed; "
        f"they are in {args.store}"
    )
    return 1 if n_failed or n_without else 0


def _check(args: argparse.Namespace) -> None:
    for option in ("judged_scenes", "workers", "threads", "together", "checkpoint_every"):
        n = getattr(args, option)
        if n is not None and n < 1:
            raise ValueError(f"--{option.replace('_', '-')} is a whole number of at least 1; got {n}")


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
    from conceptbind.execution.base import InProcess
    from conceptbind.execution.cluster import RayCluster
    from conceptbind.execution.processes import WorkerProcesses
    from conceptbind.training.jobs import check_device

    try:
        check_device(args.device)
    except ValueError as error:
        raise ValueError(f"--{error}") from None
    if args.ray is not None:
        return RayCluster(
            args.ray, threads=args.threads or 1, gpus_per_task=args.gpus_per_job, device=args.device
        )
    if args.gpus_per_job is not None:
        raise ValueError("--gpus-per-job belongs to --ray: worker processes take turns at the GPUs")
    if not _is_here(args.device):
        raise ValueError(
            f"this machine has no {args.device} that torch can use: give another --device, or none"
        )
    if args.workers is not None:
        return WorkerProcesses(args.workers, threads=args.threads, device=args.device)
    if args.threads is not None:
        raise ValueError("--threads belongs to --workers and --ray: in this process, set OMP_NUM_THREADS")
    return InProcess(device=args.device)


def _is_here(name: str) -> bool:
    """Say whether torch can compute on a device here."""
    import torch

    device = torch.device(name)
    if device.type == "cuda":  # asked without a context, which would stay in the memory of the GPU
        return torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError):  # as torch raises for a backend that it was built without
        return False
    return True


def _batches(args: argparse.Namespace, configs: Sequence[TrainingConfig]) -> list[Job]:
    from conceptbind.training.evaluate import N_SCENES
    from conceptbind.training.jobs import TOGETHER, training_jobs

    # without --together no worker is idle for want of a batch
    at_most = TOGETHER if args.workers is None else min(TOGETHER, -(-len(configs) // args.workers))
    return training_jobs(
        configs,
        together=at_most if args.together is None else args.together,
        n_scenes=N_SCENES if args.judged_scenes is None else args.judged_scenes,
        device=args.device,
        # a worker may run in another folder
        checkpoints=None if args.checkpoints is None else args.checkpoints.resolve(),
        checkpoint_every=args.checkpoint_every,
        models=None if args.models is None else args.models.resolve(),
    )


def _tell_unused(args: argparse.Namespace, store: ResultStore | None, jobs: Sequence[Job]) -> None:
    from conceptbind.training.jobs import unused_checkpoints

    if unused := unused_checkpoints(store, jobs):
        each = [f"{u.path.name}, {u.n_models} models after {u.n_done} of {u.n_steps} steps" for u in unused]
        print(
            f"warning: models of this run have unfinished checkpoints in {args.checkpoints} that it does not go on "
            f"from, as they are of other batches ({'; '.join(each)}): to go on, give the models, --together and "
            "--workers of the run that was stopped; to start anew, delete these files",
            file=sys.stderr,
        )


def _tell_retry(failed: Sequence[FailedJob]) -> None:
    print(
        f"{len(failed)} failed batches, the first for {_one_line(failed[0].reason)}: their models are trained one by "
        "one",
        file=sys.stderr,
    )


def _n_without_file(store: ResultStore, batches: Sequence[Job]) -> int:
    """Count the stored models that have no file in the folder of models, if there is to be one."""
    from conceptbind.training.jobs import batch_of, model_file

    n = 0
    for job in batches:
        folder, missing = batch_of(job).models, store.missing(job.settings, kind=job.kind)
        if folder is not None:
            stored = [c for index, c in enumerate(batch_of(job).configs) if index not in missing]
            n += sum(not model_file(config, folder).is_file() for config in stored)
    return n


def _list(args: argparse.Namespace, configs: Sequence[TrainingConfig], batches: Sequence[Job]) -> int:
    from conceptbind.store import ResultStore
    from conceptbind.training.jobs import missing_jobs

    jobs = batches
    if args.store.exists():
        with ResultStore(args.store, create=False) as store:
            jobs = missing_jobs(store, batches)
            _tell_unused(args, store, jobs)
    else:
        _tell_unused(args, None, jobs)
    for job in jobs:
        print(job.about)
        for settings in job.settings:
            print(f"  {_shown(settings, _telling(args, configs))}")
    n_missing = sum(len(job.settings) for job in jobs)
    n_there = len(configs) - n_missing
    print(
        f"{len(configs)} models: {n_missing} to compute in {len(jobs)} batches, {n_there} are there in {args.store}"
    )
    return 0


def _telling(args: argparse.Namespace, configs: Sequence[TrainingConfig]) -> list[str]:
    """Name the settings in which models differ, or a single one from the preset."""
    from conceptbind.training.config import config_of

    some = [*configs, config_of(args.preset)] if len(configs) == 1 else configs
    return [n for n in _settings() if len({getattr(c, n) for c in some}) > 1]


def _shown(settings: dict[str, Any], names: Sequence[str]) -> str:
    from conceptbind.training.grid import show

    return ", ".join(f"{name} {show(settings[name])}" for name in names) or "those of the preset"


def _one_line(text: str) -> str:
    return " ".join(text.split())
