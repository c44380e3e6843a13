"""Check the exercises' answers, with messages that name the likely mistake."""

from __future__ import annotations

import dis
import functools
import html
import inspect
import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

NOT_YET = "not filled in yet: replace the `...` above, run that cell, then this one"
_SIGNS = {"right": "✓", "wrong": "✗", "empty": "○"}


@dataclass(frozen=True)
class Outcome:
    """What a check found. As the last line of a cell it shows itself; it is true if the answer is right."""

    name: str
    """Name of the answer."""
    state: str
    """`right`, `wrong`, or `empty` where the reader has not begun."""
    message: str

    def __bool__(self) -> bool:
        return self.state == "right"

    def __repr__(self) -> str:
        return f"{_SIGNS[self.state]} {self.name}: {self.message}"

    def _repr_html_(self) -> str:
        # Wraps on a phone, which preformatted text does not.
        return f'<p class="exercise-outcome" role="status">{html.escape(repr(self))}</p>'

    def require(self) -> Outcome:
        """Give itself back if the answer is right.

        Raises:
            AssertionError: it is not. The build ends every solution with this, so a wrong one stops it.
        """
        if not self:
            raise AssertionError(repr(self))
        return self


class WrongAnswer(Exception):
    """Carries the message for a wrong answer out of a check."""


class _NotYet(Exception):
    """The answer is not filled in."""


CHECKS: dict[str, Callable[[Any], Outcome]] = {}
"""Every check by the name of the answer it checks."""


def check(name: str) -> Callable[[Callable[[Any], str]], Callable[[Any], Outcome]]:
    """Make a check of the answer called `name` from a function that judges it.

    The function takes the answer (a function that the reader fills in, or a value), calls `wrong`,
    `expect_equal` or `expect_close` for what it wants, and returns a few words on what it verified. The check
    never raises for what the reader wrote: errors inside the answer become a message with the line.

        @check("swap_colours")
        def check_swap_colours(answer):
            got = answer(scenes)
            expect_equal(got, right, what="the colours", mistakes={"the shapes moved too": moved})
            return "576 scenes"

    Raises:
        ValueError: there is such a check already.
    """

    def decorate(judge: Callable[[Any], str]) -> Callable[[Any], Outcome]:
        if name in CHECKS and CHECKS[name].__qualname__ != judge.__qualname__:
            raise ValueError(f"two checks for {name!r}: {CHECKS[name].__qualname__} and {judge.__qualname__}")

        @functools.wraps(judge)
        def run(answer: Any) -> Outcome:
            try:
                return Outcome(name, "right", f"right ({judge(_watched(answer))})")
            except _NotYet:
                return Outcome(name, "empty", NOT_YET)
            except WrongAnswer as error:
                return Outcome(name, "wrong", str(error))
            except Exception as error:
                if _is_readers(error, answer):
                    return Outcome(name, "wrong", _describe(error, answer))
                raise

        CHECKS[name] = run
        return run

    return decorate


def wrong(message: str) -> None:
    """Judge the answer wrong; the message says what was seen and names the likely mistake.

    Raises:
        WrongAnswer: always.
    """
    raise WrongAnswer(message)


def expect_equal(
    got: Any, right: Any, *, what: str = "the result", mistakes: Mapping[str, Any] | None = None
) -> None:
    """Compare an answer with the right one, exactly: arrays by shape and entries, all else by ==.

    Args:
        mistakes: message by the value that mistake gives, `{"you also swapped the shapes": swapped, …}`.

    Raises:
        WrongAnswer: they differ.
    """
    expect_close(got, right, what=what, mistakes=mistakes, atol=0.0)


