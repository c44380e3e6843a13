"""``conceptbind report``: how does this model bind? Numbers, a verdict and a page, for one model or many."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from conceptbind.commands._subject import seed_of

if TYPE_CHECKING:
    from conceptbind.report.report import Report

# Written again here, so that --help needs no torch: the tests hold that they are those of the package.
DATA = ("clevr2d", "clevr3d", "captions8", "captions20", "pocket")
PRESETS = ("smoke", "laptop", "paper")
OUTPUT = "{dataset}_{pretrained}_{model}_binding.json"
FIELDS = ("dataset", "pretrained", "model")
_UNSAFE = re.compile(r"[^\w.+=@-]+")


@dataclass(frozen=True)
class Asked:
    """One report to make."""

    model: str
    pretrained: str
    spec: str
    """For :func:`conceptbind.encoders.load`; "" for a file of embeddings."""
    dataset: str
    path: Path

    def __str__(self) -> str:
        return f"{self.model}{', ' * bool(self.pretrained)}{self.pretrained} on {self.dataset}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    what = parser.add_argument_group("what to measure, one of")
    one = what.add_mutually_exclusive_group(required=True)
    one.add_argument("--model", metavar="NAME", help="an open_clip architecture, with --pretrained")
    one.add_argument(
        "--pretrained_model",
        "--pretrained-model",
        nargs="+",
        metavar="MODEL,TAG",
        help="several of these, or files with one on each line",
    )
    one.add_argument(
        "--encoder",
        nargs="+",
        metavar="SPEC",
        help="encoders by name, as sentence:all-MiniLM-L6-v2, pocket:narrow",
    )
    one.add_argument("--embeddings", metavar="FILE", type=Path, help="embeddings of your own, with --labels")
    parser.add_argument("--pretrained", metavar="TAG", help="tag or file of the weights of --model")
    parser.add_argument(
        "--labels", metavar="FILE", type=Path, help="label file of --embeddings: object1_<concept>, ..."
    )
    parser.add_argument(
        "--dataset",
        nargs="+",
        default=["clevr2d"],
        choices=DATA,
        metavar="DATA",
        help=f"of {', '.join(DATA)} (default: clevr2d)",
    )
    parser.add_argument(
        "--output",
        default=OUTPUT,
        metavar="FILE",
        help=f"where each report goes, by default {OUTPUT}; a page of the same name, .html, beside it".replace(
            "%", "%%"
        ),
    )
    parser.add_argument("--no_page", "--no-page", action="store_true", help="write no page")
    parser.add_argument(
        "--skip_existing", "--skip-existing", action="store_true", help="leave out reports that are there"
    )
    parser.add_argument(
        "--preset", choices=PRESETS, default="laptop", help="how much to measure (default: laptop)"
    )
    parser.add_argument(
        "--normalize", choices=("off", "on"), default="off", help="scale embeddings to length one"
    )
    parser.add_argument("--seed", type=seed_of, default=0, help="of samples, splits and untrained weights")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1")
    parser.add_argument("--cache_dir", "--cache-dir", metavar="DIR", help="where downloaded weights are kept")
    parser.add_argument("--quiet", action="store_true", help="no progress bars, no summary")


def run(args: argparse.Namespace) -> int:
    """Make the reports one after the other; one that fails does not stop the others."""
    from conceptbind.report.compare import comparison_table
    from conceptbind.report.page import write_page
    from conceptbind.report.report import read_report

    asked = _asked(args)
    _refuse_collisions(asked)
    made: list[Report] = []
    failed: list[str] = []
    for job in asked:
        if args.skip_existing and (known := _complete(job, args)) is not None:
            made.append(known)
            continue
        try:
            report = _measure(job, args)
        except (ValueError, OSError, ImportError) as error:
            if args.debug or len(asked) == 1:
                raise
            failed.append(f"{job}: {' '.join(str(error).split())}")
            continue
        if not args.no_page:
            write_page(report, job.path.with_suffix(".html"))
        report.write(job.path)  # last: a report that is there is complete
        made.append(read_report(job.path))
        if not args.quiet:
            print(f"{job}: {report.verdict}. Written to {job.path}", file=sys.stderr)
    if made and not args.quiet:
        print(comparison_table(made))
    for line in failed:
        print(f"failed: {line}", file=sys.stderr)
    return 1 if failed else 0


def _asked(args: argparse.Namespace) -> list[Asked]:
    if args.embeddings is not None:
        for name in ("pretrained",):
            if getattr(args, name) is not None:
                raise ValueError(f"--{name} belongs to --model: embeddings in a file bring no model")
        if args.dataset != ["clevr2d"]:
            raise ValueError("--dataset belongs to a model: embeddings in a file bring scenes of their own")
        name = args.embeddings.stem
        return [Asked(name, "", "", "embeddings", _path(args.output, "embeddings", "", name))]
    if args.labels is not None:
        raise ValueError("--labels belongs to --embeddings: give the file of embeddings, too")
    if args.pretrained is not None and args.model is None:
        raise ValueError("--pretrained belongs to --model")
    if args.model is not None:
        if args.pretrained is None:
            raise ValueError(
                f"--model {args.model} names an architecture: name its weights, too, as --pretrained openai, or a file"
            )
        models = [(args.model, args.pretrained)]
    elif args.pretrained_model is not None:
        models = _listed(args.pretrained_model)
    else:
        models = [(spec, "") for spec in args.encoder]
    return [
        Asked(
            model,
            tag,
            f"open_clip:{model}/{tag}" if tag else model,
            data,
            _path(args.output, data, tag, model),
        )
        for model, tag in dict.fromkeys(models)
        for data in dict.fromkeys(args.dataset)
    ]


def _listed(given: list[str]) -> list[tuple[str, str]]:
    """Read MODEL,TAG pairs, and files of them: one on each line, # begins a comment."""
    models = []
    for item in given:
        path = Path(item)
        lines = [(item, "")]
        if path.suffix == ".txt" or ("," not in item and path.is_file()):
            if not path.is_file():
                raise ValueError(f"--pretrained_model {item}: there is no such file")
            text = path.read_text(encoding="utf-8").splitlines()
            lines = [
                (line.partition("#")[0].strip(), f"{item}, line {i}: ") for i, line in enumerate(text, 1)
            ]
        for line, where in lines:
            if not line:
                continue
            model, comma, tag = (part.strip() for part in line.partition(","))
            if not comma or not model or not tag:
                raise ValueError(
                    f"{where}{line!r} is no MODEL,TAG: write for example ViT-B-32-quickgelu,openai"
                )
            models.append((model, tag))
    if not models:
        raise ValueError(f"--pretrained_model {' '.join(given)} names no model: give MODEL,TAG, one a line")
    return models


