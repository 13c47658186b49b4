"""Requests that pages of other sites make a browser send."""

from http import HTTPStatus

import pytest

from zhumq.web.guard import check_host, check_origin
from zhumq.web.problems import RequestRefused


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "127.0.0.1", "localhost:8080", "LOCALHOST", "[::1]:8080", "10.1.2.3", "mq.example:1", "MQ.example"],
)  # fmt: skip
def test_an_address_localhost_and_given_names_are_served(host: str) -> None:
    check_host(host, {"mq.example"})


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "[::1", "a b", "mq.example.evil"])  # fmt: skip
def test_a_name_that_leads_here_by_dns_rebinding_is_refused(host: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        check_host(host, {"mq.example"})
    assert caught.value.status is HTTPStatus.MISDIRECTED_REQUEST


@pytest.mark.parametrize(
    ("origin", "site"),
    [("http://evil.example", None), (None, "cross-site"), (None, "same-site"), ("null", None), ("http://[", None),
     ("http://localhost:8080", "cross-site"), ("http://localhost:8081", "same-origin")],
)  # fmt: skip
def test_a_change_that_another_site_asks_for_is_refused(
    origin: str | None, site: str | None
) -> None:
    check_origin("GET", "localhost:8080", origin, site)
    with pytest.raises(RequestRefused, match="another site"):
        check_origin("POST", "localhost:8080", origin, site)


def test_programs_and_pages_of_this_server_may_ask_for_changes() -> None:
    check_origin("POST", "localhost:8080", None, None)
    check_origin("DELETE", "localhost:8080", "http://localhost:8080", "same-origin")
