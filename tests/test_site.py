"""The site of docs/: it is built without a warning, has each public name, and its pages are short.

Owns: what the site promises. Must never know: what a page says, and how `docs/conf.py` makes it.
"""

from __future__ import annotations

import html
import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import goaitools_py

from .independent.frontends.conftest import browser, installed

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MODULES = ["goaitools_py", *(f"goaitools_py.{name}" for name in goaitools_py._MODULES)]

MOST_WORDS = {"start": 400, "how_to": 400}
"""Words of a page, by its folder."""
WORDS = 1500
"""Words of each other page, but for pages of tables in the reference and these."""


def reference_pages() -> set[str]:
    """The pages that the index lists under Reference."""
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    return set(re.findall(r"\]\((\S+)\.md\)", index.partition("\n## Reference\n")[2].partition("\n## ")[0]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    out = tmp_path_factory.mktemp("site")
    built = build(DOCS, out)
    assert built.returncode == 0, built.stderr
    return out


def build(docs: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What `sphinx` says: no warning is left out."""
    if subprocess.run([sys.executable, "-c", "import sphinx, furo, myst_parser"], stderr=-3).returncode:
        pytest.skip("no Sphinx: pip install -e '.[docs]'")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", *options]
    return subprocess.run(
        [*command, str(docs), str(out)], cwd=ROOT, capture_output=True, text=True, timeout=600
    )


def test_pages_are_short() -> None:
    """A page for a beginner or a task has at most 400 words, and any other 1,500, but for the reference."""
    reference = reference_pages()
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        words = len(page.read_text(encoding="utf-8").split())
        most = MOST_WORDS.get(page.parent.name, WORDS)
        assert words <= most or name in reference, f"{name}: {words} words, at most {most}"


def table_rows(page: str) -> list[frozenset[str]]:
    """The words of each long row of a page's tables, without heads, fenced code and targets of links."""
    page = re.sub(r"^ *```.*?^ *```$", "", page, flags=re.M | re.S)
    page = re.sub(r"\]\([^)]*\)", "]", page)
    tables = re.findall(r"^\|.*\n\|[-:| ]+\n((?:\|.*\n)*)", page + "\n", re.M)
    rows = [re.findall(r"\w+", row.lower()) for table in tables for row in table.splitlines()]
    return [frozenset(words) for words in rows if len(words) >= COMMON_WORDS]


COMMON_WORDS = 12
"""Words of a long row. Two types of values may share a shorter one, such as "the tool's name"."""


def repeated_rows(pages: dict[str, str]) -> list[str]:
    """Rows of which two pages have nearly the same words."""
    rows = [(name, words) for name, page in pages.items() for words in table_rows(page)]
    return [
        f"{one} and {other}: {' '.join(sorted(words))}"
        for at, (one, words) in enumerate(rows)
        for other, others in rows[:at]
        if one != other and len(words & others) >= 0.8 * len(words | others)
    ]


def test_no_row_of_a_table_stands_on_two_pages() -> None:
    """A fact has one place. The other page links to it."""
    pages = {
        page.relative_to(DOCS).as_posix(): page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")
    }

    assert sum(len(table_rows(page)) for page in pages.values()) > 500
    assert repeated_rows(pages) == []


def test_a_repeated_row_is_found() -> None:
    """Also with another link, and a word less. Short rows and rows of fenced code are not compared."""
    row = "| [a](b.md) | " + " ".join(f"word{number}" for number in range(14)) + " |\n"
    table = "| one | two |\n|---|---|\n| c | the name |\n" + row
    same = table.replace("b.md", "d.md").replace(" word7", "")

    assert [found[:11] for found in repeated_rows({"x.md": table, "y.md": same})] == ["y.md and x."]
    assert repeated_rows({"x.md": table, "y.md": f"```\n{same}```\n"}) == []
    assert repeated_rows({"x.md": table + row}) == []


def test_each_public_name_has_an_entry(site: Path) -> None:
    """With an anchor that is the name, on the page of its module."""
    missing: list[str] = []
    for module in MODULES:
        page = (site / "reference" / f"{module.rpartition('.')[2]}.html").read_text(encoding="utf-8")
        ids = set(re.findall(r'<dt class="[^"]*" id="([^"]+)"', page))
        names = {f"{module}.{name}" for name in importlib.import_module(module).__all__}
        missing += sorted(names - ids)
    assert missing == []


def test_an_entry_has_fields_and_a_constant_its_text(site: Path) -> None:
    """Docstrings are read: of a value its fields, of a constant the string below it."""
    page = html.unescape((site / "reference" / "goaitools_py.html").read_text(encoding="utf-8"))
    for field in ("first_delta", "max_iterations", "retry_after", "cost_usd"):
        assert re.search(rf"\b{field}\b", page), field
    data = re.search(r'id="goaitools_py\.PLAIN".*?</dl>', page, re.S)
    assert data is not None
    assert "<p>" in data[0]


def test_copies_of_the_source_are_where_links_lead(site: Path) -> None:
    """Each link of each page to the site's own files leads to one."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 80
    for page in pages:
        for link in re.findall(r'href="(?!\w+:)([^"#?]+)', page.read_text(encoding="utf-8")):
            assert (page.parent / html.unescape(link)).exists(), f"{page.relative_to(site)}: {link}"


def test_llms_txt_has_a_line_for_each_page(site: Path) -> None:
    """The title, what the package is, and each page of the index with what it says."""
    text = (site / "llms.txt").read_text(encoding="utf-8")
    linked = set(re.findall(r"^- \[[^]]+\]\((\S+\.html)\): \S", text, re.M))

    assert text.startswith("# goaitools-py\n")
    assert all((site / link).exists() for link in linked)
    pages = {page.relative_to(DOCS).with_suffix(".html").as_posix() for page in DOCS.rglob("*.md")}
    decisions = {page for page in pages if re.match(r"decisions/\d", page)}  # their own page lists them
    assert pages - linked - decisions == {"index.html"}


def small(folder: Path) -> Path:
    """The docs/ of a small project with the settings of this one."""
    (docs := folder / "docs").mkdir()
    for name in ("docs/conf.py", "docs/long_description.py", "docs/site.css", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "examples").mkdir()
    (folder / "README.md").write_text("# Read me\n", encoding="utf-8")
    return docs


@pytest.mark.parametrize(
    "said",
    [
        "[a](gone.md)",
        "[a](other.md#gone)",
        "[a](#gone)",
        "[a](../gone.py)",
        "[a](../LICENSE)",
        "```{nothing}\n```",
    ],
)
def test_a_dead_link_fails_the_build(said: str, tmp_path: Path) -> None:
    """A page, a heading, a file of the source, a directive: what does not exist fails."""
    docs = small(tmp_path)
    (docs / "index.md").write_text(f"# Site\n\n## Pages\n\n- [Other](other.md): a page\n\n{said}\n", "utf-8")
    (docs / "other.md").write_text("# Other\n", encoding="utf-8")

    built = build(docs, tmp_path / "out")

    assert built.returncode != 0
    assert "Configuration error" not in built.stderr


def test_a_page_in_no_group_fails_the_build(tmp_path: Path) -> None:
    """And the same pages pass with a line for it in the index."""
    docs = small(tmp_path)
    (docs / "index.md").write_text("# Site\n\n## Pages\n", "utf-8")
    (docs / "other.md").write_text("# Other\n", encoding="utf-8")

    assert "other.md" in build(docs, tmp_path / "out").stderr
    (docs / "index.md").write_text(
        "# Site\n\n## Pages\n\n- [Other](other.md): [it](../README.md#a)\n", "utf-8"
    )
    assert build(docs, tmp_path / "out").stderr == ""


KINDS = [
    "index",
    "start/4_a_web_page",
    "how_to/from_langgraph",
    "behaviour",
    "frontends",
    "reference/stores",
    "decisions/01-generator-effects",
    "changelog",
]
"""One page of each kind: lists, code, wide tables, pictures, entries of the reference."""

ASKED = {
    "delete user data": "delete_user_data",
    "cost per customer": "cost_per_customer",
    "gunicorn": "gunicorn",
    "azure": "azure",
    "bedrock": "bedrock",
    "pdf": "images_and_pdf",
    "cancel": "cancel",
    "timeout": "timeouts",
    "count tokens": "count_tokens",
    "celery": "celery",
    "test offline": "test_offline",
    "change provider": "change_provider",
    "image": "images_and_pdf",
    "webhook retry": "webhook_retry",
}
"""What a reader types into the search, and the page that answers."""


def test_the_site_in_a_browser(site: Path) -> None:
    """No page is wider than a phone. The search has the page that answers among its first three."""
    driver, chromium = installed("page", "playwright-core"), browser()
    asked = {"pages": [f"{name}.html" for name in KINDS], "questions": list(ASKED)}
    script = ROOT / "tests" / "independent" / "frontends" / "site.mjs"
    done = subprocess.run(
        ["node", script, driver, chromium, f"{site.as_uri()}/"],
        input=json.dumps(asked), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert found["wide"] == {f"{name}.html": [] for name in KINDS}
    first = {question: links[:3] for question, links in found["answers"].items()}
    assert {q: links for q, links in first.items() if f"how_to/{ASKED[q]}.html" not in links} == {}
