"""The unfinished turn of a state: its journal, its inbox, the answers it waits for, and the room it has left.

Owns: pure steps, a state in and a state out. Must never know: a running turn, an effect, a chat.
"""
