"""The archive: what cuts took out of a history or changed in it, never sent, kept in parts beside it.

`records` says what a record is. `keeping` adds one, `dropping` drops the oldest, `reading` reads them, and
`undoing` goes back with them.
"""
