"""What the names of the security protocols say."""

import pytest

from zhumq.model.security_protocol import SecurityProtocol


@pytest.mark.parametrize("protocol", SecurityProtocol)
def test_the_name_says_whether_a_listener_encrypts_and_authenticates(
    protocol: SecurityProtocol,
) -> None:
    assert protocol.uses_tls == protocol.endswith("SSL")
    assert protocol.uses_sasl == protocol.startswith("SASL")
