"""All of a blob checked: its bytes, and the chain of records in its archive.

Owns: `verify_state`. Must never know: a store, or a model.
"""

from __future__ import annotations

from ..open_turn import journal, steps
from ..state import whole_blobs as placing
from ..state.codec import PLAIN, Binding, Codec
from ..state.state import closed_turns, load_state
from ..types.errors import StateError
from .archive.reading import check_chain
from .rewrite.repair import checked
from .wires import known_dialect

__all__ = ["verify_state"]


def verify_state(
    blob: bytes | bytearray | memoryview, *, codec: Codec = PLAIN, binding: Binding = None
) -> tuple[bytes, ...]:
    """Check all of a blob: its seal, the digest of each part in it, and that everything in it can be opened.

    The records of the archive are read too, if the journal of cuts names one and all parts of the archive are
    in the blob. Each names the record before it, and the journal names the newest. Each entry must be a JSON
    object, and each row must have a form that this release writes. The calls of an unfinished turn must be
    the calls of its last reply.

    A turn checks only the parts that it reads. Call this for backups, and after a migration of a database.

    Args:
        blob: The stored value.
        codec: How the blob is protected.
        binding: For sealed codecs: the owner of the blob.

    Returns:
        The digests of the parts that are kept elsewhere. They are not checked: attach them first.

    Raises:
        StateError: Something in it is damaged, or cannot be read.
    """
    elsewhere = placing.verify_state(blob, codec=codec, binding=binding)
    state = load_state(blob, codec=codec, binding=binding)
    try:
        closed_turns(state)
        if (dialect := known_dialect(state.meta.wire)) is not None:
            journal.check_journal(state, dialect)
            checked(steps.close_turn(state, dialect), dialect)
        check_chain(state, codec, binding)
    except StateError as error:
        error.blob = bytes(blob)
        raise
    return elsewhere
