"""The checks of the exercises: what a reader calls below an exercise. One file a chapter."""

from conceptbind.exercises.cut_out_a_concept import check_colours_through_objects, check_cut_out
from conceptbind.exercises.edit_a_scene import check_edit_vector, check_strictly_nearest
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
from conceptbind.exercises.scenes_add_up import check_free_r_squared, check_object_part, check_r_squared
from conceptbind.exercises.what_is_binding import check_recognised, check_share_recognised, check_twin

__all__ = [
    "CHECKS",
    "Outcome",
    "WrongAnswer",
    "check",
    "check_chance",
    "check_colours_through_objects",
    "check_cut_out",
    "check_edit_vector",
    "check_free_r_squared",
    "check_object_part",
    "check_r_squared",
    "check_recognised",
    "check_share_recognised",
    "check_soft_targets",
    "check_strictly_nearest",
    "check_twin",
    "expect_close",
    "expect_equal",
    "wrong",
]
