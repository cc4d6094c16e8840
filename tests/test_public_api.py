"""What is public: complete, documented, shown to users, typed, and silent about content."""

from __future__ import annotations

import functools
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import goaitools_py as package
from goaitools_py import (
    Action,
    Approve,
    AsyncChat,
    AsyncConversation,
    Audio,
    Chat,
    ChatOptions,
    ChatResult,
    CheckpointReady,
    Compactor,
    Conversation,
    Document,
    Event,
    Image,
    Limits,
    ModelSettings,
    RateLimitError,
    StateCorruptError,
    TextDelta,
    ToolCall,
    ToolContext,
    ToolRecord,
    ToolResult,
    ToolReturn,
    TurnCompleted,
    TurnError,
    assistant,
    event,
    system,
    user,
)
from goaitools_py.backends.base import Delta, ModelRequest, Reply, ResponseHead
from goaitools_py.compaction import CompactionReport
from goaitools_py.states import HistoryTurn, inspect_state, read_history
from goaitools_py.stores import Stored, StoredKey, StoredPage
from goaitools_py.testing import Calls, Raw, ScriptedBackend

from .test_imports import ROOMS, all_imports, room

ROOT = Path(__file__).resolve().parent.parent
SUBPACKAGES = (
    "backends", "cli", "compaction", "frontends", "integrations.sqlalchemy", "seal", "serve", "sim",
    "stores", "testing", "tools",
)  # fmt: skip
STABLE = ("backends", "compaction", "prices", "seal", "states", "stores", "testing", "tokens")
PROVISIONAL = ("frontends", "integrations", "mcp", "output", "serve", "sim", "telemetry")
SECRET = "Harrogate-4711"


def public(module: ModuleType) -> dict[str, Any]:
    return {name: getattr(module, name) for name in module.__all__}


def is_ours(value: object) -> bool:
    is_code = inspect.isclass(value) or inspect.isroutine(value)
    return is_code and value.__module__.startswith("goaitools_py")


# ------------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize("name", ["", *SUBPACKAGES])
def test_exported_names_are_sorted(name: str) -> None:
    """`__all__` holds each name once: constants, then classes, then functions, each in order."""
    module = importlib.import_module(f"goaitools_py.{name}".rstrip("."))

    ordered = sorted(set(module.__all__), key=lambda n: (not n.isupper(), not n[:1].isupper(), n))

    assert module.__all__ == ordered


def test_exported_names_are_complete() -> None:
    """Whatever the package's top binds is exported, but for its modules and private names."""
    for name in package.__all__:
        getattr(package, name)  # some are loaded when they are asked for

    bound = {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and name != "TYPE_CHECKING" and not isinstance(value, ModuleType)
    }

    assert bound == set(package.__all__)


