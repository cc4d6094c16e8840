"""The base of both kept conversations: a key in a store, and a chat.

Owns: settings and their checks, the work or flow of each method, and the readers of a stored row. Must never
know: which of `Conversation` and `AsyncConversation` runs a flow, an engine of a store, or a chat beyond the
fields of `Ports`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace as replace_stored
from datetime import datetime
from functools import lru_cache, partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, get_args

from ...backends.base import Dialect
from ...base.advice import advised
from ...base.late_calls import AsyncUndisturbed, Undisturbed
from ...base.values import Value, field, replace
from ...history.additions import check_update, update_state
from ...history.info import StateInfo, inspect_state, pending_calls
from ...history.redact.matching import Finder, Match
from ...history.turns import History, read_history
from ...state.apart import blob_size
from ...state.blob_header import may_take_long
from ...state.codec import Codec
from ...state.state import closed_turns, load_state
from ...stores.layout import MAX_KEY_BYTES
from ...tools import refuse_without_deps
from ...turn.flow import Flow, computed
from ...turn.plan import Plan
from ...types.answers import PendingCall
from ...types.errors import StateConflictError, TurnError
from ...types.messages import Message
from ...types.options import UNSET, ChatOptions, given_options
from ...types.result import CompactionReport
from ..handles import checked_message
from . import changes
from .changes import KeptCompaction
from .full_row import shows_title
from .parts import PartsPlace, results_in, whole_or_unreadable, with_at_hand
from .privacy import KeptPrivacy, erasing, redacting
from .row import Row
from .row_calls import RowSettings
from .row_lease import AsyncRenewal, Renewal
from .steering import running_flow, stop_flow, withdraw_flow, withdrawing
from .turn import KeptTurn

if TYPE_CHECKING:
    from ...stores.base import Stored

__all__ = [
    "ConversationInfo",
    "ConversationSnapshot",
    "Gate",
    "KeptFacade",
    "PartsPlace",
    "Ports",
    "Save",
    "settings_of",
]

T = TypeVar("T")

_LONG: Final = 64 * 1024
"""Bytes. A larger state is read beside the event loop, because that may take more than 10 ms."""

Save = Literal["turn", "checkpoint"]
Gate = Literal["queue", "reject", "steer"]


class ConversationInfo(Value, frozen=True, kw_only=True):
    """Facts of a stored conversation, without its messages.

    Attributes:
        key: The key it is kept under.
        version: The version number that the next save has to name.
        saved_at: When it was saved last, by the store's clock.
        title: The title of `update`; "" without one.
        metadata: The `metadata` of its turns in one. The value of a later turn replaces the value of an
            earlier turn, and the values of `update` replace both. For turns that a compaction took away, up
            to 4 KiB are kept, the newest first.
        state: Facts in the state: ids, status, times, usage, size.
    """

    _unshown = frozenset({"key", "metadata", "title"})

    key: str
    version: int
    saved_at: datetime
    state: StateInfo
    metadata: Mapping[str, str] = field(default_factory=dict)
    title: str = ""


class ConversationSnapshot(Value, frozen=True, kw_only=True):
    """A conversation as it was at one instant.

    Attributes:
        info: Facts of the stored conversation, without its messages.
        pending: The calls that `resume` takes answers for.
        history: The whole conversation in the classes of this package.
    """

    info: ConversationInfo
    pending: tuple[PendingCall, ...]
    history: History


class Ports(NamedTuple):
    """The functions of a chat that a kept conversation calls.

    Attributes:
        plan: Makes a turn's plan of options; nothing is called yet.
        drive: Makes a driver for a flow, on the chat's backend.
        open: Makes the handle of a turn of its work, its plan and its driver.
        append: Adds messages to a blob.
        compact: Makes the compaction's flow of a blob and the arguments of `compact_state`.
        unsaved: The turns of the chat that no store has taken; see `hold`.
        on_event: The chat's default observer, for events outside turns.
        is_watched: True if these events are logged, too.
    """

    plan: Callable[..., Plan]
    drive: Callable[..., Any]
    open: Callable[..., Any]
    append: Callable[..., bytes]
    compact: Callable[..., Flow[CompactionReport]]
    unsaved: changes.Held
    on_event: Any = None
    is_watched: bool = False


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
    plain_title: bool | None,
    parts: str,
    stop_every: float | None = None,
    converts: bool = False,
    keep_branches: bool = False,
    auto_title: bool = False,
) -> RowSettings:
    """Check and collect the settings of a kept conversation. Raises TypeError or ValueError."""
    if not isinstance(key, str):
        raise TypeError(f"key must be str, not {type(key).__name__}; pass str(…)")
    if not key or len(key.encode("utf-8", "replace")) > MAX_KEY_BYTES:
        raise ValueError(f"key must have 1 to {MAX_KEY_BYTES} bytes of UTF-8")
    if isinstance(store, type) or not all(callable(getattr(store, name, None)) for name in ("load", "save")):
        raise TypeError(
            f"a conversation needs a store with load() and save(), see stores; got {_found(store)}"
        )
    _check_gate(gate, store)
    _check_methods(store)
    if inspect.iscoroutinefunction(store.load) is not is_async:
        chat, kind = ("AsyncChat", "an Async… store") if is_async else ("Chat", "a store that is not Async…")
        raise TypeError(f"a conversation of {chat} needs {kind}; got {type(store).__name__}")
    flags = {
        "concurrent_turns": concurrent_turns,
        "plain_title": plain_title,
        "keep_branches": keep_branches,
        "auto_title": auto_title,
    }
    for name, flag in flags.items():
        if not isinstance(flag, bool) and not (flag is None and name == "plain_title"):
            raise TypeError(f"{name} must be True or False, not {type(flag).__name__}")
    _check_seconds("lease_ttl", lease_ttl, "a positive number of seconds", above=0)
    _check_seconds("save_timeout", save_timeout, "a number of seconds from 0 on", least=0)
    if parts not in ("inline", "store"):
        raise ValueError(f"parts must be 'inline' or 'store'; got {parts!r}")
    if parts == "store" and not callable(getattr(store, "save_parts", None)):
        raise TypeError(
            "parts='store' needs a store that changes a head and its parts in one atomic step (MemoryStore, "
            f"SQLiteStore, SQLAlchemyStore, RedisStore); {type(store).__name__} has no save_parts()"
        )
    if stop_every is not None:
        if isinstance(stop_every, bool) or not isinstance(stop_every, (int, float)) or stop_every <= 0:
            raise ValueError(f"stop_every must be a positive number of seconds or None, got {stop_every!r}")
        if not callable(getattr(store, "set_stop", None)):
            raise TypeError(f"stop_every= needs a store with set_stop(); {type(store).__name__} has none")
    codec.check(binding)
    return RowSettings(
        store=store,
        key=key,
        codec=codec,
        binding=binding,
        dialect=dialect,
        renewal=AsyncRenewal if is_async else Renewal,
        undisturbed=AsyncUndisturbed if is_async else Undisturbed,
        gate=gate,
        marks_waiting=gate == "steer",
        lease_ttl=lease_ttl,
        save_timeout=save_timeout,
        concurrent_turns=concurrent_turns,
        with_title=shows_title(codec, plain_title),
        in_parts=parts == "store",
        stop_every=stop_every,
        converts=converts,
        keep_branches=keep_branches,
        auto_title=auto_title,
        # For a store of the caller's own: an async call can be left, a blocking one holds this thread.
        longest_wait=math.inf if is_async else 0.0,
    )


def _check_gate(gate: str, store: Any) -> None:
    if gate not in get_args(Gate):
        raise ValueError(f"gate must be 'queue', 'reject' or 'steer'; got {gate!r}")
    if gate == "steer" and not callable(getattr(store, "lease", None)):
        raise TypeError(f"gate='steer' needs a store with leases; {type(store).__name__} has none")


def _found(value: Any) -> str:
    """Describe a value that is not a store, and name the remedy."""
    if isinstance(value, type):
        return f"the class {value.__name__}: call it, {value.__name__}(…)"
    found = type(value).__name__
    if isinstance(value, (str, PathLike)):
        return f"{found}; a file of SQLite is a SQLiteStore(path), in goaitools_py.stores"
    return f"{found}; a MemoryStore() keeps in memory" if isinstance(value, dict) else found


def _check_seconds(
    name: str, value: Any, expected: str, *, above: float = -math.inf, least: float = -math.inf
) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be {expected}, not {type(value).__name__}")
    if not (value > above and value >= least):
        raise ValueError(f"{name} must be {expected}, got {value}")


def _check_methods(store: Any) -> None:
    """Refuse a store if its methods do not take the arguments of a turn's calls, before a turn is paid
    for."""
    for name in _CALLED:
        method = getattr(store, name)
        function = getattr(method, "__func__", None)
        try:
            misfit = _misfit(name, method) if function is None else _misfit_of_class(name, function)
        except TypeError:  # it cannot be hashed
            misfit = _misfit(name, method)
        if misfit:
            raise TypeError(
                f"a conversation calls {misfit[0]} of its store, and that of {type(store).__name__} does not "
                f"fit: {misfit[1]}"
            )


_CALLED: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "load": (("key",), ()),
    "save": (("key", "blob"), ("expected",)),
}
"""The arguments of a turn's calls of a store: in their places, and by name."""


