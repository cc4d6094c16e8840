"""Recall: a search in the turns that cuts took out of a history.

`search` ranks texts, `passages` reads the archive as texts, `page` makes an answer for the model of both.
"""
