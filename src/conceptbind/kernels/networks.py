"""Small networks from concept values to embeddings, stacked along a leading ``fit`` axis.

The input is a scene's values in one-hot code, all (slot, concept) side by side; a linear layer on it is a table of
value vectors whose entries are added, the same functions as a linear layer on concatenated concept embeddings.

===============  ==========================================================================================
kind             function; X one-hot, everything with weights of its own for each fit
===============  ==========================================================================================
mlp              h = relu(X E + b), h = relu(h W_l + b_l) for l = 2 ... depth, z = h C + c
product          h = elementwise product over (slot, concept) of value vectors, z = h C + X A + c: the global
                 product
object products  h_i = elementwise product over the concepts of slot i, z = [h_1 ... h_m] C + X A + c
both products    z = [h h_1 ... h_m] C + X A + c, with value vectors of their own for h and for the h_i
decoder          tokens, one for each (slot, concept), through pre-norm self-attention blocks; mean of tokens -> C
===============  ==========================================================================================

Readouts start at zero, so that every fit starts at the training mean, and its gradient never leaves the span of the
centred training targets: targets may be rotated onto that span without changing a step, as long as the optimiser treats
all outputs of a readout's row alike (see ``readouts`` in kernels/training).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

Kind = Literal["mlp", "product", "object products", "both products", "decoder"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PRODUCTS: tuple[Kind, ...] = ("product", "object products", "both products")
Parameters = dict[str, Tensor]

READOUTS = ("C", "c", "A")
"""Weights whose last axis is the output."""

HEAD_DIM = 32
"""Width of an attention head."""


@dataclass(frozen=True)
class Architecture:
    """Describe a network. Raises ValueError for an unknown kind, or a size below 1."""

    kind: Kind
    width: int
    depth: int = 1
    """Hidden layers of an mlp, blocks of a decoder; a product has one hidden layer."""

    def n_hidden(self, n_slots: int) -> int:
        """Count what the readout reads: ``width``, or ``width`` numbers for each product."""
        n_products = {"object products": n_slots, "both products": n_slots + 1}
        return self.width * n_products.get(self.kind, 1)

    @property
    def factor_width(self) -> int:
        """The length of a value's vector of factors."""
        return self.width * (2 if self.kind == "both products" else 1)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}; got {self.kind!r}")
        if self.width < 1 or self.depth < 1:
            raise ValueError(f"width and depth are at least 1; got {self.width} and {self.depth}")
        if self.kind in PRODUCTS and self.depth != 1:
            raise ValueError(f"a product has one hidden layer; got depth {self.depth}")
        if self.kind == "decoder" and self.width % HEAD_DIM:
            raise ValueError(f"the width of a decoder is a multiple of {HEAD_DIM}; got {self.width}")


def one_hot(scenes: Int[Tensor, "scene slot concept"], sizes: Sequence[int]) -> Float[Tensor, "scene code"]:
    """Write the values of scenes in one-hot code: slot by slot, concept by concept."""
    offsets = torch.tensor([sum(sizes[:k]) for k in range(len(sizes))], device=scenes.device)
    n_slots, n_codes = scenes.shape[1], sum(sizes)
    at = scenes + offsets + n_codes * torch.arange(n_slots, device=scenes.device)[:, None]
    code = torch.zeros(len(scenes), n_slots * n_codes, device=scenes.device)
    return code.scatter_(1, at.flatten(1), 1.0)


def initialise(
    architecture: Architecture,
    n_slots: int,
    sizes: Sequence[int],
    dim: int,
    *,
    seeds: Sequence[int],
) -> Parameters:
    """Draw every fit's weights from its seed: He's scale for rectifiers, 1/sqrt(fan-in) elsewhere, readouts zero."""
    n_factors, n_codes, width = n_slots * len(sizes), n_slots * sum(sizes), architecture.width
    n_fits, generators = len(seeds), [torch.Generator().manual_seed(s) for s in seeds]

    def normal(*shape: int, scale: float) -> Tensor:
        return scale * torch.stack([torch.randn(shape, generator=g) for g in generators])

    found = {"C": torch.zeros(n_fits, architecture.n_hidden(n_slots), dim), "c": torch.zeros(n_fits, 1, dim)}
    if architecture.kind == "mlp":
        found |= {
            "E": normal(n_codes, width, scale=math.sqrt(2 / n_factors)),
            "b": normal(1, width, scale=0.1),
        }
        for layer in range(1, architecture.depth):
            found[f"W{layer}"] = normal(width, width, scale=math.sqrt(2 / width))
            found[f"b{layer}"] = torch.zeros(n_fits, 1, width)
    elif architecture.kind in PRODUCTS:
        # Of size one, so that neither the product of many factors nor its gradient vanishes.
        shape = (n_codes, architecture.factor_width)
        sign = torch.stack([torch.randint(2, shape, generator=g) * 2.0 - 1 for g in generators])
        found |= {"V": sign + normal(*shape, scale=0.3), "A": torch.zeros(n_fits, n_codes, dim)}
    else:
        found |= {"E": normal(n_codes, width, scale=1.0), "P": normal(n_factors, width, scale=0.5)}
        for layer in range(architecture.depth):
            for name in ("Q", "K", "U"):
                found[f"{name}{layer}"] = normal(width, width, scale=1 / math.sqrt(width))
            found[f"O{layer}"] = normal(width, width, scale=1 / math.sqrt(width))
            found[f"F{layer}"] = normal(width, 4 * width, scale=math.sqrt(2 / width))
            found[f"f{layer}"] = torch.zeros(n_fits, 1, 4 * width)
            found[f"G{layer}"] = normal(4 * width, width, scale=1 / math.sqrt(4 * width))
    return found


