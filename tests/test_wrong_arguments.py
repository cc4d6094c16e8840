"""Wrong arguments, as somebody writes them who comes from another library: each error says what to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import redis.asyncio
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from goaitools_py import (
    Approve,
    AsyncChat,
    Audio,
    Chat,
    ChatOptions,
    Compactor,
    Document,
    DropOldest,
    Image,
    Limits,
    ModelSettings,
    Summarize,
    TokenLimit,
    Tool,
    ToolPendingError,
    event,
    tool,
    user,
)
from goaitools_py.backends import AnthropicBackend, OpenAIChatBackend
from goaitools_py.backends.dialects import WIRES
from goaitools_py.frontends import AskError
from goaitools_py.frontends.bodies import part_of
from goaitools_py.history.convert.state import convert_state
from goaitools_py.mcp import MCPTools
from goaitools_py.output import Output
from goaitools_py.states import state_from_messages
from goaitools_py.stores import (
    AsyncDjangoStore,
    AsyncPostgresStore,
    AsyncRedisStore,
    AsyncSQLAlchemyStore,
    AsyncSQLiteStore,
    CallableStore,
    DjangoStore,
    MemoryStore,
    PostgresStore,
    RedisStore,
    SQLAlchemyStore,
    SQLiteStore,
)
from goaitools_py.testing import Calls, ScriptedBackend, SimServer
from goaitools_py.types.errors import ProviderUnavailableError, StoreUnavailableError


def other(value: object) -> Any:
    """A value of another type than a type checker would let pass."""
    return value


def refused(call: Callable[[], object], kind: type[Exception] = TypeError) -> str:
    """The text of the error that a call raises."""
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    return str(caught.value)


# ----------------------------------------------------------------------------------- values made by hand


VALUES: dict[str, tuple[Callable[[], object], str]] = {
    "another name": (
        lambda: other(ModelSettings)(max_tokens=1),
        "ModelSettings has no 'max_tokens'; did you mean 'max_output_tokens'?",
    ),
    "a far name": (
        lambda: other(Limits)(dollars=1),
        "Limits has no 'dollars'; it has max_iterations, max_tool_calls, max_tokens, "
        "conversation_max_tokens, max_cost_usd, conversation_max_cost_usd",
    ),
    "an option": (
        lambda: other(ChatOptions)(sytem=""),
        "ChatOptions has no 'sytem'; did you mean 'system'?",
    ),
    "by name only": (
        lambda: other(DropOldest)(2000),
        "DropOldest takes each value by name: DropOldest(target_tokens=…, target_messages=…, "
        "min_recent_turns=…)",
    ),
    "too many": (
        lambda: other(TokenLimit)(1, 2),
        "TokenLimit takes at most 1 without a name: TokenLimit(max_tokens)",
    ),
    "nothing": (
        lambda: other(Compactor)(),
        "Compactor needs 'trigger' and 'strategy': Compactor(trigger, strategy, before_cut=…, retain=…, …)",
    ),
    "twice": (
        lambda: other(TokenLimit)(1, max_tokens=1),
        "TokenLimit was given 'max_tokens' twice",
    ),
    "of an answer": (
        lambda: other(Output)(int, schema={}),
        "Output has no 'schema'; it has of, mode, strict, retries, validate, name, keep_attempts",
    ),
    "a class method": (
        lambda: other(Image)("cat.png"),
        "Image takes each value by name: Image.from_path(…), Image.from_bytes(…) or Image.from_url(…)",
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_says_what_it_takes(name: str) -> None:
    """The class, the wrong argument, and what the class takes."""
    call, text = VALUES[name]

    assert refused(call) == text


def test_the_check_of_a_value_is_told_as_before() -> None:
    """A TypeError for a value is not taken for one about the arguments."""
    assert refused(lambda: ModelSettings(temperature=other("hot"))) == "temperature must be a number, not str"
    assert refused(lambda: Compactor(DropOldest(target_tokens=1), TokenLimit(2))).startswith(
        "DropOldest is a"
    )


def test_the_number_of_turns_is_no_backend() -> None:
    """`Summarize(4)` reads like `KeepRecentTurns(4)`, and its first argument is a backend."""
    assert refused(lambda: Summarize(4)) == (
        "Summarize takes a backend, or a name such as 'openai:MODEL', got int; the number of turns that stay "
        "is keep_turns=…"
    )
    assert Summarize(ScriptedBackend(), 1).keep_turns == 1


# ------------------------------------------------------------------------------------------ media


def test_a_summary_names_a_backend_that_there_is() -> None:
    """A turn only warned that no summary came, so the history grew, and so did its cost."""
    assert refused(lambda: Summarize("gpt-5"), ValueError) == (
        "Summarize takes a backend, or a name such as 'openai:MODEL', got 'gpt-5'; the names begin with "
        "openai, openai-responses, anthropic, sim"
    )
    for name in (*WIRES, "sim"):
        assert Summarize(f"{name}:any").keep_turns == 4
    assert Summarize("sim").keep_turns == 4


def test_media_are_bytes_with_a_type() -> None:
    """What no provider could read is refused where it is made."""
    assert refused(lambda: Image.from_bytes(other("x"))) == (
        "Image.from_bytes takes bytes, not str; Image.from_path reads a file"
    )
    assert refused(lambda: Document.from_bytes(b"x", "pdf"), ValueError) == (
        "Document.from_bytes takes a media type such as 'image/png', got 'pdf'"
    )
    assert refused(lambda: Audio.from_url("a.wav"), ValueError) == (
        "Audio.from_url takes a URL with its scheme, such as https://…; Audio.from_path reads a file"
    )
    assert refused(lambda: Image.from_url(other(3))) == "Image.from_url takes a str, not int"
    assert Image.from_bytes(bytearray(b"x"), "image/svg+xml; charset=utf-8").data == b"x"


@pytest.mark.parametrize("kind", [Image, Document, Audio])
def test_media_without_a_byte_are_refused(kind: Any, tmp_path: Path) -> None:
    """A download that failed, or a file that is not written yet, is found before a provider refuses it."""
    (tmp_path / "empty").write_bytes(b"")

    for source, make in (
        ("bytes", lambda: kind.from_bytes(b"")),
        ("path", lambda: kind.from_path(tmp_path / "empty")),
    ):
        assert refused(make, ValueError) == (
            f"{kind.__name__}.from_{source} got no data, and no provider takes an empty part"
        )


@pytest.mark.parametrize("media_type", ["pdf", "image/", "image/a b"])
def test_a_media_type_of_a_client_is_its_fault(media_type: str) -> None:
    """A front end answers 400, and not 500."""
    with pytest.raises(AskError, match="the media type of a file must be written as in image/png"):
        part_of(b"x", media_type, None)


# ----------------------------------------------------------------------------------- options and states


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("response_format", "the type of the answer is output_type=…"),
        ("response_model", "the type of the answer is output_type=…"),
        ("instructions", "the instructions for the model are system=…"),
        ("api_key", "it belongs to the backend: "),
        ("store", "it belongs to chat.conversation(store, key)"),
        ("stop_every", "it belongs to the kept conversation: "),
        ("fallbacks", "it belongs to the chat: "),
    ],
)
def test_names_of_other_libraries_lead_to_ours(name: str, advice: str) -> None:
    """A name that looks like one of ours by its letters is not guessed."""
    chat = Chat(ScriptedBackend("paid"))

    assert advice in refused(lambda: chat.chat(user="Hello.", **{name: 1}))


def test_a_misspelt_option_of_a_conversation_is_guessed() -> None:
    """One of its own, or one of a turn."""
    chat, store = Chat("sim"), MemoryStore()

    for wrong, right in (("lease_tl", "lease_ttl"), ("stop_evry", "stop_every"), ("turnid", "turn_id")):
        given: Any = {wrong: 1}
        text = refused(lambda given=given: chat.conversation(store, "ada", **given))  # type: ignore[misc]
        assert text == f"conversation() has no option {wrong!r}; did you mean {right!r}?"


def test_seconds_of_a_conversation_are_checked() -> None:
    """Before a turn is paid for whose lease or save then fails."""
    chat, store = Chat("sim"), MemoryStore()

    for name, value, kind, words in (
        ("lease_ttl", "10", TypeError, "lease_ttl must be a positive number of seconds, not str"),
        ("lease_ttl", 0, ValueError, "lease_ttl must be a positive number of seconds, got 0"),
        ("save_timeout", None, TypeError, "save_timeout must be a number of seconds from 0 on, not NoneType"),
        ("save_timeout", -1, ValueError, "save_timeout must be a number of seconds from 0 on, got -1"),
    ):
        given: Any = {name: value}
        assert refused(lambda given=given: chat.conversation(store, "ada", **given), kind) == words  # type: ignore[misc]
    chat.conversation(store, "ada", lease_ttl=0.01, save_timeout=0)


def test_messages_of_a_provider_are_told_their_way() -> None:
    """Dicts as the SDKs take them."""
    chat = Chat(ScriptedBackend("paid"))
    dicts: Any = [{"role": "user", "content": "Hello."}]

    assert refused(lambda: chat.chat(messages=dicts)) == (
        "messages must be made with user(), system(), assistant() or event(), not dict; "
        "states.state_from_messages makes a state of a provider's messages"
    )
    assert refused(lambda: state_from_messages("openai", other([user("Hello.")]))) == (
        "each message must be a dict of the provider API's JSON, not Message"
    )


def test_the_simulator_takes_replies_and_faults() -> None:
    """`ScriptedBackend` takes plain text, and a newcomer tries it here."""
    with SimServer() as sim:
        assert refused(lambda: sim.push(other("Hello."))) == (
            "push takes replies and faults, not str; a reply is Reply.text('…')"
        )


def test_a_value_in_place_of_the_options_is_told_its_name() -> None:
    """`Chat("sim", "You are …")` and `Chat("sim", ModelSettings(…))`."""
    assert refused(lambda: other(Chat)("sim", "You are a guide.")).endswith("the instructions are system=…")
    assert refused(lambda: other(Chat)("sim", ModelSettings())).endswith("pass it by name: settings=…")
    assert refused(lambda: other(Chat)("sim", Limits())).endswith("pass it by name: limits=…")


def test_what_is_appended_is_a_message() -> None:
    """To a state, and to a kept conversation."""
    chat = Chat(ScriptedBackend("Hello."))
    conversation = chat.conversation(MemoryStore(), "ada")
    text = "messages must be made with user(), system(), assistant() or event(), not str"
    assert refused(lambda: other(chat).append_to_state(None, "Hello.")) == text
    assert refused(lambda: other(conversation).append("Hello.")) == text


def test_what_holds_a_state_is_no_state() -> None:
    """A result and a conversion have `.state`; a tuple is what `chat_with_state` gives."""
    chat = Chat(ScriptedBackend("Hello."))
    result = chat.chat_with_state(None, user="Hello.")
    conversion = convert_state(result.state, "anthropic")

    for value, found in ((result, "ChatResult"), (conversion, "Conversion")):
        text = f"a state is bytes, and this is a {found}: pass its .state"
        for call in (chat.chat_with_state, chat.resume):
            assert refused(lambda call=call, value=value: call(value)) == text  # type: ignore[misc]
        assert refused(lambda value=value: chat.append_to_state(value, event("x"))) == text  # type: ignore[misc]
    assert "text, state = chat.chat_with_state(…)" in refused(
        lambda: chat.chat_with_state(other(tuple(result)), user="Hello.")
    )


@tool(requires_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"{euros} paid"


def test_an_answer_goes_by_the_id_of_its_call() -> None:
    """A call in place of its id, and a class in place of an answer."""
    chat = Chat(ScriptedBackend(Calls([("pay", {"euros": 3})]), "Done."), tools=[pay])
    result = chat.chat_with_state(None, user="Pay.")
    call = result.pending[0]

    assert refused(lambda: chat.resume(result.state, {other(call): Approve()})) == (
        "answers must be a dict from call id to Approve(), Deny() or ToolReturn(), and a key is a "
        "PendingCall; the id of a pending call is its .id"
    )
    assert refused(lambda: chat.resume(result.state, {call.id: other(Approve)})) == (
        "an answer must be Approve(), Deny() or ToolReturn(), not the class Approve: call it"
    )
    with pytest.raises(
        ToolPendingError, match=r"answers to 1 tool call, see err.pending: give them to resume"
    ):
        chat.chat_with_state(result.state, user="Hello?")
    assert chat.resume(result.state, {call.id: Approve()}).text == "Done."


# ------------------------------------------------------------------------------------------- backends


def test_what_stands_in_place_of_a_backend_is_named() -> None:
    """A class that was not called, and a client of an SDK."""
    import openai

    assert refused(lambda: Chat(other(OpenAIChatBackend))).endswith(
        "got the class OpenAIChatBackend: call it, OpenAIChatBackend(…)"
    )
    assert refused(lambda: Chat(other(openai.OpenAI(api_key="x")))).endswith(
        "give a client to a backend: goaitools_py.backends.OpenAIChatBackend(MODEL, client=…)"
    )
    assert refused(lambda: AsyncChat(other(ScriptedBackend))).endswith("ScriptedBackend(…)")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("gpt-5", "did you mean 'openai:gpt-5'?"),
        ("claude-sonnet-5", "did you mean 'anthropic:claude-sonnet-5'?"),
        ("OpenAI:gpt-5", "did you mean 'openai:gpt-5'?"),
        ("gemini:pro", "another server with such an API takes OpenAIChatBackend(MODEL, base_url=…)"),
        ("pro", "(the offline simulator)"),
    ],
)
def test_a_model_without_its_provider_api_is_guessed(name: str, advice: str) -> None:
    """The list of names stays; behind it stands what was probably meant."""
    text = refused(lambda: Chat(name), ValueError)

    assert "available are 'openai:MODEL'" in text
    assert text.endswith(advice)


@pytest.mark.parametrize("backend", [OpenAIChatBackend, AnthropicBackend])
def test_an_address_has_its_scheme(backend: Any) -> None:
    """Without one no request gets anywhere, and the error of a turn would say "try later"."""
    text = refused(lambda: backend("m", base_url="localhost:11434", api_key="x"), ValueError)

    assert text.startswith("base_url must begin with http:// or https://")


def test_a_server_that_is_not_there_is_named() -> None:
    """The host and the kind of failure, in the text and so in the log."""
    backend = OpenAIChatBackend("m", base_url="http://127.0.0.1:9/v1", api_key="x", max_retries=0)

    with Chat(backend) as chat, pytest.raises(ProviderUnavailableError) as caught:
        chat.chat(user="Hello.")

    assert str(caught.value) == (
        "the provider could not be reached (no answer from 127.0.0.1 (ConnectError)); try resume later; "
        "if this stays, check base_url= and the network"
    )


# --------------------------------------------------------------------------------------------- tools


def test_what_is_no_tool_is_told_what_to_do() -> None:
    """A tool of a tool, a list in the list, a dict, a class, an object that can be called."""
    chat = Chat("sim")

    class Adds:
        def __call__(self, a: int) -> int:
            return a

    assert (
        refused(lambda: tool(timeout=3)(other(pay)))
        == "'pay' is a Tool already; give all options in one @tool(…)"
    )
    for value, found in (
        ([pay], "list; give what is in it one by one: tools=[*…]"),
        ({"name": "pay"}, "dict"),
        ("pay", "str"),
        (Adds, "the class Adds; give a function"),
        (Adds(), "Adds; wrap it in a def"),
    ):
        text = refused(lambda value=value: chat.chat(user="Hello.", tools=[value]))  # type: ignore[misc]
        assert text == f"a tool must be a Tool, a ProviderTool, a function or a bound method, not {found}"


def test_a_context_without_a_type_is_told_its_type() -> None:
    """`def score(ctx, team: str)` is meant to have the chat's context."""

    def score(ctx, team: str) -> int:  # type: ignore[no-untyped-def]
        """Score."""
        return 1

    assert "write its type, as in 'ctx: ToolContext'" in refused(lambda: tool(score))


