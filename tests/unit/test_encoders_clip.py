"""The open_clip path on checkpoints that the tests save themselves, and each of its errors."""

import json
import logging
import pickle
from pathlib import Path

import open_clip
import open_clip.pretrained
import pytest
import tokenizers
import torch
from open_clip.transformer import QuickGELU
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

from conceptbind.encoders import EncoderError, WeightsNotFound, load, try_load
from conceptbind.encoders.base import Encoder

TINY, TINY_QUICK, TINY_RESNET = "cb-tiny", "cb-tiny-quickgelu", "cb-tiny-resnet"
TEXTS = ["a red circle and a blue square", "a blue circle and a red square", "a cat"]
TEXT_CFG = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
CONFIG = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": TEXT_CFG,
}


@pytest.fixture(scope="module", autouse=True)
def _tiny_architectures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("configs")
    resnet = {"image_size": 64, "layers": [1, 1, 1, 1], "width": 16, "patch_size": None}
    configs = {
        TINY: CONFIG,
        TINY_QUICK: {**CONFIG, "quick_gelu": True},
        TINY_RESNET: {**CONFIG, "vision_cfg": resnet},
    }
    for name, config in configs.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder)
    yield
    open_clip.factory._MODEL_CONFIG_PATHS.remove(folder)
    for name in configs:
        open_clip.factory._MODEL_CONFIGS.pop(name)


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    path = tmp_path / "tiny.safetensors"
    save_file(load(f"random:{TINY}", seed=3).model.state_dict(), path)
    return path


@pytest.fixture
def pictures() -> torch.Tensor:
    return torch.randint(
        0, 256, (3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


@pytest.fixture
def tag(monkeypatch):
    """Register a pretrained tag with preprocessing of its own."""
    entry = {
        "hf_hub": "cb/tiny/",
        "mean": (0.5,) * 3,
        "std": (0.25,) * 3,
        "interpolation": "bilinear",
        "resize_mode": "squash",
    }
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, TINY, {"made_up": entry})
    return entry


def hub_cache(folder: Path, repo: str, revision: str, files: dict[str, Path | str]) -> Path:
    """Lay out files as the hub's cache does."""
    root = folder / f"models--{repo.replace('/', '--')}"
    snapshot = root / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(revision)
    for name, content in files.items():
        if isinstance(content, Path):
            (snapshot / name).write_bytes(content.read_bytes())
        else:
            (snapshot / name).write_text(content)
    return folder


def test_random_weights_are_open_clips_own_and_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    ours = load(f"random:{TINY}", seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        theirs = open_clip.create_model(TINY)
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.model.state_dict()[name], value), name
    again, other = load(f"random:{TINY}", seed=5), load(f"random:{TINY}", seed=6)
    assert again.provenance["weights_sha256"] == ours.provenance["weights_sha256"]
    assert other.provenance["weights_sha256"] != ours.provenance["weights_sha256"]
    assert ours.provenance["pretrained"] is False
    assert ours.provenance["seed"] == 5


def test_an_encoder_follows_the_protocol(pictures):
    encoder = load(f"random:{TINY}")
    assert isinstance(encoder, Encoder)
    assert encoder.modalities == {"image", "text"}
    for rows in (encoder.encode_texts(TEXTS), encoder.encode_images(pictures)):
        assert rows.shape == (3, encoder.dim)
        assert rows.dtype == torch.float32
        assert not rows.requires_grad
        assert not rows.is_inference()
        assert (rows.norm(dim=1) - 1).abs().min() > 1e-3
    json.dumps(encoder.provenance)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_checkpoint_file_gives_the_embeddings_it_was_saved_from(suffix, tmp_path, pictures):
    source = load(f"random:{TINY_QUICK}", seed=1)
    path = tmp_path / f"weights{suffix}"
    state = source.model.state_dict()
    save_file(state, path) if suffix == ".safetensors" else torch.save({"state_dict": state}, path)
    loaded = load(f"open_clip:{TINY_QUICK}/{path}")
    assert torch.equal(loaded.encode_texts(TEXTS), source.encode_texts(TEXTS))
    assert torch.equal(loaded.encode_images(pictures), source.encode_images(pictures))
    assert loaded.provenance["weights_sha256"] == source.provenance["weights_sha256"]
    assert loaded.provenance["pretrained"] is True
    assert loaded.provenance["quick_gelu"] is True
    assert any(isinstance(m, QuickGELU) for m in loaded.model.modules())


@pytest.mark.slow
def test_a_vit_b_32_quickgelu_checkpoint_round_trips(tmp_path):
    source = load("random:ViT-B-32-quickgelu", seed=1)
    save_file(source.model.state_dict(), tmp_path / "w.safetensors")
    loaded = load(f"open_clip:ViT-B-32-quickgelu/{tmp_path}/w.safetensors")
    assert torch.equal(loaded.encode_texts(TEXTS), source.encode_texts(TEXTS))
    assert loaded.provenance["quick_gelu"] is True
    plain = load(f"open_clip:ViT-B-32/{tmp_path}/w.safetensors")
    assert plain.provenance["quick_gelu"] is False
    assert (plain.encode_texts(TEXTS) - loaded.encode_texts(TEXTS)).abs().max() > 1e-3


def test_pictures_go_through_the_models_own_preprocessing(checkpoint):
    encoder = load(f"open_clip:{TINY}/{checkpoint}")
    model, _, transform = open_clip.create_model_and_transforms(TINY, str(checkpoint))
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (2, 3, 50, 40), dtype=torch.uint8, generator=generator)
    pil = [Image.fromarray(p.permute(1, 2, 0).numpy()) for p in pixels]
    with torch.no_grad():
        expected = model.eval().encode_image(torch.stack([transform(p) for p in pil]))
    assert torch.allclose(encoder.encode_images(pil), expected, atol=1e-5)
    # Tensors are resized in one batch, within a grey level of PIL.
    assert torch.allclose(encoder.encode_images(pixels), expected, atol=2e-2)
    assert encoder.provenance["preprocessing"]["resize_to"] is None
    assert encoder.provenance["preprocessing"]["size"] == [32, 32]


