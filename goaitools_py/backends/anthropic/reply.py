"""Reads an Anthropic Messages response into a reply.

Owns: the parts of a response that are stored, changed or left out. Must never know: a request, stream events.

A response is stored as ``{"role":"assistant","content":…}`` with the provider's bytes for its content. These
are all exceptions:

======================= ================================ =============================================
in the content          when                             because
======================= ================================ =============================================
raw newlines            between tokens                   an entry is one line
half a surrogate pair   anywhere                         "invalid high surrogate in string", 400; now U+FFFD
all thinking            half a pair in a signed block    changed, it would be refused for its signature, and
                                                         unchanged for the half
the content itself      a string                         one text block, which means the same
a text block            empty                            "text content blocks must be non-empty", 400;
                                                         no recorded answer has one
a text block            only white space; no other has   "must contain non-whitespace text", 400; beside
                        more, and there is no call       other text or a call it is taken (recorded 200)
thinking blocks         at the end                       "the final block in an assistant message cannot
                                                         be `thinking`", 400
``caller``              null                             the request type takes an object only
``file_id``             of a citation                    no request type has it
a ``tool_use``          with its ``tool_result``         the server has run it: a compatible server with
                                                         tools of its own (Z.ai's search)
a ``tool_use``          before a ``fallback``            a model that declined has made it: it is not run,
                                                         and "must be left out" (anthropic 2.14,
                                                         types/beta/beta_fallback_block_param)
``id`` of a call        missing, empty, repeated, or     results could not be paired; a digest replaces it
                        with a lone surrogate
``name`` of a call      not ``[a-zA-Z0-9_-]{1,128}``     every later request would be refused
``input`` of a call     not an object                    the same; now ``{}``, or the object that a string
                                                         holds, as a compatible server sends it
a container below 64    anywhere                         nothing here could read the entry again; now null
levels
everything              no block is left, or null with   the entry would be refused, so it is not made
                        the stop reason ``refusal``
======================= ================================ =============================================

The quotations are Anthropic's, as of 2026-11 (LibreChat-AI/agents#124, tailcallhq/forgecode#2107). The
reply's calls keep the input as the model wrote it, also if the stored one differs. All else stays as it came:
thinking with its signature (an empty text is complete), redacted thinking, server tools and their results,
citations, containers, compaction and fallback blocks, any unknown block.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

import msgspec

from ...base import rawjson
from ...base.values import Value, replace
from ...types.citations import Citation, citation_of
from ...types.messages import ToolCall
from ...types.render import argument_object, valid_bytes, valid_text
from ..base import ProtocolFault, Reply
from ..wire.answer import BROKEN_OFF, broken_off, clean_name, error_fault, misplaced_error, paid, shape_of
from ..wire.bill import cost_of
from ..wire.envelope import Envelope
from ..wire.tolerance import members_of, object_of
from .consumption import asides_of, billed, context_of, usage_of
from .history_needs import marks_of
from .message import member_call

__all__ = [
    "ANTHROPIC_FAMILIES",
    "GUARDRAIL",
    "RawReply",
    "is_object",
    "marks",
    "read_body",
    "reply_of",
    "settled",
    "unsigned",
    "with_call_ids",
    "without_calls",
]

ANTHROPIC_FAMILIES: Final = frozenset({"anthropic", "aws", "foundry", "claude.googleapis.com"})
"""Families that check requests against the published type: Anthropic and its clouds."""

_MAX_NAME: Final = 128
"""The longest name of a tool."""

_IMPOSSIBLE: Final = frozenset({"", "tool_result"})
"""Types of blocks that no valid response has. Every later request with one would be refused."""

_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_HOSTED: Final = frozenset({"server_tool_use", "mcp_tool_use"})
_MADE: Final = _HOSTED | {"tool_use"}
_ENDED: Final = _MADE | {"tool_result"}
_PAUSES: Final = frozenset({"pause_turn", "compaction"})
_LENGTHS: Final = frozenset({"max_tokens", "model_context_window_exceeded", "length", "MAX_TOKENS"})
"""Stop reasons of a reply that reached a limit: Anthropic's, and words of others that gateways pass on."""

