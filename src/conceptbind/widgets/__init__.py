"""Controls of the notebooks, which work with a kernel (live) and in the static pages of the book.

The environment variable ``CONCEPTBIND_WIDGETS`` says for which: ``book`` or ``live`` (the default).
"""

from __future__ import annotations

from conceptbind.widgets.explore import explore
from conceptbind.widgets.point_cloud_figure import point_cloud_figure

__all__ = ["explore", "point_cloud", "point_cloud_figure", "scene_editor"]

try:
    from conceptbind.widgets.point_cloud import PointCloud, point_cloud
    from conceptbind.widgets.scene_editor import SceneEditor, scene_editor

    __all__ += ["PointCloud", "SceneEditor"]
except ModuleNotFoundError as err:
    # explore needs ipywidgets only, and must work where anywidget is not installed.
    if err.name != "anywidget":
        raise

    def scene_editor(*args: object, **kwargs: object) -> None:
        """Say what is missing."""
        raise ModuleNotFoundError(
            "the scene editor needs anywidget: pip install 'conceptbind[notebooks]'", name="anywidget"
        )

    def point_cloud(*args: object, **kwargs: object) -> None:
        """Say what is missing."""
        raise ModuleNotFoundError(
            "the point cloud needs anywidget: pip install 'conceptbind[notebooks]' (point_cloud_figure draws "
            "it without)",
            name="anywidget",
        )
