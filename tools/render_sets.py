"""Render the sets of 3-D pictures that come with the package: src/conceptbind/datasets/pictures/*.zip.

    pip install 'conceptbind[render]'
    python tools/render_sets.py            # all sets, half an hour of one core or more; continues where it stopped
    python tools/render_sets.py --variant llvm_ad_rgb    # faster, with LLVM 16 or newer
    python tools/render_sets.py --check    # renders some pictures of every set again and compares

Every rendered picture is kept, without loss, in build/pictures/ until it is packed.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import sys
import time
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import ROOT, write_atomically
from jaxtyping import Int
from PIL import Image, features
from torch import Tensor

from conceptbind.cache import replacing
from conceptbind.datasets.rendered import FOLDER, INDEX, MANIFEST, load_rendered
from conceptbind.provenance import digest, versions
from conceptbind.render import SolidRenderer
from conceptbind.render.solid import PLACES
from conceptbind.scenes import factorial_scenes, sample_scenes, single_object_scenes
from conceptbind.spaces import CLEVR

LEFT, RIGHT = PLACES[2]
SETS: dict[str, tuple[str, SolidRenderer, Int[Tensor, "scene slot concept"]]] = {
    "clevr_3d_left": (
        "every object alone, at the left place of clevr_3d",
        SolidRenderer(places=(LEFT,)),
        single_object_scenes(CLEVR),
    ),
    "clevr_3d_right": (
        "every object alone, at the right place of clevr_3d",
        SolidRenderer(places=(RIGHT,)),
        single_object_scenes(CLEVR),
    ),
    "clevr_3d": (
        "all ordered pairs of objects, slot 0 left, slot 1 right",
        SolidRenderer(),
        factorial_scenes(CLEVR, 2),
    ),
    "clevr_3d_occluded": (
        "all ordered pairs of objects, slot 0 left, slot 1 right, one of them hidden in part by the other",
        SolidRenderer(placement="occluded"),
        factorial_scenes(CLEVR, 2),
    ),
    "clevr_3d_three": (
        "a sample of scenes of three objects: slot 0 back left, slot 1 back right, slot 2 front middle",
        SolidRenderer(),
        sample_scenes(CLEVR, 3, 288, seed=0),
    ),
}
"""What each set shows, with which renderer, of which scenes."""

WEBP = {"format": "WEBP", "quality": 92, "method": 6}

TOLERANCE = 2.5
"""Mean absolute difference, of 255, that --check allows a picture: WebP alone costs about 1."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; give the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=SETS, default=list(SETS), metavar="SET", help="these sets only"
    )
    parser.add_argument("--check", action="store_true", help="compare with what is committed, write nothing")
    parser.add_argument("--n", type=int, default=4, help="pictures a set that --check renders (default 4)")
    parser.add_argument("--variant", default="scalar_rgb", help="of Mitsuba (default scalar_rgb)")
    parser.add_argument("--threads", type=int, default=1, help="cores to use (default 1)")
    args = parser.parse_args(argv)

    try:
        import drjit
    except ModuleNotFoundError:
        print("rendering needs Mitsuba 3: pip install 'conceptbind[render]'", file=sys.stderr)
        return 1
    drjit.set_thread_count(args.threads)
    for name, (about, renderer, scenes) in SETS.items():
        SETS[name] = about, replace(renderer, variant=args.variant), scenes
    if args.check:
        problems = [problem for name in args.only for problem in check(name, args.n)]
        print("\n".join(problems) or f"{', '.join(args.only)}: as committed", flush=True)
        return bool(problems)
    for name in args.only:
        pack(name, render(name))
    return 0


def render(name: str) -> Path:
    """Render what is missing of a set, one PNG file a scene; give their folder."""
    _, renderer, scenes = SETS[name]
    folder = ROOT / "build" / "pictures" / f"{name}-{digest(renderer.settings)[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    started, n_new = time.monotonic(), 0
    for i, scene in enumerate(scenes):
        path = folder / f"{i:04}.png"
        if path.is_file():
            continue
        image = renderer.render(scene[None])[0].permute(1, 2, 0).numpy()
        with replacing(path) as temporary:
            Image.fromarray(image).save(temporary, format="PNG")
        n_new += 1
        if n_new % 20 == 0:
            rate = (time.monotonic() - started) / n_new
            print(f"{name}: {i + 1} of {len(scenes)}, {rate:.2f} s a picture", flush=True)
    return folder


def pack(name: str, folder: Path) -> None:
    """Write the zip file of a set and its line of the index; equal pictures give equal bytes."""
    about, _, scenes = SETS[name]
    members: dict[str, bytes] = {}
    for i in range(len(scenes)):
        encoded = io.BytesIO()
        Image.open(folder / f"{i:04}.png").save(encoded, **WEBP)
        members[f"{i:04}.webp"] = encoded.getvalue()
    manifest = describe(name)
    members[MANIFEST] = json.dumps(manifest, indent=1, sort_keys=True).encode()
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.zip"
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in sorted(members):
            info = zipfile.ZipInfo(member, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED if member == MANIFEST else zipfile.ZIP_STORED
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, members[member])
    content = path.read_bytes()
    index = json.loads(INDEX.read_text()) if INDEX.is_file() else {}
    index[name] = {
        "about": about,
        "n_pictures": len(scenes),
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    write_atomically(INDEX, json.dumps(index, indent=1, sort_keys=True) + "\n")
    print(f"{name}: {len(scenes)} pictures, {len(content) / 1e6:.2f} MB", flush=True)


def describe(name: str) -> dict[str, Any]:
    """Describe the scenes of a set and how they were rendered."""
    about, renderer, scenes = SETS[name]
    manifest = {
        "about": about,
        "renderer": renderer.settings,
        "encoding": {**WEBP, **versions("pillow"), "libwebp": features.version("webp")},
        "concepts": list(CLEVR.concepts),
        "values": [list(v) for v in CLEVR.values],
        "scenes": scenes.tolist(),
        "places": [renderer.layout(scene).round(4).tolist() for scene in scenes],
    }
    if renderer.placement == "occluded":
        front, share = zip(*(renderer.hidden(scene) for scene in scenes), strict=True)
        manifest |= {"front": list(front), "hidden": [round(s, 4) for s in share]}
    return manifest


def check(name: str, n_pictures: int) -> list[str]:
    """Compare a committed set with what would be rendered now; give what differs, in words."""
    _, renderer, scenes = SETS[name]
    committed = load_rendered(name)
    problems = []
    now, then = renderer.settings, dict(committed.settings["pictures"]["renderer"])
    # Other versions and variants of Mitsuba differ by their noise, as far as the tolerance says.
    for part in ("mitsuba", "variant"):
        now.pop(part), then.pop(part)
    if now != then:
        problems.append(f"{name}: the settings of the renderer have changed: render the set again")
    if not torch.equal(committed.scenes, scenes):
        return [*problems, f"{name}: its scenes are not those of SETS: render the set again"]
    rows = np.random.default_rng(0).permutation(len(scenes))[:n_pictures]
    some = scenes[rows.tolist()]
    difference = (renderer.render(some).float() - committed.render(some).float()).abs().mean((1, 2, 3))
    for row, d in zip(rows, difference.tolist(), strict=True):
        if d > TOLERANCE:
            problems.append(
                f"{name}: picture {row} differs by {d:.1f} of 255 on average: render the set again"
            )
    return problems


if __name__ == "__main__":
    if hasattr(os, "nice"):
        os.nice(10)
    sys.exit(main())
