"""The REST API before a broker with SASL and ACLs: its callers have their own rights, and nothing more."""

import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from rest_support import create, problem, send

from zhumq.cli.dev_certificates import make_dev_certificates
from zhumq.client.errors import AuthenticationFailed
from zhumq.testing.cluster import wait_for
from zhumq.testing.secured import ADMIN, MECHANISM, USER, SecuredBroker, secured_broker
from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig
from zhumq.web.brokers import BrokerPool
from zhumq.web.credentials import BrokerSecurity
from zhumq.web.endpoint import PREFIX, Endpoint
from zhumq.web.routes import ROUTES

SECONDS_MAX = 60.0
THING = "secret"  # a topic, a group, a user and a transactional id


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"authorizer.class.name": "zhumq", "super.users": f"User:{ADMIN}"}
    with secured_broker(tmp_path_factory.mktemp("secured") / "new", settings=settings) as started:
        yield started


@pytest.fixture(scope="module")
def security(secured: SecuredBroker) -> BrokerSecurity:
    file = Path(secured.data_dir).parent / "web.properties"
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={MECHANISM}\n"
        f"ssl.truststore.location={secured.authority}\nssl.truststore.type=PEM\n"
    )
    return BrokerSecurity.read(file)


@pytest.fixture(scope="module")
def url(secured: SecuredBroker, security: BrokerSecurity) -> Iterator[str]:
    config = WebConfig(bootstrap=secured.bootstrap, security=security, event_seconds=0.2)
    with rest_api(config) as address:
        yield address


def client(url: str, user: str = "", password: str = "") -> httpx.Client:
    auth = (user, password) if user else None
    return httpx.Client(base_url=f"{url}{PREFIX}", auth=auth, timeout=SECONDS_MAX)


@pytest.fixture
def admin(url: str, secured: SecuredBroker) -> Iterator[httpx.Client]:
    with client(url, ADMIN, secured.admin_security.password.reveal()) as made:
        yield made


@pytest.fixture
def alice(url: str, secured: SecuredBroker) -> Iterator[httpx.Client]:
    with client(url, USER, secured.security.password.reveal()) as made:
        yield made


@pytest.fixture
def browser(url: str) -> Iterator[httpx.Client]:
    with client(url) as made:
        yield made


def test_a_caller_without_the_right_credentials_is_refused(url: str, browser: httpx.Client) -> None:
    refused = browser.get("/topics")
    problem(refused, 401)
    assert refused.headers["www-authenticate"].startswith("Basic realm=")
    page = browser.get("/topics", headers={"Sec-Fetch-Mode": "cors"})
    assert page.headers["www-authenticate"].startswith("Bearer")
    problem(browser.get("/events"), 401)
    problem(browser.get("/topics", headers={"Authorization": "Bearer x.y.z"}), 401)
    for user in (USER, "no-such-user"):
        with client(url, user, "wrong") as wrong:
            detail = str(problem(wrong.get("/topics"), 401)["detail"])
            assert "wrong" not in detail
            problem(wrong.get("/events"), 401)


def test_a_caller_has_the_rights_of_its_acls(
    admin: httpx.Client, alice: httpx.Client, topic: str
) -> None:
    create(admin, topic, partitions=1)
    send(admin, topic, "x")
    assert topic in admin.get("/topics").text
    assert alice.get("/topics", params={"search": topic}).json()["items"] == []
    assert problem(alice.get(f"/topics/{topic}"), 403)["code"] == "TOPIC_AUTHORIZATION_FAILED"
    rule = {"resource_type": "TOPIC", "resource_name": topic, "principal": f"User:{USER}"}
    granted = admin.post("/acls", json={"acls": [{**rule, "operation": "READ"}]})
    assert granted.status_code == 201
    assert [
        each["topic"] for each in alice.get("/topics", params={"search": topic}).json()["items"]
    ] == [topic]
    read = alice.get(f"/topics/{topic}/messages")
    assert read.status_code == 200, read.text
    assert [each["value"]["text"] for each in read.json()["items"]] == ["x"]
    body = {"messages": [{"value": "y"}]}
    assert problem(alice.post(f"/topics/{topic}/messages", json=body), 403)["code"] is not None
    problem(alice.delete(f"/topics/{topic}"), 403)
    problem(alice.patch(f"/topics/{topic}", json={"partitions": 2}), 403)
    (listed,) = admin.get("/acls", params={"principal": f"User:{USER}", "resource_name": topic}).json()["items"]  # fmt: skip
    assert listed == {
        **rule,
        "operation": "READ",
        "pattern": "LITERAL",
        "permission": "ALLOW",
        "host": "*",
    }
    problem(admin.delete("/acls"), 400)
    assert admin.delete("/acls", params={"resource_name": topic}).json() == [listed]
    assert alice.get("/topics", params={"search": topic}).json()["items"] == []


