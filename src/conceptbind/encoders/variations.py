"""Untrained CLIP text encoders with one thing changed, to find what the geometry of a random network depends on."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from conceptbind.encoders.base import Encoder, EncoderError
from conceptbind.encoders.clip import ClipEncoder

TEXT = ("transformer.", "token_embedding", "positional_embedding", "ln_final", "text_projection")
"""How the names of a text encoder's weights begin."""

KINDS = {
    "matrix": r"(in_proj_weight|out_proj\.weight|c_fc\.weight|c_proj\.weight)$",
    "gain": r"ln_\w+\.weight$",
    "norm bias": r"ln_\w+\.bias$",
    "linear bias": r"(in_proj_bias|out_proj\.bias|c_fc\.bias|c_proj\.bias)$",
}

BERT_NAMES = {
    r"ln_\w+\.weight$": (r"LayerNorm\.weight$",),
    r"ln_\w+\.bias$": (r"LayerNorm\.bias$",),
    r"in_proj_bias$": (r"query\.bias$", r"key\.bias$", r"value\.bias$"),
    r"out_proj\.bias$": (r"attention\.output\.dense\.bias$",),
    r"c_fc\.bias$": (r"intermediate\.dense\.bias$",),
    r"c_proj\.bias$": (r"layer\.\d+\.output\.dense\.bias$",),
}
"""Which gains and biases of a BERT stand for those of a CLIP: for queries, keys and values a third each."""

SALT = 0x7A21
"""Added to the seed of a variation, so that its draws are not those of the initialisation."""


@dataclass(frozen=True)
class Variation:
    """Say what to change in a text encoder; the defaults change nothing. Applied from top to bottom."""

    layers: int | None = None
    """Keep the first so many blocks."""
    weight_scale: float = 1.0
    """Factor on every matrix of the blocks: attention and MLP."""
    query_key_scale: float = 1.0
    """Factor on the matrices of queries and keys: attention logits grow with its square."""
    token_scale: float = 1.0
    """Factor on the token embeddings."""
    position_scale: float = 1.0
    """Factor on the position embeddings."""
    gains_of: str | None = None
    """Spec of a trained encoder that lends its LayerNorm gains: a CLIP with the same text encoder lends each to its
    namesake; of a sentence encoder made of a BERT they are drawn, with replacement, from all of its gains."""
    biases_of: str | None = None
    """The same for all biases, each kind of layer from its own kind."""
    gain_scale: float = 1.0
    """Factor on the gains of all LayerNorms."""
    gain_spread: float = 0.0
    """Factor exp(gain_spread · N(0, 1)) on every gain, drawn for each coordinate."""
    norm_bias_std: float = 0.0
    """Where above 0, LayerNorm biases are drawn from N(0, norm_bias_std²)."""
    linear_bias_std: float = 0.0
    """Where above 0, the biases of attention and MLP are drawn from N(0, linear_bias_std²)."""
    half: bool = False
    """Round the weights to float16 and compute in it, embeddings included."""

    def changed(self) -> dict[str, float | int | str | bool]:
        """List the settings that are not the default."""
        plain = asdict(Variation())
        return {k: v for k, v in asdict(self).items() if v != plain[k]}


def vary_untrained(encoder: Encoder, variation: Variation, *, seed: int) -> ClipEncoder:
    """Copy an untrained CLIP with its text encoder changed; the copy encodes texts only.

    What changed is in ``provenance["variation"]``, so that its embeddings are cached apart. ``seed`` draws gains and
    biases: the same normal numbers whatever their spread. The encoder given stays as it is.
    Raises EncoderError for an encoder that is trained or is no CLIP with a causal text encoder, a number of layers it
    does not have, or a lender that does not fit; WeightsNotFound when the lender's weights are missing.
    """
    if (
        not isinstance(encoder, ClipEncoder)
        or encoder.provenance["pretrained"]
        or not encoder.has_causal_texts
    ):
        raise EncoderError(
            f"{encoder.name} cannot be varied: give an untrained CLIP with a causal text encoder, such as "
            "load('random:ViT-B-32')"
        )
    visual = encoder.model.visual
    model = copy.deepcopy(encoder.model, {id(visual): visual})
    text = model if hasattr(model, "transformer") else model.text
    with torch.no_grad():
        _change(text, variation, seed)
    return encoder.with_texts_of(model, variation=variation.changed(), variation_seed=seed)


