"""Which roots may end a certificate chain?  Pinned by SHA-256, never taken from the Evidence.

``vendor`` and ``fake`` roots ship with the package.  A ``foreign`` one is what the caller adds by
hand; it colours the verdict and a policy must name it to accept anything under it.
"""

import hashlib
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, cast, get_args

AnchorKind = Literal["vendor", "fake", "foreign"]
AnchorFamily = Literal["amd-ark", "aws-nitro", "dcap", "nvidia-device", "nvidia-rim"]

ANCHOR_KINDS: frozenset[str] = frozenset(get_args(AnchorKind))


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

    def with_foreign(self, der: bytes, *, source: str) -> "TrustAnchors":
        """These, and one more root for Evidence of any family; ``der`` is its certificate.

        A root that is pinned already stays what it is: adding the fake one by hand would make
        simulated Evidence look like a machine's.
        """
        digest = hashlib.sha256(der).hexdigest()
        if any(anchor.sha256 == digest for anchor in self.anchors):
            return self
        added = (
            Anchor(
                name=f"foreign-{digest[:16]}",
                kind="foreign",
                family=cast("AnchorFamily", family),
                sha256=digest,
                source=source,
            )
            for family in get_args(AnchorFamily)
        )
        return TrustAnchors(anchors=(*self.anchors, *added))

    def find(self, family: AnchorFamily, sha256: str) -> Anchor | None:
        """The anchor of this family with this fingerprint."""
        return next((a for a in self.anchors if a.sha256 == sha256 and a.family == family), None)


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
