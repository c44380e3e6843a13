"""Encode captions with an untrained ViT-B/32 text encoder: ours against the plain loop over the full context.

The plain loop is what most scripts do: tokenise to 77 tokens, encode in the given order, batch after batch.
Both run on the same threads with the same batch size; prints the ratio and the largest difference.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from common import write_report

from conceptbind.encoders import load
from conceptbind.provenance import provenance
from conceptbind.scenes import captions, sample_scenes
from conceptbind.spaces import CAPTIONS_20


def main() -> None:
    """Run the comparison and write results/text_encoding.json beside this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--captions", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3, help="in turn; the fastest counts")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    encoder = load("random:ViT-B-32", device=args.device, seed=args.seed)
    scenes = sample_scenes(CAPTIONS_20, 2, args.captions, seed=args.seed)
    texts = captions(CAPTIONS_20, scenes)
    tokenizer = encoder.tokenise

    def plain() -> torch.Tensor:
        with torch.no_grad():
            parts = [
                encoder.model.encode_text(tokenizer(texts[i : i + args.batch_size]).to(args.device)).cpu()
                for i in range(0, len(texts), args.batch_size)
            ]
        return torch.cat(parts)

    def ours() -> torch.Tensor:
        return encoder.encode_texts(texts, batch_size=args.batch_size)

    ours()  # warm the tokenizer's word cache and the allocator
    # In turn, so that a busy machine slows both; the fastest run of each counts.
    runs = [(_timed(plain), _timed(ours)) for _ in range(args.repeats)]
    (reference, _), (result, _) = runs[0]
    plain_seconds, our_seconds = (min(run[side][1] for run in runs) for side in (0, 1))
    report = {
        "captions": len(texts),
        "batch_size": args.batch_size,
        "repeats": args.repeats,
        "plain_seconds": plain_seconds,
        "our_seconds": our_seconds,
        "ratio": plain_seconds / our_seconds,
        "max_abs_difference": float((result - reference).abs().max()),
        "max_abs_embedding": float(reference.abs().max()),
        "provenance": provenance(device=args.device),
    }
    print(f"{'':24}{'seconds':>10}{'captions/s':>12}")
    for name, seconds in (("plain, 77 tokens", plain_seconds), ("ours, cropped, sorted", our_seconds)):
        print(f"{name:24}{seconds:10.2f}{len(texts) / seconds:12.0f}")
    print(f"{'ratio':24}{report['ratio']:9.1f}x")
    print(f"{'max abs difference':24}{report['max_abs_difference']:10.1e}")
    write_report("text_encoding", report)


def _timed(function: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, float]:
    start = time.perf_counter()
    value = function()
    return value, time.perf_counter() - start


if __name__ == "__main__":
    main()
