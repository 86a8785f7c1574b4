"""What a model file says of itself, as ONNX Runtime's ``ModelMetadata``, and its inputs and outputs as ``NodeArg``."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.frontend.model_file.source import ModelLike, open_source
from tilewright.runtime.signature import TensorSpec


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a model file says of itself.

    ``producer_name``: the program that wrote it. ``graph_name``: the name of the graph. ``graph_description``: the
    text of the graph. ``domain``: the namespace of the model. ``description``: the text of the model. ``version``: the
    number of the model. ``custom_metadata_map``: its metadata properties, texts by name.

    >>> meta = tilewright.InferenceSession("model.onnx").get_modelmeta()
    >>> meta.version, meta.custom_metadata_map
    (0, {})
    """

    producer_name: str = ""
    graph_name: str = ""
    graph_description: str = ""
    domain: str = ""
    description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


def metadata_of(model: ModelLike) -> ModelMetadata:
    """That of a model, whose weights are not read. Raises ModelError where it cannot be read."""
    m = open_source(model).model
    return ModelMetadata(
        m.producer_name, m.graph.name, m.graph.doc_string, m.domain, m.doc_string, m.model_version,
        {p.key: p.value for p in m.metadata_props},
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output of a session.

    ``name``: as in the model. ``type``: as in ONNX Runtime, ``tensor(float)``. ``shape``: a list of sizes; of a
    symbolic one its name or its formula (``2*batch``).

    >>> (y,) = tilewright.InferenceSession("model.onnx").get_outputs()
    >>> y.name, y.shape, y.type
    ('y', ['batch', 10], 'tensor(float)')
    """

    name: str
    type: str
    shape: list[int | str]

    @staticmethod
    def of(spec: TensorSpec) -> NodeArg:
        """That of an input or output of a compiled model."""
        return NodeArg(spec.name, spec.type, list(spec.shape or ()))

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"
