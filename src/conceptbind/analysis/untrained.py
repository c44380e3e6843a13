"""What moves the R² of an untrained text encoder (the "random-init" row of the paper's F3 table).

Every variant is one random CLIP text encoder with something changed, or other words; its captions are all ordered
pairs of a small factorial grid. Sharper attention (larger queries and keys, or larger LayerNorm gains) and words of
unequal token length lower R², random biases raise it, and float16 and the size of the grid leave it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conceptbind.analysis.additive import fit_all
from conceptbind.analysis.part_geometry import concept_share
from conceptbind.analysis.probing import Embedded
from conceptbind.embeddings import EmbeddingSet, encode_captions
from conceptbind.encoders import Encoder, load, try_load
from conceptbind.encoders.variations import Variation, vary_untrained
from conceptbind.scenes import ConceptSpace, factorial_scenes
from conceptbind.spaces import CAPTIONS_20

TABLE = "untrained_variants"
"""Name of the committed table of all variants (see :func:`conceptbind.results.read_table`)."""

RANDOM, RANDOM_QUICK = "random:ViT-B-32", "random:ViT-B-32-quickgelu"
OPENAI, MINILM = "open_clip:ViT-B-32-quickgelu/openai", "sentence:all-MiniLM-L6-v2"

BATCH = 256
"""On a CPU a fifth faster than the default."""


def words(n: int, attributes: str | None = None) -> ConceptSpace:
    """Take n attributes and n nouns: the first of the caption data, or other attributes.

    Raises ValueError unless there are n of each.
    """
    own, nouns = CAPTIONS_20.values
    chosen = own if attributes is None else tuple(attributes.split())
    if not 1 <= n <= min(len(chosen), len(nouns)):
        raise ValueError(f"there are {len(chosen)} attributes and {len(nouns)} nouns; got n = {n}")
    return ConceptSpace(CAPTIONS_20.concepts, (chosen[:n], nouns[:n]))


# Tokens of each attribute in CLIP's vocabulary; of CAPTIONS_20 only "bumpy" has more than one.
ONE_TOKEN = "fuzzy fluffy striped spotted dotted"
TWO_TOKENS = "scaly spiky lumpy bumpy wrinkled"
ONE_OR_TWO = "fuzzy fluffy striped scaly spiky"

PLAIN, SMALL = Variation(), words(5)


@dataclass(frozen=True)
class Variant:
    """Name one thing to try."""

    name: str
    question: str
    variation: Variation = PLAIN
    space: ConceptSpace = SMALL
    spec: str = RANDOM


def _scale(name: str, **change: Any) -> Variant:
    return Variant(name, "initialisation scale", Variation(**change))


def _gains(name: str, **change: Any) -> Variant:
    return Variant(name, "gains and biases", Variation(**change))


VARIANTS: tuple[Variant, ...] = (
    Variant("open_clip's own initialisation", "plain"),
    _scale("all matrices x 0.5", weight_scale=0.5),
    _scale("all matrices x 2", weight_scale=2.0),
    _scale("queries, keys x 0.5", query_key_scale=0.5),
    _scale("queries, keys x 1.5", query_key_scale=1.5),
    _scale("queries, keys x 2", query_key_scale=2.0),
    _scale("queries, keys x 4", query_key_scale=4.0),
    _scale("all other matrices x 2", weight_scale=2.0, query_key_scale=0.5),
    _gains("gains x 2", gain_scale=2.0),
    _gains("gains log-normal 0.5", gain_spread=0.5),
    _gains("gains log-normal 0.75", gain_spread=0.75),
    _gains("gains log-normal 1", gain_spread=1.0),
    _gains("biases of norms, std 0.5", norm_bias_std=0.5),
    _gains("biases of layers, std 0.5", linear_bias_std=0.5),
    _gains("all biases, std 0.5", norm_bias_std=0.5, linear_bias_std=0.5),
    _gains("gains log-normal 0.75, all biases 0.5", gain_spread=0.75, norm_bias_std=0.5, linear_bias_std=0.5),
    _gains("MiniLM's gains, shuffled", gains_of=MINILM),
    _gains("MiniLM's biases, shuffled", biases_of=MINILM),
    _gains("MiniLM's gains and biases, shuffled", gains_of=MINILM, biases_of=MINILM),
    Variant(
        "CLIP's own gains and biases, as in the paper",
        "gains and biases",
        Variation(gains_of=OPENAI, biases_of=OPENAI),
        spec=RANDOM_QUICK,
    ),
    Variant("QuickGELU", "architecture", spec=RANDOM_QUICK),
    Variant("1 block", "architecture", Variation(layers=1)),
    Variant("4 blocks", "architecture", Variation(layers=4)),
    Variant("no positions", "embeddings", Variation(position_scale=0.0)),
    Variant("positions x 10", "embeddings", Variation(position_scale=10.0)),
    Variant("float16", "precision", Variation(half=True)),
    Variant("attributes of one token", "word length", space=words(5, ONE_TOKEN)),
    Variant("attributes of two tokens", "word length", space=words(5, TWO_TOKENS)),
    Variant("attributes of one or two tokens", "word length", space=words(5, ONE_OR_TWO)),
)


def untrained_variants(
    variants: Sequence[Variant] = VARIANTS,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    device: str = "auto",
    cache_dir: str | Path | None = None,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """Measure how additive the captions of every variant are, ready for a table: a row a variant and seed.

    ``r2_avg`` and ``r2_avg_pos``: Level I without and with positions. ``r2_concepts``: Level II with positions.
    ``concept_share``: of the object parts with positions. All on the scenes fitted. The numbers are None, and
    ``missing`` says what was not there, where weights of a trained model are needed and missing.
    Embeddings are cached, so a run that was stopped continues. A row takes about 8 seconds on one core.
    """
    rows = []
    for seed in seeds:
        loaded: dict[str, Encoder] = {}
        for variant in variants:
            if variant.spec not in loaded:
                # One at a time: a ViT-B/32 is 0.6 GB.
                loaded = {variant.spec: load(variant.spec, seed=seed, device=device)}
            rows.append(_measure(variant, loaded[variant.spec], seed, cache_dir, progress))
    return sorted(rows, key=lambda row: [v.name for v in variants].index(row["variant"]))


def grid_sizes(data: EmbeddingSet, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Measure the same numbers on parts of a factorial grid: the scenes made of the first n values of each concept.

    Sizes beyond a concept's keep all of its values. The scenes must hold these parts whole.
    """
    rows, encoder = [], data.provenance["encoder"]
    for size in sizes:
        kept = (data.scenes < size).all(2).all(1)
        space = data.space.subset(
            **{c: v[:size] for c, v in zip(data.space.concepts, data.space.values, strict=True)}
        )
        part = EmbeddingSet(data.embeddings[kept], data.scenes[kept], space)
        row = _row(f"{size} x {size} words", "grid", encoder["spec"], space, encoder["seed"])
        rows.append(row | _additivity(part))
    return rows


