"""The optional protocols of a dialect: what only some provider APIs can do, or what only some dialects know.

Owns: the protocols, the values that they take and return, and the words for a protocol that is missing.
Must never know: a particular provider API, or why the engine asks.

A dialect has a protocol if it has its methods; nothing is registered. The engine asks with `isinstance`. A
dialect without a protocol works all the same: the page docs/own_wire.md says what it goes without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

from ..base.values import ByShape, Value
from ..types.messages import ToolCall
from ..types.request_parts import ContextEdit
from ..types.tokens import Frames
from .base import Dialect, ModelRequest, Reply, RequestParts

if TYPE_CHECKING:
    from .wire.reply_pieces import LossKind, Piece

__all__ = [
    "Change",
    "ChecksHistory",
    "CompactsHistory",
    "CountsTokens",
    "EditsContext",
    "EntryView",
    "EstimatesTokens",
    "FitsSettings",
    "Fitted",
    "HistoryFrame",
    "HostRules",
    "MarksHistory",
    "NarrowedHistory",
    "RunsProviderTools",
    "SplitsResults",
    "TranslatesReplies",
    "ViewsHistory",
    "WritesOutput",
    "failed_calls",
    "frames_of",
    "is_read",
    "lacks",
    "narrowed_history",
    "problems_of",
]


# ------------------------------------------------------------------------- histories that providers refuse


class HistoryFrame(NamedTuple):
    """Where the checked entries stand.

    Attributes:
        open_calls: Ids of calls before the entries that still wait for their results.
        open_end: True: calls at the very end may wait for their results, as in the middle of a turn.
        unique_ids: True: two exchanges with one call id are a problem. Real histories have them, and
            providers accepted them. So it is False for a history that was accepted already.
    """

    open_calls: Sequence[str] = ()
    open_end: bool = False
    unique_ids: bool = True


@runtime_checkable
class ChecksHistory(Protocol, metaclass=ByShape):
    """Additional methods of a dialect that knows which histories its provider refuses.

    With them, a history is repaired: at its import, on the way from another provider API, after a request was
    refused. Without them, a refused history is a plain error.
    """

    def history_problems(self, entries: Sequence[bytes], frame: HistoryFrame) -> Iterable[str]:
        """The known rules that a history breaks: roles, shapes, and the pairing of calls with results.

        One sentence for each problem, with indexes and call ids, never content. Entries that are not JSON are
        a problem, not an exception. The rules have to be wide: a history that one server of the API takes is
        valid.
        """
        ...

    def entry_problems(self, entry: bytes) -> Iterable[str]:
        """The known rules that one entry breaks at any position."""
        ...


_MOST: Final = 1_000
"""Forged histories have a problem in each of a million places."""


def problems_of(
    dialect: Dialect, entries: Sequence[bytes], *, open_end: bool = False, unique_ids: bool = False
) -> list[str]:
    """The first 1,000 problems of a history. [] for a dialect without `ChecksHistory`."""
    if not isinstance(dialect, ChecksHistory):
        return []
    frame = HistoryFrame(open_end=open_end, unique_ids=unique_ids)
    return list(islice(dialect.history_problems(entries, frame), _MOST))


# ----------------------------------------------------------------------- histories that some hosts refuse


Change = Literal[
    "members",
    "marks",
    "item_id",
    "call_renamed",
    "tool_renamed",
    "speaker_renamed",
    "rewritten",
    "reference",
    "thinking",
    "left_out",
    "empty",
]
"""The kinds of changes of a history in common forms.

=================  ==================================================================================
members            Members that the request type does not have. A model does not read them.
marks              Marks for a prompt cache. The request has marks of its own.
item_id            The id of an item, where it is too long, of another type of item, or there twice.
call_renamed       The id of a call is too long, has other characters, or is there twice. A digest replaces
                   it.
