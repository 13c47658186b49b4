"""Certificates are made by cryptography, and read by our own few lines."""

import contextlib
import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from zhumq.security.certificate import CertificateUnreadable, read_certificate

FROM = dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=dt.UTC)
UNTIL = dt.datetime(2051, 1, 1, tzinfo=dt.UTC)  # after 2049 in another format
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(subject: x509.Name) -> bytes:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(FROM)
        .not_valid_after(UNTIL)
    )
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def name(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (
            name(
                (NameOID.COUNTRY_NAME, "US"),
                (NameOID.STATE_OR_PROVINCE_NAME, "MD"),
                (NameOID.LOCALITY_NAME, "Fulton"),
                (NameOID.ORGANIZATION_NAME, "mycp"),
                (NameOID.ORGANIZATIONAL_UNIT_NAME, "SME"),
                (NameOID.COMMON_NAME, "Duke"),
            ),
            "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
        ),
        (
            name((NameOID.DOMAIN_COMPONENT, "cz"), (NameOID.COMMON_NAME, "Tkac, Adam")),
            r"CN=Tkac\, Adam,DC=cz",
        ),
        (name((NameOID.COMMON_NAME, 'a=b+c"d\\e<f>g;h#i')), r"CN=a\=b\+c\"d\\e\<f\>g\;h\#i"),
        (name((NameOID.COMMON_NAME, " both ends ")), r"CN=\ both ends\ "),
        (name((NameOID.COMMON_NAME, "Zoë 鱼")), "CN=Zoë 鱼"),
        (
            name((NameOID.USER_ID, "u1"), (NameOID.STREET_ADDRESS, "Main 1")),
            "STREET=Main 1,UID=u1",
        ),
        # No keyword in RFC 2253: Java prints number and bytes.
        (
            name((NameOID.EMAIL_ADDRESS, "a@b.c"), (NameOID.COMMON_NAME, "x")),
            "CN=x,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        (
            x509.Name(
                [
                    x509.RelativeDistinguishedName(
                        [
                            x509.NameAttribute(NameOID.COMMON_NAME, "x"),
                            x509.NameAttribute(NameOID.USER_ID, "y"),
                        ]
                    )
                ]
            ),
            "CN=x+UID=y",
        ),
        (x509.Name([]), ""),
    ],
)
def test_the_subject_is_printed_as_java_does(subject: x509.Name, expected: str) -> None:
    assert read_certificate(certificate(subject)).subject == expected


def test_the_times_of_validity_are_read_in_both_formats() -> None:
    read = read_certificate(certificate(name((NameOID.COMMON_NAME, "x"))))
    assert (read.not_before, read.not_after) == (FROM.timestamp(), UNTIL.timestamp())


WHOLE = certificate(name((NameOID.COMMON_NAME, "whole")))


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_damaged_bytes_are_read_or_refused(position: int, value: int) -> None:
    damaged = WHOLE[:position] + bytes([value]) + WHOLE[position + 1 :]
    for data in (damaged, WHOLE[:position]):
        with contextlib.suppress(CertificateUnreadable):
            read_certificate(data)