def _change(text: nn.Module, variation: Variation, seed: int) -> None:
    v = variation
    if v.layers is not None:
        blocks = text.transformer.resblocks
        if not 1 <= v.layers <= len(blocks):
            raise EncoderError(
                f"layers must be 1 to {len(blocks)}, as many as the text encoder has; got {v.layers}"
            )
        text.transformer.resblocks = blocks[: v.layers].eval()  # a slice is a new module, in training mode
    named = {n: p for n, p in text.named_parameters() if n.startswith(TEXT)}
    for name in _of_kind(named, "matrix"):
        named[name].mul_(v.weight_scale)
        if name.endswith("in_proj_weight"):
            n_rows = len(named[name])
            named[name][: 2 * n_rows // 3].mul_(v.query_key_scale)
    text.token_embedding.weight.mul_(v.token_scale)
    text.positional_embedding.mul_(v.position_scale)
    generator = torch.Generator().manual_seed(seed + SALT)
    for lender, kinds in ((v.gains_of, ("gain",)), (v.biases_of, ("norm bias", "linear bias"))):
        if lender is not None:
            names = [name for kind in kinds for name in _of_kind(named, kind)]
            _borrow(named, names, lender, generator)
    for kind in ("gain", "norm bias", "linear bias"):
        # One generator for each kind: what is drawn for one does not depend on whether another is drawn.
        drawn = torch.Generator().manual_seed(seed + SALT + 1 + list(KINDS).index(kind))
        std = {"gain": v.gain_spread, "norm bias": v.norm_bias_std, "linear bias": v.linear_bias_std}[kind]
        for name in _of_kind(named, kind):
            normal = torch.randn(named[name].shape, generator=drawn).to(named[name].device)
            if kind == "gain":
                named[name].mul_(v.gain_scale * torch.exp(std * normal))
            elif std > 0:
                named[name].copy_(std * normal)
    if v.half:
        for parameter in named.values():
            parameter.data = parameter.data.half()


def _borrow(named: dict[str, Tensor], names: Sequence[str], spec: str, generator: torch.Generator) -> None:
    from conceptbind.encoders import load

    lender = load(spec, device="cpu")
    theirs = {n.removeprefix("text."): p for n, p in lender.model.state_dict().items()}
    if isinstance(lender, ClipEncoder):
        for name in names:
            if name not in theirs or theirs[name].shape != named[name].shape:
                raise EncoderError(
                    f"{spec} has no {name} of shape {tuple(named[name].shape)}: its text encoder differs"
                )
            named[name].copy_(theirs[name])
        return
    for name in names:
        (patterns,) = (p for ours, p in BERT_NAMES.items() if re.search(ours, name))
        pools = [_pool(theirs, pattern, spec) for pattern in patterns]
        n_each = len(named[name]) // len(pools)
        drawn = [pool[torch.randint(len(pool), (n_each,), generator=generator)] for pool in pools]
        named[name].copy_(torch.cat(drawn))


def _pool(weights: dict[str, Tensor], pattern: str, spec: str) -> Float[Tensor, "coordinate"]:
    found = [w.float() for n, w in weights.items() if re.search(pattern, n)]
    if not found:
        raise EncoderError(
            f"{spec} has no weights named like {pattern}: gains and biases are lent by a CLIP or a BERT"
        )
    return torch.cat(found)


def _of_kind(named: dict[str, Tensor], kind: str) -> list[str]:
    return [n for n in named if re.search(KINDS[kind], n)]
