"""The checks of the chapters name the likely mistake."""

import importlib
import math
import pkgutil

import pytest
import torch

from conceptbind import exercises

for module in pkgutil.iter_modules(exercises.__path__):
    importlib.import_module(f"{exercises.__name__}.{module.name}")


def twin(scenes):
    result = scenes.clone()
    result[:, 0, 0], result[:, 1, 0] = scenes[:, 1, 0], scenes[:, 0, 0]
    return result


def overwritten(scenes):
    result = scenes.clone()
    result[:, 0, 0] = result[:, 1, 0]
    result[:, 1, 0] = result[:, 0, 0]
    return result


def in_place(scenes):
    scenes[:, :, 0] = scenes[:, :, 0].flip(1)
    return scenes


def recognised(scores, present, compare=torch.gt):
    low = scores.masked_fill(~present, math.inf).amin(1)
    return compare(low, scores.masked_fill(present, -math.inf).amax(1))


def soft_targets(labels, n_classes):
    return torch.nn.functional.one_hot(labels, n_classes).double().mean(1).float()


def object_part(z, index, slot, o):
    return (z - z.mean(0))[index[:, slot] == o].mean(0)


def r_squared(z, predicted):
    return 1 - (z - predicted).square().sum() / (z - z.mean(0)).square().sum()


def cut_out(z, values):
    of_value = torch.nn.functional.one_hot(values).float()
    return z - (of_value @ torch.linalg.lstsq(of_value, z - z.mean(0)).solution)


def colours_through_objects(scores, n_colours, n_shapes, over=torch.amax):
    return over(scores.unflatten(1, (n_colours, n_shapes)), 2)


def edit_vector(parts, before, after):
    return sum(parts[i][after[:, i]] - parts[i][before[:, i]] for i in range(2))


def best_other(similar, target, fill=-math.inf):
    return similar.scatter(1, target[:, None], fill).amax(1)


def own(similar, target):
    return similar.gather(1, target[:, None])[:, 0]


def stable_share(z):
    return z.shape[1] * (z.mean(1) - z.mean((0, 1))).square().sum() / (z - z.mean(0)).square().sum()


def contrastive_loss(scores, present, own=torch.Tensor.mean):
    total = scores.logsumexp(1)
    return torch.stack([total[i] - own(scores[i][present[i]]) for i in range(len(scores))]).mean()


def log_of_summed_exp(true_scores):
    return true_scores.logsumexp(0)


def without_true(scores, present):
    total = scores.masked_fill(present, -math.inf).logsumexp(1)
    return (total - (scores * present).sum(1) / present.sum(1)).mean()


def without_directions(z, directions):
    return z - (directions.T @ torch.linalg.lstsq(directions.T, z.T).solution).T


def one_after_the_other(z, directions):
    left = z.clone()
    for d in directions:
        left -= (z @ d)[:, None] * d / (d @ d)
    return left


def in_turn(z, directions):
    for d in directions:
        z = z - (z @ d)[:, None] * d / (d @ d)
    return z


def chooses_right(pictures, own, twin, compare=torch.gt):
    cosine = torch.nn.functional.cosine_similarity
    return compare(cosine(pictures, own), cosine(pictures, twin))


def quad_parts(scores):
    (a, b), (c, d) = scores[:, 0].T, scores[:, 1].T
    return (a > b) & (d > c), (a > c) & (d > b)


def ridge_repair(x, t, strength, towards=1.0):
    eye = torch.eye(t.shape[1], dtype=t.dtype)
    return torch.linalg.solve(t.T @ t + strength * eye, t.T @ x + towards * strength * eye).T


def product_of_words(texts, join=torch.mul):
    def vector(word):
        generator = torch.Generator().manual_seed(sum(ord(c) * 31**i for i, c in enumerate(word)) % 2**31)
        return torch.randn(8, generator=generator) + 3

    rows = []
    for text in texts:
        objects = [phrase.split()[-2:] for phrase in text.split(" and ")]
        rows.append(sum(join(vector(a), vector(b)) for a, b in objects))
    return torch.stack(rows)


