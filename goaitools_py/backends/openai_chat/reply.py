"""Reads a Chat Completions response into a reply.

Owns: the parts of a response that are stored, changed or left out. Must never know: a request, stream events.

A response is stored as the provider's bytes. These are all exceptions:

========================== ============================= =============================================
in the message             when                          because
========================== ============================= =============================================
raw newlines               between tokens                an entry is one line
half a surrogate pair      anywhere                      no UTF-8 can hold it, and servers answer 400; now
                                                         U+FFFD. Signed thinking with one is left out
``annotations``            always; family openrouter.ai  no request type has it; the sources are in the
                           keeps them, if they are not   reply's citations, which are stored with the turn.
                           empty                         OpenRouter takes them back, parsed files among them
``refusal``                empty, or not a string        it says nothing; 436 of 436 were null
``audio``                  without an id                 a server without sound sent it hollow
``audio``                  becomes ``{"id": …}``         the request type has the id only; see `sound`
``content``                empty, beside ``audio``       it is the transcript, which is sent once the id has
                                                         expired
``executed_tools``         always                        work of Groq's own tools, up to 190 KB: refused with
                                                         400, and in no request type (groq-python 0681348,
                                                         types/chat). The pages in it become citations
``provider_metadata``      always                        Vercel's AI Gateway: its routing, and the cost, which
                                                         is read; 74 % of a reply's bytes, no request type
``audio_content``          empty                         MiniMax has it in each reply; no request type
``function_call``          not a call                    deprecated, never asked for; 6 of 6 were hollow
``name``                   not a string                  the request type has a string
``tool_calls``             null or ``[]``                OpenAI refuses an empty list
``tool_calls[]``           id begins with ``srvtoolu_``  the server has run it: LiteLLM writes Anthropic's
                                                         hosted calls so, and gives no result to send
``tool_calls[].custom``    hollow                        some servers send it beside ``function``
``tool_calls[].function``  hollow, beside ``custom``     the same the other way round
``tool_calls[].index``     families openai and azure     no request type has it; Mistral's clients keep it
``tool_calls[].id``        missing, empty, repeated, or  results could not be paired; a digest replaces it
                           with a lone surrogate
``tool_calls[].type``      neither function nor custom   the next request would be refused; now its kind
name of a call             not ``[a-zA-Z0-9_-]{1,64}``   every later request would be refused
``arguments``, ``input``   null or missing               the same; now ``""``, as SDKs read it
``arguments``, ``input``   not a string                  the same; now a string of the JSON that came
``arguments``              not a JSON object; families   servers answer 400 or 500 to every later request
                           but openai and azure          (vllm#43995, llama.cpp#25510); now ``"{}"``, as
                                                         vLLM itself reads it by now (its PR 48922)
``content``                null, missing or ``[]``, no   the next request would be refused; now ``""``
                           calls
``content``                no text, no list of parts     the same; see `mended`
``content``                empty text beside calls       Moonshot and Bedrock refuse ``""``: "must not be
                                                         empty" (kimi-code#1985, 2026-07); now null
``content``                null beside calls; families   Workers AI refuses null (2026-11); now ``""``
                           of Cloudflare's
the message itself         it says nothing: no text, no  it is not stored. Moonshot refuses every later
                           call, no refusal, no sound    request with an empty message, also one with
                           or picture                    reasoning only
the message itself         null or missing; a filter or  the same
                           the output limit left nothing
``role``                   not ``"assistant"``           the same; now ``"assistant"``
========================== ============================= =============================================

*Hollow* means null, empty, or an object with only hollow or zero members. The counts are from recorded
responses of a dozen hosts, as of 2026-11. The reply's calls keep the arguments as the model wrote them,
also if stored ones differ, because the engine answers them. Other keys (``reasoning``, ``reasoning_content``,
``reasoning_details``, ``extra_content``, any unknown one) stay as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from ...base import rawjson
from ...base.values import Value, replace
from ...types.citations import Citation, citation_of
from ...types.messages import CallKind, ToolCall, Usage
from ...types.render import valid_bytes, valid_text
from ..base import ProtocolFault, Reply
from ..openai.odd_replies import BESIDE, cited, has_odd_content, mended_content
from ..wire.answer import (
    BROKEN_OFF,
    OPENAI_FAMILIES,
    broken_off,
    clean_name,
    error_fault,
    made_call_id,
    misplaced_error,
    paid,
    shape_of,
    stored_arguments,
)
from ..wire.bill import consumed, cost_of, merged
from ..wire.envelope import Envelope
from ..wire.tolerance import as_dict, as_str, count, is_hollow, object_of, parsed
from .message import call_of, spoken
from .rules import entry_problems, is_silent
from .sound import carried_of, has_sound, transcript_of

__all__ = [
    "RawReply",
    "ended_by",
    "read_body",
    "reply_of",
    "usage_of",
    "with_call_ids",
    "without_calls",
]

_MAX_NAME: Final = 64
"""The longest name of a function, from the provider's reference."""


