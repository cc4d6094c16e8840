"""One thing has one name: words that the glossary replaces stand in no page and in no text of the command.

Code in backticks, fenced blocks and the targets of links keep the API's spellings: ``wire=``, ``--thread``.
And sentences are short.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "decisions"),
]
"""Decisions are for those who change the package."""
COMMANDS = sorted((ROOT / "goaitools_py" / "cli").rglob("*.py"))

REPLACED = {
    "thread": "conversation",
    "dialect": "provider API",
    "wire": "provider API",
    "binding": "owner",
    "endpoint family": "server",
}

# A thread of the operating system is called so. These are its ways to appear; any other is a conversation.
OF_THE_SYSTEM = re.compile(
    r"\b(?:worker threads?|any thread|your own thread|(?:in|as|of its|number of) threads|runs? in a thread"
    r"|threads, (?:tasks|processes)|threads and (?:tasks|processes)|the thread that calls it|in a thread"
    r"|other threads|threads or tasks|of threads)\b|\*\*Threads\.",
    re.I,
)
MEANT = {
    # Pages for those who write a dialect, or change the package.
    "own_wire.md": {"dialect"},
    "architecture.md": {"dialect"},
}


def prose(page: str) -> str:
    """A page without code, comments and the targets of links. Lines stay lines."""
    without_blocks = re.sub(
        r"^```.*?^```$", lambda found: "\n" * found[0].count("\n"), page, flags=re.M | re.S
    )
    return re.sub(r"`[^`\n]*`|<!--.*?-->|\]\([^)]*\)|\"[^\"\n]{1,12}\"", "]", without_blocks)


def texts(code: str) -> Iterator[str]:
    """What a module can print: its strings, without docstrings and names of options and of commands."""
    tree = ast.parse(code)
    silent = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield re.sub(r"--[a-z-]+|/threads|^[a-z_]+$", "", node.value)


def replaced_words(text: str, meant: Collection[str] = ()) -> list[str]:
    """The words in a text that the glossary replaces, with what stands around them."""
    text = OF_THE_SYSTEM.sub("", text)
    return [
        f"{found[0].strip()} (say {better!r})"
        for word, better in REPLACED.items()
        if word not in meant
        for found in re.finditer(rf"[^\n]{{0,30}}\b{word}s?\b[^\n]{{0,30}}", text, re.I)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_the_glossary_says(page: Path) -> None:
    """A page uses one word for one thing."""
    assert replaced_words(prose(page.read_text(encoding="utf-8")), MEANT.get(page.name, ())) == []


@pytest.mark.parametrize("module", COMMANDS, ids=lambda module: module.stem)
def test_the_command_says_what_the_glossary_says(module: Path) -> None:
    """Help, reports and errors of the command line use the same words."""
    said = "\n".join(texts(module.read_text(encoding="utf-8")))

    assert replaced_words(said) == []


def test_a_replaced_word_is_found() -> None:
    """A conversation that is called a thread is found; code, and threads of the system, are not."""
    page = "A thread is kept. `--thread` is its key.\n```sh\nthe thread\n```\nTools run in worker threads.\n"

    assert replaced_words(prose(page)) == ["A thread is kept. ] is its key. (say 'conversation')"]


def test_the_glossary_is_short() -> None:
    """It has at most fifteen words, and a line for each word that replaces another."""
    words = re.findall(r"^\| \*\*([\w ]+)\*\*", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.M)

    assert 10 <= len(words) <= 15
    assert set(REPLACED.values()) - {"server"} <= set(words)


# ---------------------------------------------------------------------------------------- sentences

MOST_WORDS = 25
"""Words of a sentence, with an expression in backticks as one word."""


def sentences(page: str) -> Iterator[str]:
    """The sentences of a page, without headings, tables and code. A line of the page ends a sentence."""
    page = re.sub(r"<!--.*?-->|</?[a-z][^>`]*>|!\[[^]]*\]\([^)]*\)", "", page, flags=re.S)
    page = re.sub(r"^ *```[\s\S]*?^ *```$|^ *\|.*$|^#+ .*$", "", page, flags=re.M)
    page = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", page)
    page = re.sub(r"`[^`\n]+`", "`code`", page).replace("*", "")
    for line in page.splitlines():
        text = re.sub(r"^\s*(?:-|\d+\.) ", "", line).strip()
        yield from filter(None, re.split(r"(?<=[.!?])[\"')]* +(?=[^a-z])", text))


def long_sentences(page: str) -> list[str]:
    """The sentences of a page that have too many words."""
    return [text for text in sentences(page) if len(text.split()) > MOST_WORDS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_sentences_are_short(page: Path) -> None:
    """A sentence of a page has at most 25 words, tables and code aside."""
    assert long_sentences(page.read_text(encoding="utf-8")) == []


def test_a_long_sentence_is_found() -> None:
    """In a list and in a link; a table, code, a picture and two short sentences are not one."""
    many = " ".join(["word"] * 24)
    page = f"# {many} {many}\n\nA {many}.\n\n- B {many}, so. C {many}. `d` {many}.\n\n| {many} {many} |\n"
    page += f"```\n{many} {many}\n```\n\n[E {many} {many}](a.md).\n<img alt='{many} {many}'>\n"

    assert [text[0] for text in long_sentences(page)] == ["B", "E"]