GUARDRAIL: Final = "guardrail_intervened"
"""Bedrock's word for a reply that a guardrail wrote. On this provider API it stands in a separate member,
beside the stop reason ``end_turn``."""

_REFUSALS: Final = frozenset({"refusal", GUARDRAIL})
"""The conversation goes on only without the refused turn (platform.claude.com, "Streaming refusals":
"you must reset the conversation context"; Bedrock's guardrails: anthropics/claude-code#30258)."""


class RawReply(Value, frozen=True, kw_only=True):
    """The members of a response that are used, not yet parsed. `content`, `usage`, `container` and
    `transformations` are raw values. `is_closed`: False if the end of a block did not come in a stream."""

    _unshown = frozenset({"content", "usage", "container", "transformations"})

    content: bytes
    stop_reason: str = ""
    usage: bytes = b"null"
    model: str = ""
    id: str = ""
    container: bytes = b"null"
    transformations: bytes = b"null"
    is_closed: bool = True


# ------------------------------------------------------------------------------------- the envelope

_NULL: Final = msgspec.Raw(b"null")


class _Envelope(msgspec.Struct):
    type: str | None = None
    content: msgspec.Raw = _NULL
    stop_reason: str | None = None
    usage: msgspec.Raw = _NULL
    model: str | None = None
    id: str | None = None
    container: msgspec.Raw = _NULL
    input_transformations: msgspec.Raw = _NULL
    error: Any = None
    guardrail: str | None = msgspec.field(default=None, name="amazon-bedrock-guardrailAction")


_ENVELOPE: Final = Envelope(_Envelope)


def read_body(body: bytes) -> RawReply:
    """Read the envelope of a unary response.

    Raises:
        ProtocolFault: The body is not a message; its `fault` classifies it.
    """
    try:
        envelope = _ENVELOPE.read(body)
    except rawjson.RawJSONError as problem:
        raise ProtocolFault(f"the answer is not a message: {shape_of(body, lacks='content')}") from problem
    usage, content = bytes(envelope.usage), bytes(envelope.content)
    # A message with its last word is whole and paid for: an error beside it changes nothing.
    is_whole = envelope.stop_reason and envelope.stop_reason not in BROKEN_OFF and _says(content)
    if envelope.type == "error" or (envelope.error and not is_whole):
        raise paid(error_fault(envelope.error, text=_said(content)), billed(usage))
    if envelope.stop_reason in BROKEN_OFF:
        raise paid(broken_off(envelope.stop_reason, _said(content)), billed(usage))
    if content == b"null" and envelope.stop_reason in _REFUSALS:
        content = b"[]"  # a filter left nothing of it
    if content.startswith(b'"') and envelope.stop_reason:
        content = b"[]" if content == b'""' else _listed([b'{"type":"text","text":' + content + b"}"])
    if not content.startswith(b"["):
        if (error := misplaced_error(body)) is not None:
            raise paid(error_fault(error, text=_said(content)), billed(usage))
        fault = ProtocolFault("the answer is not a message: it holds no content", partial_text=_said(content))
        raise paid(fault, billed(usage))
    return RawReply(
        content=content,
        stop_reason=GUARDRAIL if envelope.guardrail == "INTERVENED" else envelope.stop_reason or "",
        usage=usage,
        model=envelope.model or "",
        id=envelope.id or "",
        container=bytes(envelope.container),
        transformations=bytes(envelope.input_transformations),
    )


def _says(content: bytes) -> bool:
    """True for a content with a text, a call, or another thing that a user gets."""
    try:
        pairs = _read(_entry(content))
    except rawjson.RawJSONError:
        return False
    said = (block.text if block.type == "text" else block.type not in _THINKING for _, block in pairs)
    return bool(_text(content)) or any(said)


