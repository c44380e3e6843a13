"""Random integers without state: what is drawn depends on a key, a step and a position, and on nothing else.

A stream that is a function of its counter needs no generator to be kept or restored, is the same on every device,
and many streams are drawn in one vectorised computation. The function is SplitMix64 (Steele, Lea and Flood 2014):
output n of key k is mix(k + n * GAMMA); a step has its own key, mix(k + step * GAMMA).
"""

from __future__ import annotations

import hashlib

import torch
from jaxtyping import Int
from torch import Tensor

GAMMA = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)
_WORD = 2**64


def key_of(seed: int, name: str) -> int:
    """Derive the key of a named stream from a seed: a signed number of 64 bits."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "big", signed=True)


def seed_of(seed: int, name: str) -> int:
    """Derive a seed for a torch.Generator from a seed: a number of 63 bits."""
    return key_of(seed, name) & (2**63 - 1)


def mix(state: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
    """Scramble 64-bit numbers: the output function of SplitMix64, a bijection."""
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        state = (state ^ _shifted(state, shift)) * _signed(factor)
    return state ^ _shifted(state, _SHIFTS[2])


def draws(keys: Int[Tensor, "key"], step: int, n: int) -> Int[Tensor, "key draw"]:
    """Draw n numbers of 32 bits, 0 ... 2**32 - 1, of every key at a step."""
    at = torch.arange(1, n + 1, device=keys.device)
    state = mix(keys + _signed(GAMMA * (step + 1)))
    return _shifted(mix(state[:, None] + at * _signed(GAMMA)), 32)


def below(numbers: Int[Tensor, "*batch"], high: int | Int[Tensor, "#*batch"]) -> Int[Tensor, "*batch"]:
    """Turn drawn numbers of 32 bits into integers 0 ... high - 1.

    ``high``: at least 1, below 2**31. An integer's probability is off by less than 2**-32 from 1 / high.
    """
    # the product of 32 and 31 bits fits, and its upper half is uniform (Lemire 2019, without the rejection)
    return (numbers * high) >> 32


def _shifted(state: Int[Tensor, "*batch"], n: int) -> Int[Tensor, "*batch"]:
    # torch shifts signed numbers with their sign
    return (state >> n) & (2 ** (64 - n) - 1)


def _signed(number: int) -> int:
    number %= _WORD
    return number - _WORD if number >= _WORD // 2 else number
