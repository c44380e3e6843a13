"""What the repository as a whole keeps to."""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
TOP = {
    ".ci",
    ".github",
    ".gitignore",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "_config.yml",
    "_toc.yml",
    "benchmarks",
    "book",
    "notebooks",
    "pyproject.toml",
    "requirements.lock",
    "requirements.txt",
    "results",
    "src",
    "tests",
    "tools",
}
VENDORED = "book/assets/"
THIS = "tests/test_repository.py"


def tracked():
    """Files that are committed or would be, as paths below the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [name for name in sorted(set(done.stdout.split("\0"))) if name and (ROOT / name).is_file()]


def texts():
    """Name and text of our own text files: not of vendored scripts, not of base64 in notebooks."""
    for name in tracked():
        if name.startswith(VENDORED) and not name.endswith((".css", ".md")):
            continue
        content = (ROOT / name).read_bytes()
        if b"\0" not in content:
            yield name, re.sub(r"[A-Za-z0-9+/=\\n]{200,}", "", content.decode("utf-8"))


def requirements(text):
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if line and not line.startswith("-"):
            yield Requirement(line)


def test_top_level_holds_only_the_agreed_names():
    assert {name.split("/")[0] for name in tracked()} <= TOP


def test_no_file_is_larger_than_five_megabytes():
    assert [n for n in tracked() if (ROOT / n).stat().st_size > 5_000_000] == []


def test_no_path_of_a_machine_and_no_package_index():
    found = []
    secret_free = re.compile(
        r"(?<![\w.-])/(?:work|root)/[\w.-]+|index-url|find-links|https?://[^\s\"')>]*/simple\b|(?:[\w-]+\.)?pypi\.org/simple"
    )
    for name, text in texts():
        if name in (THIS, "tests/notebooks/test_chapters.py"):
            continue
        found += [(name, m[0]) for m in secret_free.finditer(text)]
    assert found == []


def test_colabs_image_is_named_in_one_place():
    image = "colab" + "-images"
    assert [n for n, text in texts() if image in text] == [".github/workflows/colab.yml"]


def test_jupyter_book_stays_below_2_everywhere():
    places = {
        name: [r for r in requirements((ROOT / name).read_text()) if r.name == "jupyter-book"]
        for name in ("requirements.txt", "requirements.lock")
    }
    for found in places.values():
        assert len(found) == 1
        assert not found[0].specifier.contains("2.0.0")
        assert found[0].specifier.contains("1.0.4.post1")
    dependabot = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())
    pip = next(u for u in dependabot["updates"] if u["package-ecosystem"] == "pip")
    assert {"dependency-name": "jupyter-book", "versions": [">=2"]} in pip["ignore"]
    # nothing else installs it on its own
    installs = re.compile(r"pip3? install[^\n]*jupyter-book")
    assert [n for n, text in texts() if n != THIS and installs.search(text)] == []


def test_the_lock_pins_what_the_requirements_ask_for():
    lock = {}
    for pin in requirements((ROOT / "requirements.lock").read_text()):
        assert re.fullmatch(r"==[\w.+!]+", str(pin.specifier)), pin
        lock.setdefault(pin.name.lower().replace("_", "-"), []).append(Version(str(pin.specifier)[2:]))
    for wanted in requirements((ROOT / "requirements.txt").read_text()):
        pins = lock[wanted.name.lower().replace("_", "-")]
        assert all(wanted.specifier.contains(v) for v in pins), wanted


def test_the_tests_run_on_the_locked_versions():
    differ = []
    for pin in requirements((ROOT / "requirements.lock").read_text()):
        if pin.marker and not pin.marker.evaluate():
            continue
        try:
            installed = version(pin.name)
        except PackageNotFoundError:
            continue
        # the environment brings its own setuptools; 2.14.1+cpu is 2.14.1
        if pin.name != "setuptools" and Version(installed).public != str(pin.specifier)[2:]:
            differ.append(f"{pin.name}: installed {installed}, locked {pin.specifier}")
    assert differ == [], "run `make test`, which installs requirements.lock into .venv"


def test_every_page_of_the_table_of_contents_exists_and_every_page_is_in_it():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    assert (toc["format"], toc["root"]) == ("jb-book", "book/intro")
    pages = [toc["root"], *(c["file"] for c in toc["chapters"])]
    assert len(pages) == len(set(pages))
    missing = [p for p in pages if not any((ROOT / f"{p}{suffix}").is_file() for suffix in (".md", ".ipynb"))]
    assert missing == []
    files = {f"book/{p.stem}" for s in ("*.md", "*.ipynb") for p in (ROOT / "book").glob(s)}
    assert files == set(pages)


def test_the_readme_names_make_book_and_make_test_and_only_targets_that_exist():
    readme = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"\bmake ([a-z]+)", "\n".join(re.findall(r"`[^`]+`|^make .*$", readme, re.M))))
    assert {"book", "test"} <= named <= targets
    assert not re.search(r"^\s*(?:\$ )?(?:jupyter-book|jb|pytest|python -m pytest)\b", readme, re.M)


def test_the_makefile_suits_the_make_of_macos():
    makefile = (ROOT / "Makefile").read_text()
    # GNU make 3.81 knows none of these
    for feature in (".ONESHELL", "$(file ", "!=", "::=", "undefine"):
        assert feature not in makefile.replace("! -name", "").replace("! -path", "")


def test_the_scorecard_is_that_of_the_claims():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/build_scorecard.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
