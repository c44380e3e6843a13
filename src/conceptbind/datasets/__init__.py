"""Pictures of scenes from a folder of the user's."""

from conceptbind.datasets.clevr import load_clevr
from conceptbind.datasets.labelled import ImageFiles, LabelledScenes, load_labelled_folder
from conceptbind.datasets.pug_spare import load_pug_spare

__all__ = ["ImageFiles", "LabelledScenes", "load_clevr", "load_labelled_folder", "load_pug_spare"]
