"""Checks of a release: `.ci/release` runs them.

    python tests/release.py refusals                 # why no release can be made now
    python tests/release.py contents WHEEL SDIST     # what is in the two files
    python tests/release.py same ONE TWO             # that two folders hold equal files
    python tests/release.py bare WHEEL [--all]       # the wheel in environments of its own

`bare` installs the newest dependencies on this Python, without an extra. `--all` takes each Python that is
here, the lowest dependencies too, `[all]`, and each extra by itself.
"""

from __future__ import annotations

import email
import email.policy
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests._packages import NOT_DECLARED, declared, extras_at, extras_of, plain  # noqa: E402
from tests.lowest_versions import bounds  # noqa: E402

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
UNRELEASED = re.compile(r"nothing is released yet|until 0\.1\.0|until the first release", re.I)
SAYING_SO = ("README.md", "CHANGELOG.md", "SECURITY.md", "docs/state.md", "tests/golden/PROVENANCE.md")
OWNERS = ("code-owners", "may-release", "supported-for")
IN_SDIST = (".ci/", ".github/", "benchmarks/", "docs/", "examples/", "goaitools_py/", "tests/")
AT_TOP = re.compile(r"[^/]+\.md|LICENSE|pyproject\.toml|\.gitignore")


def git(*arguments: str, root: Path = ROOT) -> str:
    """What git prints."""
    return subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
    ).stdout.rstrip()


# ------------------------------------------------------------------------------------------ refusals


def refusals(root: Path = ROOT) -> Iterator[str]:
    """Each reason not to release the files of a folder. No reason: it can be released."""
    whole = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    version = whole["project"]["version"]
    if not whole["project"].get("urls", {}).get("Source", "").startswith("https://"):
        yield "pyproject.toml: [project.urls] has no Source"
    owners = whole.get("tool", {}).get("goaitools-release", {})
    yield from (
        f"pyproject.toml: [tool.goaitools-release] has no {name}" for name in OWNERS if not owners.get(name)
    )
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        yield f"pyproject.toml: {version} is not the version of a release"
    yield from _differing_versions(root, version)
    yield from (
        f"{name}: says that nothing is released"
        for name in SAYING_SO
        if UNRELEASED.search((root / name).read_text(encoding="utf-8"))
    )
    if changed := git("status", "--porcelain", root=root):
        yield f"files are not committed: {', '.join(line[3:] for line in changed.splitlines()[:5])}"
    yield from _golden_changes(root)
    if git("tag", "--list", f"v{version}", root=root):
        yield f"the tag v{version} is there already"


def _differing_versions(root: Path, version: str) -> Iterator[str]:
    code = (root / "goaitools_py" / "base" / "__init__.py").read_text(encoding="utf-8")
    if f'\n__version__ = "{version}"\n' not in code:
        yield f"goaitools_py.__version__ is not {version}"
    heading = re.search(r"^## (\S+) \((.*)\)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    if not heading or heading[1] != version:
        yield f"CHANGELOG.md: its first heading is not of {version}"
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[2]):
        yield f"CHANGELOG.md: {version} has no date"


def _golden_changes(root: Path) -> Iterator[str]:
    """Blobs that the last release had and that are others now, or gone. New files are no change."""
    tags = git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-creatordate", root=root).splitlines()
    for tag in tags[:1]:
        golden = (f"{tag}", "--", "tests/golden/*.jsonl", "tests/golden/dictionary")
        for name in git("diff", "--name-only", "--diff-filter=a", *golden, root=root).splitlines():
            yield f"{name}: is not as in {tag}"


# ------------------------------------------------------------------------------------------ contents


