"""A page for people: conversations of a store in a browser, and an inspector of their states.

Owns: the page, the guard before it, and the inspector. Must never know: who uses the page.
`goaitools serve` runs it. It needs the extra ``[serve]``. Begin with `page_app.py`.
"""
