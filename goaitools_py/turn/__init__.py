"""One turn, written once, without a socket, a clock or a colour.

Owns: what is asked of the model and the tools, in which order, and what is booked whatever happens.
Must never know: who carries its requests out (`edges`), or where states are kept (`stores`).
"""