# -------------------------------------------------------------------------------------------- stores


STORES: dict[str, tuple[Callable[[], object], str]] = {
    "a URL for an engine": (
        lambda: SQLAlchemyStore(other("sqlite://")),
        "SQLAlchemyStore takes an engine, not str: SQLAlchemyStore(create_engine(url))",
    ),
    "a URL for an async engine": (
        lambda: AsyncSQLAlchemyStore(other("sqlite://")),
        "AsyncSQLAlchemyStore takes an engine, not str: AsyncSQLAlchemyStore(create_async_engine(url))",
    ),
    "a URL for a client": (
        lambda: RedisStore(other("redis://127.0.0.1")),
        "RedisStore takes a client of redis, not str: RedisStore(redis.Redis.from_url(url))",
    ),
    "a URL for an async client": (
        lambda: AsyncRedisStore(other("redis://127.0.0.1")),
        "AsyncRedisStore takes a client of redis.asyncio, not str: "
        "AsyncRedisStore(redis.asyncio.Redis.from_url(url))",
    ),
    "a URL for a pool": (
        lambda: PostgresStore(other("postgresql://127.0.0.1")),
        "PostgresStore takes a psycopg_pool.ConnectionPool, not str; PostgresStore.open(url) makes one",
    ),
    "an async engine": (
        lambda: SQLAlchemyStore(other(create_async_engine("sqlite+aiosqlite://"))),
        "SQLAlchemyStore takes an engine, not AsyncEngine, which is for AsyncSQLAlchemyStore: "
        "SQLAlchemyStore(create_engine(url))",
    ),
    "a sync engine": (
        lambda: AsyncSQLAlchemyStore(other(create_engine("sqlite://"))),
        "AsyncSQLAlchemyStore takes an engine, not Engine, which is for SQLAlchemyStore: "
        "AsyncSQLAlchemyStore(create_async_engine(url))",
    ),
    "an async client": (
        lambda: RedisStore(other(redis.asyncio.Redis())),
        "RedisStore takes a client of redis, not one of redis.asyncio: RedisStore(redis.Redis.from_url(url))",
    ),
    "a sync client": (
        lambda: AsyncRedisStore(other(redis.Redis())),
        "AsyncRedisStore takes a client of redis.asyncio, not one of redis: "
        "AsyncRedisStore(redis.asyncio.Redis.from_url(url))",
    ),
    "an async pool": (
        lambda: PostgresStore(other(AsyncConnectionPool("", open=False))),
        "PostgresStore takes a psycopg_pool.ConnectionPool, not AsyncConnectionPool of psycopg; "
        "PostgresStore.open(url) makes one; in async code, AsyncPostgresStore takes a pool of asyncpg",
    ),
    "a connection for a pool": (
        lambda: PostgresStore(other(object.__new__(psycopg.Connection))),
        "PostgresStore takes a psycopg_pool.ConnectionPool, not Connection; "
        "PostgresStore.open(url) makes one",
    ),
    "a row for a model": (
        lambda: DjangoStore(other(3)),
        "DjangoStore takes a model, a subclass of AbstractConversation, not int",
    ),
    "a class that is no model": (
        lambda: AsyncDjangoStore(other(dict)),
        "AsyncDjangoStore takes a model, a subclass of AbstractConversation, not the class dict",
    ),
    "no URL": (
        lambda: AsyncPostgresStore.open(other(3)),
        "AsyncPostgresStore.open takes a URL, such as 'postgresql://user@host/database', not int",
    ),
    "no path": (lambda: SQLiteStore(other(3)), "a SQLite store takes the path of a file, not int"),
    "a save function without the version": (
        lambda: CallableStore(lambda key: None, other(lambda key, blob: 1)),
        "CallableStore calls save(key, blob, expected), and the given function does not fit: "
        "too many positional arguments",
    ),
    "no load function": (
        lambda: CallableStore(other({}), lambda key, blob, expected: 1),
        "CallableStore takes a function load(key), not dict",
    ),
}


