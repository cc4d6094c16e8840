"""Stable. How many tokens text takes: a door to `types.tokens`."""

from .types.tokens import Frames, TiktokenCounter, TokenCounter, TokenEstimate

__all__ = ["Frames", "TiktokenCounter", "TokenCounter", "TokenEstimate"]
