"""The facade: `Chat` and `AsyncChat`.

Owns: the two colours' meeting point with the user, and the way from options to a turn's plan.
Must never know: what happens inside a turn. Bodies that both colours need stand in `_Facade`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar, Unpack

from .backends.base import AsyncBackend, Backend, Dialect, warm_up, warm_up_async
from .backends.by_name import backend_from_name
from .edges.sync_edge import BlockingEdge, refuse_async_callback
from .events import Appended
from .handles import AsyncTurn, Turn, Work, checked_message
from .history.append import append_messages
from .history.compact import compact_flow
from .history.info import refs_of
from .messages import Audio, Document, Image, Message, Text, user
from .observers import notify, notify_async, notify_soon
from .options import PER_TURN, UNSET, ChatOptions, Resolved, check_defaults, given_options, resolve
from .result import ChatResult, CompactionReport
from .series import Series
from .state import blob as blobs
from .state.codec import PLAIN, Codec
from .state.records import fresh_id
from .tools import as_tools, refuse_async, refuse_without_deps
from .turn.answers import Answers
from .turn.counting import count_flow
from .turn.engine import Plan, TurnEngine
from .turn.flow import AsyncDriver, Driver, Flow
from .turn.inbox import split_preamble
from .values import replace

if TYPE_CHECKING:
    from .conversation import AsyncConversation, Conversation, Gate, Save
    from .fields import ChatFields, CompactFields, DefaultFields, RunTurnsFields
    from .stores.base import AsyncStore, Store

__all__ = ["AsyncChat", "Chat", "State"]

State: TypeAlias = bytes | bytearray | memoryview | None

_B = TypeVar("_B", Backend, AsyncBackend)
_T = TypeVar("_T")


class _Facade(ABC, Generic[_B]):
    """What both chats are: a backend, a codec and default options. No conversation is kept in it."""

    _is_async: bool

    def __init__(
        self,
        backend: _B | str,
        defaults: ChatOptions | None = None,
        /,
        *,
        codec: Codec = PLAIN,
        **default_fields: Unpack[DefaultFields],
    ) -> None:
        self._backend: _B = self._named(backend) if isinstance(backend, str) else self._checked(backend)
        self._beside: dict[str, _B] = {}
        self._codec = _codec(codec)
        given = given_options(defaults, default_fields)
        check_defaults(given)
        self._defaults = {"tool_threads": self._is_async, **given}
        self._default_tools = self._usable_tools(given.get("tools"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._dialect.wire!r}, model={self._backend.model!r})"

    @property
    def _dialect(self) -> Dialect:
        return self._backend.dialect

    @abstractmethod
    def _named(self, name: str) -> _B:
        """The backend of a name such as "openai:MODEL"; it connects at its first call."""

    def _checked(self, backend: _B) -> _B:
        method, other = ("asend", "Chat") if self._is_async else ("send", "AsyncChat")
        if isinstance(backend, type) or not hasattr(backend, method):
            hint = f"; is it one for {other}?" if hasattr(backend, "dialect") else ""
            raise TypeError(
                f"{type(self).__name__} needs a backend with {method}(), or a name such as 'openai:MODEL'; "
                f"got {type(backend).__name__}{hint}"
            )
        return backend

    def append_to_state(
        self, state: State, *messages: Message, binding: Any = None, min_revision: int | None = None
    ) -> bytes:
        """Put messages or events into a state without asking a model. Pure: no I/O, no connection.

        Args:
            state: The conversation's blob, or None for a new one.
            messages: What to add. It waits, unseen, until the next turn takes it to the model.
            binding: For sealed codecs: what the blob belongs to; None takes the chat's default.
            min_revision: Refuse a state that is older than this.

        Returns:
            The new blob. Nothing to add, or only seen event ids: the given bytes. The chat's default
            `on_event` is told of it with an `Appended`.

        Raises:
            StateError: The state cannot be read, or is of another provider API.
            StateTooLargeError: What waits for the next turn is beyond the limits of the codec. It is a
                StateError; the given bytes stay good.
        """
        blob = self._append(state, messages, binding, fresh_id(), min_revision=min_revision)
        if (on_event := self._defaults.get("on_event")) is not None and blob != state:
            tell = notify_soon if self._is_async else notify
            tell(on_event, Appended(len(messages), **self._of(blob, binding)))
        return blob

    def _of(self, blob: bytes, binding: Any) -> dict[str, str]:
        """What an event carries that is told of a conversation between two turns."""
        return refs_of(blob, codec=self._codec, binding=self._bound(binding))

    def _append(
        self,
        state: State,
        messages: Sequence[Message],
        binding: Any,
        new_id: str,
        *,
        min_revision: int | None = None,
    ) -> bytes:
        return append_messages(
            _state_bytes(state),
            [checked_message(message) for message in messages],
            self._dialect,
            codec=self._codec,
            binding=self._bound(binding),
            min_revision=min_revision,
            fresh_id=new_id,
            now_ms=time.time_ns() // 1_000_000,
        )

    @abstractmethod
    def _open(self, work: Any, options: Resolved, steps: Callable[[Any], Any]) -> Any:
        """The handle of a turn."""

    @abstractmethod
    def _drive(self, flow: Flow[Any], *, threads: bool = ...) -> Any:
        """The driver of a flow."""

    def _thread(
        self, store: Any, key: str, *, save: Save, binding: Any, **settings: Any
    ) -> tuple[Any, Any, Save]:
        """What a kept conversation is made of."""
        from .conversation import Ports, settings_of

        ports = Ports(
            plan=self._plan,
            drive=self._drive,
            open=self._open,
            append=self._append,
            compact=self._compaction,
            on_event=self._defaults.get("on_event"),
        )
        made = settings_of(
            store,
            key,
            is_async=self._is_async,
            codec=self._codec,
            dialect=self._dialect,
            binding=self._bound(binding),
            **settings,
        )
        return ports, made, save

    def _series(
        self, state: State, texts: Sequence[str], options: ChatOptions | None, fields: Mapping[str, Any]
    ) -> Series:
        said = _some_texts(texts, options, fields)
        given = {**self._defaults, **given_options(options, fields)}
        return Series(_state_bytes(state), said, stops=given.get("on_pending", "raise") == "raise")

    def _bound(self, binding: Any) -> Any:
        return self._defaults.get("binding") if binding is None else binding

    def _observer(self, fields: Mapping[str, Any]) -> Any:
        given = fields.get("on_event", UNSET)
        return self._defaults.get("on_event") if given is UNSET else given

    def _compaction(
        self, state: State, compactor: Any, dry_run: bool, fields: Mapping[str, Any]
    ) -> Flow[CompactionReport]:
        given = dict(fields)
        for name in PER_TURN & given.keys() - {"min_revision"}:
            raise TypeError(
                f"{name!r} belongs to a turn; compact_state takes what goes beside one, as system="
            )
        for name in ("binding", "min_revision"):  # None names none
            if given.get(name) is None:
                given.pop(name, None)
        if compactor is not None:
            given["compactor"] = compactor
        plan = self._plan(state, None, given)
        if "compactor" in given:
            plan = replace(plan, usual_compactor=self._defaults.get("compactor"))
        return compact_flow(plan, dry_run=dry_run)

    def _named_beside(self, name: str) -> _B:
        """A backend that a strategy names; it is kept as long as the chat's own."""
        return self._beside.setdefault(name, self._named(name))

    def _usable_tools(self, tools: Sequence[Any] | None) -> tuple[Any, ...]:
        found = as_tools(tools or ())
        if not self._is_async:
            refuse_async(found)
        return found

    def _plan(
        self,
        state: State,
        options: ChatOptions | None,
        fields: Mapping[str, Any],
        *,
        stream: bool = False,
        resume: bool = False,
        answers: Answers | None = None,
    ) -> Plan:
        """Merge the options; nothing is called yet."""
        given = given_options(options, fields)
        resolved = resolve(self._defaults, given)
        listening = stream or resolved.on_event is not None
        preamble, messages = split_preamble(resolved.system, _new_messages(resolved))
        backend = self._backend
        return Plan(
            dialect=backend.dialect,
            options=resolved,
            codec=self._codec,
            blob=_state_bytes(state),
            new_id=fresh_id,
            model=backend.model,
            max_retries=backend.max_retries,
            context_window=backend.context_window,
            stream=listening,
            listening=listening,
            resume=resume,
            answers=_answers(answers),
            preamble=preamble,
            messages=messages,
            tools=self._usable_tools(resolved.tools) if "tools" in given else self._default_tools,
        )


