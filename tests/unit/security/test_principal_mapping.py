"""Mapping rules: the examples are those of Kafka's documentation and the error cases of its tests."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.security.principal_mapping import MappingRuleInvalid, NoRuleMatches, PrincipalMapping

RULES = """
RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,
RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT
"""


@pytest.mark.parametrize(
    ("subject", "user"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_gives_the_user(subject: str, user: str) -> None:
    assert PrincipalMapping(RULES).principal(subject) == f"User:{user}"


@pytest.mark.parametrize(
    ("rules", "subject", "user"),
    [
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Tkac\, Adam,OU=ITZ", r"Tkac\, Adam"),
        ("RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/", "CN=bob,OU=x", "bob"),
        ("RULE:^CN=(.*)$/$1@$4/", "CN=bob", "bob@$4"),  # as in Kafka: there is no group 4
        ("RULE:^CN=(.*)$/$12/", "CN=bob", "bob2"),
        ("RULE:^CN=(.*)$/$0/", "CN=bob", "CN=bob"),
        (r"RULE:^CN=(.*)$/\$1\/x/", "CN=bob", "$1/x"),
        ("RULE:.*/x/", "CN=bob", "xx"),  # Java's replaceAll finds the empty end as well
        ("RULE:^CN=a(b)?$/<$1>/", "CN=a", "<>"),
        (" , ,DEFAULT,, ", "CN=bob", "CN=bob"),
    ],
)
def test_replacements_are_javas(rules: str, subject: str, user: str) -> None:
    assert PrincipalMapping(rules).principal(subject) == f"User:{user}"


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:^CN=(.*$/$1/",
        "RULE:^CN=(?=x)$/y/",
        "RULE:^CN=.*$/$1/",
        "RULE:^CN=(.*)$/$x/",
        f"RULE:{'x' * 2_000}/y/",
    ],
)
def test_a_rule_with_an_error_is_refused_and_named(rules: str) -> None:
    with pytest.raises(MappingRuleInvalid, match=r"RULE:|rule:|DEFAUL|default"):
        PrincipalMapping(rules)


def test_a_subject_that_no_rule_matches_has_no_principal() -> None:
    for rules in ("RULE:^CN=alice$/a/", ""):
        with pytest.raises(NoRuleMatches, match="CN=bob"):
            PrincipalMapping(rules).principal("CN=bob")


@given(st.text())
def test_the_default_takes_every_subject_as_it_is(subject: str) -> None:
    assert PrincipalMapping("DEFAULT").principal(subject) == f"User:{subject}"


@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\n"), min_size=1))
def test_a_group_gives_back_what_it_matched(name: str) -> None:
    assert PrincipalMapping("RULE:^CN=(.*)$/$1/").principal(f"CN={name}") == f"User:{name}"


@given(st.text(max_size=60))
def test_any_text_is_rules_or_is_refused(text: str) -> None:
    try:
        mapping = PrincipalMapping(text)
    except MappingRuleInvalid:
        return
    with contextlib.suppress(NoRuleMatches):
        assert mapping.principal("CN=x").startswith("User:")
