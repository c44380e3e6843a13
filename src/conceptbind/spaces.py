"""The concept spaces of the paper (section 4 of our summary of it)."""

from __future__ import annotations

from conceptbind.scenes import ConceptSpace

CAPTIONS_20 = ConceptSpace(
    ("attribute", "noun"),
    (
        tuple(
            "red blue green yellow purple orange pink brown gray black "
            "small large tiny round sharp rough bumpy smooth matte glossy".split()
        ),
        tuple(
            "circle square triangle star heart spiral sphere cylinder cone pyramid "
            "car cat dog man woman tree flower rock bird fish".split()
        ),
    ),
)
"""20 attributes x 20 nouns; all 160,000 ordered pairs of its 400 objects are the caption data."""

CLEVR_COLOURS: dict[str, tuple[int, int, int]] = {
    "gray": (87, 87, 87),
    "red": (173, 35, 35),
    "blue": (42, 75, 215),
    "green": (29, 105, 20),
    "brown": (129, 74, 25),
    "purple": (129, 38, 192),
    "cyan": (41, 208, 208),
    "yellow": (255, 238, 51),
}
"""CLEVR's palette, RGB 0-255."""

CLEVR = ConceptSpace(("colour", "shape"), (tuple(CLEVR_COLOURS), ("cube", "cylinder", "sphere")))
"""8 colours x 3 solids; 576 ordered pairs."""

CLEVR_2D = ConceptSpace(("colour", "shape"), (tuple(CLEVR_COLOURS), ("square", "triangle", "circle")))
"""The same 576 label rows as CLEVR, drawn flat: 0 square, 1 triangle, 2 circle."""

POCKET = ConceptSpace(
    ("colour", "shape"),
    (tuple(CLEVR_COLOURS), ("square", "triangle", "circle", "diamond", "star", "cross")),
)
"""8 colours x 6 flat shapes, 48 objects: what the pocket CLIPs see and read."""
