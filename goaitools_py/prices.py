"""Stable. Prices of models, and what turns cost: a door to `types.prices`."""

from .types.prices import *  # noqa: F403
from .types.prices import __all__ as __all__
