"""Stable. Helps to test programs that use this package.

Owns: a scripted backend, a check of histories, and the contracts for your own dialects and stores. Must never
know: the tests of this package.

Begin with `scripted.py`, `store_contract.py` or `dialect_contract.py`. The files `_store_….py` and
`_contract_….py` have the checks of these contracts.
"""

from ..sim import SimServer
from ._history_check import check_history
from .cassette import Cassette
from .crash_points import CrashReport, crash_points
from .dialect_contract import DialectSamples, SampleError, SampleReply, dialect_contract
from .scripted import Calls, Raw, ScriptedBackend
from .store_contract import store_contract

__all__ = [
    "Calls",
    "Cassette",
    "CrashReport",
    "DialectSamples",
    "Raw",
    "SampleError",
    "SampleReply",
    "ScriptedBackend",
    "SimServer",
    "check_history",
    "crash_points",
    "dialect_contract",
    "store_contract",
]
