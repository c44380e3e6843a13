"""What every metric of a report is called, and what it means: the one source for pages, tables and chapters.

A metric's name is ``{side}_{base}{ending}``: ``image_probe_objects_low`` is the lower end of the interval of the share
of pictures in which a probe recognises whole objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from conceptbind.report.report import RANDOM_INIT, SHUFFLED

Direction = Literal["higher is better", "neither"]
BETTER: Direction = "higher is better"
NEITHER: Direction = "neither"
"""Neither end is better: the number says how an encoder works, or is a control."""

SIDES = {
    "image_to_text": "image to text",
    "text_to_image": "text to image",
    "cross": "image and text",
    "embedding": "embeddings",
    "image": "image",
    "text": "text",
}
"""First part of a name, and how it is said; one that begins with another comes before it."""
ONE_MODALITY = ("image", "text", "embedding")

TEXT_ONLY = "_text_only"
ENDINGS = {
    "": "",
    "_low": "lower end of the 95 % interval",
    "_high": "upper end of the 95 % interval",
    "_chance": "chance",
    "_ties": "share of ties, which count as wrong",
    SHUFFLED: "with shuffled labels",
    RANDOM_INIT: "of the untrained architecture",
    TEXT_ONLY: "by the captions alone, without a picture",
}
"""Last part of a name, and what it makes of the number."""


@dataclass(frozen=True)
class Metric:
    """Hold the words for one metric."""

    label: str
    """Two to six words."""
    meaning: str
    """One sentence for a newcomer."""
    direction: Direction
    group: str
    """One of ``GROUPS``."""
    side: str = ""
    """A key of ``SIDES``; "" where there is none."""
    base: str = ""
    """The name without side and ending."""
    ending: str = ""
    """A key of ``ENDINGS``."""


VERDICT, PROBES, ADDITIVE, REMOVAL, EDITS, PRODUCT, BETWEEN, OTHER = GROUPS = (
    "Evidence of the verdict",
    "What can be read",
    "A sum of parts",
    "Removing parts",
    "Editing scenes",
    "New objects",
    "Between pictures and captions",
    "Other",
)
"""In the order of a page."""

_LEFT = "after {} were taken out of the embedding: share of scenes in which a new linear probe still recognises {}"
_VALUES, _WHOLE = "all values (red, circle, …)", "whole objects (red circle, …)"


def _words() -> Iterator[Metric]:
    def add(base: str, label: str, meaning: str, direction: Direction, group: str) -> Metric:
        return Metric(label, f"{meaning[0].upper()}{meaning[1:]}.", direction, group, base=base)

    yield add(
        "verdict_concepts",
        "concepts read",
        f"share of scenes in which the verdict's own probe recognises {_VALUES}",
        BETTER,
        VERDICT,
    )
    yield add(
        "verdict_objects",
        "objects read where a bag fails",
        "share of scenes in which whole objects are recognised, of those that a mere list of values cannot tell from "
        "another scene",
        BETTER,
        VERDICT,
    )
    yield add(
        "verdict_within",
        "interactions within objects",
        "how much a whole object adds to an embedding beyond its values, relative to what the values add; 0 is a bag "
        "of concepts",
        NEITHER,
        VERDICT,
    )
    yield add(
        "verdict_recovered",
        "recovered for new objects",
        "how far a simple function, fitted to some objects, comes from a sum (0) to the real embeddings (1) in "
        "recognising objects that it was not fitted to",
        NEITHER,
        VERDICT,
    )
    yield add(
        "verdict_train_r2",
        "fit of that function",
        "share of the embeddings' variance that this function explains on the scenes that it was fitted to",
        NEITHER,
        VERDICT,
    )
    yield add(
        "verdict_power",
        "controls recovered",
        "share of planted simple functions that the same search did find; only if all were found, finding none means "
        "something",
        NEITHER,
        VERDICT,
    )
    for what, label in ((_VALUES, "concepts"), (_WHOLE, "objects")):
        yield add(
            f"probe_{label}",
            f"{label} recognised",
            f"share of new scenes in which a linear probe recognises {what}",
            BETTER,
            PROBES,
        )
    yield add(
        "additive_r2_avg",
        "R² of a sum of objects",
        "share of the variance explained by one vector for each object, added up wherever the object is",
        NEITHER,
        ADDITIVE,
    )
    yield add(
        "additive_r2_avg_pos",
        "R² with positions",
        "share of the variance explained by one vector for each object and place in the scene, added up",
        NEITHER,
        ADDITIVE,
    )
    yield add(
        "additive_r2_held_out",
        "R² on held-out scenes",
        "share of the variance that the same vectors explain on scenes that they were not fitted to; below 0 is worse "
        "than the mean scene",
        NEITHER,
        ADDITIVE,
    )
    yield add(
        "additive_r2_concepts",
        "R² of a sum of values",
        "share of the variance explained by one vector for each value and place: a sum that holds no objects",
        NEITHER,
        ADDITIVE,
    )
    yield add(
        "additive_retrieval",
        "scenes found by their sums",
        "share of scenes whose sum of parts is nearer to their own embedding than to any other scene's",
        BETTER,
        ADDITIVE,
    )
    for parts, label, said in (
        ("concept_parts", "without concept parts", "the vectors of its values"),
        ("object_parts", "without object parts", "the vectors of its objects"),
        ("permuted_concept_parts", "control, wrong parts", "vectors of the wrong values"),
    ):
        for read, what in (("concepts", _VALUES), ("objects", _WHOLE)):
            yield add(
                f"removal_{parts}_{read}", f"{read} {label}", _LEFT.format(said, what), NEITHER, REMOVAL
            )
    yield add(
        "edit_retrieval",
        "edits that arrive",
        "an object's vector is exchanged for another's: share of the edited embeddings that are nearest to the scene "
        "with the new object",
        BETTER,
        EDITS,
    )
    yield add(
        "edit_retrieval_no_edit",
        "control, no edit",
        "share in which the embedding of the old scene, without any edit, is nearest to the scene with the new object",
        NEITHER,
        EDITS,
    )
    yield add(
        "product_r2_held_out",
        "R² of products of values",
        "share of the variance of scenes of new objects that products of their values' vectors explain",
        NEITHER,
        PRODUCT,
    )
    yield add(
        "product_objects_held_out",
        "new objects by products",
        "share of scenes of new objects that are recognised in embeddings predicted by products of values",
        NEITHER,
        PRODUCT,
    )
    yield add(
        "additive_objects_held_out",
        "new objects by a sum",
        "share of scenes of new objects that are recognised in embeddings predicted by a sum of values, which cannot "
        "bind",
        NEITHER,
        PRODUCT,
    )
    yield add(
        "ceiling_objects_held_out",
        "new objects in the real embeddings",
        "share of scenes of new objects that are recognised in the real embeddings; a prediction can hardly do better",
        BETTER,
        PRODUCT,
    )
    twin = "that of the same values, dealt out to the wrong objects"
    yield add(
        "two_way",
        "right one of two",
        f"share of choices in which the true counterpart is nearer than {twin}",
        BETTER,
        BETWEEN,
    )
    yield add(
        "two_way_margin",
        "margin of that choice",
        "by how much more similar, as a cosine, the true counterpart is than the wrong one, on average",
        BETTER,
        BETWEEN,
    )
    yield add(
        "reverse_recall",
        "wrong one found first",
        f"share in which the wrong counterpart ({twin}) is nearer than all others, the true one included",
        NEITHER,
        BETWEEN,
    )
    for k in (1, 5, 10):
        place = "nearest of all" if k == 1 else f"among the {k} nearest of all"
        yield add(
            f"recall_{k}",
            f"found, recall@{k}",
            f"share in which the true counterpart is {place}",
            BETTER,
            BETWEEN,
        )
    for score, what in (
        ("text", "each of two pictures is nearer to its own caption"),
        ("image", "each of two captions is nearer to its own picture"),
        ("group", "both of these hold"),
    ):
        yield add(
            f"{score}_score",
            f"{score} score",
            f"of two scenes that differ only in which values go together: share of pairs in which {what} (Winoground)",
            BETTER,
            BETWEEN,
        )


METRICS: Mapping[str, Metric] = {metric.base: metric for metric in _words()}
"""The words of every metric by its base name, in the order of a page."""
ORDER: Mapping[str, int] = {base: i for i, base in enumerate(METRICS)}


def describe(name: str) -> Metric:
    """Give the words for a metric of a report; a name that is not known gets neutral ones."""
    side = next((s for s in SIDES if name.startswith(f"{s}_")), "")
    rest = name[len(side) + 1 :] if side else name
    for ending in sorted(ENDINGS, key=len, reverse=True):
        base = rest.removesuffix(ending)
        if rest.endswith(ending) and base in METRICS:
            found = METRICS[base]
            if side and (side in ONE_MODALITY) == (found.group != BETWEEN):
                return replace(found, side=side, ending=ending)
    return Metric(
        name.replace("_", " "), "A number that this version has no words for.", NEITHER, OTHER, base=name
    )


def sort_key(name: str) -> tuple[int, int, int, str]:
    """Give the place of a metric in a table: by side as in a report, then as in ``METRICS``, then by ending."""
    found = describe(name)
    sides = ["image", "text", "embedding", "image_to_text", "text_to_image", "cross", ""]
    last = len(ORDER)
    ending = list(ENDINGS).index(found.ending)
    return sides.index(found.side), ORDER.get(found.base, last) if found.side else last, ending, name
