"""Logins and failed logins in the audit log."""

import json
from pathlib import Path

from sasl_support import sasl_broker
from tests.sasl_client import USER, SaslClient


def test_logins_and_failed_logins_are_in_the_audit_log(tmp_path: Path) -> None:
    injected = 'eve\n{"time": "forged"}'
    with sasl_broker(data_dir=tmp_path / "data") as running:
        with SaslClient(running.bootstrap) as client:
            client.log_in("PLAIN")
        for user, mechanism in ((USER, "SCRAM-SHA-512"), (injected, "PLAIN")):
            with SaslClient(running.bootstrap) as client:
                client.log_in(mechanism, user=user, password="wrong")
        with SaslClient(running.bootstrap) as client:
            client.handshake("GSSAPI")
    lines = (tmp_path / "data" / "audit.log").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert {event["action"] for event in events} == {"Authenticate"}
    found = {(each["principal"], each["resource"], each["allowed"]) for each in events}
    assert found == {
        (f"User:{USER}", "PLAIN", True),
        (f"User:{USER}", "SCRAM-SHA-512", False),
        (f"User:{injected}", "PLAIN", False),
        ("User:ANONYMOUS", "GSSAPI", False),
    }
    assert all(event["host"] == "127.0.0.1" for event in events)
