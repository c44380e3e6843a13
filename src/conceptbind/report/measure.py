"""Measure how an encoder binds: one call from embeddings to a report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from tqdm.auto import tqdm

from conceptbind.analysis.crossmodal import IMAGE_TO_TEXT, TEXT_TO_IMAGE, CrossModal, cross_modal
from conceptbind.analysis.crossmodal_baselines import SHUFFLED as SHUFFLED_PAIRS
from conceptbind.analysis.crossmodal_baselines import TEXT_ONLY, cross_modal_baselines
from conceptbind.embeddings import EmbeddingSet
from conceptbind.encoders import Encoder, EncoderError, load
from conceptbind.provenance import provenance, tensor_digest
from conceptbind.report.data import data_set, embed
from conceptbind.report.one_modality import PARTS, Found, fewer, judge_binding, measure_inside, named
from conceptbind.report.report import RANDOM_INIT, SHUFFLED, Report
from conceptbind.report.sizes import Size, size_of

PROTOCOL = 1
"""Part of the settings: raised when a change may give other numbers."""
FEW = 10
"""Fewer scenes than that say nothing."""
DIRECTIONS = {"image_to_text": IMAGE_TO_TEXT, "text_to_image": TEXT_TO_IMAGE}


def report_on(
    encoder: Encoder,
    dataset: str = "clevr2d",
    *,
    preset: str = "laptop",
    seed: int = 0,
    untrained: Encoder | None = None,
    model: str | None = None,
    pretrained: str = "",
    normalise: bool = False,
    progress: bool = False,
) -> Report:
    """Measure an encoder on a data set of :mod:`conceptbind.report.data`.

    ``normalise``: scale every embedding to length one; by default they are as the encoder gives them. ``untrained``:
    the same architecture with random weights, for the metrics that end in "_random_init"; None makes it where
    :func:`untrained_of` can. ``model``, ``pretrained``: what the report calls it; by default the encoder's name.
    Raises ValueError for an unknown data set or preset, or when encoder and data have no modality in common.
    """
    size, data = size_of(preset), data_set(dataset)
    sets = embed(encoder, data, most=size.most_scenes, seed=seed, progress=progress)
    untrained = untrained_of(encoder, seed=seed) if untrained is None else untrained
    baseline = (
        {}
        if untrained is None
        else embed(untrained, data, most=size.most_scenes, seed=seed, progress=progress)
    )
    if normalise:
        sets, baseline = ({side: e.normalised() for side, e in some.items()} for some in (sets, baseline))
    report = binding_report(
        sets.get("image"),
        sets.get("text"),
        untrained_images=baseline.get("image"),
        untrained_texts=baseline.get("text"),
        dataset=dataset,
        model=model or encoder.name,
        pretrained=pretrained,
        preset=preset,
        seed=seed,
        progress=progress,
    )
    n_all = data.n_scenes
    if n_all > size.most_scenes:
        note = f"{data.name}: a sample of {size.most_scenes:,} of {n_all:,} scenes was measured"
        report = replace(report, notes=(note, *report.notes))
    return report


def untrained_of(encoder: Encoder, *, seed: int) -> Encoder | None:
    """Build the encoder's architecture with random weights, where there is a spec for that; else None."""
    source, _, rest = encoder.name.partition(":")
    name = {
        "open_clip": rest.partition("/")[0],
        "sentence": f"sentence:{rest}",
        "efficientnet-lite0": "efficientnet-lite0",
        "pocket": "pocket",
    }.get(source)
    if not name or name.startswith(("hf-hub:", "local-dir:")):
        return None
    try:
        return load(f"random:{name}", seed=seed, device=encoder.device)
    except EncoderError:
        return None