@functools.cache
def shown_words() -> set[str]:
    """The words of all pages, of the examples and of the typed promises."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = [*pages, ROOT / "tests" / "typing" / "api.py", *(ROOT / "examples").glob("**/*.py")]
    return {word for file in shown for word in re.findall(r"\w+", file.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("name", ["", *STABLE, "output"])
def test_every_public_name_is_shown(name: str) -> None:
    """A name that no page, no example and no typed promise has, is private."""
    module = importlib.import_module(f"goaitools_py.{name}".rstrip("."))

    assert sorted(set(module.__all__) - shown_words()) == []


def test_at_most_a_hundred_names_are_at_the_top() -> None:
    """Names that few chats need are in the public modules."""
    assert len(package.__all__) <= 100


def test_completion_of_the_package_offers_public_names_and_modules() -> None:
    """And nothing that an import has left there."""
    offered = {name for name in dir(package) if not name.startswith("_")}

    assert offered == {*package.__all__, *STABLE, *PROVISIONAL}


# ----------------------------------------------------------------------------------------------- tiers


@pytest.mark.parametrize(
    ("name", "tier"),
    [
        *((name, "Stable.") for name in ("", *STABLE)),
        *((name, "Provisional.") for name in (*PROVISIONAL, "cli")),
    ],
)
def test_a_public_module_begins_with_its_tier(name: str, tier: str) -> None:
    """So `help()` shows it, and the page of versions has it too."""
    module = importlib.import_module(f"goaitools_py.{name}".rstrip("."))
    rows = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8").splitlines()
    row = next(row for row in rows if row.startswith(f"| {tier.lower().rstrip('.')} |"))

    assert (module.__doc__ or "").startswith(f"{tier} ")
    assert (name or "goaitools_py") in re.findall(r"\w+", row) or (name == "cli" and "command" in row)


def test_a_stable_module_uses_no_public_name_of_a_provisional_one() -> None:
    """Rooms behind stable modules may import inner files of `sim`: these have no promise."""
    needed = {*STABLE, "__init__"}
    while more := {inner for name in needed for inner in ROOMS[name].split()} - needed:
        needed |= more
    found = [
        f"{one.source} imports {one.target}"
        for one in all_imports(with_types=True)
        if room(one.source) in needed - {*PROVISIONAL} and one.target in PROVISIONAL
    ]

    assert needed & {*PROVISIONAL, "cli"} <= {"output", "sim"}
    typed = [line for line in found if line.endswith(" imports output")]
    assert {line.partition(".")[0] for line in typed} <= {"chat", "turn"}  # the option `output_type`
    assert [line for line in found if line not in typed] == [
        "backends.by_name imports sim",  # the name "sim" in the place of a provider's
        "testing imports sim",  # the simulator and its fixture; both are documented as provisional
        "testing.fixtures imports sim",
    ]


# ----------------------------------------------------------------------------------------------- docs


@pytest.mark.parametrize("name", ["", *SUBPACKAGES])
def test_every_public_name_is_documented(name: str) -> None:
    """Public classes and functions have docstrings of their own, and so have their public methods."""
    module = importlib.import_module(f"goaitools_py.{name}".rstrip("."))

    undocumented = []
    for exported, value in public(module).items():
        if not is_ours(value):
            continue
        if not vars(value).get("__doc__") if inspect.isclass(value) else not value.__doc__:
            undocumented.append(exported)
        if inspect.isclass(value) and not getattr(value, "_is_protocol", False):
            for attribute, member in vars(value).items():
                function = getattr(member, "fget", None) or getattr(member, "__func__", member)
                if not attribute.startswith("_") and inspect.isfunction(function) and not function.__doc__:
                    undocumented.append(f"{exported}.{attribute}")

    assert undocumented == []


@pytest.mark.parametrize("name", ["", "output", "states", "prices", "tokens", *SUBPACKAGES])
def test_every_public_name_has_help_and_a_signature(name: str) -> None:
    """`help(name)` and `inspect.signature(name)` work for each, also where an annotation needs a name that
    only type checkers import."""
    module = importlib.import_module(f"goaitools_py.{name}".rstrip("."))

    shown = [value for value in public(module).values() if is_ours(value)]
    for value in shown:
        assert value.__name__ in pydoc.render_doc(value)
        if not (inspect.isclass(value) and issubclass(value, Exception)):  # Python has none for most of these
            inspect.signature(value)

    assert shown or name == "cli"


@pytest.mark.parametrize(
    "cls", [Chat, AsyncChat, Conversation, AsyncConversation], ids=lambda cls: cls.__name__
)
def test_signatures_name_every_option(cls: type) -> None:
    """No ``**fields`` is left, and what a method cannot take is not shown."""
    options = set(ChatOptions.__struct_fields__)
    methods = {
        name: method for name, method in vars(cls).items() if inspect.isfunction(method) and name[0] != "_"
    }
    shown = {name: inspect.signature(method).parameters for name, method in methods.items()}
    a_turn = (
        {"chat_with_state", "chat", "start", "resume"} if "chat" in shown else {"send", "start", "resume"}
    )

    assert not [
        name for name, found in shown.items() for one in found.values() if one.kind is one.VAR_KEYWORD
    ]
    for name in a_turn:
        assert options - shown[name].keys() <= {"user"}
        assert [one for one in shown[name] if one in options] == [
            one for one in ("user", *ChatOptions.__struct_fields__[1:]) if one in shown[name]
        ]
    assert "user" not in shown["run_turns"] if "chat" in shown else "misplaced" not in shown["rewind"]
    if "chat" in shown:
        own = inspect.signature(cls).parameters
        assert {"system", "tools", "compactor", "telemetry"} <= own.keys()
        assert not {"user", "turn_id", "default_fields"} & own.keys()


@pytest.mark.parametrize("value", [ChatOptions, ModelSettings, Limits, Approve, Compactor])
def test_a_signature_tells_the_fields_and_their_defaults(value: Any) -> None:
    """The signature of a value that programs make is that of its call."""
    parameters = inspect.signature(value).parameters

    assert [*parameters] == [*value.__struct_fields__]
    for name, parameter in parameters.items():
        by_position = parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert by_position == (name in value.__match_args__), name
        assert parameter.annotation is not inspect.Parameter.empty, name
    if all(each.default is not inspect.Parameter.empty for each in parameters.values()):
        made = value()
        assert all(getattr(made, name) == each.default for name, each in parameters.items())


# ------------------------------------------------------------------------------------------- content

CALL = ToolCall(id="call_1", name="look", arguments=SECRET)
RECORD = ToolRecord(call=CALL, result=SECRET, flag="ok")
UNREADABLE = StateCorruptError("the blob was cut", blob=SECRET.encode())
RESULT = ChatResult(
    text=SECRET,
    state=SECRET.encode(),
    actions=(Action(SECRET),),
    tool_log=(RECORD,),
    discarded=UNREADABLE,
)
VALUES = [
    user(SECRET),
    assistant(SECRET),
    system(SECRET),
    event(SECRET, topic=SECRET, id=SECRET),
    *user(SECRET).parts,
    Image.from_bytes(SECRET.encode()),
    Image.from_url(f"https://example.org/{SECRET}.png"),
    Document.from_bytes(SECRET.encode(), name=SECRET),
    Audio.from_bytes(SECRET.encode()),
    CALL,
    RECORD,
    ToolResult(call_id="call_1", parts=user(SECRET).parts),
    ToolReturn(SECRET),
    Action(SECRET, {SECRET: SECRET}),
    ToolContext(deps=SECRET),
    ChatOptions(user=SECRET, messages=(user(SECRET),), system=SECRET, context=SECRET, deps=SECRET),
    ChatOptions(metadata={SECRET: SECRET}, binding={SECRET: SECRET}),
    ModelSettings(extra_body={SECRET: SECRET}, extra_headers={"authorization": SECRET}),
    RESULT,
    TurnCompleted(RESULT),
    TextDelta(SECRET, 1),
    CheckpointReady(SECRET.encode()),
    CompactionReport(outcome="no_change", state=SECRET.encode()),
    HistoryTurn(iterations=(), started_at=datetime.now(UTC), facts={"metadata": SECRET}),
    ModelRequest(path="/", body=SECRET.encode(), headers={"authorization": SECRET}),
    ResponseHead(status=200, headers={"set-cookie": SECRET}),
    Reply(entries=(SECRET.encode(),), text=SECRET, reasoning=SECRET, calls=(CALL,)),
    Delta(kind="text", text=SECRET),
    Stored(blob=SECRET.encode(), version=1, updated_at=datetime.now(UTC)),
    StoredKey(key=SECRET, version=1, updated_at=datetime.now(UTC)),
    StoredPage(keys=(StoredKey(key=SECRET, version=1, updated_at=datetime.now(UTC)),), cursor=SECRET),
    Calls([("look", SECRET)], text=SECRET),
    Raw.body(SECRET.encode()),
    UNREADABLE,
    TurnError("it failed", state=SECRET.encode(), pending_input=(user(SECRET),), text=SECRET),
    RateLimitError("wait", partial_text=SECRET, tool_log=(RECORD,)),
    Chat("openai:MODEL", system=SECRET, deps=SECRET),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_repr_holds_no_content(value: object) -> None:
    """Values may be logged: their reprs name kinds and sizes, never what was said, stored or configured."""
    shown = repr(value) + str(value)

    assert SECRET not in shown
    assert repr(SECRET.encode())[2:-1] not in shown
    assert type(value).__name__ in shown


def test_what_a_turn_gives_may_be_logged() -> None:
    """A real turn's events, result, history and facts hold no content in their reprs."""
    events: list[Event] = []
    backend = ScriptedBackend(Calls([("look", {"at": SECRET})]), SECRET)
    chat = Chat(backend, system=SECRET, tools=[look], on_event=events.append)

    result = chat.chat(user=SECRET, context=SECRET, metadata={"who": SECRET})

    seen = [result, *events, read_history(result.state), inspect_state(result.state), *backend.requests]
    assert len(events) > 8
    assert SECRET in result.text
    assert [repr(value) for value in seen if SECRET in repr(value)] == []


