"""What does a verdict tell people about a genuine SNP report?"""

from collections.abc import Mapping

from attestation.snp.verifier import SnpClaims

REGISTERS = {  # name -> bytes
    "measurement": 48,
    "host_data": 32,
    "id_key_digest": 48,
    "author_key_digest": 48,
    "family_id": 16,
    "image_id": 16,
}


def measurements(claims: SnpClaims) -> dict[str, str]:
    """What the launched guest is, by name, lower-case hex."""
    return {name: getattr(claims.report, name).hex() for name in REGISTERS}


def facts(claims: SnpClaims) -> Mapping[str, str | int]:
    """Claims by name; a chip or provider that the Evidence does not name is an empty string."""
    report = claims.report
    return {
        "product": claims.product.name,
        "endorsement_key": claims.vek.kind,
        "chip_id": "" if claims.chip_id is None else claims.chip_id.hex(),
        "csp_id": claims.vek.csp_id or "",
        "report_version": report.version,
        "guest_policy": f"{report.policy:#x}",
        "platform_info": f"{report.platform_info:#x}",
        "vmpl": report.vmpl,
        "guest_svn": report.guest_svn,
        "current_tcb": str(claims.current_tcb),
        "reported_tcb": str(claims.reported_tcb),
        "committed_tcb": str(claims.committed_tcb),
        "launch_tcb": str(claims.launch_tcb),
        "report_data": report.report_data.hex(),
        **measurements(claims),
    }
