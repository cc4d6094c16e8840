"""The sync files are those that the async ones make, and the tool says what is wrong."""

from __future__ import annotations

import ast

import pytest

from . import make_sync
from .make_sync import TWINS, Twin, differences, turned

EXAMPLE = '''\
"""For tasks."""

async def read_async(reader: AsyncReader, again: Callable[[], Awaitable[list[int]]]) -> None:
    """Read until the end, with ``async with``; as an `AsyncReader` does. Any number of tasks may call it,
    and each of them gets all of it.

    Args:
        reader: An `AsyncReader`.
    """
    async with reader as opened:
        await opened.aclose()  # an AsyncReader is closed
        if True:  # ASYNC
            await asyncio.sleep(1)
        else:
            time.sleep(1)
    if False:  # SYNC
        refuse(reader)
    return [found async for found in made("AsyncReader", is_async=True)]
'''
TWIN = Twin("a.py", "b.py", words=(("For tasks.", "For threads."), ("number of tasks", "number of threads")))


def test_the_sync_files_are_made_from_the_async_ones() -> None:
    """`python tests/make_sync.py` would change nothing. The message names the file to edit."""
    assert "\n\n".join(differences()) == ""


def test_code_and_words_change_colour() -> None:
    """Awaits go, names lose their mark, a block's second half is taken, and paragraphs are filled anew."""
    assert (
        turned(EXAMPLE, TWIN)
        == '''\
# generated from a.py by tests/make_sync.py; edit a.py
"""For threads."""

def read(reader: Reader, again: Callable[[], list[int]]) -> None:
    """Read until the end, with ``with``; as a `Reader` does. Any number of threads may call it, and each of
    them gets all of it.

    Args:
        reader: A `Reader`.
    """
    with reader as opened:
        opened.close()  # a Reader is closed
        time.sleep(1)
    refuse(reader)
    return [found for found in made("Reader", is_async=False)]
'''
    )


def test_a_sentence_that_is_gone_is_told() -> None:
    """A row with words for a sentence that the async file no longer has stops the tool."""
    gone = TWIN._replace(words=(*TWIN.words, ("For coroutines.", "")))

    with pytest.raises(SystemExit, match=r"has no longer: .*For coroutines"):
        turned(EXAMPLE, gone)


def test_a_sync_file_that_was_edited_is_told_with_the_file_to_edit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message names the async file, and shows the difference."""
    monkeypatch.setattr(make_sync, "made", lambda twin: "pass\n")

    found = "\n".join(differences())

    for twin in TWINS:
        assert f"goaitools_py/{twin.made} is not made from goaitools_py/{twin.written}: edit that" in found
    assert "+pass" in found


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.made)
def test_a_made_file_awaits_nothing(twin: Twin) -> None:
    """No async code is left in it, and its first line names its source."""
    text = (make_sync.ROOT / "goaitools_py" / twin.made).read_text(encoding="utf-8")

    assert text.startswith(f"# generated from {twin.written} by tests/make_sync.py")
    asynchronous = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    assert not any(isinstance(node, asynchronous) for node in ast.walk(ast.parse(text)))