tool_renamed       The name of a tool in a call has other characters, or is too long.
speaker_renamed    The name of a message's author has other characters, or is too long.
rewritten          A member or part has another shape, with the same meaning.
reference          A reference to an item that the server should have stored. Nothing is stored there.
thinking           Thinking where it cannot be, or without a signature.
left_out           A part or block that cannot stand there. A line of text says so.
empty              An assistant's message that says nothing, or empty text beside its calls.
=================  ==================================================================================
"""


class EntryView(NamedTuple):
    """One entry as a host takes it.

    Attributes:
        entry: Its bytes, the same object if nothing changed; b"" if nothing is left.
        changes: The kinds of its changes.
        ids: The new ids of its calls and results, by the given ids.
    """

    entry: bytes
    changes: Sequence[Change] = ()
    ids: Mapping[str, str] = {}


class HostRules(Value, frozen=True, kw_only=True):
    """The forms that a host takes in a request. Later releases may add fields, each with a default.

    Attributes:
        letters: The rules of this host, each a letter of `host_rules.RULES`, sorted. A dialect ignores a
            letter that it has no rule for.
    """

    letters: str = ""


@runtime_checkable
class ViewsHistory(Protocol, metaclass=ByShape):
    """Additional methods of a dialect that knows the forms which the hosts of its provider API take.

    The rules of `ChecksHistory` are wide, so a server may refuse a valid history. With these methods, the
    next request has the form that this server takes, and the stored history stays as it came. Without them,
    the refusal is a plain error.
    """

    def history_forms(self, entries: Sequence[bytes]) -> Iterable[EntryView]:
        """One view for each entry of a whole history, in order: forms that every server of the API takes.

        It is for imports. A model reads the same afterwards. An entry that is not a JSON object stays as it
        is.
        """
        ...

    @property
    def host(self) -> str:
        """The server's host and port, for example "127.0.0.1:11434"; "" for the provider's own.

        A rule that was learned holds for it only.
        """
        ...

    def known_rules(self, model: str) -> HostRules:
        """The rules that this host is known to have for a model. They hold from the first request on."""
        ...

    def request_view(self, parts: RequestParts, rules: HostRules) -> RequestParts:
        """The request as a host with these rules takes it; the same object if nothing changes.

        A pure function. The stored history stays as it is. Equal entries at the beginning of a longer history
        give equal bytes, so that prompt caches stay valid. The pieces of `history` may hold several entries.
        """
        ...

    def unique_calls(self, entries: Sequence[bytes]) -> Sequence[EntryView]:
        """One view for each entry, with other ids for calls that have the id of an answered call."""
        ...


class NarrowedHistory(Value, frozen=True):
    """A history in forms that every server of its provider API takes.

    Attributes:
        entries: One result for each given entry, the same object if nothing changed; b"" if nothing is left.
        log: For each change its kind, and the place of the given entry.
        ids: For each entry the new ids of its calls and results, by the given ids.
    """

    _unshown = frozenset({"entries"})

    entries: tuple[bytes, ...]
    log: tuple[tuple[Change, int], ...]
    ids: tuple[Mapping[str, str], ...]


def narrowed_history(dialect: Dialect, entries: Sequence[bytes]) -> NarrowedHistory:
    """The entries as every server takes them. Nothing changes for a dialect without `ViewsHistory`."""
    if not isinstance(dialect, ViewsHistory):
        return NarrowedHistory(tuple(entries), (), ({},) * len(entries))
    found = list(dialect.history_forms(entries))
    log = [(kind, at) for at, one in enumerate(found) for kind in one.changes]
    return NarrowedHistory(tuple([one.entry for one in found]), tuple(log), tuple([one.ids for one in found]))


_UNREAD: frozenset[Change] = frozenset({"members", "marks", "item_id", "reference", "thinking", "empty"})


def is_read(change: Change) -> bool:
    """True if a model reads something else after the change than before it.

    A part that a host refuses has never been read there. So the host signed a history without that part.
    """
    return change not in _UNREAD


# ---------------------------------------------------------------------------------- several results at once


@runtime_checkable
class SplitsResults(Protocol, metaclass=ByShape):
    """Additional methods of a dialect that puts the results of several calls into one entry.

    A repair moves results one by one. A dialect with an entry for each result does not need the methods.
    """

    def split_results(self, entry: bytes) -> list[bytes]:
        """One entry for each result, and one for each run of other parts between results, byte for byte.

        [entry] for an entry with one of them. Raises `RawJSONError` for an entry that is not a JSON object.
        """
        ...

    def join_results(self, results: Sequence[bytes]) -> list[bytes]:
        """Join entries of one result each into the form that the provider API has for one exchange."""
        ...

    def failed_calls(self, entry: bytes) -> frozenset[str]:
        """The ids of the calls that the entry with their results marks as failed.

        Raises `RawJSONError` for an entry that is not a JSON object.
        """
        ...


def failed_calls(dialect: Dialect, entry: bytes) -> frozenset[str]:
    """The calls that an entry marks as failed. None are known for a dialect without `SplitsResults`."""
    return dialect.failed_calls(entry) if isinstance(dialect, SplitsResults) else frozenset()


# ----------------------------------------------------------------------------------- other provider APIs


@runtime_checkable
class TranslatesReplies(Protocol, metaclass=ByShape):
    """Additional methods of a dialect that can say a model's reply in neutral pieces, and write such pieces.

    `Dialect.entries` and `Dialect.view` are enough for the messages of a user, a tool or the system. A reply
    has parts that only its own provider API knows, such as signed thinking and the work of hosted tools. With
    these methods, states are converted from and to this provider API, and its backend can be a fallback.
    """

    @property
    def longest_tool_name(self) -> int:
        """The most characters of a tool's name."""
        ...

    @property
    def losses(self) -> frozenset[LossKind]:
        """Kinds of values that this provider API does not have at all: "custom_call", "image_detail"."""
        ...

    def reply_pieces(self, entries: Sequence[bytes]) -> Iterable[Piece]:
        """The pieces of one reply, in order: its texts and calls, and a `Lost` for each lost part.

        Raises `RawJSONError` for an entry that is not a JSON object.
        """
        ...

    def write_reply(self, text: str, calls: Sequence[ToolCall]) -> tuple[list[bytes], int]:
        """A reply as entries, and how many calls had arguments that this provider API does not take.

        No entries if nothing is left that it takes.
        """
        ...

    def call_id(self, id: str, *, taken: bool = False) -> str:
        """The id of a call on this provider API: the same if its servers take it, else a digest.

        `taken`: the id belongs to another call already.
        """
        ...


