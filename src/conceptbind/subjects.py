"""The embeddings whose complexity is measured in chapter 6 and by ``conceptbind complexity``: all ordered pairs."""

from __future__ import annotations

from conceptbind.analysis.complexity import Subject
from conceptbind.datasets.rendered import load_rendered
from conceptbind.embeddings import EmbeddingSet, encode_captions, encode_pictures
from conceptbind.encoders import load
from conceptbind.planted import planted_encoders
from conceptbind.render import FlatRenderer
from conceptbind.scenes import ConceptSpace, factorial_scenes
from conceptbind.spaces import CAPTIONS_20, CLEVR_2D

SCENES = ("captions", "2-D", "3-D")
"""What an encoder can be shown."""
MAX_VALUES = 20
"""Values a concept: 20 x 20 objects make 160,000 scenes."""
PLANTED_DIM, PLANTED_NOISE = 512, 0.5


def encoder_subject(
    spec: str, *, data: str = "captions", values: int | None = None, seed: int = 0
) -> Subject:
    """Embed all ordered pairs of objects by an encoder.

    ``data``: one of ``SCENES``. ``values``: V for captions of V attributes and V nouns, 2 to 20; None for the 24
    objects of CLEVR, which pictures always show. ``seed``: of the weights of an untrained encoder.
    Raises ValueError for other data or values, and as :func:`conceptbind.encoders.load` does.
    """
    if data not in SCENES:
        raise ValueError(f"data is one of {', '.join(SCENES)}; got {data!r}")
    _check_values(values)
    if values is not None and data != "captions":
        raise ValueError(f"pictures show 24 objects: leave values out, or use captions; got {values} values")
    encoder = load(spec, seed=seed)
    if data == "captions":
        space = CLEVR_2D
        if values is not None:
            attributes, nouns = (of_concept[:values] for of_concept in CAPTIONS_20.values)
            space = CAPTIONS_20.subset(attribute=attributes, noun=nouns)
        embedded = encode_captions(encoder, space, factorial_scenes(space, 2))
    elif data == "2-D":
        embedded = encode_pictures(encoder, CLEVR_2D, factorial_scenes(CLEVR_2D, 2), FlatRenderer(CLEVR_2D))
    else:
        pictures = load_rendered("clevr_3d")
        embedded = encode_pictures(encoder, pictures.space, pictures.scenes, pictures)
    # The seed matters to untrained encoders only.
    other = _other(seed) if spec.startswith("random:") else ""
    return Subject(f"{data}, {embedded.space.n_possible_objects} objects, {spec}{other}", embedded)


def planted_subject(kind: str, *, values: int | None = None, seed: int = 0) -> Subject:
    """Embed all ordered pairs of objects with known binding, see :mod:`conceptbind.planted`.

    ``values``: of each of two concepts, 2 to 20; None for the 24 objects of CLEVR.
    Raises ValueError for other values or an unknown kind.
    """
    _check_values(values)
    space = CLEVR_2D if values is None else ConceptSpace.of_sizes(values, values)
    scenes = factorial_scenes(space, 2)
    planted = planted_encoders(space, kind, dim=PLANTED_DIM, seed=seed, noise=PLANTED_NOISE)
    name = f"planted {kind}, {space.n_possible_objects} objects{_other(seed)}"
    return Subject(name, EmbeddingSet(planted.scenes(scenes), scenes, space))


def _check_values(values: int | None) -> None:
    if values is not None and not 2 <= values <= MAX_VALUES:
        raise ValueError(f"scenes have 2 to {MAX_VALUES} values a concept; got {values} values")


def _other(seed: int) -> str:
    return f", seed {seed}" if seed else ""
