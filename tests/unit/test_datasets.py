"""Loaders of folders, on tiny folders in the real formats."""

import csv
import json
import os
import weakref

import numpy as np
import pytest
import torch
from PIL import Image

from conceptbind import embeddings
from conceptbind.datasets import ImageFiles, load_clevr, load_labelled_folder, load_pug_spare
from conceptbind.embeddings import encode_folder
from conceptbind.encoders import from_functions, load
from conceptbind.scenes import ConceptSpace, factorial_scenes
from conceptbind.spaces import CLEVR, CLEVR_2D

ANIMALS = "Bear Camel Cat Caribou Crow Dog Elephant Goat Lion Penguin Snake Zebra".split()
TEXTURES = "Asphalt Blue Fur Grass Red Sand Stone Wood".split()
PUG_COLUMNS = (
    "filename world_name character_name character2_name character_texture character2_texture "
    "character_pos character2_pos"
).split()


def write_table(path, rows, columns=None):
    columns = columns or list(rows[0])
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def write_pictures(folder, names, colours=None):
    folder.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        Image.new("RGB", (4, 3), (colours[i] if colours else (i % 256, 0, 0))).save(folder / name)


def pug_row(i, first, second, position=("left", "right"), world="Desert"):
    (animal, texture), (animal2, texture2) = first, second
    cells = (f"{i}.png", world, animal, animal2, texture, texture2, *position)
    return dict(zip(PUG_COLUMNS, cells, strict=True))


def pug_rows(animals, textures, **kwargs):
    pairs = [(a, t) for a in animals for t in textures]
    legal = [(o, p) for o in pairs for p in pairs if o[0] != p[0] and o[1] != p[1]]
    return [pug_row(i, o, p, **kwargs) for i, (o, p) in enumerate(legal)]


@pytest.fixture
def small_pug(tmp_path):
    """3 animals x 2 textures: 3 * 2 * 2 * 1 = 12 ordered pairs."""
    rows = pug_rows(ANIMALS[:3], TEXTURES[:2])
    write_pictures(tmp_path, [r["filename"] for r in rows])
    return tmp_path, rows


# ---- PUG:SPARE


def test_the_whole_of_pug_spare(tmp_path):
    rows = pug_rows(ANIMALS[::-1], TEXTURES[::-1])
    assert len(rows) == 7392
    write_table(tmp_path / "labels.csv", rows)
    write_pictures(tmp_path, ["0.png"])
    for row in rows[1:]:
        os.link(tmp_path / "0.png", tmp_path / row["filename"])
    data = load_pug_spare(tmp_path)
    assert data.space == ConceptSpace(
        ("animal", "texture"), (tuple(sorted(ANIMALS)), tuple(sorted(TEXTURES)))
    )
    assert data.notes == ()
    assert len(data.images) == len(data.scenes) == 7392
    expected = factorial_scenes(data.space, 2, repeats="distinct values")
    assert torch.equal(data.space.scene_index(data.scenes).sort()[0], data.space.scene_index(expected))
    for i in (0, 17, 7391):
        named = [data.space.describe(obj) for obj in data.scenes[i]]
        row = rows[i]
        assert named == [
            f"{row['character_name']} {row['character_texture']}",
            f"{row['character2_name']} {row['character2_texture']}",
        ]
        assert data.images.paths[i].name == row["filename"]

    # One line less, and one picture less.
    write_table(tmp_path / "labels.csv", rows[1:])
    with pytest.raises(
        ValueError, match=r"1 of 7,392 ordered pairs are missing, the first is Zebra Wood and"
    ):
        load_pug_spare(tmp_path)
    (tmp_path / "5.png").unlink()
    data = load_pug_spare(tmp_path, allow_missing=True)
    assert len(data.images) == len(data.scenes) == 7390
    assert "5.png" not in {p.name for p in data.images.paths}
    assert data.notes[0].startswith("1 of 7,391 listed pictures are missing")
    assert data.notes[1].startswith("2 of 7,392 ordered pairs are missing")


