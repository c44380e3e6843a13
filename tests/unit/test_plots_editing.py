"""The gallery of an edit says which of the nearest scenes is the wanted one."""

import pytest
import torch

from conceptbind.plots_editing import edit_gallery

SCENES = ["red circle", "blue square", "blue square", "green star"]


def titles(figure):
    return [ax.get_title() for ax in figure.axes]


@pytest.mark.parametrize("n_nearest", [1, 2])
@pytest.mark.parametrize("drawn", [True, False])
def test_before_wanted_and_nearest_stand_in_order(n_nearest, drawn):
    pictures = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)[: 2 + n_nearest] if drawn else None
    figure = edit_gallery(
        SCENES[: 2 + n_nearest], pictures, similarity=[0.9, 0.8][:n_nearest], title="an edit"
    )
    assert titles(figure) == ["before", "wanted", "nearest ✓ 0.900", "2. ✗ 0.800"][: 2 + n_nearest]
    assert [len(ax.images) for ax in figure.axes] == [int(drawn)] * (2 + n_nearest)
    written = [ax.get_xlabel() or ax.texts[0].get_text() for ax in figure.axes]
    assert written == SCENES[: 2 + n_nearest]


def test_the_wanted_scene_has_a_frame_of_its_own():
    figure = edit_gallery(SCENES)
    styles = [ax.spines["left"].get_linestyle() for ax in figure.axes]
    assert styles[2] == "solid"
    assert styles[3] == "dashed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SCENES[:2],), "one or more nearest"),
        ((SCENES, torch.zeros(3, 3, 8, 8, dtype=torch.uint8)), "3 pictures but 4 captions"),
    ],
)
def test_numbers_that_disagree_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        edit_gallery(*arguments)
    with pytest.raises(ValueError, match="1 similarities but 2"):
        edit_gallery(SCENES, similarity=[0.5])
