"""Keep what we found beside what the paper says: results/claims.json, the source of the scorecard."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from conceptbind.presets import PRESETS

try:
    import fcntl
except ImportError:  # Windows: writers are not kept apart there, each write is still atomic
    fcntl = None  # type: ignore[assignment]

FINDINGS = {
    "T": "Toy embeddings: the definitions at work",
    "F1": "Across modalities, a bag of concepts",
    "F2": "Within one modality, whole objects can be read out",
    "F3": "A scene is a sum of object parts, and those are partly sums of concept parts",
    "F4": "Removing parts removes exactly what they carry",
    "F5": "Exchanging a part exchanges an object",
    "F6": "No approximator of a frozen encoder generalises to held-out objects",
    "F7": "Transformers trained from scratch do generalise, with enough coverage",
    "F8": "What generalises has the form of a product",
    "F9": "Scope: more objects, occlusion, photographs",
}
"""The paper's findings, in the order of the scorecard."""

VERDICTS = ("holds", "does not hold", "not run here")

_FIGURE = re.compile(r"[\w./-]+\.html#[A-Za-z][\w-]*")


class ClaimsFileError(ValueError):
    """A claims file that cannot be read; it is left as it is."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """State one number of the paper beside ours.

    Raises:
        ValueError: a field is out of its range, or two fields contradict each other.
    """

    id: str
    """Short and stable, letters, digits, `.`, `_` and `-`; unique together with `encoder` and `data`."""
    finding: str
    """A key of `FINDINGS`."""
    claim: str
    """What the paper claims, one sentence."""
    paper: float | str | None
    """The paper's number; text where it is not one number; None where the paper gives none."""
    ours: float | None
    """Our number, in the unit of `paper`; None if and only if it was not run here."""
    interval: tuple[float, float] | None
    """95 % interval, contains `ours`; None where nothing was sampled."""
    encoder: str
    """Spec of the encoder, as `encoders.load` takes it."""
    data: str
    """The scenes, in words."""
    preset: str
    """One of `PRESETS`."""
    verdict: str
    """One of `VERDICTS`."""
    figure: str
    """Where it is shown: page and anchor, `02_objects_inside_one_modality.html#fig-recognition`."""

    def __post_init__(self) -> None:
        def bad(name: str, expected: str) -> ValueError:
            return ValueError(f"claim {self.id!r}: {name} is {getattr(self, name)!r}, expected {expected}")

        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", self.id):
            raise bad("id", "letters, digits, '.', '_' and '-'")
        if self.finding not in FINDINGS:
            raise bad("finding", f"one of {', '.join(FINDINGS)}")
        if self.preset not in PRESETS:
            raise bad("preset", f"one of {', '.join(PRESETS)}")
        if self.verdict not in VERDICTS:
            raise bad("verdict", f"one of {', '.join(VERDICTS)}")
        for name in ("claim", "encoder", "data"):
            if not getattr(self, name).strip():
                raise bad(name, "some text")
        if not _FIGURE.fullmatch(self.figure):
            raise bad("figure", "a page and an anchor, such as '02_objects.html#fig-recognition'")
        if isinstance(self.paper, float) and not math.isfinite(self.paper):
            raise bad("paper", "a finite number, text or None")
        if (self.ours is None) != (self.verdict == "not run here"):
            raise bad(
                "ours", f"{'a number' if self.ours is None else 'None'}, the verdict is {self.verdict!r}"
            )
        if self.ours is not None and not math.isfinite(self.ours):
            raise bad("ours", "a finite number")
        if self.interval is not None:
            if self.ours is None:
                raise bad("interval", "None, there is no number of ours")
            low, high = self.interval
            if not (math.isfinite(low) and math.isfinite(high) and low <= self.ours <= high):
                raise bad("interval", f"two finite numbers around ours, {self.ours!r}")

    @property
    def key(self) -> tuple[str, str, str]:
        """What a row of the claims file is unique by: id, encoder, data."""
        return self.id, self.encoder, self.data

    @property
    def page(self) -> str:
        """Name of the page that shows it, without the suffix."""
        return self.figure.partition(".html#")[0]


