"""The simulator's HTTP side: a loopback server, request bodies, responses, and faults on demand.

Must never know: the meaning of a request, or which provider API it belongs to.
"""
