"""The rendered solids are where they should be, in the colours and shapes of their labels.

What a picture should show is computed here anew: an object's silhouette is the convex hull of its projected
surface. The pictures that come with the package are checked everywhere, the renderer where Mitsuba is
installed.
"""

import importlib.util
import json
import sys

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from conceptbind.datasets import load_rendered
from conceptbind.render import SolidRenderer, solid
from conceptbind.render.solid import PLACES, SOLIDS
from conceptbind.scenes import ConceptSpace, factorial_scenes, sample_scenes
from conceptbind.spaces import CLEVR, CLEVR_2D, CLEVR_COLOURS

needs_mitsuba = pytest.mark.skipif(
    importlib.util.find_spec("mitsuba") is None, reason="needs Mitsuba: pip install 'conceptbind[render]'"
)
SIZE = 224
TWO_PLACES, THREE_PLACES = PLACES[2], PLACES[3]


# ---- what a picture should show


def surface(shape, place):
    """Points of the surface that every silhouette edge passes through or near."""
    angles = np.linspace(0, 2 * np.pi, 120, endpoint=False)
    if shape == "cube":
        half, turn = solid.CUBE_EDGE / 2, np.deg2rad(solid.CUBE_DEGREES)
        corners = np.array([(x, y, z) for x in (-half, half) for y in (-half, half) for z in (-half, half)])
        c, s = np.cos(turn), np.sin(turn)
        points = corners @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]]) + np.array([0, 0, half])
    elif shape == "cylinder":
        ring = np.stack([np.cos(angles), np.sin(angles)], axis=1) * solid.CYLINDER_RADIUS
        points = np.concatenate([np.c_[ring, np.full(120, z)] for z in (0.0, solid.CYLINDER_HEIGHT)])
    else:
        theta, phi = np.meshgrid(np.linspace(0, np.pi, 46), angles[::2])
        points = np.stack([np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)], axis=-1)
        points = solid.SPHERE_RADIUS * (points.reshape(-1, 3) + np.array([0, 0, 1]))
    return points + np.array([*place, 0])


def project(points, size=SIZE):
    """Pinhole camera: pixel coordinates (x right, y down) of points in the world."""
    camera, target = np.array(solid.CAMERA), np.array(solid.TARGET)
    ahead = (target - camera) / np.linalg.norm(target - camera)
    right = np.cross(ahead, (0, 0, 1))
    right /= np.linalg.norm(right)
    up = np.cross(right, ahead)
    rays = points - camera
    scale = 1 / np.tan(np.deg2rad(solid.DEGREES_OF_VIEW) / 2) / (rays @ ahead)
    return (1 + np.stack([rays @ right * scale, -(rays @ up) * scale], axis=-1)) * size / 2


def silhouette(shape, place, size=SIZE, grow=0.0, fine=1):
    """Which pixels the convex hull of the projected surface covers; grown by ``grow`` pixels."""
    directions = np.linspace(0, 2 * np.pi, 360, endpoint=False)
    normals = np.stack([np.cos(directions), np.sin(directions)])
    support = (project(surface(shape, place), size) @ normals).max(0) + grow
    # A convex outline crosses a row of pixels from the last half-plane's edge on the left to the first on the right.
    centres = (np.arange(size * fine) + 0.5) / fine
    level = np.abs(normals[0]) < 1e-9
    crossing = (support[~level] - centres[:, None] * normals[1, ~level]) / normals[0, ~level]
    to_right = normals[0, ~level] > 0
    right, left = crossing[:, to_right].min(1), crossing[:, ~to_right].max(1)
    rows = (centres[:, None] * normals[1, level] <= support[level]).all(1)
    return rows[:, None] & (centres >= left[:, None]) & (centres <= right[:, None])


_SILHOUETTES = {}


def cached(shape, place, grow=0.0):
    key = shape, tuple(round(float(p), 4) for p in place), grow
    if key not in _SILHOUETTES:
        _SILHOUETTES[key] = silhouette(*key[:2], grow=grow)
    return _SILHOUETTES[key]


