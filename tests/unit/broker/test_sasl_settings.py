"""Settings of SASL: what a listener gets from them, and which are refused with a reason."""

import json
from pathlib import Path

import pytest

from zhumq.broker.sasl_settings import sasl_config
from zhumq.broker.settings import BROKER_SETTINGS
from zhumq.broker.signing_keys import FileKeys, open_key_source, parse_jwks
from zhumq.model.errors import SettingInvalid
from zhumq.model.settings import Settings

JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"


def config_of(**given: str) -> Settings:
    return Settings(
        BROKER_SETTINGS, {name.replace("__", "."): text for name, text in given.items()}
    )


def test_scram_is_enabled_by_default() -> None:
    found = sasl_config(config_of())
    assert found.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert (found.reauthentication_ms, found.failure_delay_ms) == (0, 100)
    assert found.tokens is None


def test_a_listener_has_mechanisms_of_its_own() -> None:
    settings = config_of(
        sasl__enabled__mechanisms="PLAIN",
        listener__name__outside__sasl__enabled__mechanisms="SCRAM-SHA-512",
        listener__name__outside__connections__max__reauth__ms="1000",
    )
    outside = sasl_config(settings.of_listener("OUTSIDE"))
    assert (outside.mechanisms, outside.reauthentication_ms) == (("SCRAM-SHA-512",), 1_000)
    assert sasl_config(settings.of_listener("INSIDE")).mechanisms == ("PLAIN",)


@pytest.mark.parametrize(
    ("mechanisms", "reason"),
    [
        ("", "sasl.enabled.mechanisms is empty"),
        ("GSSAPI", "a list of PLAIN"),
        ("OAUTHBEARER", "where the keys that sign tokens are"),
    ],
)
def test_mechanisms_are_refused(mechanisms: str, reason: str) -> None:
    with pytest.raises(SettingInvalid, match=reason):
        sasl_config(config_of(sasl__enabled__mechanisms=mechanisms))


@pytest.mark.parametrize(
    "url", ["", "jwks.json", "ftp://issuer.example/jwks", "https:", "file", "data:,{}"]
)
def test_an_address_of_keys_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingInvalid, match="is not a file:, http: or https: address"):
        open_key_source(url, 1_000)


def test_a_missing_file_of_keys_is_named_at_the_start(tmp_path: Path) -> None:
    missing = tmp_path / "missing.json"
    with pytest.raises(SettingInvalid, match=f"{JWKS_URL}: cannot read {missing}: No such file"):
        open_key_source(missing.as_uri(), 1_000)


SMALL_RSA = {"kty": "RSA", "kid": "a", "e": "AQAB", "n": "sXch" * 42}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b"\xff", "decode"),
        (b"[]", "no public key"),
        (b"{}", "no public key"),
        (b'{"keys": []}', "no public key"),
        (b'{"keys": [3, null, {}]}', "no public key"),
        # A shared key would let every broker write tokens, and every token be signed with a public key.
        (b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "a"}]}', "no public key"),
        (b'{"keys": [{"kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB"}]}', "no public key"),
        (b'{"keys": [{"kty": "RSA", "alg": "HS256", "n": "AQAB", "e": "AQAB"}]}', "no public key"),
        (b'{"keys": [{"kty": "RSA", "kid": "a"}]}', "cannot be read"),
        (b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ"}]}', "cannot be read"),
        (json.dumps({"keys": [SMALL_RSA]}).encode(), "less than 2048 bits"),
    ],
)
def test_keys_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_jwks(content)
    file = tmp_path / "jwks.json"
    file.write_bytes(content)
    with pytest.raises(SettingInvalid, match="is not a JWKS"):
        FileKeys(file)
