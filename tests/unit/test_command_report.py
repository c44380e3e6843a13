"""``conceptbind report``: models by name, lists of them, files of embeddings; nothing is lost when one fails."""

import argparse
import json
from dataclasses import replace

import numpy as np
import pytest

from conceptbind import cli
from conceptbind.commands import report as command
from conceptbind.encoders import EncoderError, from_functions
from conceptbind.presets import PRESETS
from conceptbind.report import data, measure
from conceptbind.report.report import Report, read_report
from conceptbind.scenes import ConceptSpace, factorial_scenes

SPACE = ConceptSpace(("colour", "shape"), (("red", "green", "blue"), ("A", "B", "C")))
SCENES = factorial_scenes(SPACE, 2)


@pytest.fixture
def made(monkeypatch):
    """Replace what takes seconds: loading, and measuring."""
    asked = []

    def load(spec, **_):
        if "broken" in spec:
            raise EncoderError(f"no encoder is named {spec!r}")
        return from_functions(texts=lambda texts: np.ones((len(texts), 2)), name=spec)

    def report_on(encoder, dataset, *, model, pretrained, preset, seed, **settings):
        asked.append((encoder.name, dataset, settings["normalise"]))
        settings = {"preset": preset, "seed": seed, "normalise": {"text": settings["normalise"]}}
        metrics = {"text_probe_objects": 0.5}
        return Report(
            dataset, model, pretrained, metrics, {"text": "undetermined"}, {"text": "why"}, (), settings
        )

    monkeypatch.setattr("conceptbind.encoders.load", load)
    monkeypatch.setattr(measure, "report_on", report_on)
    return asked


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_files(folder, *, rows=None, columns=None, embeddings=None):
    names = ["object1_colour", "object1_shape", "object2_colour", "object2_shape"]
    lines = [
        ",".join(SPACE.values[k][int(scene[slot, k])] for slot in range(2) for k in range(2))
        for scene in SCENES
    ]
    (folder / "labels.csv").write_text(
        "\n".join([",".join(columns or names), *(lines if rows is None else rows)])
    )
    z = np.random.default_rng(0).standard_normal((len(SCENES), 8)).astype("float32")
    np.savez(folder / "emb.npz", embeddings=z if embeddings is None else embeddings(z))
    return ["report", "--embeddings", "emb.npz", "--labels", "labels.csv", "--preset", "smoke", "--quiet"]


def test_a_model_of_open_clip_by_name_and_tag(made, here, capsys):
    assert (
        cli.main(
            ["report", "--model", "ViT-B-32-quickgelu", "--pretrained", "openai", "--dataset", "clevr2d"]
        )
        == 0
    )
    assert made == [("open_clip:ViT-B-32-quickgelu/openai", "clevr2d", False)]
    stored = json.loads((here / "clevr2d_openai_ViT-B-32-quickgelu_binding.json").read_text())
    assert (stored["model"], stored["pretrained"], stored["task"]) == (
        "ViT-B-32-quickgelu",
        "openai",
        "binding_report",
    )
    page = (here / "clevr2d_openai_ViT-B-32-quickgelu_binding.html").read_text()
    assert "ViT-B-32-quickgelu" in page
    assert "ViT-B-32-quickgelu" in capsys.readouterr().out


def test_every_model_meets_every_data_set(made, here):
    (here / "models.txt").write_text("# mine\nA,one\n\nB , two # the second\n")
    args = [
        "report",
        "--pretrained_model",
        "models.txt",
        "C,three",
        "--dataset",
        "clevr2d",
        "captions8",
        "--no_page",
    ]
    assert cli.main([*args, "--quiet", "--normalize", "on"]) == 0
    specs = ["open_clip:A/one", "open_clip:B/two", "open_clip:C/three"]
    assert made == [(s, d, True) for s in specs for d in ("clevr2d", "captions8")]
    assert len(list(here.glob("*.json"))) == 6
    assert not list(here.glob("*.html"))


def test_names_that_file_systems_refuse(made, here):
    assert cli.main(["report", "--encoder", "hf-hub:org/repo", "pocket:narrow", "--quiet", "--no-page"]) == 0
    found = sorted(p.name for p in here.iterdir())
    assert found == ["clevr2d_hf-hub-org-repo_binding.json", "clevr2d_pocket-narrow_binding.json"]


def test_one_that_fails_does_not_stop_the_others(made, here, capsys):
    assert cli.main(["report", "--encoder", "broken", "good", "--no_page", "--quiet"]) == 1
    assert [p.name for p in here.iterdir()] == ["clevr2d_good_binding.json"]
    assert "failed: broken on clevr2d: no encoder is named 'broken'" in capsys.readouterr().err