# ------------------------------------------------------------------------------------------------- tokens


@runtime_checkable
class EstimatesTokens(Protocol, metaclass=ByShape):
    """An additional property of a dialect, if the tokens around its messages are known."""

    @property
    def frames(self) -> Frames:
        """The tokens that the provider adds. Without them, the numbers of Chat Completions count."""
        ...


_FRAMES: Final = Frames()


def frames_of(dialect: Dialect) -> Frames:
    """The tokens that the provider adds around the text of messages."""
    found: Frames = getattr(
        dialect, "frames", _FRAMES
    )  # each turn asks several times: faster than isinstance
    return found


# ------------------------------------------------------------------------------------ a missing protocol


def lacks(dialect: Dialect, *wanted: type) -> str:
    """Say which of these protocols a dialect lacks, for an error or a warning; "" if it has them all."""
    missing = [one.__name__ for one in wanted if not isinstance(dialect, one)]
    if not missing:
        return ""
    return (
        f"the dialect of the provider API {dialect.wire!r} has no {' and no '.join(missing)} "
        "(goaitools_py.backends; docs/own_wire.md says what to implement)"
    )


# ------------------------------------------------------------------------------- abilities of a provider


@runtime_checkable
class WritesOutput(Protocol, metaclass=ByShape):
    """An additional method of a dialect, if the provider has a format for answers in JSON.

    Without it, an `output_type` is asked for in words.
    """

    def output(self, name: str, schema: Mapping[str, Any], *, strict: bool) -> bytes:
        """Encode the format, byte-equal for equal schemas. It comes back as `RequestParts.output`.

        b"": this host has no such format. The answer is then asked for in words.

        Args:
            name: The type's name: 1 to 64 letters, digits, underscores and dashes.
            schema: The JSON Schema of an object. It is not changed.
            strict: True if the provider is to hold the model to the schema.

        Raises:
            ValueError: The provider cannot take the schema. The text names the place in the type.
        """
        ...


