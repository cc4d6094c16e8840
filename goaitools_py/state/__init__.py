"""A conversation as one value, and that value as bytes.

Owns: the pieces of a state and how they are written. Must never know: how a turn runs, or a provider API.

Begin with `state.py`: `dump_state` and `load_state`. `blob.py` writes the envelope, and `segments.py` the
lines in it. `docs/state_format.md` describes the bytes.
"""
