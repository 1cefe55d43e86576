"""The graphs of a run's model: an encoder, and a decoder with key/value caches, named as in the Optimum library.

Axes as in `onnx_graph`. Element types and axes of inputs and outputs are declared beside each graph.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from heedful.config import ModelConfig
from heedful.interop.export.onnx_graph import Graph, Layers

IDS = ("int64", ["batch", "length"])
VECTORS = ("float32", ["batch", "length", "width"])


class Blocks(Layers):
    """Stacks of blocks."""

    def real(self, mask: str) -> str:
        """Return whether each key is a token, (B, 1, 1, S), from a mask of zeros and ones (B, S)."""
        return self.op("Unsqueeze", self.op("Cast", mask, to=9), self.constant([1, 2]))

    def range(self, ids: str) -> str:
        """Return the positions 0 to T - 1 of ids (B, T)."""
        return self.op("Range", self.constant(0), self.length(ids, 1), self.constant(1))

    def length(self, x: str, axis: int) -> str:
        """Return the length of an axis, a scalar."""
        return self.op("Squeeze", self.op("Shape", x, start=axis, end=axis + 1), self.constant([0]))

    def encoder(self, x: str, visible: str, positions: str) -> str:
        """Apply all blocks of an encoder to x (B, T, D)."""
        for index in range(self.model.depths["encoder"]):
            name = f"encoder/block_{index}"

            def attention(x, name=f"{name}/self_attention"):
                query, keys, values = self.self_projections(name, x, positions)
                return self.attend(name, query, keys, values, visible)

            x = self.feed_forward(name, self.residual(f"{name}/self_attention_residual", x, attention))
        return self.final("encoder", x)

    def self_projections(self, name: str, x: str, positions: str) -> list[str]:
        """Return query, keys and values of self-attention, as heads."""
        widths = [self.heads, self.kv_heads, self.kv_heads]
        query, keys, values = self.projected(f"{name}/query_key_value", x, widths)
        query, keys = self.normalised(f"{name}/query_norm", query), self.normalised(f"{name}/key_norm", keys)
        if self.model.positions == "rotary":
            query, keys = self.rotated(query, positions), self.rotated(keys, positions)
        return [query, keys, values]

    def final(self, name: str, x: str) -> str:
        """Apply the norm after the last block, if there is one."""
        return self.norm(f"{name}/final_norm", x) if self.model.norm_position == "pre" else x

    def decoder_block(self, index: int, x: str, positions: str, visible: str, kind: str, memory: Any = None) -> str:
        """Apply a decoder block; it reads `past_key_values.INDEX.KIND` and writes `present.INDEX.KIND`.

        Args:
            index: number of the block.
            x: (B, T, D).
            positions: of the new tokens.
            visible: which keys, past ones included, each new token may attend to.
            kind: part of the names of the caches: `decoder.` or empty.
            memory: returns keys and values of the source for a block, and its visible keys; None: no cross-attention.
        """
        name, graph = f"decoder/block_{index}", self.graph

        def attention(x):
            query, *new = self.self_projections(f"{name}/self_attention", x, positions)
            both = []
            for part, added in zip(("key", "value"), new, strict=True):
                past = f"past_key_values.{index}.{kind}{part}"
                both.append(self.op("Concat", past, added, axis=2))
                graph.name_output(both[-1], f"present.{index}.{kind}{part}")
            keys, values = both
            return self.attend(f"{name}/self_attention", query, keys, values, visible)

        x = self.residual(f"{name}/self_attention_residual", x, attention)
        if memory:
            keys, values, memory_visible = memory(index)

            def cross_attention(x):
                [query] = self.projected(f"{name}/cross_attention/query", x, [self.heads])
                query = self.normalised(f"{name}/cross_attention/query_norm", query)
                return self.attend(f"{name}/cross_attention", query, keys, values, memory_visible)

            x = self.residual(f"{name}/cross_attention_residual", x, cross_attention)
        return self.feed_forward(name, x)

    def caches(self, kind: str, length: str) -> dict[str, tuple[str, list[Any]]]:
        """Return type and axes of the caches of all blocks, without the first word of their names."""
        return {
            f".{index}.{kind}{part}": ("float32", ["batch", self.kv_heads, length, self.head_size])
            for index in range(self.model.depths["decoder"])
            for part in ("key", "value")
        }


def translator(weights: Mapping[str, np.ndarray], model: ModelConfig) -> dict[str, Any]:
    """Return the models of an encoder-decoder, by file name."""
    joint = model.tie in ("all", "inputs")
    source = "target_embedding" if joint else "source_embedding"
    graph = Graph(weights)
    blocks = Blocks(graph, model)
    positions = blocks.range("input_ids")
    x = blocks.embed(source, "source_input", "input_ids", positions)
    graph.name_output(blocks.encoder(x, blocks.real("attention_mask"), positions), "last_hidden_state")
    encoder = graph.model({"input_ids": IDS, "attention_mask": IDS}, {"last_hidden_state": VECTORS})
    return {"encoder_model": encoder, "decoder_model_merged": _decoder_of_translator(Graph(weights), model)}


def _decoder_of_translator(graph, model):
    blocks = Blocks(graph, model)
    past = blocks.length("past_key_values.0.decoder.key", 2)
    positions = blocks.op("Range", past, blocks.op("Add", past, blocks.length("input_ids", 1)), blocks.constant(1))
    keys = blocks.op(
        "Range", blocks.constant(0), blocks.op("Add", past, blocks.length("input_ids", 1)), blocks.constant(1)
    )
    visible = blocks.op("LessOrEqual", keys, blocks.op("Unsqueeze", positions, blocks.constant([1])))
    real = blocks.real("encoder_attention_mask")

    def memory(index):
        kept = [
            _either(graph, f"past_key_values.{index}.encoder.{part}", blocks, index, number)
            for number, part in enumerate(("key", "value"))
        ]
        for part, name in zip(("key", "value"), kept, strict=True):
            graph.name_output(name, f"present.{index}.encoder.{part}")
        return (*kept, real)

    x = blocks.embed("target_embedding", "target_input", "input_ids", positions)
    for index in range(model.depths["decoder"]):
        x = blocks.decoder_block(index, x, positions, visible, "decoder.", memory)
    table = "target_embedding" if model.tie in ("all", "target") else "output_projection"
    graph.name_output(blocks.project(table, blocks.final("decoder", x)), "logits")
    past = _by_layer(blocks.caches("decoder.", "past_length") | blocks.caches("encoder.", "encoder_length"))
    inputs = {
        "encoder_attention_mask": ("int64", ["batch", "source_length"]), "input_ids": IDS,
        "encoder_hidden_states": ("float32", ["batch", "source_length", model.d_model]),
        **{f"past_key_values{name}": kind for name, kind in past.items()},
        "use_cache_branch": ("bool", [1]),
    }  # fmt: skip
    following = _by_layer(blocks.caches("decoder.", "total_length") | blocks.caches("encoder.", "source_length"))
    outputs = {"logits": ("float32", ["batch", "length", "vocabulary"])}
    return graph.model(inputs, outputs | {f"present{name}": kind for name, kind in following.items()})


def _by_layer(caches):
    """Return caches in the order of their layers: Optimum goes by the order, not by the names."""
    return dict(sorted(caches.items(), key=lambda item: int(item[0].split(".")[1])))


def _either(graph, past, blocks, index, number):
    """Return keys (`number` 0) or values (1) of the source: the past ones if there is a cache, or new ones."""
    from onnx import helper

    own = graph.nodes
    branches = {}
    for branch in ("then_branch", "else_branch"):
        graph.nodes = []
        if branch == "then_branch":
            result = graph.op("Identity", past)
        else:
            widths = [blocks.kv_heads, blocks.kv_heads]
            name = f"decoder/block_{index}/cross_attention"
            keys, values = blocks.projected(f"{name}/key_value", "encoder_hidden_states", widths)
            result = values if number else blocks.normalised(f"{name}/key_norm", keys)
        value = helper.make_tensor_value_info(result, 1, None)
        branches[branch] = helper.make_graph(graph.nodes, f"{branch}_{past}", [], [value])
    graph.nodes = own
    return graph.op("If", "use_cache_branch", **branches)


def language_model(weights: Mapping[str, np.ndarray], model: ModelConfig) -> dict[str, Any]:
    """Return the model of a decoder, by file name."""
    graph = Graph(weights)
    blocks = Blocks(graph, model)
    # Positions count real tokens: the prompts of a batch may be padded on the left.
    counted = blocks.op("Sub", blocks.op("CumSum", "attention_mask", blocks.constant(1)), blocks.constant(1))
    counted = blocks.op("Max", counted, blocks.constant(0))
    new, past = blocks.length("input_ids", 1), blocks.length("past_key_values.0.key", 2)
    total = blocks.op("Add", past, new)
    ends = (blocks.op("Unsqueeze", end, blocks.constant([0])) for end in (past, total))
    positions = blocks.op("Slice", counted, *ends, blocks.constant([1]))
    places = blocks.op("Unsqueeze", blocks.op("Range", past, total, blocks.constant(1)), blocks.constant([1]))
    causal = blocks.op("LessOrEqual", blocks.op("Range", blocks.constant(0), total, blocks.constant(1)), places)
    visible = blocks.op("And", causal, blocks.real("attention_mask"))
    x = blocks.embed("embedding", "text_input", "input_ids", positions)
    for index in range(model.depths["decoder"]):
        x = blocks.decoder_block(index, x, positions, visible, "")
    table = "embedding" if model.tie in ("all", "target") else "output_projection"
    graph.name_output(blocks.project(table, blocks.final("decoder", x)), "logits")
    inputs = {"input_ids": IDS, "attention_mask": ("int64", ["batch", "total_length"])}
    inputs |= {f"past_key_values{name}": kind for name, kind in blocks.caches("", "past_length").items()}
    outputs = {"logits": ("float32", ["batch", "length", "vocabulary"])}
    outputs |= {f"present{name}": kind for name, kind in blocks.caches("", "total_length").items()}
    return {"model": graph.model(inputs, outputs)}


def encoder(weights: Mapping[str, np.ndarray], model: ModelConfig, classes: bool) -> dict[str, Any]:
    """Return the model of an encoder by file name: with classes, with masked tokens, or bare."""
    graph = Graph(weights)
    blocks = Blocks(graph, model)
    positions, real = blocks.range("input_ids"), blocks.real("attention_mask")
    x = blocks.embed("embedding", "text_input", "input_ids", positions)
    if model.convolutions and classes:
        x = _convolved(blocks, x)
    x = blocks.encoder(x, real, positions)
    name, axes = "logits", ["batch", "length", "vocabulary"]
    if classes:
        x, axes = _classes(blocks, x), ["batch", "classes"]
    elif model.untrained_head:
        name, axes = "last_hidden_state", ["batch", "length", "width"]
    else:
        hidden = blocks.activation(model.activation, blocks.dense("transform", x))
        table = "embedding" if model.tie in ("all", "target") else "output_projection"
        x = blocks.project(table, blocks.norm("transform_norm", hidden))
    graph.name_output(x, name)
    return {"model": graph.model({"input_ids": IDS, "attention_mask": IDS}, {name: ("float32", axes)})}


def _convolved(blocks, x):
    """Add the convolutions over the input of the first block."""
    mask = blocks.op("Unsqueeze", blocks.op("Cast", "attention_mask", to=1), blocks.constant([-1]))
    masked, total = blocks.op("Mul", x, mask), x
    for width in blocks.model.convolutions:
        reach, length = width // 2, blocks.op("Shape", x, start=1, end=2)
        padded = blocks.op("Pad", masked, blocks.constant([0, reach, 0, 0, reach, 0]))
        windows = [
            blocks.op("Slice", padded, blocks.constant([i]), blocks.op("Add", length, blocks.constant([i])),
                      blocks.constant([1]))
            for i in range(width)
        ]  # fmt: skip
        convolved = blocks.dense(f"convolutions/width_{width}", blocks.op("Concat", *windows, axis=-1))
        total = blocks.op("Add", total, blocks.activation("gelu", convolved))
    return total


def _classes(blocks, x):
    """Pool the vectors of each text (B, T, D), and return the logits of its classes (B, C)."""
    if blocks.model.pooling == "first":
        pooled = blocks.op("Gather", x, blocks.constant(0), axis=1)
        pooled = blocks.activation(blocks.model.pooler_activation, blocks.dense("pooler", pooled))
    elif blocks.model.pooling == "max":
        mask = blocks.op("Unsqueeze", blocks.op("Cast", "attention_mask", to=9), blocks.constant([-1]))
        masked = blocks.op("Where", mask, x, blocks.constant(-np.inf, np.float32))
        pooled = blocks.op("ReduceMax", masked, axes=[1], keepdims=0)
    else:
        mask = blocks.op("Unsqueeze", blocks.op("Cast", "attention_mask", to=1), blocks.constant([-1]))
        summed = blocks.op("ReduceSum", blocks.op("Mul", x, mask), blocks.constant([1]), keepdims=0)
        pooled = blocks.op("Div", summed, blocks.op("ReduceSum", mask, blocks.constant([1]), keepdims=0))
    return blocks.project("output_projection", pooled)
