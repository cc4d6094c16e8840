"""Calls of provider tools that the client answers, and the shapes of the answers.

Owns: the types of these calls, and the shape of their outputs. Must never know: a reply, a turn, a request.

========================= ============================ ===================================================
the model's item          answered by                  the answer's own members
========================= ============================ ===================================================
``computer_call``         ``computer_call_output``     ``output``: ``{"type": "computer_screenshot", …}``
``local_shell_call``      ``local_shell_call_output``  ``output``: text
``shell_call``            ``shell_call_output``        ``output``: list of ``stdout``, ``stderr``,
                                                       ``outcome``
``apply_patch_call``      ``apply_patch_call_output``  ``status``: completed or failed; ``output``: text
``tool_search_call``      ``tool_search_output``       ``tools``: list of tools
``mcp_approval_request``  ``mcp_approval_response``    ``approve``: true or false; ``reason``: text
========================= ============================ ===================================================

A ``shell_call`` in a container, and a ``tool_search_call`` that does not say ``"execution": "client"``, are
the server's own. Shapes: openai 3.54, types/responses/response_input_item_param.py. The type of
``local_shell_call_output`` has `id`, but the server matches by `call_id`: both are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from ...base import rawjson
from ...types.messages import Image, Part, Text, ToolCall
from ...types.render import user_text
from ..wire.tolerance import as_dict, as_str, data_url

__all__ = [
    "OUTPUTS",
    "answered_id",
    "call_id_of",
    "client_call",
    "id_key",
    "is_servers",
    "output_item",
    "output_parts",
    "reason_of",
    "result_item",
]

OUTPUTS: Final[Mapping[str, str]] = {
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
}
"""The items that are calls of provider tools, and how each is answered."""

_APPROVAL: Final = "mcp_approval_request"
_RESPONSE: Final = "mcp_approval_response"

_NO_SCREEN: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "YPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
"""One pixel. The output of a computer call must be a screenshot, even without a real one."""


def id_key(kind: str) -> str:
    """The member with the id that an answer to an item of this type repeats."""
    return "id" if kind == _APPROVAL else "call_id"


def call_id_of(item: Mapping[str, Any]) -> str:
    """The id that an answer to the call repeats; "" if it is missing."""
    return as_str(item.get(id_key(as_str(item.get("type")))))


def answered_id(item: Mapping[str, Any]) -> str:
    """The id of the call that an output answers; "" if it is missing."""
    if item.get("type") == _RESPONSE:
        return as_str(item.get("approval_request_id"))
    found = as_str(item.get("call_id"))
    return found or (as_str(item.get("id")) if item.get("type") == "local_shell_call_output" else "")


def is_servers(item: Mapping[str, Any]) -> bool:
    """True if the server runs the call itself, although other calls of its type are the client's."""
    if item.get("type") == "shell_call":
        return as_str(as_dict(item.get("environment")).get("type")) not in ("", "local")
    return item.get("type") == "tool_search_call" and item.get("execution") != "client"


def client_call(item: Mapping[str, Any], raw: bytes) -> ToolCall | None:
    """The item as a call, if the client has to answer it. The arguments are the whole item."""
    kind = as_str(item.get("type"))
    if kind not in OUTPUTS or is_servers(item):
        return None
    return ToolCall(id=call_id_of(item), name=kind, arguments=raw.decode("utf-8", "replace"), kind="provider")


def reason_of(call: ToolCall) -> Literal["approval", "external"]:
    """Whether a call waits for "approval" or "external"."""
    return "approval" if call.name == _APPROVAL else "external"


# --------------------------------------------------------------------------------------- answers


