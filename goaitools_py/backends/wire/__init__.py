"""Shared code of all provider APIs: parts of requests, errors in answers, tolerance, joined pieces.

Owns: code that several provider APIs use. Must never know: a provider's room.
"""
