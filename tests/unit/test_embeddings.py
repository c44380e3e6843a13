"""Embedding sets, and the cache behind them."""

import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from conceptbind import embeddings as module
from conceptbind.cache import default_cache_dir
from conceptbind.embeddings import EmbeddingSet, encode_captions, encode_pictures
from conceptbind.encoders import EncoderError, from_functions, load
from conceptbind.scenes import ConceptSpace, captions, check_scenes, factorial_scenes, sample_scenes
from conceptbind.spaces import CLEVR_2D

SPACE = ConceptSpace(("colour", "shape"), (("red", "blue", "green"), ("circle", "square")))
SCENES = factorial_scenes(SPACE, 2)


def letters(texts):
    """Embed a text as how often each of eight letters occurs."""
    return torch.tensor([[t.count(c) for c in "abcdeqrs"] for t in texts]).float()


class Counting:
    """Encode by a function of known version, counting what is asked of it."""

    def __init__(self, version="1", fail_after=None):
        self.texts, self.images, self.fail_after = [], 0, fail_after
        self.encoder = from_functions(
            texts=self._texts, images=self._images, name="counting", version=version
        )
        self.texts.clear()
        self.images = 0

    def _texts(self, texts):
        if self.fail_after is not None and len(self.texts) >= self.fail_after + 2:
            raise KeyboardInterrupt
        self.texts += texts
        return letters(texts)

    def _images(self, images):
        self.images += len(images)
        return images.float().mean((2, 3)).repeat(1, 3)[:, :8]


class Painter:
    """Paint each scene as one colour made of its value indices."""

    def __init__(self, scale=10):
        self.settings = {"scale": scale}
        self.largest = 0

    def render(self, scenes, *, copy=0):
        self.largest = max(self.largest, len(scenes))
        colour = (scenes.flatten(1)[:, :3] * self.settings["scale"] + copy).to(torch.uint8)
        return colour[:, :, None, None].expand(-1, -1, 4, 4).contiguous()


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(module, "CAPTIONS_PER_SHARD", 10)
    monkeypatch.setattr(module, "PICTURES_PER_SHARD", 10)


def shards(folder):
    return sorted(folder.rglob("*.safetensors"))


def example(**changes):
    rows = torch.randn(len(SCENES), 5, generator=torch.Generator().manual_seed(0))
    return EmbeddingSet(**{"embeddings": rows, "scenes": SCENES, "space": SPACE, **changes})


# ---- embedding sets


def test_a_set_knows_its_sizes():
    e = example()
    assert (e.n_scenes, e.dim, e.is_normalised) == (36, 5, False)


def test_rows_that_are_not_finite_are_named():
    rows = torch.zeros(36, 5)
    rows[[3, 8, 9, 12, 20, 30], 2] = float("nan")
    rows[7, 0] = float("inf")
    with pytest.raises(ValueError, match="in rows 3, 7, 8, 9, 12 and 2 more"):
        example(embeddings=rows)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embeddings": torch.zeros(35, 5)}, "35 embeddings but 36 scenes"),
        ({"scenes": SCENES + 1}, "concept 'colour' has 3 values, indices 0 to 2; got 1 to 3"),
        ({"scenes": SCENES[..., :1]}, "expected 2 concepts"),
        ({"embeddings": torch.zeros(0, 5), "scenes": SCENES[:0]}, "at least one scene"),
    ],
)
def test_a_set_that_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        example(**changes)


def test_normalising_is_explicit_and_recorded():
    e = example(provenance={"encoder": "x"})
    unit = e.normalised()
    assert torch.allclose(unit.embeddings, e.embeddings / e.embeddings.pow(2).sum(1, keepdim=True).sqrt())
    assert unit.is_normalised
    assert not e.is_normalised
    assert unit.provenance["encoder"] == "x"
    rows = e.embeddings.clone()
    rows[4] = 0
    with pytest.raises(ValueError, match="1 embeddings are all zeros and have no direction, rows 4"):
        example(embeddings=rows).normalised()


def test_subsets_by_mask_and_by_index_agree_and_leave_a_trace():
    e = example()
    mask = SCENES[:, 0, 0] == 1
    by_mask, by_index = e.subset(mask), e.subset(mask.nonzero().squeeze(1))
    assert torch.equal(by_mask.embeddings, e.embeddings[mask])
    assert torch.equal(by_mask.scenes, SCENES[mask])
    assert by_mask.provenance == by_index.provenance
    assert by_mask.provenance["subsets"][0]["kept"] == int(mask.sum())
    assert e.subset(torch.tensor([5, 2])).provenance != e.subset(torch.tensor([2, 5])).provenance
    for wrong, message in [
        (torch.ones(35, dtype=torch.bool), r"shape \(35,\); expected \(36,\)"),
        (torch.zeros(36, dtype=torch.bool), "is empty"),
        (torch.tensor([36]), "run from 0 to 35; got 36"),
    ]:
        with pytest.raises(ValueError, match=message):
            e.subset(wrong)


