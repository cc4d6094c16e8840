"""The option of a chat for traces: `Telemetry`.

Owns: the providers, the agent's name, and whether content may be written. Must never know: how a turn runs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import metrics, trace

from ..base import __version__
from ..turn.plan import Watch
from .attributes import Meters
from .conventions import SCHEMA_URL
from .spans import Asked, Trace

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["Telemetry"]

_SCOPE: Final = "goaitools_py"
_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_YES: Final = frozenset({"true", "1", "span_only", "span_and_event"})


class Telemetry:
    """Traces the turns of the chats that it is given to: ``Chat("openai:MODEL", telemetry=Telemetry())``.

    One object serves any number of chats, threads and event loops.

    Args:
        tracer_provider: Makes the tracer; None takes the global one.
        meter_provider: Makes the meter; None takes the global one.
        content: True writes messages, arguments and results into spans. None: the environment variable
            ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` decides.
        agent: The name of your program, such as "game-guide": ``gen_ai.agent.name``.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        content: bool | None = False,
        *,
        agent: str = "",
    ) -> None:
        self.content = os.environ.get(_CAPTURE, "").lower() in _YES if content is None else bool(content)
        self.agent = agent
        self._tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider, SCHEMA_URL)
        self._meters = Meters(metrics.get_meter(_SCOPE, __version__, meter_provider, SCHEMA_URL))

    def __repr__(self) -> str:
        return f"Telemetry(agent={self.agent!r}, content={self.content})"

    def watch(
        self,
        backend: Any,
        inner: Watch | None = None,
        *,
        model: str | None = None,
        settings: dict[str, Any] | None = None,
        output_type: str = "",
        messages: tuple[Any, ...] = (),
        is_turn: bool = True,
    ) -> Watch:
        """Make the watch that traces one flow.

        Args:
            backend: The backend that is asked, unless a model call names another.
            inner: Another watch, which sees everything first.
            model: The model that is asked for.
            settings: The model settings of the turn.
            output_type: "json" if an answer of a type is asked for.
            messages: The turn's new messages.
            is_turn: False for work beside turns, which has spans of its model calls only.
        """
        asked = Asked(
            backend=backend,
            model=model or "",
            settings=settings or {},
            output_type=output_type,
            messages=messages,
            agent=self.agent,
            is_turn=is_turn,
        )
        traced = Trace(self._tracer, self._meters, asked, content=self.content)
        return traced if inner is None else lambda flow: traced(inner(flow))
