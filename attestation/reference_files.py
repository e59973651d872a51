"""Where do a policy's reference values come from?  From the policy, or from files beside it.

Wherever a policy takes a list of strings it may say ``{ file = "values.txt" }`` instead: one value
a line, blank lines and ``#`` comments aside. The file lies in the policy's folder or below, and its
values become part of the policy before anything is checked or digested.
"""

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from attestation.errors import PolicyError

MAX_REFERENCE_FILE_BYTES = 1024 * 1024
MAX_REFERENCE_BYTES = 8 * MAX_REFERENCE_FILE_BYTES  # of all files that one policy names
_KEY = "file"

FileReader = Callable[[str], bytes]


def folder_reader(folder: Path) -> FileReader:
    """Reads files of ``folder`` by a relative name that stays inside it, links followed.

    For one policy: all that it reads is bounded together.
    """
    num_read_bytes = 0

    def read(name: str) -> bytes:
        nonlocal num_read_bytes
        path = PurePosixPath(name)
        is_inside = not path.is_absolute() and ".." not in path.parts and path.parts
        try:
            resolved = (folder / path).resolve()
            if not is_inside or not resolved.is_relative_to(folder.resolve()):
                raise PolicyError(f"policy: {name!r} is not a file below the policy's folder")
            if not resolved.is_file():  # a pipe or device would never end
                raise PolicyError(f"policy: {name!r} is not a file")
            with resolved.open("rb") as file:
                data = file.read(MAX_REFERENCE_FILE_BYTES + 1)
        except OSError as err:
            raise PolicyError(f"policy: cannot read {name!r}: {err.strerror}") from err
        except (ValueError, RuntimeError) as err:  # a zero byte, a loop of links
            raise PolicyError(f"policy: cannot read {name!r}") from err
        if len(data) > MAX_REFERENCE_FILE_BYTES:
            raise PolicyError(f"policy: {name!r} has more than {MAX_REFERENCE_FILE_BYTES} bytes")
        num_read_bytes += len(data)
        if num_read_bytes > MAX_REFERENCE_BYTES:
            raise PolicyError(f"policy: its files have more than {MAX_REFERENCE_BYTES} bytes")
        return data

    return read


def no_files(name: str) -> bytes:
    """For policies that come from no folder."""
    raise PolicyError(f"policy: {name!r} cannot be read, this policy lies in no folder")


def with_reference_values(document: object, read: FileReader) -> object:
    """``document`` with every ``{ file = NAME }`` replaced by the list of the file's values.

    Raises: PolicyError: a file that cannot be read or is not text.
    """
    if isinstance(document, Mapping):
        if document.keys() == {_KEY} and isinstance(document[_KEY], str):
            return _values(document[_KEY], read)
        return {key: with_reference_values(value, read) for key, value in document.items()}
    if isinstance(document, list):
        return [with_reference_values(item, read) for item in document]
    return document


def _values(name: str, read: FileReader) -> list[str]:
    try:
        lines = read(name).decode("utf-8").splitlines()
    except UnicodeDecodeError as err:
        raise PolicyError(f"policy: {name!r} is not text") from err
    values = (line.partition("#")[0].strip() for line in lines)
    return [value for value in values if value]