def _said(content: bytes) -> str:
    """The text of a content that is not a reply; "" without text, or if it cannot be read."""
    try:
        pairs = _read(_entry(content))
    except rawjson.RawJSONError:
        return ""
    return valid_text(_text(content) or _spoken(pairs))


def _spoken(pairs: Iterable[_Pair]) -> str:
    return "".join(block.text for _, block in pairs if block.type == "text")


def _text(raw: bytes) -> str:
    return rawjson.string(raw) or ""


# ---------------------------------------------------------------------------------------- one block


class _Block(msgspec.Struct):
    """The members of a block that are read. The others stay bytes."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str | None = None
    name: str | None = None
    tool_use_id: str | None = None
    toolset_name: str | None = None
    signature: msgspec.Raw = _NULL
    input: msgspec.Raw = _NULL
    caller: msgspec.Raw = msgspec.Raw(b"")
    citations: msgspec.Raw = _NULL

    @property
    def is_signed(self) -> bool:
        if self.type == "thinking":
            return bytes(self.signature) not in (b"null", b'""')
        return self.type == "redacted_thinking"


_BLOCK: Final = Envelope(_Block)
_Pair = tuple[bytes, _Block]


def _read(entry: bytes) -> list[_Pair]:
    """The blocks of a message, as bytes and parsed. Raises RawJSONError for a block that is not an object."""
    content = rawjson.members(entry).get("content", b"[]")
    return [(raw, _BLOCK.read(raw)) for raw in rawjson.items(content)] if content.startswith(b"[") else []


_START: Final = b'{"role":"assistant","content":'


def _entry(content: bytes) -> bytes:
    return _START + content + b"}"


def _listed(raws: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(raws) + b"]"


def _with_content(entry: bytes, pairs: Sequence[_Pair]) -> bytes:
    """The message with other blocks; b"" without blocks."""
    return rawjson.replaced(entry, {"content": _listed(raw for raw, _ in pairs)}) if pairs else b""


# ---------------------------------------------------------------------------------------- the reply


def reply_of(answer: RawReply) -> Reply:
    """Read a response: its stored entry, its content, and whether its calls may run.

    Raises:
        ProtocolFault: The content cannot be read or sent back.
    """
    finish = answer.stop_reason
    entry = _entry(rawjson.one_line(answer.content))
    try:
        pairs = _read(entry)
        kept, calls, is_cut = _stored(pairs, answer.id.encode("utf-8", "replace") + entry)
        if any(block.type in _IMPOSSIBLE for _, block in kept):
            fault = ProtocolFault("the answer holds a block of no type, or a result, which only a user sends")
            fault.partial_text = valid_text(_spoken(pairs))
            raise paid(fault, billed(answer.usage))
    except rawjson.RawJSONError as error:
        raise paid(ProtocolFault("the answer's content cannot be read"), billed(answer.usage)) from error
    if not pairs and not finish:  # an empty response is a reply only if it has a stop reason
        fault = ProtocolFault("the answer holds nothing, and no reason for that")
        raise paid(fault, billed(answer.usage))
    sendable = _sendable(_plain(kept))
    if not _same(sendable, pairs):
        entry = _with_content(entry, sendable)
    return Reply(
        entries=(entry,) if sendable else (),
        text=valid_text(_spoken(pairs)),
        reasoning=valid_text("".join(block.thinking for _, block in pairs if block.type == "thinking")),
        calls=calls,
        finish_reason=finish,
        stop=_stop(finish),
        run_calls=bool(calls) and _may_run(answer, calls),
        usage=usage_of(answer.usage),
        model=answer.model,
        id=answer.id,
        signed=any(block.is_signed for _, block in sendable),
        carried=_container(answer.container) | marks_of((block.type, block.name) for _, block in pairs),
        dropped=_dropped(answer.transformations),
        asides=asides_of(answer.usage),
        context=context_of(answer.usage),
        cost_usd=cost_of(object_of(answer.usage)) if b'"cost' in answer.usage else None,
        citations=_citations(pairs),
        cut=is_cut,
        blocks=finish in _REFUSALS,
    )


def _may_run(answer: RawReply, calls: Sequence[ToolCall]) -> bool:
    """True for calls that are whole. Under another word than ``tool_use``, which some compatible servers
    write, they are whole if their blocks were closed and their arguments are objects."""
    if answer.stop_reason == "end_turn" and answer.is_closed:
        return all(is_object(argument_object(call.arguments)) for call in calls)
    return answer.stop_reason == "tool_use"


def _plain(pairs: Sequence[_Pair]) -> list[_Pair]:
    """The blocks without half a surrogate pair. A signature covers the bytes of its thinking: if one of the
    signed blocks has half a pair, all thinking of the reply is left out."""
    made = [(valid_bytes(raw), block) for raw, block in pairs]
    is_broken = any(
        block.is_signed and new[0] is not raw for new, (raw, block) in zip(made, pairs, strict=True)
    )
    return [pair for pair in made if pair[1].type not in _THINKING] if is_broken else made


def _stop(finish: str) -> Literal["end", "length", "refusal", "pause"]:
    if finish in _LENGTHS:
        return "length"
    if finish in _PAUSES:
        return "pause"
    return "refusal" if finish in _REFUSALS else "end"  # any other word, or no word, means "end"


def _same(new: Sequence[_Pair], old: Sequence[_Pair]) -> bool:
    return len(new) == len(old) and all(one[0] is other[0] for one, other in zip(new, old, strict=True))


# ------------------------------------------------------------------------------------ the stored form


def _stored(pairs: Sequence[_Pair], seed: bytes) -> tuple[list[_Pair], tuple[ToolCall, ...], bool]:
    """The blocks in a form that can be sent back, the calls among them, and whether an input was cut."""
    is_cut = False
    stored: list[_Pair] = []
    calls: list[ToolCall] = []
    members: list[tuple[int, int]] = []
    seen: set[str] = set()
    answered = _answered(pairs)
    taken_over = max((at for at, (_, block) in enumerate(pairs) if block.type == "fallback"), default=-1)
    for position, (raw, block) in enumerate(pairs):
        if block.type == "tool_use" and position < taken_over:
            continue
        asked = block.id if block.type in _MADE else block.tool_use_id
        if asked in answered and block.type in _ENDED:
            continue
        changed: dict[str, bytes] = {}
        if block.type == "tool_use":
            call_id = block.id or ""
            if not call_id or call_id in seen or valid_text(call_id) is not call_id:
                call_id = "toolu_" + hashlib.sha256(seed + str(position).encode()).hexdigest()[:24]
                changed["id"] = rawjson.dumps(call_id)
            seen.add(call_id)
            name = block.name or ""
            if (clean := clean_name(name, limit=_MAX_NAME)) is not None:
                changed["name"] = rawjson.dumps(clean)
            if block.toolset_name:
                members.append((len(calls), len(stored)))
            calls.append(ToolCall(id=call_id, name=name, arguments=_arguments(block)))
        if (block.type == "tool_use" or block.type in _HOSTED) and not bytes(block.input).startswith(b"{"):
            written = _arguments(block)
            changed["input"], cut = _stored_input(written)
            is_cut = is_cut or cut
        if b'"file_id"' in (citations := bytes(block.citations)) and citations.startswith(b"["):
            changed["citations"] = _listed(map(_without_file, rawjson.items(citations)))
        if bytes(block.caller) == b"null":
            raw = rawjson.without(raw, {"caller"})
        stored.append((rawjson.replaced(raw, changed) if changed else raw, block))
    for place, at in members:
        raw, block = stored[at]
        calls[place] = member_call(calls[place].id, block.toolset_name or "", raw)
    return stored, tuple(calls), is_cut


def _answered(pairs: Sequence[_Pair]) -> set[str]:
    """Ids of calls with a ``tool_result`` in the same response, which only a user's message should hold."""
    results = {block.tool_use_id for _, block in pairs if block.type == "tool_result" and block.tool_use_id}
    return results and {block.id for _, block in pairs if block.type in _MADE and block.id in results}


