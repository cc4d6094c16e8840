"""The simulator's Anthropic API: Messages, its signatures, and its refusals.

Begin with `messages_api.py`. `rules.py` refuses requests; it shares no code with `backends/`.
"""
