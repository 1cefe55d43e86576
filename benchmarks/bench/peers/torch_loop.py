"""A plain PyTorch loop around `torch.nn.Transformer`."""

from benchmarks.bench.peers.on_torch import OnTorch


class TorchLoop(OnTorch):
    """`torch.nn.Transformer` with tied embeddings."""

    def __init__(self, work):
        import torch
        from torch import nn

        sizes = work.model
        torch.manual_seed(1)
        rates = 10000 ** (-torch.arange(0, sizes.d_model, 2) / sizes.d_model)
        angles = torch.arange(work.longest)[:, None] * rates
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)  # (longest, D)

        class Plain(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = nn.Embedding(work.vocab_size, sizes.d_model, padding_idx=0)
                nn.init.normal_(self.embedding.weight, std=sizes.d_model**-0.5)
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

        model = Plain()
        for layer in model.modules():  # no dropout on attention weights or inside feed-forwards, as in ours
            if isinstance(layer, nn.MultiheadAttention):
                layer.dropout = 0.0
            elif isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                layer.dropout.p = 0.0
        self._train(model, work.train)

    def logits(self, source, target):
        return self.model(source, target)


class TutorialLoop(TorchLoop):
    """The same loop on batches as in the tutorials: random pairs of any length."""

    BATCHES = "random"
