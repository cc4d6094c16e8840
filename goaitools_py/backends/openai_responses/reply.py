"""Reads a Responses answer into a reply.

Owns: the parts of a response that are stored, changed or left out. Must never know: a request, stream events.

Each item of ``output`` is stored as one entry, as the provider's bytes. These are all exceptions:

=========================== ================================== =========================================
in an item                  when                               because
=========================== ================================== =========================================
raw newlines                between tokens                     an entry is one line
every item                  no text, no call, no item of a     the reply says nothing: as on Chat
                            hosted tool's work                 Completions, nothing is stored
half a surrogate pair       anywhere                           no UTF-8 can hold it; now U+FFFD
``created_by``              always, in an item and in an       no request type has it
                            element of a shell's ``output``
``status``                  of a ``custom_tool_call_output``   no request type has it
a whole reasoning item      nothing of the reply follows it    the next request would be refused
                                                               ("without its required following item")
the keys of `_NOT_NULL`     null                               the request type has them, but not null:
                                                               vLLM's answers hold nulls here
``content[].logprobs``      null                               the same
the keys of `_INNER`        null                               the same
``call_id``                 missing, empty, repeated, or with  results could not be paired; a digest
                            half an emoji                      replaces it
``role`` of a message       not ``"assistant"``                a reply would speak for the user; now
                                                               ``"assistant"``
``type`` of a message       missing, or not a string           now ``"message"``
``content`` of a message    null or missing                    the next request would be refused; now ``[]``
``content`` of a message    no text, no list of parts          the same; see `mended`
``summary`` of reasoning    missing, or not a list             the same; now ``[]``
``id``                      not a string                       the same
name of a call              not ``[a-zA-Z0-9_-]{1,128}``       every later request would be refused
``arguments``, ``input``    null or missing                    the same; now ``""``, as SDKs read it
``arguments``, ``input``    not a string                       the same; now a string of the JSON that
                                                               came
``arguments``               not a JSON object; families but    llama.cpp answers 500 to every later
                            openai and azure                   request (llama.cpp#25510); now ``"{}"``
=========================== ================================== =========================================

Calls are the items ``function_call`` and ``custom_tool_call``, and calls of provider tools that the client
runs (see `client_calls`). A call that the server answered in the same output does not count and is not
run. The reply's calls keep the arguments as the model wrote them, also if the stored ones differ, because the
engine answers them. Everything else stays as it came:
``id``, ``status``, ``phase``, ``namespace``, ``caller``, ``encrypted_content``, ``annotations``, unknown
keys, and items of every other type, also unknown ones. No item of 619 recorded ones (three hosts, 2026-11)
holds a key that this table leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from ...base import rawjson
from ...base.values import Value, replace
from ...types.citations import Citation, citation_of
from ...types.messages import ToolCall, Usage
from ...types.render import valid_bytes, valid_text
from ..base import Fault, ProtocolFault, Reply
from ..openai.odd_replies import BESIDE, cited
from ..wire.answer import (
    clean_name,
    error_fault,
    made_call_id,
    misplaced_error,
    paid,
    shape_of,
    stored_arguments,
)
from ..wire.bill import consumed, cost_of
from ..wire.envelope import Envelope, error_in
from ..wire.tolerance import as_dict, as_str, count, members_of, object_of, parsed
from . import client_calls as client
from . import item_units as units
from .items import (
    BETWEEN,
    CALLS,
    SPEAKERS,
    call_of,
    is_odd_item,
    is_refused,
    kind_of,
    mended_item,
    read_entries,
    spoken,
    thought,
)
from .rules import entry_problems

__all__ = [
    "RawReply",
    "failure",
    "read_body",
    "read_response",
    "reply_of",
    "said_in",
    "usage_of",
    "with_call_ids",
    "without_calls",
]

_MAX_NAME: Final = 128
"""The longest name of a function, from the provider's reference."""

_NOT_NULL: Final[Mapping[str, frozenset[str]]] = {
    "function_call": frozenset({"id", "namespace", "status", "async"}),
    "custom_tool_call": frozenset({"id", "namespace", "status", "async"}),
    "reasoning": frozenset({"content", "status"}),
    "mcp_call": frozenset({"status"}),
    "image_generation_call": frozenset({"error", "svg_usage"}),
    "computer_call": frozenset({"action", "actions"}),
}
"""Members that a response may hold as null and a request may not, by type of item (openai 3.54,
types/responses)."""

_NO_INPUT: Final[Mapping[str, frozenset[str]]] = {
    "custom_tool_call_output": frozenset({"created_by", "status"})
}
"""Keys that responses have and requests do not, by type of item. For all other items it is `created_by`."""

