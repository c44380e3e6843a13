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
from conceptbind.render.occlusion import MAX_TURN, hidden_shares, offset_that_hides
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


def test_single_objects_at_the_place_of_either_slot():
    pairs = factorial_scenes(CLEVR_2D, 2)[::23]
    images = FlatRenderer().render(pairs)
    left, right = (FlatRenderer(places=(place,)).render(pairs[:, [i]]) for i, place in enumerate(PLACES[2]))
    assert torch.equal(left[..., :112], images[..., :112])
    assert torch.equal(right[..., 112:], images[..., 112:])
    assert (left[..., 112:] == GROUND.view(3, 1, 1)).all()
    assert (right[..., :112] == GROUND.view(3, 1, 1)).all()


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


# ---- occluded pairs


OCCLUDED = FlatRenderer(ALL_SHAPES, placement="occluded")


def unmix(image, first, second):
    """Recover how much of each pixel two colours and the ground cover, from p = a first + b second + (1-a-b) ground."""
    basis = torch.stack([torch.tensor(c).double() - GROUND for c in (first, second)], dim=1)
    pixels = image.double().flatten(1) - GROUND.double()[:, None]
    return torch.linalg.lstsq(basis, pixels).solution.reshape(2, *image.shape[1:])


def test_the_hidden_share_in_the_picture_is_the_promised_one():
    """Measured in pixels: the back object's colour beside the front one, against the object alone."""
    palette = list(CLEVR_COLOURS.values())
    n_measured = 0
    for scene in scenes_of(2, 60, seed=3):
        if scene[0, 0] == scene[1, 0]:
            continue
        front, hidden = OCCLUDED.hidden(scene)
        seen = unmix(OCCLUDED.render(scene[None])[0], *(palette[c] for c in scene[:, 0].tolist()))
        assert seen[front].sum().item() == pytest.approx(44.75**2, rel=0.01)
        assert 1 - seen[1 - front].sum().item() / 44.75**2 == pytest.approx(hidden, abs=0.01)
        n_measured += 1
    assert n_measured > 40


def test_shares_fill_the_range_either_slot_is_in_front_and_slot_0_is_left():
    scenes = factorial_scenes(CLEVR_2D, 2)
    renderer = FlatRenderer(placement="occluded")
    front, hidden = map(np.array, zip(*(renderer.hidden(s) for s in scenes), strict=True))
    low, high = renderer.occlusion
    assert hidden.min() >= low - 0.01
    assert hidden.max() <= high + 0.01
    assert abs(hidden.mean() - (low + high) / 2) < 4 * (high - low) / np.sqrt(12 * 576)
    assert hidden.std() == pytest.approx((high - low) / np.sqrt(12), rel=0.1)
    assert abs(front.mean() - 0.5) < 4 * 0.5 / np.sqrt(576)
    for scene in scenes[::7]:
        centres, _ = renderer.layout(scene)
        assert centres[0, 0] < centres[1, 0]
        assert np.abs(centres.mean(0) - 112).max() <= 0.5


def test_every_pair_of_shapes_meets_every_share_at_every_angle():
    for front in SHAPES:
        for back in SHAPES:
            for share in (0.1, 0.25, 0.4):
                for angle in np.linspace(-MAX_TURN, MAX_TURN, 3):
                    (x, y), hidden = offset_that_hides(
                        (front, 44.75), (back, 44.75), share, angle=float(angle)
                    )
                    assert abs(hidden - share) < 0.5 / 44.75  # half a pixel along a whole side
                    assert x > 0
                    assert abs(y * np.cos(angle) - x * np.sin(angle)) <= 1.5


