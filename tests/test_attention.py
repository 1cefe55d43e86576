"""Attention: masks, and equal results of all code paths."""

import numpy as np
import pytest
from keras import ops

from heedful.layers import KeyValueCache, MultiHeadAttention, Trace, attention_weights, masks


@pytest.fixture
def layer():
    layer = MultiHeadAttention(d_model=2 * 3 * 5, num_heads=6, num_kv_heads=2)
    layer.build()
    return layer


@pytest.fixture
def cross():
    layer = MultiHeadAttention(d_model=2 * 3 * 5, num_heads=6, num_kv_heads=2, cross=True)
    layer.build()
    return layer


@pytest.mark.parametrize(
    ("query", "weights", "mixed"),
    [
        ([0, 20, 0], [0, 1, 0, 0], [10, 0]),  # matches one key
        ([0, 0, 20], [0, 0, 0.5, 0.5], [550, 5.5]),  # matches two keys
        ([20, 20, 0], [0.5, 0.5, 0, 0], [5.5, 0]),  # is a mixture of two keys
        ([0, 0, 0], [0.25] * 4, [277.75, 2.75]),  # matches none: the mean of all
    ],
)
def test_examples_of_the_tutorials_have_the_expected_weights(query, weights, mixed, numpy):
    """Guards the softmax axis; every number can be checked by hand."""
    keys = np.array([[10, 0, 0], [0, 10, 0], [0, 0, 10], [0, 0, 10]], "float32")
    values = np.array([[1, 0], [10, 0], [100, 5], [1000, 6]], "float32")
    query = np.array(query, "float32")[None, None, None]
    got = numpy(attention_weights(ops.convert_to_tensor(query), ops.convert_to_tensor(keys[None, :, None])))[0, 0]
    np.testing.assert_allclose(got[0], weights, atol=1e-6)
    np.testing.assert_allclose(got @ values, [mixed], atol=1e-3)


def test_output_has_the_shape_of_the_input(layer, cross, normal):
    attended = layer(normal(7, 11, 30))
    assert attended.shape == (7, 11, 30)
    assert cross(normal(7, 11, 30), memory=normal(7, 13, 30)).shape == (7, 11, 30)


def test_cross_attention_matches_ten_lines_of_numpy(cross, normal, numpy):
    """Guards the scale, the softmax axis and the order in which heads and fused projections are split and joined."""
    x, memory = normal(2, 3, 30), normal(2, 4, 30)
    kernels = [p.kernel for p in (cross.query_projection, cross.key_value_projection, cross.output_projection)]
    to_query, to_pair, to_output = map(numpy, kernels)
    query = (x @ to_query).reshape(2, 3, 6, 5)
    keys, values = (
        (memory @ to_pair)[..., part].reshape(2, 4, 2, 5).repeat(3, axis=2) for part in (slice(10), slice(10, 20))
    )
    scores = np.exp(np.einsum("btnh,bsnh->bnts", query, keys) / np.sqrt(5))
    scores /= scores.sum(-1, keepdims=True)
    want = np.einsum("bnts,bsnh->btnh", scores, values).reshape(2, 3, 30) @ to_output
    np.testing.assert_allclose(numpy(cross(x, memory=memory)), want, atol=1e-5)


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_fused_attention_equals_explicit_attention(kv_heads, normal, numpy):
    """Guards the order of grouped heads: both computations must pair the same heads."""
    layer = MultiHeadAttention(30, 6, kv_heads)
    layer.build()
    x = normal(3, 7, 30)
    visible = masks.causal(ops.arange(7), ops.arange(7))
    trace = Trace()
    explicit = numpy(layer(x, visible=visible, trace=trace))
    np.testing.assert_allclose(explicit, numpy(layer(x, visible=visible)), atol=1e-5)
    (weights,) = (numpy(trace[path]) for path in trace)
    assert weights.shape == (3, 6, 7, 7)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert not weights[:, :, 0, 1:].any()


