"""The parts of a turn's request: the history, the model, the preamble, the tools and the settings.

Owns: `Voice`, how it follows from a turn's plan, the parts of the next request in the form that its host
takes, and the encoded tool lists of this process. Must never know: when a request is sent, or the code of a
tool.

A chat sends the same tools with each request. Encoding 200 tools with schemas of 4 KB took longer than the
rest of a turn (measured: 3 of 4.3 ms). The digest by which a state remembers them took long, too. So each
list is encoded once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..backends.base import Dialect, RequestParts
from ..backends.host_rules import joined_rules
from ..backends.protocols import EditsContext, HostRules
from ..base.values import Value, field, replace
from ..open_turn import journal, steps
from ..state.letters import SYSTEM
from ..state.records import Meta, digest4, digest8, host_row
from ..state.state import ConversationState
from ..tools import Tool, external_tool
from ..types.request_parts import ContextEdit, ProviderTool, ToolSpec, check_edits
from .fit_settings import fit_settings
from .ledger import Ledger
from .plan import Plan
from .recall import tools_of

__all__ = [
    "STICKY",
    "ToolText",
    "Tools",
    "Voice",
    "as_host_takes",
    "carried",
    "host_mark",
    "host_rules",
    "request_parts",
    "settled",
    "tool_text",
    "voice_of",
    "words_of",
]

_MOST_SETS: Final = 16
_MOST_BYTES: Final = 2**20
"""A larger list is not kept."""


class ToolText(NamedTuple):
    """A tool list.

    Attributes:
        encoded: As the provider API writes it; b"" for no tools.
        digest: The digest by which a state remembers it; "" for no tools.
    """

    encoded: bytes
    digest: str


class _Kept(NamedTuple):
    """`owners` keeps the objects alive, so that Python does not reuse their ids, which are in the key. They
    hold names and schemas, no functions."""

    owners: tuple[Any, ...]
    text: ToolText


_NO_TOOLS: Final = ToolText(b"", "")
_kept: dict[tuple[object, ...], _Kept] = {}


def tool_text(dialect: Dialect, specs: Sequence[ToolSpec | ProviderTool]) -> ToolText:
    """Write a tool list, or return the list that was written for the same specifications.

    A function's specification is recognised by identity: `Tool.spec` gives the same object each time, unless
    the schema is computed from `deps`. A provider's tool is recognised by its JSON, because a program may
    change it in place, for example to renew a key.
    """
    if not specs:
        return _NO_TOOLS
    key = (id(dialect), *(id(spec) if isinstance(spec, ToolSpec) else _json(spec) for spec in specs))
    found = _kept.get(key)
    if found is not None:
        return found.text
    encoded = dialect.tools(specs)
    text = ToolText(encoded, digest8(encoded) if encoded else "")
    if len(encoded) <= _MOST_BYTES:
        while len(_kept) >= _MOST_SETS:
            _kept.pop(next(iter(_kept), key), None)  # another thread may have been here first
        _kept[key] = _Kept((dialect, *specs), text)
    return text


def _json(tool: ProviderTool) -> str:
    return json.dumps(dict(tool.raw), sort_keys=True)


STICKY: Final = frozenset(
    {
        "reasoning_effort",
        "thinking_budget_tokens",
        "max_output_tokens",
        "temperature",
        "top_p",
        "seed",
        "frequency_penalty",
        "presence_penalty",
    }
)
"""The settings that `sticky_settings` keeps for later turns."""

Tools = Mapping[str, Tool[..., Any]]


class Voice(Value, frozen=True, kw_only=True):
    """The parts of every request of a turn, except the history.

    Attributes:
        model: The model's name.
        preamble: The leading system messages, as this provider API writes them.
        tools: The tools, as this provider API writes them, with their digest.
        settings: Settings by their neutral names.
        output: The provider's format for the answer; b"" for text, also if a type is asked for in words.
        notes: The changes of settings that were written for another model.
        has_compactors_edits: True if the setting `context_management` comes from the compactor, not from the
            turn.
    """

    _unshown = frozenset({"preamble", "tools", "settings", "output"})

    model: str
    preamble: bytes = b""
    tools: ToolText = _NO_TOOLS
    settings: dict[str, Any] = field(default_factory=dict)
    has_compactors_edits: bool = False
    output: bytes = b""
    notes: tuple[str, ...] = ()

    @property
    def recorded(self) -> Mapping[str, Any]:
        """The settings that the turn's record keeps: without the edits that the compactor added."""
        if not self.has_compactors_edits:
            return self.settings
        return {name: value for name, value in self.settings.items() if name != "context_management"}

    @property
    def marks(self) -> dict[str, str]:
        """The marks that a state keeps of its last request: the model, and digests of the other parts."""
        return {
            "model": self.model,
            "preamble": digest8(self.preamble) if self.preamble else "",
            "tools": self.tools.digest,
            "output": digest8(self.output) if self.output else "",
        }

    def is_that_of(self, meta: Meta) -> bool:
        """True if the last request of this conversation had the same model, preamble and tools.

        The signature of thinking covers these parts. It does not cover the format of the answer.
        """
        return all(getattr(meta, name) == mark for name, mark in self.marks.items() if name != "output")

    def after_first(self) -> Voice:
        """The voice of the turn's later requests. A `tool_choice` holds for the first request only."""
        if "tool_choice" not in self.settings:
            return self
        return replace(self, settings={k: v for k, v in self.settings.items() if k != "tool_choice"})


