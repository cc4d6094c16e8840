"""The provider API of Anthropic: Messages.

Owns: its dialect, and the connection through the SDK. Must never know: a turn, or another provider.
"""
