"""What all peers on PyTorch share: padding, optimizer, update."""

from collections.abc import Mapping, Sequence

import numpy as np


class OnTorch:
    """A PyTorch model in training; every batch is padded to its longest sentence.

    A peer creates its model and passes it to `_train`. It defines `logits` or, if it has its own loss, `loss_of`.
    """

    MODULES: Sequence[str] = ("torch",)
    ENVIRONMENT: Mapping[str, str] = {}
    BATCHES = "single"  # the field of `Work` with its batches

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
        """Update the model on a padded batch; return the loss."""
        import torch

        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.rounded):
            loss = self.loss_of(**{name: torch.from_numpy(array) for name, array in batch.items()})
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def loss_of(self, source, target, labels):
        """Return the mean loss over the labels (B, T) that are not padding; source is (B, S), target (B, T)."""
        logits = self.logits(source, target)
        return self.loss(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))

    def logits(self, source, target):
        """Return the logits of a batch (B, T, V)."""
        raise NotImplementedError