def wheel_faults(files: Mapping[str, bytes], tracked: list[str], project: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a wheel's files. `tracked`: the files of the project."""
    info = f"goaitools_py-{project['version']}.dist-info/"
    of_wheel = {f"{info}{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    expected = {name for name in tracked if name.startswith("goaitools_py/")}
    expected |= {*of_wheel, f"{info}licenses/LICENSE", "goaitools_py/py.typed"}
    yield from _unlike(set(files), expected)
    yield from _of_this_machine(files)
    if f"{info}METADATA" in files:
        yield from metadata_faults(files[f"{info}METADATA"], project)


def sdist_faults(files: Mapping[str, bytes], tracked: list[str], project: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the files of a source distribution, each without the folder of all."""
    expected = {name for name in tracked if name.startswith(IN_SDIST) or AT_TOP.fullmatch(name)}
    yield from _unlike(set(files), {*expected, "PKG-INFO"})
    yield from _of_this_machine(files)
    if "PKG-INFO" in files:
        yield from metadata_faults(files["PKG-INFO"], project)


def _unlike(found: set[str], expected: set[str]) -> Iterator[str]:
    yield from (f"{name}: is not there" for name in sorted(expected - found))
    yield from (f"{name}: is not a file of the project" for name in sorted(found - expected))


def _of_this_machine(files: Mapping[str, bytes]) -> Iterator[str]:
    for path in (str(ROOT), str(Path.home())):
        if len(path) > 5:
            yield from (f"{name}: names {path}" for name, text in files.items() if path.encode() in text)


def metadata_faults(text: bytes, project: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the metadata, as a package index reads it."""
    found = email.message_from_bytes(text, policy=email.policy.compat32)
    optional = project["optional-dependencies"]
    expected = {
        "Name": [project["name"]],
        "Version": [project["version"]],
        "Summary": [project["description"]],
        "Requires-Python": [project["requires-python"]],
        "License-Expression": [project["license"]],
        "License-File": project["license-files"],
        "Classifier": project["classifiers"],
        "Project-URL": [f"{name}, {url}" for name, url in project.get("urls", {}).items()],
        "Provides-Extra": sorted(optional),
        "Description-Content-Type": ["text/markdown"],
    }
    for name, values in expected.items():
        if sorted(found.get_all(name, [])) != sorted(values):
            yield f"metadata: {name} is {found.get_all(name)}"
    required = len(project["dependencies"]) + sum(map(len, optional.values()))
    brought = [line for line in found.get_all("Requires-Dist", []) if not line.startswith(project["name"])]
    own = sum(line.startswith(project["name"]) for lines in optional.values() for line in lines)
    if len(brought) < required - own:
        yield f"metadata: {len(brought)} requirements, {required - own} are declared"
    if project.get("urls"):
        page = text.decode("utf-8").partition("\n\n")[2]
        relative = re.findall(r"\]\((?!https://|#)([^)\s]+)", page)
        yield from (f"metadata: the description links to {target}" for target in relative)


def read_wheel(path: Path) -> dict[str, bytes]:
    """The files of a wheel."""
    with zipfile.ZipFile(path) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


def read_sdist(path: Path) -> dict[str, bytes]:
    """The files of a source distribution, without the folder that holds them."""
    with tarfile.open(path) as sdist:
        return {
            one.name.partition("/")[2]: opened.read()
            for one in sdist.getmembers()
            if (opened := sdist.extractfile(one)) is not None
        }


def unequal(one: Path, other: Path) -> Iterator[str]:
    """What differs between the files of two folders."""
    names = {
        path.name for folder in (one, other) for path in folder.iterdir() if path.suffix in (".whl", ".gz")
    }
    if not names:
        yield f"{one}: no distribution"
    for name in sorted(names):
        if not ((one / name).exists() and (other / name).exists()):
            yield f"{name}: only one of the builds has it"
        elif (one / name).read_bytes() != (other / name).read_bytes():
            yield f"{name}: two builds differ"


# ---------------------------------------------------------------------------------- bare environments

SMOKE = r"""
import importlib, json, os, pkgutil, subprocess, sys, tempfile

lacking, extras = json.loads(sys.argv[1]), sys.argv[2]
import goaitools_py
assert "site-packages" in goaitools_py.__file__, goaitools_py.__file__
try:
    from django.conf import settings
    settings.configure()
    import django
    django.setup()
except ImportError:
    pass
failed = {}
for found in pkgutil.walk_packages(goaitools_py.__path__, "goaitools_py.", onerror=lambda name: None):
    try:
        importlib.import_module(found.name)
    except ImportError as error:
        failed[found.name] = repr(error)
wrong = {name: error for name, error in failed.items() if name not in lacking}
assert not wrong, wrong

from goaitools_py import Chat
from goaitools_py.stores import SQLiteStore
with tempfile.TemporaryDirectory() as folder:
    with Chat("sim") as chat, SQLiteStore(os.path.join(folder, "chat.db")) as store:
        conversation = chat.conversation(store, "ada")
        conversation.send("My name is Ada.")
        assert "Ada" in conversation.send("What is my name?").text
program = os.path.join(os.path.dirname(sys.executable), "goaitools")
ran = subprocess.run([program, "doctor"], capture_output=True, text=True)
assert ran.returncode == 0, ran.stdout + ran.stderr
listed = " ".join(ran.stdout.split()).partition("extras not there")[0]
for name in filter(None, extras.split(",")):
    assert f"{name} (" in listed, ran.stdout
print(len(failed), "modules wait for an extra")
"""


def pythons() -> dict[str, str]:
    """By version: a Python that is here, on PATH or pyenv's."""
    found = {}
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in PYTHONS:
        near = [shutil.which(f"python{version}"), *map(str, sorted(versions.glob(f"{version}.*/bin/python")))]
        for python in filter(None, near):
            if subprocess.run([python, "-c", "import venv"], capture_output=True).returncode == 0:
                found[version] = python
                break
    return found


def lacking(extras: list[str]) -> list[str]:
    """The modules that may not be importable with these extras alone."""
    package = ROOT / "goaitools_py"
    brought = {plain(name) for extra in extras for name in declared(extra)}
    found = []
    for path in package.rglob("*.py"):
        file = path.relative_to(package)
        needs = {plain(name) for extra in extras_at(file.as_posix()) for name in declared(extra)}
        if needs - brought or ("pytest" in NOT_DECLARED and file.as_posix() == "testing/fixtures.py"):
            found.append(".".join(["goaitools_py", *file.with_suffix("").parts]).removesuffix(".__init__"))
    return found


def bare(python: str, wheel: Path, extras: list[str], lowest: bool) -> str:
    """Install the wheel alone or with extras, and use it. What went wrong, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        inside = f"{folder}/env/bin/python"
        limits = Path(folder) / "limits.txt"
        limits.write_text(bounds() if lowest else "", encoding="utf-8")
        named = f"[{','.join(extras)}]" if extras else ""
        requirement = f"goaitools-py{named} @ {wheel.as_uri()}"
        names = extras_of() if extras == ["all"] else extras
        steps = [
            [python, "-m", "venv", f"{folder}/env"],
            [inside, "-m", "pip", "install", "-q", "--no-compile", "-c", str(limits), requirement],
            [inside, "-m", "pip", "check"],
            [inside, "-W", "error", "-c", SMOKE, json.dumps(lacking(names)), ",".join(names)],
        ]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GOAITOOLS_")}
        for step in steps:
            ran = subprocess.run(step, cwd=folder, env=clean, capture_output=True, text=True, timeout=1200)
            if ran.returncode:
                return (ran.stdout + ran.stderr).strip()[-1500:]
    return ""


def all_bare(wheel: Path, whole: bool) -> Iterator[str]:
    """Print a line for each environment; what went wrong is given."""
    here = {f"3.{sys.version_info[1]}": sys.executable}
    if whole:
        here = dict(sorted((here | pythons()).items()))
    for version in PYTHONS if whole else ():
        if version not in here:
            print(f"Python {version}: untested, it is not here", flush=True)
    first, both = next(iter(here)), (False, True)
    rows: list[tuple[str, bool, list[str]]] = [(first, False, [])]
    if whole:  # each extra by itself on the oldest Python
        rows = [(one, lowest, extras) for one in here for lowest in both for extras in ([], ["all"])]
        rows += [(first, lowest, [name]) for lowest in both for name in extras_of()]
    for version, lowest, extras in rows:
        wrong = bare(here[version], wheel, extras, lowest)
        which = "lowest" if lowest else "newest"
        name = f"Python {version}, {which}, {','.join(extras) or 'no extra'}"
        print(f"{name}: {'FAILED' if wrong else 'passed'}", flush=True)
        if wrong:
            print(wrong, flush=True)
            yield name


def main(arguments: list[str]) -> int:
    """Run one check. 1 if something is wrong."""
    match arguments:
        case ["refusals"]:
            wrong = list(refusals())
        case ["contents", wheel, sdist]:
            tracked = git("ls-files").splitlines()
            project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            wrong = [
                *wheel_faults(read_wheel(Path(wheel)), tracked, project),
                *sdist_faults(read_sdist(Path(sdist)), tracked, project),
            ]
        case ["same", one, other]:
            wrong = list(unequal(Path(one), Path(other)))
        case ["bare", wheel, *options] if options in ([], ["--all"]):
            wrong = list(all_bare(Path(wheel).resolve(), bool(options)))
        case _:
            print(__doc__)
            return 2
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
