"""What the parts of the run on a GPU share: time, what the hardware attains, differences, a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import torch


def seconds(call: Callable[[], Any], device: torch.device, repeats: int = 5) -> float:
    """Give the median time of one call after a warm-up, by device events on a GPU."""
    call()
    times = []
    for _ in range(repeats):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        else:
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
    return median(times)


def attainable(device: torch.device, small: bool) -> dict[str, float]:
    """Measure bytes a second, and operations a second in float32 (no TF32) and bfloat16."""
    torch.backends.cuda.matmul.allow_tf32 = False
    n = 2**22 if small else 2**28
    a, b = torch.zeros(n, device=device), torch.zeros(n, device=device)
    side = 512 if small else 8192
    m = torch.randn(side, side, device=device)
    half = m.bfloat16()
    return {
        "bytes_per_second": 8 * n / seconds(lambda: b.copy_(a), device),
        "flops_per_second": 2 * side**3 / seconds(lambda: m @ m, device),
        "bfloat16_flops_per_second": 2 * side**3 / seconds(lambda: half @ half, device),
    }


def worst(a: torch.Tensor, b: torch.Tensor) -> float:
    """Give the largest difference, in units of the largest reference value."""
    a, b = a.double().cpu(), b.double().cpu()
    return float((a - b).abs().max() / b.abs().max())


def print_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows under names: text to the left, numbers to the right with three digits, None as a dash."""
    cells = [list(names), *([_shown(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        first, *rest = (
            cell.ljust(w) if k == 0 else cell.rjust(w)
            for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *rest]).rstrip(), flush=True)
    print(flush=True)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
