"""RIMs under the test root, to change: a good one, and ways to edit, sign and wrap it.

Where a change touches something signed the document is signed again, so exactly one check can fail.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.vectors.nvidia_refs.pki import ISSUES, Issue, Signing, sign

_NS = "http://standards.iso.org/iso/19770/-2/2015/schema.xsd"
_SHA384_NS = "http://www.w3.org/2001/04/xmlenc#sha384"
HASHES = ("11" * 48, "22" * 48, "33" * 48)


@dataclass(frozen=True, kw_only=True)
class RimCase:
    """``code`` None is a good RIM; ``facts`` are then read from it."""

    change: str
    source: str
    code: str | None
    make: Callable[[], str]
    facts: dict[str, object] | None = None


def resource(index: int, *, active: bool = True, hashes: tuple[str, ...] = HASHES[:1]) -> str:
    """One entry, written as NVIDIA writes it."""
    values = " ".join(f'ns2:Hash{i}="{value}"' for i, value in enumerate(hashes))
    return (
        f'<ns0:Resource type="Measurement" index="{index}" active="{active}" '
        f'alternatives="{len(hashes)}" {values} name="Measurement_{index}" size="48"/>'
    )


def document(
    *,
    edition: str = "GPU",
    product: str = "GH100",
    version: str = "550.90.07",
    resources: tuple[str, ...] | None = None,
) -> str:
    """An unsigned SWID tag."""
    if resources is None:
        resources = (
            resource(0, active=False, hashes=("00" * 48,)),
            resource(1),
            resource(7, hashes=HASHES),
        )
    lines = "\n        ".join(resources)
    return f"""<SoftwareIdentity xmlns="{_NS}" xmlns:ns0="{_NS}" xmlns:ns2="{_SHA384_NS}" \
corpus="false" name="{product}" patch="false" supplemental="false" tagId="t" version="1.0">
    <ns0:Entity name="NVIDIA Corporation" role="softwareCreator tagCreator"/>
    <ns0:Meta colloquialVersion="{version}" edition="{edition}" product="{product}"/>
    <ns0:Payload>
        {lines}
    </ns0:Payload>
</SoftwareIdentity>
"""


GOOD = sign(document())


def edited(old: str, new: str, count: int = -1) -> str:
    """The good RIM, changed after it was signed."""
    assert old in GOOD
    return GOOD.replace(old, new, count)


def resigned(old: str, new: str) -> str:
    """Changed, then signed."""
    assert old in document()
    return sign(document().replace(old, new, 1))


def signed(**changes: object) -> str:
    """The good document, signed in another way."""
    return sign(document(), replace(Signing(), **changes))  # type: ignore[arg-type]


def chained(**changes: Issue | None) -> str:
    """Another chain; None leaves a certificate out."""
    issues = {**ISSUES, **changes}
    return signed(certificates=tuple(issue.make() for issue in issues.values() if issue))


def bad(change: str, source: str, code: str, make: Callable[[], str]) -> RimCase:
    """One fault."""
    return RimCase(change=change, source=source, code=code, make=make)
