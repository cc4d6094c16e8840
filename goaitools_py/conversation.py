"""A conversation that is kept in a store: `Conversation` and `AsyncConversation`.

Owns: the two colours' face of it. Must never know: what is done in which order (`threads`), an engine of a
store, or a chat beyond the five things that `Ports` names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, Unpack

from .backends.base import Dialect
from .errors import StateConflictError, TurnError
from .history.info import StateInfo, inspect_state, pending_calls
from .history.turns import History, read_history
from .messages import Message
from .observers import notify, notify_async
from .options import ChatOptions, Said, given_options
from .result import ChatResult, CompactionReport
from .state.codec import Codec
from .state.state import closed_turns, load_state
from .threads import thread as threads
from .threads.kept import AsyncKeptSteps, KeptSteps
from .threads.leases import AsyncRenewal, Renewal
from .threads.row import MAX_KEY_BYTES, RowSettings
from .tools import refuse_without_deps
from .turn.answers import Answers, PendingCall
from .turn.flow import Flow
from .turn.ledger import Plan
from .values import Value, field, replace

if TYPE_CHECKING:
    from .fields import ChatFields, CompactFields
    from .handles import AsyncTurn, Turn
    from .stores.base import AsyncStore, Store, Stored

__all__ = ["AsyncConversation", "Conversation", "ConversationInfo", "Gate", "Ports", "Save", "settings_of"]

T = TypeVar("T")

Save = Literal["turn", "checkpoint"]
Gate = Literal["queue", "reject"]


class ConversationInfo(Value, frozen=True, kw_only=True):
    """What is stored of a conversation, without its messages.

    Attributes:
        key: The key it is kept under.
        version: What the next save has to name.
        saved_at: When it was saved last, by the store's clock.
        metadata: The `metadata` of its turns in one; a later turn's value replaces an earlier one's. Of turns
            that a compaction took away, up to 4 KiB are kept, the newest first.
        state: What the state says of itself: ids, status, times, usage, size.
    """

    unshown = frozenset({"key", "metadata"})

    key: str
    version: int
    saved_at: datetime
    state: StateInfo
    metadata: Mapping[str, str] = field(default_factory=dict)


class Ports(NamedTuple):
    """What a conversation needs of its chat.

    Attributes:
        plan: From options to a turn's plan; nothing is called yet.
        drive: A driver for a flow, on the chat's backend.
        open: The handle of a turn from its work, its driver and `on_event`.
        append: From a blob and messages to a blob.
        compact: From a blob and what `compact_state` takes to the compaction's flow.
        on_event: The chat's default observer, which is told of what is done beside turns.
    """

    plan: Callable[..., Plan]
    drive: Callable[..., Any]
    open: Callable[..., Any]
    append: Callable[..., bytes]
    compact: Callable[..., Flow[CompactionReport]]
    on_event: Any = None


def settings_of(
    store: Any,
    key: str,
    *,
    is_async: bool,
    codec: Codec,
    dialect: Dialect,
    binding: Any,
    gate: str,
    lease_ttl: float,
    save_timeout: float,
    concurrent_turns: bool,
) -> RowSettings:
    """The settings of a kept conversation. TypeError or ValueError for what no conversation could use."""
    if not isinstance(key, str):
        raise TypeError(f"key must be str, not {type(key).__name__}")
    if not key or len(key.encode("utf-8", "replace")) > MAX_KEY_BYTES:
        raise ValueError(f"key must have 1 to {MAX_KEY_BYTES} bytes of UTF-8")
    if gate not in ("queue", "reject"):
        raise ValueError("gate must be 'queue' or 'reject'")
    if isinstance(store, type) or not all(callable(getattr(store, name, None)) for name in ("load", "save")):
        got = f"the class {store.__name__}" if isinstance(store, type) else type(store).__name__
        raise TypeError(f"a conversation needs a store with load() and save(), see stores; got {got}")
    if inspect.iscoroutinefunction(store.load) is not is_async:
        chat, kind = ("AsyncChat", "an Async… store") if is_async else ("Chat", "a store that is not Async…")
        raise TypeError(f"a conversation of {chat} needs {kind}; got {type(store).__name__}")
    codec.check(binding)
    return RowSettings(
        store=store,
        key=key,
        codec=codec,
        binding=binding,
        dialect=dialect,
        renewal=AsyncRenewal if is_async else Renewal,
        gate=gate,
        lease_ttl=lease_ttl,
        save_timeout=save_timeout,
        concurrent_turns=concurrent_turns,
    )


def _refuse_binding(given: Mapping[str, Any]) -> None:
    if "binding" in given:
        raise TypeError("a kept conversation has one binding: give it to chat.conversation(…, binding=…)")


class _Kept:
    """What both conversations are: a key in a store, and a chat. Nothing is loaded or kept between calls."""

    def __init__(self, ports: Ports, settings: RowSettings, save: Save) -> None:
        if save not in ("turn", "checkpoint"):
            raise ValueError("save must be 'turn' or 'checkpoint'")
        self._ports = ports
        self._settings = settings
        self._save: Save = save

    @property
    def key(self) -> str:
        """The key in the store."""
        return self._settings.key

    @property
    def _listening(self) -> bool:
        return self._ports.on_event is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._settings.store).__name__}, save={self._save!r})"

    def _work(
        self, user: Any, options: ChatOptions | None, fields: Mapping[str, Any], **how: Any
    ) -> tuple[threads.KeptTurn, Plan]:
        if user is not None and "user" in fields:
            raise TypeError("user was given twice: once in its place and once by name")
        _refuse_binding(given_options(options, fields))
        given = dict(fields) if user is None else {**fields, "user": user}
        plan = self._ports.plan(None, options, {**given, "binding": self._settings.binding}, **how)
        refuse_without_deps(plan.tools, plan.options.deps)
        if plan.options.conversation_id is None:
            wanted = replace(plan.options, conversation_id=threads.conversation_id(self.key))
            plan = replace(plan, options=wanted)
        work = threads.KeptTurn(self._settings, plan, checkpoints=self._save == "checkpoint")
        return work, plan

    def _compaction(
        self, compactor: Any, dry_run: bool, fields: Mapping[str, Any]
    ) -> tuple[threads.KeptCompaction, Any]:
        """The compaction, and who is told of it."""
        _refuse_binding(fields)
        given = {**fields, "binding": self._settings.binding}
        options = self._ports.plan(None, None, given).options
        work = threads.KeptCompaction(
            self._settings,
            lambda blob: self._ports.compact(blob, compactor, dry_run, given),
            timeout=options.timeout,
            listening=options.on_event is not None,
        )
        return work, options.on_event

    def _appending(self, messages: tuple[Message, ...]) -> Flow[None]:
        settings = self._settings
        return threads.append_flow(
            settings,
            lambda blob: self._ports.append(
                blob, messages, settings.binding, threads.conversation_id(settings.key)
            ),
            count=len(messages),
            listening=self._listening,
        )

    def _committing(self, error: TurnError | StateConflictError) -> Flow[bytes]:
        if not isinstance(error, (TurnError, StateConflictError)) or not error.state:
            raise TypeError("commit takes the error of a turn that was not saved; its state is what is saved")
        return threads.commit_flow(self._settings, error.state, error.base, listening=self._listening)

    def _beside(self, key: str, binding: Any) -> RowSettings:
        settings = self._settings
        return settings_of(
            settings.store,
            key,
            is_async=settings.renewal is AsyncRenewal,
            codec=settings.codec,
            dialect=settings.dialect,
            binding=settings.binding if binding is None else binding,
            gate=settings.gate,
            lease_ttl=settings.lease_ttl,
            save_timeout=settings.save_timeout,
            concurrent_turns=settings.concurrent_turns,
        )

    def _reading(self) -> dict[str, Any]:
        return {"codec": self._settings.codec, "binding": self._settings.binding}

    def _history(self, found: Stored | None) -> History:
        if found is None:
            return History(turns=())
        return read_history(found.blob, **self._reading(), dialect=self._settings.dialect)

    def _pending(self, found: Stored | None) -> tuple[PendingCall, ...]:
        return () if found is None else pending_calls(found.blob, **self._reading())

    def _info(self, found: Stored | None) -> ConversationInfo | None:
        if found is None:
            return None
        state = load_state(found.blob, **self._reading())
        metadata = dict(state.meta.info)
        for _, record in closed_turns(state):
            metadata.update(record.facts.get("metadata", {}))
        return ConversationInfo(
            key=self.key,
            version=found.version,
            saved_at=found.updated_at,
            state=inspect_state(found.blob, **self._reading()),
            metadata=metadata,
        )


class Conversation(_Kept):
    """A conversation under one key of a store; made by `Chat.conversation`.

    It holds no state: each method loads what is stored and saves what became of it, so that any number of
    threads, processes and machines may serve the same key.
    """

    def send(
        self, user: Said | None = None, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> ChatResult:
        """Run one turn and save it. Without anything to say it answers what was appended.

        Args:
            user: What the user says: text, or a list of parts.
            options: `ChatOptions`; every field is also a keyword. With `turn_id` a message that is delivered
                twice is answered once.

        Returns:
            The result. Its `state` is what is stored now.

        Raises:
            TurnError: The turn began and could not end; what it came to is stored, unless `unsaved` says why
                not.
            StoreCommitError: It is complete, and the store did not take it; see `commit`.
            StateConflictError: Somebody else had a turn meanwhile; this one is in the error's `state`.
            TurnInProgressError: Somebody else has the lease (with ``gate="queue"``: for all of the turn's
                `timeout`); nothing was called.
            StoreUnavailableError: The store did not answer; nothing was called.
            StateError: What is stored cannot be used, and `on_bad_state` or `on_foreign_state` says to raise;
                it stays as it is.
            ToolPendingError, TurnConflictError, TypeError, ValueError: As `Chat.chat_with_state`.
        """
        return self._turn(*self._work(user, options, fields)).result()

    def start(
        self, user: Said | None = None, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> Turn:
        """The same turn as a streaming handle. It is saved when it ends, fails, is cancelled or left."""
        return self._turn(*self._work(user, options, fields, stream=True))

    def resume(
        self,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[ChatFields],
    ) -> ChatResult:
        """Finish the stored turn: one that failed, that another process left, or that waits for `answers`.

        An answer that was given before changes nothing: the reply that it led to comes once more, with
        `duplicate`. Raises `NothingToResumeError` if nothing is unfinished, or nothing is stored.
        """
        return self._turn(*self._work(None, options, fields, resume=True, answers=answers)).result()

    def append(self, *messages: Message) -> None:
        """Add messages or events; no model is asked, and a turn that runs elsewhere is not disturbed.

        Raises `StoreUnavailableError` if the store did not say that it saved; with `event(…, id=…)` it is
        safe to append again.
        """
        self._run(self._appending(messages))

    def compact(
        self, compactor: Any = None, /, *, dry_run: bool = False, **fields: Unpack[CompactFields]
    ) -> CompactionReport:
        """Compact now; as `Chat.compact_state`."""
        work, on_event = self._compaction(compactor, dry_run, fields)
        steps = KeptSteps(work, self._ports.drive, on_event)
        while (told := steps.step()) is not None:
            notify(on_event, told)
        report: CompactionReport = steps.result
        return report

    def commit(self, error: TurnError | StateConflictError) -> bytes:
        """Save what an error carries that the store did not take: `StoreCommitError`, or one whose `unsaved`
        says so. No model is asked. Gives what is stored then.

        Raises `StateConflictError` if somebody else has had a turn, unless this conversation was made with
        ``concurrent_turns=True``.
        """
        return self._run(self._committing(error))

    def history(self) -> History:
        """The whole conversation in neutral words; empty if nothing is stored."""
        return self._history(self._found())

    def info(self) -> ConversationInfo | None:
        """What is stored, without its messages; None if nothing is."""
        return self._info(self._found())

    def pending(self) -> tuple[PendingCall, ...]:
        """The calls that `resume` takes answers for."""
        return self._pending(self._found())

    def fork(self, key: str, *, binding: Any = None) -> Conversation:
        """Begin another conversation with what this one holds, under an id and a key of its own.

        An unfinished turn and waiting calls are copied too: `resume` can finish them in both, with different
        idempotency keys, so that a tool may run once in each.

        Args:
            key: A key under which nothing is stored; else `StateConflictError`.
            binding: Of a sealed one: what it belongs to, if that is something else.
        """
        other = self._beside(key, binding)
        self._run(threads.fork_flow(self._settings, other, listening=self._listening))
        return Conversation(self._ports, other, self._save)

    def rewind(self, turns: int = 1) -> None:
        """Take the newest turns away; as `rewind_state`."""
        self._run(threads.rewind_flow(self._settings, turns, listening=self._listening))

    def reset(self) -> None:
        """Forget the conversation: what is stored under its key is deleted. A store that cannot delete gets a
        state in which nothing was said. No event is sent."""
        self._run(threads.reset_flow(self._settings))

    def _found(self) -> Stored | None:
        store: Store = self._settings.store
        return store.load(self.key)

    def _turn(self, work: threads.KeptTurn, plan: Plan) -> Turn:
        on_event = plan.options.on_event
        turn: Turn = self._ports.open(work, plan.options, lambda drive: KeptSteps(work, drive, on_event))
        return turn

    def _run(self, flow: Flow[T]) -> T:
        steps = self._ports.drive(flow)
        while (told := steps.step()) is not None:
            notify(self._ports.on_event, told)
        result: T = steps.result
        return result


class AsyncConversation(_Kept):
    """`Conversation` on an event loop: the same names and results; made by `AsyncChat.conversation`."""

    async def send(
        self, user: Said | None = None, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> ChatResult:
        """As `Conversation.send`, awaited."""
        return await self._turn(*self._work(user, options, fields)).result()

    def start(
        self, user: Said | None = None, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> AsyncTurn:
        """As `Conversation.start`; the handle is used with ``async with`` and ``async for``."""
        return self._turn(*self._work(user, options, fields, stream=True))

    async def resume(
        self,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[ChatFields],
    ) -> ChatResult:
        """As `Conversation.resume`, awaited."""
        return await self._turn(*self._work(None, options, fields, resume=True, answers=answers)).result()

    async def append(self, *messages: Message) -> None:
        """As `Conversation.append`, awaited."""
        await self._run(self._appending(messages))

    async def compact(
        self, compactor: Any = None, /, *, dry_run: bool = False, **fields: Unpack[CompactFields]
    ) -> CompactionReport:
        """As `Conversation.compact`, awaited."""
        work, on_event = self._compaction(compactor, dry_run, fields)
        steps = AsyncKeptSteps(work, self._ports.drive, on_event)
        while (told := await steps.step()) is not None:
            await notify_async(on_event, told)
        report: CompactionReport = steps.result
        return report

    async def commit(self, error: TurnError | StateConflictError) -> bytes:
        """As `Conversation.commit`, awaited."""
        return await self._run(self._committing(error))

    async def history(self) -> History:
        """As `Conversation.history`, awaited."""
        return self._history(await self._found())

    async def info(self) -> ConversationInfo | None:
        """As `Conversation.info`, awaited."""
        return self._info(await self._found())

    async def pending(self) -> tuple[PendingCall, ...]:
        """As `Conversation.pending`, awaited."""
        return self._pending(await self._found())

    async def fork(self, key: str, *, binding: Any = None) -> AsyncConversation:
        """As `Conversation.fork`, awaited."""
        other = self._beside(key, binding)
        await self._run(threads.fork_flow(self._settings, other, listening=self._listening))
        return AsyncConversation(self._ports, other, self._save)

    async def rewind(self, turns: int = 1) -> None:
        """As `Conversation.rewind`, awaited."""
        await self._run(threads.rewind_flow(self._settings, turns, listening=self._listening))

    async def reset(self) -> None:
        """As `Conversation.reset`, awaited."""
        await self._run(threads.reset_flow(self._settings))

    async def _found(self) -> Stored | None:
        store: AsyncStore = self._settings.store
        return await store.load(self.key)

    def _turn(self, work: threads.KeptTurn, plan: Plan) -> AsyncTurn:
        on_event = plan.options.on_event
        turn: AsyncTurn = self._ports.open(
            work, plan.options, lambda drive: AsyncKeptSteps(work, drive, on_event)
        )
        return turn

    async def _run(self, flow: Flow[T]) -> T:
        steps = self._ports.drive(flow)
        while (told := await steps.step()) is not None:
            await notify_async(self._ports.on_event, told)
        result: T = steps.result
        return result
