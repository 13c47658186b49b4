"""sasl.jaas.config: the values of Kafka's documentation, and what is wrong with others."""

import pytest

from zhumq.client.jaas import parse_jaas

PACKAGE = "org.apache.kafka.common.security"

EXAMPLES = {
    "scram, as Kafka's documentation writes it": (
        f'{PACKAGE}.scram.ScramLoginModule required \\\n  username="alice" \\\n  password="alice-secret";'.replace(
            "\\\n", "\n"
        ),
        ("ScramLoginModule", {"username": "alice", "password": "alice-secret"}),
    ),
    "plain": (
        f'{PACKAGE}.plain.PlainLoginModule required username="alice" password="alice-secret";',
        ("PlainLoginModule", {"username": "alice", "password": "alice-secret"}),
    ),
    "oauthbearer with client credentials": (
        (
            f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule required"
            ' clientId="myClientId" clientSecret="my;Client=Secret" scope="kafka";'
        ),
        (
            "OAuthBearerLoginModule",
            {"clientId": "myClientId", "clientSecret": "my;Client=Secret", "scope": "kafka"},
        ),
    ),
    "oauthbearer without options": (
        f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule required;",
        ("OAuthBearerLoginModule", {}),
    ),
    "delegation token": (
        (
            f'{PACKAGE}.scram.ScramLoginModule required username="tokenID123"'
            ' password="lAYYSFmLs4bTjf+lTZ1LCHR/ZZFNA==" tokenauth="true";'
        ),
        (
            "ScramLoginModule",
            {
                "username": "tokenID123",
                "password": "lAYYSFmLs4bTjf+lTZ1LCHR/ZZFNA==",
                "tokenauth": "true",
            },
        ),
    ),
    "without quotes": (
        "PlainLoginModule required username=alice password=alice-secret;",
        ("PlainLoginModule", {"username": "alice", "password": "alice-secret"}),
    ),
    "single quotes and escapes": (
        "PlainLoginModule REQUIRED username='al\\'ice' password=\"a\\\"b\\\\c\\td\";",
        ("PlainLoginModule", {"username": "al'ice", "password": 'a"b\\c\td'}),
    ),
    "comments": (
        '// a line\nPlainLoginModule /* the only\n one */ required username="a" password="//b";',
        ("PlainLoginModule", {"username": "a", "password": "//b"}),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_login_module_and_its_options_are_read(name: str) -> None:
    text, (module, options) = EXAMPLES[name]
    parsed = parse_jaas(text)
    assert (parsed.name, parsed.options) == (module, options)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('PlainLoginModule required username="a" password="geheim"', "semicolon"),
        ("", "semicolon"),
        (";", "semicolon"),
        ('PlainLoginModule username="a" password="geheim";', "required"),
        ('PlainLoginModule required username="a" password="geheim;', "quote"),
        ('PlainLoginModule required username="a" password=;', "NAME=VALUE"),
        ('PlainLoginModule required username "a" password="geheim";', "NAME=VALUE"),
        ("PlainLoginModule required username=a password=gehe=im;", "'password', NAME=VALUE"),
        ('A required x="y"; PlainLoginModule required password="geheim";', "NAME=VALUE"),
    ],
)
def test_a_wrong_value_is_refused_without_its_secret(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        parse_jaas(text)
    assert "gehe" not in str(caught.value)


def test_a_login_module_does_not_print_its_options() -> None:
    parsed = parse_jaas('PlainLoginModule required username="a" password="geheim";')
    assert "geheim" not in f"{parsed!r} {parsed}"
