"""HTTP to a server, for all provider APIs: one exchange, its faults, its stream, its connections.

Owns: HTTP as this package uses it. Must never know: the content of a body, beside the text of an error.

Begin with `sdk_edge.py`, which posts a body. `exchange.py` reads the answer, `deadlines.py` keeps the time,
`faults.py` classifies error answers, and `refusals.py` has the words of servers for them.
"""
