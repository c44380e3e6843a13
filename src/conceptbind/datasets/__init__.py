"""Pictures of scenes: from a folder of the user's, and those that come with the package."""

from conceptbind.datasets.clevr import load_clevr
from conceptbind.datasets.labelled import ImageFiles, LabelledScenes, load_labelled_folder
from conceptbind.datasets.pug_spare import load_pug_spare
from conceptbind.datasets.rendered import RenderedSet, load_rendered, rendered_sets

__all__ = [
    "ImageFiles",
    "LabelledScenes",
    "RenderedSet",
    "load_clevr",
    "load_labelled_folder",
    "load_pug_spare",
    "load_rendered",
    "rendered_sets",
]
