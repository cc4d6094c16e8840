"""Shared code of all provider APIs: parts of requests, errors in answers, tolerance, joined pieces.

Owns: code that several provider APIs use. Must never know: the folder of a provider API.

Begin with `request.py` for requests, `answer.py` for replies, `bill.py` for their tokens and costs.
"""
