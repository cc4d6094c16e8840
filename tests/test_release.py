"""The checks of a release find what is wrong, and the long description leads to the web.

Owns: that each check can fail. Must never know: how the files are built; `.ci/release` does that.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import release
from tests._packages import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCE = "https://example.org/owner/project"
WITH_SOURCE = PROJECT | {"version": "0.1.0", "urls": {"Source": SOURCE}}


def hook() -> Any:
    """The module that hatchling loads by its path."""
    path = ROOT / "docs" / "long_description.py"
    spec = importlib.util.spec_from_file_location("long_description", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------------------------- long description


def test_every_link_of_the_description_leads_to_the_web() -> None:
    """To a file of this version that there is. Code blocks stay as they are."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    page = hook().long_description(readme, WITH_SOURCE)

    links = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", page)
    own = [(mark, link.partition("#")[0]) for mark, link in links if link.startswith(SOURCE)]
    assert [link for _, link in links if not link.startswith("https://")] == []
    assert len(own) > 40
    for mark, link in own:
        start = f"{SOURCE}/{'raw' if mark else 'blob'}/v0.1.0/"
        assert link.startswith(start)
        assert (ROOT / link.removeprefix(start)).exists()
    assert re.findall(r"^```.*?^```$", page, re.M | re.S) == re.findall(r"^```.*?^```$", readme, re.M | re.S)


def test_other_links_and_code_stay() -> None:
    """Links to the web and within the page, and what only looks like a link."""
    text = "[a](https://a.example) [b](#b) [c](mailto:c@d)\n```py\n[x](y)\n```\n![p](docs/p.png)"

    page = hook().long_description(text, WITH_SOURCE)

    assert page == text.replace("docs/p.png", f"{SOURCE}/raw/v0.1.0/docs/p.png")
    assert hook().long_description(text, PROJECT | {"urls": {}}) == text


# ------------------------------------------------------------------------------------------ contents