@pytest.mark.parametrize("architecture", [TINY, TINY_RESNET])
def test_a_row_does_not_depend_on_its_batch(architecture):
    # A model left in training mode would normalise by the statistics of the batch.
    encoder = load(f"random:{architecture}")
    assert not any(m.training for m in encoder.model.modules())
    images = torch.randint(
        0, 256, (5, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    together = encoder.encode_images(images)
    alone = torch.cat([encoder.encode_images(images[i : i + 1]) for i in range(5)])
    assert torch.allclose(together, alone, atol=1e-5)
    texts = torch.cat([encoder.encode_texts([t]) for t in TEXTS])
    assert torch.allclose(encoder.encode_texts(TEXTS), texts, atol=1e-5)


def test_a_tag_is_found_in_the_cache_with_its_preprocessing(tag, checkpoint, tmp_path):
    cache = hub_cache(tmp_path / "hub", "cb/tiny", "abc123", {"open_clip_model.safetensors": checkpoint})
    encoder = load(f"open_clip:{TINY}/made_up", cache_dir=cache)
    settings = encoder.provenance["preprocessing"]
    assert settings["mean"] == [0.5] * 3
    assert settings["std"] == [0.25] * 3
    assert settings["interpolation"] == "bilinear"
    assert settings["mode"] == "squash"
    assert encoder.provenance["weights"] == "made_up"


def test_a_file_is_preprocessed_as_the_tags_of_its_architecture(tag, checkpoint, monkeypatch):
    settings = load(f"open_clip:{TINY}/{checkpoint}").provenance["preprocessing"]
    assert settings["mean"] == [0.5] * 3
    other = {**tag, "mean": (0.1,) * 3}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, TINY, {"made_up": tag, "other": other})
    with pytest.warns(UserWarning, match="does not say how pictures are preprocessed"):
        settings = load(f"open_clip:{TINY}/{checkpoint}").provenance["preprocessing"]
    assert settings["mean"] == list(open_clip.OPENAI_DATASET_MEAN)


def test_hub_models_load_from_the_cache_without_a_network(checkpoint, tmp_path):
    config = json.dumps({"model_cfg": CONFIG, "preprocess_cfg": {"mean": [0.5] * 3}})
    files = {"open_clip_config.json": config, "open_clip_model.safetensors": checkpoint}
    cache = hub_cache(tmp_path / "hub", "org/repo", "f00d", files)
    for spec in ("hf-hub:org/repo", "open_clip:hf-hub:org/repo"):
        encoder = load(spec, cache_dir=cache)
        assert encoder.provenance["revision"] == "f00d"
        assert encoder.provenance["preprocessing"]["mean"] == [0.5] * 3
        expected = load(f"open_clip:{TINY}/{checkpoint}").encode_texts(TEXTS)
        assert torch.equal(encoder.encode_texts(TEXTS), expected)


def test_a_local_folder_loads_and_says_what_is_missing(checkpoint, tmp_path):
    folder = tmp_path / "model"
    with pytest.raises(WeightsNotFound, match=r"wanted open_clip_config\.json"):
        load(f"local-dir:{folder}")
    folder.mkdir()
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": {**CONFIG, "quick_gelu": True}}))
    with pytest.raises(WeightsNotFound, match="no weight file there"):
        load(f"local-dir:{folder}")
    (folder / "open_clip_model.safetensors").write_bytes(checkpoint.read_bytes())
    encoder = load(f"open_clip:local-dir:{folder}")
    assert encoder.provenance["quick_gelu"] is True
    assert encoder.encode_texts(TEXTS).shape == (3, 24)
    (folder / "open_clip_config.json").write_text("{}")
    with pytest.raises(EncoderError, match="is not an open_clip configuration"):
        load(f"local-dir:{folder}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("open_clip:ViT-B-32/openai", "Load open_clip:ViT-B-32-quickgelu/openai$"),
        ("open_clip:ViT-L-14/dfn2b", "Load open_clip:ViT-L-14-quickgelu/dfn2b$"),
        ("open_clip:ViT-B-32-quickgelu/laion2b_s34b_b79k", "Load open_clip:ViT-B-32/laion2b_s34b_b79k$"),
    ],
)
def test_quickgelu_on_one_side_only_is_an_error_that_names_the_right_model(spec, message):
    with pytest.raises(EncoderError, match=message) as caught:
        load(spec)
    assert "QuickGELU mismatch" in str(caught.value)
    assert not isinstance(caught.value, WeightsNotFound)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("open_clip:ViT-B/32/openai", "with a slash; write open_clip:ViT-B-32-quickgelu/openai"),
        ("random:ViT-B/32", "write random:ViT-B-32"),
        ("open_clip:ViT-B-33/openai", r"no architecture 'ViT-B-33'. Closest: ViT-B-32"),
        ("random:nonsense", "no architecture 'nonsense'"),
        ("open_clip:ViT-B-32", "names no weights.*random:ViT-B-32"),
        ("open_clip:ViT-B-32/opnai", "no tag 'opnai'.*Closest: openai"),
        ("open_clip:ViT-B-32/weights.npz/", "is no weight file we read"),
    ],
)
def test_a_misspelt_spec_names_the_right_one(spec, message):
    with pytest.raises(EncoderError, match=message):
        load(spec)