def test_hidden_shares_of_squares_in_closed_form_and_of_others_by_laying_masks_on_one_another():
    side = 12.0
    shares = hidden_shares(mask("square", side), mask("square", side))
    middle = len(shares) // 2
    for dx, dy in [(0, 0), (3, 0), (-3, 0), (5, -7), (-1, 11), (12, 0), (13, 2)]:
        expected = max(0, 1 - abs(dx) / side) * max(0, 1 - abs(dy) / side)
        assert shares[middle + dy, middle + dx] == pytest.approx(expected, abs=1e-9)
    front, back = mask("star", 20.0), mask("triangle", 30.25)
    shares = hidden_shares(front, back)
    middle = len(shares) // 2
    for dx, dy in [(0, 0), (5, -3), (-12, 7), (20, 4)]:
        ground = np.zeros((2, 160, 160))
        for layer, m, x, y in ((ground[0], front, 80 + dx, 80 + dy), (ground[1], back, 80, 80)):
            half = len(m) // 2
            layer[y - half : y + half, x - half : x + half] = m / 255
        expected = (ground[0] * ground[1]).sum() / ground[1].sum()
        assert shares[middle + dy, middle + dx] == pytest.approx(expected, abs=1e-9)


def test_an_occluded_picture_depends_on_the_settings_the_scene_and_the_copy_only():
    scenes = scenes_of(2, 12)
    images = OCCLUDED.render(scenes)
    one_by_one = torch.cat(
        [FlatRenderer(ALL_SHAPES, placement="occluded").render(s[None]) for s in scenes.flip(0)]
    )
    assert torch.equal(images, one_by_one.flip(0))
    other_seed = FlatRenderer(ALL_SHAPES, placement="occluded", seed=1)
    for other in (OCCLUDED.render(scenes, copy=1), other_seed.render(scenes)):
        assert (images != other).flatten(1).any(1).all()


def test_occluded_objects_may_vary_in_size():
    renderer = FlatRenderer(placement="occluded", size_jitter=0.2, occlusion=(0.3, 0.3))
    for scene in factorial_scenes(CLEVR_2D, 2)[::29]:
        assert renderer.hidden(scene)[1] == pytest.approx(0.3, abs=0.015)


# ---- settings


def test_occlusion_is_part_of_the_settings_only_where_it_matters():
    for how in ({}, {"placement": "free"}):
        assert FlatRenderer(occlusion=(0.1, 0.2), **how).settings == FlatRenderer(**how).settings
        assert "occlusion" not in FlatRenderer(**how).settings
    one, other = (FlatRenderer(placement="occluded", occlusion=o) for o in ((0.1, 0.2), (0.2, 0.3)))
    assert one.settings != other.settings


def test_settings_are_json_and_tell_apart_whatever_changes_pixels():
    base = FlatRenderer()
    assert json.loads(json.dumps(base.settings)) == base.settings
    assert base == FlatRenderer()
    assert hash(base) == hash(FlatRenderer())
    others = [
        FlatRenderer(ALL_SHAPES),
        FlatRenderer(size=225),
        FlatRenderer(placement="free"),
        FlatRenderer(placement="occluded"),
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
        ({"placement": "occluded", "place_jitter": 0.1}, "leave them out, occluded places follow from"),
        ({"placement": "occluded", "overlap": True}, "leave it out, occluded objects overlap"),
        ({"occlusion": (0.3, 0.2)}, r"0 < low <= high < 1; got \(0.3, 0.2\)"),
        ({"occlusion": (0.0, 0.2)}, r"0 < low <= high < 1; got \(0.0, 0.2\)"),
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
        ({"placement": "occluded"}, 3, "an occluded scene has two objects, these have 3"),
        ({"placement": "occluded", "object_size": 0.6}, 2, "2 objects of object_size 0.6 stick out"),
        (
            {"placement": "occluded", "occlusion": (0.985, 0.99)},
            2,
            r"a square hides at most 0\.9\d of a square beside it; 0\.99 is wanted: use a lower occlusion",
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


def test_only_occluded_scenes_say_what_is_hidden():
    with pytest.raises(ValueError, match="'fixed' says nothing of this: use placement='occluded'"):
        FlatRenderer().hidden(torch.zeros(2, 2, dtype=torch.int64))


def test_a_value_outside_the_space_and_a_negative_copy_are_errors():
    with pytest.raises(ValueError, match="'shape' has 3 values"):
        FlatRenderer().render(torch.tensor([[[0, 3]]]))
    with pytest.raises(ValueError, match="copy must be 0 or more"):
        FlatRenderer().render(torch.tensor([[[0, 1]]]), copy=-1)
