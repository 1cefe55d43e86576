"""Gradients on any backend."""

import keras


def gradients(function, *arrays):
    """Return the value of a function and its gradients by each array."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.value_and_grad(function, argnums=tuple(range(len(arrays))))(*arrays)
    if backend == "torch":
        import torch

        tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
        value = function(*tensors)
        value.backward()
        return value.detach().numpy(), [t.grad.numpy() for t in tensors]
    import tensorflow

    tensors = [tensorflow.constant(a) for a in arrays]
    with tensorflow.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
    return value.numpy(), [g.numpy() for g in tape.gradient(value, tensors)]