def expect_close(
    got: Any,
    right: Any,
    *,
    what: str = "the result",
    mistakes: Mapping[str, Any] | None = None,
    atol: float = 1e-5,
) -> None:
    """Compare an answer with the right one, entries within `atol` (absolute).

    Args:
        mistakes: message by the value that mistake gives, `{"you forgot to centre": uncentred, …}`.

    Raises:
        WrongAnswer: they differ.
    """
    if _same(got, right, atol):
        return
    for message, value in (mistakes or {}).items():
        if _same(got, value, atol):
            wrong(message)
    if got is None:
        wrong(f"{what} is None: does your function end with `return`?")
    if isinstance(right, torch.Tensor | np.ndarray):
        if not isinstance(got, torch.Tensor | np.ndarray):
            wanted = f"a {type(right).__name__} of shape {_shape(right)}"
            wrong(f"{what} is a {type(got).__name__}, expected {wanted}")
        if _shape(got) != _shape(right):
            shapes = f"shape {_shape(got)}, expected {_shape(right)}"
            wrong(f"{what} has {shapes}: over which dimension did you go?")
        a, b = _array(got), _array(right)
        if np.isnan(a).any() and not np.isnan(b).any():
            wrong(f"{what} has NaN in it: is there a division by zero?")
        off = np.abs(a - b)
        if np.allclose(a, -b, atol=max(atol, 1e-12), rtol=0):
            wrong(f"{what} has the opposite sign everywhere: which is subtracted from which?")
        worst = tuple(int(i) for i in np.unravel_index(np.argmax(off), off.shape))
        share = f"{(off > atol).mean():.0%}"
        wrong(f"wrong values in {share} of {what}; at {worst}: {a[worst]:.4g}, expected {b[worst]:.4g}")
    if _number(got) and _number(right):
        wrong(f"{what} is {got:.4g}, expected {right:.4g}")
    wrong(f"{what} is {_short(got)}, expected {_short(right)}")


def one_number(got: Any, what: str) -> Any:
    """Give a tensor or array of one number as a number; judge any larger one wrong. Anything else passes through."""
    if isinstance(got, torch.Tensor | np.ndarray):
        if math.prod(got.shape) != 1:
            wrong(f"{what} has shape {_shape(got)}, expected one number: sum over what is left")
        return got.item()
    return got


def _same(got: Any, right: Any, atol: float) -> bool:
    arrays = torch.Tensor | np.ndarray
    if isinstance(right, arrays) or isinstance(got, arrays):
        if not (isinstance(got, arrays) and isinstance(right, arrays)) or _shape(got) != _shape(right):
            # A 0-dimensional array is as good as a number.
            one = [x for x in (got, right) if isinstance(x, arrays)]
            if not all(x.ndim == 0 for x in one) or not all(_number(x) or x in one for x in (got, right)):
                return False
        return bool(np.allclose(_array(got), _array(right), atol=atol, rtol=0))
    if _number(got) and _number(right):
        return abs(float(got) - float(right)) <= atol
    return type(got) is type(right) and got == right


def _number(x: Any) -> bool:
    return isinstance(x, int | float | np.number) and not isinstance(x, bool)


def _array(x: Any) -> np.ndarray:
    if isinstance(x, torch.Tensor):
        x = x.detach().cpu().numpy()
    return np.asarray(x, dtype=np.float64)


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(x.shape)


def _short(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 80 else text[:77] + "…"


def _watched(answer: Any) -> Any:
    """Stand between a check and the reader's function, to see `...` and None come out of it."""
    if answer is ...:
        raise _NotYet
    if not inspect.isfunction(answer):
        return answer

    @functools.wraps(answer)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = answer(*args, **kwargs)
        except Exception as error:
            if "ellipsis" in str(error).lower():  # the stub's `...` was used further down in it
                raise _NotYet from error
            raise
        if _unfilled(result) or (result is None and _has_empty_body(answer)):
            raise _NotYet
        return result

    return call


def _unfilled(result: Any) -> bool:
    return result is ... or (isinstance(result, tuple) and any(r is ... for r in result))


def _has_empty_body(function: Any) -> bool:
    """Tell `def f(x): ...` from a function that computes something and forgets to return it."""
    nothing = {"RESUME", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST", "NOP", "CACHE"}
    return all(i.opname in nothing for i in dis.get_instructions(function))


def _is_readers(error: Exception, answer: Any) -> bool:
    """Tell an error of the reader's function, or of calling it wrongly, from one of the check's own."""
    code = getattr(answer, "__code__", None)
    if code is None:  # a value of an unexpected kind, which the check could not use
        return True
    if any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__)):
        return True
    return isinstance(error, TypeError) and f"{answer.__name__}()" in str(error)


def _describe(error: Exception, answer: Any) -> str:
    text = f"{type(error).__name__}: {error}"
    code = getattr(answer, "__code__", None)
    if code is None:
        return f"it is {_short(answer)}, which cannot be used here ({text})"
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code is code]
    return f"stopped with {text}" + (f", in line {lines[-1]} of its cell" if lines else "")
