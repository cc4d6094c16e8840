"""HTTP to a server, for all provider APIs: one exchange, its faults, its stream, its connections.

Owns: HTTP as this package uses it. Must never know: the content of a body.
"""
