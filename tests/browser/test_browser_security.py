"""The console before a broker with SASL and ACLs: logging in and out, and what a user may see."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_support import accessibility_problems, cell, dialog, noted, ready, row
from playwright.sync_api import Page, expect

from zhumq.testing.secured import ADMIN, MECHANISM, USER, SecuredBroker, secured_broker
from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig
from zhumq.web.credentials import BrokerSecurity


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"authorizer.class.name": "zhumq", "super.users": f"User:{ADMIN}"}
    with secured_broker(tmp_path_factory.mktemp("secured") / "new", settings=settings) as started:
        yield started


@pytest.fixture(scope="module")
def url(secured: SecuredBroker) -> Iterator[str]:
    file = Path(secured.data_dir).parent / "web.properties"
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={MECHANISM}\n"
        f"ssl.truststore.location={secured.authority}\nssl.truststore.type=PEM\n"
    )
    security = BrokerSecurity.read(file)
    with rest_api(WebConfig(bootstrap=secured.bootstrap, security=security)) as address:
        yield address


def log_in(page: Page, user: str, password: str) -> None:
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


@pytest.mark.thorough
def test_a_user_logs_in_changes_something_and_logs_out(page: Page, secured: SecuredBroker) -> None:
    page.goto("/acls")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    expect(page.get_by_label("User")).to_be_focused()
    assert accessibility_problems(page) == []
    log_in(page, ADMIN, "wrong")
    expect(page.get_by_role("alert").filter(has_text=".")).to_be_visible()
    log_in(page, ADMIN, secured.admin_security.password.reveal())
    # The address has stayed what it was.
    expect(page.get_by_role("heading", name="ACLs", exact=True)).to_be_visible()
    ready(page)
    page.get_by_role("button", name="Create ACL").click()
    dialog(page).get_by_label("Principal").fill(f"User:{USER}")
    dialog(page).get_by_label("Operation").select_option("DESCRIBE")
    dialog(page).get_by_label("Name", exact=True).fill("shown-")
    dialog(page).get_by_label("The name is").select_option("PREFIXED")
    dialog(page).get_by_role("button", name="Create").click()
    noted(page, "The ACL is created")
    line = row(page, f"User:{USER}")
    expect(cell(line, "Name")).to_have_text("shown- and all that begins so")
    page.reload()
    ready(page)
    expect(page.locator("#who")).to_contain_text(ADMIN)
    for name in ("shown-1", "hidden-1"):
        page.goto("/topics")
        ready(page)
        page.get_by_role("button", name="Create topic").click()
        dialog(page).get_by_label("Name").fill(name)
        dialog(page).get_by_role("button", name="Create").click()
        noted(page, "is created")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()

    page.goto("/topics")
    log_in(page, USER, secured.security.password.reveal())
    expect(page.get_by_role("link", name="shown-1", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="hidden-1", exact=True)).to_have_count(0)
    page.goto("/users")
    expect(page.locator("main .problem")).to_be_visible()
    page.goto("/topics/shown-1")
    ready(page)
    page.get_by_role("button", name="Delete topic", exact=True).click()
    dialog(page).get_by_label("Type").fill("shown-1")
    dialog(page).get_by_role("button", name="Delete the topic").click()
    expect(dialog(page).get_by_role("alert")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Log out").click()

    page.goto("/acls")
    log_in(page, ADMIN, secured.admin_security.password.reveal())
    row(page, f"User:{USER}").get_by_role("button", name="Delete").click()
    dialog(page).get_by_role("button", name="Delete the ACL").click()
    noted(page, "The ACL is deleted")
    expect(page.get_by_text("No such ACLs.")).to_be_visible()


def test_a_session_that_has_ended_asks_for_the_login_again(
    page: Page, secured: SecuredBroker
) -> None:
    page.goto("/topics")
    log_in(page, ADMIN, secured.admin_security.password.reveal())
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
    ready(page)
    page.context.clear_cookies()
    page.get_by_label("Search").fill("x")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    log_in(page, ADMIN, secured.admin_security.password.reveal())
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
