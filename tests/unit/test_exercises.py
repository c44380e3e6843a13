"""The checks of the chapters name the likely mistake."""

import math

import pytest
import torch

from conceptbind import exercises


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


RIGHT = [
    ("twin", twin),
    ("recognised", recognised),
    ("share_recognised", lambda a, b: 1 - (1 - 1 / a) * (1 - 1 / b)),
    ("chance", lambda v, p: 1 / math.comb(v, p)),
    ("soft_targets", soft_targets),
]
WRONG = [
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
]


@pytest.mark.parametrize(("name", "answer"), RIGHT, ids=[name for name, _ in RIGHT])
def test_right_answers_pass(name, answer):
    assert exercises.CHECKS[name](answer).require()


@pytest.mark.parametrize(("name", "answer", "message"), WRONG, ids=[f"{n}-{m}" for n, _, m in WRONG])
def test_mistakes_are_named(name, answer, message):
    outcome = exercises.CHECKS[name](answer)
    assert outcome.state == "wrong"
    assert message in outcome.message


def test_every_check_is_covered_here():
    assert {name for name, _ in RIGHT} == set(exercises.CHECKS)
