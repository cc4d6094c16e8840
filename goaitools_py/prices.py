"""Stable. Prices of models, and what turns cost: a door to `types.usage`."""

from .types.usage import *  # noqa: F403
from .types.usage import __all__ as __all__