class RawReply(Value, frozen=True, kw_only=True):
    """The members of a response that are used, not yet parsed. `message` is the raw object of choice 0,
    `usage` the raw value of that name, `beside` the lists of sources by name."""

    _unshown = frozenset({"message", "usage", "beside"})

    message: bytes
    finish_reason: str = ""
    usage: bytes = b"null"
    model: str = ""
    id: str = ""
    beside: Mapping[str, bytes] = {}


# ------------------------------------------------------------------------------------- the envelope


def read_body(body: bytes) -> RawReply:
    """Read the envelope of a unary response.

    Raises:
        ProtocolFault: The body is not a chat completion; its `fault` classifies it.
    """
    try:
        completion = _COMPLETION.read(body)
    except rawjson.RawJSONError as problem:
        raise ProtocolFault(
            f"the answer is not a chat completion: {shape_of(body, lacks='choice with a message')}"
        ) from problem
    choice = completion.choices[0] if completion.choices else _Choice()
    usage = bytes(completion.usage)
    if choice.usage != _NULL:
        usage = merged(bytes(choice.usage), usage)
    message = bytes(choice.message)
    finish = ended_by(choice.finish_reason, choice.native_finish_reason)
    error = completion.error or choice.error  # the latter: OpenRouter, the provider behind it failed
    # A message with its last word is whole and paid for: an error beside it changes nothing.
    if error and (not finish or finish in BROKEN_OFF or not _says(message)):
        raise paid(error_fault(error, text=_said(message)), usage_of(usage))
    if finish in BROKEN_OFF:
        raise paid(broken_off(finish, _said(message)), usage_of(usage))
    if message == b"null" and (finish in _LENGTHS or _is_filtered(finish)):
        message = _NOTHING_SAID
    if not message.startswith(b"{"):
        if (misplaced := misplaced_error(body)) is not None:
            raise paid(error_fault(misplaced), usage_of(usage))
        fault = ProtocolFault("the answer is not a chat completion: it holds no message")
        raise paid(fault, usage_of(usage))
    beside: dict[str, bytes] = {}
    for name in BESIDE:
        if (sources := getattr(completion, name)) != _NULL:
            beside[name] = bytes(sources)
    return RawReply(
        message=message,
        finish_reason=finish,
        usage=usage,
        model=completion.model or "",
        id=completion.id or "",
        beside=beside,
    )


def _says(message: bytes) -> bool:
    """True for a message with a text, a call, or another thing that a user gets."""
    try:
        view = rawjson.view(message)
    except rawjson.RawJSONError:
        return False
    return isinstance(view, dict) and not is_silent(view)


