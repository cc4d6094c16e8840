"""The simulator's HTTP side: a loopback server, request bodies, responses, and faults on demand.

Must never know: what a request means, or which provider API it belongs to.
"""