def visible(scene, places, grow=0.0):
    """Silhouettes of all slots, less what nearer objects hide; only whole pixels when ``grow`` is negative."""
    shapes = [SOLIDS[obj[1]] for obj in scene.tolist()]
    masks = [cached(s, p, grow) for s, p in zip(shapes, places.tolist(), strict=True)]
    whole = [cached(s, p, -grow) for s, p in zip(shapes, places.tolist(), strict=True)]
    depth = places[:, 1].tolist()
    for i in range(len(masks)):
        for j in range(len(masks)):
            if depth[j] < depth[i]:
                masks[i] = masks[i] & ~whole[j]
    return masks


def chromaticity(rgb):
    rgb = np.asarray(rgb, dtype=float)
    return rgb / rgb.sum(-1, keepdims=True)


PALETTE = chromaticity(list(CLEVR_COLOURS.values()))


def test_projection_puts_the_target_in_the_middle_and_a_sphere_has_its_closed_form_outline():
    assert project(np.array([solid.TARGET])) == pytest.approx(np.full((1, 2), SIZE / 2))
    # A sphere of radius r at distance d, on the axis, looks like a disk of radius f tan(asin(r / d)).
    at = solid.TARGET[1]
    distance = np.linalg.norm(np.subtract((0, at, solid.SPHERE_RADIUS), solid.CAMERA))
    focal = SIZE / 2 / np.tan(np.deg2rad(solid.DEGREES_OF_VIEW) / 2)
    radius = focal * np.tan(np.arcsin(solid.SPHERE_RADIUS / distance))
    assert silhouette("sphere", (0, at), fine=2).sum() / 4 == pytest.approx(np.pi * radius**2, rel=0.01)


def test_objects_at_the_fixed_places_are_whole_apart_and_about_as_large_as_one_another():
    for places in (TWO_PLACES, THREE_PLACES):
        for shape in SOLIDS:
            for i, place in enumerate(places):
                mask = cached(shape, place)
                assert not any(edge.any() for edge in (mask[0], mask[-1], mask[:, 0], mask[:, -1]))
                for other in places[:i]:
                    for other_shape in SOLIDS:
                        assert not (mask & cached(other_shape, other)).any()
        for place in places:
            areas = [cached(shape, place).sum() for shape in SOLIDS]
            assert max(areas) / min(areas) < 1.15


# ---- the pictures that come with the package


SETS = ["clevr_3d", "clevr_3d_left", "clevr_3d_right", "clevr_3d_occluded", "clevr_3d_three"]


@pytest.fixture(scope="module", params=SETS)
def pictures(request):
    data = load_rendered(request.param)
    return data, data.render(data.scenes).permute(0, 2, 3, 1).numpy()


def test_every_object_has_the_colour_of_its_label(pictures):
    data, images = pictures
    for scene, places, image in zip(data.scenes, data.places, images, strict=True):
        for obj, mask in zip(scene.tolist(), visible(scene, places, grow=-3), strict=True):
            assert mask.sum() > 500
            seen = chromaticity(np.median(image[mask], axis=0))
            assert np.linalg.norm(PALETTE - seen, axis=1).argmin() == obj[0], data.space.describe(
                torch.tensor(obj)
            )


def agreement(image, scene, places, slot):
    """For each shape, the overlap of its silhouette in this slot with the pixels of the object's colour (IoU)."""
    colour = int(scene[slot, 0])
    near = cached("cylinder", places[slot].tolist(), 6.0) | cached("cube", places[slot].tolist(), 6.0)
    # What other objects show or hide is no evidence for this one.
    for other in range(len(scene)):
        if other != slot:
            near = near & ~cached(SOLIDS[scene[other, 1]], places[other].tolist(), 2.0)
    if colour == 0:  # shadows are a dark grey too: only what stands above them counts
        near = near & (np.arange(SIZE)[:, None] < project(np.array([*places[slot].tolist(), 0.6]))[1])
    pixels = image[near]
    if colour == 0:
        like = (pixels.min(-1) < 100) & (np.ptp(pixels, axis=-1) < 25)  # the ground is a light grey
    else:
        others = [0, *(c for c in scene[:, 0].tolist() if c != colour)]
        away = np.linalg.norm(chromaticity(pixels + 1.0)[:, None] - PALETTE, axis=-1)
        like = away[:, colour] < away[:, others].min(-1)
    overlaps = []
    for shape in range(3):
        as_if = scene.clone()
        as_if[slot, 1] = shape
        mask = visible(as_if, places)[slot][near]
        overlaps.append((like & mask).sum() / (like | mask).sum())
    return overlaps


