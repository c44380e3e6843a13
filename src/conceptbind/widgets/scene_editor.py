"""A scene that the reader edits, and what a model's scores make of it, with and without a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import torch
import traitlets
from jaxtyping import Float, Int
from torch import Tensor

from conceptbind.analysis.recognition import TIE_ULPS
from conceptbind.scenes import ConceptSpace, ObjectSplit, captions
from conceptbind.spaces import CLEVR_COLOURS
from conceptbind.widgets.fallback import choose_mode, show_without_script
from conceptbind.widgets.scene_figure import scene_figure_html
from conceptbind.widgets.scripts import HERE, script

TOLERANCE = TIE_ULPS * torch.finfo(torch.float32).eps
# The scores travel inside the page, as base64: a third more than this.
MAX_BYTES = 4_000_000

# Okabe and Ito's palette, for colour names that no palette knows.
_OKABE_ITO = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0))
_MORE_COLOURS = {
    "orange": (230, 130, 0),
    "pink": (240, 150, 190),
    "black": (25, 25, 25),
    "white": (255, 255, 255),
    "grey": CLEVR_COLOURS["gray"],
}
_SHAPES = {"square", "triangle", "circle", "star", "heart", "diamond"} | {
    "cube",
    "cylinder",
    "sphere",
    "cone",
    "pyramid",
}


class SceneEditor(anywidget.AnyWidget):
    """Show one scene and its scores; made by :func:`scene_editor`.

    ``scene`` (value indices, ``[slot][concept]``) and ``model`` (a name) follow the reader and may be set.
    """

    _esm = script("scene_editor.js")
    _css = HERE / "scene_editor.css"

    scene = traitlets.List(traitlets.List(traitlets.Int())).tag(sync=True)
    model = traitlets.Unicode().tag(sync=True)

    concepts = traitlets.List(traitlets.Unicode()).tag(sync=True)
    values = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    n_objects = traitlets.Int().tag(sync=True)
    model_names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    scores = traitlets.Bytes().tag(sync=True)
    """float32, little-endian, ``(model, scene, query)``."""
    phrases = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The caption of every object alone, by object index."""
    joiner = traitlets.Unicode().tag(sync=True)
    seen = traitlets.Bytes().tag(sync=True)
    """One byte an object: 1 for a training object; empty without a split."""
    colours = traitlets.Dict().tag(sync=True)
    """``#rrggbb`` of every value of the colour concept."""
    colour_concept = traitlets.Int(-1).tag(sync=True)
    shape_concept = traitlets.Int(-1).tag(sync=True)
    tolerance = traitlets.Float().tag(sync=True)
    """Scores of a head no further apart than this, times its largest absolute score in the scene, are tied."""

    @property
    def caption(self) -> str:
        """The caption of the scene on show."""
        space = ConceptSpace(tuple(self.concepts), tuple(map(tuple, self.values)))
        return self.joiner.join(
            self.phrases[i] for i in space.object_index(torch.tensor(self.scene)).tolist()
        )

    def __repr__(self) -> str:
        # No address: the text form of an executed notebook is the same in each run.
        return f"SceneEditor({self.caption!r}, model={self.model!r})"

    @traitlets.validate("scene")
    def _check_scene(self, proposal: Any) -> list[list[int]]:
        scene = proposal["value"]
        if len(scene) != self.n_objects or any(
            len(obj) != len(self.values)
            or any(not 0 <= v < len(names) for v, names in zip(obj, self.values, strict=True))
            for obj in scene
        ):
            sizes = [len(names) for names in self.values]
            raise traitlets.TraitError(
                f"a scene is {self.n_objects} lists of value indices, one list an object, below {sizes}; "
                f"got {scene}"
            )
        return scene

    @traitlets.validate("model")
    def _check_model(self, proposal: Any) -> str:
        if proposal["value"] not in self.model_names:
            raise traitlets.TraitError(f"model must be one of {self.model_names}; got {proposal['value']!r}")
        return proposal["value"]


