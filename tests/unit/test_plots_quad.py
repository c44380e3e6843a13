"""A quad shows its four scores, and marks the caption that each picture chooses."""

import pytest
import torch

from conceptbind.plots_quad import quad_figure

pytestmark = pytest.mark.usefixtures("book_style")

PICTURES = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).view(2, 3, 4, 4)
CAPTIONS = ("a red circle and a blue square", "a blue circle and a red square")


def texts(scores):
    fig = quad_figure(PICTURES, CAPTIONS, torch.tensor(scores), title="a model")
    below = [fig.axes[2], fig.axes[3]]
    return fig, [[t.get_text().replace("\n", " ") for t in ax.texts] for ax in below]


def test_each_picture_marks_what_it_chooses():
    fig, (first, second) = texts([[0.9, 0.5], [0.75, 0.25]])
    assert first == [CAPTIONS[0], "0.900 ✓", CAPTIONS[1], "0.500"]
    assert second == [CAPTIONS[0], "0.750 ✗", CAPTIONS[1], "0.250"]
    assert (fig.axes[0].images[0].get_array() == PICTURES[0].permute(1, 2, 0).numpy()).all()
    assert (fig.axes[1].images[0].get_array() == PICTURES[1].permute(1, 2, 0).numpy()).all()


def test_a_tie_is_no_choice():
    _, (first, second) = texts([[0.5, 0.5], [0.1, 0.2]])
    assert first == [CAPTIONS[0], "0.500 =", CAPTIONS[1], "0.500 ="]
    assert second == [CAPTIONS[0], "0.100", CAPTIONS[1], "0.200 ✓"]


def test_two_captions_are_needed():
    with pytest.raises(ValueError, match="two captions"):
        quad_figure(PICTURES, CAPTIONS[:1], torch.zeros(2, 2))
