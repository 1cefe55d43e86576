"""The layers of KerasHub."""


class KerasHub:
    """The layers of KerasHub in a Keras model on TensorFlow, their fastest backend on a CPU; batches as planned.

    It has no label smoothing, and also drops attention weights.
    """

    MODULES = ("keras_hub", "tensorflow")
    ENVIRONMENT = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    BATCHES = "single"

    def __init__(self, work):
        import keras
        import keras_hub

        sizes = work.model
        keras.utils.set_random_seed(1)
        keras.config.set_dtype_policy(work.train.dtype_policy)
        source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("source", "target"))
        embedding = keras_hub.layers.ReversibleEmbedding(work.vocab_size, sizes.d_model, mask_zero=True)
        positions = keras_hub.layers.SinePositionEncoding()
        dropout = keras.layers.Dropout(sizes.dropout)

        def embedded(ids):
            x = embedding(ids) * sizes.d_model**0.5
            return dropout(x + positions(x))

        options = {"num_heads": sizes.num_heads, "dropout": sizes.dropout, "activation": "relu"}
        read, write = embedded(source), embedded(target)
        here = keras.ops.not_equal(source, 0)
        for _ in range(sizes.num_layers):
            read = keras_hub.layers.TransformerEncoder(sizes.d_ff, **options)(read, padding_mask=here)
        for _ in range(sizes.num_layers):
            decoder = keras_hub.layers.TransformerDecoder(sizes.d_ff, **options)
            write = decoder(write, read, encoder_padding_mask=here)
        self.model = keras.Model([source, target], embedding(write, reverse=True))
        # Keras smooths only one-hot labels, which would take another (B, T, V) array.
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.model.compile(keras.optimizers.Adam(1e-3, beta_2=0.98), loss)

    def padded(self, batch):
        """Return the batch unchanged."""
        return batch

    def update(self, batch):
        """Update the model on a batch; return the loss."""
        inputs = {name: batch[name] for name in ("source", "target")}
        return float(self.model.train_on_batch(inputs, batch["labels"], sample_weight=batch["weights"]))