def repository_root() -> Path | None:
    """Find the repository this package is run from; None where it is installed without one, as on Colab."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() and (root / "_config.yml").is_file() else None


def results_dir() -> Path:
    """Give the folder that results are written to.

    `CONCEPTBIND_RESULTS` if it is set, else `results/` of the repository, else `results/` of the current
    folder. The folder need not exist yet. Read committed tables with `find_result`, not from here: tests and
    `make notebooks` point `CONCEPTBIND_RESULTS` at an empty folder.
    """
    if given := os.environ.get("CONCEPTBIND_RESULTS"):
        return Path(given)
    return (repository_root() or Path.cwd()) / "results"


def find_result(name: str) -> Path:
    """Find a result by its path below `results_dir()`, or below the repository's `results/`.

    Raises:
        FileNotFoundError: it is in neither.
    """
    folders = [results_dir()]
    if root := repository_root():
        folders.append(root / "results")
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    looked = " or ".join(str(f) for f in dict.fromkeys(folders))
    raise FileNotFoundError(f"no result {name!r} in {looked}; RERUN = True in its notebook computes it")


def read_claims(folder: Path | None = None) -> list[Claim]:
    """Read the claims file of a folder (`results_dir()` by default), sorted; no file is no claims.

    Raises:
        ClaimsFileError: the file is not what `record_claim` writes.
    """
    path = (folder or results_dir()) / "claims.json"
    if not path.exists():
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["claims"]
        claims = [_from_row(row) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClaimsFileError(
            f"{path} is not a readable claims file ({error}); it was left as it is: "
            f"mend it, or restore it with `git checkout -- {path.name}` in its folder"
        ) from error
    return sorted(claims, key=_order)


def record_claim(claim: Claim, *, folder: Path | None = None) -> Claim:
    """Write one row of the claims file, in place of the row with the same id, encoder and data.

    A row of a larger preset stays: a smoke run never replaces a laptop's number. Writers take turns on a
    lock, and the file is replaced as a whole.

    Returns:
        The row that now stands in the file: `claim` with its numbers rounded to 6 significant digits, or the
        row of a larger preset.

    Raises:
        ClaimsFileError: the file is there and cannot be read.
    """
    claim = _rounded(claim)
    with _claims_of(folder or results_dir()) as claims:
        _upsert(claims, claim)
        return claims[claim.key]


def merge_claims(staged: Path, page: str, *, folder: Path | None = None) -> None:
    """Take over the claims that a run of one page recorded in the folder `staged`.

    Rows of that page which the run no longer records are dropped, unless they are of a larger preset.
    """
    new = read_claims(staged)
    largest = max((PRESETS.index(c.preset) for c in new), default=PRESETS.index("laptop"))
    with _claims_of(folder or results_dir()) as claims:
        fresh = {c.key for c in new}
        for key, old in list(claims.items()):
            if old.page == page and key not in fresh and PRESETS.index(old.preset) <= largest:
                del claims[key]
        for claim in new:
            _upsert(claims, claim)


def _upsert(claims: dict[tuple[str, str, str], Claim], new: Claim) -> None:
    old = claims.get(new.key)
    # "not run here" is no number: any run replaces it, and it replaces no run.
    rank = {c: (c.ours is not None, PRESETS.index(c.preset)) for c in (old, new) if c is not None}
    if old is None or rank[new] >= rank[old]:
        claims[new.key] = new


def _order(claim: Claim) -> tuple[int, str, str, str]:
    return (list(FINDINGS).index(claim.finding), *claim.key)


def _from_row(row: dict[str, Any]) -> Claim:
    names = {f.name for f in fields(Claim)}
    if set(row) != names:
        raise ValueError(f"a row has the fields {sorted(row)}, expected {sorted(names)}")
    interval = row["interval"]
    return Claim(**{**row, "interval": None if interval is None else tuple(interval)})


def _rounded(claim: Claim) -> Claim:
    """Round to 6 significant digits, which keeps the order of `interval` and `ours`."""

    def short(x: float) -> float:
        return float(f"{x:.6g}")

    row = asdict(claim)
    row["ours"] = None if claim.ours is None else short(claim.ours)
    row["interval"] = None if claim.interval is None else tuple(short(x) for x in claim.interval)
    return Claim(**row)


@contextlib.contextmanager
def _claims_of(folder: Path) -> Iterator[dict[tuple[str, str, str], Claim]]:
    """Give the claims of a folder to change, alone; write them back unless an error leaves the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        claims = {c.key: c for c in read_claims(folder)}
        yield claims
        _write(folder / "claims.json", sorted(claims.values(), key=_order))


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)  # the folder itself is locked: no lock file to leave behind
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, claims: Iterable[Claim]) -> None:
    text = json.dumps({"claims": [asdict(c) for c in claims]}, indent=1, ensure_ascii=False, allow_nan=False)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.chmod(name, 0o644)  # mkstemp gives 0600
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
