"""What a verdict means, and what it does not say, in plain words."""

from __future__ import annotations

from collections.abc import Mapping

SUBJECTS = {
    "image": "Pictures",
    "text": "Captions",
    "embedding": "Embeddings",
    "cross_modal": "Pictures against captions",
}
"""What a verdict is on, as a heading; the keys are those of a report's verdicts."""

MEANING: Mapping[str, str] = {
    "bag of concepts": "An embedding tells which values a scene shows, such as red, blue, circle and square, but not "
    "which of them belong together: a red circle and a blue square look like a blue circle and a red square.",
    "simple binding": "An embedding tells which values belong together, and a simple rule captures how: fitted to some "
    "objects, it carries over to most objects that it was not fitted to.",
    "memorised objects": "An embedding tells which values belong together, but no simple rule was found that carries "
    "over from some objects to others, though planted ones were: as if every object had an entry of its own.",
    "undetermined": "The measurements do not decide how values are bound.",
}
BETWEEN: Mapping[str, str] = {
    "binds": "Pictures and captions are matched by which values belong together, not only by which values there are.",
    "bag of concepts": "Of two captions with the same values, the one in which they belong together as in the picture "
    "is nearer no more often than by the toss of a coin; so, too, for two pictures and a caption.",
    "anti-binding": "The caption with the same values on the wrong objects is preferred: not blindness, which would be "
    "right half the time, but a pull the wrong way.",
    "undetermined": "The measurements do not decide whether captions are matched by which values belong together.",
}

LIMITS: Mapping[str, str] = {
    "bag of concepts": "That no way of reading these embeddings could find objects: objects were sought by scores that "
    "are linear in the embedding.",
    "simple binding": "That the encoder computes this rule inside, or that it uses what it holds: another modality, or "
    "a task, may fail to read it.",
    "memorised objects": "That the encoder keeps a table: only that the simple functions tried here, which find "
    "planted rules, found none.",
    "undetermined": "That the encoder does not bind: more scenes, more objects or a larger preset may decide.",
}
BETWEEN_LIMITS: Mapping[str, str] = {
    "binds": "That every caption is matched rightly: only that more are than by chance; the table says how many.",
    "bag of concepts": "That binding is missing inside the pictures' or the captions' own embeddings: those are "
    "measured apart.",
    "anti-binding": "Why it is so: this report does not look at what the encoder was trained on.",
    "undetermined": "That pictures and captions do not bind: more scenes may decide.",
}
ALWAYS = (
    "How the encoder fares on other data. These scenes have few concepts, each with a few values; photographs have "
    "many more.",
    "Which encoder is better for a task that needs no binding, such as naming a single object.",
)
"""Limits of any verdict."""


def meaning(subject: str, verdict: str) -> str:
    """Say in one or two sentences what a verdict means; "" for a verdict that is not known."""
    return (BETWEEN if subject == "cross_modal" else MEANING).get(verdict, "")


def limits(verdicts: Mapping[str, str]) -> list[str]:
    """List what the verdicts of a report do not say, each once."""
    own = [
        (BETWEEN_LIMITS if subject == "cross_modal" else LIMITS).get(verdict, "")
        for subject, verdict in verdicts.items()
    ]
    return [*dict.fromkeys(text for text in own if text), *ALWAYS]
