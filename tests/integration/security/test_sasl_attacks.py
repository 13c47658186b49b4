"""Attacks on authentication: replays, other nonces, downgrades, guessing who exists, forged tokens."""

import base64
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from sasl_support import ALL, AUDIENCE, ISSUER, SCRAM, Issuer, bearer, sasl_broker
from tests.sasl_client import PASSWORD, USER, SaslClient, ScramLogin

from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.sasl import SaslAuthenticateResponse
from zhumq.testing.broker import RunningBroker

SECONDS_MAX = 20.0
UNKNOWN = [f"unknown-{number}" for number in range(5)]
TRIES = 60


@pytest.fixture(scope="module")
def running(issuer: Issuer) -> Iterator[RunningBroker]:
    settings = {**issuer.settings, "connection__failed__authentication__delay__ms": "0"}
    with sasl_broker(mechanisms=f"{ALL},OAUTHBEARER", **settings) as started:
        yield started


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_replayed_scram_exchange_is_refused(running: RunningBroker, mechanism: str) -> None:
    scram = ScramLogin(mechanism, USER, PASSWORD)
    with SaslClient(running.bootstrap) as honest:
        honest.handshake(mechanism)
        recorded = scram.final(bytes(honest.send_token(scram.first).auth_bytes))
        assert honest.send_token(recorded).error_code == 0
    with SaslClient(running.bootstrap) as attacker:
        attacker.handshake(mechanism)
        attacker.send_token(scram.first)
        assert _is_refused(attacker.send_token(recorded))


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_proof_for_another_nonce_is_refused(running: RunningBroker, mechanism: str) -> None:
    for change in (lambda nonce: nonce[:-1], lambda nonce: "x" + nonce, lambda nonce: nonce + "x"):
        scram = ScramLogin(mechanism, USER, PASSWORD)
        with SaslClient(running.bootstrap) as attacker:
            attacker.handshake(mechanism)
            challenge = bytes(attacker.send_token(scram.first).auth_bytes)
            nonce = challenge.decode().partition(",")[0].removeprefix("r=")
            assert _is_refused(attacker.send_token(scram.final(challenge, nonce=change(nonce))))


def test_a_credential_of_one_mechanism_is_no_proof_for_another(running: RunningBroker) -> None:
    scram = ScramLogin("SCRAM-SHA-256", USER, PASSWORD)
    with SaslClient(running.bootstrap) as attacker:
        attacker.handshake("SCRAM-SHA-512")
        challenge = bytes(attacker.send_token(scram.first).auth_bytes)
        assert _is_refused(attacker.send_token(scram.final(challenge)))


def test_a_downgrade_to_a_mechanism_that_is_not_enabled_is_refused() -> None:
    with sasl_broker(mechanisms="SCRAM-SHA-512") as running:
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"):
            with SaslClient(running.bootstrap) as attacker:
                answer = attacker.handshake(mechanism)
                assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
                assert answer.mechanisms == ["SCRAM-SHA-512"]
                assert attacker.is_closed()


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_the_answer_to_an_unknown_user_is_that_to_a_wrong_password(
    running: RunningBroker, mechanism: str
) -> None:
    answers = set()
    for user in (USER, *UNKNOWN):
        with SaslClient(running.bootstrap) as client:
            answer = client.log_in(mechanism, user=user, password="wrong")
            answers.add((answer.error_code, answer.error_message, bytes(answer.auth_bytes)))
    assert len(answers) == 1
    ((code, message, _),) = answers
    assert code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert USER not in str(message)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_salts_do_not_tell_which_users_exist(tmp_path: Path, mechanism: str) -> None:
    def challenges() -> dict[str, tuple[str, int, str]]:
        found = {}
        with sasl_broker(data_dir=tmp_path / "data") as running:
            for user in (USER, *UNKNOWN):
                with SaslClient(running.bootstrap) as client:
                    client.handshake(mechanism)
                    answer = client.send_token(ScramLogin(mechanism, user, "").first)
                    text = bytes(answer.auth_bytes).decode()
                    _, salt, iterations = (part.split("=", 1)[1] for part in text.split(","))
                    found[user] = (salt, len(base64.b64decode(salt)), iterations)
        return found

    before, after = challenges(), challenges()
    # The same salt for a name each time, also after a restart; of the same size, with as many iterations.
    assert before == after
    assert len({salt for salt, _, _ in before.values()}) == 1 + len(UNKNOWN)
    assert len({rest for _, *rest in map(tuple, before.values()) for rest in [tuple(rest)]}) == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_the_time_of_an_answer_does_not_tell_which_users_exist(
    running: RunningBroker, mechanism: str
) -> None:
    def seconds(user: str) -> float:
        with SaslClient(running.bootstrap) as client:
            client.handshake(mechanism)
            if mechanism == "PLAIN":
                begun = time.perf_counter()
                client.send_token(f"\0{user}\0wrong".encode())
                return time.perf_counter() - begun
            scram = ScramLogin(mechanism, user, "wrong")
            begun = time.perf_counter()
            challenge = bytes(client.send_token(scram.first).auth_bytes)
            first = time.perf_counter() - begun
            final = scram.final(challenge)
            begun = time.perf_counter()
            client.send_token(final)
            return first + time.perf_counter() - begun

    seconds(USER)
    taken: dict[str, list[float]] = {USER: [], UNKNOWN[0]: []}
    for _ in range(TRIES):  # in turn, so that what else the machine does hits both
        for user, samples in taken.items():
            samples.append(seconds(user))
    # The quickest of each: what else the machine does makes answers late, and none early.
    known, unknown = map(min, taken.values())
    # Without the work for an unknown user PLAIN would be ten times as quick.
    assert 0.5 < known / unknown < 2.0, (known, unknown)