def scene_editor(
    space: ConceptSpace,
    scores: Mapping[str, Float[Tensor, "scene query"]],
    *,
    n_objects: int = 2,
    split: ObjectSplit | None = None,
    start: Sequence[Sequence[int | str]] | Int[Tensor, "slot concept"] | None = None,
    template: str | None = None,
    joiner: str = " and ",
    colours: Mapping[str, tuple[int, int, int]] | None = None,
    tolerance: float = TOLERANCE,
    mode: str | None = None,
) -> SceneEditor:
    """Let the reader edit a scene of ``n_objects`` objects and see caption, picture, scores and verdicts.

    - ``scores``: for each named model, float ``(scene, query)``, one row for each scene of
      ``factorial_scenes(space, n_objects)`` in its order; the queries are the values of concept 1, ...,
      of concept K, then every object. Kept as float32.
    - ``split``: marks objects as seen or never seen in training, and the scene as train, mixed or held out
    - ``start``: the first scene, as names or indices of values; by default the objects share no value, as
      far as there are values
    - ``template``, ``joiner``: as for :func:`conceptbind.scenes.captions`
    - ``colours``: RGB 0-255 of the values of the colour concept; known colour names need none
    - ``tolerance``: scores no further apart than this, times the largest absolute score of the head in the
      scene, count as tied; by default as in :func:`conceptbind.analysis.recognition.scene_margins`
    - ``mode``: ``"book"`` adds a picture for readers without JavaScript; ``"live"``; by default the
      environment variable CONCEPTBIND_WIDGETS, else live

    A head is recognised when its lowest present score is strictly above its highest absent one (paper,
    section 2); a tie is not recognised, and is named as a tie.

    Raises ValueError for scores of the wrong shape, not finite or too big for a page, a split of another
    space, a start outside the space, or colours that are missing.
    """
    mode = choose_mode(mode)
    n_scenes = space.n_possible_objects**n_objects if n_objects > 0 else 0
    if not n_scenes:
        raise ValueError(f"a scene needs at least one object; got n_objects={n_objects}")
    n_queries = sum(space.n_values) + space.n_possible_objects
    if not scores:
        raise ValueError("give the scores of at least one model: {'name': scores}")
    n_bytes = 4 * len(scores) * n_scenes * n_queries
    if n_bytes > MAX_BYTES:
        raise ValueError(
            f"{len(scores)} models x {n_scenes:,} scenes x {n_queries} queries are {n_bytes / 1e6:.0f} MB, "
            f"too much for a page (at most {MAX_BYTES / 1e6:.0f} MB): use space.subset(...) or fewer objects"
        )
    for name, rows in scores.items():
        if tuple(rows.shape) != (n_scenes, n_queries):
            raise ValueError(
                f"the scores of {name!r} must have shape ({n_scenes}, {n_queries}): one row for each scene "
                f"of factorial_scenes(space, {n_objects}), one column for each of {sum(space.n_values)} "
                f"values and {space.n_possible_objects} objects; got {tuple(rows.shape)}"
            )
        if not rows.isfinite().all():
            raise ValueError(
                f"the scores of {name!r} hold {int((~rows.isfinite()).sum())} values that are not finite"
            )
    if split is not None and split.space != space:
        raise ValueError(f"the split is of another space: {split.space.concepts}, not {space.concepts}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance must not be negative; got {tolerance}")

    first = _start(space, n_objects, start)
    colour, shape = _colour_concept(space, colours), _shape_concept(space)
    editor = SceneEditor(
        concepts=list(space.concepts),
        values=[list(names) for names in space.values],
        n_objects=n_objects,
        model_names=list(scores),
        scores=b"".join(
            rows.detach().to("cpu", torch.float32).numpy().astype("<f4").tobytes() for rows in scores.values()
        ),
        phrases=captions(space, space.all_objects().unsqueeze(1), template=template, joiner=joiner),
        joiner=joiner,
        seen=b"" if split is None else bytes(split.is_train.to(torch.uint8).tolist()),
        colours={} if colour < 0 else _hex_colours(space.values[colour], colours),
        colour_concept=colour,
        shape_concept=shape,
        tolerance=tolerance,
        scene=first.tolist(),
        model=next(iter(scores)),
    )
    if mode == "book":
        name, rows = next(iter(scores.items()))
        scene_scores = rows[int(space.scene_index(first))].detach().to("cpu", torch.float32)
        show_without_script(
            scene_figure_html(space, first, scene_scores, name, editor.caption, editor.colours, colour, shape)
        )
    return editor


def _start(
    space: ConceptSpace,
    n_objects: int,
    start: Sequence[Sequence[int | str]] | Int[Tensor, "slot concept"] | None,
) -> Int[Tensor, "slot concept"]:
    if start is None:
        return torch.tensor([[slot % size for size in space.n_values] for slot in range(n_objects)])
    rows = start.tolist() if isinstance(start, Tensor) else start
    if len(rows) != n_objects or any(len(row) != space.n_concepts for row in rows):
        raise ValueError(
            f"start must be {n_objects} objects of {space.n_concepts} values {space.concepts}; got {start}"
        )
    scene = []
    for row in rows:
        obj = []
        for concept, names, value in zip(space.concepts, space.values, row, strict=True):
            if isinstance(value, str) and value not in names:
                raise ValueError(f"start: concept {concept!r} has no value {value!r}; it has {names}")
            obj.append(names.index(value) if isinstance(value, str) else int(value))
        scene.append(obj)
    objects = torch.tensor(scene)
    space.check(objects)
    return objects


def _colour_concept(space: ConceptSpace, colours: Mapping[str, tuple[int, int, int]] | None) -> int:
    """The concept whose values are colours, or -1."""
    known = {**CLEVR_COLOURS, **_MORE_COLOURS} if colours is None else colours
    for k, (concept, names) in enumerate(zip(space.concepts, space.values, strict=True)):
        if concept in ("colour", "color") or all(name in known for name in names):
            return k
    if colours is not None:
        raise ValueError(f"colours names {tuple(colours)}, but no concept of {space.values} has these values")
    return -1


def _shape_concept(space: ConceptSpace) -> int:
    """The concept whose values are shapes, or -1."""
    for k, (concept, names) in enumerate(zip(space.concepts, space.values, strict=True)):
        if concept == "shape" or all(name.lower() in _SHAPES for name in names):
            return k
    return -1


def _hex_colours(
    names: tuple[str, ...], colours: Mapping[str, tuple[int, int, int]] | None
) -> dict[str, str]:
    known = {**CLEVR_COLOURS, **_MORE_COLOURS} if colours is None else colours
    missing = [name for name in names if name not in known]
    if missing and colours is not None:
        raise ValueError(f"colours leaves out {missing}: give an RGB triple for each value")
    # Anonymous values get the colours of the palette in turn; all have their names beside them.
    palette = {name: _OKABE_ITO[i % len(_OKABE_ITO)] for i, name in enumerate(missing)}
    triples = {name: tuple(known[name] if name in known else palette[name]) for name in names}
    for name, rgb in triples.items():
        if len(rgb) != 3 or any(not 0 <= c <= 255 for c in rgb):
            raise ValueError(f"the colour of {name!r} must be three numbers from 0 to 255; got {rgb}")
    return {name: "#" + "".join(f"{round(c):02x}" for c in rgb) for name, rgb in triples.items()}
