"""What an adapter of texts costs at inference: its time over that of the text encoder it sits behind.

The encoder is an untrained ViT-B/32 of CLIP (times do not depend on the weights), from captions of two objects to
embeddings with its context cropped; the adapters get its embeddings. Both on the same threads, in turn; the fastest run
of each counts.

    OMP_NUM_THREADS=1 python benchmarks/repair_latency.py [--threads 1] [--batch 1 64]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from common import write_report

from conceptbind.encoders import load
from conceptbind.provenance import provenance
from conceptbind.repair.adapter import ProductAdapter, ReluAdapter, n_parameters
from conceptbind.repair.linear_map import LinearMap
from conceptbind.scenes import captions, sample_scenes
from conceptbind.spaces import CAPTIONS_20


def main() -> None:
    """Run the comparison and write results/repair_latency.json beside this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64], help="captions encoded at once")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--encoder", default="random:ViT-B-32")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    encoder = load(args.encoder, device=args.device)
    rows = []
    for batch in args.batch:
        texts = captions(CAPTIONS_20, sample_scenes(CAPTIONS_20, 2, batch, seed=0))
        embeddings = encoder.encode_texts(texts).to(args.device)
        product = ProductAdapter(embeddings.shape[1])
        repairs = {
            "linear map": LinearMap(embeddings.shape[1]),
            "product adapter": product,
            "ReLU adapter": ReluAdapter.as_large_as(product),
        }
        run: dict[str, Callable[[], object]] = {"encoder": lambda texts=texts: encoder.encode_texts(texts)}
        for name, repair in repairs.items():
            repair.to(args.device)
            run[name] = lambda repair=repair, embeddings=embeddings: repair(embeddings)
        seconds = dict.fromkeys(run, float("inf"))
        with torch.inference_mode():
            for _ in range(args.repeats):
                for name, function in run.items():
                    seconds[name] = min(seconds[name], _seconds(function, args.device))
        rows += [
            {
                "what": name,
                "batch": batch,
                "n_parameters": n_parameters(repair),
                "seconds": seconds[name],
                "encoder_seconds": seconds["encoder"],
                "ratio": seconds[name] / seconds["encoder"],
            }
            for name, repair in repairs.items()
        ]
    settings = {"encoder": args.encoder, "threads": args.threads, "repeats": args.repeats}
    write_report("repair_latency", {**settings, "rows": rows, "provenance": provenance(device=args.device)})


def _seconds(function: Callable[[], object], device: str) -> float:
    if device != "cpu":
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
