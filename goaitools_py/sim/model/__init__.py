"""The simulated model: its prompts, its replies, its tool calls, and its token counts.

Must never know: JSON of a provider API, a socket. Begin with `prompt.py`, then `game_master.py`.
"""