def test_a_missing_file_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(WeightsNotFound, match=rf"wanted the weight file w\.pt, looked in {tmp_path}"):
        load(f"open_clip:{TINY}/{tmp_path}/w.pt")


@pytest.fixture
def no_hub(monkeypatch):
    """A hub that nobody answers for, and no offline mode, whatever the environment says."""

    def download(*_, **__):
        raise AssertionError("the hub's client was asked, and would retry for 23 seconds")

    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)


def test_offline_mode_is_given_as_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    encoder, reason = try_load("open_clip:ViT-B-32-quickgelu/openai", cache_dir=tmp_path)
    assert encoder is None
    assert "HF_HUB_OFFLINE is set" in reason


def test_an_unreachable_hub_fails_at_once_and_says_how_to_do_without(no_hub, tmp_path):
    encoder, reason = try_load("open_clip:ViT-B-32-quickgelu/openai", cache_dir=tmp_path)
    assert encoder is None
    for part in (
        "open_clip_model.safetensors",
        "timm/vit_base_patch32_clip_224.openai",
        str(tmp_path),
        "cannot be reached",
        "open_clip:ViT-B-32-quickgelu/<path",
    ):
        assert part in reason
    for spec in ("hf-hub:org/repo", "random:roberta-ViT-B-32"):
        with pytest.raises(WeightsNotFound, match="cannot be reached"):
            load(spec, cache_dir=tmp_path)


def test_a_tokenizer_that_cannot_be_fetched_leaves_pictures_usable(no_hub, tmp_path, pictures):
    encoder = load(f"random:{TINY}", cache_dir=tmp_path)
    encoder._text_config["hf_tokenizer_name"] = "org/tokenizer"
    assert encoder.encode_images(pictures).shape == (3, 24)
    with pytest.raises(WeightsNotFound, match="org/tokenizer"):
        encoder.encode_texts(TEXTS)