def _said(message: bytes) -> str:
    """The text of a message that has an error beside it; "" without text, or if it cannot be read."""
    try:
        view = rawjson.view(message)
    except rawjson.RawJSONError:
        return ""
    if not isinstance(view, dict):
        return ""
    return spoken(view)[0] or transcript_of(view) or as_str(view.get("refusal"))


_NOTHING_SAID: Final = b'{"role":"assistant","content":""}'
"""The message of a response without one, because a filter or the output limit left nothing. Azure and
Gemini's endpoint then leave `message` and `delta` out (2026-11: run-llama/llama_index#8995, ravendb's chat
client, envoyproxy/ai-gateway#2107)."""


_NULL: Final = msgspec.Raw(b"null")


class _Choice(msgspec.Struct):
    message: msgspec.Raw = _NULL
    finish_reason: str | None = None
    native_finish_reason: str | None = None
    usage: msgspec.Raw = _NULL  # Moonshot's place for it (2026-03: AstrBotDevs/AstrBot#6614)
    error: Any = None


class _Completion(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = _NULL
    model: str | None = None
    id: str | None = None
    citations: msgspec.Raw = _NULL
    search_results: msgspec.Raw = _NULL
    web_search: msgspec.Raw = _NULL
    error: Any = None


_COMPLETION: Final = Envelope(_Completion)


# ---------------------------------------------------------------------------------------- the reply


def reply_of(answer: RawReply, *, family: str) -> Reply:
    """Read a response: its stored entry, its content, and whether its calls may run.

    Raises:
        ProtocolFault: The message cannot be read or sent back.
    """
    try:
        view = rawjson.view(answer.message)
        message, view = _with_usual_content(rawjson.one_line(answer.message), view)
        seed = answer.id.encode("utf-8", "replace")
        entry, calls = _stored(message, view, family, seed=seed)
    except rawjson.RawJSONError as error:
        raise paid(ProtocolFault("the answer's message cannot be read"), usage_of(answer.usage)) from error
    except ProtocolFault as fault:
        fault.partial_text = valid_text(_said(answer.message))
        raise paid(fault, usage_of(answer.usage)) from None
    text, reasoning = spoken(view)
    if "audio" in view:
        text = text or transcript_of(view)
    refusal = as_str(view.get("refusal"))
    finish = answer.finish_reason
    if b"\\u" in entry:
        entry = _plain(entry)
    says_nothing = not calls and not text and is_silent(rawjson.view(entry))
    usage, cost = object_of(answer.usage), None
    if b'"cost' in answer.usage or "provider_metadata" in view:
        cost = cost_of(usage, view.get("provider_metadata"))
    return Reply(
        entries=() if says_nothing else (entry,),
        text=valid_text(text or refusal),
        reasoning=valid_text(reasoning),
        calls=calls,
        finish_reason=finish,
        stop=_stop(finish, refusal),
        run_calls=bool(calls) and finish not in _LENGTHS and not _is_filtered(finish) and not refusal,
        usage=_consumed(usage),
        cost_usd=cost,
        model=answer.model,
        id=answer.id,
        carried=carried_of(view) if "audio" in view else {},
        citations=_citations(answer.beside, message, view, text),
        blocks=_is_filtered(finish) and finish not in _ENDS_THIS_REPLY,
    )


_SEALED: Final = ("reasoning_details", "thinking_blocks")
"""Members with signed thinking, of OpenRouter and of LiteLLM."""


def _plain(entry: bytes) -> bytes:
    """The message without half a surrogate pair. Signed thinking is verbatim or not there."""
    made = valid_bytes(entry)
    if made is entry:
        return entry
    members = rawjson.members(entry)
    gone = {
        key
        for key in _SEALED
        if b'"signature"' in (raw := members.get(key, b"")) and valid_bytes(raw) is not raw
    }
    return rawjson.without(made, gone) if gone else made


def _citations(
    beside: Mapping[str, bytes], message: bytes, view: Mapping[str, Any], text: str
) -> tuple[Citation, ...]:
    """The sources that a message names, and the sources beside it. Positions count in the message's text."""
    annotations = view.get("annotations")
    if not text:
        return ()
    found: list[Citation] = []
    if annotations and isinstance(annotations, list):
        raws = rawjson.items(rawjson.members(rawjson.one_line(message))["annotations"])
        pairs = zip(annotations, raws, strict=True)
        found += filter(None, (citation_of(one, raw=raw) for one, raw in pairs))
    if beside or "executed_tools" in view:
        known = {one.url for one in found}
        found += (one for one in cited(beside, view.get("executed_tools")) if one.url not in known)
    return tuple(found)


def _with_usual_content(message: bytes, view: Any) -> tuple[bytes, Any]:
    """The message and its view, with content that a request may hold. An object, which some servers send in
    JSON mode, becomes its JSON as text."""
    if not isinstance(view, dict) or not has_odd_content(view.get("content")):
        return message, view
    content = mended_content(rawjson.members(message)["content"], text_type="text")
    return rawjson.replaced(message, {"content": content}), {**view, "content": rawjson.view(content)}


def _stop(finish: str, refusal: str) -> Literal["end", "length", "refusal"]:
    if finish in _LENGTHS:
        return "length"
    # Any other word, or no word, means "end": servers use their own words, and "stop" with calls is recorded.
    return "refusal" if refusal or _is_filtered(finish) else "end"


_LENGTHS: Final = frozenset(
    {
        "length",
        "max_tokens",
        "max_output_tokens",
        "MAX_TOKENS",
        "model_length",
        "model_context_window_exceeded",
    }
)
"""Finish reasons of a reply that reached a limit: OpenAI's own, and words of Anthropic, the Responses API,
Gemini and Mistral, which gateways pass on (2026-11: nearai/ironclaw#5665)."""

_FILTERS: Final = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "refusal", "guardrail_intervened"}
)
"""Finish reasons for a filter: Gemini's (its endpoint and gateways pass them on, 2026-11:
HKUDS/Vibe-Trading#308), Anthropic's, and Bedrock's."""

