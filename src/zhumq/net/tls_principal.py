"""The principal of a client: the subject of its certificate, mapped by the rules of the listener."""

import ssl

from zhumq.model.ids import ANONYMOUS, Principal
from zhumq.security.certificate import read_certificate
from zhumq.security.principal_mapping import PrincipalMapping


def principal_of(connection: ssl.SSLObject, mapping: PrincipalMapping) -> Principal:
    """User:ANONYMOUS for a client without a certificate. Raises NoRuleMatches."""
    certificate = connection.getpeercert(binary_form=True)
    if certificate is None:
        return ANONYMOUS
    return mapping.principal(read_certificate(certificate).subject)


def principal_of_pem(certificate: bytes, mapping: PrincipalMapping) -> Principal:
    """The principal of a verified certificate in PEM. Raises NoRuleMatches."""
    der = ssl.PEM_cert_to_DER_cert(certificate.decode())
    return mapping.principal(read_certificate(der).subject)
