"""Variations of an untrained text encoder: what is changed, what is not, and how additive captions come out."""

import json
import math

import open_clip
import pytest
import torch
from safetensors.torch import save_file

from conceptbind.analysis.untrained import (
    ONE_OR_TWO,
    ONE_TOKEN,
    TWO_TOKENS,
    VARIANTS,
    Variant,
    grid_sizes,
    untrained_variants,
    words,
)
from conceptbind.embeddings import encode_captions
from conceptbind.encoders import EncoderError, load
from conceptbind.encoders.variations import Variation, vary_untrained
from conceptbind.scenes import factorial_scenes
from conceptbind.spaces import CAPTIONS_20

TINY = "cb-varied"
TEXTS = ["a red circle and a blue square", "a blue circle and a red square", "a cat"]
CONFIG = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 48, "heads": 2, "layers": 3},
}


@pytest.fixture(scope="module", autouse=True)
def _tiny_architecture(tmp_path_factory):
    folder = tmp_path_factory.mktemp("configs")
    (folder / f"{TINY}.json").write_text(json.dumps(CONFIG))
    open_clip.add_model_config(folder)
    yield
    open_clip.factory._MODEL_CONFIG_PATHS.remove(folder)
    open_clip.factory._MODEL_CONFIGS.pop(TINY)


@pytest.fixture(scope="module")
def tiny(_tiny_architecture):
    return load(f"random:{TINY}", device="cpu")


def changed(tiny, variation, seed=0):
    """Give the weights that a variation changed, by name: before and after."""
    before = tiny.model.state_dict()
    after = vary_untrained(tiny, variation, seed=seed).model.state_dict()
    assert after.keys() <= before.keys()
    return {n: (before[n], after[n]) for n in after if not torch.equal(before[n], after[n])}


def test_nothing_changed_is_the_same_encoder_for_texts(tiny):
    same = vary_untrained(tiny, Variation(), seed=1)
    assert torch.equal(same.encode_texts(TEXTS), tiny.encode_texts(TEXTS))
    assert same.provenance["weights_sha256"] == tiny.provenance["weights_sha256"]
    with pytest.raises(EncoderError, match="encodes texts only"):
        same.encode_images(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))


def test_scales_multiply_what_they_name_and_nothing_else(tiny):
    n_blocks, width = 3, 48
    found = changed(tiny, Variation(weight_scale=2.0))
    assert len(found) == 4 * n_blocks
    assert all(torch.equal(after, 2 * before) for before, after in found.values())
    found = changed(tiny, Variation(query_key_scale=3.0))
    assert len(found) == n_blocks
    for before, after in found.values():
        assert torch.equal(after[: 2 * width], 3 * before[: 2 * width])
        assert torch.equal(after[2 * width :], before[2 * width :])
    assert changed(tiny, Variation(token_scale=2.0)).keys() == {"token_embedding.weight"}
    ((before, after),) = changed(tiny, Variation(position_scale=0.5)).values()
    assert torch.equal(after, before / 2)


def test_gains_and_biases_are_drawn_as_said(tiny):
    found = changed(tiny, Variation(gain_scale=2.0, gain_spread=0.5))
    assert len(found) == 2 * 3 + 1
    logs = torch.cat([after.log() for _, after in found.values()])
    assert logs.mean() == pytest.approx(math.log(2), abs=0.1)
    assert logs.std() == pytest.approx(0.5, rel=0.15)
    norms = changed(tiny, Variation(norm_bias_std=0.3))
    assert all(".ln_" in f".{n}" and n.endswith("bias") for n in norms)
    layers = changed(tiny, Variation(linear_bias_std=0.3))
    assert len(layers) == 4 * 3
    assert not layers.keys() & norms.keys()
    drawn = torch.cat([after for _, after in layers.values()])
    assert drawn.std() == pytest.approx(0.3, rel=0.1)
    # More spread stretches the same draws, so that a series of settings differs in nothing else.
    wider = changed(tiny, Variation(gain_scale=2.0, gain_spread=1.0, linear_bias_std=0.3))
    for name, (_, after) in found.items():
        assert torch.allclose(wider[name][1].log() - math.log(2), 2 * (after.log() - math.log(2)), atol=1e-5)