def test_the_coloured_pixels_fill_the_silhouette_of_the_shape_and_of_no_other(pictures):
    data, images = pictures
    for scene, places, image in zip(data.scenes, data.places, images, strict=True):
        for slot, shape in enumerate(scene[:, 1].tolist()):
            overlaps = agreement(image, scene, places, slot)
            assert int(np.argmax(overlaps)) == shape
            assert overlaps[shape] > 0.9


def test_all_pictures_differ(pictures):
    _, images = pictures
    assert len({image.tobytes() for image in images}) == len(images)


def test_the_ground_is_lit_as_the_lamp_and_the_sky_say():
    """Far from objects: L = rho (sky + lamp radiance * area * cos * cos' / (pi d^2))."""
    data = load_rendered("clevr_3d_right")
    image = data.render(data.scenes).double().mean(0).numpy() / 255
    linear = np.where(image <= 0.04045, image / 12.92, ((image + 0.055) / 1.055) ** 2.4)
    lamp = np.array(solid.LAMP)
    for x, y in ((-2.2, 0.0), (-1.0, -2.4), (0.0, -1.5), (-1.0, 3.0), (0.0, 3.0)):
        ground = np.array([x, y, 0.0])
        column, row = project(ground).round().astype(int)
        to_lamp = lamp - ground
        d = np.linalg.norm(to_lamp)
        cos_ground, cos_lamp = to_lamp[2] / d, (to_lamp / d) @ (lamp / np.linalg.norm(lamp))
        direct = solid.LAMP_RADIANCE * solid.LAMP_EDGE**2 * cos_ground * cos_lamp / (np.pi * d**2)
        expected = solid.GROUND_REFLECTANCE * (solid.SKY_RADIANCE + direct)
        seen = linear[:, row - 3 : row + 3, column - 3 : column + 3].mean()
        assert seen == pytest.approx(expected, rel=0.03)  # the object takes some of the sky


def test_a_lit_surface_has_about_its_colour():
    """The brightest tenth of every object is within 15 per cent of full range of the palette's RGB."""
    data = load_rendered("clevr_3d_left")
    images = data.render(data.scenes).permute(0, 2, 3, 1).numpy().astype(float)
    palette = np.array(list(CLEVR_COLOURS.values()), dtype=float)
    for scene, places, image in zip(data.scenes, data.places, images, strict=True):
        pixels = image[visible(scene, places, grow=-3)[0]]
        bright = pixels[pixels.sum(1) >= np.quantile(pixels.sum(1), 0.9)].mean(0)
        assert np.abs(bright - palette[scene[0, 0]]).max() < 0.15 * 255


def test_the_places_mirror_one_another():
    """Spheres and cylinders are symmetric, and so is the camera; the lamp is not, so masks are compared."""
    left, right = (load_rendered(f"clevr_3d_{side}") for side in ("left", "right"))
    assert torch.equal(left.places, right.places * torch.tensor([-1, 1]))
    for scene in left.scenes:
        colour, shape = scene[0].tolist()
        if colour == 0 or SOLIDS[shape] == "cube":
            continue
        a, b = (data.render(scene[None])[0].permute(1, 2, 0).numpy() for data in (left, right))
        masks = []
        for image in (a, b[:, ::-1]):
            away = np.linalg.norm(chromaticity(image + 1.0)[:, :, None] - PALETTE, axis=-1)
            masks.append(away[..., colour] < away[..., 0])
        assert (masks[0] & masks[1]).sum() / (masks[0] | masks[1]).sum() > 0.95


