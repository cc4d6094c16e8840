"""Rewrites of a stored history: cuts and repairs, and what each of them takes with it.

Owns: pure steps, a state in and a state out. Must never know: a running turn, an effect, a chat.
"""
