"""Repair the pocket CLIPs and write results/repair.json: what it mends on seen and held-out objects, what it costs.

    python tools/run_repair.py texts          # maps and adapters of texts
    python tools/run_repair.py compositions   # composition models on frozen pictures
    python tools/run_repair.py regulariser    # training with and without the binding regulariser, at the same steps

Rows of the table have a column "run"; a run that is computed again replaces its rows and no others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from common import write_merged
from locked import train_locked
from regularised import RECIPES, train_regularised

from conceptbind.analysis.five_way import five_way
from conceptbind.embeddings import EmbeddingSet, encode_captions, encode_pictures
from conceptbind.encoders import load
from conceptbind.encoders.base import Encoder
from conceptbind.encoders.pocket import read_weights, seen_objects, trained_pockets
from conceptbind.kernels.retrieval import retrieve
from conceptbind.presets import PRESETS
from conceptbind.provenance import provenance
from conceptbind.repair.adapter import ProductAdapter, ReluAdapter, n_parameters, train_adapter
from conceptbind.repair.composition import KINDS, CompositionTraining, train_composition
from conceptbind.repair.judged import Subject, judge, pairs_of
from conceptbind.repair.linear_map import margin_map, procrustes_map, ridge_map, train_linear_map
from conceptbind.repair.swaps import Pairs
from conceptbind.scenes import ObjectSplit, factorial_scenes, single_object_scenes
from conceptbind.spaces import POCKET
from conceptbind.training.pocket import save_pocket
from conceptbind.training.pocket_data import pocket_renderer, pocket_split

SEEDS = (0, 1, 2)
RANKS = (4, 16)
WEIGHT = 0.5
"""Of the regulariser, for each modality."""
UNTRAINED = "random:pocket"
LOCKED = "locked"
"""Texts that are trained against the locked pictures of pocket:broad, see locked.py."""

CHOSEN = (
    "part",
    "five_way",
    "five_way_low",
    "five_way_high",
    "five_way_ties",
    "five_way_n",
    "recombined",
    "others",
)
"""Columns of a five-way choice that the table keeps."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; give the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("texts", "compositions", "regulariser"))
    parser.add_argument("--preset", choices=PRESETS, default="laptop")
    parser.add_argument("--folder", type=Path, default=Path("build/repair"))
    parser.add_argument(
        "--models", nargs="+", help="specs of pocket CLIPs; all that are trained unless given"
    )
    parser.add_argument("--variant", choices=RECIPES, default="uniform", help="of data for the regulariser")
    parser.add_argument("--steps", type=int, default=800, help="of training with the regulariser")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of training with the regulariser")
    args = parser.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    copies = 1 if args.preset == "smoke" else 2

    def write(run: str, rows: Sequence[dict[str, Any]]) -> None:
        rows = [
            {"run": run} | {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}
            for row in rows
        ]
        write_merged("repair", rows, preset=args.preset, folder=args.folder, made_by=[provenance()], by="run")
        for row in rows:
            print(*row.values(), flush=True)

    if args.what == "regulariser":
        for seed in args.seeds:
            for weight in (0.0, WEIGHT):
                rows = regularised(args.variant, weight, args.steps, seed, args.folder, copies)
                write(f"regulariser {args.variant} {args.steps} steps, seed {seed}, weight {weight}", rows)
        return 0
    for asked in args.models or [*trained_pockets(), UNTRAINED, LOCKED]:
        spec = locked(args.folder) if asked == LOCKED else asked
        # what an untrained model has not seen is what the others of seed 0 have not
        split = pocket_split(RECIPES["narrow"], seed=0) if spec == UNTRAINED else seen_objects(spec)
        encoder = load(spec, device="cpu")
        make: Callable[[Encoder, ObjectSplit, int], list[dict[str, Any]]]
        make = repaired_texts if args.what == "texts" else compositions
        # a file of weights goes by its name
        model = f"pocket:{Path(spec).stem}" if spec.endswith(".safetensors") else spec
        write(f"{args.what} {model}", [{"model": model, **row} for row in make(encoder, split, copies)])
    return 0


def locked(folder: Path) -> str:
    """Train the texts of the locked model, or take the weights of that training from ``folder``; give its spec."""
    path = folder / "locked_0.safetensors"
    if not path.is_file():
        model, data = train_locked(steps=1200, seed=0)
        command = f"python tools/run_repair.py texts --models {LOCKED}"
        save_pocket(path, model, data, variant=LOCKED, steps=1200, command=command)
    return f"pocket:{path}"


def subject_of(encoder: Encoder, split: ObjectSplit, *, seed: int, copies: range) -> Subject:
    """Embed pictures and captions of all scenes of two objects that share no value, and of single objects."""
    # training of pocket CLIPs has pictures of even seeds
    renderer = pocket_renderer(seed=2 * seed + 1)
    scenes, singles = factorial_scenes(POCKET, 2, repeats="distinct values"), single_object_scenes(POCKET)

    def pictures(scenes: torch.Tensor, copies: range) -> EmbeddingSet:
        sets = [encode_pictures(encoder, POCKET, scenes, renderer, copy=c, cache=False) for c in copies]
        return replace(
            sets[0],
            embeddings=torch.cat([s.embeddings for s in sets]),
            scenes=torch.cat([s.scenes for s in sets]),
        )

    of_one = range(4 * copies.start, 4 * copies.stop)
    captions = [encode_captions(encoder, POCKET, s, cache=False) for s in (scenes, singles)]
    return Subject(pictures(scenes, copies), captions[0], pictures(singles, of_one), captions[1], split)


