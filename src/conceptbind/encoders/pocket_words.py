"""The word-level vocabulary of the pocket CLIPs: the words of POCKET's captions, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from conceptbind.encoders.base import EncoderError
from conceptbind.spaces import POCKET

CONTEXT = 16
"""Tokens a text may have, start and end included: captions of up to three objects."""

WORDS: tuple[str, ...] = ("a", "and", *POCKET.values[0], *POCKET.values[1])
"""Every word the pocket CLIPs know, in the order of their tokens."""

# open_clip reads the embedding of a text at its highest token, so the end comes last.
PAD, START = 0, 1
END = START + len(WORDS) + 1
VOCABULARY_SIZE = END + 1

_TOKENS = {word: START + 1 + i for i, word in enumerate(WORDS)}


def tokenise(texts: Sequence[str]) -> Int[Tensor, "text context"]:
    """Turn texts into rows of tokens: start, one token a word, end, then padding.

    Raises EncoderError for a word that is not in ``WORDS``, a text without words, or one of more than 14 words.
    """
    rows = torch.full((len(texts), CONTEXT), PAD)
    for row, text in zip(rows, texts, strict=True):
        words = text.lower().split()
        unknown = [word for word in dict.fromkeys(words) if word not in _TOKENS]
        if unknown:
            raise EncoderError(
                f"the pocket CLIP does not know {', '.join(map(repr, unknown))} in {text[:80]!r}; it reads "
                f"{', '.join(WORDS)} and no other word: write captions with conceptbind.scenes.captions(POCKET, scenes)"
            )
        if not 1 <= len(words) <= CONTEXT - 2:
            raise EncoderError(
                f"the pocket CLIP reads 1 to {CONTEXT - 2} words, up to three objects; got {len(words)} in "
                f"{text[:80]!r}"
            )
        row[: len(words) + 2] = torch.tensor([START, *(_TOKENS[word] for word in words), END])
    return rows


def words(tokens: Int[Tensor, "text context"]) -> list[str]:
    """Turn rows of tokens back into texts. Raises ValueError for a row that :func:`tokenise` does not write."""
    texts = []
    for row in tokens.tolist():
        end = row.index(END) if END in row else 0
        if row[0] != START or end < 2 or any(row[end + 1 :]) or not all(START < t < END for t in row[1:end]):
            raise ValueError(
                f"tokens must be start ({START}), words, end ({END}) and padding ({PAD}); got {row}"
            )
        texts.append(" ".join(WORDS[token - START - 1] for token in row[1:end]))
    return texts
