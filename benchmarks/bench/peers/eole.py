"""Eole, which grew out of OpenNMT."""

from benchmarks.bench.peers.on_torch import OnTorch


class Eole(OnTorch):
    """Eole's model, and its loss per token as in its recipes. Its defaults apply: pre-norm, and no biases in
    projections except the one to the vocabulary.
    """

    MODULES = ("eole", "torch")

    def __init__(self, work):
        import torch
        from eole.config.run import TrainConfig
        from eole.constants import DefaultTokens as Tokens
        from eole.models.model import EncoderDecoderModel
        from eole.utils.loss import LossCompute

        torch.manual_seed(1)
        sizes = work.model
        shape = {
            "architecture": "transformer", "layers": sizes.num_layers, "heads": sizes.num_heads,
            "hidden_size": sizes.d_model, "transformer_ff": sizes.d_ff, "embeddings": {"word_vec_size": sizes.d_model},
            "share_embeddings": True, "share_decoder_embeddings": True,
        }  # fmt: skip
        learning = {
            "dropout": [sizes.dropout],
            "attention_dropout": [0.0],
            "label_smoothing": work.train.label_smoothing,
        }
        config = TrainConfig(data={}, src_vocab="", tgt_vocab="", share_vocab=True, model=shape, training=learning)
        specials = {"pad_token": Tokens.PAD, "unk_token": Tokens.UNK, "bos_token": Tokens.BOS, "eos_token": Tokens.EOS}
        words = [*specials.values(), *map(str, range(len(specials), work.vocab_size))]  # special tokens in our order
        ids = {word: number for number, word in enumerate(words)}
        vocabularies = {"src": ids, "tgt": ids, "specials": specials}
        model = EncoderDecoderModel.for_training(config.model, vocabularies, config.training)
        self._train(model, work.train)
        self.loss = LossCompute.from_config(config, model, vocabularies)

    def loss_of(self, source, target, labels):
        import torch

        whole = torch.cat([target[:, :1], labels], dim=1)  # Eole shifts the target itself
        lengths, no_names = (source != 0).sum(dim=1), [""] * len(source)
        out, attention, _ = self.model(source, whole, lengths)
        batch = {"src": source, "tgt": whole, "srclen": lengths, "cid": no_names, "cid_line_number": no_names}
        loss, *_ = self.loss(batch, out, attention)
        return loss / (labels != 0).sum()
