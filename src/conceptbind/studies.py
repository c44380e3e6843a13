"""The data of chapters 3 to 5: the same scenes for the same encoders, made or read in one place.

========================  ======================================================================  =======
data                      scenes                                                                  singles
========================  ======================================================================  =======
``captions``              all ordered pairs of V x V objects, "a red circle and a blue square"    yes
``captions, 3 objects``   a seeded sample of ordered triples of the same objects                  yes
``2-D``                   all 576 ordered pairs of CLEVR-2D, two fixed places                     yes
``2-D, occluded``         a sample of them, one object hides 20 to 35 % of the other             no
``2-D, 3 objects``        a sample of triples, three fixed places                                 no
``3-D``                   all 576 ordered pairs of rendered CLEVR solids, two fixed places        yes
``3-D, occluded``         half of them, one solid in front of the other                           no
``3-D, 3 objects``        a sample of triples, three fixed places                                 no
========================  ======================================================================  =======
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from conceptbind.analysis.additive import fit_additive
from conceptbind.analysis.decomposition import decompose
from conceptbind.analysis.part_geometry import concept_share, part_norms, position_alignment
from conceptbind.datasets.rendered import load_rendered
from conceptbind.embeddings import EmbeddingSet, Renderer, encode_captions, encode_pictures
from conceptbind.encoders import Encoder, try_load
from conceptbind.presets import PRESETS, choose
from conceptbind.render import FlatRenderer
from conceptbind.scenes import (
    ConceptSpace,
    factorial_scenes,
    sample_scenes,
    scene_split,
    single_object_scenes,
)
from conceptbind.spaces import CAPTIONS_20, CLEVR_2D

NAMES = {
    "sentence:all-MiniLM-L6-v2": "MiniLM",
    "random:all-MiniLM-L6-v2": "random-init MiniLM",
    "efficientnet-lite0": "EfficientNet-Lite0",
    "random:efficientnet-lite0": "random-init EfficientNet",
    "open_clip:ViT-B-32-quickgelu/openai": "CLIP ViT-B/32",
    "random:ViT-B-32": "random-init ViT-B/32",
    "dinov2:vitb14": "DINOv2 B/14",
    "pocket:narrow": "pocket CLIP, narrow",
    "pocket:broad": "pocket CLIP, broad",
    "pocket:ordered": "pocket CLIP, ordered",
    "random:pocket": "random-init pocket CLIP",
}
"""What the figures call an encoder; others go by their spec."""

CAPTIONS, CAPTIONS_3 = "captions", "captions, 3 objects"
FLAT, FLAT_OCCLUDED, FLAT_3 = "2-D", "2-D, occluded", "2-D, 3 objects"
SOLID, SOLID_OCCLUDED, SOLID_3 = "3-D", "3-D, occluded", "3-D, 3 objects"
ALL_DATA = (CAPTIONS, CAPTIONS_3, FLAT, FLAT_OCCLUDED, FLAT_3, SOLID, SOLID_OCCLUDED, SOLID_3)


@dataclass(frozen=True, eq=False)
class Study:
    """Hold the embeddings of one data set by one encoder."""

    data: str
    """One of ``ALL_DATA``."""
    encoder: str
    """Its name in figures."""
    spec: str
    """Its name for :func:`conceptbind.encoders.load`."""
    embedded: EmbeddingSet
    singles: list[EmbeddingSet] = field(default_factory=list)
    """Scenes of one object each, one set a place; empty where there are none."""
    renderer: Renderer | None = None
    """Draws the scenes of pictures; None for captions."""

    @property
    def title(self) -> str:
        """The data and the encoder, for a row of a table."""
        return f"{self.data}, {self.encoder}"


def geometry_studies(
    preset: str,
    *,
    data: Sequence[str],
    text_encoders: Iterable[str] = (),
    picture_encoders: Iterable[str] = (),
    seed: int = 0,
) -> tuple[list[Study], dict[str, str]]:
    """Encode each data set by every encoder that can be loaded; also give why the others cannot.

    ``preset`` sets the sizes: 3, 8 or 20 values a concept for captions; always 24 objects for pictures, at "smoke"
    scenes of nine of them. Samples are of 288 pictures and 2,048 captions at "laptop", 552 and 20,000 at "paper".
    Order: by data as given, then by encoder. Embeddings are cached.
    Raises ValueError for an unknown name of data or preset.
    """
    choose(preset, dict.fromkeys(PRESETS))
    for name in data:
        if name not in ALL_DATA:
            raise ValueError(f"data must be among {', '.join(map(repr, ALL_DATA))}; got {name!r}")
    text_encoders, picture_encoders = list(text_encoders), list(picture_encoders)
    loaded: dict[str, Encoder] = {}
    missing: dict[str, str] = {}
    for spec in dict.fromkeys([*text_encoders, *picture_encoders]):
        encoder, why = try_load(spec, seed=seed)
        if encoder is None:
            missing[spec] = why
        else:
            loaded[spec] = encoder
    studies = []
    for name in data:
        specs = text_encoders if name in (CAPTIONS, CAPTIONS_3) else picture_encoders
        for spec in specs:
            if spec in loaded:
                make = _caption_study if name in (CAPTIONS, CAPTIONS_3) else _picture_study
                studies.append(make(name, spec, loaded[spec], preset, seed))
    return studies, missing


def full_caption_geometry(seeds: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    """Decompose all 160,000 captions of the paper, ready for a table: a row an encoder, seed, level and estimator.

    ``seeds``: for each encoder's spec the seeds of its weights (of one, for pretrained weights); those that cannot be
    loaded are left out. Beside the columns of :class:`conceptbind.analysis.decomposition.DecompositionRow` stand the
    geometry of the parts and the probes on the embeddings themselves. A CPU core takes half an hour for each seed
    of a ViT-B/32, most of it to encode; embeddings are cached, so a run that was stopped continues.
    """
    scenes = factorial_scenes(CAPTIONS_20, 2)
    rows = []
    for spec, of_encoder in seeds.items():
        for seed in of_encoder:
            encoder, _ = try_load(spec, seed=seed)
            if encoder is None:
                continue
            embedded = encode_captions(encoder, CAPTIONS_20, scenes, progress=True)
            table = decompose(embedded, baselines=False, seeds=[seed], dtype=torch.float32)
            fit = fit_additive(embedded)
            first, second = part_norms(fit)
            geometry = {
                "concept_share": concept_share(fit).share,
                "norm_ratio": first / second,
                "position_alignment": position_alignment(fit),
                **{f"probed_{head}": found.accuracy for head, found in table.probed.items()},
            }
            rows += [{"encoder": spec, "seed": seed, **row, **geometry} for row in table.as_dicts()]
    return rows


def caption_space(preset: str) -> ConceptSpace:
    """Give the first V attributes and nouns of the paper's caption space."""
    n = choose(preset, {"smoke": 3, "laptop": 8, "paper": 20})
    attributes, nouns = (values[:n] for values in CAPTIONS_20.values)
    return CAPTIONS_20.subset(attribute=attributes, noun=nouns)