_ENDS_THIS_REPLY: Final = frozenset({"RECITATION", "SPII"})
"""Filters that stop the model's text. The turn itself is not refused."""


def ended_by(finish: str | None, native: str | None) -> str:
    """The finish reason that counts.

    OpenRouter writes "tool_calls" for each reply that has calls, also if they are cut off. The model's own
    word then stands in ``native_finish_reason`` only.
    """
    return native if native and (native in _LENGTHS or _is_filtered(native)) else finish or ""


def _is_filtered(finish: str) -> bool:
    """True if a filter ended the reply. Gemini's endpoint adds its kind: "content_filter: SAFETY"."""
    return finish.startswith("content_filter") or finish in _FILTERS


def usage_of(raw: bytes) -> Usage:
    """Read a usage object, for one request. A member that is missing or not a count is 0.

    It never raises, because a reply must not be lost for its usage.
    """
    return _consumed(object_of(raw))


def _consumed(root: Mapping[str, Any]) -> Usage:
    prompt = as_dict(root.get("prompt_tokens_details"))
    completion = as_dict(root.get("completion_tokens_details"))
    return consumed(
        read=count(root.get("prompt_tokens")),
        written=count(root.get("completion_tokens")),
        total=count(root.get("total_tokens")),
        cached=count(prompt.get("cached_tokens"))
        or count(root.get("prompt_cache_hit_tokens"))  # DeepSeek
        or count(root.get("num_cached_tokens")),  # Mistral
        cache_write=count(prompt.get("cache_write_tokens")),
        reasoning=count(completion.get("reasoning_tokens"))
        or count(root.get("reasoning_tokens")),  # Perplexity
        has_sound=bool(root.get("prompt_audio_seconds")),  # Mistral
    )


# ------------------------------------------------------------------------------------ the stored form