def test_pug_other_spelling_and_other_layout(small_pug):
    folder, rows = small_pug
    write_table(folder / "labels.csv", rows)
    plain = load_pug_spare(folder, allow_missing=True)
    # The hub's spelling, one folder a world, another world beside it.
    other = folder / "other"
    write_pictures(other / "Desert", [r["filename"] for r in rows])
    write_pictures(other / "Island", [r["filename"] for r in rows])
    columns = [c.replace("character_pos", "character1_pos") for c in PUG_COLUMNS]
    island = [r | {"world_name": "Island"} for r in rows]
    write_table(
        other / "PUG_SPARE.csv", [r | {"character1_pos": r["character_pos"]} for r in rows + island], columns
    )
    loaded = load_pug_spare(other, allow_missing=True)
    assert torch.equal(loaded.scenes, plain.scenes)
    assert {p.parent.name for p in loaded.images.paths} == {"Desert"}
    assert loaded.settings == plain.settings
    island = load_pug_spare(other, world="Island", allow_missing=True)
    assert {p.parent.name for p in island.images.paths} == {"Island"}
    assert island.settings != plain.settings
    with pytest.raises(ValueError, match=r"no picture of the world 'Moon'.*\['Desert', 'Island'\]"):
        load_pug_spare(other, world="Moon")


def test_pug_slots_by_position_and_by_character(small_pug):
    folder, rows = small_pug
    kept = [rows[0], rows[1] | {"character_pos": "Right", "character2_pos": "Left"}]
    write_table(folder / "labels.csv", kept)
    by_position = load_pug_spare(folder, allow_missing=True)
    by_character = load_pug_spare(folder, slots="character", allow_missing=True)
    assert torch.equal(by_position.scenes[0], by_character.scenes[0])
    assert torch.equal(by_position.scenes[1], by_character.scenes[1].flip(0))
    assert by_position.settings != by_character.settings

    # One unknown word a character is an order all the same; several are not.
    write_table(folder / "labels.csv", [r | {"character_pos": "A", "character2_pos": "B"} for r in rows])
    assert len(load_pug_spare(folder, allow_missing=True).scenes) == 12
    mixed = [rows[0] | {"character_pos": "A"}, rows[1]]
    write_table(folder / "labels.csv", mixed)
    with pytest.raises(ValueError, match=r"which of the positions \['a'\] is left.*use slots='character'"):
        load_pug_spare(folder, allow_missing=True)
    write_table(folder / "labels.csv", [rows[0] | {"character2_pos": "left"}])
    with pytest.raises(ValueError, match=r"line 2: both animals are 'left'"):
        load_pug_spare(folder, allow_missing=True)


def test_pug_expects_12_animals_and_8_textures(small_pug):
    folder, rows = small_pug
    write_table(folder / "labels.csv", rows)
    with pytest.raises(ValueError, match=r"expected 12 animals and 8 textures, found 3 .*allow_missing=True"):
        load_pug_spare(folder)
    assert "found 3" in load_pug_spare(folder, allow_missing=True).notes[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"character2_name": "Bear"}, r"labels.csv, line 3: animal 'Bear' twice"),
        ({"character2_texture": "Asphalt"}, r"line 3: texture 'Asphalt' twice"),
        ({"character_texture": " "}, r"line 3: column 'character_texture' is empty: fill it in"),
        ({"character2_name": "Camel"}, r"line 3: the same pair \(.*\) as line 2: keep one"),
    ],
)
def test_pug_lines_that_break_the_rules(small_pug, change, message):
    folder, rows = small_pug
    write_table(folder / "labels.csv", [rows[0], rows[1] | change])
    with pytest.raises(ValueError, match=message):
        load_pug_spare(folder, allow_missing=True)


def test_pug_missing_column_names_it_and_what_was_found(small_pug):
    folder, rows = small_pug
    write_table(folder / "labels.csv", rows, [c for c in PUG_COLUMNS if c != "character2_name"])
    with pytest.raises(ValueError, match=r"no column 'character2_name'; it has \['filename', 'world_name'"):
        load_pug_spare(folder)
    write_table(folder / "labels.csv", rows, [c for c in PUG_COLUMNS if c != "character_pos"])
    with pytest.raises(ValueError, match="no column 'character_pos' or 'character1_pos'"):
        load_pug_spare(folder)
    assert len(load_pug_spare(folder, slots="character", allow_missing=True).scenes) == 12