@pytest.mark.parametrize("traced", [False, True])
def test_padding_cannot_be_read(cross, normal, numpy, traced):
    """Bitwise: hidden keys have a weight of exactly zero."""
    x, memory = normal(1, 3, 30), normal(1, 5, 30)
    visible = masks.padding(np.array([[1, 1, 1, 0, 0]]))
    changed = memory.copy()
    changed[:, 3:] += 100
    trace = {"trace": Trace()} if traced else {}
    seen = [numpy(cross(x, memory=m, visible=visible, **trace)) for m in (memory, changed)]
    np.testing.assert_array_equal(*seen)


def test_a_row_of_padding_stays_finite(cross, normal, numpy):
    """Guards against NaN from a softmax over nothing: it would poison the gradient of the whole batch."""
    visible = masks.padding(np.zeros((1, 5)))
    for trace in (None, Trace()):
        assert np.isfinite(numpy(cross(normal(1, 3, 30), memory=normal(1, 5, 30), visible=visible, trace=trace))).all()


def test_future_cannot_be_read(layer, normal, numpy):
    x, visible = normal(1, 5, 30), masks.causal(ops.arange(5), ops.arange(5))
    changed = x.copy()
    changed[:, 3:] += 100
    before, after = (numpy(layer(y, visible=visible))[:, :3] for y in (x, changed))
    np.testing.assert_allclose(before, after, atol=1e-6)


@pytest.mark.parametrize(("rotary", "qk_norm"), [(False, False), (True, False), (True, True)])
def test_cached_steps_equal_one_pass(normal, numpy, rotary, qk_norm):
    """Guards the cache's write position, the mask over its unwritten tail, and the rotary positions."""
    layer = MultiHeadAttention(2 * 3 * 4, 6, 2, rotary=rotary, qk_norm=qk_norm)
    layer.build()
    x = normal(2, 7, 24)
    whole = numpy(layer(x, visible=masks.causal(ops.arange(7), ops.arange(7))))
    cache, steps = layer.empty_cache(2, 9), []
    for t in range(7):
        visible = masks.causal(ops.arange(t, t + 1), ops.arange(9))
        positions = ops.arange(t, t + 1) if t % 2 else None  # which follow from `place`
        attended, cache = layer(x[:, t : t + 1], visible=visible, cache=cache, place=t, positions=positions)
        steps.append(numpy(attended))
    np.testing.assert_allclose(np.concatenate(steps, axis=1), whole, atol=1e-5)
    assert isinstance(cache, KeyValueCache)
    with pytest.raises(ValueError, match="The cache holds 9 positions; 3 more do not fit at position 7"):
        layer(x[:, :3], cache=cache, place=7)


def test_rotary_depends_on_relative_positions_only(normal, numpy):
    """Shifting all positions must change nothing."""
    layer = MultiHeadAttention(24, 6, rotary=True)
    layer.build()
    x = normal(2, 7, 24)
    here, there = (numpy(layer(x, positions=start + ops.arange(7))) for start in (0, 11))
    np.testing.assert_allclose(here, there, atol=1e-5)
    mirrored = numpy(layer(x[:, ::-1]))[:, ::-1]
    assert np.abs(here - mirrored).max() > 1e-3  # but reversing their order must change something


def test_attention_dropout_is_active_in_training_only(normal, numpy):
    layer = MultiHeadAttention(30, 6, dropout=0.5)
    layer.build()
    x = normal(2, 7, 30)
    quiet = [numpy(layer(x, training=False)) for _ in range(2)]
    loud = [numpy(layer(x, training=True)) for _ in range(2)]
    np.testing.assert_array_equal(*quiet)
    assert np.abs(loud[0] - loud[1]).max() > 0


def test_bad_sizes_are_explained():
    with pytest.raises(ValueError, match=r"d_model \(10\) must be a multiple of num_heads \(3\)"):
        MultiHeadAttention(10, 3)
    with pytest.raises(ValueError, match="even head size"):
        MultiHeadAttention(30, 6, rotary=True)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("projections", ["all", "input", "output", "none"])