_CREATED_BY: Final = frozenset({"created_by"})
_FILE_PART: Final = frozenset({"detail", "file_data", "file_url", "filename", "prompt_cache_breakpoint"})


class _Inner(Value, frozen=True, kw_only=True):
    """Keys of an inner object, or of each object in an inner list, that a request does not take."""

    member: str
    never: frozenset[str] = frozenset()
    not_null: frozenset[str] = frozenset()


_INNER: Final[Mapping[str, _Inner]] = {
    "assistant": _Inner(member="content", not_null=frozenset({"logprobs"})),
    "web_search_call": _Inner(member="action", not_null=frozenset({"queries", "query", "sources"})),
    "file_search_call": _Inner(
        member="results", not_null=frozenset({"file_id", "filename", "score", "text"})
    ),
    "computer_call_output": _Inner(member="output", not_null=frozenset({"file_id", "image_url"})),
    "shell_call_output": _Inner(member="output", never=_CREATED_BY),
    "function_call_output": _Inner(member="output", not_null=_FILE_PART),
    "custom_tool_call_output": _Inner(member="output", not_null=_FILE_PART),
    "image_generation_call": _Inner(member="error", not_null=frozenset({"moderation_details"})),
}
"""By type of item (openai 3.54, types/responses). `tests/backends/test_request_types.py` compares the types
of responses with the types of requests, and lists the keys that stay unchanged."""

_RESULTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})

_NOT_FINISHED: Final = frozenset({"queued", "in_progress", "cancelled"})

_REJECTED_CODES: Final = frozenset(
    {
        "bio_policy",
        "data_residency_mismatch",
        "empty_image_file",
        "failed_to_download_image",
        "image_content_policy_violation",
        "image_file_not_found",
        "image_file_too_large",
        "image_parse_error",
        "image_too_large",
        "image_too_small",
        "invalid_base64_image",
        "invalid_image",
        "invalid_image_format",
        "invalid_image_mode",
        "invalid_image_url",
        "invalid_prompt",
        "misalignment_policy_violation",
        "unsupported_image_media_type",
    }
)
"""Error codes of a failed response that mean a wrong request (openai 3.54,
types/responses/response_error.py)."""


class RawReply(Value, frozen=True, kw_only=True):
    """The members of a response that are used, not yet parsed.

    Attributes:
        items: The raw items of `output`.
        status: The response's status, "" without one.
        reason: Why the response is incomplete.
        usage: The raw value of that name.
        dropped: Reasons of `input_transformations`.
        beside: The raw lists of sources beside the output, by name.
    """

    _unshown = frozenset({"items", "usage", "beside"})

    items: tuple[bytes, ...]
    status: str = ""
    reason: str = ""
    usage: bytes = b"null"
    model: str = ""
    id: str = ""
    dropped: tuple[str, ...] = ()
    beside: Mapping[str, bytes] = {}


# ------------------------------------------------------------------------------------- the envelope


def read_body(body: bytes) -> RawReply:
    """Read the envelope of a unary response.

    Raises:
        ProtocolFault: The body is not a finished response; its `fault` classifies it.
    """
    answer = read_response(body)
    if answer is None:
        if (error := misplaced_error(body)) is not None:
            raise failure(error)
        raise ProtocolFault(f"the answer is not a response: {shape_of(body, lacks='output')}")
    return answer


_NULL: Final = msgspec.Raw(b"null")


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    output: list[msgspec.Raw] | None = None
    status: str | None = None
    incomplete_details: _Incomplete | None = None
    error: Any = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    input_transformations: msgspec.Raw = _NULL
    citations: msgspec.Raw = _NULL
    search_results: msgspec.Raw = _NULL
    web_search: msgspec.Raw = _NULL
    model: str | None = None
    id: str | None = None
    object: str | None = None


_RESPONSE: Final = Envelope(_Response)