@lru_cache(maxsize=256)  # reading two signatures took a tenth of a turn
def _misfit_of_class(name: str, function: Any) -> tuple[str, str] | None:
    return _misfit(name, function, (None,))


def _misfit(name: str, method: Any, before: tuple[None, ...] = ()) -> tuple[str, str] | None:
    """The call that does not fit a method, and the reason; None if it fits. `before`: arguments in front."""
    takes, by_name = _CALLED[name]
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # written in C
        return None
    try:
        signature.bind(*before, *takes, **dict.fromkeys(by_name))
    except TypeError as error:
        return f"{name}({', '.join((*takes, *(f'{each}=…' for each in by_name)))})", str(error)
    return None


def _refuse_what_turns_share(given: Mapping[str, Any]) -> None:
    """Raise TypeError for an option that all turns of a conversation share. If two deliveries of a message
    had two conversation ids, a tool call would have two idempotency keys."""
    if "binding" in given:
        raise TypeError("a kept conversation has one binding: give it to chat.conversation(…, binding=…)")
    if given.get("conversation_id") not in (None, UNSET):
        raise TypeError(
            "a kept conversation has one id, which is made of its key: give your id as the key, "
            "chat.conversation(store, ID), and leave conversation_id= out"
        )


class KeptFacade:
    """The base of both conversations: a key in a store, and a chat. It keeps no state between calls."""

    @advised("{0} is made by chat.conversation(store, key)")
    def __init__(self, ports: Ports, settings: RowSettings, save: Save) -> None:
        if save not in ("turn", "checkpoint"):
            raise ValueError(f"save must be 'turn' or 'checkpoint'; got {save!r}")
        self._ports = ports
        self._settings = settings
        self._save: Save = save

    @property
    def key(self) -> str:
        """The key in the store."""
        return self._settings.key

    @property
    def _listening(self) -> bool:
        return self._ports.is_watched or self._ports.on_event is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._settings.store).__name__}, save={self._save!r})"

    def _work(
        self,
        user: Any,
        options: ChatOptions | None,
        fields: Mapping[str, Any],
        *,
        gate: Gate | None = None,
        **how: Any,
    ) -> tuple[KeptTurn, Plan]:
        settings = self._settings
        if gate is not None:
            _check_gate(gate, settings.store)
            settings = replace(settings, gate=gate, marks_waiting=settings.marks_waiting or gate == "steer")
        if user is not None and "user" in fields:
            raise TypeError("user was given twice: once in its place and once by name")
        _refuse_what_turns_share(given_options(options, fields))
        given = dict(fields) if user is None else {**fields, "user": user}
        plan = self._ports.plan(None, options, {**given, "binding": self._settings.binding}, **how)
        refuse_without_deps(plan.tools, plan.options.deps)
        if plan.options.conversation_id is None:
            wanted = replace(plan.options, conversation_id=changes.conversation_id(self.key))
            plan = replace(plan, options=wanted)
        work = KeptTurn(settings, plan, checkpoints=self._save == "checkpoint", held=self._ports.unsaved)
        return work, plan

    def _compaction(
        self, compactor: Any, dry_run: bool, fields: Mapping[str, Any], *, if_due: bool = False
    ) -> tuple[KeptCompaction, Any]:
        """Make the compaction, and choose its observer."""
        _refuse_what_turns_share(fields)
        given = {**fields, "binding": self._settings.binding}
        options = self._ports.plan(None, None, given).options
        work = KeptCompaction(
            self._settings,
            lambda blob: self._ports.compact(blob, compactor, dry_run, given, if_due=if_due),
            timeout=options.timeout,
            if_due=if_due,
            listening=self._ports.is_watched or options.on_event is not None,
        )
        return work, options.on_event

    def _privacy(self, act: Callable[[Row], Flow[Any]]) -> KeptPrivacy:
        """A redaction or an erasure. It waits for a turn that runs for as long as a turn may take."""
        options = self._ports.plan(None, None, {"binding": self._settings.binding}).options
        return KeptPrivacy(self._settings, act, timeout=options.timeout)

    def _redaction(self, match: Match, with_: str) -> KeptPrivacy:
        Finder(match, with_)  # raises for a wrong pattern, before a store is asked
        changes.let_go(self._ports.unsaved, self._settings)
        return self._privacy(redacting(match, with_, listening=self._listening))

    def _erasure(self) -> KeptPrivacy:
        changes.let_go(self._ports.unsaved, self._settings)
        return self._privacy(erasing(self._settings))

    def _appending(self, messages: tuple[Message, ...]) -> Flow[tuple[str, ...]]:
        settings = self._settings
        messages = tuple(map(checked_message, messages))
        # An event with an id keeps it: appended again, it has the same one.
        fresh = changes.message_ids(messages)
        ids = [one if message.event_id is None else "" for one, message in zip(fresh, messages, strict=True)]
        yield from changes.append_flow(
            settings,
            lambda blob: self._ports.append(
                blob, messages, settings.binding, changes.conversation_id(settings.key), ids=ids
            ),
            count=len(messages),
            listening=self._listening,
        )
        return fresh

    def _withdrawal(self, id: str) -> Flow[bool] | KeptPrivacy:
        """The flow of a withdrawal; or the work under the lease, if a running turn does not mark its
        messages."""
        settings = self._settings
        if not isinstance(id, str):
            raise TypeError(f"withdraw takes an id that append gave, not {type(id).__name__}")
        if not callable(getattr(settings.store, "lease", None)):
            raise TypeError(f"withdraw needs a store with leases; {type(settings.store).__name__} has none")
        if settings.marks_waiting:
            return withdraw_flow(settings, id, listening=self._listening)
        act = withdrawing(id, listening=self._listening)
        return KeptPrivacy(replace(settings, gate="reject"), act, timeout=0.0)

    def _updating(self, title: str | None, metadata: Mapping[str, str | None] | None) -> Flow[None]:
        check_update(title, metadata)
        settings = self._settings
        id = changes.conversation_id(settings.key)

        def grow(blob: bytes) -> bytes:
            # A title may come before the first message: then the conversation begins here.
            known = blob or self._ports.append(b"", (), settings.binding, id)
            return update_state(
                known, title=title, metadata=metadata, codec=settings.codec, binding=settings.binding
            )

        return changes.append_flow(settings, grow, count=None, listening=self._listening)

    def _committing(self, error: TurnError | StateConflictError) -> Flow[bytes]:
        if not isinstance(error, (TurnError, StateConflictError)) or not error.state:
            raise TypeError("commit takes the error of a turn that was not saved; its state is what is saved")
        return changes.commit_flow(
            self._settings, error.state, error.base, self._ports.unsaved, listening=self._listening
        )

    def _resetting(self) -> Flow[None]:
        changes.let_go(self._ports.unsaved, self._settings)
        return changes.reset_flow(self._settings)

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
            plain_title=settings.with_title,
            parts="store" if settings.in_parts else "inline",
            stop_every=settings.stop_every,
            converts=settings.converts,
            keep_branches=settings.keep_branches,
            auto_title=settings.auto_title,
        )

    def _stopping(self) -> Flow[bool]:
        return stop_flow(self._settings)

    def _being_run(self) -> Flow[bool]:
        return running_flow(self._settings)

    def _loading(self, *, is_whole: bool = False, with_results: bool = False) -> Flow[Stored | None]:
        """Load the stored state, with the parts that its head lists: all parts if `is_whole`, else the parts
        that a turn needs. With all parts the state is one blob. `with_results`: also the whole results."""
        row = Row(self._settings)
        found: Stored | None = yield from row.load(is_whole=is_whole)
        blob = whole_or_unreadable(row.stored) if is_whole else row.stored
        if with_results and (names := results_in(blob)):
            blob = with_at_hand(blob, (yield from row.read_parts(names)))
        return None if found is None else replace_stored(found, blob=blob)

    def _reading(self) -> dict[str, Any]:
        return {"codec": self._settings.codec, "binding": self._settings.binding}

    def _reads(self, read: Callable[[Stored | None], T], found: Stored | None) -> Flow[T]:
        """Call a reader of a state, beside the event loop if that may take long."""
        is_long = found is not None and (
            blob_size(found.blob) > _LONG or may_take_long(found.blob, unknown=True)
        )
        return computed(partial(read, found), is_long=is_long)

    def _history(self, found: Stored | None) -> History:
        if found is None:
            return History(turns=())
        return read_history(found.blob, **self._reading(), dialect=self._settings.reader)

    def _pending(self, found: Stored | None) -> tuple[PendingCall, ...]:
        return () if found is None else pending_calls(found.blob, **self._reading())

    def _snapshot(self, found: Stored | None) -> ConversationSnapshot | None:
        info = self._info(found)
        if info is None:
            return None
        return ConversationSnapshot(info=info, pending=self._pending(found), history=self._history(found))

    def _info(self, found: Stored | None) -> ConversationInfo | None:
        if found is None:
            return None
        state = load_state(found.blob, **self._reading())
        metadata = dict(state.meta.info)
        for turn in closed_turns(state):
            metadata.update(turn.record.facts.get("metadata", {}))
        metadata.update(state.meta.about)
        return ConversationInfo(
            key=self.key,
            version=found.version,
            saved_at=found.updated_at,
            state=inspect_state(found.blob, **self._reading()),
            metadata=metadata,
            title=state.meta.title,
        )
