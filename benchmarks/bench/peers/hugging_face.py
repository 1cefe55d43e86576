"""Marian from Hugging Face Transformers."""

from benchmarks.bench.peers.on_torch import OnTorch


class HuggingFace(OnTorch):
    """Marian in the plain PyTorch loop."""

    MODULES = ("transformers", "torch")

    def __init__(self, work):
        import torch
        from transformers import MarianConfig, MarianMTModel

        sizes = work.model
        torch.manual_seed(1)
        layers = {"encoder_layers": sizes.num_layers, "decoder_layers": sizes.num_layers}
        heads = {"encoder_attention_heads": sizes.num_heads, "decoder_attention_heads": sizes.num_heads}
        widths = {"d_model": sizes.d_model, "encoder_ffn_dim": sizes.d_ff, "decoder_ffn_dim": sizes.d_ff}
        config = MarianConfig(
            vocab_size=work.vocab_size, max_position_embeddings=work.longest, activation_function="relu",
            pad_token_id=0, decoder_start_token_id=2, eos_token_id=3, dropout=sizes.dropout, scale_embedding=True,
            tie_word_embeddings=True, **layers, **heads, **widths,
        )  # fmt: skip
        self._train(MarianMTModel(config), work.train)

    def logits(self, source, target):
        mask = (source != 0).long()
        return self.model(input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False).logits