def binding_report(
    images: EmbeddingSet | None = None,
    texts: EmbeddingSet | None = None,
    *,
    embeddings: EmbeddingSet | None = None,
    untrained_images: EmbeddingSet | None = None,
    untrained_texts: EmbeddingSet | None = None,
    dataset: str = "embeddings",
    model: str = "embeddings",
    pretrained: str = "",
    preset: str = "laptop",
    seed: int = 0,
    progress: bool = False,
) -> Report:
    """Measure embeddings of pictures, of captions, of both, or of ``embeddings`` that do not say of what.

    Inside each modality additivity, probes, removal, edits and the product form, for shuffled labels, too, and for
    the untrained embeddings where given; and the verdict on the binding function. Between pictures and captions, the
    choices of :mod:`conceptbind.analysis.crossmodal`. What cannot be measured is noted, not guessed.
    Raises ValueError without embeddings, for fewer than 10 scenes, scenes of one object or one concept, or equal rows.
    """
    size = size_of(preset)
    given = {"image": images, "text": texts, "embedding": embeddings}
    sets = {side: e for side, e in given.items() if e is not None}
    if not sets or ("embedding" in sets and len(sets) > 1):
        raise ValueError("give images, texts or both; or embeddings alone")
    untrained = {"image": untrained_images, "text": untrained_texts}
    notes: list[str] = []
    for side, data in sets.items():
        _check(side, data)
        if data.n_scenes > size.most_scenes:
            notes.append(f"{side}: a sample of {size.most_scenes:,} of {data.n_scenes:,} scenes was measured")
    settings = _settings(sets, size, preset, seed)
    sets = {side: fewer(data, size.most_scenes, seed=seed) for side, data in sets.items()}
    metrics: dict[str, float] = {}
    verdicts: dict[str, str] = {}
    why: dict[str, str] = {}
    n_variants = sum(2 + (untrained.get(side) is not None) for side in sets)
    with tqdm(total=len(PARTS) * n_variants + len(sets), disable=not progress, unit=" parts") as bar:
        for side, data in sets.items():
            for ending, variant in _variants(data, untrained.get(side), seed).items():

                def tick(what: str, label: str = f"{side}{ending.replace('_', ' ')}") -> None:
                    bar.set_description(f"{label}: {what}")
                    bar.update()

                found = measure_inside(variant, size, seed=seed, tick=tick)
                metrics |= named(side, found.metrics.items(), ending)
                notes += [f"{side}{ending.replace('_', ' ')}: {note}" for note in found.notes]
            bar.set_description(f"{side}: verdict")
            bar.update()
            try:
                judged, evidence = judge_binding(data, size, seed=seed)
            except ValueError as error:
                verdicts[side], why[side] = "undetermined", f"no verdict: {' '.join(str(error).split())}"
                continue
            verdicts[side], why[side] = judged.verdict, judged.why
            metrics |= named(side, evidence.items())
    if "image" in sets and "text" in sets:
        between = Found()
        between.take(
            "pictures against captions",
            lambda: _between(sets["image"], sets["text"], untrained, size, seed),
        )
        metrics |= between.metrics
        notes += between.notes
        if "image_to_text_two_way" in metrics:
            verdicts["cross_modal"], why["cross_modal"] = cross_verdict(metrics)
    return Report(dataset, model, pretrained, metrics, verdicts, why, tuple(notes), settings)


def cross_verdict(metrics: dict[str, float]) -> tuple[str, str]:
    """Say what the two-way choices mean, from their 95 % intervals around one half, and a sentence with the numbers."""
    found = {d: tuple(metrics[f"{d}_two_way{end}"] for end in ("", "_low", "_high")) for d in DIRECTIONS}
    said = ", ".join(
        f"{d.replace('_', ' ')} {share:.2f} ({low:.2f} to {high:.2f})"
        for d, (share, low, high) in found.items()
    )
    why = f"the true counterpart is nearer than the twin's in: {said}; a coin has .50"
    ties = max(metrics.get(f"{d}_two_way_ties", 0.0) for d in DIRECTIONS)
    if all(low > 0.5 for _, low, _ in found.values()):
        return "binds", why
    if all(high < 0.5 for _, _, high in found.values()) and ties < 0.01:
        return "anti-binding", why
    if all(low <= 0.5 <= high for _, low, high in found.values()) or ties > 0.5:
        return "bag of concepts", why
    return "undetermined", why