def output_item(call: ToolCall, value: Any, *, is_error: bool = False) -> dict[str, Any]:
    """Make the item that answers a call from the given result.

    Args:
        call: The call; its arguments are the model's item.
        value: The whole item (a mapping with its ``type``), its own members, or only its ``output``; text
            where the output is text; an `Image` for a computer.
        is_error: A patch failed; a shell's commands ended with an exit code of 1.

    Raises:
        ValueError: The value has another shape; the text names the expected one.
    """
    kind = OUTPUTS[call.name]
    given = _members(call.name, value, is_error=is_error)
    item = _named(call.name, call.id, call.arguments) | {
        key: member for key, member in given.items() if key not in ("type", *_IDS)
    }
    if problem := _problem(kind, item):
        raise ValueError(f"the answer to a {call.name} is {_EXPECTED[call.name]}; {problem}")
    try:
        written = rawjson.dumps(item)
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f"the answer to a {call.name} must be JSON") from None
    answer: dict[str, Any] = rawjson.loads(written)
    return answer


_IDS: Final = ("call_id", "approval_request_id", "id")

_EXPECTED: Final = {
    "computer_call": 'an Image, or {"type": "computer_screenshot", "image_url": …}',
    "local_shell_call": "text",
    "shell_call": 'text, or a list of {"stdout": …, "stderr": …, "outcome": …}',
    "apply_patch_call": 'text, or {"status": "completed" or "failed", "output": text}',
    "tool_search_call": 'a list of tools, or {"tools": […]}',
    _APPROVAL: 'Approve() or Deny(), or {"approve": True or False}',
}


def _named(name: str, call_id: str, arguments: str = "") -> dict[str, Any]:
    """The output's type, and the id of the call that it answers."""
    if name == _APPROVAL:
        return {"type": _RESPONSE, "approval_request_id": call_id}
    item: dict[str, Any] = {"type": OUTPUTS[name], "call_id": call_id}
    if name == "local_shell_call":
        own = as_str(as_dict(_view(arguments)).get("id"))
        item = {"type": item["type"], "id": own or call_id, "call_id": call_id}
    if name == "tool_search_call":
        item |= {"execution": "client", "status": "completed"}
    return item


def _members(name: str, value: Any, *, is_error: bool) -> Mapping[str, Any]:
    """The output's own members."""
    if isinstance(value, Mapping) and (value.get("type") == OUTPUTS[name] or set(value) & _OWN[name]):
        return value
    if name == _APPROVAL:
        return {"approve": value}
    if name == "tool_search_call":
        return {"tools": value}
    if isinstance(value, Image) and name == "computer_call":
        return {"output": _screenshot(value)}
    if name == "apply_patch_call":
        return {"status": "failed" if is_error else "completed", "output": value}
    if name == "shell_call" and isinstance(value, str):
        return {"output": [_printed(value, is_error=is_error)]}
    return {"output": value}


_OWN: Final[Mapping[str, frozenset[str]]] = {
    "computer_call": frozenset({"output", "acknowledged_safety_checks"}),
    "local_shell_call": frozenset({"output", "status"}),
    "shell_call": frozenset({"output"}),
    "apply_patch_call": frozenset({"output", "status"}),
    "tool_search_call": frozenset({"tools"}),
    _APPROVAL: frozenset({"approve"}),
}
"""A mapping with one of these keys holds the members of an output. Other mappings are its ``output``."""


def _printed(text: str, *, is_error: bool) -> dict[str, Any]:
    return {
        "stdout": "" if is_error else text,
        "stderr": text if is_error else "",
        "outcome": {"type": "exit", "exit_code": 1 if is_error else 0},
    }


def _screenshot(image: Image) -> dict[str, Any]:
    url = image.url if image.data is None else f"data:{image.media_type};base64,{image.base64()}"
    return {"type": "computer_screenshot", "image_url": url}


