"""Pictures of scenes."""

from conceptbind.render.flat import FlatRenderer, to_pil

__all__ = ["FlatRenderer", "to_pil"]
