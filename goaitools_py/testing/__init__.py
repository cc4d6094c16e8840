"""For tests of programs that use this package: a scripted backend, a history check, the simulator."""

from ..backends.rules import check_history
from ..sim import SimServer
from .scripted import Calls, Raw, ScriptedBackend

__all__ = ["Calls", "Raw", "ScriptedBackend", "SimServer", "check_history"]