def test_messages_are_sent_with_a_schema_by_those_who_may_read_the_registry(
    admin: httpx.Client, alice: httpx.Client, url: str, topic: str
) -> None:
    create(admin, topic, partitions=1)
    subjects = f"{url}/registry/subjects/{topic}-value/versions"
    made = httpx.post(subjects, json={"schema": '"string"'}, auth=admin.auth, timeout=SECONDS_MAX)
    assert made.status_code == 200, made.text

    def answer_to(subject: str) -> httpx.Response:
        value = {"json": "x", "schema": {"subject": subject}}
        return alice.post(f"/topics/{topic}/messages", json={"messages": [{"value": value}]})

    def grant(name: str, operation: str) -> None:
        rule = {"resource_type": "TOPIC", "resource_name": name, "operation": operation}
        acls = {"acls": [{**rule, "principal": f"User:{USER}"}]}
        assert admin.post("/acls", json=acls).status_code == 201

    plain = {"messages": [{"value": "x"}]}
    problem(alice.post(f"/topics/{topic}/messages", json=plain), 403)
    grant(topic, "WRITE")
    # The refusal was fatal to the producer that had sent it.
    sent = alice.post(f"/topics/{topic}/messages", json=plain)
    assert sent.status_code == 201, sent.text
    # Nor does a refusal show whether there is such a subject.
    refusals = [problem(answer_to(each), 403) for each in (f"{topic}-value", "no-such-subject")]
    assert refusals[0] == refusals[1]
    assert refusals[0]["code"] == "TOPIC_AUTHORIZATION_FAILED"
    grant("_schemas", "READ")
    try:
        problem(answer_to("no-such-subject"), 404)
        sent = answer_to(f"{topic}-value")
        assert sent.status_code == 201, sent.text
    finally:
        admin.delete("/acls", params={"principal": f"User:{USER}"})


def test_lags_are_of_the_groups_that_the_caller_may_describe(
    admin: httpx.Client, alice: httpx.Client, topic: str
) -> None:
    names = [f"{topic}-1", f"{topic}-2"]
    create(admin, topic, partitions=1)
    send(admin, topic, "x", "y")
    for name in names:
        reset = admin.post(f"/groups/{name}/reset", json={"topic": topic, "to": "earliest"})
        assert reset.status_code == 200, reset.text
    # Who may describe the cluster is shown the name of every group, and no more of it.
    rights = [
        ("CLUSTER", "kafka-cluster", "DESCRIBE"),
        ("GROUP", names[0], "DESCRIBE"),
        ("TOPIC", topic, "DESCRIBE"),
    ]
    acls = [
        {"resource_type": kind, "resource_name": name, "operation": operation}
        for kind, name, operation in rights
    ]
    rules = [{**each, "principal": f"User:{USER}"} for each in acls]
    assert admin.post("/acls", json={"acls": rules}).status_code == 201
    try:
        found = alice.get("/group-lags", params={"search": topic}).json()
        assert [(each["group"], each["lag"]) for each in found["items"]] == [(names[0], 2)]
        (left_out,) = found["left_out"]
        assert (left_out["group"], left_out["code"]) == (names[1], "GROUP_AUTHORIZATION_FAILED")
        page = admin.get("/group-lags", params={"search": topic, "limit": 1}).json()
        assert ([each["group"] for each in page["items"]], page["next"]) == (names[:1], names[0])
    finally:
        for _, name, _ in rights:
            admin.delete("/acls", params={"principal": f"User:{USER}", "resource_name": name})


def test_connections_of_callers_are_never_mixed(
    admin: httpx.Client, alice: httpx.Client, topic: str
) -> None:
    create(admin, topic)

    def sees(number: int) -> tuple[bool, bool]:
        caller = admin if number % 2 else alice
        return bool(number % 2), topic in caller.get("/topics").text

    with ThreadPoolExecutor(8) as threads:
        assert all(is_admin == found for is_admin, found in threads.map(sees, range(60)))


