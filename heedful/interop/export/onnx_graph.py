"""ONNX graphs: a builder, and the layers of heedful's models as ONNX operators.

Axes: B batch, T query length, S key length, P length of the past, D d_model, N heads, K key/value heads, H head size, V
vocabulary.
"""

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from heedful.config import ModelConfig
from heedful.config.architecture import SINUSOIDS
from heedful.core.errors import InputError

OPSET, IR_VERSION = 17, 8  # read by onnxruntime since 1.13, and by onnxruntime-web
LARGEST = 2_000_000_000  # bytes of weights; a file is one message of protobuf, which has 2 GiB at most
MASKED_SCORE = -1e9  # score of a key that a query may not attend to


class Graph:
    """Collects operators and weights, and becomes an `onnx.ModelProto`.

    Args:
        weights: arrays by name; those that operators use become part of the graph.
    """

    def __init__(self, weights: Mapping[str, np.ndarray]):
        self.weights = weights
        self.nodes: list[Any] = []
        self._stored: dict[str, np.ndarray] = {}
        self._numbers = itertools.count()

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator with one result; return the name of the result."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, results: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add an operator with several results; return their names."""
        from onnx import helper

        outputs = [f"{kind}_{next(self._numbers)}" for _ in range(results)]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=f"node_{outputs[0]}", **attributes))
        return outputs

    def weight(self, name: str) -> str:
        """Return the name of a weight in the graph."""
        self._stored.setdefault(name, np.ascontiguousarray(self.weights[name], np.float32))
        return name

    def has(self, name: str) -> bool:
        """Return whether there is such a weight."""
        return name in self.weights

    def constant(self, value: Any, kind: Any = np.int64) -> str:
        """Return the name of a constant."""
        array = np.asarray(value, kind)
        digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
        name = "_".join(["constant", str(array.dtype), *map(str, array.shape), digest])
        self._stored.setdefault(name, array)
        return name

    def stored(self, name: str, array: np.ndarray) -> str:
        """Add an array under a name."""
        self._stored.setdefault(name, np.ascontiguousarray(array))
        return name

    def model(
        self, inputs: Mapping[str, tuple[str, Sequence[Any]]], outputs: Mapping[str, tuple[str, Sequence[Any]]]
    ) -> Any:
        """Return the checked `onnx.ModelProto`.

        Args:
            inputs: element type (`float32`, `int64`, `bool`) and axes, by name; an axis that varies has a name.
            outputs: the same; an output has the name of the result of an operator, see `name_output`.
        """
        import onnx
        from onnx import helper, numpy_helper

        if (size := sum(array.nbytes for array in self._stored.values())) > LARGEST:
            raise InputError(f"The weights take {size:,} bytes; an ONNX file holds up to {LARGEST:,}.")

        def described(values):
            return [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), axes)
                for name, (kind, axes) in values.items()
            ]

        graph = helper.make_graph(
            self.nodes, "heedful", described(inputs), described(outputs),
            [numpy_helper.from_array(array, name) for name, array in self._stored.items()],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="heedful")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        return model

    def name_output(self, result: str, name: str) -> None:
        """Give the result of an operator the name of an output."""
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [result], [name], name=f"output_{name}"))


