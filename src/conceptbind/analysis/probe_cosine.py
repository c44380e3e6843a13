"""Do pictures and captions hold a concept, or an object, in the same direction? The cosine of probes' weights.

A linear probe is fitted to the pictures and another to the captions, with one weight vector for each value of a concept
or for each object. From the vectors of a head their mean is taken away, which changes no decision of a probe. The
cosine between the two modalities' vectors of one class, averaged over classes, is 1 where one probe serves both, about
0 where neither says anything about the other (LABCLIP, arXiv 2502.03566, reports .20 for CLIP on CLEVR).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from conceptbind.analysis.probing import OBJECTS, select_l2
from conceptbind.analysis.recognition import head_labels, heads
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.probes import fit_probes

N_PERMUTATIONS = 1000


@dataclass(frozen=True)
class ProbeCosine:
    """Hold the cosine of one head, between -1 and 1."""

    head: str
    """A concept's name, or "objects"."""
    cosine: float
    """Mean over the classes that both sets show."""
    permuted: float
    """The same with the classes of one modality permuted, averaged over all permutations."""
    permuted_low: float
    """Lower end of the middle 95 % of the permutations. With fewer than five classes that includes the right one."""
    permuted_high: float
    n_classes: int

    def as_dict(self) -> dict[str, Any]:
        """Give the fields as a dictionary for a table row or JSON."""
        return asdict(self)


def probe_cosine(
    images: EmbeddingSet,
    texts: EmbeddingSet,
    *,
    l2: float | None = None,
    tol: float = 1e-3,
    seed: int = 0,
) -> dict[str, ProbeCosine]:
    """Compare the probes of pictures with those of captions, for every concept and the objects, by head.

    The sets may hold different scenes. ``l2``: the penalty of both probes; None chooses one for each modality and head
    by recognition on validation scenes. ``tol``: as in :func:`conceptbind.kernels.probes.fit_probes`.
    Raises ValueError for sets of different spaces or lengths, or when a head has fewer than two classes that both show.
    """
    space = images.space
    if texts.space != space:
        raise ValueError("images and texts must be of one concept space: build them from the same one")
    if images.dim != texts.dim:
        raise ValueError(
            f"images have {images.dim} dimensions, texts {texts.dim}: weights of different lengths have no cosine"
        )
    weights = [_weights(e, l2, tol, seed) for e in (images, texts)]
    shown = [head_labels(space, e.scenes) for e in (images, texts)]
    found = {}
    for k, (name, part) in enumerate(zip((*space.concepts, OBJECTS), heads(space), strict=True)):
        seen = [torch.zeros(part.stop - part.start, dtype=torch.bool) for _ in shown]
        for marks, labels in zip(seen, shown, strict=True):
            marks[labels[..., k].flatten()] = True
        both = seen[0] & seen[1]
        if int(both.sum()) < 2:
            raise ValueError(
                f"{name!r}: pictures and captions have {int(both.sum())} values in common, a probe needs 2 or more"
            )
        found[name] = weight_cosine(*(w[:, part][:, both].T for w in weights), head=name, seed=seed)
    return found


def weight_cosine(
    a: Float[Tensor, "class dim"], b: Float[Tensor, "class dim"], *, head: str, seed: int = 0
) -> ProbeCosine:
    """Compare two sets of class vectors, each with its mean taken away; a vector of zeros has cosine 0.

    mean_c cos(a_c - mean a, b_c - mean b). The mean over all permutations p of the classes of cos(a_c, b_p(c)) is the
    mean over all pairs of classes. ``seed``: draws the permutations whose middle 95 % is given.
    """
    a, b = (torch.nn.functional.normalize(w.double() - w.double().mean(0), dim=1) for w in (a, b))
    cosines = (a @ b.T).cpu()
    n = len(cosines)
    generator = torch.Generator().manual_seed(seed)
    permuted = torch.rand(N_PERMUTATIONS, n, generator=generator).argsort(1)
    means = cosines[torch.arange(n), permuted].mean(1)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return ProbeCosine(head, float(cosines.diagonal().mean()), float(cosines.mean()), low, high, n)


def _weights(data: EmbeddingSet, l2: float | None, tol: float, seed: int) -> Float[Tensor, "dim class"]:
    x, scenes, space = data.embeddings, data.scenes, data.space
    every = torch.ones(1, len(x), dtype=torch.bool)
    sizes = tuple(h.stop - h.start for h in heads(space))
    penalty = select_l2(x, space, scenes, every, seeds=(seed,), tol=tol) if l2 is None else l2
    return fit_probes(x, head_labels(space, scenes), sizes, every, l2=penalty, tol=tol).weight[0]