@pytest.mark.parametrize("name", STORES)
def test_a_store_says_what_it_takes(name: str) -> None:
    """Where it is made, and not in the middle of a turn that was paid for."""
    call, text = STORES[name]

    assert refused(call) == text


@pytest.mark.parametrize("store", [PostgresStore, AsyncPostgresStore])
@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "postgresql+asyncpg", "sqlite"])
def test_the_url_of_a_driver_is_not_tried_in_vain(store: Any, scheme: str) -> None:
    """``goaitools store`` takes URLs with a driver. A pool would try such a URL until its time is up."""
    text = refused(lambda: store.open(f"{scheme}://ada:secret@127.0.0.1/app"), ValueError)

    assert text == (
        f"{store.__name__}.open takes a URL that begins with 'postgresql://', got '{scheme}://'; the name of "
        "a driver, as in 'postgresql+psycopg://', is for SQLAlchemy"
    )


@pytest.mark.parametrize("ttl", [0, -1, float("inf"), float("nan")])
@pytest.mark.parametrize(
    "store",
    [
        lambda ttl: RedisStore(redis.Redis(), ttl=ttl),
        lambda ttl: AsyncRedisStore(redis.asyncio.Redis(), ttl=ttl),
    ],
)
def test_redis_is_not_asked_to_forget_at_once(store: Any, ttl: float) -> None:
    """Zero is "for ever" elsewhere; here it was a millisecond, and all conversations were gone."""
    text = refused(lambda: store(ttl), ValueError)

    assert text == (
        f"ttl must be more than 0 seconds and less than 3,155,760,000, got {ttl}; None is for ever"
    )
    assert refused(lambda: store("3600")) == "ttl must be a number of seconds, not str; None is for ever"