class Layers:
    """The layers of a model, added to a `Graph`. Names are those of the weights.

    Args:
        graph: the `Graph`.
        model: the architecture.
    """

    def __init__(self, graph: Graph, model: ModelConfig):
        self.graph, self.model = graph, model
        self.heads, self.kv_heads = model.num_heads, model.kv_heads
        self.head_size = model.head_size
        self.op, self.constant = graph.op, graph.constant

    def dense(self, name: str, x: str) -> str:
        """Multiply with a kernel, and add the bias if there is one."""
        product = self.op("MatMul", x, self.graph.weight(f"{name}/kernel"))
        has_bias = self.graph.has(f"{name}/bias")
        return self.op("Add", product, self.graph.weight(f"{name}/bias")) if has_bias else product

    def norm(self, name: str, x: str) -> str:
        """Apply a layer norm or an RMS norm."""
        epsilon = self.model.norm_epsilon
        if self.graph.has(f"{name}/scale"):
            squares = self.op("ReduceMean", self.op("Mul", x, x), axes=[-1], keepdims=1)
            root = self.op("Sqrt", self.op("Add", squares, self.constant(epsilon, np.float32)))
            return self.op("Mul", self.op("Div", x, root), self.graph.weight(f"{name}/scale"))
        parts = [self.graph.weight(f"{name}/{part}") for part in ("gamma", "beta") if self.graph.has(f"{name}/{part}")]
        return self.op("LayerNormalization", x, *parts, axis=-1, epsilon=epsilon)

    def activation(self, kind: str, x: str) -> str:
        """Apply a nonlinearity; a gated form applies that of its ungated half."""
        kind = {"geglu": "gelu", "swiglu": "silu"}.get(kind, kind)
        half = self.constant(0.5, np.float32)
        if kind == "silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if kind == "gelu":
            inner = self.op("Erf", self.op("Mul", x, self.constant(0.5**0.5, np.float32)))
        elif kind == "gelu_tanh":
            cube = self.op("Mul", self.op("Mul", self.op("Mul", x, x), x), self.constant(0.044715, np.float32))
            scale = self.constant((2 / np.pi) ** 0.5, np.float32)
            inner = self.op("Tanh", self.op("Mul", self.op("Add", x, cube), scale))
        else:
            return self.op({"relu": "Relu", "tanh": "Tanh"}[kind], x)
        return self.op("Mul", self.op("Mul", x, half), self.op("Add", inner, self.constant(1.0, np.float32)))

    def embed(self, table: str, name: str, ids: str, positions: str) -> str:
        """Return the input of the first block (B, T, D) for ids (B, T) at positions (T,) or (B, T)."""
        model = self.model
        x = self.op("Gather", self.graph.weight(f"{table}/embeddings"), ids)
        if model.embedding_scale:
            x = self.op("Mul", x, self.constant(model.d_model**0.5, np.float32))
        if model.positions == "learned":
            x = self.op("Add", x, self.op("Gather", self.graph.weight(f"{name}/positions/embeddings"), positions))
        elif model.positions.startswith("sinusoidal"):
            x = self.op("Add", x, self._sinusoid(positions))
        return self.norm(f"{name}/norm", x) if model.embedding_norm else x

    def _sinusoid(self, positions):
        concatenated, endpoint = SINUSOIDS[self.model.positions]
        last = max(self.model.d_model - 2, 1) if endpoint else self.model.d_model
        rates = 10000.0 ** (-np.arange(0, self.model.d_model, 2, dtype=np.float32) / last)
        angles = self._angles(positions, rates, "sinusoid_rates", [-1])
        waves = [self.op("Sin", angles), self.op("Cos", angles)]
        if concatenated:
            return self.op("Concat", *waves, axis=-1)
        pairs = self.op("Concat", *(self.op("Unsqueeze", wave, self.constant([-1])) for wave in waves), axis=-1)
        shape = self.op("Concat", self.op("Shape", positions), self.constant([self.model.d_model]), axis=0)
        return self.op("Reshape", pairs, shape)

    def _angles(self, positions, rates, name, axes):
        """Return positions times rates, with the positions on new axes."""
        spread = self.op("Unsqueeze", self.op("Cast", positions, to=1), self.constant(axes))
        return self.op("Mul", spread, self.graph.stored(name, rates.astype(np.float32)))

    def heads_of(self, x: str, heads: int) -> str:
        """Split (B, T, N H) into heads (B, N, T, H)."""
        split = self.op("Reshape", x, self.constant([0, -1, heads, self.head_size]))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def projected(self, name: str, x: str, widths: Sequence[int]) -> list[str]:
        """Apply a fused projection to `x`, and split the result into parts of some numbers of heads."""
        if not self.graph.has(f"{name}/kernel"):
            return [self.heads_of(x, heads) for heads in widths]
        lengths = self.constant([heads * self.head_size for heads in widths])
        joint = self.dense(name, x)
        parts = [joint] if len(widths) == 1 else self.graph.ops("Split", len(widths), joint, lengths, axis=-1)
        return [self.heads_of(part, heads) for part, heads in zip(parts, widths, strict=True)]

    def normalised(self, name: str, x: str) -> str:
        """Normalise heads (B, N, T, H) with a norm of queries or keys, if the model has it."""
        return self.norm(name, x) if self.model.qk_norm else x

    def rotated(self, x: str, positions: str) -> str:
        """Rotate heads (B, N, T, H) by their positions (T,) or (B, T)."""
        half = self.head_size // 2
        rates = self.model.rotary_base ** (-np.arange(half, dtype=np.float32) / half)
        angles = self._angles(positions, rates, "rotary_rates", [-1])  # (T, H/2) or (B, T, H/2)
        cos, sin = (self.op("Unsqueeze", self.op(kind, angles), self.constant([-3])) for kind in ("Cos", "Sin"))
        first, second = self.graph.ops("Split", 2, x, self.constant([half, half]), axis=-1)
        turned = (
            self.op("Sub", self.op("Mul", first, cos), self.op("Mul", second, sin)),
            self.op("Add", self.op("Mul", second, cos), self.op("Mul", first, sin)),
        )
        return self.op("Concat", *turned, axis=-1)

    def attend(self, name: str, query: str, keys: str, values: str, visible: str | None) -> str:
        """Attend from a query (B, N, T, H) to keys and values (B, K, S, H); return (B, T, D).

        `visible` is a boolean that fits (B, N, T, S); None: everything is visible.
        """
        if self.kv_heads != self.heads:
            keys, values = self._repeated(keys), self._repeated(values)
        scores = self.op("MatMul", query, self.op("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = self.op("Mul", scores, self.constant(self.head_size**-0.5, np.float32))
        if visible is not None:
            scores = self.op("Where", visible, scores, self.constant(MASKED_SCORE, np.float32))
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), values)
        joined = self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]),
                         self.constant([0, -1, self.heads * self.head_size]))  # fmt: skip
        return self.dense(f"{name}/output", joined) if self.graph.has(f"{name}/output/kernel") else joined

    def _repeated(self, x):
        """Repeat key/value heads (B, K, S, H) for the query heads that share them: (B, N, S, H)."""
        groups = self.heads // self.kv_heads
        spread = self.op("Unsqueeze", x, self.constant([2]))
        shape = self.op(
            "Concat", self.op("Shape", x, end=2), self.constant([groups]), self.op("Shape", x, start=2), axis=0
        )
        whole = self.op("Concat", self.op("Shape", x, end=1), self.constant([self.heads]), self.op("Shape", x, start=2),
                        axis=0)  # fmt: skip
        return self.op("Reshape", self.op("Expand", spread, shape), whole)

    def residual(self, name: str, x: str, sublayer: Callable[[str], str]) -> str:
        """Apply a sublayer, a function from (B, T, D) to (B, T, D), with residual connection and norm."""
        if self.model.norm_position == "pre":
            return self.op("Add", x, sublayer(self.norm(f"{name}/norm", x)))
        return self.norm(f"{name}/norm", self.op("Add", x, sublayer(x)))

    def feed_forward(self, name: str, x: str) -> str:
        """Apply the feed-forward network of a block, with its residual connection."""

        def network(x):
            inner = self.activation(self.model.activation, self.dense(f"{name}/feed_forward/inner", x))
            if self.graph.has(f"{name}/feed_forward/gate/kernel"):
                inner = self.op("Mul", inner, self.dense(f"{name}/feed_forward/gate", x))
            return self.dense(f"{name}/feed_forward/outer", inner)

        return self.residual(f"{name}/feed_forward_residual", x, network)

    def project(self, table: str, x: str) -> str:
        """Return the logits (B, T, V) of features (B, T, D)."""
        logits = self.op("MatMul", x, self.op("Transpose", self.graph.weight(f"{table}/embeddings"), perm=[1, 0]))
        has_bias = self.graph.has(f"{table}/bias")
        return self.op("Add", logits, self.graph.weight(f"{table}/bias")) if has_bias else logits
