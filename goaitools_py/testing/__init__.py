"""Helps to test programs that use this package: a scripted backend, a check of histories, the simulator, and
the contracts that a dialect or a store of your own has to keep."""

from ..backends.rules import check_history
from ..sim import SimServer
from .dialect_contract import DialectSamples, SampleError, SampleReply, dialect_contract
from .scripted import Calls, Raw, ScriptedBackend
from .store_contract import store_contract

__all__ = [
    "Calls",
    "DialectSamples",
    "Raw",
    "SampleError",
    "SampleReply",
    "ScriptedBackend",
    "SimServer",
    "check_history",
    "dialect_contract",
    "store_contract",
]