def test_the_path_of_a_store_is_no_url() -> None:
    """As SQLAlchemy and the command line write it."""
    assert refused(lambda: SQLiteStore("sqlite:///chat.db"), ValueError) == (
        "a SQLite store takes the path of a file, not a URL: write 'chat.db'"
    )


@pytest.mark.parametrize("store", [SQLiteStore, AsyncSQLiteStore])
def test_the_path_of_a_store_is_not_empty(store: Any) -> None:
    """SQLite deletes a database without a name when it is closed: with a setting that is missing, all
    conversations would be lost."""
    assert refused(lambda: store(""), ValueError) == (
        "a SQLite store takes the path of a file, and this one is empty: SQLite would delete such a database "
        "when it is closed; write a path, or ':memory:'"
    )


@pytest.mark.parametrize("option", ["thread", "strict", "idempotent", "external"])
@pytest.mark.parametrize("value", ["no", 0, 1])
def test_a_flag_of_a_tool_is_a_bool(option: str, value: Any) -> None:
    """A text such as "no" would count as True: a payment would run twice, or never."""

    def pay() -> str:
        return "paid"

    kind = type(value).__name__
    for make in (
        lambda: tool(**{option: value})(pay),
        lambda: Tool("pay", "", {"type": "object"}, pay, **{option: value}),
    ):
        assert refused(make) == f"{option} of tool 'pay' must be True or False, not {kind}"