def read_response(raw: bytes, *, items: Sequence[bytes] = ()) -> RawReply | None:
    """Read the envelope of a response object; None if it is not one.

    Args:
        raw: The object.
        items: The items of the stream before it, for servers that leave `output` empty at the end.

    Raises:
        ProtocolFault: The response failed, or is not finished.
    """
    try:
        response = _RESPONSE.read(raw)
    except rawjson.RawJSONError:
        return None
    status = response.status or ""
    usage = bytes(response.usage)
    output = tuple(map(bytes, response.output or ())) or tuple(items)
    if response.object == "error":  # vLLM: the error's members are the body's own
        raise paid(failure(error_in(raw), text=said_in(output)), usage_of(usage))
    # A response with its last word is whole and paid for: an error beside its output changes nothing.
    is_whole = status in ("completed", "incomplete") and _says(output)
    if status == "failed" or (response.error and not is_whole):
        raise paid(failure(response.error, text=said_in(output)), usage_of(usage))
    if status in _NOT_FINISHED:
        fault = Fault(kind="protocol", code=status, retryable=status == "cancelled")
        unfinished = ProtocolFault(f"the response is {status}", fault, partial_text=said_in(output))
        raise paid(unfinished, usage_of(usage))
    reason = (response.incomplete_details or _Incomplete()).reason or ""
    # An incomplete response may have no output, for example after a filter. Every other response has output.
    if response.output is None and not items and not (status == "incomplete" and reason):
        if not rawjson.is_null(usage):
            raise paid(ProtocolFault("the answer is not a response: it has no output"), usage_of(usage))
        return None
    return RawReply(
        items=output,
        status=status,
        reason=reason,
        usage=usage,
        model=response.model or "",
        id=response.id or "",
        dropped=_reasons(bytes(response.input_transformations)),
        beside={name: bytes(raw) for name in BESIDE if (raw := getattr(response, name)) != _NULL},
    )


def _reasons(raw: bytes) -> tuple[str, ...]:
    """The reasons why the provider ignored parts of the history. A reason that is not a short word becomes
    "unknown"."""
    if not raw.startswith(b"["):
        return ()
    try:
        removed = [members_of(one).get("reason", b"null") for one in rawjson.items(raw)]
        reasons = [rawjson.string(reason) or "" for reason in removed]
    except rawjson.RawJSONError:
        return ()
    return tuple(reason if reason.isidentifier() and len(reason) <= 64 else "unknown" for reason in reasons)


def _says(items: Sequence[bytes]) -> bool:
    """True for items with a text, or with a call."""
    calls = (rawjson.view(raw) for raw in items if b"call" in raw)
    with suppress(rawjson.RawJSONError):
        return bool(said_in(items)) or any(kind_of(as_dict(view)) in CALLS for view in calls)
    return False


def said_in(items: Sequence[bytes]) -> str:
    """The text of the readable items of a response that is not a reply."""
    said: list[str] = []
    for raw in items:
        with suppress(rawjson.RawJSONError):
            item = as_dict(rawjson.view(raw))
            if kind_of(item) == "assistant":
                said.append(spoken(item.get("content")))
    return valid_text(BETWEEN.join(filter(None, said)))


def failure(error: object, *, text: str = "") -> ProtocolFault:
    """The fault for the error of a failed response. `text`: the text that the response still has."""
    finding = error_fault(error, text=text)
    if finding.fault.kind == "protocol" and finding.fault.code in _REJECTED_CODES:
        fault = Fault(kind="rejected", code=finding.fault.code)
        return ProtocolFault(f"the provider answered 200 with an error ({fault.code})", fault)
    return finding


# ---------------------------------------------------------------------------------------- the reply


def reply_of(answer: RawReply, *, family: str, speakers: Sequence[str] = SPEAKERS) -> Reply:
    """Read a response: its stored entries, its content, and whether its calls may run.

    Args:
        answer: The response.
        family: The operator of the server.
        speakers: Roles that the messages may have. A compacted history holds the user's messages too.

    Raises:
        ProtocolFault: An item cannot be read or sent back.
    """
    said = _Items(family, seed=answer.id.encode("utf-8", "replace"), speakers=speakers)
    try:
        for raw in answer.items:
            said.take(rawjson.one_line(raw))
        entries = units.without_orphans(said.entries)
        if not said.calls and not any(said.text):
            entries = units.unless_silent(entries)
        calls = said.open_calls()
        messages = 1 if len(calls) == len(said.calls) else len(read_entries(entries))
    except ProtocolFault as fault:
        fault.partial_text = said_in(answer.items)
        raise paid(fault, usage_of(answer.usage)) from None
    except rawjson.RawJSONError as error:
        unread = ProtocolFault("an item of the answer cannot be read", partial_text=said_in(answer.items))
        raise paid(unread, usage_of(answer.usage)) from error
    usage = object_of(answer.usage)
    return Reply(
        entries=entries,
        text=valid_text("".join(said.text)),
        reasoning=valid_text("".join(said.reasoning)),
        calls=calls,
        finish_reason=answer.reason or answer.status,
        stop=_stop(answer, said),
        run_calls=bool(calls) and _stop(answer, said) == "end" and answer.status == "completed",
        usage=_consumed(usage),
        cost_usd=cost_of(usage) if b'"cost' in answer.usage else None,
        model=answer.model,
        id=answer.id,
        signed=any(said.signed[: len(entries)]),
        dropped=answer.dropped,
        citations=_cited(said, answer.beside),
        messages=messages,
        # A filter that cut the model's text has refused nothing: the conversation goes on with that text.
        blocks=answer.reason == "content_filter" and not any(said.text),
    )