def test_users_are_created_changed_and_deleted(
    url: str, admin: httpx.Client, alice: httpx.Client
) -> None:
    problem(alice.get("/users"), 403)
    problem(alice.post("/users", json={"user": "bob", "password": "x"}), 403)
    made = admin.post("/users", json={"user": "bob", "password": "builder"})
    assert (made.status_code, made.json()["user"]) == (201, "bob")
    problem(admin.post("/users", json={"user": "bob", "password": "builder"}), 409)
    assert "bob" in [each["user"] for each in admin.get("/users").json()["items"]]
    with client(url, "bob", "builder") as bob:
        assert bob.get("/topics").status_code == 200
    assert admin.put("/users/bob/password", json={"password": "changed"}).status_code == 204
    with client(url, "bob", "changed") as bob:
        assert bob.get("/topics").status_code == 200
    assert admin.delete("/users/bob").status_code == 204
    problem(admin.delete("/users/bob"), 404)
    problem(admin.put("/users/bob/password", json={"password": "x"}), 404)


def test_a_deleted_user_is_refused_when_its_credentials_are_checked_again(
    secured: SecuredBroker, security: BrokerSecurity, admin: httpx.Client
) -> None:
    admin.post("/users", json={"user": "carol", "password": "x"})
    pool = BrokerPool(secured.bootstrap, age_seconds_max=0.0)
    carol = security.of_user("carol", "x")
    with pool.lend(carol) as brokers:
        brokers.connection.metadata()
    assert admin.delete("/users/carol").status_code == 204
    with pytest.raises(AuthenticationFailed), pool.lend(carol):
        pass
    pool.close()


def test_quotas_are_set_listed_and_deleted(admin: httpx.Client, alice: httpx.Client) -> None:
    change = {"entity": {"user": USER}, "quotas": {"producer_byte_rate": 1_000_000}}
    problem(alice.patch("/quotas", json=change), 403)
    assert admin.patch("/quotas", json=change).status_code == 204
    assert change in admin.get("/quotas").json()
    gone = {"entity": {"user": USER}, "quotas": {"producer_byte_rate": None}}
    assert admin.patch("/quotas", json=gone).status_code == 204
    assert change not in admin.get("/quotas").json()
    problem(admin.patch("/quotas", json={"entity": {}, "quotas": {"producer_byte_rate": 1}}), 400)


def audited(client: httpx.Client, **params: object) -> list[dict[str, object]]:
    items: list[dict[str, object]] = client.get("/audit", params={**params}).json()["items"]
    return items


def test_the_audit_log_is_read_newest_first_by_those_who_may(
    admin: httpx.Client, alice: httpx.Client, topic: str
) -> None:
    problem(alice.post("/topics", json={"topic": topic}), 403)
    create(admin, topic)
    found = wait_for(
        lambda: audited(admin, resource=topic, result="allowed") or None, "a line of the change"
    )
    assert found[0]["principal"] == f"User:{ADMIN}"
    assert (found[0]["operation"], found[0]["host"]) == ("CREATE", "127.0.0.1")
    (denied,) = audited(admin, resource=topic, result="denied", principal=USER.upper())
    assert (denied["principal"], denied["allowed"]) == (f"User:{USER}", False)
    assert problem(alice.get("/audit"), 403)["code"] == "CLUSTER_AUTHORIZATION_FAILED"
    wait_for(
        # Other tests are refused things of the cluster, too.
        lambda: any(
            each["action"] == "AUDIT_LOG"
            for each in audited(admin, principal=USER, resource="cluster")
        ),
        "a line of the refusal",
    )
    # Reading leaves no trace.
    assert [
        each for each in audited(admin, result="allowed") if each["action"] == "AUDIT_LOG"
    ] == []


def test_the_audit_log_comes_in_pages(admin: httpx.Client, topic: str) -> None:
    for number in range(5):
        create(admin, f"{topic}-{number}")

    def created() -> list[dict[str, object]] | None:
        items = audited(admin, resource=topic, result="allowed")
        names = {each["resource"] for each in items}
        return items if {f"topic:{topic}-{number}" for number in range(5)} <= names else None

    everything = wait_for(created, "a line for each topic")
    times = [each["time_ms"] for each in everything]
    assert times == sorted(times, key=str, reverse=True)
    paged: list[dict[str, object]] = []
    params: dict[str, object] = {"resource": topic, "result": "allowed", "limit": 2}
    while True:
        page = admin.get("/audit", params={**params}).json()
        assert len(page["items"]) <= 2
        paged += page["items"]
        if page["next"] is None:
            break
        params["after"] = page["next"]
    assert paged == everything
    problem(admin.get("/audit", params={"after": "0:1"}), 400)
    problem(admin.get("/audit", params={"after": "0:1:99999999999999999999"}), 400)
    # A file that is gone has no lines.
    assert admin.get("/audit", params={"after": "0:1:1"}).json() == {"items": [], "next": None}