def test_a_tool_is_described_in_text_and_timed_in_seconds() -> None:
    """The description goes to the provider as it is."""
    parameters = {"type": "object"}
    assert refused(lambda: Tool("pay", other(5), parameters, int)) == (
        "description of tool 'pay' must be str, not int"
    )
    assert refused(lambda: Tool("pay", "", parameters, int, timeout=True)) == (
        "timeout of tool 'pay' must be a number of seconds, not bool"
    )


@pytest.mark.parametrize("value", ["no", 1, None])
def test_a_second_run_is_approved_with_a_bool(value: Any) -> None:
    """Another true value would run a call again whose outcome is unknown."""
    assert refused(lambda: Approve(again=value)) == (
        f"again must be True or False, not {type(value).__name__}"
    )


@pytest.mark.parametrize("option", ["concurrent_turns", "plain_title"])
def test_a_flag_of_a_conversation_is_a_bool(option: str) -> None:
    """A text counts as True whatever it says."""
    keep = Chat("sim").conversation
    assert refused(lambda: keep(MemoryStore(), "ada", **{option: other("no")})) == (
        f"{option} must be True or False, not str"
    )


FLAGS: dict[str, Callable[[Any], object]] = {
    "strict": lambda value: Output(int, strict=value),
    "keep_attempts": lambda value: Output(int, keep_attempts=value),
    "trust_hints": lambda value: MCPTools("http://127.0.0.1/mcp", trust_hints=value),
    "ask": lambda value: MCPTools("http://127.0.0.1/mcp", ask=value),
}


