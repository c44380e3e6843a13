"""Fixed probes agree with probe() on what they were made for, and read what a changed vector shows."""

import pytest
import torch

from conceptbind.analysis.fixed_probes import JOINT, fit_fixed_probes
from conceptbind.analysis.probing import ALL_CONCEPTS, OBJECTS, probe
from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, factorial_scenes

SPACE = ConceptSpace.of_sizes(4, 3)
SCENES = factorial_scenes(SPACE, 2)
NOISY = EmbeddingSet(
    planted_encoders(SPACE, "product", dim=32, seed=0, noise=2.0).scenes(SCENES), SCENES, SPACE
)


@pytest.fixture(scope="module")
def fixed():
    return fit_fixed_probes(NOISY)


def test_on_the_scenes_themselves_they_are_the_probes_of_probe(fixed):
    table, found = probe(NOISY, controls=False), fixed.judge(NOISY.embeddings, SCENES)
    for head in (ALL_CONCEPTS, OBJECTS):
        row = table.row(head)
        assert 0.2 < row.accuracy < 1, "hard enough to tell"
        assert found[head].accuracy == pytest.approx(row.accuracy)
        assert found[head].chance == pytest.approx(row.chance)
        assert (found[head].low, found[head].high) == pytest.approx((row.low, row.high))


def test_both_together_are_right_at_most_as_often_as_either(fixed):
    found = fixed.judge(NOISY.embeddings, SCENES)
    margins = [
        fixed.margins(fit, NOISY.embeddings, SCENES)[:, ~fixed.train[fit]] for fit in range(fixed.n_fits)
    ]
    joint = sum(float(((m[0] > 0) & (m[1] > 0)).double().mean()) for m in margins) / fixed.n_fits
    assert found[JOINT].accuracy == pytest.approx(joint)
    assert joint < min(found[ALL_CONCEPTS].accuracy, found[OBJECTS].accuracy) + 1e-9


def test_the_embedding_of_another_scene_reads_as_that_scene():
    encoders = planted_encoders(SPACE, "product", dim=64, seed=0)
    data = EmbeddingSet(encoders.scenes(SCENES), SCENES, SPACE)
    readers = fit_fixed_probes(data, seeds=(0,))
    order = torch.randperm(len(SCENES), generator=torch.Generator().manual_seed(0))
    keep = torch.ones(1, len(SCENES), dtype=torch.bool)
    assert readers.judge(data.embeddings[order], SCENES[order], keep)[JOINT].accuracy == 1
    assert readers.judge(data.embeddings[order], SCENES, keep)[JOINT].accuracy < 0.1


def test_rows_that_do_not_fit_are_named(fixed):
    with pytest.raises(ValueError, match="pass keep="):
        fixed.judge(NOISY.embeddings[:5], SCENES[:5])
    with pytest.raises(ValueError, match="keep must mark rows"):
        fixed.judge(NOISY.embeddings[:5], SCENES[:5], torch.zeros(3, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="one scene for each row"):
        fixed.margins(0, NOISY.embeddings[:5], SCENES[:4])