def _between(
    images: EmbeddingSet,
    texts: EmbeddingSet,
    untrained: dict[str, EmbeddingSet | None],
    size: Size,
    seed: int,
) -> dict[str, float]:
    settings: dict[str, Any] = {"n_anchors": min(size.n_anchors, images.n_scenes, texts.n_scenes)}
    numbers = _cross_numbers(cross_modal(images, texts, seed=seed, **settings))
    blind = cross_modal_baselines(images, texts, seed=seed, **settings)
    others = {SHUFFLED: blind[SHUFFLED_PAIRS]}
    if untrained["image"] is not None and untrained["text"] is not None:
        others[RANDOM_INIT] = cross_modal(untrained["image"], untrained["text"], seed=seed, **settings)
    for ending, found in others.items():
        numbers |= {
            f"{name}{ending}": value
            for name, value in _cross_numbers(found).items()
            if not name.endswith(("_low", "_high", "_chance", "_ties"))
        }
    only = _cross_numbers(blind[TEXT_ONLY])
    numbers["image_to_text_two_way_text_only"] = only["image_to_text_two_way"]
    return numbers


def _cross_numbers(found: CrossModal) -> dict[str, float]:
    numbers = {}
    for name, direction in DIRECTIONS.items():
        row = found.of("all", direction).as_dict()
        for key in ("two_way", "two_way_low", "two_way_high", "two_way_chance", "two_way_ties"):
            numbers[f"{name}_{key}"] = row[key]
        numbers[f"{name}_two_way_margin"] = row["two_way_margin"]
        for key in ("reverse_recall", "recall_1", "recall_5", "recall_10"):
            numbers |= {f"{name}_{key}": row[key], f"{name}_{key}_chance": row[f"{key}_chance"]}
    row = found.of("all").as_dict()
    for key in ("text_score", "image_score", "group_score"):
        numbers |= {f"cross_{key}": row[key], f"cross_{key}_chance": row[f"{key}_chance"]}
    return {k: v for k, v in numbers.items() if v is not None}


def _variants(data: EmbeddingSet, untrained: EmbeddingSet | None, seed: int) -> dict[str, EmbeddingSet]:
    order = torch.randperm(data.n_scenes, generator=torch.Generator().manual_seed(seed))
    found = {"": data, SHUFFLED: replace(data, scenes=data.scenes[order])}
    if untrained is not None:
        found[RANDOM_INIT] = untrained
    return found


def _settings(sets: dict[str, EmbeddingSet], size: Size, preset: str, seed: int) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "preset": preset,
        "seed": seed,
        "sizes": size.as_dict(),
        "normalise": {side: e.is_normalised for side, e in sets.items()},
        "n_scenes": {side: e.n_scenes for side, e in sets.items()},
        "dim": {side: e.dim for side, e in sets.items()},
        "concepts": {c: list(v) for c, v in _concepts(next(iter(sets.values())))},
        "sha256": {
            side: tensor_digest({"embeddings": e.embeddings, "scenes": e.scenes}) for side, e in sets.items()
        },
        "embeddings": {side: e.provenance for side, e in sets.items()},
        "software": provenance(),
    }


def _concepts(data: EmbeddingSet) -> list[tuple[str, tuple[str, ...]]]:
    return list(zip(data.space.concepts, data.space.values, strict=True))


def _check(side: str, data: EmbeddingSet) -> None:
    if data.n_scenes < FEW:
        raise ValueError(f"{side}: {data.n_scenes} scenes are too few to fit anything to: give {FEW} or more")
    if data.scenes.shape[1] < 2:
        raise ValueError(
            f"{side}: scenes of one object have nothing to bind to each other: give scenes of two objects, with "
            "columns object1_<concept> and object2_<concept>"
        )
    shown = [c for c, values in _concepts(data) if len(values) > 1]
    if len(shown) < 2:
        raise ValueError(
            f"{side}: binding needs two concepts with two values or more, the labels have {len(shown)}: add the "
            "columns of another concept, object1_<concept> and so on"
        )
    if bool((data.embeddings == data.embeddings[:1]).all()):
        raise ValueError(f"{side}: all {data.n_scenes} embeddings are equal: check how they were computed")