@pytest.mark.parametrize("option", FLAGS)
def test_a_flag_is_a_bool(option: str) -> None:
    """A text counts as True whatever it says, and would trust a server that nobody trusts."""
    assert refused(lambda: FLAGS[option]("no")) == f"{option} must be True or False, not str"


def test_mcp_tools_are_named_in_text() -> None:
    """Found when the tools are made, not when the server is asked."""
    assert refused(lambda: MCPTools("http://127.0.0.1/mcp", prefix=other(5))) == "prefix must be str, not int"
    assert refused(lambda: MCPTools("http://127.0.0.1/mcp", only=other(5))) == (
        "only is a list of names, not int"
    )


@pytest.mark.parametrize("target", ["target_tokens", "target_messages"])
@pytest.mark.parametrize("value", [0, -5, "5", 1.5, True])
def test_the_target_of_a_cut_is_a_count(target: str, value: Any) -> None:
    """Else each cut would fail, with a warning at each turn, and the history would grow."""
    assert refused(lambda: DropOldest(**{target: value}), ValueError) == (
        f"{target} takes a whole number from 1 on, got {value!r}"
    )


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Any) -> None:
    """A folder that is missing, and a file of another kind."""
    other = tmp_path / "notes.txt"
    other.write_text("These are notes, and no database. " * 40)

    text = refused(lambda: SQLiteStore(tmp_path / "no" / "x.db").load("ada"), StoreUnavailableError)
    assert "its folder must exist" in text
    text = refused(lambda: SQLiteStore(other).load("ada"), StoreUnavailableError)
    assert text.endswith("notes.txt' is another file: name a new one")
    store = SQLiteStore(":memory:")
    store.close()
    text = refused(lambda: store.load("ada"), StoreUnavailableError)
    assert text.endswith("this store was closed: make another one")


