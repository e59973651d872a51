"""How does an NRAS answer get exactly one fault?  The good one is changed and signed anew."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.attestation.nras.samples import (
    POLICY,
    Answer,
    Token,
    changed,
    device_claims,
    encode,
    set_claims,
    to_json,
)
from tests.support import p384

GPU = "GPU-0"
DRIVER_CHAIN = "x-nvidia-gpu-driver-rim-cert-chain"


@dataclass(frozen=True)
class Case:
    """``make`` gives the faulty answer, ``policy`` what to judge it under."""

    change: str
    code: str | None
    check: str | None
    make: Callable[[], Answer]
    policy: dict[str, Any] | None = None


def overall(change: str, code: str, check: str, **claims: Any) -> Case:
    return Case(change, code, check, lambda: set_claims("overall", claims))


def device(change: str, claims: dict[str, Any], code: str = "claims") -> Case:
    return Case(change, code, "device_claims", lambda: set_claims(GPU, claims))


def with_header(header: dict[str, Any], *, device: bool = False) -> Callable[[], Answer]:
    def change(answer: Answer) -> None:
        (answer.devices[GPU] if device else answer.overall).header = header

    return lambda: changed(change)


def with_text(edit: Callable[[str], str]) -> Callable[[], Answer]:
    """The overall token edited after it was signed."""

    def change(answer: Answer) -> None:
        answer.texts["overall"] = edit(answer.bundle()[0][1])

    return lambda: changed(change)


def with_jwks(change: Callable[[dict[str, Any]], object]) -> Callable[[], Answer]:
    return lambda: changed(lambda answer: change(answer.jwks))


def with_key(**members: Any) -> Callable[[], Answer]:
    return with_jwks(lambda jwks: jwks["keys"][0].update(members))


def edit_part(index: int, edit: Callable[[str], str]) -> Callable[[str], str]:
    def apply(token: str) -> str:
        parts = token.split(".")
        parts[index] = edit(parts[index])
        return ".".join(parts)

    return apply


def sign_der(token: str) -> str:
    signed = token.rsplit(".", 1)[0]
    return f"{signed}.{encode(p384.sign_der('nras signer', signed.encode()))}"


def with_claims(text: str) -> Callable[[], Answer]:
    """An overall token that is signed well over claims that are not strict JSON."""

    def change(answer: Answer) -> None:
        signed = f"{encode(to_json(answer.overall.header))}.{encode(text.encode())}"
        signature = encode(p384.sign(answer.overall.signer, signed.encode()))
        answer.texts["overall"] = f"{signed}.{signature}"

    return lambda: changed(change)


def with_submods(submods: Callable[[str], Any]) -> Callable[[], Answer]:
    """``submods`` makes the list from the device's token, instead of the right one."""

    def change(answer: Answer) -> None:
        answer.are_digests_fixed = True
        answer.overall.claims["submods"] = submods(answer.devices[GPU].compact())

    return lambda: changed(change)


def signed_by_another(*, device: bool) -> Callable[[], Answer]:
    def change(answer: Answer) -> None:
        (answer.devices[GPU] if device else answer.overall).signer = "another signer"

    return lambda: changed(change)


def wider(coordinate: str) -> str:
    """The same number in a byte more."""
    return encode(b"\0" + base64.urlsafe_b64decode(coordinate))


def two_gpus(answer: Answer) -> None:
    answer.devices["GPU-1"] = Token(device_claims(GPU))


def driver_chain(**members: Any) -> dict[str, Any]:
    chain: dict[str, Any] = device_claims(GPU)[DRIVER_CHAIN]
    return {
        DRIVER_CHAIN: chain
        | {f"x-nvidia-cert-{k.replace('_', '-')}": v for k, v in members.items()}
    }


def policy_with(**changes: Any) -> dict[str, Any]:
    return {**POLICY, "devices": {**POLICY["devices"], **changes}}
