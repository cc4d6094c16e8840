"""The provider API "anthropic": Messages.

Owns: all that is known of this API alone, and the connection through the SDK. Must never know: a turn, or
another provider API.

Begin with `dialect.py`. `rules.py` has the order of messages that the API requires, `reply.py` and
`stream.py` read replies, and `backends.py` has the public classes.
"""