def test_a_store_whose_save_does_not_fit_is_refused_before_the_turn() -> None:
    """The first save comes after the reply was paid for."""

    class Files:
        def load(self, key: str) -> None: ...
        def save(self, key: str, blob: bytes) -> None: ...

    chat = Chat(ScriptedBackend("paid"))

    assert refused(lambda: chat.conversation(other(Files()), "ada")) == (
        "a conversation calls save(key, blob, expected=…) of its store, and that of Files does not fit: got "
        "an unexpected keyword argument 'expected'"
    )


def test_what_is_no_store_is_told_what_to_do() -> None:
    """A path, a dict, a class; and a choice that is none."""
    chat = Chat("sim")

    for value, end in (
        ("chat.db", "got str; a file of SQLite is a SQLiteStore(path), in goaitools_py.stores"),
        ({}, "got dict; a MemoryStore() keeps in memory"),
        (MemoryStore, "got the class MemoryStore: call it, MemoryStore(…)"),
        (3, "got int"),
    ):
        text = refused(lambda value=value: chat.conversation(value, "ada"))  # type: ignore[misc]
        assert text.endswith(end)
    store = MemoryStore()
    for option in ("save", "gate", "parts"):
        given: Any = {option: "now"}
        text = refused(lambda given=given: chat.conversation(store, "ada", **given), ValueError)  # type: ignore[misc]
        assert text.endswith("; got 'now'")