def _without_file(citation: bytes) -> bytes:
    return rawjson.without(citation, {"file_id"}) if citation.startswith(b"{") else citation


def _citations(pairs: Sequence[_Pair]) -> tuple[Citation, ...]:
    """The sources of the text blocks. The passage is the text of the block that names the source."""
    found: list[Citation] = []
    at = 0
    for _, block in pairs:
        if block.type != "text":
            continue
        end = at + len(block.text)
        raw = bytes(block.citations)
        given = rawjson.view(raw) if raw.startswith(b"[") else ()
        found += filter(None, (citation_of(one, start=at, end=end) for one in given))
        at = end
    return tuple(found)


def _arguments(block: _Block) -> str:
    """The input as the model wrote it: the bytes of an object, or the text of a string."""
    raw = bytes(block.input)
    if raw == b"null":
        return "{}"
    return _text(raw) if raw.startswith(b'"') else raw.decode()


def _stored_input(written: str) -> tuple[bytes, bool]:
    """The object in a text, or ``{}``; and True if it was cut because it would nest too deep."""
    written = argument_object(written)
    data = rawjson.one_line(written.encode("utf-8", "replace"))
    if is_object(written):
        return data, False
    cut = rawjson.pruned(b"[[[" + data + b"]]]")[3:-3]  # it will stand three levels deep
    return (cut, cut != data) if is_object(cut.decode()) else (b"{}", False)