def _caption_study(name: str, spec: str, encoder: Encoder, preset: str, seed: int) -> Study:
    space = caption_space(preset)
    if name == CAPTIONS:
        scenes = factorial_scenes(space, 2)
    else:
        n = choose(preset, {"smoke": 60, "laptop": 2048, "paper": 20_000})
        scenes = sample_scenes(space, 3, n, seed=seed)
    singles = [encode_captions(encoder, space, single_object_scenes(space))]
    return Study(name, NAMES.get(spec, spec), spec, encode_captions(encoder, space, scenes), singles)


def _picture_study(name: str, spec: str, encoder: Encoder, preset: str, seed: int) -> Study:
    singles: list[EmbeddingSet] = []
    if name in (SOLID, SOLID_OCCLUDED, SOLID_3):
        renderer: Renderer = load_rendered(
            {SOLID: "clevr_3d", SOLID_OCCLUDED: "clevr_3d_occluded", SOLID_3: "clevr_3d_three"}[name]
        )
        space, scenes = renderer.space, renderer.scenes
        if name == SOLID_OCCLUDED:
            scenes = scenes[scene_split(len(scenes), train_fraction=0.5, seed=seed)]
        places = [load_rendered(f"clevr_3d_{side}") for side in ("left", "right")] if name == SOLID else []
    else:
        space = CLEVR_2D
        n = choose(preset, {"smoke": 40, "laptop": 288, "paper": 552})
        scenes = {
            FLAT: lambda: factorial_scenes(space, 2),
            FLAT_OCCLUDED: lambda: sample_scenes(space, 2, n, seed=seed, repeats="distinct objects"),
            FLAT_3: lambda: sample_scenes(space, 3, n, seed=seed),
        }[name]()
        renderer = FlatRenderer(space)
        if name == FLAT_OCCLUDED:
            renderer = FlatRenderer(space, placement="occluded", seed=seed)
        places = (
            [FlatRenderer(space, places=(at,)) for at in ((0.25, 0.5), (0.75, 0.5))] if name == FLAT else []
        )
    if preset == "smoke":
        few = (scenes[..., 0] < 3).all(1)  # three colours are enough to see that everything runs
        scenes = scenes[few] if int(few.sum()) >= 9 else scenes[:40]
    for at in places:
        alone = single_object_scenes(space)
        singles.append(encode_pictures(encoder, space, alone, at))
    embedded = encode_pictures(encoder, space, scenes, renderer)
    return Study(name, NAMES.get(spec, spec), spec, embedded, singles, renderer)
