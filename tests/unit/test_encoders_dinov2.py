"""DINOv2 on a small untrained model that the test saves."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from torchvision.transforms import v2
from transformers import Dinov2Config, Dinov2Model

from conceptbind.encoders import EncoderError, WeightsNotFound, load
from conceptbind.encoders.hub import quiet_transformers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    config = Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=56, patch_size=14, mlp_ratio=2
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Dinov2Model(config)
    path = tmp_path_factory.mktemp("dino")
    with quiet_transformers():
        model.save_pretrained(path)
    return path


def test_it_gives_the_class_token_after_the_last_layer_norm(folder):
    encoder = load(f"dinov2:{folder}", device="cpu")
    pixels = torch.randint(
        0, 256, (2, 3, 240, 320), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    # The official evaluation's transform, by torchvision.
    official = v2.Compose(
        [
            v2.Resize(256, interpolation=v2.InterpolationMode.BICUBIC, antialias=True),
            v2.CenterCrop(224),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    model = encoder.model
    with torch.no_grad():
        hidden = model.encoder(model.embeddings(official(pixels))).last_hidden_state
        expected = torch.nn.functional.layer_norm(
            hidden, (32,), model.layernorm.weight, model.layernorm.bias, model.config.layer_norm_eps
        )[:, 0]
    ours = encoder.encode_images(pixels)
    assert ours.shape == (2, encoder.dim)
    assert torch.allclose(ours, expected, atol=1e-3)
    assert encoder.provenance["preprocessing"]["resize_to"] == 256
    with pytest.raises(EncoderError, match="encodes images only"):
        encoder.encode_texts(["a cat"])


def test_weights_that_do_not_fill_the_model_are_an_error(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    state = load_file(weights)
    state.pop("layernorm.weight")
    save_file(state, weights, metadata={"format": "pt"})
    with pytest.raises(EncoderError, match=r"does not fill a DINOv2 model.*layernorm\.weight"):
        load(f"dinov2:{tmp_path}")
    weights.unlink()
    with pytest.raises(WeightsNotFound, match=r"wanted model\.safetensors"):
        load(f"dinov2:{tmp_path}")


def test_names_and_folders_that_are_not_there(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(EncoderError, match="no DINOv2 named 'vitb16': use one of vits14, vitb14"):
        load("dinov2:vitb16")
    with pytest.raises(WeightsNotFound, match="no such folder"):
        load(f"dinov2:{tmp_path}/nowhere")
    with pytest.raises(WeightsNotFound, match="facebook/dinov2-base"):
        load("dinov2:vitb14", cache_dir=tmp_path)


def test_encoding_leaves_it_as_it_was_loaded_and_its_folder_is_known(folder, tmp_path):
    encoder = load(f"dinov2:{folder}", device="cpu")
    encoder.encode_images(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    assert encoder.changes() is None
    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 0.1}))
    other = load(f"dinov2:{copy}", device="cpu").provenance
    assert other["weights_sha256"] == encoder.provenance["weights_sha256"]
    assert other["settings_sha256"] != encoder.provenance["settings_sha256"]


def test_a_cache_with_a_part_of_a_model_lacks_weights(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    repo = tmp_path / "models--facebook--dinov2-base"
    snapshot = repo / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")
    shutil.copy(folder / "model.safetensors", snapshot)
    with pytest.raises(WeightsNotFound, match=r"wanted config\.json"):
        load("dinov2:vitb14", cache_dir=tmp_path)