def test_occluded_pairs_hide_what_they_say():
    data = load_rendered("clevr_3d_occluded")
    low, high = data.settings["pictures"]["renderer"]["occlusion"]
    assert (data.hidden > low - 0.02).all()
    assert (data.hidden < high + 0.02).all()
    # Uniform: mean and standard error of 576 draws in closed form.
    n = len(data.scenes)
    assert abs(data.hidden.mean().item() - (low + high) / 2) < 4 * (high - low) / np.sqrt(12 * n)
    assert abs(data.front.double().mean().item() - 0.5) < 4 * 0.5 / np.sqrt(n)
    assert (data.places[:, 0, 0] < data.places[:, 1, 0]).all()
    for scene, places, front, hidden in zip(data.scenes, data.places, data.front, data.hidden, strict=True):
        assert places[front, 1] < places[1 - front, 1]
        seen = visible(scene, places)[1 - front].sum()
        alone = cached(SOLIDS[scene[1 - front, 1]], places[1 - front].tolist()).sum()
        assert 1 - seen / alone == pytest.approx(hidden.item(), abs=0.01)


# ---- settings and errors, without Mitsuba


def test_settings_are_json_and_tell_apart_whatever_changes_pixels():
    base = SolidRenderer()
    assert json.loads(json.dumps(base.settings)) == base.settings
    assert base == SolidRenderer()
    assert hash(base) == hash(SolidRenderer())
    others = [
        SolidRenderer(CLEVR.subset(colour=("red", "blue"))),
        SolidRenderer(size=225),
        SolidRenderer(placement="occluded"),
        SolidRenderer(placement="occluded", occlusion=(0.1, 0.2)),
        SolidRenderer(places=TWO_PLACES),
        SolidRenderer(samples=17),
        SolidRenderer(variant="llvm_ad_rgb"),
        SolidRenderer(seed=1),
    ]
    keys = {json.dumps(r.settings, sort_keys=True) for r in [base, *others]}
    assert len(keys) == 1 + len(others)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"space": CLEVR_2D}, r"shapes \['square', 'triangle', 'circle'\]; can render \('cube', 'cylinder'"),
        (
            {"space": ConceptSpace(("colour", "shape"), (("mauve",), ("cube",)))},
            r"colours \['mauve'\]; can render \('gray'",
        ),
        (
            {"space": ConceptSpace(("shape",), (("cube",),))},
            r"'colour' and 'shape', nothing else.*\('shape',\)",
        ),
        ({"size": 4}, "at least 8; got 4"),
        (
            {"placement": "occluded", "places": ((0.0, 0.0), (1.0, 0.0))},
            "belong to placement='fixed': leave them out",
        ),
        ({"occlusion": (0.5, 0.2)}, r"0 < low <= high < 1; got \(0.5, 0.2\)"),
        ({"samples": 0}, "samples must be 1 or more; got 0"),
        ({"seed": -1}, "seed must be 0 or more; got -1"),
    ],
)
def test_a_renderer_that_cannot_work_is_refused(how, message):
    with pytest.raises(ValueError, match=message):
        SolidRenderer(**how)


@pytest.mark.parametrize("how", [{"placement": "free"}, {"variant": "cuda_ad_rgb"}])
def test_an_unknown_placement_or_variant_is_refused(how):
    # the tests' type check may come first
    with pytest.raises((ValueError, TypeCheckError), match=next(iter(how))):
        SolidRenderer(**how)


def test_scenes_that_do_not_fit_the_renderer_are_errors():
    four, one = torch.zeros(1, 4, 2, dtype=torch.int64), torch.zeros(1, 1, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="known for 1 to 3 objects, the scenes have 4: give places="):
        SolidRenderer().render(four)
    with pytest.raises(ValueError, match="has 2 places, but the scenes have 1 objects"):
        SolidRenderer(places=TWO_PLACES).render(one)
    with pytest.raises(ValueError, match="an occluded scene has two objects, these have 1"):
        SolidRenderer(placement="occluded").render(one)
    with pytest.raises(ValueError, match="hides nothing: use placement='occluded'"):
        SolidRenderer().hidden(one[0])
    with pytest.raises(ValueError, match="copy must be 0 or more"):
        SolidRenderer().render(one, copy=-1)
    with pytest.raises(ValueError, match="'shape' has 3 values"):
        SolidRenderer().render(one + 3)


def test_no_scenes_give_no_pictures():
    assert SolidRenderer(size=32).render(torch.zeros(0, 2, 2, dtype=torch.int64)).shape == (0, 3, 32, 32)