def look(at: str) -> str:
    """Look at something."""
    return at


# ----------------------------------------------------------------------------------------- completion


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_completion_offers_only_what_a_caller_may_use(value: object) -> None:
    """A name that completion offers on a value is a field or an attribute of it, or a documented member."""
    cls = type(value)
    fields = {*getattr(cls, "__struct_fields__", ()), *getattr(cls, "__dataclass_fields__", ())}
    if isinstance(value, Exception):
        fields |= {name for base in cls.__mro__ for name in vars(base).get("__annotations__", ())}
    inherited = {name for base in (tuple, Exception) for name in dir(base)}

    offered = {name for name in dir(value) if not name.startswith("_")} - fields - inherited

    members = {
        name: inspect.getattr_static(cls, name, None) for name in offered - {*getattr(value, "__dict__", ())}
    }
    kinds = (property, functools.cached_property, classmethod, staticmethod)
    undocumented = [
        name
        for name, member in members.items()
        if not ((isinstance(member, kinds) or inspect.isfunction(member)) and member.__doc__)
        and f" {name}: " not in (cls.__doc__ or "")
    ]
    assert undocumented == []


# ---------------------------------------------------------------------------------------------- types


def test_the_types_are_as_promised() -> None:
    """mypy agrees with every line of tests/typing, good and bad ones, and finds nothing in the examples."""
    read = sorted([*(ROOT / "tests" / "typing").glob("**/*.py"), *(ROOT / "examples").glob("**/*.py")])

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *map(str, read)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
