"""What all provider APIs share on the way to a server: one exchange, its faults, its stream, its connections.

Owns: HTTP as this package uses it. Must never know: what a body says.
"""
