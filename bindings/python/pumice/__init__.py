"""Language models on any GPU, by Vulkan.

    import pumice

    with pumice.Device() as device, device.load("model.gguf") as model, model.engine() as engine:
        for piece in engine.generate("Once upon a time", max_tokens=60):
            print(piece, end="", flush=True)

Handles close themselves at the end of a `with`, or when they are collected. Whatever fails raises pumice.Error. Any thread
may use an engine: one of those that wait for answers does its work, and hands the others theirs.
"""

from ._engine import Answer, Engine, Session
from ._handles import (Constraint, Device, DeviceInfo, Embedder, Loading, LoadProgress, MemoryEstimate, Model, ModelInfo,
                       SelfTest, devices)
from ._library import Error, version
from ._schema import schema_of

__all__ = ["Answer", "Constraint", "Device", "DeviceInfo", "Embedder", "Engine", "Error", "Loading", "LoadProgress",
           "MemoryEstimate", "Model", "ModelInfo", "SelfTest", "Session", "devices", "schema_of", "version"]
__version__ = "0.1.0"