def is_object(text: str) -> bool:
    """True if a text is one JSON object that can be a call's input."""
    try:
        data = text.encode()
        rawjson.members(data)
        rawjson.items(b"[[[" + data + b"]]]")  # it will stand three levels deep
    except (rawjson.RawJSONError, UnicodeEncodeError):
        return False
    return True


def _sendable(pairs: Sequence[_Pair]) -> list[_Pair]:
    """The blocks without those that a server refuses in a history; see the table above."""
    has_more = any(
        block.type == "tool_use" or (block.type == "text" and block.text.strip()) for _, block in pairs
    )
    kept = [
        (raw, block)
        for raw, block in pairs
        if block.type != "text" or (block.text if has_more else block.text.strip())
    ]
    while kept and kept[-1][1].type in _THINKING:
        kept.pop()
    return kept


def with_call_ids(reply: Reply, ids: Sequence[str]) -> Reply:
    """The reply with its calls' ids replaced in order; ValueError unless there is one id for each call."""
    calls = tuple(replace(call, id=id) for call, id in zip(reply.calls, ids, strict=True))
    if calls == reply.calls:
        return reply
    left, renamed = iter(calls), list[ToolCall]()

    def edit(raw: bytes, block: _Block) -> bytes:
        if block.type != "tool_use":
            return raw
        call = next(left)
        raw = rawjson.replaced(raw, {"id": rawjson.dumps(call.id)})
        renamed.append(member_call(call.id, call.name, raw) if call.kind == "provider" else call)
        return raw

    edited = _edited(reply, edit)
    return replace(edited, calls=tuple(renamed))


def _edited(reply: Reply, edit: Callable[[bytes, _Block], bytes], **changes: Any) -> Reply:
    entries = tuple(
        _with_content(entry, [(edit(raw, block), block) for raw, block in _read(entry)])
        for entry in reply.entries
    )
    return replace(reply, entries=entries, **changes)