def test_pug_missing_pictures(small_pug):
    folder, rows = small_pug
    write_table(folder / "labels.csv", rows)
    for i in (3, 4):
        (folder / f"{i}.png").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"lists 12 pictures; 2 of them are missing, the first is .*3\.png"
    ):
        load_pug_spare(folder)
    for path in folder.glob("*.png"):
        path.unlink()
    with pytest.raises(FileNotFoundError, match="none of the 12 pictures"):
        load_pug_spare(folder, allow_missing=True)


# ---- any folder with labels


LABELS = [
    {
        "filename": "b.png",
        "object1_colour": "red",
        "object1_size": "2",
        "object2_colour": "blue",
        "object2_size": "10",
    },
    {
        "filename": "a.png",
        "object1_colour": "blue",
        "object1_size": "10",
        "object2_colour": "blue",
        "object2_size": "2",
    },
]


@pytest.fixture
def labelled(tmp_path):
    write_table(tmp_path / "labels.csv", LABELS)
    write_pictures(tmp_path, ["b.png", "a.png"], [(200, 0, 0), (0, 0, 200)])
    return tmp_path


def test_labelled_folder_reads_concepts_slots_and_values(labelled):
    data = load_labelled_folder(labelled)
    # Words sort by letter, numbers by size.
    assert data.space == ConceptSpace(("colour", "size"), (("blue", "red"), ("2", "10")))
    assert data.scenes.tolist() == [[[1, 0], [0, 1]], [[0, 1], [0, 0]]]
    assert [image.getpixel((0, 0)) for image in data.images] == [(200, 0, 0), (0, 0, 200)]
    assert json.loads(json.dumps(data.settings)) == data.settings


def test_labelled_folder_with_a_given_space_and_some_concepts(labelled):
    space = ConceptSpace(("colour",), (("red", "green", "blue"),))
    assert load_labelled_folder(labelled, space=space).scenes.tolist() == [[[0], [2]], [[2], [2]]]
    assert load_labelled_folder(labelled, concepts=("size",)).space.values == (("2", "10"),)
    with pytest.raises(ValueError, match=r"line 2: .*'red' is no value of 'colour'.* \('green', 'blue'\)"):
        load_labelled_folder(labelled, space=ConceptSpace(("colour",), (("green", "blue"),)))
    with pytest.raises(ValueError, match="give one of the two"):
        load_labelled_folder(labelled, space=space, concepts=("size",))


def test_labelled_folder_with_other_column_names_a_byte_order_mark_and_backslashes(tmp_path):
    rows = [{"path": r"sub\x.png", "what 1": "cat", "what 2": "dog"}]
    write_table(tmp_path / "t.csv", rows)
    text = (tmp_path / "t.csv").read_text(encoding="utf-8")
    (tmp_path / "t.csv").write_text(text, encoding="utf-8-sig")
    write_pictures(tmp_path / "sub", ["x.png"])
    data = load_labelled_folder(tmp_path, labels="t.csv", filename="path", columns="{concept} {slot}")
    assert data.space == ConceptSpace(("what",), (("cat", "dog"),))
    assert data.images[0].size == (4, 3)


def test_settings_change_with_labels_and_files_but_not_with_the_folder(labelled, tmp_path):
    before = load_labelled_folder(labelled).settings
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("labels.csv", "a.png", "b.png"):
        os.rename(labelled / name, moved / name)
    assert load_labelled_folder(moved).settings == before
    write_table(moved / "labels.csv", [LABELS[0] | {"object1_size": "10"}, LABELS[1]])
    relabelled = load_labelled_folder(moved).settings
    assert relabelled != before
    Image.new("RGB", (40, 30)).save(moved / "a.png")
    assert load_labelled_folder(moved).settings != relabelled