def test_without_mitsuba_the_error_says_what_to_install_and_what_needs_no_renderer(monkeypatch):
    monkeypatch.setitem(sys.modules, "mitsuba", None)
    message = r"needs Mitsuba 3.*pip install 'conceptbind\[render\]'.*load_rendered\('clevr_3d'\)"
    with pytest.raises(ModuleNotFoundError, match=message):
        SolidRenderer().render(torch.zeros(1, 1, 2, dtype=torch.int64))


# ---- the renderer itself


@needs_mitsuba
@pytest.mark.parametrize("n_objects", [1, 2, 3])
def test_masks_are_the_silhouettes(n_objects):
    renderer = SolidRenderer()
    for scene in sample_scenes(CLEVR, n_objects, 4, seed=0):
        masks = renderer.masks(scene)
        expected = visible(scene, torch.from_numpy(renderer.layout(scene)))
        for mask, silhouette_mask in zip(masks, expected, strict=True):
            assert mask.sum() == pytest.approx(silhouette_mask.sum(), rel=0.01)
            assert ((mask > 0.5) == silhouette_mask).mean() > 0.998  # but for pixels on the edge


@needs_mitsuba
@pytest.mark.parametrize("placement", ["fixed", "occluded"])
def test_a_picture_depends_on_the_settings_the_scene_and_the_copy_only(placement):
    scenes = factorial_scenes(CLEVR, 2)[[5, 300, 571]]
    how = {"size": 32, "samples": 4, "placement": placement}
    renderer = SolidRenderer(**how)
    images = renderer.render(scenes)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    one_by_one = torch.cat([SolidRenderer(**how).render(s[None]) for s in scenes.flip(0)]).flip(0)
    assert torch.equal(images, one_by_one)
    for other in (renderer.render(scenes, copy=1), SolidRenderer(**how, seed=1).render(scenes)):
        assert (images != other).flatten(1).any(1).all()
        if placement == "fixed":  # noise alone
            assert (images.float() - other.float()).abs().mean() < 6


@needs_mitsuba
def test_more_samples_less_noise():
    scene = torch.tensor([[[1, 2]]])
    spread = []
    for samples in (4, 64):
        renderer = SolidRenderer(size=32, samples=samples)
        images = torch.cat([renderer.render(scene, copy=c) for c in range(4)]).double()
        spread.append(images.std(0).mean().item())
    assert spread[1] < spread[0] / 2  # independent samples would give a quarter


@needs_mitsuba
def test_hidden_shares_lie_in_the_range_and_too_much_is_an_error():
    renderer = SolidRenderer(placement="occluded", occlusion=(0.1, 0.12), size=64)
    for scene in sample_scenes(CLEVR, 2, 6, seed=1):
        front, share = renderer.hidden(scene)
        assert 0.09 < share < 0.13
        masks = renderer.masks(scene)
        alone = SolidRenderer(places=(tuple(renderer.layout(scene)[1 - front]),), size=64)
        area = alone.masks(scene[1 - front, None]).sum()
        assert 1 - masks[1 - front].sum() / area == pytest.approx(share, abs=1e-6)
    with pytest.raises(ValueError, match=r"hides at most .* use a lower occlusion than"):
        SolidRenderer(placement="occluded", occlusion=(0.9, 0.95), size=64).render(scene[None])


@needs_mitsuba
def test_the_variant_of_mitsuba_is_left_as_it_was():
    import mitsuba

    mitsuba.set_variant("scalar_spectral")
    SolidRenderer(size=16, samples=1).render(torch.zeros(1, 1, 2, dtype=torch.int64))
    assert mitsuba.variant() == "scalar_spectral"


@needs_mitsuba
@pytest.mark.parametrize("name", SETS)
def test_the_committed_pictures_are_what_is_rendered_now(name):
    data = load_rendered(name)
    made = data.settings["pictures"]["renderer"]
    placed = {"placement": made["placement"], "places": made.get("places")}
    if made["placement"] == "occluded":
        placed = {"placement": "occluded", "occlusion": tuple(made["occlusion"])}
    elif made["places"] is not None:
        placed["places"] = tuple(map(tuple, made["places"]))
    scenes = data.scenes[len(data.scenes) // 2 :][:1]
    now = SolidRenderer(samples=made["samples"], seed=made["seed"], **placed).render(scenes)
    assert (now.float() - data.render(scenes).float()).abs().mean() < 2.5
