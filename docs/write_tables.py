"""Writes the tables of the reference from the code: events, warnings, errors, settings, HTTP routes, servers.

    python docs/write_tables.py          # a test fails while a page does not say what the package does

Owns: how the tables look. Must never know: what a cell says. The texts are those of docstrings, of the
comments above the codes of warnings, and of the OpenAPI document.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

from goaitools_py import Chat, ModelSettings
from goaitools_py.backends.host_rules import RULES
from goaitools_py.backends.known_hosts import ROWS, KnownHost
from goaitools_py.frontends import AGUI, AISDK, problem_of
from goaitools_py.serve.openapi import document_of, stateless_document_of
from goaitools_py.testing import ScriptedBackend
from goaitools_py.types import errors, events, turn_warnings

DOCS = Path(__file__).resolve().parent

# ----------------------------------------------------------------------------------------- docstrings

LINKS = {
    "ChatResult": "results.md#chatresult",
    "CompactionReport": "results.md#compactionreport",
    "Conversion": "convert.md",
    "PendingCall": "results.md#pendingcall",
    "StateInfo.conversation_id": "state_fields.md#stateinfo",
    "ToolCall": "results.md#toolcall",
    "ToolRecord": "results.md#toolrecord",
    "Usage": "results.md#usage",
    "fallbacks": "convert.md#when-a-provider-is-down",
    "ServeLimits.state_bytes": "carry_state.md",
}
"""Names in texts that lead to a page."""


def _cell(text: str) -> str:
    """A text of a docstring as one cell of a table."""
    text = re.sub(r"``(.+?)``", r"`\1`", " ".join(text.split())).rstrip(".").replace("|", r"\|")
    text = re.sub(r"(?<![\w`])(None|True|False)(?![\w`])", r"`\1`", text)
    text = re.sub(r'(?<![\w`=(])"(\w*)"', r'`"\1"`', text)
    for name, page in LINKS.items():
        text = text.replace(f"`{name}`", f"[`{name}`]({page})", 1)
    return text[:1].lower() + text[1:] if re.match(r"[A-Z][a-z]*\b(?![A-Z])", text) else text


def _head(owner: type) -> str:
    """The first paragraph of a docstring."""
    return inspect.getdoc(owner).partition("\n\n")[0]  # type: ignore[union-attr]


def _attributes(owner: type) -> dict[str, str]:
    """The texts below ``Attributes:``, by the names in front of them."""
    _, _, below = (inspect.getdoc(owner) or "").partition("Attributes:\n")
    block = re.split(r"\n(?=\S)", below)[0]
    return dict(re.findall(r"^ {4}(\w[\w, ]*): (.+(?:\n(?: {8,}.*)?)*)", block, re.M))


# --------------------------------------------------------------------------------- events and warnings


def _events() -> Iterator[str]:
    yield from ("<!-- events -->", "", "| event | when | field | meaning |", "|---|---|---|---|")
    known = [
        kind for kind in vars(events).values() if inspect.isclass(kind) and issubclass(kind, events.Event)
    ]
    for kind in known:
        name, when = (
            (f"`{kind.__name__}`", _cell(_head(kind))) if kind is not events.Event else ("each event", "")
        )
        rows = [(f"`{field}`", _cell(text)) for field, text in _attributes(kind).items()] or [("", "")]
        for at, (field, text) in enumerate(rows):
            yield f"| {'' if at else name} | {'' if at else when} | {field} | {text} |"


def _warnings() -> Iterator[str]:
    yield from ("<!-- codes: goaitools_py.TurnWarning -->", "", "| `code` | meaning |", "|---|---|")
    source = inspect.getsource(turn_warnings)
    texts = {
        code: " ".join(line.strip(" #") for line in lines.splitlines())
        for lines, code in re.findall(r'((?: {4}# .*\n)+) {4}"(\w+)",\n', source)
    }
    for code in get_args(turn_warnings.WarningCode):
        yield f"| `{code}` | {_cell(texts[code])} |"


# ----------------------------------------------------------------------------------------------- errors


def _errors() -> Iterator[str]:
    yield "| class | of | meaning | `retryable` | HTTP status |"
    yield "|---|---|---|---|---|"
    kinds = [
        kind for name in errors.__all__ if issubclass(kind := getattr(errors, name), errors.GoAIToolsError)
    ]
    for kind in sorted(kinds, key=_family):
        base = kind.__bases__[0].__name__
        problem = problem_of(kind("…"))
        text = re.split(r"\s*Retryable[^.;]*[.;]\s*", _head(kind))
        said = _cell(" ".join(piece[:1].upper() + piece[1:] for piece in text if piece))
        of = "" if base == "Exception" else f"`{base}`"
        about = f"{problem.status}{'' if problem.code == kind.__name__ else f', as `{problem.code}`'}"
        yield f"| `{kind.__name__}` | {of} | {said} | {_retryable(kind)} | {about} |"


def _family(kind: type) -> tuple[str, ...]:
    """The names of the classes from the root down to this one: a base stands before its subclasses."""
    order = [errors.GoAIToolsError, errors.TurnError, errors.StoreError, errors.StateError]
    bases = [base.__name__ for base in reversed(kind.__mro__) if issubclass(base, errors.GoAIToolsError)]
    rank = max(order.index(base) for base in order if issubclass(kind, base))
    return (str(rank), *bases)


def _retryable(kind: type[errors.GoAIToolsError]) -> str:
    found = re.search(r"Retryable([^.;]*)[.;]", inspect.getdoc(kind) or "")
    if found and issubclass(kind, errors.TurnError):
        said = " ".join(found[1].strip(", ").split())
        return f"yes, {said}" if said else "yes"
    return "yes" if kind.retryable else "no"


# --------------------------------------------------------------------------------------------- settings

APIS = {"openai": "Chat Completions", "openai-responses": "Responses", "anthropic": "Messages"}
OLDER = {"anthropic-version": "2023-06-01"}
SAMPLES: dict[str, Any] = {
    "model": "m",
    "max_output_tokens": 9000,
    "temperature": 0.5,
    "top_p": 0.5,
    "reasoning_effort": "low",
    "thinking_budget_tokens": 1024,
    "stop": "x",
    "seed": 1,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "parallel_tool_calls": False,
    "tool_choice": "none",
    "prompt_cache_key": "k",
    "extra_body": {"a": 1},
    "extra_headers": {"x-a": "1"},
    "context_management": (),
}
"""A value for each setting, which is good wherever the API has the setting."""


def _settings() -> Iterator[str]:
    heads = " | ".join(f"`{wire}`" for wire in APIS)
    yield from ("<!-- fields: goaitools_py.ModelSettings -->", "", f"| setting | {heads} | meaning |")
    yield "|---|---|---|---|---|"
    for names, text in _attributes(ModelSettings).items():
        taken = {tuple(_takes(wire, name) for wire in APIS) for name in names.split(", ")}
        assert len(taken) == 1, f"one row for settings that not the same APIs have: {names}"
        quoted = ", ".join(f"`{name}`" for name in names.split(", "))
        yield f"| {quoted} | {' | '.join(taken.pop())} | {_cell(text)} |"


def _takes(wire: str, name: str) -> str:
    """Whether a provider API has a setting: a turn is begun with it."""
    for answer, headers in (("yes", {}), ("older version", OLDER)):
        given = {"extra_headers": headers} | {name: SAMPLES[name]} if headers else {name: SAMPLES[name]}
        with Chat(ScriptedBackend("Hello.", wire=wire)) as chat:
            try:
                chat.chat(user="Hello?", settings=ModelSettings(**given))
                return answer
            except ValueError:
                continue
    return "no"


# ----------------------------------------------------------------------------------------------- routes


def _routes(document: dict[str, Any]) -> Iterator[str]:
    yield "| route | does | takes | answers |"
    yield "|---|---|---|---|"
    for path, route in document["paths"].items():
        for method in ("get", "post", "patch", "delete"):
            if method not in route:
                continue
            operation = route[method]
            good = ", ".join(one for one in sorted(operation["responses"]) if one < "300")
            takes = ", ".join(_taken(document, operation))
            yield f"| `{method.upper()} {path}` | {_cell(operation['summary'])} | {takes} | {good} |"


def _taken(document: dict[str, Any], operation: dict[str, Any]) -> Iterator[str]:
    for parameter in operation.get("parameters", ()):
        yield f"`{parameter['name']}`" + (" (header)" if parameter["in"] == "header" else "")
    for form, body in operation.get("requestBody", {}).get("content", {}).items():
        if form == "multipart/form-data":
            yield "or a form"
            continue
        schema = body["schema"]
        named: dict[str, None] = {}
        for one in schema.get("anyOf", [schema]):
            one = document["components"]["schemas"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one
            named |= dict.fromkeys(one.get("properties", ()))
        if schema.get("type") == "array":
            yield "a list of events"
        elif named:
            yield f"`{{{', '.join(json.dumps(name) for name in named)}}}`"
        elif "additionalProperties" in schema:
            yield "lists of events by name"
        else:
            yield "`{}` or nothing"


def _statuses() -> Iterator[str]:
    yield "| status | meaning | of |"
    yield "|---|---|---|"
    operations = {
        f"{method.upper()} {path}": one
        for path, route in document_of((AISDK,))["paths"].items()
        for method, one in route.items()
        if isinstance(one, dict)
    }
    groups = {
        "each route": set(operations),
        "routes with a body": {name for name, one in operations.items() if "requestBody" in one},
        "routes without a body": {name for name, one in operations.items() if "requestBody" not in one},
        "routes that ask a model": {name for name, one in operations.items() if "402" in one["responses"]},
    }
    texts = {code: one for operation in operations.values() for code, one in operation["responses"].items()}
    for code in sorted(code for code in texts if code > "300"):
        of = {name for name, one in operations.items() if code in one["responses"]}
        group = next((group for group, names in groups.items() if names <= of), "")
        others = [f"`{name}`" for name in sorted(of - groups.get(group, set()))]
        places = ", ".join([group, *others] if group else others)
        yield f"| {code} | {_cell(texts[code]['description'])} | {places} |"


# ---------------------------------------------------------------------------------------------- servers

OWN = {
    "openai": "OpenAI",
    "anthropic": "Anthropic",
    "azure": "Azure",
    "aws": "Bedrock, Anthropic at AWS",
    "foundry": "Azure (Foundry)",
}
"""Names of endpoint families that are no host names."""


def _rules() -> Iterator[str]:
    yield "| rule | what is done |"
    yield "|---|---|"
    for letter, words in sorted(RULES.items()):
        yield f"| `{letter}` | {words} |"


def _hosts() -> Iterator[str]:
    yield "| API | host | models | rules | since | source |"
    yield "|---|---|---|---|---|---|"
    for row in sorted(ROWS, key=_order):
        rules = ", ".join(f"`{letter}`" for letter in row.letters)
        host = OWN.get(row.host, f"`{row.host}`")
        models = "all" if row.model == "*" else f"`{row.model}`"
        yield f"| {APIS[row.wire]} | {host} | {models} | {rules} | {row.since} | {row.source} |"


def _order(row: KnownHost) -> tuple[int, str, str]:
    return list(APIS).index(row.wire), row.host.lstrip("*."), row.model


# ------------------------------------------------------------------------------------------------ pages

TABLES: dict[str, dict[str, Callable[[], Iterator[str]]]] = {
    "event_fields.md": {"events": _events, "warnings": _warnings},
    "error_classes.md": {"errors": _errors},
    "options.md": {"settings": _settings},
    "routes.md": {
        "routes": lambda: _routes(document_of((AISDK, AGUI))),
        "carrying": lambda: _routes(stateless_document_of((AISDK,))),
        "statuses": _statuses,
    },
    "server_rules.md": {"rules": _rules, "hosts": _hosts},
}
"""Pages with the tables that stand in them, each between two marks."""


def written(name: str, page: str) -> str:
    """A page with its tables as the package has them now."""
    for table, lines in TABLES[name].items():
        begin, end = f"<!-- {table}: begin -->\n", f"<!-- {table}: end -->"
        before, rest = page.split(begin)
        page = (
            before + begin + "\n" + "".join(f"{line}\n" for line in lines()) + "\n" + end + rest.split(end)[1]
        )
    return page


if __name__ == "__main__":
    for name in TABLES:
        path = DOCS / name
        path.write_text(written(name, path.read_text(encoding="utf-8")), encoding="utf-8")
