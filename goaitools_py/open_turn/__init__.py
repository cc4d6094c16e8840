"""The unfinished turn of a state: its steps and calls, its inbox, the answers it waits for, and its room.

Owns: pure steps, a state in and a state out. Must never know: a running turn, an effect, a chat.

Begin with `acts.py`: it has one function for each phase of a turn. `turn/` runs a turn and calls these acts.
"""