def test_only_one_that_fails_is_an_error(made, here, capsys):
    assert cli.main(["report", "--encoder", "broken"]) == 2
    assert "no encoder is named 'broken'" in capsys.readouterr().err


def test_what_is_there_is_skipped_if_it_is_complete_and_the_same(made, here):
    args = ["report", "--encoder", "a", "b", "--quiet", "--no_page"]
    assert cli.main(args) == 0
    made.clear()
    (here / "clevr2d_b_binding.json").write_text("{")  # cut off
    assert cli.main([*args, "--skip_existing"]) == 0
    assert [name for name, *_ in made] == ["b"]
    made.clear()
    assert cli.main([*args, "--skip-existing", "--seed", "1"]) == 0
    assert [name for name, *_ in made] == ["a", "b"]
    made.clear()
    assert cli.main([*args, "--skip-existing", "--seed", "1", "--normalize", "on"]) == 0
    assert [name for name, *_ in made] == ["a", "b"]
    made.clear()
    assert cli.main(args) == 0
    assert len(made) == 2


def test_two_reports_in_one_file_are_refused_before_anything_runs(made, here, capsys):
    assert cli.main(["report", "--encoder", "a", "b", "--output", "{dataset}.json"]) == 2
    assert made == []
    assert "would both be written to clevr2d.json" in capsys.readouterr().err
    assert cli.main(["report", "--encoder", "a/b", "a:b", "--quiet"]) == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--model", "ViT-B-32"], "name its weights, too"),
        (["--encoder", "a", "--pretrained", "openai"], "--pretrained belongs to --model"),
        (["--encoder", "a", "--labels", "l.csv"], "--labels belongs to --embeddings"),
        (["--embeddings", "e.npz", "--pretrained", "x"], "--pretrained belongs to --model"),
        (["--embeddings", "e.npz", "--dataset", "pocket"], "bring scenes of their own"),
        (["--encoder", "a", "--output", "{name}.json"], "the names in braces are dataset, pretrained, model"),
        (["--encoder", "a", "--output", "a.csv"], "a report is a .json file"),
        (["--pretrained_model", "none.txt"], "none.txt: there is no such file"),
        (["--pretrained_model", "ViT-B-32"], "'ViT-B-32' is no MODEL,TAG"),
    ],
)
def test_arguments_that_do_not_fit(made, here, capsys, args, message):
    assert cli.main(["report", *args]) == 2
    assert message in capsys.readouterr().err
    assert not list(here.iterdir())


def test_a_line_of_a_list_is_named(made, here, capsys):
    (here / "models.txt").write_text("A,one\nB\n")
    assert cli.main(["report", "--pretrained_model", "models.txt"]) == 2
    assert "models.txt, line 2: 'B' is no MODEL,TAG" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"columns": ["object1_colour", "object1_shape", "object2_colour", "other"]}, "object2_shape"),
        (
            {"embeddings": lambda z: np.where(np.arange(len(z))[:, None] == 4, np.nan, z)},
            "NaN or infinite, in rows 4",
        ),
        ({"embeddings": lambda z: z.astype(int)}, "must be floats"),
        ({"embeddings": lambda z: z[:5]}, "5 embeddings, the labels have 81"),
        ({"rows": ["red,A,green,B"] * 9, "embeddings": lambda z: z[:9]}, "9 scenes are too few"),
        ({"columns": ["object1_colour", "object1_shape", "a", "b"]}, "scenes of one object"),
    ],
)
def test_files_that_cannot_be_measured(here, capsys, files, message):
    assert cli.main(write_files(here, **files)) == 2
    assert message in capsys.readouterr().err
    assert not list(here.glob("*.json"))


def test_embeddings_of_ones_own_need_no_model(here, monkeypatch):
    monkeypatch.setattr(
        measure, "size_of", lambda preset: replace(measure.Size(90, 90, 1, 50, 50, 2, 1, False))
    )
    assert cli.main(write_files(here)) == 0
    found = read_report(here / "embeddings_emb_binding.json")
    assert found.dataset == "embeddings"
    assert found.model == "emb"
    # random rows: concepts are not read
    assert found.verdict == "undetermined"
    assert found.metrics["embedding_probe_objects"] < 0.2
    assert (here / "embeddings_emb_binding.html").exists()


def test_the_help_names_what_the_package_has():
    assert tuple(d.name for d in data._data_sets()) == command.DATA
    assert command.PRESETS == PRESETS
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert "{dataset}_{pretrained}_{model}_binding.json" in parser.format_help()
