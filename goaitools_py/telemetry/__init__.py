"""Traces and metrics of turns, for OpenTelemetry. Needs the extra ``[otel]``.

Owns: `Telemetry`. Must never know: an exporter.
"""

from .telemetry import Telemetry

__all__ = ["Telemetry"]
