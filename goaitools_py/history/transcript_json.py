"""The JSON Schemas of a history and of the result of a turn.

Owns: the schemas. Must never know: how a history is written, or how a state is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["HISTORY_SCHEMA", "HISTORY_VERSION", "RESULT_SCHEMA"]

HISTORY_VERSION: Final = 1
"""The version of the shape; see `HISTORY_SCHEMA`."""


_COUNT: Final = {"type": "integer", "minimum": 0}
_TEXT: Final = {"type": "string"}
_TIME: Final = {"type": "string", "format": "date-time"}
_TEXTS: Final = {"type": "object", "additionalProperties": _TEXT}


def _object(optional: Mapping[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """The schema of an object: all `members` are required, and the names in `optional` are allowed."""
    return {
        "type": "object",
        "properties": {**members, **(optional or {})},
        "required": list(members),
        "additionalProperties": False,
    }


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [dict(schema), {"type": "null"}]}


_USAGE: Final = _object(
    input_tokens=_COUNT,
    cached_input_tokens=_COUNT,
    cache_write_tokens=_COUNT,
    output_tokens=_COUNT,
    reasoning_tokens=_COUNT,
    requests=_COUNT,
)
_PART: Final = {
    "oneOf": [
        _object(
            {
                "block": {
                    "enum": ["context", "note", "file"],
                    "description": "This library wrote the text: context, a note of a compaction, or a file.",
                }
            },
            type={"const": "text"},
            text=_TEXT,
        ),
        _object(
            {
                "bytes": {**_COUNT, "description": "The size, of a medium in the state."},
                "url": _TEXT,
                "name": _TEXT,
                "detail": _TEXT,
                "data": {"type": "string", "contentEncoding": "base64"},
            },
            type={"enum": ["image", "document", "audio"]},
            media_type=_TEXT,
        ),
    ]
}
_CALL: Final = _object(
    {
        "result": _or_null(
            _object(
                {"whole": {**_TEXT, "description": "All text of a result that the model reads in part."}},
                flag={"enum": ["ok", "not_run", "unknown", "cancelled", "error", "denied"]},
                parts={"type": "array", "items": {"$ref": "#/$defs/part"}},
                seconds=_or_null({"type": "number", "minimum": 0}),
            )
        ),
        "waits_for": {
            "enum": [None, "approval", "external", "in_doubt"],
            "description": "What resume takes for the call; null if it does not wait.",
        },
    },
    id=_TEXT,
    name=_TEXT,
    arguments={**_TEXT, "description": "JSON text as the model wrote it."},
    kind={"enum": ["function", "custom", "provider"]},
)
_MESSAGE: Final = _object(
    {
        "is_event": {"const": True},
        "topic": _TEXT,
        "event_id": _TEXT,
        "speaker": _TEXT,
        "pinned": {
            "type": "boolean",
            "description": "Whether a cut keeps it; absent: a system message is kept, another is not.",
        },
        "reasoning": _TEXT,
        "tool_calls": {"type": "array", "items": {"$ref": "#/$defs/call"}},
        "tool_call_id": _TEXT,
        "unread": {**_COUNT, "description": "Parts that this release has no word for."},
    },
    role={"enum": ["system", "user", "assistant", "tool"]},
    parts={"type": "array", "items": {"$ref": "#/$defs/part"}},
)
_ITERATION: Final = _object(
    number={"type": "integer", "minimum": 1, "description": "As History.iteration takes it."},
    model=_TEXT,
    request_id=_TEXT,
    finish_reason=_TEXT,
    usage={"$ref": "#/$defs/usage"},
    started_at=_TIME,
    completed_at=_TIME,
    messages={
        "type": "array",
        "items": {"$ref": "#/$defs/message"},
        "description": "Without the results of tools that stand with their calls.",
    },
)
_CITATION: Final = _object(
    kind=_TEXT,
    url=_or_null(_TEXT),
    title=_or_null(_TEXT),
    start=_or_null({"type": "integer"}),
    end=_or_null({"type": "integer"}),
    quoted=_or_null(_TEXT),
)
_TURN: Final = _object(
    number={**_COUNT, "description": "Counted from 1; 0 for a note of a compaction."},
    id=_TEXT,
    status={
        "enum": [
            "complete",
            "truncated",
            "refused",
            "limited",
            "interrupted",
            "failed",
            "awaiting_tools",
            "in_progress",
        ]
    },
    failure=_or_null(_object(error=_TEXT, code=_TEXT)),
    started_at=_TIME,
    completed_at=_or_null(_TIME),
    text={**_TEXT, "description": "That of the last reply."},
    partial_text={**_TEXT, "description": "That of a reply that broke off; it is in no message."},
    usage={"$ref": "#/$defs/usage"},
    cost_usd=_or_null({"type": "number", "minimum": 0}),
    model=_TEXT,
    speaker=_or_null(_TEXT),
    metadata=_TEXTS,
    settings={"type": "object"},
    actions={"type": "array", "items": _object(text=_TEXT, data={"type": "object"})},
    citations={"type": "array", "items": _CITATION},
    iterations={"type": "array", "items": _ITERATION},
)

HISTORY_SCHEMA: Final[Mapping[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A conversation that History.to_dict has written",
    **_object(
        version={"const": HISTORY_VERSION},
        turns={"type": "array", "items": _TURN},
        waiting={
            "type": "array",
            "items": {"$ref": "#/$defs/message"},
            "description": "Messages that no model has accepted yet.",
        },
    ),
    "$defs": {"usage": _USAGE, "part": _PART, "call": _CALL, "message": _MESSAGE},
}
"""The JSON Schema (draft 2020-12) of `History.to_dict`. ``#/$defs/message`` is the schema of
`Message.to_dict`."""


_RECORD: Final = _object(
    {
        "arguments": {**_TEXT, "description": "JSON text as the model wrote it."},
        "result": {**_TEXT, "description": "As the model reads it; media are not in it."},
    },
    id=_TEXT,
    name=_TEXT,
    kind={"enum": ["function", "custom", "provider"]},
    flag={"enum": ["ok", "not_run", "unknown", "cancelled", "error", "denied"]},
    iteration={"type": "integer", "minimum": 1},
    started=_or_null({"type": "number", "description": "Seconds since the epoch; null: it never started."}),
    seconds={"type": "number", "minimum": 0},
    error=_or_null({**_TEXT, "description": "The class of what the tool raised."}),
)
_PENDING: Final = _object(
    {"arguments": _TEXT},
    id=_TEXT,
    name=_TEXT,
    kind={"enum": ["function", "custom", "provider"]},
    reason={"enum": ["approval", "external", "in_doubt"]},
)
_SIZES: Final = (
    "removed_turns rewritten_turns removed_messages messages_before messages_after "
    "bytes_before bytes_after tokens_before tokens_after"
)
_COMPACTION: Final = _object(
    outcome={"enum": ["compacted", "no_change", "invalid", "failed"]},
    by=_TEXT,
    reason=_TEXT,
    usage={"$ref": "#/$defs/usage"},
    error=_or_null(_TEXT),
    **dict.fromkeys(_SIZES.split(), _COUNT),
)
_COST: Final = _or_null({"type": "number", "minimum": 0})

RESULT_SCHEMA: Final[Mapping[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "The result of a turn that ChatResult.to_dict has written",
    **_object(
        {
            "text": _TEXT,
            "actions": {"type": "array", "items": _object(text=_TEXT, data={"type": "object"})},
            "citations": {"type": "array", "items": _CITATION},
            "turns_left": {"type": "array", "items": _TEXT},
            "output": {"description": "The answer of the wanted type, as JSON."},
        },
        version={"const": 1},
        status={"enum": ["complete", "awaiting_tools", "truncated", "refused", "limited", "in_progress"]},
        finish_reason=_TEXT,
        model=_TEXT,
        usage={"$ref": "#/$defs/usage"},
        total_usage={"$ref": "#/$defs/usage"},
        aside_usage={"$ref": "#/$defs/usage"},
        cost_usd=_COST,
        total_cost_usd=_COST,
        iterations=_COUNT,
        tool_log={"type": "array", "items": _RECORD},
        pending={"type": "array", "items": _PENDING},
        compaction=_or_null(_COMPACTION),
        recall=_or_null(_object(calls=_COUNT, hits=_COUNT, turns={"type": "array", "items": _COUNT})),
        context_used=_COUNT,
        context_fraction=_or_null({"type": "number", "minimum": 0}),
        warnings={"type": "array", "items": _object(code=_TEXT, message=_TEXT)},
        discarded=_or_null({**_TEXT, "description": "The class of the error of the given state."}),
        duplicate={"type": "boolean"},
        request_ids={"type": "array", "items": _TEXT},
    ),
    "$defs": {"usage": _USAGE},
}
"""The JSON Schema (draft 2020-12) of `ChatResult.to_dict`. The texts are there with ``content=True``."""