def _problem(kind: str, item: Mapping[str, Any]) -> str:
    """The problem of an output; "" if it is valid."""
    output = item.get("output")
    wrong = f"got {type(output).__name__}"
    match kind:
        case "computer_call_output":
            shown = isinstance(output, Mapping) and (output.get("image_url") or output.get("file_id"))
            return "" if shown else "got no screenshot"
        case "local_shell_call_output":
            return "" if isinstance(output, str) else wrong
        case "shell_call_output":
            parts = output if isinstance(output, Sequence) and not isinstance(output, str) else [None]
            whole = all(
                isinstance(part, Mapping) and {"stdout", "stderr", "outcome"} <= set(part) for part in parts
            )
            return "" if whole else wrong
        case "apply_patch_call_output":
            fits = item.get("status") in ("completed", "failed") and isinstance(output, (str, type(None)))
            return "" if fits else wrong
        case "tool_search_output":
            return "" if isinstance(item.get("tools"), (list, tuple)) else "got no list"
        case _:
            return "" if isinstance(item.get("approve"), bool) else "got something else"


# ------------------------------------------------------------------------------------ stored results


def result_item(name: str, call_id: str, parts: Sequence[Part]) -> dict[str, Any]:
    """The item of a stored result, as `output_item` made it. A text that replaces a result ("This tool was
    not run.") becomes a valid item, with the text if the item's shape has a place for it."""
    for part in parts:
        if isinstance(part, Image) and name == "computer_call":
            return _named(name, call_id) | {"output": _screenshot(part)}
    text = "".join(part.text for part in parts if isinstance(part, Text))
    made = as_dict(_view(text)) if text.startswith("{") else {}
    if made.get("type") == OUTPUTS[name] and not _problem(OUTPUTS[name], made):
        return _safe(made) | {key: value for key, value in _named(name, call_id).items() if key in _IDS[:2]}
    text = user_text(text)
    item = _named(name, call_id)
    match name:
        case "computer_call":
            return item | {"output": {"type": "computer_screenshot", "image_url": _NO_SCREEN}}
        case "local_shell_call":
            return item | {"output": text}
        case "shell_call":
            return item | {"output": [_printed(text, is_error=True)]}
        case "apply_patch_call":
            return item | {"status": "failed", "output": text}
        case "tool_search_call":
            return item | {"tools": []}
        case _:
            return item | {"approve": False} | ({"reason": text} if text else {})


def _safe(item: Mapping[str, Any]) -> dict[str, Any]:
    """The output with its text escaped, so that it cannot imitate a block (see `render`)."""
    safe: dict[str, Any] = {
        key: user_text(item[key]) for key in ("output", "reason") if isinstance(item.get(key), str)
    }
    printed = item.get("output")
    if item.get("type") == "shell_call_output" and isinstance(printed, list):
        safe["output"] = [
            {**part, **{key: user_text(part[key]) for key in _PRINTED if isinstance(part.get(key), str)}}
            for part in printed
        ]
    return {**item, **safe}


_PRINTED: Final = ("stdout", "stderr")


def output_parts(item: Mapping[str, Any]) -> tuple[Part, ...] | None:
    """The output of a provider tool as a neutral message; None for an item of another type."""
    kind, output = item.get("type"), item.get("output")
    match kind:
        case "computer_call_output":
            return None if not isinstance(output, Mapping) else _shown(output)
        case "shell_call_output":
            parts = map(as_dict, output) if isinstance(output, list) else ()
            words = [as_str(part.get(name)) for part in parts for name in ("stdout", "stderr")]
            return tuple(map(Text, filter(None, words)))
        case "mcp_approval_response":
            word = "approved" if item.get("approve") is True else "denied"
            reason = as_str(item.get("reason"))
            return (Text(f"{word}: {reason}" if reason else word),)
        case _:
            return None


def _shown(output: Mapping[str, Any]) -> tuple[Part, ...]:
    url = as_str(output.get("image_url"))
    if not url:
        return ()
    media_type, data = data_url(url, "image/png")
    return (Image(media_type=media_type, data=data, url=None if data is not None else url),)


def _view(text: str) -> Any:
    try:
        return rawjson.view(text.encode("utf-8", "replace"))
    except rawjson.RawJSONError:
        return None
