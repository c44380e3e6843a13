"""The product adapter: the identity at first, and a planted case that no linear map can repair."""

import pytest
import torch
from torch.nn import functional

from conceptbind.repair.adapter import ProductAdapter, ReluAdapter, n_parameters, train_adapter
from conceptbind.repair.files import load_repair, save_repair
from conceptbind.repair.linear_map import LinearMap, train_linear_map
from conceptbind.repair.swaps import Pairs, SwapTraining
from conceptbind.scenes import ConceptSpace, SceneKind, factorial_scenes, object_split

VALUES, DIM, RANK = 8, 64, 6
SPACE = ConceptSpace.of_sizes(VALUES, VALUES)
SPLIT = object_split(SPACE, 0.7, seed=0)
HOW = SwapTraining(n_epochs=30)


def planted():
    """Texts know every slot's concepts, one direction each; pictures are products, whatever the order of the slots."""
    g = torch.Generator().manual_seed(0)
    scenes = factorial_scenes(SPACE, 2, repeats="distinct values")
    twins = scenes.clone()
    twins[:, 0, 0], twins[:, 1, 0] = scenes[:, 1, 0], scenes[:, 0, 0]
    basis = torch.linalg.qr(torch.randn(DIM, DIM, generator=g)).Q
    words = basis[: 4 * VALUES].view(2, 2, VALUES, DIM)
    colours, shapes = (torch.randn(VALUES, RANK, generator=g) for _ in range(2))
    room = torch.linalg.qr(torch.randn(DIM, DIM, generator=g)).Q[:RANK]

    def texts(scenes):
        return sum(words[i, k][scenes[:, i, k]] for i in range(2) for k in range(2))

    images = (colours[scenes[..., 0]] * shapes[scenes[..., 1]]).sum(1) @ room
    number = SPACE.object_index(scenes).sort(1).values @ torch.tensor([VALUES**2, 1])
    swapped = SPACE.object_index(twins).sort(1).values @ torch.tensor([VALUES**2, 1])
    pairs = Pairs(images, texts(scenes), texts(twins), torch.stack([number, swapped], 1))
    kinds = SPLIT.kinds(scenes)

    def some(kind):
        keep = kinds == kind
        return Pairs(pairs.images[keep], pairs.texts[keep], pairs.swapped[keep], pairs.meanings[keep])

    return some(SceneKind.TRAIN), some(SceneKind.HELD_OUT)


SEEN, HELD_OUT = planted()


def choice(repair, pairs):
    """Share of pictures that strictly prefer their caption, by cosine."""
    with torch.no_grad():
        true, swapped = (
            functional.cosine_similarity(pairs.images, repair(x)) for x in (pairs.texts, pairs.swapped)
        )
    return float((true > swapped).double().mean())


def test_an_adapter_starts_as_the_identity():
    texts = 5 * torch.randn(7, DIM, generator=torch.Generator().manual_seed(1))
    for adapter in (ProductAdapter(DIM), ReluAdapter(DIM)):
        assert torch.equal(adapter(texts), texts)


def test_products_are_those_of_a_plain_loop_and_scale_with_the_text():
    adapter = ProductAdapter(6, n_slots=2, n_concepts=3, rank=4, seed=3).double()
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        adapter.head.weight.copy_(torch.randn(6, 4, generator=g, dtype=torch.float64))
        adapter.parts.bias.copy_(torch.randn(24, generator=g, dtype=torch.float64))
    text = torch.randn(1, 6, generator=g, dtype=torch.float64)
    unit = text[0] / text[0].norm()
    total = torch.zeros(4, dtype=torch.float64)
    for slot in range(2):
        product = torch.ones(4, dtype=torch.float64)
        for concept in range(3):
            rows = slice((slot * 3 + concept) * 4, (slot * 3 + concept + 1) * 4)
            product *= adapter.parts.weight[rows] @ unit * 6**0.5 + adapter.parts.bias[rows]
        total += product
    expected = text[0] + text[0].norm() * (adapter.head.weight @ total)
    assert torch.allclose(adapter(text)[0], expected, rtol=1e-12)
    assert torch.allclose(adapter(3 * text), 3 * adapter(text), rtol=1e-12)