def test_a_browser_logs_in_changes_something_and_logs_out(
    browser: httpx.Client, secured: SecuredBroker, topic: str
) -> None:
    assert browser.get("/session").json() == {"authentication": "password", "user": None, "csrf_token": None}  # fmt: skip
    problem(browser.post("/session", json={"user": ADMIN, "password": "wrong"}), 401)
    problem(browser.post("/session", json={"user": ADMIN}), 401)
    login = {"user": ADMIN, "password": secured.admin_security.password.reveal()}
    other = {"Origin": "http://evil.example"}
    problem(browser.post("/session", json=login, headers=other), 403)
    answer = browser.post("/session", json=login)
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert login["password"] not in cookie
    token = answer.json()["csrf_token"]
    assert browser.get("/session").json() == answer.json()
    assert browser.get("/topics").status_code == 200
    assert problem(browser.post("/topics", json={"topic": topic}), 403)["title"] == "No CSRF token"
    wrong = {"X-CSRF-Token": "x"}
    problem(browser.post("/topics", json={"topic": topic}, headers=wrong), 403)
    right = {"X-CSRF-Token": token}
    assert browser.post("/topics", json={"topic": topic}, headers=right).status_code == 201
    problem(browser.delete("/session"), 403)
    kept = dict(browser.cookies)
    assert browser.delete("/session", headers=right).status_code == 204
    assert not browser.cookies
    browser.cookies.update(kept)
    problem(browser.get("/topics"), 401)


def test_events_are_of_what_the_caller_may_see(
    admin: httpx.Client, alice: httpx.Client, topic: str
) -> None:
    with alice.stream("GET", "/events") as stream:
        lines = stream.iter_lines()
        while "connected" not in next(lines):
            pass
        rule = {"resource_type": "TOPIC", "principal": f"User:{USER}", "operation": "READ"}
        create(admin, f"{topic}-hidden")
        # The first look may come late: what is granted again and again is named at last.
        for number in range(50):
            name = f"{topic}-{number}"
            create(admin, name)
            admin.post("/acls", json={"acls": [{**rule, "resource_name": name}]})
            line = next(lines)
            while line and "data:" not in line:
                line = next(lines)
            if topic in line:
                break
        assert topic in line
        assert "hidden" not in line


