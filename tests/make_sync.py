"""Make the sync files of the package out of their async twins.

    .venv/bin/python tests/make_sync.py            # writes them
    .venv/bin/python tests/make_sync.py --check    # only says which ones differ, and how

Owns: which file is made from which, and the rules from one colour to the other. Must never know: the work of
the code.

The async file is the one to edit. Its docstrings, comments and texts are turned by the same rules, and by the
sentences of its row in `TWINS`. Code that differs stands in a block, and the sync file gets the second half::

    if True:  # ASYNC
        await asyncio.to_thread(self._rehearse)
    else:
        self._rehearse()

A block ``if False:  # SYNC`` is for the sync file alone.
"""

from __future__ import annotations

import ast
import difflib
import io
import re
import subprocess
import sys
import textwrap
import token
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
WIDTH = 110


class Twin(NamedTuple):
    """A sync file, and the async file that it is made from; both below ``goaitools_py/``.

    `names`: how this file's own names change, beside `NAMES`.
    `words`: sentences, or parts of them, that differ. Line breaks do not matter. A sentence that is gone from
    the async file is an error.
    """

    written: str
    made: str
    names: Mapping[str, str] = {}
    words: tuple[tuple[str, str], ...] = ()


TWINS = (
    Twin(
        "chat/async_conversation.py",
        "chat/conversation.py",
        words=(
            ("Owns: its methods for `asyncio`.", "Owns: its sync methods."),
            ("under one key of an async store", "under one key of a store"),
            ("any number of tasks, processes", "any number of threads, processes"),
            ("All methods but `start` are awaited.", ""),
            ("handle, for ``async with`` and ``async for``. The turn is", "handle. It is"),
            ("This method is not awaited.", ""),
        ),
    ),
    Twin(
        "chat/async_chat.py",
        "chat/chat.py",
        words=(
            ("The chat on an event loop.", "The chat in plain code."),
            ("the inside of a turn. Bodies", "the inside of a turn, or an event loop. Bodies"),
            (
                "on an event loop. It holds configuration only: one instance serves every task, and "
                "several loops.",
                "in plain code. It holds configuration only, so one instance serves every thread.",
            ),
            (
                "Its methods have the names, options and results of `Chat`. Methods that ask a "
                "provider or a store are awaited. Sync tools run in worker threads unless "
                "`tool_threads` is False, so that they do not block the loop.",
                "",
            ),
            ("; this method itself is not awaited", ""),
            ("This method is not awaited; the methods of the conversation are.", ""),
            ("An ``Async…`` one, see", "See"),
            (
                '"aiohttp": the backends that are given by name send over aiohttp (the extra `aiohttp`). '
                "See docs/servers.md.",
                "For chats on an event loop only.",
            ),
            (
                "All of it happens in threads, so that neither this nor the first turn blocks the "
                "running loop. Call it where the application starts, once for each event loop.",
                "",
            ),
        ),
    ),
    Twin(
        "chat/async_turn.py",
        "chat/sync_turn.py",
        words=(
            ("The handle of a running turn, for tasks.", "The handle of a running turn, in plain code."),
            ("by one task at a time", "by one reader at a time"),
            ("such as a cancellation in", "such as an exit out of"),
            (
                "Any task of the loop may call this, for example the task of a stop button. The "
                "iteration of a reader in another task ends at once. When this returns, the response "
                "is closed, and the running tools are cancelled: a coroutine stops at its `await`; a "
                "tool in a worker thread cannot be stopped, and runs on.",
                "Any thread may call this, for example the thread of a stop button. The reader's "
                "iteration then ends: at once if it waits for more of a reply or for tools in worker "
                "threads. If it waits for the reply's beginning, a retry's pause, or a tool in its "
                "own thread, it ends when that wait is over.",
            ),
        ),
    ),
    Twin(
        "stores/async_redis.py",
        "stores/redis.py",
        words=(
            ("any number of tasks, processes and", "any number of threads, processes and"),
            ("Its client belongs to one event loop.", ""),
            (
                "Call it while the event loop runs.",
                "With a cluster, one of its nodes has to answer.",
            ),
            (
                "In a child process, a client that was used before the fork is refused.",
                "It may be used before and after a fork: redis-py gives each process connections of its own.",
            ),
        ),
    ),
    Twin(
        "stores/async_sql_store.py",
        "stores/sql_store.py",
        words=(("every async store in SQL", "every store in SQL that is not async"),),
    ),
    Twin(
        "stores/async_sqlalchemy.py",
        "stores/sqlalchemy.py",
        words=(
            ("any number of tasks, processes and", "any number of threads, processes and"),
            (
                "It belongs to one event loop, and so does the store.",
                "In a child of a fork its pool begins anew; one over a SQLite file must be made "
                "there, or have ``poolclass=NullPool``.",
            ),
        ),
    ),
    Twin(
        "backends/http/async_fast_post.py",
        "backends/http/fast_post.py",
    ),
    Twin(
        "turn/edges/async_driver.py",
        "turn/edges/driver.py",
        words=(
            ("effects of a flow, for tasks", "effects of a flow, in plain code"),
            ("Runs a flow on an event loop", "Runs a flow in plain code"),
            (
                "while another task, or an outer call of this task",
                "while another thread, or an outer call of this thread",
            ),
            (
                "A step that another task runs has ended when this returns.",
                "If a step runs, the step gives it up as soon as it can.",
            ),
        ),
    ),
    Twin(
        "testing/_async_crash_stores.py",
        "testing/_crash_stores.py",
        words=(("the program's async store", "the program's store"),),
    ),
    Twin(
        "backends/http/async_transport.py",
        "backends/http/transport.py",
        names={"AsyncByteStream": "SyncByteStream", "AsyncBaseTransport": "BaseTransport"},
    ),
)

NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "_aclose": "_close",
    "aclose": "close",
    "aiter_bytes": "iter_bytes",
    "anext": "next",
    "aread": "read",
    "asend": "send",
    "asynccontextmanager": "contextmanager",
    "AbstractAsyncContextManager": "AbstractContextManager",
    "AwaitingEdge": "BlockingEdge",
    "enter_async_context": "enter_context",
    "push_async_callback": "callback",
    "handle_async_request": "handle_request",
    "StopAsyncIteration": "StopIteration",
    "async_edge": "sync_edge",
    "async_turn": "sync_turn",
}
"""Names that follow no rule of `renamed`."""

KEPT = frozenset({"async", "is_async", "_is_async", "refuse_async", "coro_async"})
"""Names that look as if a rule were for them, and mean the same in both colours."""

MODULES = (
    (re.compile(r"\bredis\.asyncio\b"), "redis"),
    (re.compile(r"\bsqlalchemy\.ext\.asyncio\b"), "sqlalchemy"),
)
PROSE = (
    (re.compile(r"\basync (?=with|for\b)"), ""),
    (re.compile(r"``await "), "``"),
    (re.compile(r"\b([Aa])n (\W*)_?Async(?=[B-DF-HJ-NP-TV-Z])"), r"\1 \2"),
)


def renamed(name: str, own: Mapping[str, str] = {}) -> str:
    """The name of the sync twin: ``AsyncX`` is ``X``, ``x_async`` and ``async_x`` are ``x``."""
    if name in own:
        return own[name]
    if name in NAMES or name in KEPT:
        return NAMES.get(name, name)
    name = re.sub(r"^(_*)Async(?=[A-Z])", r"\1", name)
    return re.sub(r"^(_*)async_|_async$", r"\1", name)


# ------------------------------------------------------------------------------------------- texts


class Words:
    """Turns docstrings, comments and other texts of one file, and notes which sentences it has met."""

    def __init__(self, twin: Twin) -> None:
        self._own = twin.names
        self._words = {
            said: (re.compile(r"\s+".join(map(re.escape, said.split()))), instead)
            for said, instead in twin.words
        }
        self.left = {said for said, _ in twin.words}

    def turn(self, text: str, indent: str = "") -> str:
        """The text in the other colour. Its changed paragraphs are filled anew behind `indent`."""
        for said, (pattern, instead) in self._words.items():
            if pattern.search(text):
                self.left.discard(said)
                text = pattern.sub(lambda _, new=instead: f"\x00{new}", text)
        for pattern, instead in (*MODULES, *PROSE):
            text = pattern.sub(lambda found, new=instead: "\x00" + found.expand(new), text)
        text = re.sub(r"\w+", self._word, text)
        if "\x00" not in text:
            return text
        if "\n" not in text and len(indent + text) <= WIDTH:
            return _plain(text)
        return filled(text, indent)

    def _word(self, found: re.Match[str]) -> str:
        word = found[0]
        new = renamed(word, self._own)
        return word if new == word else f"\x00{new}"


