"""What people use today, each as an update on a batch: the same model, loss and optimizer, written as its makers do.

A peer is imported when it is measured; it is installed where all of its `MODULES` are.
"""

from collections.abc import Mapping, Sequence

import numpy as np


class TorchLoop:
    """A plain PyTorch loop around `torch.nn.Transformer`; every batch is padded to its longest sentence."""

    MODULES: Sequence[str] = ("torch",)
    ENVIRONMENT: Mapping[str, str] = {}

    def __init__(self, work):
        import torch
        from torch import nn

        from heedful.layers import sinusoid

        sizes, self.vocab_size = work.model, work.vocab_size
        torch.manual_seed(1)
        table = torch.tensor(np.array(sinusoid(np.arange(work.longest), sizes.d_model)))

        class Plain(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = nn.Embedding(work.vocab_size, sizes.d_model, padding_idx=0)
                self.dropout = nn.Dropout(sizes.dropout)
                layers = sizes.num_layers, sizes.num_layers
                self.transformer = nn.Transformer(
                    sizes.d_model, sizes.num_heads, *layers, sizes.d_ff, sizes.dropout, batch_first=True
                )

            def embed(self, ids):
                return self.dropout(self.embedding(ids) * sizes.d_model**0.5 + table[: ids.shape[1]])

            def forward(self, source, target):
                future = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=torch.bool)
                out = self.transformer(
                    self.embed(source), self.embed(target), tgt_mask=future, src_key_padding_mask=source == 0,
                    memory_key_padding_mask=source == 0, tgt_is_causal=True,
                )  # fmt: skip
                return out @ self.embedding.weight.T

        self._train(Plain(), work.label_smoothing)

    def _train(self, model, label_smoothing):
        import torch

        self.model = model.train()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
        self.loss = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=label_smoothing)

    def padded(self, batch):
        """Return source, target and labels of a batch, padded to the longest of each side."""
        source, target = ((batch[name] != 0).sum(axis=1).max() for name in ("source", "labels"))
        cut = {"source": source, "target": target, "labels": target}
        return {name: batch[name][:, :length].astype(np.int64) for name, length in cut.items()}

    def update(self, batch):
        """Learn from a padded batch; return the loss."""
        import torch

        tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
        self.optimizer.zero_grad()
        logits = self.logits(tensors["source"], tensors["target"])
        loss = self.loss(logits.reshape(-1, self.vocab_size), tensors["labels"].reshape(-1))
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def logits(self, source, target):
        """Return the logits of a model in training (B, T, V)."""
        return self.model(source, target)


class HuggingFace(TorchLoop):
    """Marian of Hugging Face's transformers, in the same loop."""

    MODULES = ("transformers", "torch")

    def __init__(self, work):
        import torch
        from transformers import MarianConfig, MarianMTModel

        sizes, self.vocab_size = work.model, work.vocab_size
        torch.manual_seed(1)
        layers = {"encoder_layers": sizes.num_layers, "decoder_layers": sizes.num_layers}
        heads = {"encoder_attention_heads": sizes.num_heads, "decoder_attention_heads": sizes.num_heads}
        widths = {"d_model": sizes.d_model, "encoder_ffn_dim": sizes.d_ff, "decoder_ffn_dim": sizes.d_ff}
        config = MarianConfig(
            vocab_size=work.vocab_size, max_position_embeddings=work.longest, activation_function="relu",
            pad_token_id=0, decoder_start_token_id=2, eos_token_id=3, dropout=sizes.dropout, scale_embedding=True,
            tie_word_embeddings=True, **layers, **heads, **widths,
        )  # fmt: skip
        self._train(MarianMTModel(config), work.label_smoothing)

    def logits(self, source, target):
        mask = (source != 0).long()
        return self.model(input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False).logits


class KerasHub:
    """The layers of KerasHub in a Keras model, on TensorFlow, where they are fastest on a CPU; shapes as planned."""

    MODULES = ("keras_hub", "tensorflow")
    ENVIRONMENT = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}

    def __init__(self, work):
        import keras
        import keras_hub

        sizes = work.model
        keras.utils.set_random_seed(1)
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
        # Keras smooths only one-hot labels, which would cost another (B, T, V): so here none is smoothed.
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.model.compile(keras.optimizers.Adam(1e-3, beta_2=0.98), loss)

    def padded(self, batch):
        """Return a batch as planned."""
        return batch

    def update(self, batch):
        """Learn from a batch; return the loss."""
        inputs = {name: batch[name] for name in ("source", "target")}
        return float(self.model.train_on_batch(inputs, batch["labels"], sample_weight=batch["weights"]))


PEERS = {"torch": TorchLoop, "transformers": HuggingFace, "keras_hub": KerasHub}
