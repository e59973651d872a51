"""What do the small files beside ``tokenizer.json`` say?  Special tokens and chat templates.

[transformers tokenization_utils_base.py, _from_pretrained; processing_utils.py, chat templates]
"""

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.weights.errors import MalformedModelError, UnsupportedModelError
from runtime.weights.json_text import parse_object

TOKENIZER_CONFIG = "tokenizer_config.json"
_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token")
_NAMED = ("name", "template")
_GENERATION_CONFIGS = ("generation_config.json", "config.json")  # the first that says it counts


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderConfig:
    """``special_texts`` by role, ``templates`` by name, "default" among them."""

    special_texts: Mapping[str, str]
    eos_token_ids: frozenset[int]  # those of the generation's config; may be empty
    templates: Mapping[str, str]


def parse_folder_config(contents: Mapping[str, memoryview | bytes]) -> FolderConfig:
    """Raises: MalformedModelError; UnsupportedModelError without a chat template."""
    files = {
        name: parse_object(bytes(contents[name]), what=name)
        for name in (TOKENIZER_CONFIG, "special_tokens_map.json", *_GENERATION_CONFIGS)
        if name in contents
    }
    config = files.get(TOKENIZER_CONFIG, {})
    named = files.get("special_tokens_map.json", {}) | config
    texts = {role: _token_text(named[role], role) for role in _ROLES if named.get(role)}
    return FolderConfig(
        special_texts=texts,
        eos_token_ids=_eos_token_ids(files),
        templates=_templates(contents, config),
    )


def _token_text(value: object, role: str) -> str:
    """A token's text, which older files put into an object of settings."""
    text = value.get("content") if isinstance(value, dict) else value
    if not isinstance(text, str) or not text:
        raise MalformedModelError(f"{TOKENIZER_CONFIG}: {role} is no text")
    return text


def _eos_token_ids(files: Mapping[str, Mapping[str, object]]) -> frozenset[int]:
    for name in _GENERATION_CONFIGS:
        value = files.get(name, {}).get("eos_token_id")
        if value is not None:
            ids = value if isinstance(value, list) else [value]
            if any(type(token_id) is not int or token_id < 0 for token_id in ids):
                raise MalformedModelError(f"{name}: eos_token_id is no token")
            return frozenset(ids)
    return frozenset()


def _templates(
    contents: Mapping[str, memoryview | bytes], config: Mapping[str, object]
) -> dict[str, str]:
    templates = _listed(config.get("chat_template"))
    if "chat_template.json" in contents:
        document = parse_object(bytes(contents["chat_template.json"]), what="chat_template.json")
        templates |= _listed(document.get("chat_template"))
    if "chat_template.jinja" in contents:
        try:
            templates["default"] = str(contents["chat_template.jinja"], "utf-8")
        except UnicodeDecodeError as err:
            raise MalformedModelError("chat_template.jinja is not UTF-8") from err
    if "default" not in templates:
        raise UnsupportedModelError("the model's folder has no chat template")
    return templates


def _listed(value: object) -> dict[str, str]:
    """One template, or a list of named ones."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    templates = {}
    for entry in value if isinstance(value, list) else [None]:
        name, source = (entry.get(k) if isinstance(entry, dict) else None for k in _NAMED)
        if not isinstance(name, str) or not isinstance(source, str):
            raise MalformedModelError(f"{TOKENIZER_CONFIG}: chat_template is no template")
        templates[name] = source
    return templates