def words_of(plan: Plan, voice: Voice) -> str:
    """The description of the answer's type, for a turn whose provider gets no format and no tool; else ""."""
    wanted = plan.output
    return "" if wanted is None or voice.output or wanted.tool is not None else wanted.words


def voice_of(plan: Plan, meta: Meta) -> tuple[Voice, Tools]:
    """The voice for a plan, and by name the tools that can run.

    Raises:
        ValueError: No model was named, or `tool_choice` names an unknown tool.
    """
    options = plan.options
    given: Mapping[str, Any] = options.settings
    kept: Mapping[str, Any] = {}
    if meta.sticky and options.sticky_settings:
        kept = {name: value for name, value in meta.sticky.items() if name in STICKY and name not in given}
    settings = {name: value for name, value in given.items() if value is not None} if given else {}
    model = settings.pop("model", None) or plan.model
    if not model:
        raise ValueError(
            "no model was named: use Chat('openai:MODEL'), a backend's model=, or ModelSettings(model=…)"
        )
    compactor = options.compactor if plan.usual_compactor is None else plan.usual_compactor
    tools = plan.tools if compactor is None and options.keep_results == "cut" else tools_of(plan)
    if plan.output is not None and plan.output.tool is not None:
        tools = (*tools, plan.output.tool)
    notes: tuple[str, ...] = ()
    if kept or plan.handed:
        own = {name: value for name, value in settings.items() if name not in plan.handed}
        handed = {name: value for name, value in settings.items() if name in plan.handed}
        fit = fit_settings(plan.dialect, own, {**kept, **handed}, model=model, tools=tools)
        settings, notes = dict(fit.settings), fit.notes
    if "tool_choice" in settings and _is_forced(_letters(plan.dialect, meta, model), settings):
        settings["tool_choice"] = "auto"
        notes += ("tool_choice: the server refuses a forced choice, so the model chooses",)
    edits: tuple[ContextEdit, ...] = ()
    if compactor is not None and "context_management" not in given:
        edits = _compactors_edits(compactor, plan, settings)
        if edits:
            settings["context_management"] = edits
    encoded, runnable = _tools(plan, tools, settings.get("tool_choice")) if tools else (_NO_TOOLS, {})
    voice = Voice(
        model=model,
        preamble=plan.dialect.preamble(plan.preamble) if plan.preamble else b"",
        tools=encoded,
        settings=settings,
        has_compactors_edits=bool(edits),
        output=b"" if plan.output is None else plan.output.format(plan.dialect, meta),
        notes=notes,
    )
    return voice, runnable


