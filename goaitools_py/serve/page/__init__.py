"""A page for people: conversations of a store in a browser, and an inspector of their states.

Owns: this room. Must never know: who uses the page.
`goaitools serve` runs it. It needs the extra ``[serve]``.
"""
