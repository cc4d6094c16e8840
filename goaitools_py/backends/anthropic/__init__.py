"""The wire of Anthropic: Messages.

Owns: its dialect, and the edge over the SDK. Must never know: a turn, or the other provider.
"""