def write_text(folder, text):
    (folder / "labels.csv").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: its first line must name every column once"),
        ("filename,object1_colour\n", "has no line below its header"),
        (
            "filename;object1_colour\na.png;red\n",
            "separated by semicolons, the first line is .*: separate them by commas",
        ),
        ("filename,a,a\n", r"names the columns \['a'\] twice"),
        (
            "filename,colour\na.png,red\n",
            r"no column 'object1_<concept>'.*'colour'\]: rename them, or",
        ),
        ("name,object1_colour\na.png,red\n", r"no column 'filename'; it has \['name', 'object1_colour'\]"),
        ("filename,object2_colour\na.png,red\n", "no column 'object1_colour'"),
        ("filename,object1_colour,object2_size\na.png,red,2\n", "no column 'object1_size'"),
        ("filename,object1_colour\na.png\n", "line 2: expected 2 cells, one a column; got 1"),
        ("filename,object1_colour\na.png,red,blue\n", "line 2: expected 2 cells, one a column; got 3"),
        ("filename,object1_colour\n,red\n", "line 2: column 'filename' is empty"),
        ("filename,object1_colour\na.png,red\na.png,red\n", r"lists .*a\.png more than once"),
    ],
)
def test_tables_that_cannot_be_read(labelled, text, message):
    write_text(labelled, text)
    with pytest.raises(ValueError, match=message):
        load_labelled_folder(labelled)


def test_missing_folder_table_and_picture(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"expected a folder of pictures at .*nowhere; found nothing there"
    ):
        load_labelled_folder(tmp_path / "nowhere")
    write_pictures(tmp_path, ["x.png"])
    with pytest.raises(FileNotFoundError, match="found a file there"):
        load_labelled_folder(tmp_path / "x.png")
    with pytest.raises(FileNotFoundError, match=r"has no labels.csv; it has x.png: give the folder"):
        load_labelled_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no labels.csv or PUG_SPARE.csv"):
        load_pug_spare(tmp_path)
    write_text(tmp_path, "filename,object1_colour\nx.png,red\ny.png,red\n")
    with pytest.raises(
        FileNotFoundError, match=r"lists 2 pictures; 1 of them are missing, the first is .*y\.png"
    ):
        load_labelled_folder(tmp_path)


@pytest.mark.parametrize("columns", ["{concept}", "object_{slot}", "{slot}{slot}_{concept}"])
def test_the_pattern_of_columns_needs_slot_and_concept(labelled, columns):
    with pytest.raises(ValueError, match=r"must contain \{slot\} and \{concept\} once each"):
        load_labelled_folder(labelled, columns=columns)


# ---- pictures


def test_image_files_open_lazily_slice_and_convert(tmp_path):
    write_pictures(tmp_path, ["a.png"], [(1, 2, 3)])
    Image.new("L", (2, 2), 7).save(tmp_path / "grey.png")
    (tmp_path / "broken.png").write_bytes(b"not a picture")
    images = ImageFiles([tmp_path / n for n in ("a.png", "grey.png", "broken.png", "gone.png")])
    assert len(images) == 4
    assert images[0].getpixel((0, 0)) == (1, 2, 3)
    assert images[1].mode == "RGB"
    assert [image.size for image in images[:2]] == [(4, 3), (2, 2)]
    assert len(images[1:]) == 3
    with pytest.raises(ValueError, match=r"cannot read the picture .*broken\.png .*replace it"):
        images[2]
    with pytest.raises(FileNotFoundError, match=r"gone\.png is gone"):
        images[-1]
    with pytest.raises(IndexError):
        images[4]


def test_a_truncated_picture_is_an_error_that_names_it(tmp_path):
    noise = Image.effect_noise((64, 64), 50).convert("RGB")
    noise.save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"cannot read the picture .*a\.png"):
        ImageFiles([tmp_path / "a.png"])[0]


def test_a_photograph_is_turned_the_way_the_camera_noted(tmp_path):
    image = Image.new("RGB", (8, 4))
    exif = image.getexif()
    exif[0x0112] = 6  # rotate by 90 degrees
    image.save(tmp_path / "p.jpg", exif=exif)
    assert ImageFiles([tmp_path / "p.jpg"])[0].size == (4, 8)


# ---- from pictures to embeddings