RIGHT = [
    ("cut_out", cut_out),
    ("colours_through_objects", colours_through_objects),
    ("twin", twin),
    ("recognised", recognised),
    ("share_recognised", lambda a, b: 1 - (1 - 1 / a) * (1 - 1 / b)),
    ("chance", lambda v, p: 1 / math.comb(v, p)),
    ("soft_targets", soft_targets),
    ("object_part", object_part),
    ("r_squared", r_squared),
    ("free_r_squared", lambda o, m, n: m * (o - 1) / (n - 1)),
    ("edit_vector", edit_vector),
    ("strictly_nearest", lambda s, t: own(s, t) > best_other(s, t)),
    ("stable_share", stable_share),
    ("missing_corner", lambda red_square, blue_circle, blue_square: red_square * blue_circle / blue_square),
    ("share_of_scenes", lambda n, t, m: math.prod((t - i) / (n - i) for i in range(m))),
    ("contrastive_loss", contrastive_loss),
    ("beyond_a_sum", lambda t: (t - t.mean(0)) - (t - t.mean(0)).mean(1, keepdim=True)),
    ("without_directions", without_directions),
    ("chooses_right", chooses_right),
    ("group_score", lambda s: (quad_parts(s)[0] & quad_parts(s)[1]).double().mean()),
    ("ridge_repair", ridge_repair),
    ("compose", lambda a, b: torch.einsum("nsd,nsd->nd", a, b)),
    ("beyond_the_architecture", lambda m, n: m[f"{n}_low"] > m[f"{n}_random_init"]),
    ("embed_product", product_of_words),
]
WRONG = [
    ("cut_out", lambda z, v: z - z.mean(0), "*all* scenes is taken off"),
    ("cut_out", lambda z, v: cut_out(z, v) - z.mean(0), "put that back"),
    ("cut_out", lambda z, v: z - cut_out(z, v), "subtract them from z"),
    ("cut_out", lambda z, v: z - cut_out(z, v) + z.mean(0), "has to be subtracted"),
    ("cut_out", lambda z, v: z.sub_(z.mean(0)), "work on a copy"),
    (
        "colours_through_objects",
        lambda s, c, k: colours_through_objects(s, c, k, torch.mean),
        "a mean of linear scores",
    ),
    (
        "colours_through_objects",
        lambda s, c, k: colours_through_objects(s, c, k, torch.sum),
        "a sum of linear scores",
    ),
    ("colours_through_objects", lambda s, c, k: s.unflatten(1, (c, k)).amax(1), "each *shape*"),
    ("colours_through_objects", lambda s, c, k: s.unflatten(1, (k, c)).amax(1), "shapes of the first colour"),
    (
        "colours_through_objects",
        lambda s, c, k: colours_through_objects(s, c, k, torch.argmax),
        "argmax",
    ),
    ("twin", overwritten, "overwritten before you read it"),
    ("twin", in_place, "work on a copy"),
    ("twin", lambda s: s.flip(1), "whole objects"),
    ("twin", lambda s: s.clone(), "nothing changed"),
    ("recognised", lambda s, p: recognised(s, p, torch.ge), "strictly"),
    ("recognised", lambda s, p: p.gather(1, s.argmax(1, keepdim=True))[:, 0], "only the best query"),
    ("recognised", lambda s, p: (s * p).amin(1) > (s * ~p).amax(1), "masked_fill"),
    ("recognised", lambda s, p: (s * p).amin(1), "Boolean"),
    ("share_recognised", lambda a, b: (1 - 1 / a) * (1 - 1 / b), "lost"),
    ("share_recognised", lambda a, b: 1 / a + 1 / b, "counted twice"),
    ("share_recognised", lambda a, b: 1 / (a * b), "colour *or* the shape"),
    ("chance", lambda v, p: p / v, "*one* present query"),
    ("chance", lambda v, p: v**-p, "replacement"),
    ("chance", lambda v, p: 1 / math.perm(v, p), "order among the present"),
    ("soft_targets", lambda x, n: soft_targets(x, n) * 2, "sum to 1"),
    ("soft_targets", lambda x, n: (soft_targets(x, n) > 0).float(), "sums to 1"),
    ("soft_targets", lambda x, n: soft_targets(x, n).clamp(max=0.5), "scatter_add_"),
    ("object_part", lambda z, i, k, o: z[i[:, k] == o].mean(0), "subtract the mean scene"),
    ("object_part", lambda z, i, k, o: (z - z.mean(0))[i[:, k] == o].sum(0), "that is the sum"),
    ("object_part", lambda z, i, k, o: (z - z.mean(0))[(i == o).any(1)].mean(0), "*either* slot"),
    ("object_part", lambda z, i, k, o: (z - z.mean(0))[i[:, k] == o].sum(0) / len(z), "*with the object*"),
    ("r_squared", lambda z, p: 1 - (z - p).square().sum() / z.square().sum(), "not to zero"),
    ("r_squared", lambda z, p: 1 - r_squared(z, p), "take it from 1"),
    (
        "r_squared",
        lambda z, p: (1 - (z - p).square().sum(0) / (z - z.mean(0)).square().sum(0)).mean(),
        "sum over dimensions first",
    ),
    ("r_squared", lambda z, p: 1 - (z - p).square().sum(0) / (z - z.mean(0)).square().sum(0), "one number"),
    ("free_r_squared", lambda o, m, n: m * o / (n - 1), "follows from the others"),
    ("free_r_squared", lambda o, m, n: (o - 1) / (n - 1), "count them all"),
    ("free_r_squared", lambda o, m, n: m * (o - 1) / n, "divide by n − 1"),
    ("edit_vector", lambda p, b, a: sum(p[i][a[:, i]] for i in range(2)), "the old ones have to go"),
    ("edit_vector", lambda p, b, a: edit_vector(p, a, b), "signs are exchanged"),
    ("edit_vector", lambda p, b, a: edit_vector(p[[0, 0]], b, a), "parts[1]"),
    ("edit_vector", lambda p, b, a: p[0][a[:, 0]] - p[0][b[:, 0]], "add up both"),
    ("strictly_nearest", lambda s, t: own(s, t) >= best_other(s, t), "*strictly*"),
    ("strictly_nearest", lambda s, t: s.argmax(1) == t, "argmax takes the first"),
    ("strictly_nearest", lambda s, t: own(s, t) > s.amax(1), "leave the target out"),
    ("strictly_nearest", lambda s, t: own(s, t) > best_other(s, t, 0.0), "float('-inf')"),
    ("strictly_nearest", lambda s, t: (own(s, t) > best_other(s, t)).float(), "Boolean"),
    (
        "strictly_nearest",
        lambda s, t: own(s.clone(), t) > s.scatter_(1, t[:, None], -math.inf).amax(1),
        "work on a copy",
    ),
    ("stable_share", lambda z: 1 - stable_share(z), "take it from 1"),
    ("stable_share", lambda z: stable_share(z.transpose(0, 1)), "change the first"),
    ("stable_share", lambda z: z.mean(1).square().sum(0) / z.square().sum((0, 1)), "one number"),
    ("missing_corner", lambda a, b, c: a + b - c, "one of products"),
    ("missing_corner", lambda a, b, c: a * b, "divide it out"),
    ("missing_corner", lambda a, b, c: a * c / b, "wrong side of the fraction"),
    ("share_of_scenes", lambda n, t, m: t / n, "share of *objects*"),
    ("share_of_scenes", lambda n, t, m: (t / n) ** m, "one fewer is left"),
    ("share_of_scenes", lambda n, t, m: math.comb(n - t, m) / math.comb(n, m), "held-out objects only"),
    ("contrastive_loss", lambda s, p: -(s.log_softmax(1) * p).sum(1).mean(), "divide by their number"),
    ("contrastive_loss", lambda s, p: contrastive_loss(s, p) * len(s), "take their mean"),
    ("contrastive_loss", without_true, "the true ones too"),
    ("contrastive_loss", lambda s, p: contrastive_loss(s, p, own=log_of_summed_exp), "logs first"),
    ("contrastive_loss", lambda s, p: -s.log_softmax(1)[p].mean(), "every scene counts once"),
    (
        "contrastive_loss",
        lambda s, p: -((s.log_softmax(0) * p).sum(1) / p.sum(1)).mean(),
        "the queries of a scene, dim=1",
    ),
    ("contrastive_loss", lambda s, p: -contrastive_loss(s, p), "the sign"),
    ("beyond_a_sum", lambda t: t - t.mean(0) - t.mean(1, keepdim=True), "put it back once"),
    ("beyond_a_sum", lambda t: t.mean(0) + t.mean(1, keepdim=True) - t.mean((0, 1)), "the sum itself"),
    ("beyond_a_sum", lambda t: t - t.mean((0, 1)), "rows *and* of the columns"),
    ("beyond_a_sum", lambda t: t - t.mean(0), "means of the rows are still"),
    ("beyond_a_sum", lambda t: t - t.mean(1, keepdim=True), "means of the columns are still"),
    ("without_directions", lambda z, d: z - without_directions(z, d), "subtract it from z"),
    ("without_directions", lambda z, d: z - z @ d.T @ d, "not orthonormal"),
    ("without_directions", one_after_the_other, "taken off twice"),
    ("without_directions", in_turn, "puts back some of the first"),
    ("chooses_right", lambda p, o, t: chooses_right(p, o, t, torch.ge), "use >, not >="),
    ("chooses_right", lambda p, o, t: chooses_right(p, t, o), "the twin wins"),
    ("chooses_right", lambda p, o, t: (p * o).sum(1) > (p * t).sum(1), "long captions win"),
    ("chooses_right", lambda p, o, t: (p - o).norm(dim=1) < (p - t).norm(dim=1), "not the distance"),
    ("group_score", lambda s: quad_parts(s)[0].double().mean(), "the text score"),
    ("group_score", lambda s: quad_parts(s)[1].double().mean(), "the image score"),
    ("group_score", lambda s: (quad_parts(s)[0] | quad_parts(s)[1]).double().mean(), "not two of them"),
    (
        "group_score",
        lambda s: (s[:, 0, 0] + s[:, 1, 1] > s[:, 0, 1] + s[:, 1, 0]).double().mean(),
        "hide which comparison",
    ),
    (
        "group_score",
        lambda s: quad_parts(s)[0].double().mean() * quad_parts(s)[1].double().mean(),
        "if they were independent",
    ),
    ("group_score", lambda s: (quad_parts(s)[0] & quad_parts(s)[1]).sum(), "give their share"),
    ("ridge_repair", lambda x, t, k: ridge_repair(x, t, k).T, "the transpose"),
    ("ridge_repair", lambda x, t, k: ridge_repair(x, t, k, 0.0), "not to zero"),
    ("ridge_repair", lambda x, t, k: ridge_repair(t, x, k), "pictures to captions"),
    ("ridge_repair", lambda x, t, k: (torch.linalg.pinv(t) @ x).T, "without the penalty"),
    ("compose", lambda a, b: (a + b).sum(1), "multiply"),
    ("compose", lambda a, b: a.sum(1) * b.sum(1), "mixes the objects"),
    ("compose", lambda a, b: (a * b).prod(1), "not multiplied"),
    ("compose", lambda a, b: (a * b).mean(1), "their mean"),
    ("beyond_the_architecture", lambda m, n: m[n] > m[f"{n}_random_init"], "the lower end"),
    ("beyond_the_architecture", lambda m, n: m[f"{n}_low"] > m[f"{n}_shuffled"], "about training"),
    ("beyond_the_architecture", lambda m, n: m[f"{n}_low"] > m[f"{n}_chance"], "may reach far more"),
    ("embed_product", lambda texts: product_of_words(texts, torch.add), "forgets what belongs together"),
    ("embed_product", lambda texts: product_of_words(texts, torch.maximum), "not a product of a vector"),
    ("embed_product", lambda texts: product_of_words(texts)[0], "one row of numbers"),
]


@pytest.mark.parametrize(("name", "answer"), RIGHT, ids=[name for name, _ in RIGHT])
def test_right_answers_pass(name, answer):
    assert exercises.CHECKS[name](answer).require()


@pytest.mark.parametrize(("name", "answer", "message"), WRONG, ids=[f"{n}-{m}" for n, _, m in WRONG])
def test_mistakes_are_named(name, answer, message):
    outcome = exercises.CHECKS[name](answer)
    assert outcome.state == "wrong"
    assert message in outcome.message


@pytest.mark.parametrize("name", list(exercises.CHECKS))
@pytest.mark.parametrize(
    "value", [None, "text", torch.ones(3), torch.ones(2, 2), float("nan"), ()], ids=lambda v: type(v).__name__
)
def test_no_check_raises_for_what_a_reader_returns(name, value):
    assert exercises.CHECKS[name](lambda *_: value).state in ("wrong", "empty")


def test_every_check_is_covered_here():
    assert {name for name, _ in RIGHT} == set(exercises.CHECKS)