def _plain(text: str) -> str:
    """A changed text without its marks, and without the spaces around a sentence that went away."""
    text = text.replace("\x00", "")
    return re.sub(r"(?<=\S)  +(?=\S)", " ", re.sub(r"(?<=\S) +(?=\n|$|\"\"\")", "", text))


def filled(text: str, indent: str) -> str:
    """Fill the paragraphs of a docstring that have a mark. The first line stands behind `indent`."""
    found: list[str] = []
    for block in paragraphs((indent + text).split("\n"), len(indent)):
        lines = "\n".join(block)
        if "\x00" not in lines:
            found += block
            continue
        first = re.match(r" *", block[0])
        rest = re.match(r" *", block[-1] if len(block) > 1 else block[0])
        assert first is not None
        assert rest is not None
        if not (words := _plain(" ".join(line.strip() for line in block)).strip()):
            if found and not found[-1]:
                found.pop()
            continue
        is_entry = len(block) == 1 and re.match(r"\s*\w+: ", block[0])  # under Args
        hanging = first[0] + "    " if is_entry else rest[0]
        found += textwrap.wrap(
            words,
            WIDTH,
            initial_indent=first[0],
            subsequent_indent=hanging,
            break_long_words=False,
            break_on_hyphens=False,
        )
    while len(found) > 2 and not found[-2] and found[-1].strip() in ('"""', ""):
        del found[-2]
    if len(found) == 2 and found[1].strip() == '"""' and len(found[0]) + 3 <= WIDTH:
        found = [found[0] + '"""']
    return "\n".join(found).removeprefix(indent)


def paragraphs(lines: list[str], margin: int) -> Iterator[list[str]]:
    """The paragraphs of a docstring, and its entries under Args, as lists of lines."""
    block: list[str] = []
    for line in lines:
        depth = len(line) - len(line.lstrip())
        begins = depth > margin and re.match(r"\s*\*{0,2}\w+(?:, \w+)*: ", line)
        is_next = len(block) > 1 and depth != len(block[-1]) - len(block[-1].lstrip())
        is_over = bool(block) and re.match(r"\s*\w+:$", block[-1])
        if block and (not line.strip() or line.strip() == '"""' or begins or is_next or is_over):
            yield block
            block = []
        if not line.strip() or line.strip() == '"""':
            yield [line]
        else:
            block.append(line)
    if block:
        yield block


# -------------------------------------------------------------------------------------------- code


def chosen(source: str) -> str:
    """The source with the sync halves of its ``# ASYNC`` and ``# SYNC`` blocks in the place of the blocks."""
    lines = source.splitlines()
    blocks = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.If) and re.search(r"# A?SYNC\b", lines[node.lineno - 1])
    ]
    for node in sorted(blocks, key=lambda node: -node.lineno):
        assert node.end_lineno is not None
        half: list[str] = []
        if "# SYNC" in lines[node.lineno - 1]:
            half = [line.removeprefix("    ") for line in lines[node.lineno : node.end_lineno]]
        elif node.orelse:
            begin = node.body[-1].end_lineno
            assert begin is not None
            while not lines[begin].strip().startswith("else:"):
                begin += 1
            half = [line.removeprefix("    ") for line in lines[begin + 1 : node.end_lineno]]
        lines[node.lineno - 1 : node.end_lineno] = half
    return "\n".join(lines) + "\n"


