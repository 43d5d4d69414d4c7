"""A compiled model: its graph with logits of the asked positions only, and the settings that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13
from openvino._offline_transformations import paged_attention_transformation

from profiles.vocabulary import Setting
from tuner.engines.base import EngineError
from tuner.engines.openvino.folder import MODEL

PAGED, SDPA = "paged", "sdpa"

PROPERTIES = (
    "inference_num_threads",
    "enable_cpu_pinning",
    "enable_hyper_threading",
    "scheduling_core_type",
    "inference_precision_hint",
    "kv_cache_precision",
    "dynamic_quantization_group_size",
)
"""Settings that are OpenVINO properties, by their names in lower case; all are given when it compiles."""

LOGITS_AT = "logits_at"
_SOFT_CAP = frozenset({"Add", "Convert", "Divide", "Multiply", "Tanh"})
"""What may lie between the last matrix and the logits."""


class Graph:
    """One model compiled for the CPU. `is_paged`: its KV caches are inputs, shared by all sequences."""

    def __init__(self, folder: Path, settings: Mapping[str, Setting]) -> None:
        """Raises EngineError with OpenVINO's own line for what it refuses."""
        self.is_paged = settings.get("attention_backend", PAGED) == PAGED
        properties = {name.upper(): settings[name] for name in PROPERTIES if name in settings}
        try:
            core = ov.Core()
            model = core.read_model(folder / MODEL)
            if self.is_paged:
                paged_attention_transformation(model)
            _gather_logits(model, axis=0 if self.is_paged else 1)
            self.compiled = core.compile_model(
                model, "CPU", {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, **properties}
            )
            self.vocabulary_size: int = self.compiled.output(0).get_partial_shape()[-1].get_length()
        except RuntimeError as error:
            raise EngineError(reason(error)) from error

    def request(self) -> ov.InferRequest:
        """A new request; of a graph that isn't paged, with a KV cache of its own."""
        return self.compiled.create_infer_request()

    def effective(self) -> dict[str, Setting]:
        """The settings as the compiled model holds them."""
        held: dict[str, Setting] = {"attention_backend": PAGED if self.is_paged else SDPA}
        held |= {name: _setting(self.compiled.get_property(name.upper())) for name in PROPERTIES}
        if self.is_paged:
            # The cache itself: under bf16 an f16 one is held as bf16, whatever the property says.
            held["kv_cache_precision"] = self.caches()[0].get_element_type().to_string()
        return held

    def facts(self) -> dict[str, Setting]:
        """What else the compiled model says of itself."""
        names = ("num_streams", "execution_devices", "runtime_requirements")
        return {name: str(self.compiled.get_property(name.upper())) for name in names}

    def caches(self) -> list[Any]:
        """The inputs that are KV caches, of shape (blocks, heads, tokens, values); none unless paged."""
        return [one for one in self.compiled.inputs if "_cache." in one.get_any_name()]


def reason(error: Exception) -> str:
    """OpenVINO's own line: what it says after where in its sources it says it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("Exception from ", "Check '"))]
    return (told or lines or [type(error).__name__])[-1]


def _gather_logits(model: ov.Model, axis: int) -> None:
    """Add the input `logits_at`: positions along `axis` whose logits are computed, instead of all."""
    node = model.output(0).get_node().input_value(0).get_node()
    while node.get_type_name() in _SOFT_CAP:
        node = node.input_value(0).get_node()
    if node.get_type_name() != "MatMul":
        raise EngineError(f"the graph ends in {node.get_type_name()}: a matrix multiplication is needed")
    positions = opset13.parameter([-1], np.int64, name=LOGITS_AT)
    positions.output(0).set_names({LOGITS_AT})
    rows = opset13.gather(node.input_value(0), positions, opset13.constant(axis, np.int64))
    node.input(0).replace_source_output(rows.output(0))
    model.add_parameters([positions])
    model.validate_nodes_and_infer_types()


def _setting(value: Any) -> Setting:
    """A property's value as a configuration has it: types and kinds of cores by their names."""
    if isinstance(value, bool | int | float | str):
        return value
    return str(value.to_string() if isinstance(value, ov.Type) else value.name)
