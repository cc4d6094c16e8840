"""Where blobs are kept: a protocol with compare-and-swap, and a SQLite file that speaks it."""

from .base import Store, Stored
from .sqlite import SQLiteStore

__all__ = ["SQLiteStore", "Store", "Stored"]