def test_the_seed_decides_and_the_encoder_stays_as_it_was(tiny):
    spread = Variation(gain_spread=1.0)
    before, state = tiny.encode_texts(TEXTS), torch.get_rng_state()
    rows = [vary_untrained(tiny, spread, seed=s).encode_texts(TEXTS) for s in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(rows[0], rows[1])
    assert not torch.allclose(rows[0], rows[2], atol=1e-3)
    assert torch.equal(tiny.encode_texts(TEXTS), before)
    assert tiny.changes() is None


def test_fewer_blocks_are_the_first_ones(tiny):
    short = vary_untrained(tiny, Variation(layers=1), seed=0)
    tokens = tiny.tokenise(TEXTS)
    m = tiny.model
    with torch.no_grad():
        x = m.token_embedding(tokens) + m.positional_embedding
        x = m.ln_final(m.transformer.resblocks[0](x, attn_mask=m.attn_mask))
        expected = x[torch.arange(3), tokens.argmax(1)] @ m.text_projection
    assert torch.allclose(short.encode_texts(TEXTS), expected, atol=1e-5)
    assert short.changes() is None
    assert len(tiny.model.transformer.resblocks) == 3
    with pytest.raises(EncoderError, match="layers must be 1 to 3"):
        vary_untrained(tiny, Variation(layers=4), seed=0)


def test_half_precision_computes_in_float16(tiny):
    half = vary_untrained(tiny, Variation(half=True), seed=0)
    assert half.model.text_projection.dtype == torch.float16
    assert half.changes() is None
    rows, exact = half.encode_texts(TEXTS), tiny.encode_texts(TEXTS)
    assert rows.dtype == torch.float32
    assert torch.equal(rows, rows.half().float())
    assert 1e-6 < (rows - exact).norm() / exact.norm() < 2e-2


def test_each_variation_is_known_and_cached_apart(tiny, tmp_path):
    space = CAPTIONS_20.subset(attribute=["red", "blue"], noun=["car"])
    scenes = factorial_scenes(space, 2)
    varied = vary_untrained(tiny, Variation(query_key_scale=8.0), seed=4)
    assert varied.provenance["variation"] == {"query_key_scale": 8}
    assert varied.provenance["variation_seed"] == 4
    assert varied.provenance["weights_sha256"] != tiny.provenance["weights_sha256"]
    rows = [
        encode_captions(e, space, scenes, cache_dir=tmp_path).embeddings for e in (tiny, varied, tiny, varied)
    ]
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2
    assert torch.equal(rows[0], rows[2])
    assert torch.equal(rows[1], rows[3])
    assert not torch.allclose(rows[0], rows[1], atol=1e-4)


def test_a_clip_lends_gains_and_biases_by_name(tiny, tmp_path):
    trained = vary_untrained(tiny, Variation(gain_spread=1.0, norm_bias_std=1.0, linear_bias_std=1.0), seed=0)
    save_file(trained.model.state_dict(), tmp_path / "trained.safetensors")
    spec = f"open_clip:{TINY}/{tmp_path}/trained.safetensors"
    theirs = trained.model.state_dict()
    found = changed(tiny, Variation(gains_of=spec, biases_of=spec))
    assert len(found) == 2 * (2 * 3 + 1) + 4 * 3
    assert all(torch.equal(after, theirs[name]) for name, (_, after) in found.items())
    only = changed(tiny, Variation(gains_of=spec))
    assert all(name.endswith("weight") for name in only)
    other = load("random:ViT-B-32", device="cpu")
    with pytest.raises(EncoderError, match="its text encoder differs"):
        vary_untrained(other, Variation(biases_of=spec), seed=0)
    with pytest.raises(EncoderError, match="give an untrained CLIP"):
        vary_untrained(load(spec, device="cpu"), Variation(), seed=0)


def test_minilm_lends_gains_and_biases_of_the_same_kind(tiny):
    spec = "sentence:all-MiniLM-L6-v2"
    weights = load(spec, device="cpu").model.state_dict()
    found = changed(tiny, Variation(gains_of=spec, biases_of=spec))
    kinds = {
        "ln_1.weight": "LayerNorm.weight",
        "ln_2.bias": "LayerNorm.bias",
        "out_proj.bias": "attention.output.dense.bias",
        "c_fc.bias": "intermediate.dense.bias",
    }
    for ours, theirs in kinds.items():
        pool = torch.cat([w for n, w in weights.items() if n.endswith(theirs)])
        for name, (_, after) in found.items():
            if name.endswith(ours):
                assert torch.isin(after, pool).all(), name
    queries, keys, values = found["transformer.resblocks.0.attn.in_proj_bias"][1].chunk(3)
    for drawn, theirs in ((queries, "query.bias"), (keys, "key.bias"), (values, "value.bias")):
        assert torch.isin(drawn, torch.cat([w for n, w in weights.items() if n.endswith(theirs)])).all()


def test_other_encoders_cannot_be_varied():
    with pytest.raises(EncoderError, match="efficientnet-lite0 cannot be varied"):
        vary_untrained(load("random:efficientnet-lite0", device="cpu"), Variation(), seed=0)


def test_rows_are_the_means_of_a_balanced_grid(tmp_path):
    n = 9
    variant = Variant("mine", "any", Variation(query_key_scale=8.0), words(3), spec=f"random:{TINY}")
    rows = untrained_variants([variant], seeds=(0, 1), device="cpu", cache_dir=tmp_path)
    json.dumps(rows, allow_nan=False)
    assert [r["seed"] for r in rows] == [0, 1]
    assert rows[0]["variation"] == {"query_key_scale": 8}
    for row in rows:
        encoder = load(f"random:{TINY}", seed=row["seed"], device="cpu")
        encoder = vary_untrained(encoder, variant.variation, seed=row["seed"])
        data = encode_captions(encoder, variant.space, factorial_scenes(variant.space, 2), cache=False)
        z = data.embeddings.double().view(n, n, -1)
        z = z - z.mean((0, 1))
        first, second = z.mean(1), z.mean(0)
        both = (first + second) / 2

        def r2(a, b, z=z):
            return 1 - float((z - a[:, None] - b).square().sum() / z.square().sum())

        assert row["n_captions"] == n * n
        assert row["r2_avg_pos"] == pytest.approx(r2(first, second), abs=1e-5)
        assert row["r2_avg"] == pytest.approx(r2(both, both), abs=1e-5)
        assert row["r2_concepts"] < row["r2_avg_pos"]


def test_parts_of_a_grid_are_grids_of_their_own(tiny, tmp_path):
    space = words(3)
    data = encode_captions(tiny, space, factorial_scenes(space, 2), cache=False)
    two, three = grid_sizes(data, (2, 3))
    smaller = Variant("two", "grid", space=words(2), spec=f"random:{TINY}")
    (alone,) = untrained_variants([smaller], seeds=(0,), device="cpu", cache_dir=tmp_path)
    for column in ("encoder", "seed", "attributes", "nouns", "n_captions"):
        assert two[column] == alone[column]
    for column in ("r2_avg", "r2_avg_pos", "r2_concepts", "concept_share"):
        assert two[column] == pytest.approx(alone[column], abs=1e-4)
    assert three["n_captions"] == 81


def test_weights_that_are_missing_leave_the_numbers_out(tmp_path):
    variant = Variant("hybrid", "any", Variation(gains_of=f"open_clip:ViT-B-32/{tmp_path}/none.pt"))
    (row,) = untrained_variants([variant], seeds=(0,), device="cpu", cache_dir=tmp_path)
    assert row["r2_avg"] is None
    assert row["missing"] == variant.variation.gains_of


def test_words_have_the_tokens_that_the_variants_say(tiny):
    def lengths(attributes):
        texts = [f"a {w} circle" for w in attributes]
        return tiny.tokenise(texts).argmax(1) - tiny.tokenise(["a circle"]).argmax(1)

    assert lengths(ONE_TOKEN.split()).tolist() == [1] * 5
    assert lengths(TWO_TOKENS.split()).tolist() == [2] * 5
    assert lengths(ONE_OR_TWO.split()).tolist() == [1, 1, 1, 2, 2]
    several = [
        w
        for w, n in zip(CAPTIONS_20.values[0], lengths(CAPTIONS_20.values[0]).tolist(), strict=True)
        if n > 1
    ]
    assert several == ["bumpy"]
    with pytest.raises(ValueError, match="there are 5 attributes"):
        words(6, ONE_TOKEN)


def test_names_of_variants_tell_them_apart():
    assert len({v.name for v in VARIANTS}) == len(VARIANTS)
    settings = {(v.spec, v.space, json.dumps(v.variation.changed(), sort_keys=True)) for v in VARIANTS}
    assert len(settings) == len(VARIANTS)
