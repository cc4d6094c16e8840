"""The unfinished turn of a state: its steps and calls, its inbox, the answers it waits for, and its room.

Owns: pure steps, a state in and a state out. Must never know: a running turn, an effect, a chat.
"""
