"""Provisional. Traces and metrics of turns, for OpenTelemetry. Needs the extra ``[otel]``.

Owns: `Telemetry`. Must never know: an exporter. Begin with `spans.py`.
"""

from ..base.advice import missing_extra_error

try:
    from .telemetry import Telemetry
except ModuleNotFoundError as error:
    raise missing_extra_error(error, "Telemetry", "otel") from None

__all__ = ["Telemetry"]
