"""A Whisper model of two megabytes whose weights are chance: it hears nothing right, but all of it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

WIDTH, BANDS, INNER, POSITIONS, LENGTH = 64, 80, 128, 1500, 448


def build(folder: Path) -> Path:
    """Write the model into a folder. Needs what comes with faster-whisper."""
    import numpy as np  # noqa: PLC0415  comes with faster-whisper
    from ctranslate2.specs import whisper_spec  # noqa: PLC0415  as above
    from faster_whisper.tokenizer import _LANGUAGE_CODES as LANGUAGES  # noqa: PLC0415  as above

    numbers = np.random.RandomState(0)

    def some(*shape: int) -> Any:
        return (numbers.randn(*shape) * 0.05).astype(np.float32)

    def nought(size: int) -> Any:
        return np.zeros(size, np.float32)

    def norm(layer: Any) -> None:
        layer.gamma, layer.beta = np.ones(WIDTH, np.float32), nought(WIDTH)

    def linear(layer: Any, out: int, into: int) -> None:
        layer.weight, layer.bias = some(out, into), nought(out)

    def attention(layer: Any, *widths: int) -> None:
        norm(layer.layer_norm)
        for one, width in zip(layer.linear, widths, strict=False):
            linear(one, width * WIDTH, WIDTH)

    def forward(layer: Any) -> None:
        norm(layer.layer_norm)
        linear(layer.linear_0, INNER, WIDTH)
        linear(layer.linear_1, WIDTH, INNER)

    folder.mkdir(parents=True, exist_ok=True)
    tokens = _tokens(folder, LANGUAGES)
    spec: Any = whisper_spec.WhisperSpec(num_encoder_layers=1, num_encoder_heads=1, num_decoder_layers=1, num_decoder_heads=1)
    hearing, saying = spec.encoder, spec.decoder
    hearing.conv1.weight, hearing.conv1.bias = some(WIDTH, BANDS, 3), nought(WIDTH)
    hearing.conv2.weight, hearing.conv2.bias = some(WIDTH, WIDTH, 3), nought(WIDTH)
    hearing.position_encodings.encodings = some(POSITIONS, WIDTH)
    saying.embeddings.weight = some(len(tokens), WIDTH)
    saying.position_encodings.encodings = some(LENGTH, WIDTH)
    saying.projection.weight = some(len(tokens), WIDTH)
    saying.scale_embeddings = False
    for part in (hearing, saying):
        norm(part.layer_norm)
        for layer in part.layer:
            attention(layer.self_attention, 3, 1)
            forward(layer.ffn)
    for layer in saying.layer:
        attention(layer.attention, 1, 2, 1)
    spec.config.suppress_ids = [tokens.index("<|nospeech|>")]
    spec.config.suppress_ids_begin = [tokens.index("<|endoftext|>")]
    spec.config.lang_ids = [tokens.index(f"<|{one}|>") for one in LANGUAGES]
    spec.config.alignment_heads = [[0, 0]]
    spec.register_vocabulary(tokens)
    spec.validate()
    spec.save(str(folder))
    return folder


def _tokens(folder: Path, languages: Any) -> list[str]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415  comes with faster-whisper

    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["endoftext", "startoftranscript", *languages, "translate", "transcribe", "startoflm", "startofprev", "nospeech"]
    special += ["notimestamps", *(f"{number * 0.02:.2f}" for number in range(1501))]
    tokenizer.add_special_tokens([f"<|{one}|>" for one in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    return [token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])]
