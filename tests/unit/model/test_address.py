import pytest

from zhumq.model.address import Address, parse_address, parse_addresses, parse_listener


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("host:9092", Address("host", 9092)),
        ("10.0.0.1:1", Address("10.0.0.1", 1)),
        ("[::1]:65535", Address("::1", 65535)),
        ("PLAINTEXT://host:9092", Address("host", 9092)),
        ("plaintext://[::1]:9092", Address("::1", 9092)),
        (" host:9092 ", Address("host", 9092)),
        # A client on the same machine can connect to it; other tests check advertised addresses.
        ("0.0.0.0:9092", Address("0.0.0.0", 9092)),
    ],
)
def test_an_address_is_read_with_or_without_kafkas_listener_name(
    text: str, address: Address
) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "host", ":1", "host:", "host:x", "host:70000", "host:-1", "host:0", "host:٣"),
        *("::1:9092", "[::1]", "[host]:1", "a b:1", "user@host:1", "host/path:1", "a,b:1"),
        *("SSL://host:1", "http://host:1", "EXTERNAL://host:1", "PLAINTEXT://", "://host:1"),
    ],
)
def test_what_cannot_be_connected_to_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)


def test_another_protocol_is_refused_with_the_one_there_is() -> None:
    with pytest.raises(ValueError, match="'SASL_SSL', and only PLAINTEXT is supported"):
        parse_address("SASL_SSL://host:9093")


def test_a_listener_may_leave_host_and_port_to_the_system() -> None:
    assert parse_listener("127.0.0.1:0") == Address("127.0.0.1", 0)
    assert parse_listener("PLAINTEXT://:9092") == Address("", 9092)
    assert parse_listener(":9092").to_bind() == Address("0.0.0.0", 9092)
    assert parse_listener("h:0").or_port(7) == Address("h", 7)
    assert parse_listener("h:1").or_port(7) == Address("h", 1)


def test_a_list_of_addresses_is_split_and_a_port_may_be_understood() -> None:
    assert parse_addresses("a:1, b,", default_port=9092) == [Address("a", 1), Address("b", 9092)]
    with pytest.raises(ValueError, match="'b' is not HOST:PORT"):
        parse_addresses("a:1,b")
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_addresses(" , ")


@pytest.mark.parametrize("host", ["", "0", "0.0.0.0", "::", "0:0:0:0:0:0:0:0"])
def test_every_interface_is_unspecified(host: str) -> None:
    assert Address(host, 1).is_unspecified
    assert not Address(host, 1).is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_is_this_machine_alone(host: str) -> None:
    assert Address(host, 1).is_loopback
    assert not Address(host, 1).is_unspecified