def without_calls(reply: Reply) -> Reply:
    """The reply without its calls. It has no entry if only thinking remains."""
    if not reply.calls:
        return reply
    entries = tuple(
        filter(None, (_filtered(entry, lambda _, b: b.type != "tool_use") for entry in reply.entries))
    )
    signed = reply.signed and any(block.is_signed for entry in entries for _, block in _read(entry))
    return replace(reply, entries=entries, calls=(), run_calls=False, signed=signed)


def _filtered(entry: bytes, keeps: Callable[[bytes, _Block], bool]) -> bytes:
    """The message without some blocks; the same bytes if all stay, b"" if nothing can be sent."""
    pairs = _read(entry)
    kept = [pair for pair in pairs if keeps(*pair)]
    return entry if len(kept) == len(pairs) else _with_content(entry, _sendable(kept))


# ------------------------------------------------------------------------- rewrites of stored entries

_MAY_BE_SIGNED: Final = (b'"thinking"', b'"redacted_thinking"')
_MAY_BE_HOSTED: Final = (b'"server_tool_use"', b'"mcp_tool_use"')


def unsigned(entries: Sequence[bytes]) -> list[bytes]:
    """The entries without the thinking of assistant messages."""
    return [
        _filtered(entry, lambda _, block: block.type not in _THINKING)
        if any(mark in entry for mark in _MAY_BE_SIGNED) and _is_assistants(entry)
        else entry
        for entry in entries
    ]


def settled(entries: Sequence[bytes]) -> list[bytes]:
    """A reply's entries without the calls of hosted tools that have no result in the reply."""
    if not any(mark in entry for mark in _MAY_BE_HOSTED for entry in entries):
        return list(entries)
    answered = {block.tool_use_id for entry in entries for _, block in _read(entry)}
    return [
        _filtered(entry, lambda _, block: block.type not in _HOSTED or block.id in answered)
        for entry in entries
    ]


def marks(entries: Sequence[bytes]) -> dict[str, tuple[str, int]]:
    """Values that later requests with these entries must contain, in the form of `Reply.carried`."""
    blocks = (block for entry in entries for _, block in _read(entry))
    return marks_of((block.type, block.name) for block in blocks)


def _is_assistants(entry: bytes) -> bool:
    return entry.startswith(_START) or rawjson.members(entry).get("role") == b'"assistant"'


# ------------------------------------------------------------------------------- beside the content


_MAX_CARRIED: Final = 256


def _container(container: bytes) -> dict[str, tuple[str, int]]:
    """The container of hosted tools, until it expires. One without a readable expiry is not kept.

    A later turn that names an expired container is refused, and so would be all turns after it.
    """
    if not container.startswith(b"{"):  # null, as of most replies
        return {}
    members = members_of(container)
    try:
        name = _text(members.get("id", b""))
        until = _milliseconds(_text(members.get("expires_at", b"")))
    except ValueError:
        return {}
    return {"container": (name, until)} if 0 < len(name) <= _MAX_CARRIED and until > 0 else {}


def _milliseconds(moment: str) -> int:
    """An RFC 3339 time in milliseconds since the epoch. Raises ValueError for anything else."""
    if not moment:
        return 0
    from datetime import UTC, datetime  # only a code execution tool needs it

    when = datetime.fromisoformat(moment)
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return int(when.timestamp() * 1000)


_REASON: Final = re.compile(r"[a-z_]{1,64}")


def _dropped(transformations: bytes) -> tuple[str, ...]:
    """The reasons why blocks were ignored. Entries of other types are about blocks that were not."""
    if not transformations.startswith(b"["):
        return ()
    try:
        entries = rawjson.items(transformations)
    except rawjson.RawJSONError:
        return ()
    found: list[str] = []
    for raw in entries:
        members = members_of(raw)
        if members.get("type") == b'"thinking_dropped"':
            reason = members.get("reason", b"").strip(b'"').decode("utf-8", "replace")
            found.append(reason if _REASON.fullmatch(reason) else "unknown")
    return tuple(found)