def _tools(plan: Plan, tools: Sequence[Any], choice: Any) -> tuple[ToolText, Tools]:
    """The tools as the provider API writes them, and by name the tools that can run.

    `choice`: the setting `tool_choice`.
    """
    specs = [tool.spec(plan.options.deps) if isinstance(tool, Tool) else tool for tool in tools]
    runnable = {
        spec.name: tool
        for tool, spec in zip(tools, specs, strict=True)
        if isinstance(tool, Tool) and isinstance(spec, ToolSpec)
    }
    for spec in specs:
        if isinstance(spec, ProviderTool) and (name := _own_name(spec.raw)):
            runnable.setdefault(name, external_tool(name))
    if plan.output is not None and plan.output.tool is not None:
        _check_answer_tool(plan.output.tool.name, specs)
    _check_choice(choice, specs)
    _check_number(plan.dialect, specs)
    return tool_text(plan.dialect, specs), runnable


def request_parts(ledger: Ledger, voice: Voice, *, forbid_tools: bool = False) -> RequestParts:
    """The parts of the next request. Its messages: the history, the open turn, and the inbox."""
    state = ledger.tried_state
    if state.open is not None:
        state = settled(ledger, state)
    meta = state.meta
    entries: list[Any] = state.history()
    if state.open is not None:
        entries.extend(state.open.entries)
        # Results are written from the journal at each request, and enter the turn only when the provider has
        # taken them.
        if state.open.calls:
            entries.extend(ledger.dialect.results(journal.results(state.open.calls)))
    has_system = meta.systems
    for item in ledger.to_send() if ledger.left_waiting is not None else state.inbox:
        entries.append(item.entry)
        has_system = has_system or item.letter == SYSTEM
    parts = RequestParts(
        model=voice.model,
        history=entries,
        preamble=voice.preamble,
        tools=voice.tools.encoded,
        settings=voice.settings,
        stream=ledger.plan.stream,
        cache_key=meta.id or None,
        forbid_tools=forbid_tools,
        carried=carried(meta, ledger.now.wall_ms) if meta.carry else {},
        has_system=has_system,
        # The pictures of this turn have no rows yet. If there are too many at once, the server says so.
        has_media=bool(meta.media),
        cache_marks=ledger.has_acted or not ledger.is_cold,
        drop_signed=meta.unbound,
        output=voice.output,
    )
    return as_host_takes(ledger, parts)


def settled(ledger: Ledger, state: ConversationState) -> ConversationState:
    """A state with an open turn, without the open calls of its paused reply if new messages come before the
    continuation. The same object if nothing has to change."""
    if ledger.left_waiting is not None and not ledger.to_send():
        return state
    return steps.settle(state, ledger.dialect)


def as_host_takes(ledger: Ledger, parts: RequestParts) -> RequestParts:
    """The parts of a request in the form that the host is known to take; the same object if that is this."""
    letters = host_rules(ledger, parts.model)
    if not letters:
        return parts
    # `isinstance(…, ViewsHistory)` would take 20 µs of each request.
    view = getattr(ledger.dialect, "request_view", None)
    if view is None:
        return parts
    if _is_forced(letters, parts.settings):
        parts = replace(parts, settings={**parts.settings, "tool_choice": "auto"})
    found: RequestParts = view(parts, HostRules(letters=letters))
    return found


def _is_forced(letters: str, settings: Mapping[str, Any]) -> bool:
    """True if the settings force the choice of a tool, and the host refuses that."""
    return "o" in letters and settings.get("tool_choice") not in (None, "auto", "none")