def _is_refused(answer: SaslAuthenticateResponse) -> bool:
    return answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def _answer_to(running: RunningBroker, token: str) -> SaslAuthenticateResponse:
    """The last answer to a token, which is accepted if there is no error."""
    with SaslClient(running.bootstrap, seconds_max=SECONDS_MAX) as client:
        client.handshake("OAUTHBEARER")
        answer = client.send_token(bearer(token))
        if answer.auth_bytes:
            assert json.loads(bytes(answer.auth_bytes)) == {"status": "invalid_token"}
            answer = client.send_token(b"\x01")
            assert client.is_closed()
        elif not answer.error_code:
            client.use()
        return answer


def _unsigned(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, None, algorithm="none")


def _signed_with_the_public_key(issuer: Issuer) -> str:
    """HS256 with the public key as the secret: libraries that trust the header accept it."""

    def part(content: dict[str, Any]) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=")

    head = part({"alg": "HS256", "typ": "JWT", "kid": issuer.key_id})
    signed = head + b"." + part(issuer.claims())
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        signed, issuer.public_pem
    )
    return (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


FORGERIES: dict[str, Callable[[Issuer], str]] = {
    "no algorithm": lambda issuer: _unsigned(issuer.claims()),
    "no algorithm, in capitals": lambda issuer: _with_header(issuer, alg="NONE"),
    "no signature": lambda issuer: issuer.token().rpartition(".")[0] + ".",
    "another key": lambda issuer: issuer.token(key=rsa.generate_private_key(65537, 2048)),
    "another kind of key": lambda issuer: issuer.token(
        key=ec.generate_private_key(ec.SECP256R1()), algorithm="ES256"
    ),
    "an unknown key id": lambda issuer: issuer.token(key_id="unknown"),
    "the public key as a secret": _signed_with_the_public_key,
    "another audience": lambda issuer: issuer.token(aud="another"),
    "no audience": lambda issuer: issuer.token(aud=None),
    "another issuer": lambda issuer: issuer.token(iss="https://another.example"),
    "no issuer": lambda issuer: issuer.token(iss=None),
    "expired": lambda issuer: issuer.token(exp=int(time.time()) - 10),
    "no expiry": lambda issuer: issuer.token(exp=None),
    "an expiry that is no number": lambda issuer: issuer.token(exp="never"),
    "not yet valid": lambda issuer: issuer.token(nbf=int(time.time()) + 60),
    "issued in the future": lambda issuer: issuer.token(iat=int(time.time()) + 60),
    "no user": lambda issuer: issuer.token(sub=None),
    "an empty user": lambda issuer: issuer.token(sub=""),
    "scopes that are numbers": lambda issuer: issuer.token(scope=[1, 2]),
    "changed claims": lambda issuer: _with_claims(issuer, sub="root"),
    "no token": lambda _: "nonsense",
    "three empty parts": lambda _: "..",
}


def _with_header(issuer: Issuer, **changes: str) -> str:
    head, claims, signature = issuer.token().split(".")
    changed = json.loads(base64.urlsafe_b64decode(head + "==")) | changes
    return ".".join((_base64(changed), claims, signature))


def _with_claims(issuer: Issuer, **changes: str) -> str:
    head, _, signature = issuer.token().split(".")
    return ".".join((head, _base64(issuer.claims(**changes)), signature))


def _base64(content: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_token_is_refused_with(running: RunningBroker, issuer: Issuer, forgery: str) -> None:
    assert _is_refused(_answer_to(running, FORGERIES[forgery](issuer)))


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_a_signed_token_is_accepted_until_it_expires(
    running: RunningBroker, issuer: Issuer, algorithm: str
) -> None:
    answer = _answer_to(running, issuer.token(algorithm=algorithm))
    assert answer.error_code == 0
    assert 3_500_000 < answer.session_lifetime_ms <= 3_600_000


def test_a_token_is_accepted_for_one_of_several_audiences(
    running: RunningBroker, issuer: Issuer
) -> None:
    token = issuer.token(aud=["another", AUDIENCE], scope="read write", iss=ISSUER)
    assert _answer_to(running, token).error_code == 0


def test_the_clock_of_the_issuer_may_be_a_little_off(
    running: RunningBroker, issuer: Issuer
) -> None:
    ahead = int(time.time()) + 1
    assert _answer_to(running, issuer.token(iat=ahead, nbf=ahead)).error_code == 0


def test_an_authorization_id_has_to_be_the_user_of_the_token(
    running: RunningBroker, issuer: Issuer
) -> None:
    message = bearer(issuer.token()).replace(b"n,,", b"n,a=root,")
    with SaslClient(running.bootstrap) as client:
        client.handshake("OAUTHBEARER")
        assert client.send_token(message).auth_bytes
        assert _is_refused(client.send_token(b"\x01"))


def test_a_new_key_in_the_file_is_used_without_a_restart(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    issuer.write_jwks()
    with sasl_broker(mechanisms="OAUTHBEARER", **issuer.settings) as running:
        assert _answer_to(running, issuer.token()).error_code == 0
        old = issuer.token()
        issuer.key, issuer.key_id = rsa.generate_private_key(65537, 2048), "second"
        issuer.write_jwks()
        deadline = time.monotonic() + SECONDS_MAX
        while _answer_to(running, issuer.token()).error_code:
            assert time.monotonic() < deadline
        assert _is_refused(_answer_to(running, old))


def test_unsecured_tokens_are_accepted_only_if_the_operator_allows_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer(tmp_path)
    allowed = {"sasl__oauthbearer__unsecured__allowed": "true"}
    with sasl_broker(mechanisms="OAUTHBEARER", **allowed) as running:
        assert "without a signature" in caplog.text
        assert _answer_to(running, _unsigned(issuer.claims())).error_code == 0
        expired = issuer.claims(exp=int(time.time()) - 100)
        assert _is_refused(_answer_to(running, _unsigned(expired)))
        # There is no key: a signature cannot be checked.
        assert _is_refused(_answer_to(running, issuer.token()))


def test_keys_are_fetched_from_an_address_and_not_again_for_every_unknown_key(
    tmp_path: Path,
) -> None:
    issuer = Issuer(tmp_path)
    issuer.write_jwks()
    requests: list[Any] = []

    def serve_file(*arguments: Any) -> http.server.BaseHTTPRequestHandler:
        requests.append(arguments)
        return http.server.SimpleHTTPRequestHandler(*arguments, directory=str(tmp_path))

    server = http.server.HTTPServer(("127.0.0.1", 0), serve_file)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    url = f"http://127.0.0.1:{server.server_port}/{issuer.jwks_path.name}"
    settings = {**issuer.settings, "sasl__oauthbearer__jwks__endpoint__url": url}
    try:
        with sasl_broker(mechanisms="OAUTHBEARER", **settings) as running:
            for _ in range(5):
                assert _answer_to(running, issuer.token()).error_code == 0
            # Unknown keys do not make the broker a weapon against its issuer.
            for number in range(5):
                assert _is_refused(_answer_to(running, issuer.token(key_id=f"unknown-{number}")))
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
    assert len(requests) == 1
