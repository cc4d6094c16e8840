"""Shared code of all provider APIs: parts of requests, errors in answers, tolerance, joined pieces.

Owns: nothing that only one provider API has. Must never know: a provider's room.
"""