def _cited(said: _Items, beside: Mapping[str, bytes]) -> tuple[Citation, ...]:
    """The sources that the messages name, and, if there is a text, the sources beside the messages."""
    if not beside or not any(said.text):
        return tuple(said.citations)
    known = {one.url for one in said.citations}
    return (*said.citations, *(one for one in cited(beside) if one.url not in known))


def _stop(answer: RawReply, said: _Items) -> Literal["end", "length", "refusal"]:
    if said.is_refused or answer.reason == "content_filter":
        return "refusal"
    # A gateway may call a response completed although a limit has cut its last call.
    is_cut = answer.status == "incomplete" or answer.reason in _LENGTHS or said.has_cut_call
    return "length" if is_cut else "end"


_LENGTHS: Final = frozenset({"max_output_tokens", "max_tokens", "length"})
"""Reasons of a response that reached a limit."""


def usage_of(raw: bytes) -> Usage:
    """Read a usage object, for one request. A member that is missing or not a count is 0.

    It never raises, because a reply must not be lost for its usage.
    """
    return _consumed(object_of(raw))


def _consumed(root: Mapping[str, Any]) -> Usage:
    read = as_dict(root.get("input_tokens_details"))
    written = as_dict(root.get("output_tokens_details"))
    return consumed(
        read=count(root.get("input_tokens")),
        written=count(root.get("output_tokens")),
        total=count(root.get("total_tokens")),
        cached=count(read.get("cached_tokens")),
        cache_write=count(read.get("cache_write_tokens")),
        reasoning=count(written.get("reasoning_tokens")),
    )


# ------------------------------------------------------------------------------------ the stored form


class _Items:
    """Collects the content of the items and their stored form, item by item."""

    def __init__(self, family: str, *, seed: bytes, speakers: Sequence[str]) -> None:
        self.entries: list[bytes] = []
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[ToolCall] = []
        self.citations: list[Citation] = []
        self.is_refused = self.has_cut_call = False
        self.signed: list[bool] = []
        self._family = family
        self._seed = seed
        self._speakers = speakers
        self._ids: set[str] = set()
        self._at: list[int] = []
        """The positions of the calls among the entries."""
        self._has_answers = False

    def take(self, entry: bytes) -> None:
        """Take the next item. Raises `RawJSONError` if it is not an object."""
        item = rawjson.view(entry)
        if not isinstance(item, dict):
            raise rawjson.RawJSONError("an item must be a JSON object", 0)
        is_odd = is_odd_item(item, self._speakers)
        if is_odd:
            entry = mended_item(entry, item, self._speakers)
            item = rawjson.view(entry)
        kind = kind_of(item)
        not_null = _NOT_NULL.get(kind, ())
        never = _NO_INPUT.get(kind, _CREATED_BY)
        left_out = {key for key in item if key in never or (item[key] is None and key in not_null)}
        entry = rawjson.without(entry, left_out) if left_out else entry
        if (inner := _INNER.get(kind)) is not None:
            entry = _without_inner(entry, item.get(inner.member), inner)
        if kind in CALLS:
            self._at.append(len(self.entries))
            entry = self._call(entry, item)
            self.has_cut_call = self.has_cut_call or item.get("status") == "incomplete"
        elif (call := client.client_call(item, entry)) is not None:
            self._at.append(len(self.entries))
            entry = self._client_call(entry, call)
        elif kind == "assistant":
            content = item.get("content")
            said = spoken(content)
            if said and any(self.text):
                self.text.append(BETWEEN)
            self._cite(content)
            self.text.append(said)
            self.is_refused = self.is_refused or is_refused(content)
        elif kind == "reasoning":
            self.reasoning.append(thought(item))
        if is_odd and any(entry_problems(parsed(entry))):
            raise ProtocolFault("an item of the answer is none that could be sent back")
        if kind in _RESULTS and item.get("call_id") not in self._ids:
            raise ProtocolFault("the answer holds the result of a call that it did not make")
        self._has_answers = self._has_answers or kind in units.ANSWERS
        self.entries.append(valid_bytes(entry))
        self.signed.append(kind == "reasoning" and units.is_signed(item))

    def _client_call(self, entry: bytes, call: ToolCall) -> bytes:
        """A call of a provider tool that the client runs."""
        if not call.id or call.id in self._ids:
            id = made_call_id(self._seed + entry, len(self.calls))
            entry = rawjson.replaced(entry, {client.id_key(call.name): rawjson.dumps(id)})
            call = replace(call, id=id, arguments=entry.decode("utf-8", "replace"))
        self._ids.add(call.id)
        self.calls.append(call)
        return entry

    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls without those that the server has answered among the same items."""
        if not self._has_answers:
            return tuple(self.calls)
        waits = units.open_calls(self.entries)
        return tuple(call for call, at in zip(self.calls, self._at, strict=True) if waits[at])

    def _cite(self, content: Any) -> None:
        """Collect the sources of a message's parts. The positions of each part count in its own text."""
        at = sum(map(len, self.text))
        for part in map(as_dict, content) if isinstance(content, list) else ():
            annotations = part.get("annotations")
            found = (
                (citation_of(one, offset=at) for one in annotations) if isinstance(annotations, list) else ()
            )
            self.citations += filter(None, found)
            at += len(spoken([part]))

    def _call(self, entry: bytes, item: Mapping[str, Any]) -> bytes:
        call = call_of(item)
        written = CALLS[as_str(item.get("type"))][1]
        changed: dict[str, bytes] = {}
        if not call.id or call.id in self._ids or valid_text(call.id) is not call.id:
            call = replace(call, id=made_call_id(self._seed + entry, len(self.calls)))
            changed["call_id"] = rawjson.dumps(call.id)
        if not isinstance(item.get(written), (str, type(None))):
            call = replace(call, arguments=rawjson.members(entry)[written].decode())
        self._ids.add(call.id)
        self.calls.append(call)
        if (name := clean_name(call.name, limit=_MAX_NAME)) is not None:
            changed["name"] = rawjson.dumps(name)
        stored = stored_arguments(call.arguments, kind=call.kind, family=self._family)
        if stored != item.get(written):
            changed[written] = rawjson.dumps(stored)
        return rawjson.replaced(entry, changed) if changed else entry


