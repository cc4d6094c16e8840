"""The simulated model: what it reads, what it says, which tools it calls, and what it counts.

Must never know: JSON of a provider API, a socket.
"""
