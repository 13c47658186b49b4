"""The certificates of the tests: what they are signed by, and which files hold them."""

import contextlib
import ssl
from pathlib import Path

from tests.certificates import KEY_PASSWORD, make_authority


def test_two_sides_with_certificates_of_one_authority_trust_each_other(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    broker, alice = authority.issue("broker", is_rsa=True), authority.issue("alice")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(broker.combined_file)
    server.load_verify_locations(authority.certificate_file)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(authority.certificate_file))
    client.load_cert_chain(alice.certificate_file, alice.encrypted_key_file, KEY_PASSWORD)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
    ]
    for _ in range(4):
        for side in sides:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    assert sides[0].getpeercert()["subject"] == ((("commonName", "alice"),),)
