"""The memory store: jobs in dictionaries, for tests and for reading. It is the reference model of the protocol.

Start with `model`: every change of a job's state goes through `MemoryData.move`. The other modules are the sections of
the port: `producing`, `registry`, `working`, `journal`, `housekeeping`, `steering`, `scheduling`, `looking`.
"""

from holdfast.store.memory.model import MemoryData
from holdfast.store.memory.store import MemoryStore

__all__ = ["MemoryData", "MemoryStore"]
