"""What goes with every request of a turn beside the history: model, preamble, tools, settings.

Owns: `Voice` and how it follows from a turn's plan. Must never know: when a request is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..backends.base import EditsContext, ProviderTool, ToolSpec
from ..context_management import ContextEdit, check_edits
from ..state.records import Meta, digest8
from ..tools import Tool, external_tool
from ..values import Value, field, replace
from .ledger import Plan

__all__ = ["STICKY", "Tools", "Voice", "voice_of"]

STICKY: Final = frozenset(
    {"reasoning_effort", "thinking_budget_tokens", "max_output_tokens", "temperature", "top_p", "seed"}
)
"""Settings that `sticky_settings` keeps for later turns."""

Tools = Mapping[str, Tool[..., Any]]


class Voice(Value, frozen=True, kw_only=True):
    """What goes with every request of a turn, beside the history."""

    unshown = frozenset({"preamble", "tools", "settings"})

    model: str
    preamble: bytes = b""
    tools: bytes = b""
    settings: dict[str, Any] = field(default_factory=dict)
    has_compactors_edits: bool = False
    """True: `context_management` among the settings is the compactor's, and no setting of the turn's."""

    @property
    def recorded(self) -> Mapping[str, Any]:
        """The settings as the turn's record has them: without what the compactor added to them."""
        if not self.has_compactors_edits:
            return self.settings
        return {name: value for name, value in self.settings.items() if name != "context_management"}

    @property
    def marks(self) -> dict[str, str]:
        """What a state keeps of the voice of its last request."""
        return {
            "model": self.model,
            "preamble": digest8(self.preamble) if self.preamble else "",
            "tools": digest8(self.tools) if self.tools else "",
        }

    def is_that_of(self, meta: Meta) -> bool:
        """True if the last request of this conversation had the same model, preamble and tools."""
        return all(getattr(meta, name) == mark for name, mark in self.marks.items())

    def after_first(self) -> Voice:
        """The voice of the turn's later requests: a `tool_choice` holds for the first only."""
        if "tool_choice" not in self.settings:
            return self
        return replace(self, settings={k: v for k, v in self.settings.items() if k != "tool_choice"})


def voice_of(plan: Plan, meta: Meta) -> tuple[Voice, Tools]:
    """Settings, preamble and tools as they go on the wire, and the tools that can run by name.

    Raises:
        ValueError: No model was named, or `tool_choice` names a tool that is not there.
    """
    options = plan.options
    kept = {name: value for name, value in meta.sticky.items() if name in STICKY}
    given = {**kept, **options.settings} if options.sticky_settings else options.settings
    settings = {name: value for name, value in given.items() if value is not None}
    model = settings.pop("model", None) or plan.model
    if not model:
        raise ValueError(
            "no model was named: use Chat('openai:MODEL'), a backend's model=, or ModelSettings(model=…)"
        )
    edits = () if "context_management" in given else _compactors_edits(plan, settings)
    if edits:
        settings["context_management"] = edits
    specs = [tool.spec(options.deps) if isinstance(tool, Tool) else tool for tool in plan.tools]
    runnable = {
        spec.name: tool
        for tool, spec in zip(plan.tools, specs, strict=True)
        if isinstance(tool, Tool) and isinstance(spec, ToolSpec)
    }
    for spec in specs:
        if isinstance(spec, ProviderTool) and (name := _own_name(spec.raw)):
            runnable.setdefault(name, external_tool(name))
    _check_choice(settings.get("tool_choice"), specs)
    voice = Voice(
        model=model,
        preamble=plan.dialect.preamble(plan.preamble) if plan.preamble else b"",
        tools=plan.dialect.tools(specs) if specs else b"",
        settings=settings,
        has_compactors_edits=bool(edits),
    )
    return voice, runnable


def _own_name(raw: Mapping[str, Any]) -> str | None:
    """The name by which a model calls a tool of the wire's own JSON: Anthropic's client tools (``bash``,
    ``computer``) have one, and so have functions and custom tools. Calls of it wait for whoever runs it."""
    inner = raw.get(str(raw.get("type")))
    name = raw.get("name") or (inner.get("name") if isinstance(inner, Mapping) else None)
    return name if isinstance(name, str) and name else None


def _compactors_edits(plan: Plan, settings: Mapping[str, Any]) -> tuple[ContextEdit, ...]:
    """What the compactor has the provider do by itself, as far as this wire and host can."""
    compactor = plan.options.compactor if plan.usual_compactor is None else plan.usual_compactor
    wanted = getattr(compactor, "context_management", ())
    if not wanted or "context_management" in settings.get("extra_body", ()):
        return ()
    check_edits("the compactor's context_management", wanted)
    dialect = plan.dialect
    return dialect.usable_edits(wanted, settings) if isinstance(dialect, EditsContext) else ()


def _check_choice(choice: Any, specs: Sequence[ToolSpec | ProviderTool]) -> None:
    """Refuse a `tool_choice` that no provider could follow, before anything is sent."""
    if choice in (None, "auto", "none", "required") or not specs:
        return
    if all(isinstance(spec, ToolSpec) and spec.name != choice for spec in specs):
        names = ", ".join(repr(spec.name) for spec in specs if isinstance(spec, ToolSpec))
        raise ValueError(f"tool_choice is {choice!r}; expected 'auto', 'none', 'required', or one of {names}")