class Counting:
    """Encode a picture as its mean colour, counting the pictures."""

    def __init__(self):
        self.images = 0
        self.encoder = from_functions(images=self._encode, name="mean colour", version="1")
        self.images = 0

    def _encode(self, pictures):
        self.images += len(pictures)
        return pictures.float().mean((2, 3))


def test_a_folder_becomes_an_embedding_set(small_pug, tmp_path, monkeypatch):
    folder, rows = small_pug
    write_table(folder / "labels.csv", rows)
    data = load_pug_spare(folder, allow_missing=True)
    monkeypatch.setattr(embeddings, "PICTURES_PER_SHARD", 5)
    monkeypatch.setattr(embeddings, "FILES_OPEN", 2)
    first = Counting()
    e = encode_folder(first.encoder, data, cache_dir=tmp_path / "cache")
    assert torch.equal(e.embeddings, torch.tensor([[float(i), 0, 0] for i in range(12)]))
    assert torch.equal(e.scenes, data.scenes)
    assert e.space == data.space
    assert first.images == 12
    assert e.provenance["data"]["folder"]["dataset"] == "PUG:SPARE Desert, slots by position"
    assert "found 3" in e.provenance["data"]["notes"][0]
    assert json.loads(json.dumps(e.provenance)) == e.provenance

    # Neither labels nor names change a picture.
    again = Counting()
    other = load_pug_spare(folder, slots="character", allow_missing=True)
    encode_folder(again.encoder, other, cache_dir=tmp_path / "cache")
    (folder / "0.png").rename(folder / "renamed.png")
    write_table(folder / "labels.csv", [rows[0] | {"filename": "renamed.png"}, *rows[1:]])
    moved = encode_folder(
        again.encoder, load_pug_spare(folder, allow_missing=True), cache_dir=tmp_path / "cache"
    )
    assert again.images == 0
    assert torch.equal(moved.embeddings, e.embeddings)
    assert moved.provenance["data"]["files_sha256"] == e.provenance["data"]["files_sha256"]


def test_one_changed_picture_is_seen_though_its_name_size_and_time_stay(labelled, tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings, "PICTURES_PER_SHARD", 1)
    data, path = load_labelled_folder(labelled), labelled / "a.png"
    before = encode_folder(Counting().encoder, data, cache_dir=tmp_path)
    old, content = path.stat(), path.read_bytes()
    Image.new("RGB", (4, 3), (0, 0, 201)).save(path)
    assert path.stat().st_size == old.st_size
    assert path.read_bytes() != content
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    counting = Counting()
    after = encode_folder(counting.encoder, data, cache_dir=tmp_path)
    assert counting.images == 1
    assert before.embeddings.tolist() == [[200, 0, 0], [0, 0, 200]]
    assert after.embeddings.tolist() == [[200, 0, 0], [0, 0, 201]]
    assert before.provenance["data"]["files_sha256"] != after.provenance["data"]["files_sha256"]


def test_pictures_are_open_a_few_at_a_time_only(tmp_path, monkeypatch):
    names = [f"{i}.png" for i in range(40)]
    write_pictures(tmp_path, names)
    write_table(tmp_path / "labels.csv", [{"filename": n, "object1_kind": n} for n in names])
    alive, most = [], 0
    real = ImageFiles.__getitem__

    def watched(self, index):
        nonlocal most
        item = real(self, index)
        if isinstance(index, int):
            alive.append(weakref.ref(item))
            most = max(most, sum(ref() is not None for ref in alive))
        return item

    monkeypatch.setattr(ImageFiles, "__getitem__", watched)
    counting = Counting()
    e = encode_folder(counting.encoder, load_labelled_folder(tmp_path), cache=False, batch_size=4)
    assert len(e.embeddings) == counting.images == 40
    assert 4 <= most <= 16


