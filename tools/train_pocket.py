"""Train the pocket CLIPs, write their weights into the package and what they learned into results/pocket/.

    python tools/train_pocket.py                          # all variants, the seeds that come with the package
    python tools/train_pocket.py narrow broad --seeds 2   # some of them
    python tools/train_pocket.py --evaluate               # measure the weights that are there, train nothing

A variant takes one core 5 to 12 minutes. What is unfinished is kept in build/pocket/; the same command goes on there,
to the same weights.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from common import ROOT, write_atomically

from conceptbind.encoders import load
from conceptbind.encoders.pocket import FOLDER, VARIANTS, read_weights, seen_objects
from conceptbind.provenance import file_digest, provenance
from conceptbind.training.pocket import save_pocket, train_pocket
from conceptbind.training.pocket_data import RECIPES, PocketData
from conceptbind.training.pocket_evaluation import evaluate_pocket

SEEDS = {"narrow": (0, 1), "broad": (0, 1), "ordered": (0,)}
"""The seeds of the weights that come with the package."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; give the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "variants", nargs="*", metavar="variant", help=f"{', '.join(VARIANTS)}; all unless named"
    )
    parser.add_argument("--seeds", type=int, nargs="+", help="other seeds than those of the package")
    parser.add_argument("--steps", type=int, help="other than the recipe says, to try something out")
    parser.add_argument("--weights", type=Path, default=FOLDER, help="where the weights go")
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "pocket", help="where the logs go")
    parser.add_argument("--checkpoints", type=Path, default=Path("build/pocket"))
    parser.add_argument("--copies", type=int, default=8, help="pictures of every scene to evaluate on")
    parser.add_argument("--evaluate", action="store_true", help="train nothing, measure the weights anew")
    args = parser.parse_args(argv)
    if unknown := sorted(set(args.variants) - set(VARIANTS)):
        parser.error(f"there are no variants {', '.join(unknown)}: name some of {', '.join(VARIANTS)}")
    if args.steps is not None and args.steps < 1:
        parser.error(f"--steps must be at least 1; got {args.steps}")
    args.results.mkdir(parents=True, exist_ok=True)
    # seed after seed, so that there is one of each variant early
    asked = [(seed, v) for v in args.variants or VARIANTS for seed in args.seeds or SEEDS[v]]
    for seed, variant in sorted(asked, key=lambda job: job[0]):
        weights = args.weights / f"pocket_{variant}_{seed}.safetensors"
        if not args.evaluate:
            _train(variant, seed, weights, args)
        elif weights.is_file():
            _evaluate(variant, seed, weights, args)
    return 0


def _train(variant: str, seed: int, weights: Path, args: argparse.Namespace) -> None:
    recipe = RECIPES[variant] if args.steps is None else replace(RECIPES[variant], steps=args.steps)
    _say(f"{variant}, seed {seed}: drawing the pictures")
    data = PocketData(recipe, seed=seed)
    began = time.monotonic()

    def tell(step: int, loss: float) -> None:
        if (step + 1) % 25 == 0:
            took = time.monotonic() - began
            _say(f"{variant}, seed {seed}: step {step + 1} of {recipe.steps}, loss {loss:.3f}, {took:.0f} s")

    checkpoint = args.checkpoints / f"{variant}_{seed}_{recipe.steps}.safetensors"
    model, losses = train_pocket(data, checkpoint=checkpoint, tell=tell)
    command = f"python tools/train_pocket.py {variant} --seeds {seed}" + (
        f" --steps {args.steps}" if args.steps is not None else ""
    )
    save_pocket(weights, model, data, variant=variant, steps=len(losses), command=command)
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["step", "loss"])
    writer.writerows([step, f"{loss:.5f}"] for step, loss in enumerate(losses, start=1))
    write_atomically(args.results / f"{weights.stem}_loss.csv", table.getvalue())
    _evaluate(variant, seed, weights, args)
    checkpoint.unlink(missing_ok=True)


def _evaluate(variant: str, seed: int, weights: Path, args: argparse.Namespace) -> None:
    encoder = load(f"pocket:{weights}", device="cpu")
    found = evaluate_pocket(encoder, seen_objects(f"pocket:{weights}"), seed=seed, copies=args.copies)
    described, _ = read_weights(weights, tensors=False)
    training = {k: described[k] for k in ("command", "steps", "seed", "seen_objects", "recipe", "optimiser")}
    log = {
        "variant": variant,
        "weights": weights.name,
        "weights_sha256": file_digest(weights),
        "training": training,
        "trained_with": described["provenance"],
        "evaluated_with": provenance(),
        "evaluation": found,
    }
    write_atomically(args.results / f"{weights.stem}.json", json.dumps(log, indent=1) + "\n")
    for row in found["zero-shot"]:
        _say(f"  zero-shot {row['asked']}, {row['part']}: {row['accuracy']}")
    for row in found["swap"]:
        _say(f"  swap {row['direction']}, {row['order']}, {row['part']}: {row['accuracy']} of {row['n']}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
