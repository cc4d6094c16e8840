"""Provisional. Traces and metrics of turns, for OpenTelemetry. Needs the extra ``[otel]``.

Owns: `Telemetry`. Must never know: an exporter.
"""

from ..base.extras import lacking

try:
    from .telemetry import Telemetry
except ModuleNotFoundError as error:
    raise lacking(error, "Telemetry", "otel") from None

__all__ = ["Telemetry"]