def host_rules(ledger: Ledger, model: str) -> str:
    """The letters of the rules that hold for the host in the next request."""
    letters, tried = _letters(ledger.dialect, ledger.state.meta, model), ledger.tried.rules
    return joined_rules(letters, tried) if tried else letters


def _letters(dialect: Dialect, meta: Meta, model: str) -> str:
    """The letters that the host is known to have, and those that its refusals have shown."""
    known = getattr(dialect, "known_rules", None)  # each request asks: faster than isinstance
    if known is None:
        return ""
    letters: str = known(model).letters
    if meta.hosts and (row := host_row(meta.hosts, host_mark(dialect))) is not None:
        letters = joined_rules(letters, row.rules)
    return letters


def host_mark(dialect: Dialect) -> str:
    """The digest of the provider API, the host and the port, by which a state remembers them."""
    return digest4(f"{dialect.wire}\n{getattr(dialect, 'host', '') or dialect.family}")


def carried(meta: Meta, now: int) -> dict[str, str]:
    """The values that an earlier reply asked to repeat in later requests, without expired ones.

    `now`: milliseconds since the epoch.
    """
    return {name: value for name, (value, until) in meta.carry.items() if not until or until > now}


def _own_name(raw: Mapping[str, Any]) -> str | None:
    """The name of a tool that was given as the provider API's own JSON; None without a name.

    Anthropic's client tools (``bash``, ``computer``), functions and custom tools have a name. A call of a
    named tool waits for an answer from outside.
    """
    inner = raw.get(str(raw.get("type")))
    name = raw.get("name") or (inner.get("name") if isinstance(inner, Mapping) else None)
    return name if isinstance(name, str) and name else None


def _compactors_edits(compactor: Any, plan: Plan, settings: Mapping[str, Any]) -> tuple[ContextEdit, ...]:
    """The context edits that the compactor wants, as far as this provider API and host know them."""
    wanted = getattr(compactor, "context_management", ())
    if not wanted or "context_management" in settings.get("extra_body", ()):
        return ()
    check_edits("the compactor's context_management", wanted)
    dialect = plan.dialect
    return dialect.usable_edits(wanted, settings) if isinstance(dialect, EditsContext) else ()


def _check_answer_tool(name: str, specs: Sequence[ToolSpec | ProviderTool]) -> None:
    if sum(isinstance(spec, ToolSpec) and spec.name == name for spec in specs) > 1:
        raise ValueError(
            f"one of the tools has the name {name!r} of the answer's tool; Output(name=…) changes it"
        )


_MOST_TOOLS: Final = 128
_COUNTING: Final = frozenset({"openai", "azure", "api.groq.com"})
"""Hosts that refuse more tools. OpenAI, Azure: "Invalid 'tools': array too long", `array_above_max_length`
(zed#32946, 2025). Groq: ha-groq#25, 2026-04. Others take more, or have not said so."""


def _check_number(dialect: Dialect, specs: Sequence[ToolSpec | ProviderTool]) -> None:
    """Refuse more tools than the host takes, before a request is sent."""
    if len(specs) > _MOST_TOOLS and dialect.family in _COUNTING:
        raise ValueError(
            f"{dialect.family} takes at most {_MOST_TOOLS} tools in a request, and {len(specs)} were given; "
            "offer fewer (tools=…, or only=[…] of MCPTools)"
        )


def _check_choice(choice: Any, specs: Sequence[ToolSpec | ProviderTool]) -> None:
    """Refuse a `tool_choice` that no provider could follow, before a request is sent."""
    if choice in (None, "auto", "none", "required") or not specs:
        return
    if all(isinstance(spec, ToolSpec) and spec.name != choice for spec in specs):
        names = ", ".join(repr(spec.name) for spec in specs if isinstance(spec, ToolSpec))
        raise ValueError(f"tool_choice is {choice!r}; expected 'auto', 'none', 'required', or one of {names}")
