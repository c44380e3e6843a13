"""Do pictures and captions hold a concept, or an object, in the same direction? The cosine of probes' weights.

A linear probe is fitted to the pictures and another to the captions, with one weight vector for each value of a concept
or for each object. From the vectors of a head their mean is taken away, which changes no decision of a probe. The
cosine between the two modalities' vectors of one class, averaged over classes, is 1 where one probe serves both, about
0 where neither says anything about the other (LABCLIP, arXiv 2502.03566, reports .20 for CLIP on CLEVR).

The number is one of the probes as much as of the embeddings: a small penalty lets a probe use directions of small
variance, which are a modality's own or noise; a large one leaves the differences of the class means. For one small
image-text model we measured anything from .0 to .98 on the same embeddings. So both modalities get one and the same
penalty, it stands in every row, and beside the cosine stands what it is within a modality, between probes fitted to two
halves of the scenes: no more can be asked for between modalities. Compare numbers of one penalty only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from conceptbind.analysis.probing import OBJECTS
from conceptbind.analysis.recognition import head_labels, heads
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.probes import fit_probes
from conceptbind.scenes import scene_split

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
    images: float
    """The cosine between probes of two random halves of the pictures."""
    texts: float
    """The cosine between probes of two random halves of the captions."""
    n_classes: int
    l2: float

    def as_dict(self) -> dict[str, Any]:
        """Give the fields as a dictionary for a table row or JSON."""
        return asdict(self)


def probe_cosine(
    images: EmbeddingSet,
    texts: EmbeddingSet,
    *,
    l2: float = 1e-2,
    tol: float = 1e-3,
    seed: int = 0,
) -> dict[str, ProbeCosine]:
    """Compare the probes of pictures with those of captions, for every concept and the objects, by head.

    The sets may hold different scenes. ``l2``: the penalty of all probes, above 0; see the top of this module. ``tol``:
    as in :func:`conceptbind.kernels.probes.fit_probes`. ``seed``: draws the halves and the permutations.
    Raises ValueError for sets of different spaces or lengths, fewer than two scenes in one, or
    a head of which both show fewer than two classes.
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
        whole = [w[0, :, part][:, both].T for w in weights]
        within = [
            class_cosines(*(w[i, :, part][:, both].T for i in (1, 2))).diagonal().mean() for w in weights
        ]
        cosines = class_cosines(*whole)
        permuted = _permuted(cosines, seed)
        found[name] = ProbeCosine(
            head=name,
            cosine=float(cosines.diagonal().mean()),
            permuted=float(cosines.mean()),
            permuted_low=permuted[0],
            permuted_high=permuted[1],
            images=float(within[0]),
            texts=float(within[1]),
            n_classes=len(cosines),
            l2=l2,
        )
    return found


def class_cosines(
    a: Float[Tensor, "class dim"], b: Float[Tensor, "class dim"]
) -> Float[Tensor, "class class"]:
    """Give cos(a_i - mean a, b_j - mean b) for every pair of classes; 0 for a vector that is the mean."""
    a, b = (torch.nn.functional.normalize(w.double() - w.double().mean(0), dim=1) for w in (a, b))
    return a @ b.T


def _permuted(cosines: Float[Tensor, "class class"], seed: int) -> tuple[float, float]:
    """Give the middle 95 % of mean_c cos(a_c, b_p(c)) over random permutations p; its mean is that of all pairs."""
    n = len(cosines)
    orders = torch.rand(N_PERMUTATIONS, n, generator=torch.Generator().manual_seed(seed)).argsort(1)
    means = cosines.cpu()[torch.arange(n), orders].mean(1)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def _weights(data: EmbeddingSet, l2: float, tol: float, seed: int) -> Float[Tensor, "fit dim class"]:
    """Fit to all scenes, to one half and to the other."""
    half = scene_split(data.n_scenes, train_fraction=0.5, seed=seed)
    masks = torch.stack([torch.ones_like(half), half, ~half])
    sizes = tuple(h.stop - h.start for h in heads(data.space))
    labels = head_labels(data.space, data.scenes)
    return fit_probes(data.embeddings, labels, sizes, masks, l2=l2, tol=tol).weight
