"""The pocket CLIP: its words, the encoder, and the weights that come with the package."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from conceptbind.encoders import EncoderError, WeightsNotFound, from_functions, load
from conceptbind.encoders.pocket import (
    CONFIG,
    FOLDER,
    read_weights,
    seen_objects,
    trained_pockets,
    weights_file,
)
from conceptbind.encoders.pocket_words import (
    CONTEXT,
    END,
    PAD,
    START,
    VOCABULARY_SIZE,
    WORDS,
    tokenise,
    words,
)
from conceptbind.provenance import file_digest
from conceptbind.scenes import captions, object_split, sample_scenes, single_object_scenes
from conceptbind.spaces import POCKET
from conceptbind.training.pocket_data import RECIPES, pocket_renderer, swap_colours
from conceptbind.training.pocket_evaluation import evaluate_pocket, strictly_best

RESULTS = Path(__file__).resolve().parents[2] / "results" / "pocket"
WEIGHTS = sorted(FOLDER.glob("*.safetensors"))


@pytest.fixture(scope="module")
def broad():
    return load("pocket:broad", device="cpu")


@pytest.fixture(scope="module")
def pictures():
    return pocket_renderer(seed=11).render(single_object_scenes(POCKET)[:12])


@pytest.mark.parametrize("n_objects", [1, 2, 3])
def test_captions_become_tokens_and_words_again(n_objects):
    texts = captions(POCKET, sample_scenes(POCKET, n_objects, 40, seed=n_objects))
    tokens = tokenise(texts)
    assert tokens.shape == (40, CONTEXT)
    assert words(tokens) == texts
    # what open_clip pools at, the highest token, is the end
    assert (tokens.argmax(1) == 4 * n_objects).all()
    assert (tokens[:, 0] == START).all()


def test_every_word_of_the_space_has_its_own_token():
    assert set(WORDS) == {"a", "and"} | {v for values in POCKET.values for v in values}
    tokens = tokenise(list(WORDS))
    assert tokens[:, 1].tolist() == list(range(START + 1, END))
    assert (tokens[:, 3:] == PAD).all()
    assert VOCABULARY_SIZE == len(WORDS) + 3 == CONFIG["text_cfg"]["vocab_size"]


def test_capitals_and_spaces_do_not_matter():
    assert torch.equal(tokenise(["A  Red circle "]), tokenise(["a red circle"]))


def test_unknown_words_are_named_and_the_known_listed():
    with pytest.raises(EncoderError, match="does not know 'orange', 'pear' in 'a orange pear") as e:
        tokenise(["a red circle", "a orange pear and a orange pear"])
    assert all(word in str(e.value) for word in WORDS)


@pytest.mark.parametrize(("text", "count"), [("", 0), ("  ", 0), (" and ".join(["a red circle"] * 4), 15)])
def test_texts_without_words_or_beyond_the_context_are_refused(text, count):
    with pytest.raises(EncoderError, match=f"reads 1 to 14 words, up to three objects; got {count} "):
        tokenise([text])


@pytest.mark.parametrize(
    "row", [[START, END], [START, 2, 3], [2, 3, END], [START, 2, END, 3], [START, 2, PAD, END]]
)
def test_rows_that_are_no_text_are_refused(row):
    with pytest.raises(ValueError, match="tokens must be start"):
        words(torch.tensor([row + [PAD] * (CONTEXT - len(row))]))


def test_padding_does_not_change_an_embedding(broad):
    """The model reads 16 tokens; cropped, and in company of longer texts, a caption gives the same."""
    texts = captions(POCKET, single_object_scenes(POCKET)[:9])
    alone = broad.encode_texts(texts)
    among = broad.encode_texts([*texts, "a red circle and a blue square and a green star"])[:9]
    with torch.no_grad():
        whole = broad.model.encode_text(tokenise(texts))
    torch.testing.assert_close(among, alone, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(whole, alone, atol=1e-5, rtol=1e-5)


def test_pictures_of_any_size_and_kind_are_taken(broad, pictures):
    once = broad.encode_images(pictures)
    assert once.shape == (12, broad.dim) == (12, 128)
    pil = [Image.fromarray(p.permute(1, 2, 0).numpy()) for p in pictures]
    assert torch.equal(broad.encode_images(pil), once)
    # twice the size by repeated pixels: the same picture, up to resampling
    large = pictures.repeat_interleave(2, 2).repeat_interleave(2, 3)
    cosine = torch.cosine_similarity(broad.encode_images(large), once)
    assert cosine.min() > 0.95
    assert torch.equal(
        broad.encode_images(pictures, batch_size=5).argsort(0),
        broad.encode_images(pictures, batch_size=5).argsort(0),
    )


def test_the_untrained_model_is_seeded_and_of_the_same_architecture(broad):
    one, again, other = (load("random:pocket", device="cpu", seed=s) for s in (3, 3, 4))
    text = ["a red circle and a blue square"]
    assert torch.equal(one.encode_texts(text), again.encode_texts(text))
    assert not torch.equal(one.encode_texts(text), other.encode_texts(text))
    assert {n: p.shape for n, p in one.model.state_dict().items()} == {
        n: p.shape for n, p in broad.model.state_dict().items()
    }
    assert one.provenance["pretrained"] is False
    assert one.provenance["seed"] == 3
    assert one.provenance["settings_sha256"] == broad.provenance["settings_sha256"]


@pytest.mark.parametrize("name", ["wide", "", "narrow-x", "narrow-1-2", "Narrow"])
def test_names_that_are_no_pocket_clip_are_refused(name):
    with pytest.raises(EncoderError, match=r"no pocket CLIP is named .*narrow, broad, ordered.*pocket:broad"):
        load(f"pocket:{name}", device="cpu")


def test_missing_weights_say_how_to_train_them():
    with pytest.raises(WeightsNotFound, match=r"pocket_narrow_77.*train_pocket.py narrow --seeds 77"):
        load("pocket:narrow-77", device="cpu")
    with pytest.raises(WeightsNotFound, match=r"no weights at .*nowhere.safetensors"):
        load("pocket:nowhere.safetensors", device="cpu")


def test_files_of_something_else_and_damaged_ones_are_refused(tmp_path):
    file = tmp_path / "other.safetensors"
    save_file({"w": torch.zeros(2)}, file)
    with pytest.raises(EncoderError, match="holds no weights of a pocket CLIP"):
        load(f"pocket:{file}", device="cpu")
    shutil.copy(weights_file("broad"), file)
    content = bytearray(file.read_bytes())
    content[-1000] ^= 1
    file.write_bytes(content)
    with pytest.raises(EncoderError, match="damaged, its checksum does not match"):
        load(f"pocket:{file}", device="cpu")
    file.write_bytes(content[:5000])
    with pytest.raises(EncoderError, match="cannot be read as safetensors"):
        load(f"pocket:{file}", device="cpu")


def test_seen_objects_are_the_split_of_the_seed_for_all_variants():
    for spec in trained_pockets():
        described, _ = read_weights(weights_file(spec.removeprefix("pocket:")), tensors=False)
        split = object_split(POCKET, 0.6, seed=described["seed"])
        assert torch.equal(seen_objects(spec).is_train, split.is_train)
    assert torch.equal(seen_objects("pocket:narrow").is_train, seen_objects("pocket:broad").is_train)
    with pytest.raises(EncoderError, match="pocket CLIPs only"):
        seen_objects("open_clip:ViT-B-32/openai")


def test_the_package_has_two_seeds_of_both_variants():
    expected = {"pocket:narrow", "pocket:broad", "pocket:narrow-1", "pocket:broad-1", "pocket:ordered"}
    assert expected <= set(trained_pockets())


@pytest.mark.parametrize("path", WEIGHTS, ids=lambda path: path.stem)
def test_weights_are_small_and_say_how_they_were_made(path):
    assert path.stat().st_size <= 5_000_000
    described, tensors = read_weights(path)
    assert {t.dtype for t in tensors.values()} == {torch.float16}
    recipe = RECIPES[described["variant"]]
    assert described["steps"] == recipe.steps
    assert described["recipe"] == vars(recipe)
    assert described["command"].startswith(f"python tools/train_pocket.py {described['variant']}")
    assert {"torch", "open_clip_torch"} <= set(described["provenance"]["versions"])
    log = json.loads((RESULTS / f"{path.stem}.json").read_text())
    assert log["weights_sha256"] == file_digest(path)
    assert log["training"]["seen_objects"] == described["seen_objects"]
    losses = (RESULTS / f"{path.stem}_loss.csv").read_text().splitlines()
    assert len(losses) == described["steps"] + 1


def test_provenance_names_the_weights_and_their_training(broad):
    assert broad.provenance["weights"] == "pocket_broad_0.safetensors"
    assert broad.provenance["training"]["variant"] == "broad"
    assert broad.provenance["training"]["recipe"]["twins"] is True
    assert broad.provenance["preprocessing"]["size"] == [64, 64]


def test_what_was_recorded_of_the_weights_is_what_they_do(broad):
    """Other pictures than those of the record: accuracies agree within four standard errors of both."""
    log = json.loads((RESULTS / "pocket_broad_0.json").read_text())
    found = evaluate_pocket(broad, seen_objects("pocket:broad"), seed=5, copies=1, n_scenes=240)
    recorded = {(r["asked"], r["part"]): r for r in log["evaluation"]["zero-shot"]}
    recorded |= {(r["direction"], r["order"], r["part"]): r for r in log["evaluation"]["swap"]}
    rows = [((r["asked"], r["part"]), r) for r in found["zero-shot"]]
    rows += [((r["direction"], r["order"], r["part"]), r) for r in found["swap"]]
    assert len(rows) == 6 + 2 * 3 * 3
    for key, row in rows:
        if row["n"] >= 10:
            share = recorded[key]["accuracy"]
            variance = (share * (1 - share) + 0.02) * (1 / row["n"] + 1 / recorded[key]["n"])
            assert abs(row["accuracy"] - share) < 4 * variance**0.5, key


def planted(drawn, *, binds):
    """Make an encoder that sees what a caption says: all objects, or one bag of colours and shapes.

    ``drawn``: the caption of every picture there is.
    """
    colours, shapes = POCKET.values

    def of_texts(texts):
        rows = torch.zeros(len(texts), 14 + 48)
        for row, text in zip(rows, texts, strict=True):
            for _, colour, shape in (phrase.split() for phrase in text.split(" and ")):
                c, s = colours.index(colour), shapes.index(shape)
                row[c] += 1
                row[8 + s] += 1
                row[14 + 6 * c + s] += binds
        return rows

    def of_images(images):
        return of_texts([drawn.get(image.numpy().tobytes(), "a red circle") for image in images])

    return from_functions(texts=of_texts, images=of_images, name="planted", image_size=64)


@pytest.mark.parametrize("binds", [True, False])
def test_the_evaluation_tells_a_binder_from_a_bag(binds):
    drawn = {}
    renderer = pocket_renderer(seed=1)  # of evaluation with seed 0
    pairs = sample_scenes(POCKET, 2, 150, seed=0, repeats="distinct values")
    for scenes in (single_object_scenes(POCKET), pairs, swap_colours(pairs)):
        for picture, text in zip(renderer.render(scenes), captions(POCKET, scenes), strict=True):
            drawn[picture.numpy().tobytes()] = text
    encoder = planted(drawn, binds=binds)
    found = evaluate_pocket(encoder, object_split(POCKET, 0.6, seed=0), seed=0, copies=1, n_scenes=150)
    assert all(row["accuracy"] == 1 for row in found["zero-shot"])
    swaps = [row for row in found["swap"] if row["n"]]
    assert sum(row["n"] for row in swaps if row["order"] == "any") == 2 * 150
    n = {(row["direction"], row["part"], row["order"]): row["n"] for row in found["swap"]}
    for direction, part, _ in n:
        one_order = n[direction, part, "left first"] + n[direction, part, "right first"]
        any_order = n[direction, part, "any"]
        # two pictures may differ in their order, one cannot
        assert one_order == any_order if direction == "image to text" else one_order <= any_order
    for row in swaps:
        # a bag cannot tell the twins apart: ties, none of them counted as right
        assert row["accuracy"] == (1 if binds else 0)
        assert row["ties"] == (0 if binds else row["n"])


def test_the_best_answer_is_strictly_the_best():
    scores = torch.tensor([[2.0, 1.0, 0.0], [2.0, 2.0, 0.0], [0.0, 1.0, 3.0]])
    right, tied = strictly_best(scores, torch.tensor([0, 0, 1]))
    assert right.tolist() == [True, False, False]
    assert tied.tolist() == [False, True, False]