def test_products_repair_new_objects_where_no_linear_map_can():
    adapter = ProductAdapter(DIM, seed=0)
    how = train_adapter(adapter, SEEN, HOW, seed=0)
    assert how["losses"][-1] < how["losses"][0]
    assert choice(adapter, SEEN) > 0.98
    products = choice(adapter, HELD_OUT)
    assert products > 0.9
    # Of a scene and the same scene in the other order, a linear map gets one right at most: the same picture has to
    # prefer W(t - t') and its opposite.
    linear, _ = train_linear_map(SEEN, SwapTraining(n_epochs=5), seed=0)
    with torch.no_grad():
        score = (functional.normalize(SEEN.images, dim=1) * linear(SEEN.texts - SEEN.swapped)).sum(1)
    assert float((score > 0).double().mean()) == pytest.approx(0.5, abs=0.02)
    assert choice(linear, HELD_OUT) < products - 0.2
    # an equally large hidden layer learns what it has seen, and less of the rest
    control = ReluAdapter.as_large_as(adapter)
    train_adapter(control, SEEN, HOW, seed=0)
    assert choice(control, SEEN) > 0.98
    assert choice(control, HELD_OUT) < products


def test_the_control_is_as_large():
    for dim, rank in ((48, 32), (512, 64), (20, 1)):
        adapter = ProductAdapter(dim, rank=rank)
        control = ReluAdapter.as_large_as(adapter)
        assert abs(n_parameters(control) - n_parameters(adapter)) <= dim + 1


def test_parameters_are_counted():
    assert n_parameters(ProductAdapter(10, n_slots=2, n_concepts=3, rank=4)) == 24 * 11 + 40
    assert n_parameters(ReluAdapter(10, width=7)) == 7 * 11 + 70


def test_seeds_draw_the_parts():
    a, b, c = (ProductAdapter(8, seed=s).parts.weight for s in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


@pytest.mark.parametrize(
    "make", [lambda: ProductAdapter(12, rank=3, seed=4), lambda: ReluAdapter(12, width=5)]
)
def test_what_is_saved_is_loaded(make, tmp_path):
    adapter, texts = make(), torch.randn(4, 12, generator=torch.Generator().manual_seed(0))
    torch.nn.init.normal_(adapter.head.weight, generator=torch.Generator().manual_seed(1))
    save_repair(adapter, tmp_path / "a.safetensors")
    again = load_repair(tmp_path / "a.safetensors")
    assert type(again) is type(adapter)
    assert again.settings == adapter.settings
    assert torch.equal(again(texts), adapter(texts))


def test_files_that_are_none_or_damaged_are_told(tmp_path):
    path = tmp_path / "a.safetensors"
    with pytest.raises(FileNotFoundError, match="no repair at"):
        load_repair(path)
    with pytest.raises(ValueError, match=r"must end in .safetensors"):
        save_repair(LinearMap(3), tmp_path / "a.pt")
    with pytest.raises(ValueError, match="only LinearMap, ProductAdapter, ReluAdapter"):
        save_repair(torch.nn.Linear(2, 2), path)
    save_repair(LinearMap(3), path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        load_repair(path)
    path.write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="damaged or no safetensors"):
        load_repair(path)
    from safetensors.torch import save_file

    save_file({"weight": torch.eye(2)}, path)
    with pytest.raises(ValueError, match="no repair of this version"):
        load_repair(path)


def test_sizes_and_dimensions_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="'rank': 0"):
        ProductAdapter(4, rank=0)
    with pytest.raises(ValueError, match="'width': 0"):
        ReluAdapter(4, width=0)
    with pytest.raises(ValueError, match=r"adapter has 16 dimensions.*dim=64"):
        train_adapter(ProductAdapter(16), SEEN, seed=0)
