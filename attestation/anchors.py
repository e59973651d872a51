"""Which roots may end a certificate chain?  Pinned by SHA-256, never taken from the Evidence."""

import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, cast

AnchorKind = Literal["vendor", "fake"]
AnchorFamily = Literal["amd-ark", "dcap", "nvidia-device", "nvidia-rim"]

ANCHOR_KINDS: frozenset[str] = frozenset({"vendor", "fake"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One pinned root: ``sha256`` is over its DER form, lower-case hex."""

    name: str
    kind: AnchorKind
    family: AnchorFamily
    sha256: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustAnchors:
    """The roots that one appraisal may use."""

    anchors: tuple[Anchor, ...]

    def of_kinds(self, kinds: Collection[str]) -> "TrustAnchors":
        """Only the anchors of these kinds."""
        return TrustAnchors(anchors=tuple(a for a in self.anchors if a.kind in kinds))

    def find(self, family: AnchorFamily, sha256: str) -> Anchor | None:
        """The anchor of this family with this fingerprint."""
        return next((a for a in self.anchors if (a.family, a.sha256) == (family, sha256)), None)


@cache
def load_anchors() -> TrustAnchors:
    """The anchors that ship with the package; immutable, so read once."""
    document = tomllib.loads(resources.files("attestation").joinpath("anchors.toml").read_text())
    return TrustAnchors(
        anchors=tuple(
            Anchor(
                name=entry["name"],
                kind=cast("AnchorKind", entry["kind"]),
                family=cast("AnchorFamily", entry["family"]),
                sha256=entry["sha256"],
                source=entry["source"],
            )
            for entry in document["anchor"]
        )
    )