def test_a_saved_set_comes_back_whole(tmp_path):
    e = example(provenance={"encoder": {"spec": "ünïcode"}}).normalised()
    path = tmp_path / "deep" / "set.safetensors"
    e.save(path)
    back = EmbeddingSet.load(path)
    assert torch.equal(back.embeddings, e.embeddings)
    assert torch.equal(back.scenes, e.scenes)
    assert back.space == e.space
    assert back.provenance == e.provenance
    assert [p.name for p in path.parent.iterdir()] == ["set.safetensors"]
    with pytest.raises(ValueError, match=r"must end in \.safetensors"):
        e.save(tmp_path / "set.bin")


def test_a_damaged_or_foreign_file_is_refused(tmp_path):
    path = tmp_path / "set.safetensors"
    example().save(path)
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="checksum does not match"):
        EmbeddingSet.load(path)
    path.write_bytes(content[:50])
    with pytest.raises(ValueError, match="damaged or no safetensors file"):
        EmbeddingSet.load(path)
    save_file({"embeddings": torch.zeros(2, 2)}, path)
    with pytest.raises(ValueError, match=r"was not written by EmbeddingSet\.save"):
        EmbeddingSet.load(path)


# ---- encoding and its cache


def test_captions_are_encoded_row_by_row(tmp_path, small_shards):
    e = encode_captions(Counting().encoder, SPACE, SCENES, cache_dir=tmp_path)
    assert torch.equal(e.embeddings, letters(captions(SPACE, SCENES)))
    assert torch.equal(e.scenes, SCENES)
    assert e.provenance["data"]["first"] == "a red circle and a red circle"
    assert not e.is_normalised
    json.dumps(e.provenance)


def test_equal_captions_are_encoded_once(tmp_path, small_shards):
    counting = Counting()
    twice = torch.cat([SCENES, SCENES.flip(0)])
    e = encode_captions(counting.encoder, SPACE, twice, cache_dir=tmp_path)
    assert len(counting.texts) == 36
    assert torch.equal(e.embeddings, letters(captions(SPACE, twice)))


def test_a_second_run_reads_the_cache_and_every_determinant_misses_it(tmp_path, small_shards):
    first = encode_captions(Counting().encoder, SPACE, SCENES, cache_dir=tmp_path)
    assert len(shards(tmp_path)) == 4
    hit = Counting()
    again = encode_captions(hit.encoder, SPACE, SCENES, cache_dir=tmp_path)
    assert hit.texts == []
    assert torch.equal(again.embeddings, first.embeddings)
    for counting, arguments in [
        (Counting(version="2"), {}),
        (Counting(), {"template": "the {shape} that is {colour}"}),
        (Counting(), {"joiner": ", "}),
        (Counting(), {"cache": False}),
    ]:
        encode_captions(counting.encoder, SPACE, SCENES, cache_dir=tmp_path, **arguments)
        assert len(counting.texts) == 36


def test_the_weights_are_part_of_the_key(tmp_path):
    texts = factorial_scenes(SPACE, 1)
    a, b = (load("random:ViT-M-32-alt", seed=s, device="cpu") for s in (0, 1))
    rows = [encode_captions(e, SPACE, texts, cache_dir=tmp_path).embeddings for e in (a, b, a)]
    assert torch.equal(rows[0], rows[2])
    assert not torch.allclose(rows[0], rows[1])
    assert len(shards(tmp_path)) == 2


def test_a_function_without_a_version_is_not_cached(tmp_path):
    encode_captions(load(letters), SPACE, SCENES, cache_dir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_cache_folder_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("CONCEPTBIND_CACHE", str(tmp_path / "c"))
    encode_captions(Counting().encoder, SPACE, SCENES)
    assert len(shards(tmp_path / "c")) == 1
    monkeypatch.delenv("CONCEPTBIND_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / ".cache" / "conceptbind"


def _flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        _flip_a_bit,
        lambda path: path.write_bytes(path.read_bytes()[:-40]),
        lambda path: path.write_bytes(b""),
        lambda path: save_file({"rows": torch.zeros(10, 8)}, path),
        lambda path: save_file({"other": torch.zeros(10, 8)}, path),
    ],
)
def test_a_damaged_shard_is_reported_and_only_it_is_computed_again(damage, tmp_path, small_shards):
    first = encode_captions(Counting().encoder, SPACE, SCENES, cache_dir=tmp_path)
    sizes = {p: p.stat().st_size for p in shards(tmp_path)}
    victim = max(sizes, key=sizes.get)
    damage(victim)
    counting = Counting()
    with pytest.warns(UserWarning, match=f"{victim.name} are damaged"):
        again = encode_captions(counting.encoder, SPACE, SCENES, cache_dir=tmp_path)
    assert len(counting.texts) == 10
    assert torch.equal(again.embeddings, first.embeddings)
    quiet = Counting()
    encode_captions(quiet.encoder, SPACE, SCENES, cache_dir=tmp_path)
    assert quiet.texts == []


