"""The batched kernels against the plain formula they replace."""

import threading

import matplotlib
import numpy as np
import open_clip
import pytest
import sklearn
import torch
from open_clip.model import CustomTextCLIP
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

from conceptbind.encoders import load
from conceptbind.kernels.encoding import (
    CPU_BATCH,
    causal_tower,
    encode_batches,
    encode_tokens_cropped,
    encode_unique,
    prefetch,
)
from conceptbind.kernels.preprocessing import Preprocessing, to_rgb

CPU = torch.device("cpu")
VISION = {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16}
TEXT = {"context_length": 20, "vocab_size": 100, "width": 32, "heads": 2, "layers": 2}


def real_pictures() -> list[Image.Image]:
    """Load photographs that come with installed packages, landscape and portrait."""
    folder = f"{sklearn.__path__[0]}/datasets/images"
    portrait = f"{matplotlib.get_data_path()}/sample_data/grace_hopper.jpg"
    return [Image.open(f) for f in (f"{folder}/china.jpg", f"{folder}/flower.jpg", portrait)]


def tiny(**text) -> CustomTextCLIP:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return CustomTextCLIP(16, VISION, {**TEXT, **text}).eval()


def rows_with_end_at(lengths: list[int], eos: int = 99) -> torch.Tensor:
    """Make token rows: start, words, the end token, padding."""
    tokens = torch.zeros(len(lengths), TEXT["context_length"], dtype=torch.int64)
    generator = torch.Generator().manual_seed(0)
    for row, length in zip(tokens, lengths, strict=True):
        row[:length] = torch.randint(1, 98, (length,), generator=generator)
        row[0], row[length - 1] = 98, eos
    return tokens


def test_cropped_context_equals_full_context_on_vit_b_32():
    encoder = load("random:ViT-B-32", device="cpu")
    texts = [
        "a red circle and a blue square",
        "cat",
        "a small spiral",
        "a red circle and a blue square",
        "so many words that " * 17,
    ]
    with torch.no_grad():
        full = encoder.model.encode_text(encoder.tokenise(texts))
    ours = encoder.encode_texts(texts, batch_size=2)
    assert (ours - full).abs().max() < 1e-4
    assert (ours[0] - ours[1]).abs().max() > 0.01
    assert torch.equal(ours[0], ours[3])


@pytest.mark.parametrize(
    "text", [{}, {"pool_type": "eos", "eos_id": 7}, {"proj_bias": True}, {"proj_type": "none"}]
)
def test_cropped_context_equals_full_context_on_text_transformers(text):
    model = tiny(**text)
    tower = causal_tower(model)
    assert tower is not None
    tokens = rows_with_end_at([5, 20, 3, 9, 9], eos=text.get("eos_id", 99))
    with torch.no_grad():
        ours = encode_tokens_cropped(tower, tokens, device=CPU, batch_size=2)
        full = model.encode_text(tokens)
    assert torch.allclose(ours, full, atol=1e-5)


def test_changing_padding_shows_that_the_crop_is_needed_where_it_is_made():
    # Under causal attention the tokens after the end change nothing; this is why cropping is exact.
    model = tiny()
    tokens = rows_with_end_at([5, 8])
    changed = tokens.clone()
    changed[:, 10:] = 42
    with torch.no_grad():
        assert torch.allclose(model.encode_text(tokens), model.encode_text(changed), atol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        {"no_causal_mask": True},
        {"pool_type": "last"},
        {"pool_type": "first"},
        {"embed_cls": True},
        {"output_tokens": True},
    ],
)
def test_no_crop_where_a_later_token_could_matter(text):
    assert causal_tower(tiny(**text)) is None


def test_no_crop_for_siglip_and_coca():
    assert causal_tower(open_clip.create_model("ViT-B-16-SigLIP", load_weights=False)) is None
    small = {"embed_dim": 16, "vision_cfg": VISION, "multimodal_cfg": TEXT}
    assert causal_tower(open_clip.CoCa(text_cfg={**TEXT, "embed_cls": True}, **small)) is None


def test_each_text_is_encoded_once_and_rows_come_back_in_order():
    asked: list[str] = []

    def encode(unique):
        asked.extend(unique)
        return torch.tensor([[float(len(t))] for t in unique])

    rows = encode_unique(["bb", "a", "bb", "ccc", "a"], encode)
    assert asked == ["bb", "a", "ccc"]
    assert rows.squeeze(1).tolist() == [2, 1, 2, 3, 1]


@pytest.mark.parametrize("batch_size", [None, 1, 7, 1000])
def test_batches_cover_every_row_once(batch_size):
    data = torch.arange(200.0).unsqueeze(1)
    sizes = []

    def forward(batch):
        sizes.append(len(batch))
        return 2 * batch

    out = encode_batches(200, lambda lo, hi: data[lo:hi], forward, device=CPU, batch_size=batch_size)
    assert torch.equal(out, 2 * data)
    assert max(sizes) == min(batch_size or CPU_BATCH, 200)


def test_out_of_memory_halves_the_batch_and_loses_no_row():
    data = torch.arange(50.0).unsqueeze(1)
    sizes = []

    def forward(batch):
        if len(batch) > 5:
            raise torch.cuda.OutOfMemoryError("no memory")
        sizes.append(len(batch))
        return batch + 1

    out = encode_batches(50, lambda lo, hi: data[lo:hi], forward, device=CPU, batch_size=16)
    assert torch.equal(out, data + 1)
    assert max(sizes) == 4