def n_parameters(architecture: Architecture, n_slots: int, sizes: Sequence[int], dim: int) -> int:
    """Count the numbers of one network with an output of ``dim``."""
    n_factors, n_codes, w = n_slots * len(sizes), n_slots * sum(sizes), architecture.width
    readout = architecture.n_hidden(n_slots) * dim + dim
    if architecture.kind == "mlp":
        return n_codes * w + w + (architecture.depth - 1) * (w * w + w) + readout
    if architecture.kind in PRODUCTS:
        return n_codes * architecture.factor_width + n_codes * dim + readout
    return (n_codes + n_factors) * w + architecture.depth * (12 * w * w + 4 * w) + readout


def apply(
    architecture: Architecture,
    parameters: Mapping[str, Tensor],
    code: Float[Tensor, "*fit scene code"],
    sizes: Sequence[int],
) -> Float[Tensor, "fit scene dim"]:
    """Run every fit on its scenes, or on scenes that all fits share."""
    hidden, direct = features(architecture, parameters, code, sizes)
    out = torch.baddbmm(parameters["c"], hidden, parameters["C"])
    return out if direct is None else out + direct


def features(
    architecture: Architecture,
    parameters: Mapping[str, Tensor],
    code: Float[Tensor, "*fit scene code"],
    sizes: Sequence[int],
) -> tuple[Float[Tensor, "fit scene width"], Float[Tensor, "fit scene dim"] | None]:
    """Give what the readout reads, and what is added to it."""
    n_fits = len(parameters["C"])
    code = code.expand(n_fits, -1, -1) if code.ndim == 2 else code
    n_codes = sum(sizes)
    if architecture.kind == "mlp":
        hidden = torch.relu(torch.baddbmm(parameters["b"], code, parameters["E"]))
        for layer in range(1, architecture.depth):
            hidden = torch.relu(torch.baddbmm(parameters[f"b{layer}"], hidden, parameters[f"W{layer}"]))
        return hidden, None
    groups = [
        slice(start + sum(sizes[:k]), start + sum(sizes[: k + 1]))
        for start in range(0, code.shape[2], n_codes)
        for k in range(len(sizes))
    ]
    if architecture.kind in PRODUCTS:
        factors = [code[..., group] @ parameters["V"][:, group] for group in groups]
        return _products(architecture, factors, len(sizes)), code @ parameters["A"]
    tokens = torch.stack([code[..., g] @ parameters["E"][:, g] for g in groups], dim=2)
    tokens = tokens + parameters["P"].unsqueeze(1)
    for layer in range(architecture.depth):
        tokens = _block(tokens, {name: parameters[f"{name}{layer}"] for name in "QKUOFfG"})
    return _normalised(tokens.mean(2)), None


def _products(
    architecture: Architecture, factors: Sequence[Float[Tensor, "fit scene factor"]], n_concepts: int
) -> Float[Tensor, "fit scene hidden"]:
    """Multiply the factors of all values of a scene, of each object, or both. ``factors``: slot by slot."""
    width, found = architecture.width, []
    if architecture.kind != "object products":
        found.append(_product([f[..., :width] for f in factors]))
    if architecture.kind != "product":
        own = [f[..., -width:] for f in factors]
        found += [_product(own[i : i + n_concepts]) for i in range(0, len(own), n_concepts)]
    return torch.cat(found, -1)


def _product(factors: Sequence[Float[Tensor, "fit scene width"]]) -> Float[Tensor, "fit scene width"]:
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    return product


def _block(
    tokens: Float[Tensor, "fit scene token width"], p: Mapping[str, Tensor]
) -> Float[Tensor, "fit scene token width"]:
    n_fits, n_scenes, n_tokens, width = tokens.shape

    def heads(name: str, x: Tensor) -> Tensor:
        split = (x.flatten(1, 2) @ p[name]).view(n_fits * n_scenes, n_tokens, width // HEAD_DIM, HEAD_DIM)
        return split.transpose(1, 2)

    x = _normalised(tokens)
    mixed = torch.nn.functional.scaled_dot_product_attention(heads("Q", x), heads("K", x), heads("U", x))
    mixed = mixed.transpose(1, 2).reshape(n_fits, n_scenes * n_tokens, width)
    tokens = tokens + (mixed @ p["O"]).view_as(tokens)
    x = _normalised(tokens).flatten(1, 2)
    hidden = torch.nn.functional.gelu(torch.baddbmm(p["f"], x, p["F"]))
    return tokens + (hidden @ p["G"]).view_as(tokens)


def _normalised(x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
    return torch.nn.functional.layer_norm(x, x.shape[-1:])
