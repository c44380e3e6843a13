"""Encoders against torch.nn and plain formulas, the loss against plain loops, gradients against autograd."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from conceptbind.kernels import object_sums, transformer
from conceptbind.training import gradients
from conceptbind.training.config import TrainingConfig
from conceptbind.training.data import Data
from conceptbind.training.gradients import loss_and_gradients, query_gradients
from conceptbind.training.loss import caption_loss, log_total, query_loss, soft_cross_entropy
from conceptbind.training.models import LOG_SCALE, encode, encode_values, initialise, shape_of

SMALL = TrainingConfig(
    sizes=(5, 4), coverage=0.6, batch=24, width=8, n_heads=2, feed_forward=12, dim=6, dtype="float64"
)
ARCHITECTURES = [
    {"tokens": "paper"},
    {"tokens": "compact"},
    {"tokens": "paper", "depth": 1},
    {"tokens": "compact", "depth": 1, "n_objects": 3},
    {"architecture": "objects", "depth": 3},
    {"architecture": "additive"},
    {"architecture": "product"},
    {"architecture": "product", "query_architecture": "transformer"},
]


def label(settings):
    return " ".join(map(str, settings.values()))


def weights_of(configs, seed=0):
    """Draw weights, the biases too, which start at zero."""
    g = torch.Generator().manual_seed(seed)
    return {n: w + 0.1 * torch.randn(w.shape, generator=g).to(w) for n, w in initialise(configs).items()}


def scenes_of(config, n=7, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(v, (n, config.n_objects), generator=g) for v in config.sizes], 2)


def torch_encoder(shape, weights, tokens, positions):
    """The same transformer by torch.nn, for one model."""
    layer = nn.TransformerEncoderLayer(
        shape.width, shape.n_heads, shape.feed_forward, 0.0, "gelu", batch_first=True, norm_first=True
    )
    blocks = nn.TransformerEncoder(layer, shape.depth, enable_nested_tensor=False).double()
    with torch.no_grad():
        for i, block in enumerate(blocks.layers):
            block.self_attn.in_proj_weight.copy_(weights[f"A{i}"].T)
            block.self_attn.in_proj_bias.copy_(weights[f"a{i}"][0])
            for name, linear in (("O", block.self_attn.out_proj), ("F", block.linear1), ("G", block.linear2)):
                linear.weight.copy_(weights[f"{name}{i}"].T)
                linear.bias.copy_(weights[f"{name.lower()}{i}"][0])
        x = blocks(weights["E"][tokens] + weights["P"][positions])
        pooled = x[:, -1] if shape.pool == "last" else x.mean(1)
        return nn.functional.layer_norm(pooled, pooled.shape[-1:]) @ weights["C"] + weights["c"]


@pytest.mark.parametrize("pool", ["last", "mean"])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_transformer_is_torchs(depth, pool):
    shape = transformer.Transformer(9, 5, 8, depth, 2, 12, 6, pool)
    gs = [torch.Generator().manual_seed(s) for s in range(2)]
    drawn = transformer.initialise(shape, gs, linear_scales=[1.0, 2.0], embedding_scales=[1.0, 0.5])
    weights = {n: (w + 0.1).double() for n, w in drawn.items()}
    tokens = torch.randint(9, (2, 7, 5), generator=gs[0])
    found = transformer.apply(shape, weights, tokens, torch.arange(5))
    for m in range(2):
        of_model = {n: w[m] for n, w in weights.items()}
        torch.testing.assert_close(found[m], torch_encoder(shape, of_model, tokens[m], torch.arange(5)))


def test_weights_have_the_scales_asked_for():
    shape = transformer.Transformer(400, 300, 64, 1, 4, 256, 32, "mean")
    gs = [torch.Generator().manual_seed(s) for s in range(2)]
    drawn = transformer.initialise(shape, gs, linear_scales=[2.0, 0.5], embedding_scales=[1.0, 0.1])
    for m, (linear, embedding) in enumerate(((2.0, 1.0), (0.5, 0.1))):
        assert float(drawn["E"][m].std()) == pytest.approx(embedding, rel=0.05)
        assert float(drawn["F0"][m].std()) == pytest.approx(linear / 8, rel=0.05)
        assert float(drawn["G0"][m].std()) == pytest.approx(linear / 16, rel=0.05)
    assert not drawn["f0"].any()


@pytest.mark.parametrize("tokens", ["paper", "compact"])
def test_scenes_and_queries_are_written_as_the_tokens_of_the_definition(tokens):
    config = replace(SMALL, tokens=tokens)
    weights = weights_of([config])
    scenes = scenes_of(config)
    for side, given in (("scene", scenes), ("query", scenes[:, :1])):
        shape = shape_of(config, side)
        one = {n.removeprefix(f"{side}."): w[0] for n, w in weights.items() if n.startswith(side)}
        rows = []
        for scene in given.tolist():
            row = []
            for colour, form in scene:
                row += [9, colour, 5 + form, 10] if tokens == "paper" else [colour, 5 + form]
            rows.append([*row, 11] if tokens == "paper" else row)
        positions = torch.arange(len(rows[0]))
        expected = torch_encoder(shape, one, torch.tensor(rows), positions)
        torch.testing.assert_close(encode(config, weights, side, given[None])[0], expected)
    expected = []
    for value in range(9):
        row, places = ([value, 11], [0, 1]) if tokens == "paper" else ([value], [int(value >= 5)])
        expected.append(torch_encoder(shape, one, torch.tensor([row]), torch.tensor(places))[0])
    torch.testing.assert_close(encode_values(config, weights)[0], torch.stack(expected))


def test_slots_start_with_positions_of_their_own_that_differ_little_within():
    config = replace(SMALL, n_objects=3, width=256)
    positions = initialise([config])["scene.P"][0].view(3, 2, 256)
    assert float((positions[:, 0] - positions[:, 1]).std()) == pytest.approx(0.1 * 2**0.5, rel=0.1)
    assert float(positions[:, 0].std()) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("kind", ["objects", "additive", "product"])
def test_sums_over_objects_are_their_formulas(kind):
    shape = object_sums.ObjectSum(kind, (5, 4), 8, 2, 12, 6)
    gs = [torch.Generator().manual_seed(s) for s in range(2)]
    drawn = object_sums.initialise(shape, gs, linear_scales=[1.0, 2.0], embedding_scales=[1.0, 0.5])
    weights = {n: (w + 0.1).double() for n, w in drawn.items()}
    scenes = scenes_of(SMALL)
    found = object_sums.apply(shape, weights, (scenes + torch.tensor([0, 5])).expand(2, -1, -1, -1))
    alone = object_sums.apply_to_values(shape, weights)
    for m in range(2):
        w = {n: x[m] for n, x in weights.items()}

        def perceptron(parts, w=w):
            """``parts``: pairs of a value and its concept."""
            first = sum(w["E"][v] @ w["W0"][8 * k : 8 * k + 8] for v, k in parts)
            hidden = torch.relu(first + w["b0"][0])
            return torch.relu(hidden @ w["W1"] + w["b1"][0]) @ w["G"] + w["g"][0]

        for scene, z in zip(scenes.tolist(), found[m], strict=True):
            total = torch.zeros(6, dtype=torch.float64)
            for a, b in scene:
                if kind == "objects":
                    total += perceptron([(a, 0), (5 + b, 1)])
                else:
                    total += w["U"][a] + w["U"][5 + b]
                if kind == "product":
                    total += (w["F"][a] * w["F"][5 + b]) @ w["C"]
            torch.testing.assert_close(z, total)
        for value in range(9):
            expected = perceptron([(value, int(value >= 5))]) if kind == "objects" else w["U"][value]
            torch.testing.assert_close(alone[m, value], expected)


@pytest.mark.parametrize("settings", ARCHITECTURES, ids=label)
def test_models_together_are_models_alone(settings):
    config = replace(SMALL, **settings)
    configs = [replace(config, seed=s, coverage=0.6 - 0.1 * s, temperature=0.1 + s) for s in range(3)]
    weights = {n: w.requires_grad_() for n, w in initialise(configs).items()}
    loss, found = loss_and_gradients(config, weights, Data(configs), 1)
    for m, c in enumerate(configs):
        one = {n: w.requires_grad_() for n, w in initialise([c]).items()}
        for name, w in one.items():
            assert torch.equal(w[0], weights[name][m])
        of_one, gradient = loss_and_gradients(c, one, Data([c]), 1)
        torch.testing.assert_close(of_one[0], loss[m])
        for name, g in gradient.items():
            torch.testing.assert_close(g[0], found[name][m])


def test_only_the_scene_encoder_of_a_transformer_sees_the_order_of_objects():
    for settings in ARCHITECTURES:
        config = replace(SMALL, **settings)
        scenes = scenes_of(config)[None]
        weights = weights_of([config])
        a, b = (encode(config, weights, "scene", s) for s in (scenes, scenes.flip(2)))
        assert torch.allclose(a, b) == (config.architecture != "transformer")


def test_an_additive_encoder_cannot_tell_swapped_values():
    config = replace(SMALL, architecture="additive")
    scenes, weights = scenes_of(config)[None], weights_of([config])
    swapped = scenes.clone()
    swapped[..., 0] = scenes[..., 0].flip(2)
    a, b = (encode(config, weights, "scene", s) for s in (scenes, swapped))
    torch.testing.assert_close(a, b)
    config = replace(config, architecture="product")
    weights = weights_of([config])
    a, b = (encode(config, weights, "scene", s) for s in (scenes, swapped))
    assert not torch.allclose(a, b)


# ---- the loss


def cosine(a, b):
    return float(a @ b / (a.norm() * b.norm()))


@pytest.mark.parametrize("settings", [{}, {"object_queries": 6}, {"held_out_negatives": True}], ids=label)
def test_the_query_loss_is_its_definition(settings):
    config = replace(SMALL, concept_weight=0.7, **settings)
    weights, data = weights_of([config]), Data([config])
    batch = data.query_batch(0)
    sharp = min(math.exp(float(weights[LOG_SCALE])), 100)
    asked = [int(o) for o, a in zip(batch.objects[0], batch.asked[0], strict=True) if a]
    queries = encode(
        config, weights, "query", config.space.objects_from_index(torch.tensor([asked])).unsqueeze(2)
    )
    values, z = encode_values(config, weights)[0], encode(config, weights, "scene", batch.scenes)[0]
    of_objects, of_values = [], []
    for embedding, scene in zip(z, batch.scenes[0], strict=True):
        own = {int(config.space.object_index(o)) for o in scene}
        scores = [sharp * cosine(embedding, q) for q in queries[0]]
        true = [s for s, o in zip(scores, asked, strict=True) if o in own]
        if true:
            of_objects.append(math.log(sum(map(math.exp, scores))) - sum(true) / len(true))
        shown = {int(a) for a, _ in scene} | {5 + int(b) for _, b in scene}
        scores = [sharp * cosine(embedding, q) for q in values]
        of_values.append(math.log(sum(map(math.exp, scores))) - sum(scores[v] for v in shown) / len(shown))
    expected = sum(of_objects) / len(of_objects) + 0.7 * sum(of_values) / len(of_values)
    assert float(query_loss(config, weights, batch, data)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("order", ["scene", "random"])
def test_the_caption_loss_is_its_definition(order):
    # few objects, so that some captions are true of several scenes; in order, enough that some exchange is asked
    sizes, coverage = ((2, 2), 0.75) if order == "random" else ((3, 3), 0.9)
    config = replace(
        SMALL,
        form="clip",
        sizes=sizes,
        coverage=coverage,
        single_share=0.5,
        batch=12,
        caption_order=order,
    )
    weights = weights_of([config])
    batch = Data([config]).caption_batch(0)
    sharp = min(math.exp(float(weights[LOG_SCALE])), 100)

    def written(scenes):
        rows = [tuple(map(tuple, s)) for s in scenes[0].tolist()]
        return [tuple(sorted(r)) for r in rows] if order == "random" else rows

    def embedded(side, *parts):
        return torch.cat([encode(config, weights, side, p)[0] for p in parts])

    images, texts = (
        embedded("scene", batch.singles, batch.scenes),
        embedded("query", batch.singles, batch.captions),
    )
    shown = written(batch.singles) + written(batch.scenes)
    named = written(batch.singles) + written(batch.captions)
    swaps = [i for i in range(batch.swapped.shape[1]) if bool(batch.asked[0, i])]
    assert 0 < len(swaps) < 6
    choices = torch.cat([texts, embedded("query", batch.swapped)[swaps]])
    of_choices = named + [written(batch.swapped)[i] for i in swaps]

    def mean_loss(rows, columns, of_rows, of_columns):
        losses = []
        for a, own in zip(rows, of_rows, strict=True):
            scores = [sharp * cosine(a, b) for b in columns]
            true = [s for s, other in zip(scores, of_columns, strict=True) if own == other]
            losses.append(math.log(sum(map(math.exp, scores))) - sum(true) / len(true))
        return sum(losses) / len(losses)

    expected = (mean_loss(images, choices, shown, of_choices) + mean_loss(texts, images, named, shown)) / 2
    assert float(caption_loss(config, weights, batch)) == pytest.approx(expected, rel=1e-9)


def test_sure_scores_reach_the_entropy_of_the_soft_targets():
    true = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 1], [1, 1, 0, 1]]).bool()
    loss = soft_cross_entropy(torch.where(true, 100.0, 0.0).double()[None], true[None])
    torch.testing.assert_close(loss[0], torch.tensor([2.0, 1.0, 3.0]).double().log())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_that_add_nothing_are_left_out_of_the_total(dtype):
    g = torch.Generator().manual_seed(0)
    # cosines of 1 and about 0, at the lowest temperature: probabilities of e^-87 to e^-103 are subnormal in float32
    scores = 100 * torch.cat([torch.ones(1, 4, 1), 0.1 * torch.randn(1, 4, 300, generator=g)], 2).to(dtype)
    scores[:, 3] = torch.randn(301, generator=g)
    scores.requires_grad_()
    torch.testing.assert_close(log_total(scores), scores.logsumexp(-1), rtol=torch.finfo(dtype).eps, atol=0)
    (found,) = torch.autograd.grad(log_total(scores).sum(), scores)
    torch.testing.assert_close(found, scores.softmax(-1), rtol=1e-5, atol=torch.finfo(dtype).eps ** 2)
    assert float(found[found > 0].min()) > torch.finfo(dtype).eps ** 2 / 400


@pytest.mark.parametrize(
    "settings", [*ARCHITECTURES, {"object_queries": 6}, {"concept_weight": 0.0}], ids=label
)
def test_gradients_in_parts_are_those_of_the_whole_loss(settings, monkeypatch):
    config = replace(SMALL, **settings)
    configs = [config, replace(config, seed=1)]
    weights = {n: w.requires_grad_() for n, w in weights_of(configs).items()}
    data = Data(configs)
    batch = data.query_batch(0)
    whole = query_loss(config, weights, batch, data)
    expected = torch.autograd.grad(whole.sum(), list(weights.values()), materialize_grads=True)
    for size in (200, 2000, 10**9):
        monkeypatch.setitem(gradients.PART, "cpu", size)
        loss, found = query_gradients(config, weights, batch, data)
        torch.testing.assert_close(loss, whole.detach())
        assert list(found) == list(weights)
        for name, gradient in zip(weights, expected, strict=True):
            torch.testing.assert_close(found[name], gradient)


def test_bfloat16_is_close_to_float32_and_keeps_the_types_of_weights():
    config = replace(SMALL, dtype="float32")
    weights = {n: w.requires_grad_() for n, w in initialise([config]).items()}
    loss, _ = loss_and_gradients(config, weights, Data([config]), 0)
    low = replace(config, dtype="bfloat16")
    rough, found = loss_and_gradients(low, weights, Data([low]), 0)
    assert float(rough) == pytest.approx(float(loss), rel=0.02)
    assert float(rough) != float(loss)
    assert {g.dtype for g in found.values()} == {torch.float32}


def test_in_bfloat16_gradients_of_many_parts_are_added_up_in_float32(monkeypatch):
    config = replace(SMALL, dtype="bfloat16", batch=256)
    weights = {n: w.requires_grad_() for n, w in initialise([config]).items()}
    data, found = Data([config]), {}
    for n_parts in (1, 256):
        monkeypatch.setitem(gradients.PART, "cpu", 10**9 if n_parts == 1 else 1)
        found[n_parts] = loss_and_gradients(config, weights, data, 0)[1]
    for name, whole in found[1].items():
        if name.startswith("query."):
            assert float((found[256][name] - whole).norm()) < 0.01 * float(whole.norm())