def _codec(codec: Codec) -> Codec:
    if isinstance(codec, type) or not callable(getattr(codec, "check", None)):
        found = codec.__name__ if isinstance(codec, type) else type(codec).__name__
        raise TypeError(
            f"codec must be PLAIN, or one with a key such as Signed(Keyring(key)), not {found}; "
            "leave it out for PLAIN"
        )
    return codec


def _state_bytes(state: State) -> bytes:
    """The state as bytes; b"" starts a conversation. Raises for anything that is not bytes-like."""
    if state is None:
        return b""
    if not isinstance(state, (bytes, bytearray, memoryview)):
        blobs.peek(state)  # raises: a text names the likely damage, another type is a TypeError
        raise TypeError(f"state must be bytes, bytearray, memoryview or None, not {type(state).__name__}")
    return bytes(state)


def _answers(answers: Any) -> Answers:
    if answers is None:
        return {}
    if not isinstance(answers, Mapping):
        raise TypeError(
            f"answers must be a dict from call id to Approve(), Deny() or ToolReturn(), not "
            f"{type(answers).__name__}"
        )
    return dict(answers)


def _new_messages(options: Resolved) -> list[Message]:
    messages = [checked_message(message) for message in options.messages or ()]
    said = options.user
    if said is None:
        return messages
    if isinstance(said, (str, Text, Image, Document, Audio)):
        messages.append(user(said))
    elif isinstance(said, Sequence) and not isinstance(said, (bytes, bytearray)):
        messages.append(user(*said))
    else:
        raise TypeError(f"user must be text or a list of parts, not {type(said).__name__}")
    return messages


