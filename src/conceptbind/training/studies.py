"""The models of chapters 7 and 8: which are trained, by study and preset (paper, section 2, F7 and F8).

===========  =====================================================================================================
study        question
===========  =====================================================================================================
coverage     at which coverage do transformers bind new objects, by the size of the object space?
capacity     does a smaller or larger transformer need more or less?
heads        does it take products? Per-object perceptrons, sums with products and mere sums instead of transformers
longer       have the transformers stopped improving? Twice as many steps
larger       and in a space of twice as many objects? At the same and at twice the steps
recipe       which settings of the training decide? One at a time, at one coverage
clip         do two encoders with vocabularies of their own, trained as CLIP is, behave alike?
negatives    what do held-out objects as negatives teach, as in the released code?
===========  =====================================================================================================

Within a study all coverages take the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from conceptbind.presets import choose
from conceptbind.training.config import TrainingConfig, config_of

COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
FEW_COVERAGES = (0.3, 0.5, 0.7, 0.9)
SEEDS = (0, 1, 2)

SMALL = TrainingConfig(
    sizes=(16, 16),
    width=64,
    feed_forward=256,
    dim=64,
    batch=256,
    n_steps=2500,
    rate=4e-3,
    weight_decay=0.5,
    linear_scale=2.0,
    embedding_scale=0.1,
)
"""A transformer that binds new objects after a minute on one core: it takes a high rate and a strong weight decay. At
1e-3 and .1 the same takes many times the steps."""

HEADS: dict[str, dict[str, Any]] = {
    "objects": {"depth": 1, "rate": 3e-3, "weight_decay": 1.0, "linear_scale": 0.3},
    "product": {"linear_scale": 1.0, "embedding_scale": 0.3},
    "additive": {},
}
"""Settings that suit each architecture; the rest is that of the transformers."""


def study(name: str, preset: str = "laptop") -> list[TrainingConfig]:
    """List the models of a study, those of the first seed first; impossible coverages are left out.

    "smoke": a few models, in seconds. "laptop": what the book shows; some hours on two cores. "paper": the paper's
    transformers, on up to 125,000 objects, for a GPU; with the decay and the start of the small ones, and a rate that
    falls with the width. It was not tried.
    Raises ValueError for another study or preset.
    """
    if name not in STUDIES:
        raise ValueError(f"a study is one of {', '.join(STUDIES)}; got {name!r}")
    small = replace(SMALL, sizes=(4, 4), width=16, feed_forward=32, dim=16, batch=32, n_steps=20)
    paper = replace(
        config_of("paper"),
        sizes=(50, 50),
        rate=SMALL.rate * SMALL.width / 512,
        weight_decay=SMALL.weight_decay,
        embedding_scale=SMALL.embedding_scale,
    )
    base = choose(preset, {"smoke": small, "laptop": SMALL, "paper": paper})
    values = choose(preset, {"smoke": ((4, 4),), "laptop": _square(8, 12, 16), "paper": _PAPER_SPACES})
    found = []
    for seed in SEEDS[:1] if preset == "smoke" else SEEDS:
        for changes in STUDIES[name](base, values):
            try:
                found.append(replace(base, seed=seed, **changes))
            except ValueError:  # so few objects do not show every value
                continue
    return list(dict.fromkeys(found))


Changes = list[dict[str, Any]]
Spaces = Sequence[tuple[int, ...]]


def _square(*values: int) -> Spaces:
    return tuple((v, v) for v in values)


_PAPER_SPACES: Spaces = (*_square(20, 50), (50, 50, 50))


def _coverage(_: TrainingConfig, spaces: Spaces) -> Changes:
    return [{"sizes": sizes, "coverage": rho} for sizes in spaces for rho in COVERAGES]


def _capacity(base: TrainingConfig, _: Spaces) -> Changes:
    return [
        {
            "width": int(base.width * times),
            "feed_forward": int(base.feed_forward * times),
            "dim": int(base.dim * times),
            "coverage": rho,
        }
        for times in (0.5, 2)
        for rho in COVERAGES[1::2]
    ]


def _heads(_: TrainingConfig, __: Spaces) -> Changes:
    return [
        {"architecture": head, "coverage": rho, **settings}
        for head, settings in HEADS.items()
        for rho in COVERAGES
    ]


def _longer(base: TrainingConfig, _: Spaces) -> Changes:
    return [{"n_steps": 2 * base.n_steps, "coverage": rho} for rho in FEW_COVERAGES]


def _larger(base: TrainingConfig, _: Spaces) -> Changes:
    larger = tuple(v * 3 // 2 for v in base.sizes)
    return [
        {"sizes": larger, "n_steps": times * base.n_steps, "coverage": rho}
        for times in (1, 2)
        for rho in (COVERAGES if times == 1 else COVERAGES[::2])
    ]


def recipes(base: TrainingConfig) -> dict[str, dict[str, Any]]:
    """Give what the recipes of the study change, by the names that figures use."""
    slow, decay = {"rate": base.rate / 4}, {"weight_decay": base.weight_decay / 5}
    return {
        "ours": {},
        "a quarter of the rate": slow,
        "a fifth of the weight decay": decay,
        "both": slow | decay,
        "embeddings start ten times as large": {"embedding_scale": 10 * base.embedding_scale},
        "linear layers start half as large": {"linear_scale": base.linear_scale / 2},
        "the other tokens": {"tokens": "compact" if base.tokens == "paper" else "paper"},
    }


def _recipe(base: TrainingConfig, _: Spaces) -> Changes:
    return [{"coverage": 0.7, **changes} for changes in recipes(base).values()]


def _clip(_: TrainingConfig, __: Spaces) -> Changes:
    clip = {"form": "clip", "caption_order": "random", "single_share": 0.25}
    return [{**clip, "coverage": rho} for rho in FEW_COVERAGES]


def _negatives(_: TrainingConfig, __: Spaces) -> Changes:
    return [{"held_out_negatives": True, "coverage": rho} for rho in FEW_COVERAGES]


STUDIES: dict[str, Callable[[TrainingConfig, Spaces], Changes]] = {
    "coverage": _coverage,
    "capacity": _capacity,
    "heads": _heads,
    "longer": _longer,
    "larger": _larger,
    "recipe": _recipe,
    "clip": _clip,
    "negatives": _negatives,
}