def _path(template: str, dataset: str, pretrained: str, model: str) -> Path:
    """Fill the template; what file systems refuse in a name becomes "-", and an empty tag leaves no double "_"."""
    values = {
        name: _UNSAFE.sub("-", value).strip("-")
        for name, value in zip(FIELDS, (dataset, pretrained, model), strict=True)
    }
    if not pretrained:
        template = template.replace("{pretrained}_", "").replace("_{pretrained}", "")
    try:
        path = Path(template.format(**values))
    except (KeyError, IndexError, ValueError):
        raise ValueError(
            f"--output {template!r} cannot be filled: the names in braces are {', '.join(FIELDS)}"
        ) from None
    if path.suffix != ".json":
        raise ValueError(f"--output {template!r}: a report is a .json file, for example {OUTPUT!r}")
    return path


def _refuse_collisions(asked: list[Asked]) -> None:
    by_path: dict[str, Asked] = {}
    for job in asked:
        # some file systems do not tell A from a
        other = by_path.setdefault(str(job.path).casefold(), job)
        if other is not job:
            raise ValueError(
                f"{other} and {job} would both be written to {job.path}: put {{dataset}}, {{pretrained}} and {{model}} "
                "into --output"
            )


def _complete(job: Asked, args: argparse.Namespace) -> Report | None:
    """Give the report that is there, if it is one of the same model, data and settings."""
    from conceptbind.report.report import read_report

    if not job.path.is_file():
        return None
    try:
        found = read_report(job.path)
    except ValueError:
        return None
    same = (found.model, found.pretrained, found.dataset) == (job.model, job.pretrained, job.dataset)
    s = found.settings
    normalised = set(s.get("normalise", {}).values()) == {args.normalize == "on"}
    return (
        found
        if same and normalised and (s.get("preset"), s.get("seed")) == (args.preset, args.seed)
        else None
    )


def _measure(job: Asked, args: argparse.Namespace) -> Report:
    from conceptbind.encoders import load
    from conceptbind.report.measure import binding_report, report_on

    common = {"preset": args.preset, "seed": args.seed, "progress": not args.quiet}
    if not job.spec:
        from conceptbind.files import from_file

        data = from_file(args.embeddings, args.labels)
        if args.normalize == "on":
            data = data.normalised()
        return binding_report(embeddings=data, model=job.model, dataset=job.dataset, **common)
    encoder = load(job.spec, device=args.device, seed=args.seed, cache_dir=args.cache_dir)
    return report_on(
        encoder,
        job.dataset,
        model=job.model,
        pretrained=job.pretrained,
        normalise=args.normalize == "on",
        **common,
    )
