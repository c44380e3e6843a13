"""Run an encoder over many inputs: each text once, no more context than needed, batches that fit memory.

A causal text encoder that reads the end-of-text position never sees the tokens after it, so its context can
be cropped to the longest text of the batch: the result is the same, up to rounding of float32.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from tqdm.auto import tqdm

T = TypeVar("T")

CPU_BATCH = 64
GPU_FIRST_BATCH, GPU_LARGEST_BATCH = 64, 4096


def encode_batches(
    n_rows: int,
    prepare: Callable[[int, int], Any],
    forward: Callable[[Any], Tensor],
    *,
    device: torch.device,
    batch_size: int | None = None,
    progress: bool = False,
    what: str = "rows",
) -> Float[Tensor, "row dim"]:
    """Compute ``forward(prepare(low, high))`` over all rows, float32 on the CPU.

    ``prepare`` makes one batch on the CPU, in a background thread, while ``forward`` works on the one before.
    ``batch_size`` None: 64 rows on a CPU; on a GPU it starts at 64 and doubles while memory lasts. Whenever
    the GPU runs out of memory the batch is halved and tried again, down to one row.
    Raises ValueError for a batch size below 1, and whatever ``prepare`` or ``forward`` raises.
    """
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, or None for automatic; got {batch_size}")
    on_gpu = device.type == "cuda"
    sizes = _BatchSize(
        batch_size or (GPU_FIRST_BATCH if on_gpu else CPU_BATCH), may_grow=on_gpu and batch_size is None
    )

    def batches() -> Iterator[tuple[int, Any]]:
        low = 0
        while low < n_rows:
            high = min(low + sizes.now, n_rows)
            yield low, prepare(low, high)
            low = high

    out: Tensor | None = None
    with tqdm(total=n_rows, disable=not progress, unit=f" {what}", desc="encoding") as bar:
        for low, batch in prefetch(batches()):
            part = _within_memory(forward, batch, device, sizes)
            if out is None:
                out = torch.empty(n_rows, part.shape[1])
            out[low : low + len(part)] = part
            bar.update(len(part))
    assert out is not None, "callers refuse empty inputs"
    return out


def prefetch(items: Iterator[T], *, depth: int = 2) -> Iterator[T]:
    """Yield the items, computing up to ``depth`` of them ahead in a thread.

    An exception in ``items`` is raised here; when the consumer stops early the thread ends.
    """
    queue: Queue[tuple[str, Any]] = Queue(depth)
    stop = threading.Event()

    def put(kind: str, value: Any) -> None:
        while not stop.is_set():
            with contextlib.suppress(Full):
                return queue.put((kind, value), timeout=0.1)

    def work() -> None:
        try:
            for item in items:
                put("item", item)
                if stop.is_set():
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    thread = threading.Thread(target=work, name="conceptbind-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            kind, value = queue.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value
    finally:
        stop.set()
        with contextlib.suppress(Empty):
            while True:
                queue.get_nowait()
        thread.join()


def encode_unique(
    texts: Sequence[str], encode: Callable[[list[str]], Float[Tensor, "unique dim"]]
) -> Float[Tensor, "text dim"]:
    """Encode each different text once and give every text its row."""
    position = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    rows = encode(list(position))
    if len(position) == len(texts):
        return rows
    return rows[torch.tensor([position[text] for text in texts])]


@dataclass(frozen=True)
class CausalTower:
    """Hold the parts of a causal text encoder that reads one end-of-text position.

    ``tower(tokens)`` is the forward pass of open_clip's CLIP.encode_text and TextTransformer.forward, for a
    context of any length up to the model's own.
    """

    module: nn.Module
    pool_type: str
    eos_id: int | None

    def read_position(self, tokens: Int[Tensor, "text context"]) -> Int[Tensor, "text"]:
        """Find the position whose output is the embedding: the end-of-text token."""
        if self.pool_type == "argmax":
            return tokens.argmax(-1)
        return (tokens == self.eos_id).int().argmax(-1)

    def __call__(self, tokens: Int[Tensor, "text context"]) -> Float[Tensor, "text dim"]:
        m, n_tokens = self.module, tokens.shape[1]
        dtype = m.transformer.get_cast_dtype()
        x = m.token_embedding(tokens).to(dtype) + m.positional_embedding[:n_tokens].to(dtype)
        x = m.ln_final(m.transformer(x, attn_mask=m.attn_mask[:n_tokens, :n_tokens]))
        x = x[torch.arange(len(x), device=x.device), self.read_position(tokens)]
        projection = m.text_projection
        if projection is None:
            return x
        return projection(x) if isinstance(projection, nn.Linear) else x @ projection


def causal_tower(model: nn.Module) -> CausalTower | None:
    """Give the text encoder of an open_clip model in a form whose context may be cropped, or None.

    None, so that the full context is used, wherever a later token could change the result: bidirectional
    attention, pooling over or at the last position (SigLIP), an appended class token (CoCa), Hugging Face
    text encoders, and classes we do not know.
    """
    from open_clip.model import CLIP, CustomTextCLIP
    from open_clip.transformer import TextTransformer

    if type(model) is CLIP:
        tower = CausalTower(model, model.text_pool_type, model.text_eos_id)
    elif type(model) is CustomTextCLIP and type(model.text) is TextTransformer:
        text = model.text
        if text.cls_emb is not None or text.use_pad_mask or text.output_tokens:
            return None
        tower = CausalTower(text, text.pool_type, text.eos_id)
    else:
        return None
    mask = tower.module.attn_mask
    if tower.pool_type not in ("argmax", "eos") or mask is None:
        return None
    causal = torch.full_like(mask, float("-inf")).triu(1)
    return tower if torch.equal(mask, causal) else None


def encode_tokens_cropped(
    tower: CausalTower,
    tokens: Int[Tensor, "text context"],
    *,
    device: torch.device,
    batch_size: int | None = None,
    progress: bool = False,
) -> Float[Tensor, "text dim"]:
    """Encode token rows, the longest first, each batch cropped to its longest text.

    Agrees with the full context within 1e-4 (float32). Rows come back in the order given.
    """
    length = tower.read_position(tokens) + 1
    order = length.argsort(descending=True, stable=True)

    def prepare(low: int, high: int) -> Tensor:
        rows = order[low:high]
        return tokens[rows, : int(length[rows].max())]

    ordered = encode_batches(
        len(tokens), prepare, tower, device=device, batch_size=batch_size, progress=progress, what="texts"
    )
    out = torch.empty_like(ordered)
    out[order] = ordered
    return out


class _BatchSize:
    def __init__(self, first: int, *, may_grow: bool) -> None:
        self.now, self._may_grow = first, may_grow

    def fitted(self, size: int) -> None:
        if self._may_grow and size >= self.now:
            self.now = min(2 * size, GPU_LARGEST_BATCH)

    def failed(self, size: int) -> None:
        self.now, self._may_grow = size // 2, False


def _within_memory(
    forward: Callable[[Any], Tensor], batch: Any, device: torch.device, sizes: _BatchSize
) -> Float[Tensor, "row dim"]:
    parts: list[Tensor] = []
    done = 0
    while done < len(batch):
        piece = batch[done : done + sizes.now]
        part = _attempt(forward, piece, device)
        if part is None:
            sizes.failed(len(piece))
            if device.type == "cuda":
                torch.cuda.empty_cache()
            continue
        sizes.fitted(len(piece))
        parts.append(part)
        done += len(piece)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attempt(
    forward: Callable[[Any], Tensor], piece: Any, device: torch.device
) -> Float[Tensor, "row dim"] | None:
    """Run one piece; None when memory ran out and the piece can still be split."""
    try:
        return forward(piece.to(device) if isinstance(piece, Tensor) else piece).float().cpu()
    except torch.cuda.OutOfMemoryError:
        if len(piece) == 1:
            raise
        return None
