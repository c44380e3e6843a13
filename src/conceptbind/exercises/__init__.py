"""The checks of the exercises: what a reader calls below an exercise.

One module a chapter, which the chapter imports itself: what stands here is a part of every chapter.
"""

from conceptbind.exercises.machinery import (
    CHECKS,
    Outcome,
    WrongAnswer,
    check,
    expect_close,
    expect_equal,
    one_number,
    wrong,
)

__all__ = [
    "CHECKS",
    "Outcome",
    "WrongAnswer",
    "check",
    "expect_close",
    "expect_equal",
    "one_number",
    "wrong",
]
