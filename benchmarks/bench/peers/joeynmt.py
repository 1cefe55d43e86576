"""JoeyNMT."""

from benchmarks.bench.peers.on_torch import OnTorch


class JoeyNMT(OnTorch):
    """JoeyNMT's model, batch and loss, divided by tokens as in its configurations of Transformers.

    It also has dropout inside the feed-forward.
    """

    MODULES = ("joeynmt", "torch")

    def __init__(self, work):
        from types import SimpleNamespace

        import torch
        from joeynmt.model import build_model
        from joeynmt.transformer_layers import MultiHeadedAttention
        from joeynmt.vocabulary import Vocabulary

        torch.manual_seed(1)
        specials = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
        ids = {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3}
        words = [str(number) for number in range(len(specials), work.vocab_size)]
        vocabulary = Vocabulary(words, SimpleNamespace(**specials, **ids, sep_token=None, lang_tags=[]))
        sizes = work.model
        side = {
            "type": "transformer", "num_layers": sizes.num_layers, "num_heads": sizes.num_heads,
            "hidden_size": sizes.d_model, "ff_size": sizes.d_ff, "dropout": sizes.dropout, "layer_norm": "post",
            "embeddings": {"embedding_dim": sizes.d_model, "scale": True, "dropout": sizes.dropout},
        }  # fmt: skip
        tied = {"tied_embeddings": True, "tied_softmax": True}
        model = build_model({"encoder": side, "decoder": side, **tied}, vocabulary, vocabulary)
        for layer in model.modules():  # no dropout on attention weights, as in ours
            if isinstance(layer, MultiHeadedAttention):
                layer.dropout.p = 0.0
        model.loss_function = "crossentropy", work.train.label_smoothing
        self._train(model, work.train)

    def loss_of(self, source, target, labels):
        import torch
        from joeynmt.batch import Batch

        vocabulary = self.model.trg_vocab
        # Its ids 0 and 1 are the unknown token and padding; ours are padding and the unknown token.
        source, target, labels = (torch.where(ids < 2, 1 - ids, ids) for ids in (source, target, labels))
        whole = torch.cat([target[:, :1], labels], dim=1)  # JoeyNMT shifts the target itself
        batch = Batch(
            src=source, src_length=(source != vocabulary.pad_index).sum(dim=1), src_prompt_mask=None, trg=whole,
            trg_prompt_mask=None, indices=torch.arange(len(source)), device=torch.device("cpu"),
            pad_index=vocabulary.pad_index, eos_index=vocabulary.eos_index,
        )  # fmt: skip
        batch.sort_by_src_length()
        loss, *_ = self.model(return_type="loss", **vars(batch))
        return batch.normalize(loss, normalization="tokens")
