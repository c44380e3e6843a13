"""Pictures of scenes."""

from conceptbind.render.flat import FlatRenderer, to_pil
from conceptbind.render.solid import SolidRenderer

__all__ = ["FlatRenderer", "SolidRenderer", "to_pil"]
