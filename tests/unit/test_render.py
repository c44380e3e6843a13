"""The pictures show the scenes: colours, areas, places, and nothing but the scene and the settings."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from conceptbind.render import FlatRenderer, to_pil
from conceptbind.render.flat import PLACES
from conceptbind.render.shapes import POLYGONS, REACH, SHAPES, mask
from conceptbind.scenes import ConceptSpace, factorial_scenes, sample_scenes
from conceptbind.spaces import CAPTIONS_20, CLEVR, CLEVR_2D, CLEVR_COLOURS

ALL_SHAPES = ConceptSpace(("colour", "shape"), (tuple(CLEVR_COLOURS), SHAPES))
GROUND = torch.tensor(FlatRenderer().background)


def scenes_of(n_objects, n_scenes=20, space=ALL_SHAPES, seed=0):
    return sample_scenes(space, n_objects, n_scenes, seed=seed)


def coverage(image, ground, colour):
    """Recover how much of each pixel one object of this colour covers: (p - ground) / (colour - ground)."""
    image, ground, colour = (torch.as_tensor(x).double() for x in (image, ground, colour))
    channel = (colour - ground).abs().argmax()
    return (image[channel] - ground[channel]) / (colour[channel] - ground[channel])


# ---- shapes


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("side", [12.0, 44.75, 80.25])
def test_mask_has_the_area_the_symmetry_and_the_centre_it_promises(shape, side):
    m = mask(shape, side).astype(float) / 255
    half = len(m) // 2
    offsets = np.arange(-half, half) + 0.5
    assert m.sum() == pytest.approx(side**2, rel=0.003)
    assert np.array_equal(m, m[:, ::-1])
    assert (m.sum(0) @ offsets) / m.sum() == pytest.approx(0, abs=1e-9)
    assert (m.sum(1) @ offsets) / m.sum() == pytest.approx(0, abs=0.03)
    assert not m[0].any()
    assert not m[-1].any()
    assert not m[:, 0].any()
    assert m[half - 1 : half + 1, half - 1 : half + 1].min() == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_mask_agrees_with_sampling_points_in_the_analytic_shape(shape):
    """Another rasteriser: count sample points inside, by winding for polygons, by radius for the circle."""
    side, per_pixel = 20.0, 12
    m = mask(shape, side)
    half = len(m) // 2
    grid = ((np.arange(2 * half * per_pixel) + 0.5) / per_pixel - half) / side
    x, y = np.meshgrid(grid, grid)
    if shape == "circle":
        inside = x**2 + y**2 <= 1 / np.pi
    else:
        # A point is inside when the corners wind around it once.
        a = POLYGONS[shape]
        b = np.roll(a, -1, axis=0)
        z0 = (a[:, 0] - x[..., None]) + 1j * (a[:, 1] - y[..., None])
        z1 = (b[:, 0] - x[..., None]) + 1j * (b[:, 1] - y[..., None])
        inside = np.abs(np.angle(z1 / z0).sum(-1)) > np.pi
    expected = inside.reshape(2 * half, per_pixel, 2 * half, per_pixel).mean((1, 3))
    # Either rasteriser may be off by one of its sample rows at an edge that lies along the rows.
    assert np.abs(m / 255 - expected).max() < 1 / 12 + 1 / 16
    assert np.abs(m / 255 - expected).mean() < 0.003


def test_reach_is_the_distance_of_the_farthest_point_in_closed_form():
    assert REACH["circle"] == pytest.approx(1 / np.sqrt(np.pi))
    assert REACH["square"] == pytest.approx(np.sqrt(0.5))
    assert REACH["triangle"] == pytest.approx(np.sqrt(4 / (3 * np.sqrt(3))))
    assert REACH["hexagon"] == pytest.approx(np.sqrt(2 / (3 * np.sqrt(3))))
    assert REACH["cross"] == pytest.approx(np.sqrt(10 / 20))


# ---- pictures at fixed places


@pytest.mark.parametrize("n_objects", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [64, 224])
def test_the_pixel_at_each_place_has_exactly_the_colour(n_objects, size):
    scenes = scenes_of(n_objects)
    images = FlatRenderer(ALL_SHAPES, size=size).render(scenes)
    assert images.shape == (len(scenes), 3, size, size)
    assert images.dtype == torch.uint8
    palette = torch.tensor(list(CLEVR_COLOURS.values()), dtype=torch.uint8)
    for slot, (x, y) in enumerate(PLACES[n_objects]):
        assert torch.equal(images[:, :, int(y * size), int(x * size)], palette[scenes[:, slot, 0]])


@pytest.mark.parametrize("shape", SHAPES)
def test_area_in_the_picture_is_the_analytic_area_within_one_per_cent(shape):
    scene = torch.tensor([[[1, SHAPES.index(shape)]]])
    image = FlatRenderer(ALL_SHAPES).render(scene)[0]
    covered = coverage(image, GROUND, CLEVR_COLOURS["red"])
    assert covered.sum().item() == pytest.approx((0.2 * 224) ** 2, rel=0.01)


@pytest.mark.parametrize("shape", SHAPES)
def test_edges_are_anti_aliased_and_nothing_else_is(shape):
    scene = torch.tensor([[[1, SHAPES.index(shape)]]])
    covered = coverage(FlatRenderer(ALL_SHAPES).render(scene)[0], GROUND, CLEVR_COLOURS["red"])
    blended = ((covered > 0) & (covered < 1)).sum().item()
    outline = 44.75 * 3.5  # a circle of area 1 has the shortest outline, 2 sqrt(pi) = 3.54
    assert outline / 2 < blended < 3 * outline


def test_slot_0_is_left_and_slot_1_right():
    scenes = factorial_scenes(CLEVR_2D, 2)
    images = FlatRenderer().render(scenes).float()
    swapped = scenes.flip(1)
    # All shapes mirror left to right, so the mirrored picture is the picture of the swapped scene.
    assert torch.equal(images.flip(3), FlatRenderer().render(swapped).float())
    red_square, blue_circle = (1, 0), (2, 2)
    image = FlatRenderer().render(torch.tensor([[red_square, blue_circle]]))[0]
    left, right = image[:, :, :112], image[:, :, 112:]
    assert (left == torch.tensor(CLEVR_COLOURS["red"]).view(3, 1, 1)).all(0).any()
    assert not (right == torch.tensor(CLEVR_COLOURS["red"]).view(3, 1, 1)).all(0).any()
    assert (right == torch.tensor(CLEVR_COLOURS["blue"]).view(3, 1, 1)).all(0).any()


def test_all_576_pictures_differ():
    images = FlatRenderer().render(factorial_scenes(CLEVR_2D, 2))
    assert len({image.numpy().tobytes() for image in images}) == 576


def test_places_of_ones_own():
    left = FlatRenderer(places=((0.25, 0.5),)).render(torch.tensor([[[1, 0]]]))[0]
    pair = FlatRenderer().render(torch.tensor([[[1, 0], [2, 2]]]))[0]
    assert torch.equal(left[:, :, :112], pair[:, :, :112])
    assert (left[:, :, 112:] == GROUND.view(3, 1, 1)).all()


def test_colours_and_background_of_ones_own():
    space = ConceptSpace(("shape", "color"), (("star",), ("mauve",)))
    renderer = FlatRenderer(space, colours={"mauve": (224, 176, 255)}, background=(0, 0, 0))
    image = renderer.render(torch.zeros(1, 1, 2, dtype=torch.int64))[0]
    assert image[:, 112, 112].tolist() == [224, 176, 255]
    assert image[:, 0, 0].tolist() == [0, 0, 0]


def test_to_pil_keeps_every_pixel():
    images = FlatRenderer(size=32).render(scenes_of(2, 3, CLEVR_2D))
    pictures = to_pil(images)
    assert [p.mode for p in pictures] == ["RGB"] * 3
    assert torch.equal(
        torch.from_numpy(np.stack([np.asarray(p) for p in pictures])), images.permute(0, 2, 3, 1)
    )


def test_no_scenes_give_no_pictures():
    assert FlatRenderer(size=32).render(torch.zeros(0, 2, 2, dtype=torch.int64)).shape == (0, 3, 32, 32)
    assert to_pil(torch.zeros(0, 3, 32, 32, dtype=torch.uint8)) == []


# ---- jitter and free placement


JITTERED = [
    {"place_jitter": 0.04, "size_jitter": 0.1, "background_jitter": 20},
    {"placement": "free", "size_jitter": 0.2, "background_jitter": 20},
    {"placement": "free", "overlap": True, "object_size": 0.3},
]


@pytest.mark.parametrize("how", JITTERED)
def test_a_picture_depends_on_the_settings_the_scene_and_the_copy_only(how):
    scenes = scenes_of(3, 12)
    renderer = FlatRenderer(ALL_SHAPES, size=96, **how)
    images = renderer.render(scenes)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    one_by_one = torch.cat([FlatRenderer(ALL_SHAPES, size=96, **how).render(s[None]) for s in scenes.flip(0)])
    assert torch.equal(images, one_by_one.flip(0))
    for other in (
        renderer.render(scenes, copy=1),
        FlatRenderer(ALL_SHAPES, size=96, seed=1, **how).render(scenes),
    ):
        assert (images != other).flatten(1).any(1).all()


def test_without_jitter_seed_and_copy_change_nothing():
    scenes = scenes_of(2, 4)
    assert torch.equal(
        FlatRenderer(ALL_SHAPES, size=64).render(scenes),
        FlatRenderer(ALL_SHAPES, size=64, seed=5).render(scenes, copy=3),
    )


@settings(max_examples=100, deadline=None)
@given(
    n_objects=st.integers(1, 4),
    free=st.booleans(),
    size=st.integers(48, 224),
    object_size=st.floats(0.08, 0.18),
    size_jitter=st.floats(0, 0.3),
    copy=st.integers(0, 10**6),
    seed=st.integers(0, 2**40),
)
def test_objects_stay_inside_and_apart(n_objects, free, size, object_size, size_jitter, copy, seed):
    renderer = FlatRenderer(
        ALL_SHAPES,
        size=size,
        placement="free" if free else "fixed",
        place_jitter=0.0 if free else 0.03,
        object_size=object_size,
        size_jitter=size_jitter,
        seed=seed,
    )
    scene = scenes_of(n_objects, 1, seed=seed % 1000)
    centres, sides = renderer.layout(scene[0], copy=copy)
    reach = sides * [REACH[SHAPES[s]] for s in scene[0, :, 1]]
    assert (centres >= reach[:, None]).all()
    assert (centres <= size - reach[:, None]).all()
    for i in range(n_objects):
        assert abs(sides[i] / size - object_size) <= object_size * size_jitter + 0.25 / size
        for j in range(i):
            assert np.hypot(*(centres[i] - centres[j])) > reach[i] + reach[j]
    # In the picture too: the covered area is the sum of the objects' areas.
    image = renderer.render(scene, copy=copy)[0]
    palette = torch.tensor(list(CLEVR_COLOURS.values()))[scene[0, :, 0]]
    shown = [(image == c.view(3, 1, 1)).all(0) for c in palette.unique(dim=0)]
    not_ground = (image != GROUND.view(3, 1, 1)).any(0)
    assert sum(s.sum().item() for s in shown) <= not_ground.sum().item()
    masks = sum((mask(SHAPES[s], float(a)) > 0).sum() for s, a in zip(scene[0, :, 1], sides, strict=True))
    assert abs(not_ground.sum().item() - masks) <= 0.01 * masks  # faintest alphas may round to the ground


def test_free_places_are_uniform_and_the_same_for_every_shape():
    """Without overlap to avoid, x is uniform on the allowed integers: mean and variance in closed form."""
    renderer = FlatRenderer(CLEVR_2D, placement="free")
    reach = REACH["triangle"] * 44.75
    low, high = np.ceil(reach), np.floor(224 - reach)
    for shape in range(3):
        scene = torch.tensor([[1, shape]])
        x = np.concatenate([renderer.layout(scene, copy=c)[0] for c in range(1500)]).ravel()
        assert (x.min(), x.max()) == (low, high)
        n = high - low + 1
        variance = (n**2 - 1) / 12
        assert abs(x.mean() - (low + high) / 2) < 4 * np.sqrt(variance / len(x))
        # var of the sample variance of a uniform: (mu4 - sigma^4)/n = sigma^4 (1.8 - 1)/n
        assert abs(x.var() - variance) < 4 * variance * np.sqrt(0.8 / len(x))


def test_size_jitter_and_background_jitter_fill_their_ranges():
    renderer = FlatRenderer(size_jitter=0.25, background_jitter=10)
    scene = torch.tensor([[1, 0]])
    sides = np.concatenate([renderer.layout(scene, copy=c)[1] for c in range(500)]) / 44.8
    assert sides.min() == pytest.approx(0.75, abs=0.01)
    assert sides.max() == pytest.approx(1.25, abs=0.01)
    corners = torch.stack([renderer.render(scene[None], copy=c)[0, :, 0, 0] for c in range(200)]).int()
    assert corners.min() == 210
    assert corners.max() == 230


def test_overlapping_objects_are_drawn_in_slot_order():
    renderer = FlatRenderer(places=((0.5, 0.5), (0.5, 0.5)), overlap=True)
    image = renderer.render(torch.tensor([[[1, 0], [2, 0]]]))[0]
    assert image[:, 112, 112].tolist() == list(CLEVR_COLOURS["blue"])
    assert not (image == torch.tensor(CLEVR_COLOURS["red"]).view(3, 1, 1)).all(0).any()


# ---- settings


def test_settings_are_json_and_tell_apart_whatever_changes_pixels():
    base = FlatRenderer()
    assert json.loads(json.dumps(base.settings)) == base.settings
    assert base == FlatRenderer()
    assert hash(base) == hash(FlatRenderer())
    others = [
        FlatRenderer(ALL_SHAPES),
        FlatRenderer(size=225),
        FlatRenderer(placement="free"),
        FlatRenderer(places=PLACES[2]),
        FlatRenderer(object_size=0.21),
        FlatRenderer(place_jitter=0.01),
        FlatRenderer(size_jitter=0.01),
        FlatRenderer(background=(220, 220, 221)),
        FlatRenderer(background_jitter=1),
        FlatRenderer(overlap=True),
        FlatRenderer(colours=CLEVR_COLOURS | {"red": (255, 0, 0)}),
        FlatRenderer(seed=1),
    ]
    keys = {json.dumps(r.settings, sort_keys=True) for r in [base, *others]}
    assert len(keys) == 1 + len(others)


def test_a_later_change_of_the_palette_does_not_reach_the_renderer():
    colours = dict(CLEVR_COLOURS)
    renderer = FlatRenderer(colours=colours)
    colours["red"] = (0, 0, 0)
    assert renderer.colours["red"] == CLEVR_COLOURS["red"]


# ---- errors


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"space": CLEVR}, r"shapes \['cube', 'cylinder', 'sphere'\]; can draw \('square', 'triangle'"),
        ({"space": CAPTIONS_20}, r"draws the concepts 'colour' and 'shape'.*\('attribute', 'noun'\)"),
        (
            {"space": ConceptSpace(("colour", "shape"), (("mauve",), ("star",)))},
            r"colours \['mauve'\].*give the RGB of others in colours=",
        ),
        (
            {"space": ConceptSpace(("colour", "shape", "size"), (("red",), ("star",), ("big",)))},
            "nothing else",
        ),
        ({"background": (87, 87, 87)}, r"'gray' \(87, 87, 87\) could be lost.*choose another background"),
        ({"background": (256, 0, 0)}, "background must be three whole numbers from 0 to 255"),
        ({"colours": CLEVR_COLOURS | {"red": (1, 2)}}, "colour 'red' must be three whole numbers"),
        ({"size": 4}, "at least 8; got 4"),
        ({"placement": "free", "place_jitter": 0.1}, "belong to placement='fixed': leave them out"),
        ({"placement": "free", "places": ((0.5, 0.5),)}, "belong to placement='fixed': leave them out"),
        ({"object_size": 1.5}, "object_size must be at least 0 and below 1; got 1.5"),
        ({"size_jitter": -0.1}, "size_jitter must be at least 0 and below 1; got -0.1"),
        ({"object_size": 0.0}, "two pixels wide or more"),
        ({"seed": -1}, "seed must be 0 or more; got -1"),
    ],
)
def test_a_renderer_that_cannot_work_is_refused(how, message):
    with pytest.raises(ValueError, match=message):
        FlatRenderer(**how)


def test_an_unknown_placement_is_refused():
    with pytest.raises(
        (ValueError, TypeCheckError), match="placement"
    ):  # the tests' type check may come first
        FlatRenderer(placement="grid")


@pytest.mark.parametrize(
    ("how", "n_objects", "message"),
    [
        ({}, 5, r"known for 1 to 4 objects, the scenes have 5: give places="),
        ({"places": PLACES[2]}, 3, "has 2 places, but the scenes have 3 objects"),
        ({"object_size": 0.4}, 2, "2 objects of object_size 0.4 stick out.*use a smaller object_size"),
        (
            {"places": ((0.4, 0.5), (0.6, 0.5)), "size_jitter": 0.1},
            2,
            "overlap at their fixed places: use a smaller object_size or size_jitter, or overlap=True",
        ),
        ({"placement": "free", "object_size": 0.9}, 1, "larger than the picture"),
        (
            {"placement": "free", "object_size": 0.3},
            4,
            r"4 objects of object_size 0\.3 found no places without overlap in 2\d\d,\d\d\d tries: "
            "use a smaller object_size, or overlap=True",
        ),
    ],
)
def test_an_impossible_layout_is_an_error_that_names_the_way_out(how, n_objects, message):
    scenes = torch.zeros(1, n_objects, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match=message):
        FlatRenderer(**how).render(scenes)


def test_a_value_outside_the_space_and_a_negative_copy_are_errors():
    with pytest.raises(ValueError, match="'shape' has 3 values"):
        FlatRenderer().render(torch.tensor([[[0, 3]]]))
    with pytest.raises(ValueError, match="copy must be 0 or more"):
        FlatRenderer().render(torch.tensor([[[0, 1]]]), copy=-1)