def test_pictures_of_any_size_and_a_real_encoder_meet(labelled, tmp_path):
    Image.effect_noise((300, 240), 60).save(labelled / "a.png")
    data = load_labelled_folder(labelled)
    encoder = load("efficientnet-lite0", device="cpu")
    e = encode_folder(encoder, data, cache_dir=tmp_path / "cache")
    assert torch.allclose(e.embeddings, encoder.encode_images(list(data.images)), atol=1e-4)
    assert torch.equal(encode_folder(encoder, data, cache_dir=tmp_path / "cache").embeddings, e.embeddings)
    # A function has no preprocessing, so it cannot take them.
    with pytest.raises(ValueError, match=r"a\.png is 300 x 240, b\.png is 4 x 3: a function .* one size"):
        encode_folder(Counting().encoder, data, cache=False)


def test_a_folder_that_cannot_be_encoded_says_why(labelled):
    data = load_labelled_folder(labelled)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        encode_folder(Counting().encoder, data, cache=False, batch_size=-1)
    with pytest.raises(ValueError, match="does not encode images, only texts"):
        encode_folder(from_functions(texts=lambda t: torch.ones(len(t), 2), name="words"), data)
    (labelled / "a.png").write_bytes(b"not a picture")
    with pytest.raises(ValueError, match=r"cannot read the picture .*a\.png .*: replace it by a PNG or JPEG"):
        encode_folder(Counting().encoder, data, cache=False)
    (labelled / "a.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.png is gone: put it back, or load the folder again"):
        encode_folder(Counting().encoder, data)


# ---- the released CLEVR table


def clevr_rows():
    """576 rows as released: the shape words cylinder and sphere exchanged, the indices right."""
    wrong_words = ("cube", "sphere", "cylinder")
    rows = []
    for i, ((c1, s1), (c2, s2)) in enumerate(factorial_scenes(CLEVR, 2).tolist()):
        rows.append(
            {
                "filename": f"{i:07d}.png",
                "object1_color": CLEVR.values[0][c1],
                "object1_shape": wrong_words[s1],
                "object2_color": CLEVR.values[0][c2],
                "object2_shape": wrong_words[s2],
                "object1_color_idx": c1,
                "object1_shape_idx": s1,
                "object2_color_idx": c2,
                "object2_shape_idx": s2,
            }
        )
    return rows


@pytest.mark.parametrize(("flat", "space"), [(False, CLEVR), (True, CLEVR_2D)])
def test_clevr_shapes_are_read_by_index(tmp_path, flat, space):
    rows = clevr_rows()
    write_table(tmp_path / "labels.csv", rows)
    write_pictures(tmp_path, [r["filename"] for r in rows])
    data = load_clevr(tmp_path, flat=flat)
    assert data.space == space
    assert torch.equal(data.scenes, factorial_scenes(space, 2))
    assert data.settings["values"] == [list(v) for v in space.values]

    # The general loader leaves the _idx columns out, and so believes the words.
    general = load_labelled_folder(tmp_path)
    assert general.space.concepts == ("color", "shape")
    assert general.space.describe(general.scenes[1, 1]) == "gray sphere"
    assert data.space.describe(data.scenes[1, 1]) == ("gray triangle" if flat else "gray cylinder")

    write_table(tmp_path / "labels.csv", rows[1:])
    with pytest.raises(ValueError, match="575 pictures of 575 different ordered pairs; expected 576 of each"):
        load_clevr(tmp_path, flat=flat)
    for wrong in ("3", space.values[1][1]):
        write_table(tmp_path / "labels.csv", [rows[0] | {"object1_shape_idx": wrong}, *rows[1:]])
        with pytest.raises(ValueError, match=rf"line 2: column 'object1_shape_idx': '{wrong}' is no value"):
            load_clevr(tmp_path, flat=flat)


def test_a_sixteen_bit_picture_is_scaled_and_one_without_a_range_named(tmp_path):
    Image.fromarray(np.full((2, 2), 40 * 257, np.uint16)).save(tmp_path / "deep.png")
    Image.new("F", (2, 2), 0.5).save(tmp_path / "floats.tiff")
    images = ImageFiles([tmp_path / "deep.png", tmp_path / "floats.tiff"])
    assert images[0].getpixel((0, 0)) == (40, 40, 40)
    with pytest.raises(ValueError, match=r"floats\.tiff .*mode 'F' does not say"):
        images[1]