def repairs(
    pairs: Pairs,
) -> Iterator[tuple[str, dict[str, Any], Callable[[torch.Tensor], torch.Tensor] | None]]:
    """Make every repair: its name, its settings, and the function."""
    yield "none", {}, None
    for ridge in (0.01, 0.1, 1.0):
        yield "ridge", {"ridge": ridge}, ridge_map(pairs, ridge=ridge)
    yield "procrustes", {}, procrustes_map(pairs)
    few = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(0))[:2048]
    some = Pairs(pairs.images[few], pairs.texts[few], pairs.swapped[few])
    for ridge in (0.01, 0.1, 1.0):
        yield "margins", {"ridge": ridge, "margin": 0.1}, margin_map(some, ridge=ridge)
    for seed in SEEDS:
        yield "linear map", {"seed": seed}, train_linear_map(pairs, seed=seed)[0]
        for rank in RANKS:
            adapter = ProductAdapter(pairs.texts.shape[1], rank=rank, seed=seed)
            control = ReluAdapter.as_large_as(adapter, seed=seed)
            for name, module in (("product adapter", adapter), ("ReLU adapter", control)):
                train_adapter(module, pairs, seed=seed)
                yield name, {"seed": seed, "rank": rank, "n_parameters": n_parameters(module)}, module


def repaired_texts(encoder: Encoder, split: ObjectSplit, copies: int) -> list[dict[str, Any]]:
    """Train every repair on seen scenes and judge it on other pictures of them, and on held-out objects."""
    learn = subject_of(encoder, split, seed=0, copies=range(copies))
    new = subject_of(encoder, split, seed=0, copies=range(copies, 2 * copies))
    pairs = pairs_of(learn.images, learn.texts, split)
    return [
        {"repair": name, "settings": settings, "n_pairs": len(pairs), **row}
        for name, settings, repair in repairs(pairs)
        for row in judge(new, repair)
    ]


def compositions(encoder: Encoder, split: ObjectSplit, copies: int) -> list[dict[str, Any]]:
    """Train composition models on frozen pictures: one object is named among all, of two each is chosen among five."""
    learn = subject_of(encoder, split, seed=0, copies=range(copies))
    new = subject_of(encoder, split, seed=0, copies=range(copies, 2 * copies))
    rows = []
    for n_objects, train, test in (
        (1, learn.single_images, new.single_images),
        (2, learn.images, new.images),
    ):
        runs: list[tuple[str, int | None, EmbeddingSet]] = [("captions of the model", None, new.single_texts)]
        for kind in KINDS:
            for seed in SEEDS:
                how = CompositionTraining(n_steps=300, batch=256)
                words = train_composition(kind, train.embeddings, train.scenes, split, how, seed=seed)
                runs.append((kind, seed, replace(new.single_texts, embeddings=words.objects())))
        for kind, seed, queries in runs:
            named = {"composition": kind, "seed": seed, "n_objects": n_objects}
            if n_objects == 2:
                found = five_way(test, queries, split=split).as_dicts()
                rows += [named | {name: row[name] for name in CHOSEN} for row in found]
                continue
            index = split.space.object_index(test.scenes[:, 0])
            right = retrieve(test.embeddings, queries.embeddings, index).correct.double()
            for part, kept in (("seen", split.is_train[index]), ("held-out", ~split.is_train[index])):
                share = float(right[kept].mean())
                rows.append({**named, "part": part, "named": share, "named_n": int(kept.sum())})
    return rows


def regularised(
    variant: str, weight: float, steps: int, seed: int, folder: Path, copies: int
) -> list[dict[str, Any]]:
    """Train a pocket CLIP, or take the weights of the same training from ``folder``, and judge it."""
    path = folder / f"{variant}_{steps}_{seed}_{weight}.safetensors"
    if not path.is_file():

        def tell(step: int, loss: float) -> None:
            if step % 100 == 99:
                print(f"step {step + 1}, CLIP's loss {loss:.3f}", file=sys.stderr, flush=True)

        model, data, _ = train_regularised(variant, weight=weight, steps=steps, seed=seed, tell=tell)
        command = f"python tools/run_repair.py regulariser --variant {variant} --steps {steps} --seeds {seed}"
        save_pocket(path, model, data, variant=variant, steps=steps, command=command)
    spec = f"pocket:{path}"
    subject = subject_of(load(spec, device="cpu"), seen_objects(spec), seed=seed, copies=range(2 * copies))
    recipe = read_weights(path, tensors=False)[0]["recipe"]
    return [
        {
            "repair": "regulariser" if weight else "none",
            "settings": {
                "weight": weight,
                "variant": variant,
                "steps": steps,
                "seed": seed,
                "recipe": recipe,
            },
            **row,
        }
        for row in judge(subject)
    ]


if __name__ == "__main__":
    sys.exit(main())
