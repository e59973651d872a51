"""What can be wrong with a model file?

::

    ModelFileError                 model_file_invalid      (runtime/errors.py)
    ├── NotGgufError               not_gguf                magic or version is not one we read
    ├── NotSafetensorsError        not_safetensors         no safetensors header, or no such folder
    ├── TruncatedModelError        model_file_truncated    a length points past the end
    ├── ModelLimitError            model_file_limit        a count or length above our bound
    ├── MalformedModelError        model_file_malformed    the file contradicts itself
    ├── UnsupportedModelError      model_file_unsupported  asks for what we do not run
    │   └── UnsupportedTokenizerError  tokenizer_unsupported  (runtime/tokenizer/errors.py)
    └── TensorMismatchError        model_tensor_mismatch   missing, extra or misshapen tensor

Messages name keys, counts and types; they never carry weights or metadata values.
"""

from typing import ClassVar

from runtime.errors import ModelFileError


class NotGgufError(ModelFileError):
    """The bytes are not a GGUF file of a version that we read."""

    code: ClassVar[str] = "not_gguf"


class NotSafetensorsError(ModelFileError):
    """The bytes are not a safetensors file, or a folder lacks what such models have."""

    code: ClassVar[str] = "not_safetensors"


class TruncatedModelError(ModelFileError):
    """A length in the file points past its end."""

    code: ClassVar[str] = "model_file_truncated"


class ModelLimitError(ModelFileError):
    """A count or length exceeds the bound set for it."""

    code: ClassVar[str] = "model_file_limit"


class MalformedModelError(ModelFileError):
    """The file contradicts itself or the format."""

    code: ClassVar[str] = "model_file_malformed"


class UnsupportedModelError(ModelFileError):
    """The file is well formed but needs a feature that this runtime does not have."""

    code: ClassVar[str] = "model_file_unsupported"


class TensorMismatchError(ModelFileError):
    """A tensor is missing, unexpected, or has another shape than the architecture says."""

    code: ClassVar[str] = "model_tensor_mismatch"
