"""The scripts of the controls, each one module without imports, so that a static page needs no other file."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def script(name: str) -> str:
    """Give a control's script with what all scripts share, ``dom.js``, before it."""
    return "\n".join((HERE / file).read_text(encoding="utf-8") for file in ("dom.js", name))
