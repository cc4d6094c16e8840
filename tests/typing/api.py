"""What the public API means to a type checker: read by ``mypy --strict``, never run.

A function here is a promise. If a signature changes so that callers' code would stop checking, this fails.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, assert_type

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from sqlalchemy import Dialect, Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.types import TypeDecorator
from starlette.requests import Request

from goaitools_py import (
    NO_COMPACTION,
    PLAIN,
    UNBOUND,
    UNSET,
    Action,
    Appended,
    Approve,
    AsyncChat,
    AsyncConversation,
    AsyncTurn,
    Audio,
    Chat,
    ChatOptions,
    ChatResult,
    CheckpointReady,
    ClearToolResults,
    Compacted,
    Compactor,
    ContextWarning,
    Conversation,
    Deny,
    Document,
    DropOldest,
    Event,
    GoAIToolsError,
    Image,
    KeepRecentTurns,
    Limits,
    Message,
    MessageLimit,
    ModelReplied,
    ModelRequested,
    ModelSettings,
    NothingToResumeError,
    PendingCall,
    ProviderTool,
    ReasoningDelta,
    StateAuthError,
    StateConflictError,
    StateCorruptError,
    StateDiscarded,
    StateError,
    StateFormatError,
    StateInvalidError,
    StatePartMissingError,
    StateProviderError,
    StateSaved,
    StateTooLargeError,
    StateVersionError,
    StoreCommitError,
    StoreError,
    Summarize,
    Text,
    TextDelta,
    Timeouts,
    TokenLimit,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolFinished,
    ToolRecord,
    ToolResult,
    ToolReturn,
    ToolStarted,
    Turn,
    TurnCompleted,
    TurnError,
    TurnLimit,
    TurnStarted,
    TurnWarning,
    Usage,
    all_of,
    any_of,
    assistant,
    event,
    first_of,
    system,
    tool,
    user,
)
from goaitools_py.backends import (
    AnthropicBackend,
    AsyncAnthropicBackend,
    AsyncBackend,
    AsyncExchange,
    AsyncOpenAIChatBackend,
    AsyncOpenAIResponsesBackend,
    Backend,
    Exchange,
    ModelRequest,
    OpenAIChatBackend,
    OpenAIResponsesBackend,
    ResponseHead,
)
from goaitools_py.chat.kept.facade import ConversationInfo
from goaitools_py.chat.kept.summaries import Summaries
from goaitools_py.compaction import (
    AskModel,
    AskProvider,
    ByteLimit,
    ColdCache,
    CollapseToolExchanges,
    CompactionReport,
    CompactionRequest,
    ContextWindow,
    DropMedia,
    MiddleOut,
    ModelAnswer,
    NoChange,
    PendingLimit,
    ProviderCompaction,
    ServerCompaction,
    ServerThinkingClearing,
    ServerToolClearing,
    TurnView,
)
from goaitools_py.frontends import (
    AGUI,
    AISDK,
    KEEP_ALIVE,
    PLAIN_JSON,
    Ask,
    CarryingFrontEnd,
    FrontEnd,
    FrontStream,
    Piece,
    Problem,
    ProblemError,
    Shown,
    SnapshotFrontEnd,
    pieces_of,
    problem_of,
    split_reply,
)
from goaitools_py.integrations.sqlalchemy import StateType
from goaitools_py.output import Output, OutputDelta, OutputError
from goaitools_py.prices import Charge, Prices, genai_price
from goaitools_py.seal import BlobLimits, Codec, Encrypted, Key, Keyring, Plain, Signed, rewrap
from goaitools_py.serve import (
    Caller,
    MemoryRelay,
    Opened,
    RedisRelay,
    Refused,
    Relay,
    RelayLostError,
    Revisions,
    ServeApp,
    ServeLimits,
    StatelessApp,
    serve,
)
from goaitools_py.states import (
    FORMAT_VERSIONS,
    HISTORY_SCHEMA,
    RESULT_SCHEMA,
    Conversion,
    EditError,
    History,
    HistoryCall,
    HistoryIteration,
    HistoryMatch,
    HistoryTurn,
    Loss,
    LossKind,
    RedactedPlace,
    Redaction,
    StateInfo,
    Step,
    convert_state,
    estimate_tokens,
    fork_state,
    inspect_state,
    pending_calls,
    read_history,
    rebase_state,
    redact_state,
    rewind_state,
    state_from_messages,
    state_from_text,
    state_messages,
    state_to_text,
    undo_cut,
    upgrade_state,
)
from goaitools_py.stores import (
    AsyncCallableStore,
    AsyncDeleting,
    AsyncLease,
    AsyncLeasing,
    AsyncListing,
    AsyncMemoryStore,
    AsyncRedisStore,
    AsyncSQLAlchemyStore,
    AsyncSQLiteStore,
    AsyncStore,
    CallableStore,
    Deleting,
    Lease,
    LeaseHeldError,
    Leasing,
    Listing,
    MemoryStore,
    RedisStore,
    SQLAlchemyStore,
    SQLiteStore,
    Store,
    Stored,
    StoredKey,
    StoredPage,
)
from goaitools_py.testing import ScriptedBackend, SimServer, check_history, store_contract
from goaitools_py.tokens import Frames, TiktokenCounter, TokenCounter, TokenEstimate
from goaitools_py.types.answers import PendingReason
from goaitools_py.types.citations import Citation
from goaitools_py.types.events import FellBack, StateConverted


class Game:
    score: int = 0


# ------------------------------------------------------------------------------------------ both chats


def blocking(chat: Chat, saved: bytes | bytearray | memoryview | None, options: ChatOptions) -> None:
    text, state = chat.chat_with_state(saved, user="Hello.")
    assert_type(text, str)
    assert_type(state, bytes)
    assert_type(chat.chat(user="Hello."), ChatResult)
    assert_type(chat.chat_with_state(saved, options, timeout=5.0), ChatResult)
    assert_type(chat.resume(state), ChatResult)
    resumed = chat.resume(state, {"a": Approve({"points": 1}), "b": Deny("why"), "c": ToolReturn(3)})
    assert_type(resumed, ChatResult)
    assert_type(pending_calls(state)[0].reason, PendingReason)
    assert_type(chat.run_turns(None, ["Hello.", "Goodbye."]), ChatResult)
    assert_type(chat.run_turns(None, ["Hello.", "Goodbye."]).turns_left, tuple[str, ...])
    assert_type(GoAIToolsError().turns_left, tuple[str, ...])
    assert_type(GoAIToolsError().sdk_error, BaseException | None)
    caught_as_both: tuple[GoAIToolsError, ValueError] = (NothingToResumeError(), NothingToResumeError())
    print(caught_as_both)
    assert_type(chat.append_to_state(state, event("It rains."), user("Hm.")), bytes)
    assert_type(chat.compact_state(state, Compactor(MessageLimit(4), KeepRecentTurns(1))), CompactionReport)
    with chat as same, same.start(state, options, user="Hello.") as turn:
        assert_type(same, Chat)
        assert_type(turn, Turn)
        assert_type(iter(turn), Iterator[Event])
        assert_type(turn.text_deltas(), Iterator[str])
        assert_type(turn.state, bytes)
        assert_type(turn.result(), ChatResult)
        turn.append(event("It still rains."))
        turn.cancel()
    chat.warm_up()
    chat.close()


def kept(chat: Chat, store: Store, options: ChatOptions) -> None:
    thread = chat.conversation(store, "ada", save="checkpoint", gate="reject", binding={"user": "ada"})
    chat.conversation(store, "ada", lease_ttl=10.0, save_timeout=5.0)
    assert_type(thread, Conversation)
    assert_type(thread.send("Hello.", options, turn_id="m-1"), ChatResult)
    text, state = thread.send(user="Hello.")
    assert_type((text, state), tuple[str, bytes])
    assert_type(thread.resume({"a": Approve(), "b": Approve(again=True)}), ChatResult)
    with thread.start("Hello.") as turn:
        assert_type(turn, Turn)
    ids = thread.append(event("It rains."), user("Hm."))
    assert_type(ids, tuple[str, ...])
    assert_type(thread.withdraw(ids[0]), bool)
    assert_type(thread.send("Hm.", gate="steer"), ChatResult[Any])
    assert_type(thread.compact(Compactor(MessageLimit(4), KeepRecentTurns(1))), CompactionReport)
    assert_type(thread.compact(if_due=True, system="Be brief."), CompactionReport)
    assert_type(thread.history(), History)
    assert_type(thread.pending(), tuple[PendingCall, ...])
    info = thread.info()
    if info is not None:
        assert_type(info, ConversationInfo)
        assert_type((info.key, info.version, info.saved_at), tuple[str, int, datetime])
        assert_type((info.state, info.metadata), tuple[StateInfo, Mapping[str, str]])
    assert_type(thread.fork("bob"), Conversation)
    assert_type(thread.summaries("ada/", cursor=None, limit=9), Summaries)
    assert_type(thread.summaries("ada/").is_ordered, bool)
    try:
        thread.send("Hello!", edit=3, turn_id="m-2")
    except EditError as error:
        print(error)
    thread.rewind(2)
    thread.undo_cut()
    assert_type(thread.redact(re.compile("a"), "-"), Redaction)
    assert_type(thread.export(), dict[str, Any] | None)
    assert_type(thread.erase(), int)
    thread.erase(turns=1)  # type: ignore[call-arg]
    thread.reset()
    try:
        thread.send("Hello.")
    except StoreCommitError as error:
        assert_type(thread.commit(error), bytes)
    except StateConflictError as error:
        assert_type((error.state, error.text), tuple[bytes, str])
    except TurnError as error:
        assert_type(error.unsaved, Exception | None)


async def kept_awaited(chat: AsyncChat, store: AsyncStore) -> None:
    thread = chat.conversation(store, "ada")
    assert_type(thread, AsyncConversation)
    assert_type(await thread.send("Hello."), ChatResult)
    async with thread.start("Hello.") as turn:
        assert_type(turn, AsyncTurn)
    ids = await thread.append(event("It rains."))
    assert_type(await thread.withdraw(ids[0]), bool)
    assert_type(await thread.info(), ConversationInfo | None)
    assert_type(await thread.summaries("ada/"), Summaries)
    assert_type(await thread.fork("bob"), AsyncConversation)


async def awaited(chat: AsyncChat, saved: bytes | None, options: ChatOptions) -> None:
    text, state = await chat.chat_with_state(saved, user="Hello.")
    assert_type(text, str)
    assert_type(state, bytes)
    assert_type(await chat.chat(user="Hello."), ChatResult)
    assert_type(await chat.resume(state), ChatResult)
    assert_type(await chat.run_turns(None, ["Hello.", "Goodbye."]), ChatResult)
    assert_type(chat.append_to_state(state, event("It rains."), binding=UNBOUND), bytes)
    assert_type(await chat.compact_state(state, dry_run=True), CompactionReport)
    async with chat as same, same.start(state, options, user="Hello.") as turn:
        assert_type(same, AsyncChat)
        assert_type(turn, AsyncTurn)
        assert_type(aiter(turn), AsyncIterator[Event])
        assert_type(turn.text_deltas(), AsyncIterator[str])
        assert_type(turn.state, bytes)
        assert_type(await turn.result(), ChatResult)
        await turn.cancel()
    await chat.warm_up()
    await chat.aclose()


def made(backend: Backend, other: AsyncBackend, options: ChatOptions) -> None:
    Chat("openai:MODEL")
    Chat("openai:MODEL", fallbacks=["anthropic:MODEL"], fallback_rest=60, max_concurrent_calls=8)
    Chat(backend, options, codec=PLAIN, system="You are a guide.")
    Chat(backend, codec=Signed(Keyring(Key.generate())), binding=UNBOUND)
    AsyncChat("openai:MODEL", http="aiohttp")
    AsyncChat(other, codec=Encrypted(Keyring(Key.generate()), visible_to="client", max_age=3600))
    roomy = Plain(limits=BlobLimits(max_entries=20_000))
    codecs: list[Codec] = [
        PLAIN,
        roomy,
        Signed(Keyring(Key.generate())),
        Encrypted(Keyring(Key.generate())),
    ]
    Chat(backend, codec=codecs[0])
    Chat(OpenAIChatBackend("MODEL", base_url="http://127.0.0.1:1/v1", api_key="KEY"))
    AsyncChat(other, tools=[one])
    AsyncChat(AsyncOpenAIChatBackend("MODEL", context_window=128_000))
    Chat(OpenAIResponsesBackend("MODEL", api_key=lambda: "KEY", organization="org"))
    AsyncChat(AsyncOpenAIResponsesBackend("MODEL"))
    Chat(AnthropicBackend("MODEL", betas=["BETA"], auth_token="TOKEN"))
    AsyncChat(AsyncAnthropicBackend("MODEL", max_retries=0))
    Chat(AsyncAnthropicBackend("MODEL"))  # type: ignore[arg-type]
    AsyncChat(OpenAIResponsesBackend("MODEL"))  # type: ignore[arg-type]
    Chat(ScriptedBackend("Hello."))
    AsyncChat(ScriptedBackend("Hello."))
    Chat(other)  # type: ignore[arg-type]
    AsyncChat(backend)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------- options


def options(saved: list[bytes]) -> ChatOptions:
    return ChatOptions(
        user=["What is this?", Image.from_url("https://example.org/map.png")],
        messages=(system("Be brief."), user("Hello.", Text("Again.")), assistant("Hello.")),
        context="Time: 10:20",
        tools=[one, read, ProviderTool({"type": "web_search"})],
        deps=Game(),
        settings=ModelSettings(model="MODEL", temperature=0.2, stop=["END"], extra_body={"k": 1}),
        sticky_settings=True,
        compactor=NO_COMPACTION,
        limits=Limits(max_tool_calls=3, max_tokens=1_000, conversation_max_tokens=10_000, max_cost_usd=0.5),
        token_counter=TokenEstimate(Frames()),
        context_marks=(0.5, 0.8),
        prices=genai_price,
        on_limit="raise",
        timeout=Timeouts(turn=None, call=60, first_delta=10.0),
        tool_errors="to_model",
        max_tool_result_bytes=4_096,
        keep_results="store",
        on_event=seen,
        on_checkpoint=saved.append,
        on_bad_state=UNSET,
        on_foreign_state="convert",
        metadata={"channel": "web"},
    )


def refused_options() -> None:
    ChatOptions(on_limit="ask")  # type: ignore[arg-type]
    ChatOptions(usr="Hello.")  # type: ignore[call-arg]
    ModelSettings(temperature="hot")  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------- tools


@tool
def one(ctx: ToolContext[Game], points: int) -> int:
    """Add points."""
    assert_type(ctx.deps, Game)
    ctx.log_action("Added points", points=points)
    assert_type(ctx.actions, tuple[Action, ...])
    return ctx.deps.score + points


@tool(name="read_it", timeout=5.0, thread=False)
async def read(name: str) -> ToolReturn:
    """Read something."""
    if not name:
        raise ToolError("Give a name.")
    return ToolReturn({"name": name}, is_error=False)


def roll() -> int:
    return 4


async def tools() -> None:
    assert_type(one(ToolContext(deps=Game()), 3), int)
    assert_type(await read("it"), ToolReturn)
    one("not a context", 3)  # type: ignore[arg-type]
    assert_type(Tool("roll", "Roll dice.", {"type": "object"}, roll), Tool[[], int])
    Tool("ask_a_human", "Ask the support team.", {"type": "object"}, external=True)


# ------------------------------------------------------------------------------------- compaction


def newest(request: CompactionRequest) -> Sequence[TurnView]:
    assert_type(request.turns, tuple[TurnView, ...])
    assert_type(request.turns[0].messages, tuple[Message, ...])
    return request.turns[-1:]


def is_long(request: CompactionRequest) -> bool:
    return request.message_count > 10 and request.token_count > 100


def asking(request: CompactionRequest) -> Generator[AskModel, ModelAnswer, Sequence[TurnView] | NoChange]:
    older = request.turns[:-2]
    answer = yield AskModel(turns=older, instruction="Which door is open?", backend="openai:MODEL")
    assert_type(answer.text, str)
    return (request.note(answer.text), *request.turns[-2:]) if answer.text else NoChange("nothing was said")


def keep(turns: tuple[TurnView, ...]) -> None: ...


async def keep_later(turns: tuple[TurnView, ...]) -> None: ...


def compactors() -> None:
    Compactor.default("openai:gpt-5", beside=4_000)
    assert_type(Compactor.never_forgets("gpt-5"), Compactor)
    deep = Compactor(all_of(TokenLimit(8_000), is_long), DropOldest(target_tokens=4_000))
    first_of(deep, Compactor(any_of(MessageLimit(40), is_long), newest), NO_COMPACTION)
    Compactor(any_of(ByteLimit(60_000), TurnLimit(40)), MiddleOut(first=1, last=4), before_cut=keep)
    Compactor(all_of(ColdCache(), PendingLimit(3)), asking, before_cut=keep_later)
    Compactor(TokenLimit(30_000), ClearToolResults(keep=3))
    Compactor(TokenLimit(30_000), CollapseToolExchanges(keep_turns=2))
    Compactor(TokenLimit(30_000), DropMedia(after_turns=2))
    Compactor(TokenLimit(60_000), Summarize(keep_turns=4))
    Compactor(TokenLimit(60_000), Summarize("openai:MODEL", keep_turns=4))
    Compactor(TokenLimit(60_000), ProviderCompaction(keep_turns=2, instructions="Keep names.", fallback=None))
    ModelSettings(context_management=[ServerCompaction(above_tokens=60_000, instructions="Keep names.")])
    ModelSettings(context_management=(ServerToolClearing(above_tokens=30_000, keep=3, keep_tools=["look"]),))
    ModelSettings(context_management=[ServerThinkingClearing(keep="all"), ServerThinkingClearing(keep=2)])
    ProviderCompaction(2, context_management=[ServerCompaction(above_tokens=60_000)])
    assert_type(AskProvider(turns=()).instructions, str)
    windows = ContextWindow(max_tokens=8_000, max_messages=40, min_recent_turns=3, strategy="middle_out")
    first_of(windows, ContextWindow(max_messages=100, preserve_system=False, strategy=newest))


# --------------------------------------------------------------------------------------- tokens and costs


def my_price(charge: Charge) -> Decimal | None:
    return Decimal(charge.usage.input_tokens) / 1_000_000 if charge.model == "MODEL" else None


async def accounts(blob: bytes, chat: Chat, aside: AsyncChat) -> None:
    counter: TokenCounter = TokenEstimate()
    counter = TiktokenCounter("gpt-4o")
    prices: Prices = my_price
    prices = genai_price
    assert_type(counter.count(user("Hello.")), int)
    assert_type(prices(Charge(model="MODEL")), Decimal | None)
    assert_type(estimate_tokens(blob, codec=PLAIN, binding=None), int)
    assert_type(chat.count_tokens(blob, user="Hello."), int)
    assert_type(await aside.count_tokens(None, user="Hello."), int)


# ------------------------------------------------------------------------------ what a turn gives back


def result(result: ChatResult) -> None:
    assert_type(result.text, str)
    assert_type(result.state, bytes)
    assert_type(
        result.status, Literal["complete", "awaiting_tools", "truncated", "refused", "limited", "in_progress"]
    )
    assert_type(result.usage, Usage)
    assert_type(result.citations, tuple[Citation, ...])
    assert_type(result.usage + result.total_usage, Usage)
    assert_type(result.tool_log, tuple[ToolRecord, ...])
    assert_type(result.tool_log[0].call, ToolCall)
    assert_type(result.warnings, tuple[TurnWarning, ...])
    assert_type(result.compaction, CompactionReport | None)
    assert_type(result.pending, tuple[PendingCall, ...])
    assert_type(result.pending[0].shown, str)
    assert_type(result.pending[0].raw, dict[str, Any] | None)
    assert_type(result.pending[0].kind, Literal["function", "custom", "provider"])
    assert_type(result.cost_usd, Decimal | None)
    assert_type(result.total_cost_usd, Decimal | None)
    assert_type(result.aside_usage, Usage)
    assert_type(result.usage.uncached_input_tokens, int)
    assert_type(result.context_used, int)
    assert_type(result.context_fraction, float | None)
    assert_type(result.discarded, StateError | None)
    assert_type(result.request_ids, tuple[str, ...])


def seen(event: Event) -> None:
    assert_type(event.to_dict(), dict[str, Any])
    match event:
        case TextDelta() | ReasoningDelta():
            assert_type(event.text, str)
        case TurnStarted():
            assert_type(event.conversation_id, str)
        case ModelRequested():
            assert_type(event.bytes_sent, int)
        case ModelReplied():
            assert_type(event.usage, Usage)
            assert_type((event.model, event.seconds, event.request_id), tuple[str, float, str])
        case Appended() | StateSaved():
            assert_type((event.conversation_id, event.turn_ref), tuple[str, str])
        case ToolStarted() | ToolFinished():
            assert_type(event.name, str)
        case CheckpointReady():
            assert_type(event.blob, bytes)
        case Compacted():
            assert_type(event.report, CompactionReport)
        case ContextWarning():
            assert_type(event.level, Literal["approaching", "at_limit"])
            assert_type(event.of, Literal["tokens", "blob_bytes", "decoded_bytes", "entries"])
            assert_type((event.used, event.limit), tuple[int, int])
        case StateDiscarded():
            assert_type(event.error, StateError)
        case StateConverted():
            assert_type((event.found, event.to), tuple[str, str])
            assert_type(event.lost, tuple[tuple[str, int], ...])
        case FellBack():
            assert_type((event.failed, event.to, event.reason), tuple[str, str, str])
            assert_type(event.status_code, int | None)
        case TurnCompleted():
            assert_type(event.result, ChatResult)


def failed(error: GoAIToolsError) -> bytes | None:
    if isinstance(error, TurnError):
        assert_type(error.pending_input, tuple[Message, ...])
        assert_type(error.partial_text, str)
        assert_type(error.tool_log, tuple[ToolRecord, ...])
        assert_type(error.retryable, bool)
        assert_type(error.retry_after, float | None)
        assert_type((error.code, error.cost_usd), tuple[str, Decimal | None])
        return error.state
    if isinstance(error, StatePartMissingError):
        print(error.digest)
    if isinstance(error, StateProviderError):
        assert_type(error.found, str)
    if isinstance(error, StateTooLargeError):
        assert_type(error.limit, int)
    if isinstance(error, StateError):
        return error.blob
    return None


STATE_ERRORS: tuple[type[StateError], ...] = (
    StateAuthError,
    StateCorruptError,
    StateFormatError,
    StateInvalidError,
    StatePartMissingError,
    StateProviderError,
    StateTooLargeError,
    StateVersionError,
)
STORE_ERRORS: tuple[type[StoreError], ...] = (LeaseHeldError, StateConflictError)


# ------------------------------------------------------------------------------- states without a model


def states(blob: bytes) -> None:
    info = inspect_state(blob)
    assert_type(info, StateInfo)
    assert_type(info.created_at, datetime)
    assert_type(info.total_usage, Usage)
    assert_type((info.roles, info.pending), tuple[Mapping[str, int], tuple[PendingCall, ...]])
    assert_type((info.is_sealed, info.suite, info.key_id), tuple[bool, str, int])
    history = read_history(blob)
    assert_type(history, History)
    assert_type(history.turns, tuple[HistoryTurn, ...])
    assert_type(
        (info.failure, history.turns[0].failure), tuple[tuple[str, str] | None, tuple[str, str] | None]
    )
    assert_type(history.iteration(1), HistoryIteration)
    assert_type(history.iteration(1).tool_calls, tuple[ToolCall, ...])
    assert_type(history.iteration(1).calls, tuple[HistoryCall, ...])
    assert_type(history.iteration_messages(1), tuple[Message, ...])
    assert_type(history.tool_calls("pay"), tuple[HistoryCall, ...])
    assert_type((history.turns[0].text, history.turns[0].speaker), tuple[str, str | None])
    assert_type(history.turns[0].cost(genai_price), Decimal | None)
    found: HistoryMatch = history.find("key")[0]
    assert_type((found.turn, found.iteration), tuple[HistoryTurn | None, int])
    assert_type(history.to_dict(media=True), dict[str, Any])
    assert_type(HISTORY_SCHEMA, Mapping[str, Any])
    assert_type(RESULT_SCHEMA, Mapping[str, Any])
    assert_type(found.message.to_dict(), dict[str, Any])
    assert_type(history.all_messages(), tuple[Message, ...])
    assert_type(state_messages(blob), list[Any])
    assert_type(state_from_messages("openai", [{"role": "user", "content": "Hello."}]), bytes)
    assert_type(state_from_messages("anthropic", [], repair=True), bytes)
    conversion = convert_state(blob, "anthropic", codec=PLAIN, min_revision=3)
    assert_type(conversion, Conversion)
    assert_type((conversion.state, conversion.losses), tuple[bytes, tuple[Loss, ...]])
    assert_type(
        [(loss.turn, loss.kind, loss.count) for loss in conversion.losses], list[tuple[int, LossKind, int]]
    )


async def steps(chat: Chat, other: AsyncChat, state: bytes) -> None:
    step = chat.step(state, {"call_1": Approve()}, user="Hello.")
    assert_type(step, Step)
    assert_type(step.status, Literal["in_progress", "waiting_for_tools", "complete", "failed"])
    assert_type(step.result, ChatResult | None)
    assert_type(step.error, TurnError | None)
    assert_type(await other.step(step.state), Step)


def parts(message: Message, result: ToolResult) -> None:
    assert_type(message.parts, tuple[Text | Image | Document | Audio, ...])
    assert_type(message.text, str)
    assert_type(result.text, str)
    user(Document.from_bytes(b"%PDF"), Audio.from_path("hello.wav"))
    assert_type(user("Hello.", speaker="Ada", pinned=True).pinned, bool | None)
    assert_type(event("It rains.", topic="sky", pinned=True), Message)
    assert_type(system("Be brief.", pinned=False), Message)
    KeepRecentTurns(4, notes_tools=True)
    user(1)  # type: ignore[arg-type]


def sealed(chat: Chat, secret: str, saved: bytes) -> None:
    key = Key.from_text(secret)
    assert_type(key.to_text(), str)
    assert_type(key.id, int)
    ring = Keyring(Key.generate(), key)
    assert_type(ring.primary, Key)
    codec, binding = Encrypted(ring), {"user": "ada"}
    assert_type(rewrap(saved, codec, binding=binding), bytes)
    assert_type(rewrap(saved, PLAIN, to=Signed(ring, max_age=60.0), to_binding=UNBOUND), bytes)
    assert_type(rebase_state(saved, base=None, theirs=saved), bytes)
    assert_type(rewind_state(saved, 2), bytes)
    assert_type(undo_cut(saved, codec=codec, binding=binding, min_revision=3), bytes)
    assert_type(upgrade_state(saved, codec=codec, binding=binding, min_revision=3), bytes)
    assert_type(FORMAT_VERSIONS[1], str)
    redacted = redact_state(saved, re.compile("a"), "-", codec=codec, binding=binding, min_revision=3)
    assert_type(redacted, Redaction)
    assert_type(redacted.state, bytes)
    assert_type(redacted.places, tuple[RedactedPlace, ...])
    redact_state(saved, lambda text: [(0, len(text))])
    redact_state(saved, re.compile(b"a"))  # type: ignore[arg-type]
    assert_type(fork_state(saved, conversation_id="b"), bytes)
    assert_type(state_to_text(saved), str)
    assert_type(state_from_text("gas1.AA"), bytes)
    chat.chat_with_state(saved, user="Hello.", binding=binding, min_revision=3)
    chat.append_to_state(saved, event("It rains."), binding=binding, min_revision=3)
    inspect_state(saved, codec=codec, binding=binding, min_revision=3)
    Encrypted(ring, visible_to="everybody")  # type: ignore[arg-type]
    Signed(key)  # type: ignore[arg-type]


def stores(path: str) -> Store:
    store = SQLiteStore(path)
    assert_type(store.load("ada"), Stored | None)
    assert_type(store.save("ada", b"", expected=None), int)
    return store


def every_store(path: str, engine: Engine, client: Redis) -> tuple[Store, ...]:
    return (
        MemoryStore(),
        SQLiteStore(path),
        SQLAlchemyStore(engine, table="chats", schema=None, ttl=3600.0),
        SQLiteStore(path, busy_timeout=5.0, ttl=3600.0),
        RedisStore(client, ttl=3600.0, prefix="chats", wait_replicas=1, wait_seconds=0.5),
        RedisStore.open("redis+cluster://one:6379,two:6379", timeout=5.0, wait_replicas=1),
        RedisStore(client, ttl=3600.0, prefix="chats", recent=True),
        CallableStore(lambda key: None, lambda key, blob, expected: None),
    )


def every_async_store(
    path: str,
    engine: AsyncEngine,
    client: AsyncRedis,
    load: Callable[[str], Awaitable[Stored | None]],
    save: Callable[[str, bytes, int | None], Awaitable[int | None]],
) -> tuple[AsyncStore, ...]:
    return (
        AsyncMemoryStore(),
        AsyncSQLiteStore(path),
        AsyncSQLAlchemyStore(engine, ttl=3600.0),
        AsyncRedisStore(client),
        AsyncCallableStore(load, save),
    )


def what_stores_may_do(store: Store) -> None:
    if isinstance(store, Deleting):
        assert_type(store.delete("ada", expected=1), bool)
    if isinstance(store, Listing):
        page = store.list("a", cursor=None, limit=10)
        assert_type(page, StoredPage)
        assert_type(page.keys, tuple[StoredKey, ...])
    if isinstance(store, Leasing):
        with store.lease("ada", 60.0) as lease:
            assert_type(lease, Lease)
            assert_type(lease.renew(), bool)
    stores_of_our_own: tuple[Leasing, Leasing] = (MemoryStore(), SQLiteStore(":memory:"))
    store_contract(lambda: stores_of_our_own[0], max_blob_bytes=1_000, lease_ttl=0.5, expire=print)


async def what_async_stores_may_do(store: AsyncStore) -> None:
    if isinstance(store, AsyncDeleting):
        assert_type(await store.delete("ada"), bool)
    if isinstance(store, AsyncListing):
        assert_type(await store.list("a"), StoredPage)
    if isinstance(store, AsyncLeasing):
        async with store.lease("ada", 60.0) as lease:
            assert_type(lease, AsyncLease)
            assert_type(await lease.renew(), bool)


def columns(blob: bytes, dialect: Dialect) -> TypeDecorator[bytes]:
    column = StateType()
    assert_type(column.process_bind_param(blob, dialect), bytes | None)
    return column


async def backends(one: Backend, other: AsyncBackend, request: ModelRequest) -> None:
    assert_type(one.send(request), Exchange)
    assert_type(one.send(request).head, ResponseHead)
    assert_type(await other.asend(request), AsyncExchange)


def test_kit(messages: Sequence[Mapping[str, Any]]) -> None:
    with SimServer() as sim:
        assert_type(sim.base_url, str)
    assert_type(check_history("openai", messages), list[str])


def front_ends(front: FrontEnd, body: bytes, conversation: Conversation, error: Exception) -> None:
    assert_type(AISDK, CarryingFrontEnd)
    assert_type(PLAIN_JSON, CarryingFrontEnd)
    assert_type(AGUI, SnapshotFrontEnd)
    asked = front.read(body)
    assert_type(asked, Ask)
    assert_type(asked.turn_id, str | None)
    answers = asked.answers_to(conversation.pending())
    stream = front.stream(goes_on=True)
    assert_type(stream, FrontStream)
    for told in conversation.start_resume(answers):
        assert_type(stream.feed(told), list[bytes])
    assert_type([*stream.fail(error), *stream.stop(), KEEP_ALIVE], list[bytes])
    for turn in conversation.history().turns:
        assert_type(pieces_of(turn), tuple[Piece, ...])
        assert_type(split_reply(turn.text, 2_000), Iterator[str])
    assert_type(problem_of(error), Problem)
    assert_type(ProblemError(problem_of(error)).problem, Problem)
    assert_type(front.history(conversation.history(), conversation_id="ada"), list[dict[str, Any]])
    shown = Shown(history=conversation.history(), conversation_id="ada", pending=conversation.pending())
    assert_type(AGUI.answering(asked, shown), FrontEnd)


def server(chat: AsyncChat, store: AsyncStore) -> None:
    async def whose(request: Request, name: str) -> Caller:
        if not name:
            raise Refused(401)
        return Caller(name, options={"deps": 1}, trusted=True)

    app = serve(chat, store, key=whose, frontends=(AISDK, AGUI), limits=ServeLimits(turns=9))
    assert_type(app, ServeApp)
    running: AbstractAsyncContextManager[None] = app.running()
    assert running


def without_a_store(chat: AsyncChat, front: CarryingFrontEnd) -> None:
    newest: dict[str, int] = {}
    revisions: Revisions = (
        lambda who: newest.get(who.key),
        lambda who, number: newest.update({who.key: number}),
    )
    app = serve(chat, None, key=lambda request, name: Caller(name, binding="ada"), revisions=revisions)
    assert_type(app, StatelessApp)
    assert_type(front.carrying(), FrontEnd)
    assert_type(chat.codec, Codec)


async def several_workers(chat: AsyncChat, store: AsyncStore, client: AsyncRedis) -> None:
    relay: Relay = RedisRelay(client, prefix="game", keep_seconds=60, alive_seconds=10, entries=1_000)
    serve(chat, store, key=lambda request, name: Caller(name), relay=relay, compact="after", gate="steer")
    opened = await MemoryRelay(keep_seconds=9).find("ada")
    assert_type(opened, Opened | None)
    assert_type(RelayLostError("gone").retryable, bool)


class Verdict:
    """A type that answers may have."""


async def typed_answers(
    chat: Chat, beside: AsyncChat, thread: Conversation, other: AsyncConversation, delta: OutputDelta
) -> None:
    asked = Output(Verdict, mode="prompt", strict=False, retries=2, name="verdict", keep_attempts=True)
    assert_type(asked, Output[Verdict])
    assert_type(chat.chat(user="Judge.", output_type=Verdict), ChatResult[Verdict])
    result = chat.chat_with_state(None, user="Judge.", output_type=list[Verdict])
    assert_type(result.output, list[Verdict] | None)
    text, state = result
    assert_type(text, str)
    assert_type(state, bytes)
    assert_type(chat.start(None, user="Judge.", output_type=asked), Turn[Verdict])
    assert_type(chat.start(None, user="Judge.", output_type=asked).result(), ChatResult[Verdict])
    assert_type(chat.resume(b"", output_type=asked), ChatResult[Verdict])
    assert_type(chat.start_resume(b"", output_type=Verdict), Turn[Verdict])
    assert_type(chat.run_turns(None, ["Judge."], output_type=Verdict), ChatResult[Verdict])
    assert_type(chat.chat(user="Judge.", output_type=int | str), ChatResult)
    assert_type(chat.chat(user="Judge."), ChatResult)
    assert_type(thread.send("Judge.", output_type=Verdict), ChatResult[Verdict])
    assert_type(thread.start("Judge.", output_type=Verdict), Turn[Verdict])
    assert_type(thread.resume(output_type=Verdict), ChatResult[Verdict])
    assert_type(thread.start_resume(output_type=Verdict), Turn[Verdict])
    assert_type(await beside.chat(user="Judge.", output_type=Verdict), ChatResult[Verdict])
    assert_type(await beside.chat_with_state(None, user="J.", output_type=Verdict), ChatResult[Verdict])
    assert_type(beside.start(None, user="Judge.", output_type=Verdict), AsyncTurn[Verdict])
    assert_type(await beside.start(None, user="J.", output_type=Verdict).result(), ChatResult[Verdict])
    assert_type(await beside.resume(b"", output_type=Verdict), ChatResult[Verdict])
    assert_type(beside.start_resume(b"", output_type=Verdict), AsyncTurn[Verdict])
    assert_type(await beside.run_turns(None, ["Judge."], output_type=Verdict), ChatResult[Verdict])
    assert_type(await other.send("Judge.", output_type=Verdict), ChatResult[Verdict])
    assert_type(other.start("Judge.", output_type=Verdict), AsyncTurn[Verdict])
    assert_type(await other.resume(output_type=Verdict), ChatResult[Verdict])
    assert_type(other.start_resume(output_type=Verdict), AsyncTurn[Verdict])
    assert_type(delta.partial, Any)
    assert_type(chat.extract("Guilty.", Verdict), Verdict)
    assert_type(await beside.extract("Guilty.", Output(Verdict)), Verdict)
    try:
        chat.chat(user="Judge.", output_type=Verdict)
    except OutputError as error:
        assert_type(error.errors, tuple[tuple[str, str], ...])


def checked(verdict: Verdict) -> None:
    assert_type(Output(Verdict, validate=checked).of, type[Verdict])