def turned(source: str, twin: Twin) -> str:
    """The sync code of async code, not yet formatted."""
    source = chosen(source)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    words = Words(twin)
    cuts: list[tuple[int, int, str]] = []
    tokens = [
        one
        for one in tokenize.generate_tokens(io.StringIO(source).readline)
        if one.type not in (token.NL, token.INDENT, token.DEDENT)
    ]
    brackets: list[bool] = []
    """The open square brackets: True for one of an ``Awaitable[``."""

    for at, one in enumerate(tokens):
        begin, end = (starts[row - 1] + column for row, column in (one.start, one.end))
        after = tokens[at + 1] if at + 1 < len(tokens) else one
        if one.type == token.NAME:
            if one.string in ("async", "await"):
                cuts.append((begin, starts[after.start[0] - 1] + after.start[1], ""))
            elif one.string == "Awaitable" and after.string == "[":
                cuts.append((begin, end, ""))
            elif one.string == "True" and is_colour(tokens, at):
                cuts.append((begin, end, "False"))
            elif (new := renamed(one.string, twin.names)) != one.string:
                cuts.append((begin, end, new))
        elif one.string == "[" and one.type == token.OP:
            brackets.append(at > 0 and tokens[at - 1].string == "Awaitable")
            if brackets[-1]:
                cuts.append((begin, end, ""))
        elif one.string == "]" and one.type == token.OP:
            if brackets.pop():
                cuts.append((begin, end, ""))
        elif one.type in (token.STRING, token.COMMENT) or "FSTRING_MIDDLE" in token.tok_name[one.type]:
            is_docstring = one.string.startswith('"""')
            indent = " " * one.start[1] if is_docstring else ""
            new = words.turn(one.string, indent) if is_docstring else _plain_or_same(words, one.string)
            cuts.append((begin, end, new))
    if words.left:
        raise SystemExit(f"tests/make_sync.py: {twin.written} has no longer: {sorted(words.left)}")
    for begin, end, new in reversed(cuts):
        source = source[:begin] + new + source[end:]
    for pattern, instead in MODULES:
        source = pattern.sub(instead, source)
    note = f"# generated from {twin.written} by tests/make_sync.py; edit {twin.written}\n"
    return note + source


def _plain_or_same(words: Words, text: str) -> str:
    # From Python 3.12 on the text before a field of an f-string is a token, with the spaces at its end.
    inner = text.strip(" ")
    before, _, after = text.partition(inner) if inner else (text, "", "")
    return before + words.turn(inner).replace("\x00", "") + after


def is_colour(tokens: list[tokenize.TokenInfo], at: int) -> bool:
    """Whether a ``True`` is the value of an ``is_async=``."""
    return at > 1 and tokens[at - 1].string == "=" and tokens[at - 2].string.strip("_") == "is_async"


def formatted(source: str, path: str) -> str:
    """The source in the project's format, without imports that only the async code uses."""
    name = ["--stdin-filename", str(ROOT / "goaitools_py" / path), "-"]
    for command in (
        ["check", "--fix-only", "--unsafe-fixes", "-q", "--select", "I,F401,RUF022,UP028"],
        ["format", "-q"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *name],
            input=source,
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"tests/make_sync.py: ruff cannot read {path}:\n{done.stderr}{source}")
        source = done.stdout
    return source


def made(twin: Twin) -> str:
    """The text of a sync file."""
    source = (ROOT / "goaitools_py" / twin.written).read_text(encoding="utf-8")
    return formatted(turned(source, twin), twin.made)


def differences() -> Iterator[str]:
    """For each sync file that is not as it would be made: which file to edit, and the difference."""
    for twin in TWINS:
        path = ROOT / "goaitools_py" / twin.made
        now = path.read_text(encoding="utf-8") if path.exists() else ""
        if now != (new := made(twin)):
            diff = difflib.unified_diff(
                now.splitlines(), new.splitlines(), "is", "should be", n=1, lineterm=""
            )
            yield "\n".join(
                [
                    f"goaitools_py/{twin.made} is not made from goaitools_py/{twin.written}: edit that "
                    "file, then run: python tests/make_sync.py",
                    *diff,
                ]
            )


def main() -> None:
    """Write the sync files; with ``--check`` only compare them."""
    if sys.argv[1:] == ["--check"]:
        if found := list(differences()):
            raise SystemExit("\n\n".join(found))
        return
    for twin in TWINS:
        (ROOT / "goaitools_py" / twin.made).write_text(made(twin), encoding="utf-8")


if __name__ == "__main__":
    main()
