"""The provider API "anthropic": Messages.

Owns: all that is known of this API alone, and the connection through the SDK. Must never know: a turn, or
another provider API.
"""