_TAKES_ANNOTATIONS: Final = "openrouter.ai"
"""The family that accepts annotations in a request, and does not parse again the files that they hold
(openrouter.ai/docs, PDF inputs, seen 2026-11)."""


_NEEDS_TEXT: Final = frozenset({"api.cloudflare.com"})
"""Families that refuse null as the content beside calls, and take ``""``."""


def _is_no_call(value: Any) -> bool:
    body = as_dict(value)
    return not as_str(body.get("name")) or not isinstance(body.get("arguments"), str)


def _always(value: Any) -> bool:
    return True


_LEFT_OUT: Final[Mapping[str, Callable[[Any], bool]]] = {
    "executed_tools": _always,
    "provider_metadata": _always,
    "audio_content": is_hollow,
    "refusal": lambda value: not value or not isinstance(value, str),
    "audio": lambda value: not has_sound({"audio": value}),
    "function_call": _is_no_call,
    "name": lambda value: not value or not isinstance(value, str),
    "tool_calls": is_hollow,
}


def _stored(entry: bytes, view: Any, family: str, *, seed: bytes) -> tuple[bytes, tuple[ToolCall, ...]]:
    left_out = {key for key, applies in _LEFT_OUT.items() if key in view and applies(view[key])}
    if "annotations" in view and not (view["annotations"] and family == _TAKES_ANNOTATIONS):
        left_out.add("annotations")
    if left_out:
        entry = rawjson.shorn(entry, left_out)
    calls: tuple[ToolCall, ...] = ()
    changed: dict[str, bytes] = {}
    if "tool_calls" in view and "tool_calls" not in left_out:
        views = view["tool_calls"]
        if not isinstance(views, list) or not all(isinstance(one, dict) for one in views):
            raise ProtocolFault("the answer's tool calls are not a list of objects")
        raws = rawjson.items(rawjson.members(entry)["tool_calls"])
        if any(map(_is_servers, views)):
            raws = [raw for one, raw in zip(views, raws, strict=True) if not _is_servers(one)]
            views = [one for one in views if not _is_servers(one)]
            entry = (
                rawjson.replaced(entry, {"tool_calls": _list(raws)})
                if raws
                else rawjson.without(entry, {"tool_calls"})
            )
        calls, edits = _calls(views, raws, family, seed + entry)
        if any(edits):
            changed["tool_calls"] = _list([edit.apply(raw) for edit, raw in zip(edits, raws, strict=True)])
    has_audio = "audio" in view and "audio" not in left_out
    if has_audio:
        changed["audio"] = rawjson.dumps({"id": view["audio"]["id"]})
        if not view.get("content") and (transcript := transcript_of(view)):
            changed["content"] = rawjson.dumps(transcript)
    content = view.get("content")
    if not calls and not has_audio and content in (None, []):
        changed["content"] = b'""'
    elif calls and content == "" and family not in _NEEDS_TEXT:
        changed["content"] = b"null"
    elif calls and content is None and family in _NEEDS_TEXT:
        changed["content"] = b'""'
    if view.get("role") != "assistant":
        changed["role"] = b'"assistant"'
    stored = rawjson.replaced(entry, changed) if changed else entry
    is_plain = not calls and isinstance(view.get("content"), str)  # most messages: only text
    if not is_plain and next(entry_problems(view), None) is not None and any(entry_problems(parsed(stored))):
        raise ProtocolFault("the answer's message is none that could be sent back")
    return stored, calls


def _is_servers(call: Mapping[str, Any]) -> bool:
    return as_str(call.get("id")).startswith("srvtoolu_")


_WRITTEN: Final[Mapping[str, str]] = {"function": "arguments", "custom": "input"}
"""The member with the model's input, for each kind of call."""


