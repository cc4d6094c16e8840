"""The two provider APIs of OpenAI: Chat Completions and Responses.

Owns: their dialects, and the connection through the SDK. Must never know: a turn, or another provider.
"""
