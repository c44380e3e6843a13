"""The checks of the exercises: what a reader calls below an exercise. One file a chapter."""

from conceptbind.exercises.machinery import (
    CHECKS,
    Outcome,
    WrongAnswer,
    check,
    expect_close,
    expect_equal,
    wrong,
)
from conceptbind.exercises.objects_inside_one_modality import check_chance, check_soft_targets
from conceptbind.exercises.what_is_binding import check_recognised, check_share_recognised, check_twin

__all__ = [
    "CHECKS",
    "Outcome",
    "WrongAnswer",
    "check",
    "check_chance",
    "check_recognised",
    "check_share_recognised",
    "check_soft_targets",
    "check_twin",
    "expect_close",
    "expect_equal",
    "wrong",
]
