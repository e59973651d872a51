"""What is wrong with a tokenizer, beyond what can be wrong with any model file?"""

from typing import ClassVar

from runtime.weights.errors import UnsupportedModelError


class UnsupportedTokenizerError(UnsupportedModelError):
    """A tokenizer, pre-tokenizer or decoder that this runtime does not have."""

    code: ClassVar[str] = "tokenizer_unsupported"
