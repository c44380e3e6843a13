"""Specs, functions as encoders, and the checks of inputs that all encoders share."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from conceptbind.encoders import EncoderError, from_functions, load, try_load
from conceptbind.encoders.base import Encoder, check_images, check_texts, exact_inference
from conceptbind.provenance import digest, provenance, tensor_digest, versions


def letters(texts):
    """Embed a text as its counts of a and e."""
    return np.array([[t.count("a"), t.count("e")] for t in texts], dtype=np.float64)


def brightness(images):
    return torch.stack([images.float().mean((1, 2, 3)), images.float().amax((1, 2, 3))], dim=1)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("efficientnet-lite", "Did you mean 'efficientnet-lite0'"),
        ("openclip:ViT-B-32/openai", "no encoder is named 'openclip:ViT-B-32/openai'"),
        ("", "Specs look like"),
        ("random:MiniLM", "Untrained there are also all-MiniLM-L6-v2"),
    ],
)
def test_an_unknown_spec_is_an_error(spec, message):
    with pytest.raises(EncoderError, match=message):
        load(spec)


def test_try_load_gives_an_encoder_or_a_reason_and_hides_no_mistake(tmp_path):
    encoder, reason = try_load("efficientnet-lite0", device="cpu")
    assert encoder is not None
    assert reason == ""
    encoder, reason = try_load(f"open_clip:ViT-B-32/{tmp_path}/none.safetensors")
    assert encoder is None
    assert "none.safetensors" in reason
    with pytest.raises(EncoderError, match="QuickGELU"):
        try_load("open_clip:ViT-B-32/openai")


def test_a_function_is_an_encoder():
    encoder = load(letters)
    assert isinstance(encoder, Encoder)
    assert encoder.name == "letters"
    assert encoder.dim == 2
    assert encoder.encode_texts(["banana", "tree", "banana"], batch_size=1).tolist() == [
        [3, 0],
        [0, 2],
        [3, 0],
    ]
    assert encoder.provenance["weights_sha256"] is None
    with pytest.raises(EncoderError, match="letters encodes texts only"):
        encoder.encode_images(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))


def test_two_functions_make_a_two_way_encoder():
    encoder = from_functions(texts=letters, images=brightness, name="mine", version="1")
    assert encoder.modalities == {"image", "text"}
    images = torch.stack([torch.full((3, 4, 4), v, dtype=torch.uint8) for v in (10, 200)])
    assert encoder.encode_images(images).tolist() == [[10, 10], [200, 200]]
    assert encoder.provenance["weights_sha256"] is not None
    with pytest.raises(EncoderError, match="was given PIL images"):
        encoder.encode_images([Image.new("RGB", (4, 4))])


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({}, "needs a function"),
        ({"texts": lambda t: 1 / 0}, "ZeroDivisionError"),
        ({"texts": lambda t: torch.zeros(len(t) + 1, 2)}, r"gave shape \(3, 2\) for 2 inputs"),
        ({"texts": lambda t: torch.zeros(len(t), 3), "images": brightness}, "different sizes"),
    ],
)
def test_a_function_that_does_not_fit_says_so(functions, message):
    with pytest.raises(EncoderError, match=message):
        from_functions(name="mine", **functions)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "empty list of texts"),
        ("a cat", r"got one string, 'a cat': give a list"),
        (["a", 3], "text 1 is int"),
        (7, "must be a list of strings; got int"),
    ],
)
def test_texts_that_are_none(texts, message):
    with pytest.raises(EncoderError, match=message):
        check_texts(texts)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 3, 8, 8), r"have dtype torch\.float32; expected a uint8 tensor"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), r"have shape \(3, 8, 8\)"),
        (torch.zeros(2, 8, 8, 3, dtype=torch.uint8), r"channels last: use images\.permute"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), r"have shape \(2, 1, 8, 8\)"),
        (torch.zeros(0, 3, 8, 8, dtype=torch.uint8), "no pixel at all"),
        (np.zeros((2, 3, 8, 8), np.uint8), "images are ndarray"),
        (Image.new("RGB", (4, 4)), r"got one PIL image: give a list"),
        ([], "empty list of images"),
        ([Image.new("RGB", (4, 4)), "cat.png"], "image 1 is str"),
        ("cat.png", "images are str"),
    ],
)
def test_images_that_are_none(images, message):
    with pytest.raises(EncoderError, match=message):
        check_images(images)


def test_fp32_means_no_tf32(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    with exact_inference(torch.device("cuda"), "fp32"):
        assert torch.backends.cudnn.allow_tf32 is False
        assert torch.backends.cuda.matmul.allow_tf32 is False
        assert not torch.is_grad_enabled()
    assert torch.backends.cudnn.allow_tf32 is True
    assert torch.is_grad_enabled()


def test_provenance_is_json_and_works_outside_a_repository(monkeypatch):
    found = provenance(dtype=torch.float64)
    json.dumps(found)
    assert found["dtype"] == "float64"
    assert found["versions"]["torch"] == torch.__version__.split("+")[0]
    assert found["threads"] == torch.get_num_threads()
    from conceptbind import provenance as module

    monkeypatch.setenv("PATH", "")
    module._git_state.cache_clear()
    assert provenance()["commit"] is None
    module._git_state.cache_clear()
    assert versions("no-such-package") == {"no-such-package": None}


def test_digests_depend_on_content_only():
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
    x = torch.arange(6.0)
    assert tensor_digest({"x": x.view(2, 3).t()}) == tensor_digest({"x": x.view(2, 3).t().contiguous()})
    for other in ({"y": x}, {"x": x.view(2, 3)}, {"x": x.double()}, {"x": x + 1}, {"x": x, "y": x}):
        assert tensor_digest(other) != tensor_digest({"x": x})


@pytest.mark.parametrize(
    ("spec", "arguments", "message"),
    [
        (letters, {"device": "cuda"}, "do not reach into a function"),
        (letters, {"precision": "bf16"}, "do not reach into a function"),
        (Path("rows.npy"), {}, r"is a path.*conceptbind\.files\.from_file"),
        (torch.nn.Linear(2, 2), {}, r"got a Linear.*from_functions"),
        ("ViT-B/32", {}, "Did you mean 'open_clip:ViT-B-32-quickgelu/openai'"),
        ("vit-b-32", {}, "Did you mean 'open_clip:ViT-B-32-quickgelu/openai'"),
        ("hf-hub:", {}, "names no model"),
        ("local-dir:", {}, "names no model"),
        ("open_clip:/models/x.pt", {}, "without their architecture: write open_clip:<model>//models/x.pt"),
    ],
)
def test_what_is_no_spec_says_what_to_write(spec, arguments, message):
    with pytest.raises(EncoderError, match=message):
        load(spec, **arguments)


def test_pictures_of_the_first_call_have_the_size_that_is_given():
    def fixed(images):
        assert images.shape[2:] == (32, 48)
        return brightness(images)

    assert from_functions(images=fixed, name="fixed", image_size=(32, 48)).dim == 2
    with pytest.raises(EncoderError, match=r"of \(224, 224\) pixels \(image_size=\.\.\. sets"):
        from_functions(images=fixed, name="fixed")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.zeros(2, 0), "dim at least 1"),
        (torch.zeros(2, 3, dtype=torch.complex64), "gave complex numbers"),
    ],
)
def test_rows_that_are_no_embeddings(rows, message):
    with pytest.raises(EncoderError, match=message):
        from_functions(texts=lambda _: rows, name="mine")