@pytest.mark.usefixtures("security")
def test_over_tls_cookies_are_for_tls_only(secured: SecuredBroker, tmp_path: Path) -> None:
    certificates = make_dev_certificates(tmp_path / "tls", client="web", more_hosts=(), days=1)
    properties = Path(secured.data_dir).parent / "web.properties"
    process = subprocess.Popen(
        [sys.executable, "-m", "zhumq", "web", "--listen", "127.0.0.1:0", "--bootstrap", secured.bootstrap,
         "--config", str(properties), "--tls-cert", str(certificates.broker), "--tls-key", str(certificates.broker)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        url = process.stdout.readline().split("url=")[1].split()[0]
        assert url.startswith("https://")
        trusted = ssl.create_default_context(cafile=certificates.authority)
        login = {"user": ADMIN, "password": secured.admin_security.password.reveal()}
        answer = httpx.post(
            f"{url}{PREFIX}/session", json=login, verify=trusted, timeout=SECONDS_MAX
        )
        assert answer.status_code == 200
        assert "Secure" in answer.headers["set-cookie"].split("; ")
        assert "max-age" in answer.headers["strict-transport-security"]
    finally:
        process.terminate()
        process.wait(SECONDS_MAX)
        process.stdout.close()


FILLED = {
    **dict.fromkeys(
        ("topic", "group", "session", "user", "transaction", "pipeline", "subject"), THING
    ),
    "what": "cluster",
    "broker": "0",
}
BODIES: dict[tuple[str, str], object] = {
    ("POST", "/topics"): {"topic": "another"},
    ("POST", "/cluster/reassignments"): {
        "moves": [{"topic": THING, "partition": 0, "replicas": [0]}]
    },
    ("POST", "/cluster/reassignments/plan"): {"topic": THING},
    ("POST", "/cluster/reassignments/cancel"): {"partitions": [{"topic": THING, "partition": 0}]},
    ("PUT", "/cluster/copy-rate"): {"bytes_per_second": 1},
    ("PATCH", "/topics/{topic}"): {"settings": {"retention.ms": "1"}},
    ("POST", "/topics/{topic}/messages"): {"messages": [{"value": "x"}]},
    ("POST", "/topics/{topic}/delete-records"): {"before": "latest"},
    ("POST", "/groups/{group}/reset"): {"topic": THING, "to": "latest"},
    ("PATCH", "/groups/{group}/settings"): {"settings": {"zhumq.filter": "key = 'a'"}},
    ("POST", "/dead-letters/{topic}/replay"): {},
    ("POST", "/hanging-transactions/abort"): {"topic": THING, "partition": 0, "start_offset": 0},
    ("POST", "/users"): {"user": "another", "password": "x"},
    ("PUT", "/users/{user}/password"): {"password": "x"},
    ("POST", "/acls"): {
        "acls": [
            {
                "resource_type": "TOPIC",
                "resource_name": "*",
                "principal": "User:mallory",
                "operation": "ALL",
            }
        ]
    },
    ("PATCH", "/quotas"): {"entity": {"user": "mallory"}, "quotas": {"producer_byte_rate": 1}},
}
QUERIES = {
    ("GET", "/keys"): {"key": "k"},
    ("GET", "/topics/{topic}/lookup"): {"key": "k"},
    ("DELETE", "/topics/{topic}/scheduled"): {"from_ms": "0", "to_ms": str(2**60)},
    ("DELETE", "/acls"): {"principal": f"User:{ADMIN}"},
}
# What Kafka's protocol answers to every user that is authenticated: brokers, and lists of what they may see.
EMPTY = {"/topics", "/topic-figures", "/groups", "/group-lags", "/transactions", "/dead-letters", "/subscriptions", "/push-sessions", "/half-messages",
         "/cluster/unwell-partitions", "/hanging-transactions", "/cluster/data-folders", "/pipelines", "/producers", "/keys"}  # fmt: skip


@pytest.fixture(scope="module")
def mallory(url: str, secured: SecuredBroker) -> Iterator[httpx.Client]:
    """A user without any rights, beside things that are not for her."""
    with client(url, ADMIN, secured.admin_security.password.reveal()) as admin:
        settings = {"index.keys": "true", "delay.enable": "true"}
        create(admin, THING, partitions=1, settings=settings)
        create(admin, f"{THING}.dlq", partitions=1)
        send(admin, THING, "x", key="k")
        admin.post(f"/groups/{THING}/reset", json={"topic": THING, "to": "earliest"})
        admin.post("/users", json={"user": THING, "password": "x"})
        admin.post("/users", json={"user": "mallory", "password": "x"})
    with client(url, "mallory", "x") as made:
        yield made


@pytest.mark.parametrize("row", [each for each in ROUTES if not each.is_open], ids=lambda row: f"{row.method} {row.path}")  # fmt: skip
def test_a_user_without_rights_gets_nothing(mallory: httpx.Client, row: Endpoint) -> None:
    key = (row.method, row.path)
    path = row.path.format(**FILLED, message="0:0:1" if "scheduled" in row.path else THING)
    answer = mallory.request(row.method, path, json=BODIES.get(key), params=QUERIES.get(key))
    if answer.status_code == 200 and row.path == "/cluster":
        assert (answer.json()["topics"], answer.json()["partitions"]) == (0, 0)
    elif answer.status_code == 200 and row.path == "/cluster/name":
        assert answer.json().keys() == {"cluster", "bootstrap"}
    elif answer.status_code == 200 and row.path == "/cluster/brokers":
        hidden = ("leads", "replicas", "version", "size_bytes")
        assert [[each[name] for name in hidden] for each in answer.json()] == [[0, 0, None, None]]
    elif answer.status_code == 200:
        assert row.path in EMPTY, answer.text
        found = answer.json()
        assert (found["items"] if isinstance(found, dict) else found) == []
    else:
        # 404 where the caller may not know whether there is one.
        assert answer.status_code in (403, 404), answer.text
        problem(answer, answer.status_code)
    assert "value" not in answer.text