def _without_a_key(state):
    state.pop("ln_final.weight")


def _with_an_extra_key(state):
    state["surprise"] = torch.zeros(3)


def _of_another_shape(state):
    state["text_projection"] = torch.zeros(32, 99)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_without_a_key, r"Missing key.*ln_final\.weight"),
        (_with_an_extra_key, r"Unexpected key.*surprise"),
        (_of_another_shape, r"size mismatch for text_projection"),
    ],
)
def test_weights_that_do_not_fit_are_an_error(spoil, message, checkpoint):
    state = load_file(checkpoint)
    spoil(state)
    save_file(state, checkpoint)
    with pytest.raises(EncoderError, match=message):
        load(f"open_clip:{TINY}/{checkpoint}")


def test_a_damaged_file_and_a_pickle_are_refused(checkpoint, tmp_path):
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(EncoderError, match="do not load"):
        load(f"open_clip:{TINY}/{checkpoint}")

    class Harmful:
        def __reduce__(self):
            return (Path(tmp_path / "ran").touch, ())

    bad = tmp_path / "bad.pt"
    bad.write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(EncoderError, match="do not load"):
        load(f"open_clip:{TINY}/{bad}")
    assert not (tmp_path / "ran").exists()


def test_a_text_beyond_the_context_is_an_error_and_one_that_just_fits_is_not():
    encoder = load(f"random:{TINY}")
    fits = " ".join(["cat"] * 75)  # with the start and end tokens, 77
    assert encoder.encode_texts([fits]).shape == (1, 24)
    with pytest.raises(EncoderError, match=r"a text has 78 tokens.* reads 77.*shorten 'dog cat"):
        encoder.encode_texts(["a cat", "dog " + fits])


def test_half_precision_on_a_cpu_is_refused_before_anything_loads():
    for precision in ("bf16", "fp16"):
        with pytest.raises(EncoderError, match="half precision is slow or missing"):
            load("random:ViT-B-32", precision=precision, device="cpu")
    with pytest.raises(EncoderError, match="precision must be one of"):
        load("random:ViT-B-32", precision="fp8")


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EncoderError, match="torch sees no GPU"):
        load("random:ViT-B-32", device="cuda")
    with pytest.raises(EncoderError, match="no device 'gpu'"):
        load("random:ViT-B-32", device="gpu")


def test_loading_installs_no_log_handler(caplog):
    handlers = list(logging.getLogger().handlers)
    load(f"random:{TINY}").encode_texts(TEXTS)
    assert logging.getLogger().handlers == handlers


def test_settings_that_the_weights_do_not_hold_are_known(checkpoint, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "open_clip_model.safetensors").write_bytes(checkpoint.read_bytes())
    found = []
    for heads in (2, 4):
        config = {**CONFIG, "text_cfg": {**TEXT_CFG, "heads": heads}}
        (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config}))
        found.append(load(f"local-dir:{folder}").provenance)
    assert found[0]["weights_sha256"] == found[1]["weights_sha256"]
    assert found[0]["settings_sha256"] != found[1]["settings_sha256"]


def test_torchs_advice_to_unpickle_is_not_passed_on(tmp_path):
    torch.save({"a": Path("x")}, tmp_path / "bad.pt")
    with pytest.raises(EncoderError, match="are never un-pickled") as caught:
        load(f"open_clip:{TINY}/{tmp_path / 'bad.pt'}")
    assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize("pad", ["<pad>", "<eos>"])
def test_a_text_cut_by_a_hugging_face_tokenizer_is_an_error(pad, checkpoint, tmp_path):
    folder = tmp_path / "model"
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2, "cat": 3}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.post_processor = tokenizers.processors.TemplateProcessing("$A <eos>", special_tokens=[("<eos>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token=pad, eos_token="<eos>", unk_token="<unk>"
    ).save_pretrained(folder)
    text = {**TEXT_CFG, "hf_tokenizer_name": "org/none"}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": {**CONFIG, "text_cfg": text}}))
    (folder / "open_clip_model.safetensors").write_bytes(checkpoint.read_bytes())
    encoder = load(f"local-dir:{folder}")
    assert encoder.tokenise(["cat " * 76]).shape == (1, 77)
    with pytest.raises(EncoderError, match=r"a text has 78 tokens.* reads 77"):
        encoder.tokenise(["cat", "cat " * 77])
