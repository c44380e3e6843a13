"""The first lines of every chapter: where am I running, and at which size?"""

from __future__ import annotations

import os
import sys

import torch

from conceptbind import __version__, plots
from conceptbind.presets import choose

__all__ = ["choose", "in_colab", "start"]


def start() -> None:
    """Apply the figure style and print versions, device and number type; say how to get a GPU on Colab."""
    plots.use_style()
    has_gpu = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if has_gpu else f"CPU, {torch.get_num_threads()} threads"
    print(
        f"conceptbind {__version__}, Python {sys.version.split()[0]}, torch {torch.__version__}, {device}, float32"
    )
    if in_colab():
        os.environ.setdefault("CONCEPTBIND_WIDGETS", "live")
        if not has_gpu:
            print(
                "No GPU: fine for the laptop preset. For the paper preset: Runtime > Change runtime type > T4 GPU."
            )


def in_colab() -> bool:
    """Tell whether this kernel runs in Google Colab."""
    return "google.colab" in sys.modules