def a_wheel() -> tuple[dict[str, bytes], list[str]]:
    """The files of a right wheel with one module, and the files of its project."""
    info = f"goaitools_py-{WITH_SOURCE['version']}.dist-info"
    lines = [
        "Metadata-Version: 2.4",
        *(f"{name}: {WITH_SOURCE[key]}" for name, key in (("Name", "name"), ("Version", "version"))),
        f"Summary: {WITH_SOURCE['description']}",
        f"Project-URL: Source, {SOURCE}",
        f"Requires-Python: {WITH_SOURCE['requires-python']}",
        f"License-Expression: {WITH_SOURCE['license']}",
        "License-File: LICENSE",
        *(f"Classifier: {one}" for one in WITH_SOURCE["classifiers"]),
        *(f"Provides-Extra: {one}" for one in WITH_SOURCE["optional-dependencies"]),
        *(f"Requires-Dist: {one}" for one in WITH_SOURCE["dependencies"]),
        *(f"Requires-Dist: {one}" for more in WITH_SOURCE["optional-dependencies"].values() for one in more),
        "Description-Content-Type: text/markdown",
    ]
    page = f"[a page]({SOURCE}/blob/v0.1.0/docs/a.md) [below](#below)"
    files = dict.fromkeys(("goaitools_py/__init__.py", "goaitools_py/py.typed"), b"")
    files |= {f"{info}/{name}": b"" for name in ("WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    files[f"{info}/METADATA"] = "\n".join([*lines, "", page]).encode()
    return files, ["goaitools_py/__init__.py", "goaitools_py/py.typed", "tests/test_a.py"]


def test_a_right_wheel_has_no_fault() -> None:
    """Nothing is said about it."""
    assert list(release.wheel_faults(*a_wheel(), WITH_SOURCE)) == []


def _change_metadata(old: bytes, new: bytes) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        name = next(name for name in files if name.endswith("/METADATA"))
        assert old in files[name]
        files[name] = files[name].replace(old, new)

    return change


FAULTS: dict[str, Callable[[dict[str, bytes]], None]] = {
    "py.typed: is not there": lambda files: files.__delitem__("goaitools_py/py.typed"),
    "LICENSE: is not there": lambda files: files.__delitem__(next(n for n in files if "LICENSE" in n)),
    "notes.txt: is not a file of the project": lambda files: files.update({"goaitools_py/notes.txt": b""}),
    "test_a.py: is not a file of the project": lambda files: files.update({"tests/test_a.py": b""}),
    f"names {ROOT}": lambda files: files.update({"goaitools_py/__init__.py": f"{ROOT}/a".encode()}),
    "links to docs/a.md": _change_metadata(f"{SOURCE}/blob/v0.1.0/".encode(), b""),
    "Version is": _change_metadata(b"\nVersion: 0.1.0", b"\nVersion: 0.1.1"),
    "Provides-Extra is": _change_metadata(b"Provides-Extra: redis\n", b""),
    "requirements": _change_metadata(b"Requires-Dist: openai", b"Recommends: openai"),
    "Project-URL is": _change_metadata(b"Project-URL", b"Home-Page"),
}


@pytest.mark.parametrize("said", FAULTS)
def test_a_fault_of_a_wheel_is_found(said: str) -> None:
    """Each by itself, and nothing else is said."""
    files, tracked = a_wheel()
    FAULTS[said](files)

    (found,) = release.wheel_faults(files, tracked, WITH_SOURCE)

    assert said in found


def test_a_stray_file_in_a_source_distribution_is_found() -> None:
    """And one that is not there. A file at the top that is none of its own does not belong to it."""
    found = list(
        release.sdist_faults({"notes.db": b"", "README.md": b""}, ["README.md", "tests/a.py"], PROJECT)
    )

    assert found == [
        "PKG-INFO: is not there",
        "tests/a.py: is not there",
        "notes.db: is not a file of the project",
    ]


def test_builds_that_differ_are_told(tmp_path: Path) -> None:
    """In a byte, in a file, and if there is none."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    assert list(release.unequal(one, two)) != []

    (one / "a.whl").write_bytes(b"1")
    assert list(release.unequal(one, two)) == ["a.whl: only one of the builds has it"]

    (two / "a.whl").write_bytes(b"2")
    assert list(release.unequal(one, two)) == ["a.whl: two builds differ"]

    (two / "a.whl").write_bytes(b"1")
    assert list(release.unequal(one, two)) == []


# ------------------------------------------------------------------------------------------ refusals

FILES = {
    "pyproject.toml": (
        '[project]\nversion = "0.1.0"\n[project.urls]\nSource = "https://example.org/a/b"\n'
        '[tool.goaitools-release]\ncode-owners = ["@a"]\nmay-release = ["@a"]\nsupported-for = "a year"\n'
    ),
    "README.md": "# A project\n",
    "CHANGELOG.md": "# Changelog\n\n## 0.1.0 (2027-01-31)\n",
    "goaitools_py/base/__init__.py": '"""A room."""\n\n__version__ = "0.1.0"\n',
    "SECURITY.md": "# Security\n",
    "docs/state.md": "# The state\n",
    "tests/golden/PROVENANCE.md": "# Where they come from\n",
    "tests/golden/v1-good.jsonl": "{}\n",
}


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A folder of git that can be released, with an older release before it."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    git(tmp_path, "tag", "v0.0.9")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    """Run git as somebody."""
    somebody = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *somebody, *arguments], cwd=folder, check=True)


def commit(folder: Path) -> None:
    """Commit all files of a folder."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "a change")


def test_what_is_ready_is_not_refused(ready: Path) -> None:
    """New golden blobs are no change."""
    (ready / "tests/golden/v1-more.jsonl").write_text("{}\n")
    commit(ready)

    assert list(release.refusals(ready)) == []


REFUSALS = {
    "no Source": ("pyproject.toml", "https://example.org/a/b", ""),
    "no code-owners": ("pyproject.toml", 'code-owners = ["@a"]', "code-owners = []"),
    "no may-release": ("pyproject.toml", 'may-release = ["@a"]\n', ""),
    "no supported-for": ("pyproject.toml", '"a year"', '""'),
    "__version__ is not 0.1.0": ("goaitools_py/base/__init__.py", "0.1.0", "0.1.1"),
    "first heading is not of 0.1.0": ("CHANGELOG.md", "0.1.0", "0.1.1"),
    "has no date": ("CHANGELOG.md", "2027-01-31", "unreleased"),
    "says that nothing is released": ("README.md", "A project", "Nothing is released yet"),
    "v1-good.jsonl: is not as in v0.0.9": ("tests/golden/v1-good.jsonl", "{}", "[]"),
}


@pytest.mark.parametrize("said", REFUSALS)
def test_what_is_not_ready_is_refused(said: str, ready: Path) -> None:
    """Each reason by itself."""
    name, old, new = REFUSALS[said]
    text = (ready / name).read_text(encoding="utf-8")
    assert old in text
    (ready / name).write_text(text.replace(old, new), encoding="utf-8")
    commit(ready)

    (found,) = release.refusals(ready)

    assert said in found


def test_a_changed_folder_a_version_in_work_and_an_old_tag_are_refused(ready: Path) -> None:
    """Files that git does not know count."""
    (ready / "notes.txt").write_text("")
    assert list(release.refusals(ready)) == ["files are not committed: notes.txt"]

    (ready / "notes.txt").unlink()
    git(ready, "tag", "v0.1.0")
    assert list(release.refusals(ready)) == ["the tag v0.1.0 is there already"]

    for name in ("pyproject.toml", "CHANGELOG.md", "goaitools_py/base/__init__.py"):
        path = ready / name
        path.write_text(path.read_text(encoding="utf-8").replace("0.1.0", "0.1.0.dev0"), encoding="utf-8")
    commit(ready)
    assert list(release.refusals(ready)) == ["pyproject.toml: 0.1.0.dev0 is not the version of a release"]
