"""The site of these pages: `python -m sphinx -W -b html docs build/site`.

Owns: how pages, docstrings and links become a site, and `llms.txt`. Must never know: what a page says.
`index.md` lists the pages. Its headings are the groups of the site, so a page is named once.
"""

from __future__ import annotations

import html
import importlib
import inspect
import os
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging

import goaitools_py

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))
from long_description import files_of, project_of  # noqa: E402

ROOT = DOCS.parent
SOURCE = os.environ.get("GOAITOOLS_SOURCE_URL") or files_of(project_of())
"""Where the project's files are on the web, with a slash at the end; by itself that of `[project.urls]`.
Empty: the site has copies."""

COPIED = ("examples", "README.md")

PAGES_OUTSIDE = {
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "benchmarks/README.md": "benchmarks",
}
"""Files beside docs/ that the site has as pages: each is the text of a page that leads to it."""

project = "goaitools-py"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "goaitools-py"
html_static_path = html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = html_show_sphinx = False
suppress_warnings = [
    "ref.python",  # annotations have short names, and two modules may have one name
    "misc.highlighting_failure",  # Pygments does not know all of GDScript
]
myst_heading_anchors = 4
myst_url_schemes: dict[str, Any] = {
    "http": None,
    "https": None,
    "mailto": None,
    "file-of-source": {"url": "{{path}}"},
}
add_module_names = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_use_ivar = True
default_role = "code"

MODULES = ["goaitools_py", *(f"goaitools_py.{name}" for name in goaitools_py._MODULES)]
MODULES += ["goaitools_py.integrations.sqlalchemy"]
log = logging.getLogger(__name__)

_LINK = re.compile(r"\]\((\.\.?/[^)#\s]*)(#[^)\s]*)?\)")
_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)#]+)\.md\): (.+)$", re.M)
_GROUP = re.compile(r"^## (.+)\n((?:(?!^## ).*\n?)*)", re.M)


def read(app: Any, docname: str, source: list[str]) -> None:
    """Make links to files outside docs/ lead to the source, and groups of the index to parts of the site."""
    page = DOCS / f"{docname}.md"
    for name, stands_for in PAGES_OUTSIDE.items():
        if docname == stands_for:
            page = ROOT / name
            source[0] = re.sub(r"\]\((?=[\w.])(?!https?:)", "](./", page.read_text(encoding="utf-8"))
            app.env.note_dependency(str(page))

    def to_source(found: re.Match[str]) -> str:
        target = (page.parent / found[1]).resolve()
        if target.is_relative_to(DOCS):
            return f"](/{target.relative_to(DOCS).as_posix()}{found[2] or ''})"
        path = target.relative_to(ROOT).as_posix()
        if path in PAGES_OUTSIDE:
            return f"](/{PAGES_OUTSIDE[path]}.md{found[2] or ''})"
        if not target.exists() or path.partition("/")[0] not in COPIED:
            log.warning("%s: the site has no copy of %s", docname, found[1])
        if SOURCE:
            return f"]({SOURCE}{path}{found[2] or ''})"
        up = "../" * docname.count("/")
        return f"](file-of-source:{up}source/{path}{'/index.html' if target.is_dir() else ''})"

    source[0] = _LINK.sub(to_source, source[0])
    if docname.startswith("reference/"):
        source[0] += "\n```{eval-rst}\n" + entries(source[0].split()[1]) + "```\n"
    elif docname == "decisions/README":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n[0-9]*\n```\n"
    elif docname == "index":
        for name, text in _GROUP.findall(source[0]):
            pages = "\n".join(target for _, target, _ in _ENTRY.findall(text))
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {name}\n\n{pages}\n```\n"


def entries(module: str) -> str:
    """An entry for a module, and one for each of its public names, as directives of autodoc."""
    made = f".. automodule:: {module}\n"
    for name in (loaded := importlib.import_module(module)).__all__:
        value = getattr(loaded, name)
        if inspect.isclass(value):
            kind = "exception" if issubclass(value, BaseException) else "class"
        else:
            kind = "function" if inspect.isroutine(value) else "data"
        if (first := first_module(name, value)) != module:
            made += f"\n.. py:{kind}:: {name}\n\n   The same as :py:obj:`{first}.{name}`.\n"
            continue
        made += f"\n.. auto{kind}:: {module}.{name}\n"
        if inspect.isclass(value):
            made += "   :members:\n   :show-inheritance:\n"
        elif kind == "data":
            made += "   :no-value:\n"
    return made


def first_module(name: str, value: Any) -> str:
    """The first public module that has a name: its entry says all."""
    for module in MODULES:
        loaded = importlib.import_module(module)
        if name in loaded.__all__ and getattr(loaded, name) is value:
            return module
    raise AssertionError(name)


def said_of(name: str) -> list[str]:
    """The string below a constant, in the module that makes the constant."""
    module, _, last = name.rpartition(".")
    value = getattr(importlib.import_module(module), last)
    for maker, loaded in sorted(sys.modules.items()):
        if maker.startswith("goaitools_py") and vars(loaded).get(last) is value:
            found = ModuleAnalyzer.for_module(maker).find_attr_docs().get(("", last))
            if found:
                return found
    return []


def plain(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Let a docstring's `code` be code, and no other character a mark of reStructuredText."""
    if what == "data":
        lines[:] = said_of(name)
    pieces = re.split(r"(^```\w*\n.*?^```$|``.+?``|`[^`]+`)", "\n".join(lines), flags=re.M | re.S)
    for at, piece in enumerate(pieces):
        if piece.startswith("```"):
            code = piece.partition("\n")[2].removesuffix("```")
            pieces[at] = ".. code-block:: python\n\n" + textwrap.indent(code, "   ")
        elif piece.startswith("`"):
            pieces[at] = "``" + " ".join(piece.strip("`").split()) + "``"
        else:
            pieces[at] = re.sub(r"([*|]|(?<=\w)_(?=\W|$))", r"\\\1", piece)
    lines[:] = "".join(pieces).splitlines()


def finish(app: Any, error: Exception | None) -> None:
    """Copy what pages link to, and write `llms.txt`."""
    if error or app.builder.name != "html":
        return
    out = Path(app.outdir)
    for name in () if SOURCE else COPIED:
        target = out / "source" / name
        if (ROOT / name).is_file():
            shutil.copyfile(ROOT / name, target)
            continue
        shutil.copytree(ROOT / name, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        for folder in (target, *(one for one in target.rglob("*") if one.is_dir())):
            files = sorted(html.escape(one.name) for one in folder.iterdir() if one.name != "index.html")
            rows = "".join(f'<li><a href="{one}">{one}</a></li>' for one in files)
            (folder / "index.html").write_text(
                f"<!doctype html><title>{folder.name}</title><ul>{rows}</ul>\n"
            )
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    lines = [index.partition("\n## ")[0].strip()]
    for name, text in _GROUP.findall(index):
        lines.append(f"\n## {name}\n")
        lines += [f"- [{title}]({target}.html): {said}" for title, target, said in _ENTRY.findall(text)]
    (out / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", plain, priority=900)
    app.connect("build-finished", finish)
