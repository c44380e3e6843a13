"""Whose binding function a command measures: the arguments, and the embeddings they ask for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conceptbind.analysis.complexity import Subject

# Written again here, so that --help needs no torch: the tests hold that they are those of the package.
DATA = ("captions", "2-D", "3-D")
PLANTED = ("additive", "product", "memorised")
MIN_SCENES = 10


def add_subject(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name an encoder, a file of embeddings or planted ones."""
    what = parser.add_argument_group("what to measure, one of")
    one = what.add_mutually_exclusive_group(required=True)
    one.add_argument("--encoder", metavar="SPEC", help="an encoder by name; it embeds --data")
    one.add_argument(
        "--embeddings",
        metavar="FILE",
        type=Path,
        help="embeddings: what EmbeddingSet.save wrote, or with --labels",
    )
    one.add_argument("--planted", choices=PLANTED, help="embeddings with known binding")
    parser.add_argument(
        "--data",
        choices=DATA,
        help="scenes for --encoder, of 24 objects (default: captions)",
    )
    parser.add_argument(
        "--values",
        type=int,
        metavar="V",
        help="V values for each of two concepts, 2 to 20: of captions or planted scenes; 24 objects without it",
    )
    parser.add_argument("--labels", metavar="FILE", type=Path, help="label file of --embeddings, .csv")
    parser.add_argument(
        "--seed", type=seed_of, default=0, help="of an untrained encoder, or of planted scenes"
    )


def subject_of(args: argparse.Namespace) -> Subject:
    """Embed what was asked for. Raises ValueError for arguments that do not belong together."""
    from conceptbind import subjects

    if args.labels is not None and args.embeddings is None:
        raise ValueError("--labels belongs to --embeddings: give the file of embeddings, too")
    if args.data is not None and args.encoder is None:
        raise ValueError(
            "--data belongs to --encoder: a file, and planted embeddings, bring scenes of their own"
        )
    if args.values is not None:
        if args.embeddings is not None:
            raise ValueError("--values belongs to --encoder and --planted: the values of a file are its own")
        if not 2 <= args.values <= subjects.MAX_VALUES:
            raise ValueError(
                f"scenes have 2 to {subjects.MAX_VALUES} values a concept; got --values {args.values}"
            )
        if args.data not in (None, DATA[0]):
            raise ValueError(
                f"pictures show 24 objects: leave out --values, or use --data captions; got {args.values}"
            )
    if args.embeddings is not None:
        return _of_file(args.embeddings, args.labels)
    if args.planted is not None:
        return subjects.planted_subject(args.planted, values=args.values, seed=args.seed)
    return subjects.encoder_subject(
        args.encoder, data=args.data or DATA[0], values=args.values, seed=args.seed
    )


def _of_file(path: Path, labels: Path | None) -> Subject:
    from conceptbind import files
    from conceptbind.analysis.complexity import Subject

    try:
        data = files.from_file(path, labels)
    except ValueError as error:
        raise ValueError(_naming(path, str(error))) from None
    shown = [name for name, size in zip(data.space.concepts, data.space.n_values, strict=True) if size > 1]
    if len(shown) < 2:
        raise ValueError(
            f"{path}: binding needs two concepts with two values or more, the labels have {len(shown)}: "
            "add the columns of another concept, object1_<concept> and so on"
        )
    if data.n_scenes < MIN_SCENES:
        raise ValueError(
            f"{path}: {data.n_scenes} scenes are too few to fit anything to: give {MIN_SCENES} or more"
        )
    if bool((data.embeddings == data.embeddings[:1]).all()):
        raise ValueError(f"{path}: all {data.n_scenes} embeddings are equal: check how they were computed")
    return Subject(path.stem, data)


def _naming(path: Path, message: str) -> str:
    message = message.replace("give labels, a CSV file or an integer array", "give --labels FILE.csv")
    return message if str(path) in message else f"{path}: {message}"


def seed_of(text: str) -> int:
    seed = int(text)
    if not 0 <= seed < 2**32:
        raise argparse.ArgumentTypeError(f"a seed is a whole number from 0 to 2**32 - 1; got {text}")
    return seed
