"""The provider API "openai": Chat Completions.

Owns: all that is known of this API alone. Must never know: a turn, or another provider API.
"""