@runtime_checkable
class CountsTokens(Protocol, metaclass=ByShape):
    """Additional methods of a dialect, if the provider counts tokens on request."""

    def count_request(self, parts: RequestParts) -> ModelRequest:
        """The request that asks for the number of input tokens of a request with these parts."""
        ...

    def counted(self, body: bytes) -> int:
        """The number in the answer. Raises `ProtocolFault`."""
        ...


@runtime_checkable
class CompactsHistory(Protocol, metaclass=ByShape):
    """Additional methods of a dialect, if the provider compacts histories."""

    def compaction_request(self, parts: RequestParts, instructions: str) -> ModelRequest:
        """The request that asks the provider to compact this history.

        `instructions` name the content to keep; "" for the provider's own choice. A provider without
        instructions ignores them.
        """
        ...

    def compacted(self, body: bytes) -> Reply:
        """Read the answer. Its `entries` replace the history from now on. Raises `ProtocolFault`, with the
        `usage`, for an answer without a compaction."""
        ...

    def is_boundary(self, entry: bytes) -> bool:
        """True if a stored entry holds a compaction of the provider, which replaces all before it."""
        ...


@runtime_checkable
class RunsProviderTools(Protocol, metaclass=ByShape):
    """Additional methods of a dialect, if the provider has tools that the client runs.

    Their calls have the kind "provider": `name` is the type of the model's item, `arguments` the whole item.
    """

    def waits_for(self, call: ToolCall) -> Literal["approval", "external"]:
        """Whether a provider tool's call waits for an approval, or for its result from outside."""
        ...

    def provider_output(self, call: ToolCall, value: Any, *, is_error: bool = False) -> str:
        """The item that answers the call, as JSON text. `results` takes it as the result's only part.

        `value`: the given result; True or False for an approval. Raises ValueError, without content, if the
        value cannot answer the call.
        """
        ...


@runtime_checkable
class EditsContext(Protocol, metaclass=ByShape):
    """Additional methods of a dialect, if the provider edits the context itself."""

    def usable_edits(
        self, edits: Sequence[ContextEdit], settings: Mapping[str, Any]
    ) -> tuple[ContextEdit, ...]:
        """The compactor's edits that a request with these settings may hold as `context_management`.

        An edit that the provider API or the host does not have is left out, so `Dialect.request` accepts
        every returned edit. Equal settings give an equal result, so a conversation's requests do not differ.
        """
        ...


@runtime_checkable
class MarksHistory(Protocol, metaclass=ByShape):
    """An additional method of a dialect, if `Reply.carried` follows from a reply's content.

    An imported history comes without replies. This method gives it the marks that replies would have.
    """

    def marks(self, entries: Sequence[bytes]) -> Mapping[str, tuple[str, int]]:
        """Values that later requests with these entries must contain, in the form of `Reply.carried`."""
        ...


class Fitted(Value, frozen=True):
    """Settings that fit a model, and a note about each change.

    `notes` name settings, numbers and the providers' words; never a text of the caller.
    """

    _unshown = frozenset({"settings"})

    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@runtime_checkable
class FitsSettings(Protocol, metaclass=ByShape):
    """An additional method of a dialect that knows the settings that its models refuse.

    Without it, `Dialect.request` is asked about each setting that was not written for the model. A refused
    setting is left out.
    """

    def fitted(
        self, given: Mapping[str, Any], kept: Mapping[str, Any], *, model: str, has_tools: bool
    ) -> Fitted:
        """The settings of a request: `given`, and `kept` without the settings that the model would refuse.

        A kept setting that would be refused, alone or beside a given one, is translated or left out. A given
        one stays as it is, even if the provider will refuse it.

        Args:
            given: Settings that the caller wrote for this model, by the names of `ModelSettings`.
            kept: Settings for another model, or from an earlier turn. No name is in both.
            model: The model's name.
            has_tools: True if the request offers tools.
        """
        ...
