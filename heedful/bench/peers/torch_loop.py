"""A plain PyTorch loop around `torch.nn.Transformer`, and what other models of PyTorch need of one."""

from collections.abc import Mapping, Sequence

import numpy as np


class TorchLoop:
    """A plain PyTorch loop around `torch.nn.Transformer`; every batch is padded to its longest sentence."""

    MODULES: Sequence[str] = ("torch",)
    ENVIRONMENT: Mapping[str, str] = {}
    BATCHES = "single"  # which of the work's batches it learns from

    def __init__(self, work):
        import torch
        from torch import nn

        from heedful.layers import sinusoid

        sizes = work.model
        torch.manual_seed(1)
        table = torch.tensor(np.array(sinusoid(np.arange(work.longest), sizes.d_model)))

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
        for layer in model.modules():  # no weight of attention and nothing inside a feed-forward is dropped, as in ours
            if isinstance(layer, nn.MultiheadAttention):
                layer.dropout = 0.0
            elif isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                layer.dropout.p = 0.0
        self._train(model, work.train)

    def _train(self, model, train):
        import torch

        self.rounded = train.precision == "bfloat16"
        self.model = model.train()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
        self.loss = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=train.label_smoothing)

    def padded(self, batch):
        """Return source, target and labels of a batch, padded to the longest of each side."""
        source, target = ((batch[name] != 0).sum(axis=1).max() for name in ("source", "labels"))
        cut = {"source": source, "target": target, "labels": target}
        return {name: batch[name][:, :length].astype(np.int64) for name, length in cut.items()}

    def update(self, batch):
        """Learn from a padded batch; return the loss."""
        import torch

        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.rounded):
            loss = self.loss_of(**{name: torch.from_numpy(array) for name, array in batch.items()})
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def loss_of(self, source, target, labels):
        """Return the loss of a batch (B, S), (B, T), (B, T), a mean over labels that are not padding."""
        logits = self.logits(source, target)
        return self.loss(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))

    def logits(self, source, target):
        """Return the logits of a model in training (B, T, V)."""
        return self.model(source, target)


class TutorialLoop(TorchLoop):
    """The same loop on the tutorials' batches: pairs at random, whatever their lengths."""

    BATCHES = "random"
