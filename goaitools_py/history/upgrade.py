"""A state in another version of the format, and under the newest key.

Owns: the one step that a migration takes for each state. Must never know: the changes of a version, or the
place of states.
"""

from __future__ import annotations

from ..state.blob_header import peek
from ..state.codec import PLAIN, Binding, Codec
from ..state.formats import FORMAT_VERSIONS, writing
from ..state.state import load_state
from ..state.whole_blobs import rewrap

__all__ = ["upgrade_state"]


def upgrade_state(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Binding = None,
    min_revision: int | None = None,
    to: int | None = None,
) -> bytes:
    """Write a state in the newest version of the format, sealed with the first key of its codec.

    Its content, its revision and its times do not change. A state that is up to date is checked and returned
    as it is. So a loop over all states writes only outdated states, and may be stopped and run again.

    Args:
        blob: The state. Its parts must be in it, if they are to get the newest key too.
        codec: How it is protected.
        binding: For sealed codecs: the owner of the blob.
        min_revision: Refuse a state that is older than this.
        to: Another version of `FORMAT_VERSIONS`, such as an older one for workers of an older release.

    Returns:
        The state to store.

    Raises:
        StateError: The state cannot be read.
        ValueError: This release does not write the version `to`, or that version has no place for something
            that the state holds.
    """
    target = writing(codec, to)
    load_state(blob, codec=codec, binding=binding, min_revision=min_revision)
    upgraded = rewrap(blob, target, binding=binding)
    if to is not None and (found := peek(upgraded).version) != to:
        raise ValueError(
            f"the state holds something that format version {to} has no place for; the first version with "
            f"one is {found}: {FORMAT_VERSIONS[found]}"
        )
    return upgraded