def _without_inner(entry: bytes, value: Any, inner: _Inner) -> bytes:
    """The entry without the keys of inner objects that a request does not take; itself if nothing is cut."""
    objects = list(map(as_dict, value)) if isinstance(value, list) else [as_dict(value)]
    gone = [
        {key for key in one if key in inner.never or (one[key] is None and key in inner.not_null)}
        for one in objects
    ]
    if not any(gone):
        return entry
    raw = rawjson.members(entry)[inner.member]
    if not isinstance(value, list):
        return rawjson.replaced(entry, {inner.member: rawjson.without(raw, gone[0])})
    cut = [
        rawjson.without(one, keys) if keys else one
        for one, keys in zip(rawjson.items(raw), gone, strict=True)
    ]
    return rawjson.replaced(entry, {inner.member: b"[" + b",".join(cut) + b"]"})


# ------------------------------------------------------------------------------------ stored replies


def with_call_ids(reply: Reply, ids: Sequence[str]) -> Reply:
    """The reply with its calls' ids replaced in order; ValueError unless there is one id for each call."""
    calls = tuple(replace(call, id=id) for call, id in zip(reply.calls, ids, strict=True))
    if calls == reply.calls:
        return reply
    fresh = iter(ids)
    kinds, waits = units.kinds_of(reply.entries), units.open_calls(reply.entries)
    entries = tuple(
        rawjson.replaced(entry, {client.id_key(kind): rawjson.dumps(next(fresh))}) if waiting else entry
        for entry, kind, waiting in zip(reply.entries, kinds, waits, strict=True)
    )
    left = (entry for entry, waiting in zip(entries, waits, strict=True) if waiting)
    calls = tuple(
        replace(call, arguments=entry.decode("utf-8", "replace")) if call.kind == "provider" else call
        for call, entry in zip(calls, left, strict=True)
    )
    return replace(reply, entries=entries, calls=calls)


def without_calls(reply: Reply) -> Reply:
    """The reply without its calls and the reasoning before them; no entries if nothing else was in it.

    It is still sealed if any of the remaining reasoning is.
    """
    if not reply.calls:
        return reply
    entries = units.without_calls(reply.entries)
    signed = any(new is not old for new, old in zip(units.unsigned(entries), entries, strict=True))
    return replace(reply, entries=entries, calls=(), run_calls=False, signed=signed)
