"""Two hundred hostile names, keys, bodies and headers: all are shown as the text that they are."""

from urllib.parse import quote

import httpx
import pytest
from browser_support import ready
from playwright.sync_api import BrowserContext, Page, expect
from tests.integration.web.rest_support import create, send

MARK = "window.__reached=1"
SEEDS = (
    "<script>{}</script>",
    "<img src=x onerror={}>",
    "<svg onload={}>",
    "<iframe srcdoc='<script>{}</script>'>",
    '"><script>{}</script>',
    "' onmouseover={} x='",
    "javascript:{}",
    "</textarea><script>{}</script>",
    "</title><script>{}</script>",
    "<!-- <script>{}</script>",
    "<style>*{{background:url(javascript:{})}}</style>",
    "<math><mi xlink:href='data:x,<script>{}</script>'>",
    "<details open ontoggle={}>",
    "<body onload={}>",
    "<a href='javascript:{}'>x</a>",
    "${{{}}}",
    "{{{{constructor.constructor('{}')()}}}}",
    "<template><script>{}</script></template>",
    "<object data='javascript:{}'></object>",
    "&lt;script&gt;{}&lt;/script&gt;",
    "<scr\u0000ipt>{}</script>",
    "\u202e<script>{}</script>",
    "<base href='//evil.example/'>{}",
    "<meta http-equiv=refresh content='0;url=javascript:{}'>",
    "<link rel=stylesheet href='//evil.example/x.css'>{}",
)
WRAPS = ("{}", "  {}\n", "x{}y", "[{}]", '"{}"', "{}{}", "%3C{}", "\t{}é漢🙂")
HOSTILE = [wrap.replace("{}", seed.format(MARK)) for seed in SEEDS for wrap in WRAPS]


def visible(text: str) -> str:
    """As the console shows it: what cannot be seen is written out."""
    return "".join(f"\\u{ord(each):04x}" if each in "\u0000\u202e" else each for each in text)


def is_reached(page: Page) -> bool:
    found: bool = page.evaluate("window.__reached !== undefined")
    return found


def test_there_are_two_hundred() -> None:
    assert len(set(HOSTILE)) == 200


def test_hostile_keys_bodies_and_headers_are_shown_as_text(
    page: Page, api: httpx.Client, topic: str
) -> None:
    create(api, topic, partitions=1)
    elsewhere: list[str] = []
    page.on(
        "request",
        lambda request: elsewhere.append(request.url) if "127.0.0.1" not in request.url else None,
    )
    for text in HOSTILE:
        headers = [{"name": text.replace("\u0000", ""), "value": text}]
        send(api, topic, text, key=text, headers=headers)
    page.goto(f"/topics/{topic}/messages?from=earliest&limit=500")
    ready(page)
    expect(page.locator(".messages > li")).to_have_count(len(HOSTILE))
    page.evaluate("document.querySelectorAll('.messages .line').forEach((each) => each.click())")
    shown = page.evaluate(
        """[...document.querySelectorAll('.messages > li')].map((each) => ({
            key: each.querySelector('[aria-label="Key as text"]').textContent,
            value: (each.querySelector('[aria-label="Value as text"]')
              ?? (each.querySelectorAll('.views')[1].querySelectorAll('button')[1].click(),
                  each.querySelector('[aria-label="Value as text"]'))).textContent,
            name: each.querySelector('.headers tbody td').textContent,
            header: each.querySelectorAll('.headers tbody td')[1].textContent,
        }))"""
    )
    for text, found in zip(HOSTILE, shown, strict=True):
        assert found["key"] == found["value"] == found["header"] == visible(text)
        assert found["name"] == visible(text.replace("\u0000", ""))
    made = page.evaluate(
        "document.querySelectorAll('main :is(script, iframe, object, embed, link, style, base, img)').length"
    )
    assert (made, is_reached(page), elsewhere) == (0, False, [])


@pytest.mark.thorough
def test_hostile_names_are_shown_as_text(page: Page, api: httpx.Client, topic: str) -> None:
    """Names of groups and users may have any characters but control characters."""
    create(api, topic, partitions=1)
    names = [text for text in HOSTILE if text.isprintable() or "\u202e" in text]
    names = [text for text in names if not any(ord(each) < 0x20 for each in text)][:40]
    for name in names:
        api.post(
            f"/groups/{_quoted(name)}/reset", json={"topic": topic, "to": "earliest"}
        ).raise_for_status()
    page.goto("/groups")
    ready(page)
    links = page.locator('td[data-title="Group"] a')
    expect(links).to_have_count(len(names))
    assert sorted(links.all_text_contents()) == sorted(map(visible, names))
    for name in names[:10]:
        page.goto(f"/groups/{_quoted(name)}")
        ready(page)
        assert page.locator("main h1").text_content() == visible(name)
    assert not is_reached(page)
    page.goto(f"/topics/{_quoted(HOSTILE[0])}")
    expect(page.locator("main .problem")).to_be_visible()
    assert page.locator("main h1").text_content() == HOSTILE[0]
    assert not is_reached(page)


def test_the_policy_refuses_markup_that_is_made_of_texts(context: BrowserContext) -> None:
    page = context.new_page()  # The browser reports what it refuses as an error.
    page.goto("/quotas")
    ready(page)
    refused = page.evaluate(
        "() => { try { document.body.innerHTML = '<p>x</p>'; return false; } catch { return true; } }"
    )
    assert refused


def _quoted(name: str) -> str:
    return quote(name, safe="")