def test_out_of_memory_on_one_row_is_raised():
    def forward(batch):
        raise torch.cuda.OutOfMemoryError("no memory")

    with pytest.raises(torch.cuda.OutOfMemoryError):
        encode_batches(8, lambda lo, hi: torch.zeros(hi - lo, 1), forward, device=CPU)


def test_a_batch_size_of_zero_is_refused():
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        encode_batches(8, lambda lo, hi: torch.zeros(hi - lo, 1), lambda x: x, device=CPU, batch_size=0)


def test_prefetch_keeps_order_passes_errors_and_ends_its_thread():
    assert list(prefetch(iter(range(20)))) == list(range(20))

    def failing():
        yield 1
        raise KeyError("broken picture")

    with pytest.raises(KeyError, match="broken picture"):
        list(prefetch(failing()))

    endless = prefetch(iter(int, 1))
    next(endless)
    endless.close()
    assert not [t for t in threading.enumerate() if t.name == "conceptbind-prefetch"]


CONFIGS = [
    ("shortest", "bicubic", 224),
    ("shortest", "bilinear", 96),
    ("squash", "bicubic", 224),
]


@pytest.mark.parametrize(("mode", "interpolation", "size"), CONFIGS)
def test_preprocessing_agrees_with_open_clips_transform_on_photographs(mode, interpolation, size):
    cfg = PreprocessCfg(size=size, resize_mode=mode, interpolation=interpolation)
    transform = image_transform_v2(cfg, is_train=False)
    ours = Preprocessing(
        size=(size, size), mode=mode, interpolation=interpolation, mean=cfg.mean, std=cfg.std
    )
    for picture in real_pictures():
        theirs = transform(picture).unsqueeze(0)
        from_pil = ours.normalise(ours.resize_pil([picture]))
        assert torch.allclose(from_pil, theirs, atol=1e-6)
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1).unsqueeze(0)
        levels = (ours.resize_tensor(pixels).int() - ours.resize_pil([picture]).int()).abs()
        assert levels.max() <= 1
        assert levels.float().mean() < 0.05


def test_small_pictures_are_enlarged_as_pil_does():
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (1, 3, 40, 30), dtype=torch.uint8, generator=generator)
    ours = Preprocessing((64, 64), "shortest", "bicubic", (0.5,) * 3, (0.5,) * 3)
    picture = Image.fromarray(pixels[0].permute(1, 2, 0).numpy())
    assert (ours.resize_tensor(pixels).int() - ours.resize_pil([picture]).int()).abs().max() <= 1


def test_pictures_of_the_right_size_are_left_alone_and_normalised_by_the_formula():
    pixels = torch.arange(3 * 8 * 8, dtype=torch.uint8).view(1, 3, 8, 8)
    p = Preprocessing((8, 8), "shortest", "bicubic", (0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    assert torch.equal(p.resize_tensor(pixels), pixels)
    value = float(p.normalise(pixels)[0, 1, 0, 0])
    assert value == pytest.approx((64 / 255 - 0.2) / 0.6, abs=1e-6)


def test_resize_before_crop_keeps_the_centre():
    p = Preprocessing((2, 2), "shortest", "bicubic", (0.0,) * 3, (1.0,) * 3, resize_to=4)
    pixels = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4).repeat(1, 3, 1, 1)
    assert p.resize_tensor(pixels)[0, 0].tolist() == [[5, 6], [9, 10]]


def test_grey_and_transparent_pictures_become_rgb():
    p = Preprocessing((4, 4), "squash", "bicubic", (0.0,) * 3, (1.0,) * 3)
    out = p.resize_pil([Image.new("L", (4, 4), 7), Image.new("RGBA", (9, 5), (1, 2, 3, 255))])
    assert out[0].unique().tolist() == [7]
    assert out[1, :, 0, 0].tolist() == [1, 2, 3]


def test_a_crop_that_is_not_square_needs_a_size_before_it():
    with pytest.raises(ValueError, match="give resize_to"):
        Preprocessing((4, 8), "shortest", "bicubic", (0.0,) * 3, (1.0,) * 3)


def test_sixteen_bits_palettes_and_transparency_become_rgb_before_resizing():
    ramp = np.array([[0, 257, 40 * 257, 65535]], np.uint16)
    assert np.asarray(to_rgb(Image.fromarray(ramp)))[0, :, 0].tolist() == [0, 1, 40, 255]
    p = Preprocessing((24, 24), "squash", "bicubic", (0.0,) * 3, (1.0,) * 3)
    photo, *_ = (picture.convert("RGB") for picture in real_pictures())
    palette = photo.convert("P", palette=Image.Palette.ADAPTIVE)
    seen_through = photo.copy()
    seen_through.putalpha(Image.linear_gradient("L").resize(photo.size))
    as_rgb = [palette.convert("RGB"), photo]
    assert torch.equal(p.resize_pil([palette, seen_through]), p.resize_pil(as_rgb))
    with pytest.raises(ValueError, match="mode 'F' does not say which number is white"):
        p.resize_pil([Image.new("F", (4, 4))])