def test_projections_and_head_size_follow_their_definitions(projections, cross, normal, numpy):
    """Heads of another size than d_model / num_heads, as in Keras, and attention with fewer projections."""
    head_dim = 7 if projections == "all" else 10
    layer = MultiHeadAttention(30, 3, head_dim=head_dim, cross=cross, projections=projections)
    x, memory = normal(2, 5, 30), normal(2, 4, 30)
    out = numpy(layer(x, memory=memory) if cross else layer(x))
    read, width = memory if cross else x, 3 * head_dim
    query, keys, values = x, read, read
    if projections in ("all", "input"):
        kernels = [layer.query_projection, layer.key_value_projection] if cross else [layer.joint_projection]
        kernel = np.concatenate([numpy(part.kernel) for part in kernels], axis=1)
        query, keys, values = x @ kernel[:, :width], read @ kernel[:, width : 2 * width], read @ kernel[:, 2 * width :]
    query, keys, values = (part.reshape(2, -1, 3, head_dim) for part in (query, keys, values))
    scores = np.exp(np.einsum("btnh,bsnh->bnts", query, keys) / np.sqrt(head_dim))
    want = np.einsum("bnts,bsnh->btnh", scores / scores.sum(-1, keepdims=True), values).reshape(2, 5, width)
    if projections in ("all", "output"):
        want = want @ numpy(layer.output_projection.kernel)
    np.testing.assert_allclose(out, want, atol=1e-5)
    parameters = {"all": 4 * 30 * width + 3 * width + 30, "input": 3 * 30 * 31, "output": 30 * 31, "none": 0}
    assert layer.count_params() == parameters[projections]


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("projections", ["all", "none"])
def test_normalised_queries_and_keys_follow_their_definition(cross, projections, normal, numpy):
    """Each head of a query and a key is divided by its root mean square and scaled; values are not."""
    layer = MultiHeadAttention(30, 3, cross=cross, projections=projections, qk_norm=True, norm_epsilon=1e-3)
    x, memory = 0.1 * normal(2, 5, 30), 0.1 * normal(2, 4, 30)
    layer(*((x, memory) if cross else (x,)))  # builds it
    scales = normal(10), normal(10)
    for norm, scale in zip((layer.query_norm, layer.key_norm), scales, strict=True):
        norm.scale.assign(scale)
    out = numpy(layer(x, memory=memory) if cross else layer(x))
    read = memory if cross else x
    query, keys, values = x, read, read
    if projections == "all":
        kernels = [layer.query_projection, layer.key_value_projection] if cross else [layer.joint_projection]
        kernel = np.concatenate([numpy(part.kernel) for part in kernels], axis=1)
        query, keys, values = x @ kernel[:, :30], read @ kernel[:, 30:60], read @ kernel[:, 60:]
    query, keys, values = (part.reshape(2, -1, 3, 10) for part in (query, keys, values))
    query, keys = (
        part / np.sqrt((part**2).mean(-1, keepdims=True) + 1e-3) * scale
        for part, scale in zip((query, keys), scales, strict=True)
    )
    scores = np.exp(np.einsum("btnh,bsnh->bnts", query, keys) / np.sqrt(10))
    want = np.einsum("bnts,bsnh->btnh", scores / scores.sum(-1, keepdims=True), values).reshape(2, 5, 30)
    if projections == "all":
        want = want @ numpy(layer.output_projection.kernel)
    np.testing.assert_allclose(out, want, atol=1e-5)
    assert (layer.get_config()["qk_norm"], layer.get_config()["norm_epsilon"]) == (True, 1e-3)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 4}, "must be a multiple of num_heads"),
        ({"projections": "query"}, "Unknown projections 'query'"),
        ({"projections": "input", "head_dim": 4}, "must be d_model"),
        ({"projections": "none", "num_kv_heads": 1}, "need projections"),
        ({"cross": True, "causal": True}, "cannot be causal"),
        ({"rotary": True, "head_dim": 3}, "even head size"),
    ],
)
def test_contradicting_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**{"d_model": 30, "num_heads": 3} | options)