def test_an_interrupted_run_continues_where_it_stopped(tmp_path, small_shards):
    with pytest.raises(KeyboardInterrupt):
        encode_captions(Counting(fail_after=18).encoder, SPACE, SCENES, cache_dir=tmp_path)
    assert len(shards(tmp_path)) == 2
    counting = Counting()
    e = encode_captions(counting.encoder, SPACE, SCENES, cache_dir=tmp_path)
    assert len(counting.texts) == 16
    assert torch.equal(e.embeddings, letters(captions(SPACE, SCENES)))


def test_a_killed_process_leaves_whole_shards_only(tmp_path):
    script = f"""
        import time, torch
        from conceptbind import embeddings
        from conceptbind.encoders import from_functions
        from conceptbind.scenes import ConceptSpace, factorial_scenes
        embeddings.CAPTIONS_PER_SHARD = 2
        space = ConceptSpace({SPACE.concepts!r}, {SPACE.values!r})
        def slow(texts):
            time.sleep(0.05)
            return torch.tensor([[t.count(c) for c in "abcdeqrs"] for t in texts]).float()
        encoder = from_functions(texts=slow, name="slow", version="1")
        embeddings.encode_captions(encoder, space, factorial_scenes(space, 2), cache_dir={str(tmp_path)!r})
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    while process.poll() is None and len(shards(tmp_path)) < 4:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = len(shards(tmp_path))
    assert 4 <= done < 18
    asked = []

    def slow(texts):
        asked.extend(texts)
        return letters(texts)

    encoder = from_functions(texts=slow, name="slow", version="1")
    asked.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CAPTIONS_PER_SHARD", 2)
        e = encode_captions(encoder, SPACE, SCENES, cache_dir=tmp_path)
    assert len(asked) == 36 - 2 * done
    assert torch.equal(e.embeddings, letters(captions(SPACE, SCENES)))


def test_two_writers_at_once_do_no_harm(tmp_path, small_shards):
    encoders = [Counting().encoder for _ in range(4)]
    results, errors = [], []

    def run(encoder):
        try:
            results.append(encode_captions(encoder, SPACE, SCENES, cache_dir=tmp_path).embeddings)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(e,)) for e in encoders]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert len(results) == 4
    assert all(torch.equal(r, letters(captions(SPACE, SCENES))) for r in results)
    assert len(shards(tmp_path)) == 4
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "embeddings").write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="cannot write the cache file"):
        e = encode_captions(Counting().encoder, SPACE, SCENES, cache_dir=tmp_path)
    assert torch.equal(e.embeddings, letters(captions(SPACE, SCENES)))


def test_pictures_are_drawn_in_chunks_and_cached_by_settings(tmp_path, small_shards):
    counting, painter = Counting(), Painter()
    e = encode_pictures(counting.encoder, SPACE, SCENES, painter, cache_dir=tmp_path)
    assert painter.largest == 10
    expected = (SCENES.flatten(1)[:, :3] * 10).float().repeat(1, 3)[:, :8]
    assert torch.equal(e.embeddings, expected)
    assert e.provenance["data"]["renderer"]["scale"] == 10
    hit = Counting()
    encode_pictures(hit.encoder, SPACE, SCENES, Painter(), cache_dir=tmp_path)
    assert hit.images == 0
    misses = [(SCENES, Painter(scale=11), 0), (SCENES.flip(0), Painter(), 0), (SCENES, Painter(), 1)]
    for scenes, painter, copy in misses:
        miss = Counting()
        other = encode_pictures(miss.encoder, SPACE, scenes, painter, copy=copy, cache_dir=tmp_path)
        assert miss.images == 36
        assert other.provenance["data"]["copy"] == copy
    assert torch.equal(other.embeddings, expected + 1)
    painter.settings["background"] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"Painter cannot be written as JSON"):
        encode_pictures(counting.encoder, SPACE, SCENES, painter, cache_dir=tmp_path)


def test_the_wrong_modality_is_refused_before_any_work(tmp_path):
    texts_only = load(letters)
    with pytest.raises(EncoderError, match="letters does not encode images, only texts"):
        encode_pictures(texts_only, SPACE, SCENES, Painter(), cache_dir=tmp_path)


def test_real_pictures_and_a_real_encoder_meet(tmp_path):
    from conceptbind.render.flat import FlatRenderer

    scenes = sample_scenes(CLEVR_2D, 2, 3, seed=0)
    encoder, renderer = load("efficientnet-lite0", device="cpu"), FlatRenderer(CLEVR_2D)
    e = encode_pictures(encoder, CLEVR_2D, scenes, renderer, cache_dir=tmp_path)
    assert e.embeddings.shape == (3, 1280)
    assert torch.allclose(e.embeddings, encoder.encode_images(renderer.render(scenes)), atol=1e-4)


def test_a_jittered_picture_does_not_depend_on_the_scenes_beside_it(tmp_path, small_shards):
    from conceptbind.render.flat import FlatRenderer

    encoder = from_functions(images=lambda p: p.float().mean(2)[:, :, ::28].flatten(1), name="columns")
    renderer, scenes = FlatRenderer(CLEVR_2D, place_jitter=0.05), sample_scenes(CLEVR_2D, 2, 12, seed=0)
    e = encode_pictures(encoder, CLEVR_2D, scenes, renderer, copy=1)
    backwards = encode_pictures(encoder, CLEVR_2D, scenes.flip(0), renderer, copy=1)
    assert torch.equal(e.embeddings, backwards.embeddings.flip(0))
    assert not torch.equal(e.embeddings, encode_pictures(encoder, CLEVR_2D, scenes, renderer).embeddings)


# ---- inputs and models that would give wrong rows without notice


@pytest.mark.parametrize(
    ("scenes", "message"),
    [
        (SCENES.tolist(), "got list"),
        (SCENES.numpy(), "got ndarray"),
        (SCENES.float(), r"got torch\.float32"),
        (SCENES.int(), r"got torch\.int32.*use scenes\.long"),
        (SPACE.all_objects(), r"objects\[:, None, :\]"),
        (SCENES[:, :0], "at least one object"),
        (SCENES[:0], "no scene was given"),
        (SCENES + 1, "concept 'colour' has 3 values"),
    ],
)
def test_what_is_no_scene_is_said_so(scenes, message):
    with pytest.raises(ValueError, match=message):
        check_scenes(SPACE, scenes)


def test_scenes_are_checked_before_anything_is_encoded(tmp_path):
    counting = Counting()
    for scenes in (SCENES[:0], SCENES.int()):
        with pytest.raises(ValueError, match=r"no scene was given|must be an int64 tensor"):
            encode_captions(counting.encoder, SPACE, scenes, cache_dir=tmp_path)
        with pytest.raises(ValueError, match=r"no scene was given|must be an int64 tensor"):
            encode_pictures(counting.encoder, SPACE, scenes, Painter(), cache_dir=tmp_path)
    assert not counting.texts
    assert not counting.images
    with pytest.raises(ValueError, match="must be an int64 tensor"):
        captions(SPACE, SCENES.int())
    with pytest.raises(ValueError, match=r"float32 tensor .* got ndarray"):
        # Past the type checks of the tests, which users do not have.
        EmbeddingSet.__post_init__(SimpleNamespace(embeddings=np.zeros((36, 5)), scenes=SCENES, space=SPACE))


def test_a_mask_of_numbers_is_no_subset():
    with pytest.raises(ValueError, match=r"34 scene indices are repeated.*A mask must be bool"):
        example().subset((torch.arange(36) % 2).long())


def test_a_renderer_of_another_space_is_refused(tmp_path):
    painter = Painter()
    painter.space = ConceptSpace.of_sizes(3, 2)
    with pytest.raises(ValueError, match=r"renderer draws .*'c0'.* labelled by .*'colour'"):
        encode_pictures(Counting().encoder, SPACE, SCENES, painter, cache_dir=tmp_path)


def _hook(model):
    model.transformer.resblocks[0].register_forward_hook(lambda *_: None)


def _in_place(model):
    with torch.no_grad():
        model.text_projection.mul_(2)


def _replaced(model):
    model.text_projection = torch.nn.Parameter(2 * model.text_projection.detach())


@pytest.mark.parametrize(
    ("touch", "reason"),
    [
        (_hook, r"resblocks\.0 has a forward hook"),
        (_in_place, "weights were changed"),
        (_replaced, "weights were changed"),
        (torch.nn.Module.train, "training mode"),
    ],
)
def test_a_model_changed_after_loading_is_not_cached(touch, reason, tmp_path):
    encoder = load("random:ViT-M-32-alt", device="cpu")
    singles = factorial_scenes(SPACE, 1)
    encode_captions(encoder, SPACE, singles, cache_dir=tmp_path)
    assert encoder.changes() is None
    touch(encoder.model)
    before = [p.stat().st_mtime_ns for p in shards(tmp_path)]
    with pytest.warns(UserWarning, match=f"no longer what was loaded: .*{reason}"):
        changed = encode_captions(encoder, SPACE, singles[:2], cache_dir=tmp_path)
    assert [p.stat().st_mtime_ns for p in shards(tmp_path)] == before
    assert "changed" in changed.provenance["encoder"]
