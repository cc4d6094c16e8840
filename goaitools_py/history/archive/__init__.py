"""The archive: turns that cuts removed or changed, as they were. It is kept in parts, and never sent.

`records` defines a record. `keeping` adds one, `dropping` drops the oldest, `reading` reads them, and
`undoing` undoes a cut with one.
"""
