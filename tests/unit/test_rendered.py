"""The sets of pictures that come with the package: complete, undamaged, and usable as a renderer."""

import importlib
import json
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from PIL import Image

from conceptbind.datasets import load_rendered, rendered, rendered_sets
from conceptbind.embeddings import Renderer, encode_pictures
from conceptbind.encoders import from_functions
from conceptbind.render import SolidRenderer
from conceptbind.render.solid import PLACES
from conceptbind.scenes import factorial_scenes, sample_scenes, single_object_scenes
from conceptbind.spaces import CLEVR

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
render_sets = importlib.import_module("render_sets")

EXPECTED = {
    "clevr_3d": factorial_scenes(CLEVR, 2),
    "clevr_3d_left": single_object_scenes(CLEVR),
    "clevr_3d_right": single_object_scenes(CLEVR),
    "clevr_3d_occluded": factorial_scenes(CLEVR, 2),
    "clevr_3d_three": sample_scenes(CLEVR, 3, 288, seed=0),
}


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The smallest set in a folder of its own, to be damaged."""
    name = "clevr_3d_left"
    for file in (rendered.INDEX, rendered.FOLDER / f"{name}.zip"):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(rendered, "FOLDER", tmp_path)
    monkeypatch.setattr(rendered, "INDEX", tmp_path / rendered.INDEX.name)
    return name, tmp_path / f"{name}.zip"


# ---- what comes with the package


def test_the_sets_are_those_of_the_generator_and_take_less_than_six_megabytes():
    assert set(rendered_sets()) == set(EXPECTED) == set(render_sets.SETS)
    files = list(rendered.FOLDER.iterdir())
    assert {f.name for f in files} == {rendered.INDEX.name, *(f"{name}.zip" for name in EXPECTED)}
    assert sum(f.stat().st_size for f in files) < 6_000_000


@pytest.mark.parametrize("name", EXPECTED)
def test_every_set_shows_the_scenes_it_promises(name):
    data = load_rendered(name)
    assert data.space == CLEVR
    assert torch.equal(data.scenes, EXPECTED[name])
    assert data.places.shape == (*data.scenes.shape[:2], 2)
    assert json.loads(json.dumps(data.settings)) == data.settings
    assert isinstance(data, Renderer)
    places = {"clevr_3d_left": PLACES[2][:1], "clevr_3d_right": PLACES[2][1:]}.get(
        name, PLACES[data.scenes.shape[1]]
    )
    if data.hidden is None:
        assert torch.allclose(data.places, torch.tensor(places).expand_as(data.places))
    _, renderer, _ = render_sets.SETS[name]
    then = data.settings["pictures"]["renderer"]
    for part in set(renderer.settings) - {"mitsuba", "variant"}:
        assert then[part] == renderer.settings[part], part


def test_pictures_are_looked_up_by_scene_in_any_order():
    data = load_rendered("clevr_3d")
    rows = torch.tensor([575, 3, 3, 100])
    images = data.render(data.scenes[rows])
    assert images.shape == (4, 3, 224, 224)
    assert images.dtype == torch.uint8
    one_by_one = torch.cat([data.render(scene[None]) for scene in data.scenes[rows]])
    assert torch.equal(images, one_by_one)
    assert torch.equal(images[1], images[2])
    assert not torch.equal(images[0], images[1])
    assert data.render(data.scenes[:0]).shape == (0, 3, 224, 224)


def test_a_set_is_the_renderer_of_its_scenes(tmp_path):
    data = load_rendered("clevr_3d_left")
    encoder = from_functions(
        images=lambda x: x.float().mean((2, 3)), name="mean colour", version="1", image_size=224
    )
    embedded = encode_pictures(encoder, CLEVR, data.scenes, data, cache_dir=tmp_path)
    assert torch.allclose(embedded.embeddings, data.render(data.scenes).float().mean((2, 3)))
    assert (
        embedded.provenance["data"]["renderer"]["pictures"]["sha256"] == data.settings["pictures"]["sha256"]
    )


# ---- errors


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"no set of pictures 'clevr'.*there are \(.*'clevr_3d_three'"):
        load_rendered("clevr")


def test_a_scene_that_is_not_there_is_named():
    data = load_rendered("clevr_3d_three")
    every = factorial_scenes(CLEVR, 3)
    there = torch.isin(CLEVR.scene_index(every), CLEVR.scene_index(data.scenes))
    first = every[~there][:1]
    shown = " and ".join(CLEVR.describe(obj) for obj in first[0])
    with pytest.raises(ValueError, match=f"no picture of {shown}: it shows 288 scenes"):
        data.render(first)


def test_other_numbers_of_objects_other_copies_and_what_is_no_scene_are_errors():
    data = load_rendered("clevr_3d_left")
    with pytest.raises(
        ValueError, match=r"scenes of 1 objects; got scenes of 2: use another set of \('clevr_3d'"
    ):
        data.render(torch.zeros(1, 2, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="one picture of every scene, copy=0; got copy=1"):
        data.render(data.scenes, copy=1)
    with pytest.raises(ValueError, match="'colour' has 8 values"):
        data.render(torch.tensor([[[8, 0]]]))


def test_a_single_changed_byte_is_noticed(copied):
    name, path = copied
    assert len(load_rendered(name).scenes) == 24
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"left\.zip are damaged: expected sha256 .* install conceptbind again"
    ):
        load_rendered(name)


def test_a_truncated_a_missing_file_and_a_missing_index_are_errors(copied):
    name, path = copied
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ValueError, match="are damaged"):
        load_rendered(name)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"clevr_3d_left\.zip are missing: install conceptbind again"):
        load_rendered(name)
    rendered.INDEX.unlink()
    with pytest.raises(FileNotFoundError, match=r"index of the pictures .* is missing"):
        load_rendered(name)


# ---- the generator


class Planted(SolidRenderer):
    """Draws a scene as one plain colour, without Mitsuba."""

    def render(self, scenes, *, copy=0):
        plain = 10 * self.space.object_index(scenes).sum(1)
        return plain.to(torch.uint8)[:, None, None, None].expand(-1, 3, self.size, self.size).contiguous()


@pytest.fixture
def planted(tmp_path, monkeypatch):
    folder = tmp_path / "pictures"
    for module in (rendered, render_sets):
        monkeypatch.setattr(module, "FOLDER", folder)
        monkeypatch.setattr(module, "INDEX", folder / "index.json")
    monkeypatch.setattr(render_sets, "ROOT", tmp_path)
    scenes = single_object_scenes(CLEVR)
    monkeypatch.setattr(render_sets, "SETS", {"plain": ("plain pictures", Planted(size=32), scenes)})
    return folder, scenes


def test_what_is_packed_is_loaded_and_equal_pictures_give_equal_bytes(planted):
    folder, scenes = planted
    pictures = render_sets.render("plain")
    render_sets.pack("plain", pictures)
    data = load_rendered("plain")
    expected = Planted(size=32).render(scenes)
    # WebP keeps plain grey to within its quantisation.
    assert (data.render(scenes).int() - expected.int()).abs().max() <= 2
    once = (folder / "plain.zip").read_bytes()
    render_sets.pack("plain", pictures)
    assert (folder / "plain.zip").read_bytes() == once
    with zipfile.ZipFile(folder / "plain.zip") as archive:
        assert archive.namelist() == sorted(archive.namelist())
        assert len({entry.date_time for entry in archive.infolist()}) == 1


def test_rendering_continues_where_it_stopped(planted, monkeypatch):
    _, scenes = planted
    folder = render_sets.render("plain")
    kept = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    (folder / "0007.png").unlink()
    rendered_again = []
    of_class = Planted.render
    monkeypatch.setattr(
        Planted,
        "render",
        lambda self, s, **how: rendered_again.extend(s.tolist()) or of_class(self, s, **how),
    )
    assert render_sets.render("plain") == folder
    assert rendered_again == [scenes[7].tolist()]
    assert {p.name for p in folder.iterdir()} == set(kept)
    assert all(p.stat().st_mtime_ns == kept[p.name] for p in folder.iterdir() if p.name != "0007.png")


def test_check_tells_same_from_different(planted, monkeypatch):
    folder = render_sets.render("plain")
    render_sets.pack("plain", folder)
    assert render_sets.check("plain", 24) == []
    Image.new("RGB", (32, 32), (255, 0, 0)).save(folder / "0003.png")
    render_sets.pack("plain", folder)
    assert [p.split(" differs")[0] for p in render_sets.check("plain", 24)] == ["plain: picture 3"]
    about, renderer, scenes = render_sets.SETS["plain"]
    monkeypatch.setitem(render_sets.SETS, "plain", (about, renderer, scenes.flip(0)))
    assert render_sets.check("plain", 1) == ["plain: its scenes are not those of SETS: render the set again"]
    monkeypatch.setitem(render_sets.SETS, "plain", (about, Planted(size=32, samples=99), scenes))
    assert "settings of the renderer have changed" in render_sets.check("plain", 1)[0]