class Chat(_Facade[Backend]):
    """Stateful chat in plain code. It holds configuration only, so one instance serves every thread.

    Args:
        backend: A `Backend`, or a name such as "openai:MODEL" or "sim".
        defaults: Options that hold for every call; single ones may be given by keyword.
        codec: How blobs are protected; `PLAIN` means "I trust my storage".
    """

    _is_async = False

    def _named(self, name: str) -> Backend:
        return backend_from_name(name, is_async=False)

    def chat(self, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]) -> ChatResult:
        """One stateless exchange: `chat_with_state` with no state."""
        return self.chat_with_state(None, options, **fields)

    def chat_with_state(
        self, state: State, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> ChatResult:
        """Run one turn: ask the model, run its tools, compact if asked, return the reply and the new blob.

        Without any message it answers what was appended and not yet seen.

        Args:
            state: The blob of the last turn; None or empty starts a conversation. It is never changed.
            options: `ChatOptions`; every field is also a keyword.

        Returns:
            A `ChatResult`, which unpacks as ``text, state``.

        Raises:
            TurnError: The turn began and could not end; its `state` holds everything so far.
            StateError: The state cannot be used, and `on_bad_state` or `on_foreign_state` says to raise.
            ToolPendingError: The state waits for answers, and `on_pending` is "raise".
            TurnConflictError: The `turn_id` was used for other messages.
            TypeError: An option is of a wrong type, or a tool wants `deps` and there are none.
            ValueError: There is nothing new to answer.
        """
        return self._turn(state, options, fields).result()

    def start(
        self, state: State, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> Turn:
        """The same turn as a handle: lazy, streaming, its state readable at any instant."""
        return self._turn(state, options, fields, stream=True)

    def resume(
        self,
        state: State,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[ChatFields],
    ) -> ChatResult:
        """Finish a turn that failed, stopped at a checkpoint, or waits: finished tool results are kept.

        A call that had started and has no result is in doubt: an idempotent tool runs again, of another the
        model is told that its outcome is unknown, unless `answers` says more.

        Args:
            state: An error's or a result's blob, or a checkpoint.
            answers: By call id, see `pending_calls`: ``Approve()``, ``Approve({"amount": 5})``,
                ``Approve(again=True)``, ``Deny("why")`` or ``ToolReturn(value)``. What is not answered waits
                on.
            options: As for a turn; the tools that are to run must be among `tools`.

        An answer to a call that has its result already, such as a button press that is delivered twice, is
        left out: the first one holds. If all are such, the reply comes once more, with `duplicate`.

        Raises:
            TurnError: The turn could not end; its `state` holds everything so far.
            StateError: The state cannot be read, or is of another provider API. It is never replaced.
            NothingToResumeError: Nothing is unfinished, and nothing waits. It is a ValueError.
            ValueError: An answer is for a call that is not known.
            TypeError: An answer is not `Approve`, `Deny` or `ToolReturn`, or a tool wants `deps`.
        """
        return self._turn(state, options, fields, resume=True, answers=answers).result()

    def run_turns(
        self,
        state: State,
        texts: Sequence[str],
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[RunTurnsFields],
    ) -> ChatResult:
        """Say several things one after another; the result is the last turn's.

        A turn that waits for answers ends it, unless `on_pending` says what a new message does then: the
        result is that turn's, and its `turns_left` has the texts that were not said. A reply that is
        truncated, refused or limited does not end it: it is in the history, and the next text follows.

        Raises:
            TypeError: Before the first turn: one of the texts can be no message.
            ValueError: Before the first turn: there are no texts, or several and one `turn_id`.
            BaseException: What a turn raised, Ctrl-C and a cancellation too. It has the attributes `state`,
                the conversation so far, with what the broken turn came to, and `turns_left`, the texts that
                are neither in there nor in `pending_input`.
        """
        series = self._series(state, texts, options, fields)
        try:
            while True:
                turn = self._turn(series.state, options, {**fields, "user": series.text})
                series.begin(turn)
                if (result := series.end(turn.result())) is not None:
                    return result
        except BaseException as exc:
            series.tell(exc)
            raise

    def compact_state(
        self,
        state: State,
        compactor: Any = None,
        /,
        *,
        dry_run: bool = False,
        **fields: Unpack[CompactFields],
    ) -> CompactionReport:
        """Compact now, outside a turn; the trigger is not asked. The report's `state` is the new blob.

        Args:
            state: The conversation's blob.
            compactor: What compacts; None takes the chat's.
            dry_run: Only report what would be done; `state` is the given one, and nothing is archived.
            fields: What the conversation's turns are given and the chat does not have by default: a strategy
                that asks the model asks behind the same `system`, `tools` and `settings`, which is what its
                provider has cached and signed. And `binding`, `timeout`, `min_revision`.

        Raises:
            CompactionError: The compactor failed; the given state is as it was.
            StateError: The state cannot be read.
        """
        on_event = self._observer(fields)
        refuse_async_callback("on_event", on_event)
        steps = self._drive(self._compaction(state, compactor, dry_run, fields))
        while (told := steps.step()) is not None:
            notify(on_event, told)
        assert steps.result is not None
        return steps.result

    def count_tokens(
        self, state: State, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> int:
        """Ask the provider how many input tokens the next request has. No model answers, nothing changes.

        For an estimate without a request see `inspect_state` and `estimate_tokens`.

        Args:
            state: The conversation's blob; None or empty for a new one.
            options: As for a turn: ``user=…``, ``system=…``, ``tools=…``.

        Raises:
            ValueError: The wire has no endpoint that counts (Chat Completions), or there is nothing to count.
            TurnError: The provider did not answer.
            StateError: The state cannot be read.
        """
        steps = self._drive(count_flow(self._plan(state, options, fields)))
        while steps.step() is not None:
            pass
        assert steps.result is not None
        return steps.result

    def conversation(
        self,
        store: Store,
        key: str,
        *,
        save: Save = "turn",
        gate: Gate = "queue",
        concurrent_turns: bool = False,
        binding: Any = None,
        lease_ttl: float = 10.0,
        save_timeout: float = 5.0,
    ) -> Conversation:
        """A conversation that is kept in a store; nothing is loaded yet, and making one costs nothing.

        Args:
            store: See `goaitools_py.stores`.
            key: The conversation's key there, such as a user's id; it becomes its `conversation_id`.
            save: "turn" saves at the end of each turn, however it ends, and before the first tool of a reply
                that is not `idempotent`. "checkpoint" saves also what was said before the first request, each
                reply, and before and after each tool: a process that is killed loses nothing.
            gate: What a turn does while another one runs on this key, if the store has leases: "queue" waits
                for as long as its `timeout`, then raises `TurnInProgressError`; "reject" raises it at once.
            concurrent_turns: Put a turn behind one that somebody else had meanwhile, instead of raising
                `StateConflictError`; the model has answered it without knowing the other.
            binding: For sealed codecs: what the conversation belongs to; None takes the chat's default.
            lease_ttl: Seconds until the lease of a process that died is free again. It is renewed while a
                turn runs.
            save_timeout: Seconds for which the save of a turn that was paid for is tried again while the
                store is unavailable, and so is the release of its lease.
        """
        from .conversation import Conversation

        made = self._thread(
            store,
            key,
            save=save,
            gate=gate,
            concurrent_turns=concurrent_turns,
            binding=binding,
            lease_ttl=lease_ttl,
            save_timeout=save_timeout,
        )
        return Conversation(*made)

    def warm_up(self) -> None:
        """Import the provider's SDK and make its client now, rather than in the first turn. Nothing is sent.

        Raises:
            BackendError: There are no credentials.
        """
        warm_up(self._backend)

    def close(self) -> None:
        """Close the connections that this chat opened."""
        for backend in (self._backend, *self._beside.values()):
            backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _turn(
        self,
        state: State,
        options: ChatOptions | None,
        fields: Mapping[str, Any],
        *,
        stream: bool = False,
        resume: bool = False,
        answers: Answers | None = None,
    ) -> Turn:
        plan = self._plan(state, options, fields, stream=stream, resume=resume, answers=answers)
        refuse_without_deps(plan.tools, plan.options.deps)
        engine = TurnEngine(plan)
        return self._open(engine, plan.options, lambda drive: drive(engine.run()))

    def _open(self, work: Work, options: Resolved, steps: Callable[[Any], Any]) -> Turn:
        """The handle of a turn, from what is run and from what drives it."""
        refuse_async_callback("on_checkpoint", options.on_checkpoint)
        return Turn(work, steps(partial(self._drive, threads=options.tool_threads)), options.on_event)

    def _drive(self, flow: Flow[_T], *, threads: bool = False) -> Driver[_T]:
        return Driver(flow, BlockingEdge(self._backend, named=self._named_beside, threads=threads))


class AsyncChat(_Facade[AsyncBackend]):
    """Stateful chat on an event loop: the names and results of `Chat`, awaited.

    One instance serves every task, and several loops. Sync tools run in worker threads unless
    `tool_threads` is False.
    """

    _is_async = True

    def _named(self, name: str) -> AsyncBackend:
        return backend_from_name(name, is_async=True)

    async def chat(self, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]) -> ChatResult:
        """One stateless exchange: `chat_with_state` with no state."""
        return await self.chat_with_state(None, options, **fields)

    async def chat_with_state(
        self, state: State, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> ChatResult:
        """As `Chat.chat_with_state`, awaited."""
        return await self._turn(state, options, fields).result()

    def start(
        self, state: State, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> AsyncTurn:
        """As `Chat.start`; the handle is used with ``async with`` and ``async for``."""
        return self._turn(state, options, fields, stream=True)

    async def resume(
        self,
        state: State,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[ChatFields],
    ) -> ChatResult:
        """As `Chat.resume`, awaited."""
        return await self._turn(state, options, fields, resume=True, answers=answers).result()

    async def run_turns(
        self,
        state: State,
        texts: Sequence[str],
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[RunTurnsFields],
    ) -> ChatResult:
        """As `Chat.run_turns`, awaited."""
        series = self._series(state, texts, options, fields)
        try:
            while True:
                turn = self._turn(series.state, options, {**fields, "user": series.text})
                series.begin(turn)
                if (result := series.end(await turn.result())) is not None:
                    return result
        except BaseException as exc:
            series.tell(exc)
            raise

    async def compact_state(
        self,
        state: State,
        compactor: Any = None,
        /,
        *,
        dry_run: bool = False,
        **fields: Unpack[CompactFields],
    ) -> CompactionReport:
        """As `Chat.compact_state`, awaited."""
        on_event = self._observer(fields)
        steps = self._drive(self._compaction(state, compactor, dry_run, fields))
        while (told := await steps.step()) is not None:
            await notify_async(on_event, told)
        assert steps.result is not None
        return steps.result

    async def count_tokens(
        self, state: State, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> int:
        """As `Chat.count_tokens`, awaited."""
        steps = self._drive(count_flow(self._plan(state, options, fields)))
        while await steps.step() is not None:
            pass
        assert steps.result is not None
        return steps.result

    def conversation(
        self,
        store: AsyncStore,
        key: str,
        *,
        save: Save = "turn",
        gate: Gate = "queue",
        concurrent_turns: bool = False,
        binding: Any = None,
        lease_ttl: float = 10.0,
        save_timeout: float = 5.0,
    ) -> AsyncConversation:
        """As `Chat.conversation`, on an async store; not awaited, its methods are."""
        from .conversation import AsyncConversation

        made = self._thread(
            store,
            key,
            save=save,
            gate=gate,
            concurrent_turns=concurrent_turns,
            binding=binding,
            lease_ttl=lease_ttl,
            save_timeout=save_timeout,
        )
        return AsyncConversation(*made)

    def _rehearse(self) -> None:
        """What the first turn would load of this package: its edge, the codec's tables."""
        from .edges import async_edge  # noqa: F401

        blob = append_messages(
            b"",
            [user("Hello.")],
            self._dialect,
            codec=PLAIN,
            binding=None,
            fresh_id="0",
            now_ms=0,
            min_revision=None,
        )
        blobs.peek(blob)

    async def warm_up(self) -> None:
        """As `Chat.warm_up`, awaited: all of it happens in threads, so that neither this nor the running
        loop's first turn blocks the loop. Call it where the application starts, once for each event loop.
        """
        import asyncio

        await asyncio.to_thread(self._rehearse)
        await warm_up_async(self._backend)

    async def aclose(self) -> None:
        """Close the connections that this chat opened."""
        for backend in (self._backend, *self._beside.values()):
            await backend.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _turn(
        self,
        state: State,
        options: ChatOptions | None,
        fields: Mapping[str, Any],
        *,
        stream: bool = False,
        resume: bool = False,
        answers: Answers | None = None,
    ) -> AsyncTurn:
        plan = self._plan(state, options, fields, stream=stream, resume=resume, answers=answers)
        refuse_without_deps(plan.tools, plan.options.deps)
        engine = TurnEngine(plan)
        return self._open(engine, plan.options, lambda drive: drive(engine.run()))

    def _open(self, work: Work, options: Resolved, steps: Callable[[Any], Any]) -> AsyncTurn:
        """As `Chat._open`."""
        return AsyncTurn(work, steps(partial(self._drive, threads=options.tool_threads)), options.on_event)

    def _drive(self, flow: Flow[_T], *, threads: bool = True) -> AsyncDriver[_T]:
        from .edges.async_edge import AwaitingEdge

        return AsyncDriver(flow, AwaitingEdge(self._backend, named=self._named_beside, threads=threads))


def _some_texts(
    texts: Sequence[str], options: ChatOptions | None, fields: Mapping[str, Any]
) -> Sequence[str]:
    """The texts, all of them checked first: the turns before a bad one would be paid for, and lost."""
    if "user" in fields:
        raise TypeError("run_turns takes what the user says as its list of texts, not as user=")
    if isinstance(texts, str) or not texts:
        raise ValueError("run_turns takes a list of at least one text")
    texts = list(texts)
    for text in texts:
        if not _new_messages(Resolved(user=text)):
            raise TypeError("run_turns takes a list of texts, and one of them is None")
    if len(texts) > 1 and given_options(options, fields).get("turn_id"):
        raise ValueError("turn_id names one turn, and run_turns was given several texts")
    return texts
