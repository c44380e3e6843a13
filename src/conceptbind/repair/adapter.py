"""An adapter that multiplies: concept parts of every slot are read off a text embedding, multiplied, and added to it.

With t of length 1, D its dimensions, and parts p_ik of slot i and concept k, R numbers each:

    p_ik = A_ik (sqrt(D) t) + b_ik            read by a linear layer
    f(t) = t + sum_i (p_i1 * ... * p_iK) C    products over the concepts of an object, summed over objects

C is zero at the start, so the adapter starts as the identity. The output is scaled back to the length of the input.
R decides whether new combinations are repaired, too: with as many products as there are objects, each object gets its
own, and what is learned of one says nothing of another.
:class:`ReluAdapter` is the control: a hidden layer of ReLUs with as many parameters in place of the products.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from conceptbind.repair.swaps import Pairs, SwapTraining, train_against_swaps


class ProductAdapter(nn.Module):
    """Add to a text embedding the products of parts that are read off it; the identity at the start.

    ``dim``: of texts and output. ``rank``: R, products a slot. ``seed`` draws the parts' weights.
    Raises ValueError when a size is below 1.
    """

    def __init__(
        self, dim: int, *, n_slots: int = 2, n_concepts: int = 2, rank: int = 16, seed: int = 0
    ) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {
            "dim": dim,
            "n_slots": n_slots,
            "n_concepts": n_concepts,
            "rank": rank,
            "seed": seed,
        }
        _at_least_one({name: n for name, n in self.settings.items() if name != "seed"})
        self.parts = _linear(dim, n_slots * n_concepts * rank, seed)
        self.head = nn.Linear(rank, dim, bias=False)
        nn.init.zeros_(self.head.weight)

    def forward(self, texts: Float[Tensor, "text dim"]) -> Float[Tensor, "text dim"]:
        """Adapt text embeddings, (text, dim)."""
        length = texts.norm(dim=1, keepdim=True)
        parts = self.parts(texts * (math.sqrt(texts.shape[1]) / length))
        shape = [self.settings[name] for name in ("n_slots", "n_concepts", "rank")]
        products = parts.unflatten(1, shape).prod(2).sum(1)
        return texts + length * self.head(products)


class ReluAdapter(nn.Module):
    """Add to a text embedding what a hidden layer of ReLUs makes of it: the control of :class:`ProductAdapter`.

    Raises ValueError when a size is below 1.
    """

    def __init__(self, dim: int, *, width: int = 64, seed: int = 0) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {"dim": dim, "width": width, "seed": seed}
        _at_least_one({"dim": dim, "width": width})
        self.hidden = _linear(dim, width, seed)
        self.head = nn.Linear(width, dim, bias=False)
        nn.init.zeros_(self.head.weight)

    @classmethod
    def as_large_as(cls, adapter: ProductAdapter, *, seed: int = 0) -> ReluAdapter:
        """Make the control with as many parameters as ``adapter``, to half a hidden unit."""
        dim = adapter.settings["dim"]
        return cls(dim, width=max(1, round(n_parameters(adapter) / (2 * dim + 1))), seed=seed)

    def forward(self, texts: Float[Tensor, "text dim"]) -> Float[Tensor, "text dim"]:
        """Adapt text embeddings, (text, dim)."""
        length = texts.norm(dim=1, keepdim=True)
        hidden = torch.relu(self.hidden(texts * (math.sqrt(texts.shape[1]) / length)))
        return texts + length * self.head(hidden)


def train_adapter(
    adapter: nn.Module, pairs: Pairs, how: SwapTraining | None = None, *, seed: int
) -> dict[str, Any]:
    """Train an adapter in place against swapped captions; give its learned ``scale`` and the epochs' ``losses``.

    Raises ValueError when images or texts have other dimensions than the adapter.
    """
    dim = adapter.settings["dim"]
    found = (pairs.images.shape[1], pairs.texts.shape[1])
    if found != (dim, dim):
        raise ValueError(
            f"the adapter has {dim} dimensions, images {found[0]} and texts {found[1]}: make it with dim={found[1]}, "
            "for embeddings of one model with one space for both"
        )
    scale, losses = train_against_swaps(adapter, pairs, how, seed=seed)
    return {"scale": scale, "losses": losses}


def n_parameters(module: nn.Module) -> int:
    """Count the numbers that training may change."""
    return sum(p.numel() for p in module.parameters())


def _linear(fan_in: int, fan_out: int, seed: int) -> nn.Linear:
    """Give a layer whose outputs have variance 1 where the inputs' coordinates have, drawn from ``seed``."""
    layer = nn.utils.skip_init(nn.Linear, fan_in, fan_out)
    drawn = torch.randn(fan_out, fan_in, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        layer.weight.copy_(drawn / math.sqrt(fan_in))
        layer.bias.zero_()
    return layer


def _at_least_one(sizes: dict[str, int]) -> None:
    small = {name: n for name, n in sizes.items() if n < 1}
    if small:
        raise ValueError(f"sizes of an adapter are at least 1; got {small}")
