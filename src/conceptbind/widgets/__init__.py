"""Controls of the notebooks, which work with a kernel (live) and in the static pages of the book.

The environment variable ``CONCEPTBIND_WIDGETS`` says for which: ``book`` or ``live`` (the default).
"""

from __future__ import annotations

from conceptbind.widgets.explore import explore

__all__ = ["explore", "scene_editor"]

try:
    from conceptbind.widgets.scene_editor import SceneEditor, scene_editor

    __all__ += ["SceneEditor"]
except ModuleNotFoundError as err:
    # explore needs ipywidgets only, and must work where anywidget is not installed.
    if err.name != "anywidget":
        raise

    def scene_editor(*args: object, **kwargs: object) -> None:
        """Say what is missing."""
        raise ModuleNotFoundError(
            "the scene editor needs anywidget: pip install 'conceptbind[notebooks]'", name="anywidget"
        )
