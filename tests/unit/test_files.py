"""Label files, and embeddings that someone computed elsewhere."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from conceptbind.embeddings import EmbeddingSet
from conceptbind.files import from_file
from conceptbind.labels import read_labels
from conceptbind.scenes import ConceptSpace, captions, factorial_scenes

SPACE = ConceptSpace(("colour", "shape"), (("red", "blue", "green"), ("circle", "square")))
SCENES = factorial_scenes(SPACE, 2)

LABELS = """filename,object1_colour,object1_shape,object2_colour,object2_shape
a.png,red,circle,blue,square
b.png, blue ,square,red,circle
c.png,green,square,green,square
"""
WANTED = torch.tensor([[[0, 0], [1, 1]], [[1, 1], [0, 0]], [[2, 1], [2, 1]]])


@pytest.fixture
def label_file(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(LABELS)
    return path


def example():
    rows = torch.randn(len(SCENES), 5, generator=torch.Generator().manual_seed(0))
    return EmbeddingSet(rows, SCENES, SPACE)


# ---- labels


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_labels_are_names_or_indices(encoding, label_file):
    label_file.write_text(LABELS, encoding=encoding)
    scenes, space = read_labels(label_file, space=SPACE)
    assert space == SPACE
    assert torch.equal(scenes, WANTED)
    for k, values in enumerate(SPACE.values):
        for i, value in enumerate(values):
            label_file.write_text(label_file.read_text(encoding).replace(value, str(i)), encoding=encoding)
            assert torch.equal(read_labels(label_file, space=SPACE)[0], WANTED), (k, value)


def test_values_are_found_in_the_table_when_no_space_is_given(label_file):
    scenes, space = read_labels(label_file)
    assert space.concepts == ("colour", "shape")
    assert space.values == (("blue", "green", "red"), ("circle", "square"))
    assert captions(space, scenes) == captions(SPACE, WANTED)


def test_a_number_that_names_a_value_is_no_index(label_file):
    space = ConceptSpace(("size",), (("2", "10"),))
    label_file.write_text("object1_size\n10\n2\n")
    assert read_labels(label_file, space=space)[0].tolist() == [[[1]], [[0]]]
    label_file.write_text("object1_size\n10\n1\n")
    with pytest.raises(ValueError, match=r"line 3: .*: '1' is no value of 'size'.* one of \('2', '10'\)$"):
        read_labels(label_file, space=space)


def test_scenes_of_one_object_and_quoted_cells(label_file):
    label_file.write_text('object1_colour, object1_shape\n"red", "circle"\n\n"blue","square"\n')
    assert read_labels(label_file, space=SPACE)[0].tolist() == [[[0, 0]], [[1, 1]]]


def test_other_column_names_are_given_by_pattern_or_by_list(label_file):
    label_file.write_text("colour_1,colour_2,shape_1,shape_2\nred,blue,circle,1\n")
    scenes, _ = read_labels(label_file, space=SPACE, columns="{concept}_{slot}")
    assert scenes.tolist() == [[[0, 0], [1, 1]]]
    assert read_labels(label_file, columns="{concept}_{slot}", concepts=("shape",))[1].concepts == ("shape",)
    message = r"no column 'object1_<concept>'; it has \['colour_1', .*columns='\{concept\}_\{slot\}'"
    with pytest.raises(ValueError, match=message):
        read_labels(label_file)

    label_file.write_text("who,what,who2,what2\nred,circle,blue,1\n")
    lists = [["who", "what"], ["who2", "what2"]]
    assert torch.equal(read_labels(label_file, space=SPACE, columns=lists)[0], scenes)
    assert read_labels(label_file, columns=lists)[1].concepts == ("who", "what")
    assert read_labels(label_file, columns=lists, concepts=("a", "b"))[1].concepts == ("a", "b")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([["nobody", "object1_shape"]], r"no column 'nobody'; it has \['filename', 'object1_colour'"),
        (
            [["object1_colour"]],
            r"concepts are \('colour', 'shape'\), the columns \[\['object1_colour'\]\]",
        ),
        (["object1_colour", "object1_shape"], "must be one list an object"),
        ([], "must be one list an object"),
        ("{concept}", r"must contain \{slot\} and \{concept\} once each; got '\{concept\}'"),
    ],
)
def test_columns_that_do_not_fit(columns, message, label_file):
    with pytest.raises(ValueError, match=message):
        read_labels(label_file, space=SPACE, columns=columns)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "c.png,green",
            "c.png,gren",
            r"labels.csv, line 4: column 'object1_colour': 'gren' is no value of 'colour' "
            r"\(did you mean 'green'\?\); expected one of \('red', .*\) or their indices 0 to 2",
        ),
        ("c.png,green", "c.png,3", "line 4: column 'object1_colour': '3' is no value of 'colour'; expected"),
        ("a.png,red", "a.png, ", "line 2: column 'object1_colour' is empty: fill it in, or remove the line"),
        ("object2_shape", "shape", "no column 'object2_shape'; it has .*: every object needs a column for"),
        ("object1", "object3", "no column 'object1_colour', 'object1_shape'; it has .*'object3_colour'"),
        ("object2", "object0", "has a column 'object0_shape', but objects count from 1: rename them"),
        ("object1", "object99", "'object4_colour' and 189 more; it has"),
        ("red,circle", "red;circle", "line 2: expected 5 cells, one a column; got 4"),
        ("object2", "object1", r"names the columns \['object1_colour', 'object1_shape'\] twice"),
    ],
)
def test_a_label_file_that_does_not_fit_names_the_place(old, new, message, label_file):
    label_file.write_text(LABELS.replace(old, new))
    with pytest.raises(ValueError, match=message):
        read_labels(label_file, space=SPACE)


def test_a_label_file_that_is_missing_or_no_text(label_file):
    label_file.write_bytes("object1_colour\ngrün\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"labels.csv is not UTF-8 text .*: save it as CSV, UTF-8"):
        read_labels(label_file)
    label_file.unlink()
    with pytest.raises(FileNotFoundError, match=r"no label file at /.*labels.csv"):
        read_labels(label_file)


# ---- embeddings


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors"])
def test_embeddings_and_a_label_table_make_a_set(kind, tmp_path, label_file):
    rows = np.arange(12, dtype=np.float64).reshape(3, 4)
    path = tmp_path / f"mine.{kind}"
    if kind == "npy":
        np.save(path, rows)
    elif kind == "npz":
        np.savez(path, embeddings=rows)
    else:
        save_file({"embeddings": torch.from_numpy(rows).bfloat16()}, path)
    e = from_file(path, label_file, space=SPACE)
    assert torch.equal(e.embeddings, torch.from_numpy(rows).float())
    assert torch.equal(e.scenes, WANTED)
    assert e.provenance["encoder"]["spec"] == "mine"


@pytest.mark.parametrize("as_names", [True, False])
def test_a_set_written_in_the_documented_format_comes_back_equal(as_names, tmp_path):
    e = example()
    np.savez(tmp_path / "e.npz", embeddings=e.embeddings.numpy())
    lines = ["object1_colour,object1_shape,object2_colour,object2_shape"]
    for scene in e.scenes.tolist():
        cells = [SPACE.values[k][i] if as_names else str(i) for obj in scene for k, i in enumerate(obj)]
        lines.append(",".join(cells))
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    back = from_file(tmp_path / "e.npz", tmp_path / "labels.csv", space=SPACE)
    assert torch.equal(back.embeddings, e.embeddings)
    assert torch.equal(back.scenes, e.scenes)
    assert back.space == e.space
    # Without a space the values are sorted, and the scenes the same.
    found = from_file(tmp_path / "e.npz", str(tmp_path / "labels.csv"))
    assert torch.equal(found.embeddings, e.embeddings)
    if as_names:
        assert captions(found.space, found.scenes) == captions(SPACE, SCENES)
    else:
        assert torch.equal(found.scenes, e.scenes)


def test_labels_may_be_an_array_in_the_file_or_beside_it(tmp_path):
    rows = np.zeros((3, 4), np.float32)
    np.savez(tmp_path / "both.npz", embeddings=rows, scenes=WANTED.numpy())
    inside = from_file(tmp_path / "both.npz")
    assert inside.space.n_values == (3, 2)
    np.save(tmp_path / "rows.npy", rows)
    assert torch.equal(from_file(tmp_path / "rows.npy", WANTED, space=SPACE).scenes, WANTED)
    example().save(tmp_path / "own.safetensors")
    assert torch.equal(from_file(tmp_path / "own.safetensors").embeddings, example().embeddings)


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (np.zeros((3, 4)), None, "holds no array 'scenes': give labels"),
        (np.zeros((2, 4)), WANTED, "has 2 embeddings, the labels have 3 rows"),
        (np.zeros((3, 4), int), WANTED, "must be floats"),
        (np.zeros(3), WANTED, "must be floats"),
        (np.array([[None] * 4] * 3), WANTED, "Python objects are refused"),
        (np.zeros((3, 4)), WANTED[:, 0], r"must be integers \(scene, slot, concept\)"),
        (np.full((3, 4), np.nan), WANTED, "are NaN or infinite"),
    ],
)
def test_files_that_do_not_fit_say_so(rows, labels, message, tmp_path):
    np.save(tmp_path / "rows.npy", rows, allow_pickle=True)
    with pytest.raises(ValueError, match=message):
        from_file(tmp_path / "rows.npy", labels)


def test_missing_and_unknown_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file of embeddings"):
        from_file(tmp_path / "none.npy")
    with pytest.raises(ValueError, match=r"expected one of \.npz"):
        from_file(tmp_path / "rows.pkl")


@pytest.mark.parametrize(("mark", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_other_separators_are_named(mark, name, label_file):
    label_file.write_text(f"object1_colour{mark}object1_shape\nred{mark}circle\n")
    with pytest.raises(ValueError, match=f"separated by {name}, .*separate them by commas"):
        read_labels(label_file)


def test_damaged_files_are_named(tmp_path):
    rows = tmp_path / "rows.npz"
    np.savez(rows, embeddings=np.random.default_rng(0).normal(size=(100, 9)))
    whole = rows.read_bytes()
    spoilt = whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]
    for content in (b"", whole[:50], whole[: len(whole) // 2], spoilt):
        rows.write_bytes(content)
        with pytest.raises(ValueError, match=r"rows\.npz is damaged, or no \.npz file") as caught:
            from_file(rows, WANTED)
        assert "pickle" not in str(caught.value)
    (tmp_path / "rows.npy").write_bytes(b"")
    with pytest.raises(ValueError, match=r"rows\.npy is damaged"):
        from_file(tmp_path / "rows.npy", WANTED)
    np.savez(rows, features=np.zeros((3, 4)), names=np.array([None]))
    with pytest.raises(ValueError, match=r"no array named 'embeddings'; it has \['features', 'names'\]"):
        from_file(rows, WANTED)


def test_an_own_file_keeps_its_space_and_its_message(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    example().save(tmp_path / "own.safetensors")
    assert from_file("~/own.safetensors", space=SPACE).space == SPACE
    with pytest.raises(ValueError, match="leave out space, or give that"):
        from_file("~/own.safetensors", space=ConceptSpace.of_sizes(3, 2))
    damaged = bytearray((tmp_path / "own.safetensors").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "own.safetensors").write_bytes(damaged)
    with pytest.raises(
        ValueError, match=r"own\.safetensors is damaged: its checksum does not match"
    ) as caught:
        from_file(tmp_path / "own.safetensors")
    assert "Python objects" not in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([[["red", "circle"]]] * 3), "got <U6 .*belong in a CSV file"),
        ([[[0, 0]], [[0, 0], [1, 1]], [[0, 0]]], "lists of unequal lengths"),
    ],
)
def test_labels_that_are_no_integers(labels, message, tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((3, 4)))
    with pytest.raises(ValueError, match=message):
        from_file(tmp_path / "rows.npy", labels)