class _CallEdit(Value, frozen=True, kw_only=True):
    """The changes to one stored call. It is false without changes."""

    kind: CallKind
    id: str | None = None
    name: str | None = None
    arguments: str | None = None
    has_odd_type: bool = False
    cut: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        given = (self.id, self.name, self.arguments)
        return bool(self.cut) or self.has_odd_type or any(new is not None for new in given)

    def apply(self, raw: bytes) -> bytes:
        raw = rawjson.without(raw, self.cut)
        written = {"name": self.name, _WRITTEN[self.kind]: self.arguments}
        inner = {key: rawjson.dumps(new) for key, new in written.items() if new is not None}
        put = {} if self.id is None else {"id": rawjson.dumps(self.id)}
        if self.has_odd_type:
            put["type"] = rawjson.dumps(self.kind)
        if inner:
            body = rawjson.members(raw).get(self.kind, b"null")
            body = body if body.startswith(b"{") else b'{"arguments":"{}"}'
            put[self.kind] = rawjson.replaced(body, inner)
        return rawjson.replaced(raw, put) if put else raw


def _calls(
    views: Sequence[Mapping[str, Any]], raws: Sequence[bytes], family: str, seed: bytes
) -> tuple[tuple[ToolCall, ...], list[_CallEdit]]:
    calls: list[ToolCall] = []
    edits: list[_CallEdit] = []
    seen: set[str] = set()
    for position, (view, raw) in enumerate(zip(views, raws, strict=True)):
        call = call_of(view)
        made = None
        if not call.id or call.id in seen or valid_text(call.id) is not call.id:
            made = made_call_id(seed, position)
            call = replace(call, id=made)
        seen.add(call.id)
        written = as_dict(view.get(call.kind)).get(_WRITTEN[call.kind])
        if not isinstance(written, str) and written is not None:
            body = rawjson.members(rawjson.members(raw)[call.kind])
            call = replace(call, arguments=body[_WRITTEN[call.kind]].decode())
        calls.append(call)
        other = "custom" if call.kind == "function" else "function"
        cut = {other} if other in view and is_hollow(view[other]) else set()
        if "index" in view and family in OPENAI_FAMILIES:
            cut.add("index")
        stored = stored_arguments(call.arguments, kind=call.kind, family=family)
        edits.append(
            _CallEdit(
                kind=call.kind,
                id=made,
                name=clean_name(call.name, limit=_MAX_NAME),
                arguments=None if stored == written or not isinstance(view.get(call.kind), dict) else stored,
                has_odd_type=view.get("type", call.kind) != call.kind,
                cut=frozenset(cut),
            )
        )
    return tuple(calls), edits


def _list(raws: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(raws) + b"]"


def with_call_ids(reply: Reply, ids: Sequence[str]) -> Reply:
    """The reply with its calls' ids replaced in order; ValueError unless there is one id for each call."""
    calls = tuple(replace(call, id=id) for call, id in zip(reply.calls, ids, strict=True))
    if calls == reply.calls:
        return reply
    (entry,) = reply.entries
    raws = rawjson.items(rawjson.members(entry)["tool_calls"])
    raws = [raw for raw in raws if raw.startswith(b"{")]  # in a damaged history others may stand there
    edits = (_CallEdit(kind=call.kind, id=call.id) for call in calls)
    renamed = _list([edit.apply(raw) for edit, raw in zip(edits, raws, strict=True)])
    return replace(reply, entries=(rawjson.replaced(entry, {"tool_calls": renamed}),), calls=calls)


def without_calls(reply: Reply) -> Reply:
    """The reply without its calls. It has no entry if nothing else was in it."""
    if not reply.calls:
        return reply
    entries = tuple(rawjson.without(entry, {"tool_calls"}) for entry in reply.entries) if reply.text else ()
    # Null content is accepted only beside calls. Without them it becomes an empty text.
    entries = tuple(
        rawjson.replaced(entry, {"content": b'""'})
        if rawjson.members(entry).get("content", b"null") == b"null"
        else entry
        for entry in entries
    )
    return replace(reply, entries=entries, calls=(), run_calls=False)
