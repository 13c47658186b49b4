"""GET /readyz of the web process: ready while a broker answers, whatever that asks of its clients."""

from pathlib import Path

import httpx

from zhumq.cli.dev_certificates import make_dev_certificates
from zhumq.testing.broker import broker
from zhumq.testing.cluster import wait_for
from zhumq.testing.secured import MECHANISM, secured_broker
from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig
from zhumq.web.credentials import BrokerSecurity

SECONDS_MAX = 60.0


def readiness(url: str) -> tuple[int, list[str]]:
    answer = httpx.get(f"{url}/readyz", timeout=SECONDS_MAX)
    assert answer.headers["content-type"].startswith("text/plain")
    return answer.status_code, answer.text.splitlines()


def test_it_is_ready_while_a_broker_answers(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path) as running:
        bootstrap = running.bootstrap
        with rest_api(WebConfig(bootstrap=bootstrap)) as url:
            assert readiness(url) == (200, ["ready"])
    with rest_api(WebConfig(bootstrap=bootstrap)) as url:
        status, (first, obstacle) = readiness(url)
        assert (status, first) == (503, "not ready")
        assert f"no broker at {bootstrap}" in obstacle
        # The process itself serves all the same: a restart would repair nothing.
        assert httpx.get(f"{url}/healthz").text == "ok\n"
        with broker(data_dir=tmp_path) as again:
            assert again.bootstrap == bootstrap
            wait_for(lambda: readiness(url) == (200, ["ready"]) or None, "a broker again")


def trusting(authority: Path, file: Path) -> BrokerSecurity:
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={MECHANISM}\n"
        f"ssl.truststore.location={authority}\nssl.truststore.type=PEM\n"
    )
    return BrokerSecurity.read(file)


def test_a_broker_with_sasl_answers_without_credentials_if_its_certificate_is_trusted(
    tmp_path: Path,
) -> None:
    make_dev_certificates(tmp_path / "others", client="c", more_hosts=(), days=1)
    with secured_broker(tmp_path / "new") as secured:
        for authority, status in (
            (Path(secured.authority), 200),
            (tmp_path / "others" / "ca.pem", 503),
        ):
            security = trusting(authority, tmp_path / f"{status}.properties")
            with rest_api(WebConfig(bootstrap=secured.bootstrap, security=security)) as url:
                assert readiness(url)[0] == status