def _measure(
    variant: Variant, encoder: Encoder, seed: int, cache_dir: str | Path | None, progress: bool
) -> dict[str, Any]:
    row = _row(variant.name, variant.question, variant.spec, variant.space, seed)
    row["variation"] = variant.variation.changed()
    for lender in (variant.variation.gains_of, variant.variation.biases_of):
        if lender is not None and try_load(lender, device="cpu")[0] is None:
            return {**row, "missing": lender}
    if variant.variation != PLAIN:
        encoder = vary_untrained(encoder, variant.variation, seed=seed)
    data = encode_captions(
        encoder,
        variant.space,
        factorial_scenes(variant.space, 2),
        cache_dir=cache_dir,
        progress=progress,
        batch_size=BATCH if encoder.device.type == "cpu" else None,
    )
    return row | _additivity(data)


def _row(variant: str, question: str, spec: str, space: ConceptSpace, seed: int | None) -> dict[str, Any]:
    return {
        "variant": variant,
        "question": question,
        "encoder": spec,
        "variation": {},
        "attributes": list(space.values[0]),
        "nouns": list(space.values[1]),
        "n_captions": space.n_possible_objects**2,
        "seed": seed,
        **dict.fromkeys(("r2_avg", "r2_avg_pos", "r2_concepts", "concept_share", "missing")),
    }


def _additivity(data: Embedded) -> dict[str, float]:
    fits = fit_all(data)
    return {
        "r2_avg": fits["objects", "avg"].r2,
        "r2_avg_pos": fits["objects", "avg+pos"].r2,
        "r2_concepts": fits["concepts", "avg+pos"].r2,
        "concept_share": concept_share(fits["objects", "avg+pos"]).share,
    }
