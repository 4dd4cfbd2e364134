"""The page of `raytide ui --auth kubernetes` in Chromium: sign in with a token, namespaces, rights that end."""

import pytest
from playwright.async_api import expect

from raytide.explain.model import Verdict
from raytide.explain.overview import Lane
from support.ui_site import NOON, after
from ui.test_page import CONTRAST, rows

pytestmark = [pytest.mark.browser, pytest.mark.rule("SC:S21"), pytest.mark.rule("FD:SEC-F7"), pytest.mark.rule("D30")]


def lane(namespace: str, name: str, ready: int = 1) -> Lane:
    return Lane("RayCluster", namespace, name, 4, ready, Verdict.WAITS, "MaxReached", "", uid=name)


@pytest.fixture(autouse=True)
def lanes(callers):
    callers.feeds.update([lane("default", "demo"), lane("team-b", "secret")], [], NOON)


async def opened(signing_in):
    """The page with its form: the answer without a token is one that the console reports."""
    signing_in.expected = ("401", "403", "400")
    await signing_in.page.goto(f"http://127.0.0.1:{signing_in.site.port}/")
    await expect(signing_in.page.get_by_role("heading", name="Sign in")).to_be_visible()
    return signing_in.page


async def sign_in(page, token: str, namespace: str = ""):
    await page.get_by_role("textbox", name="Token").fill(token)
    await page.get_by_role("textbox", name="Namespace").fill(namespace)
    await page.keyboard.press("Enter")


async def test_a_developer_signs_in_and_sees_the_namespace_and_numbers_of_the_rest(signing_in, callers):
    page = await opened(signing_in)
    await expect(page.get_by_role("textbox", name="Token")).to_be_focused()
    await expect(page.get_by_role("alert").filter(has_text="token")).to_have_count(0)
    await sign_in(page, "dev", "default")
    await expect(rows(page)).to_have_count(1)
    await expect(rows(page).first).to_contain_text("default/demo")
    await expect(page.locator("#scope")).to_have_text("namespace default")
    await expect(page.locator("#elsewhere")).to_have_text("elsewhere: 1 workload, 1 of 4 pods ready")
    await expect(page.locator("#sign-in")).to_be_hidden()
    assert "secret" not in await page.content()
    callers.feeds.update([lane("default", "demo", 3), lane("team-b", "secret"), lane("team-b", "s2", 4)], [], after(1))
    await expect(rows(page).first).to_contain_text("3 of 4 workers")
    await expect(page.locator("#elsewhere")).to_have_text("elsewhere: 2 workloads, 5 of 8 pods ready")
    await page.reload()
    await expect(rows(page).first).to_contain_text("3 of 4 workers")  # the token is kept in this tab
    await rows(page).first.click()
    await expect(page.locator("#panel")).to_contain_text("NotReconciled")


async def test_an_administrator_sees_all_namespaces_and_signs_out(signing_in):
    page = await opened(signing_in)
    await sign_in(page, "admin")
    await expect(rows(page)).to_have_count(2)
    await expect(page.locator("#elsewhere")).to_be_hidden()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await expect(page.locator("main")).to_be_hidden()
    assert await page.evaluate("sessionStorage.length") == 0
    await page.reload()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.parametrize(
    ("token", "namespace", "sentence", "focused"),
    [
        ("expired", "default", "it is wrong or has expired; sign in with another one", "Token"),
        (
            "dev",
            "",
            "the token may not list RayClusters or TrainingJobs in all namespaces: choose a namespace",
            "Namespace",
        ),
        ("dev", "team-b", "in namespace team-b: ask for the right, or choose another namespace", "Namespace"),
        ("none", "default", "in namespace default: ask for the right", "Namespace"),
        ("dev", "<img src=x>", "the namespace is not a valid name", "Namespace"),
    ],
)
async def test_what_is_wrong_is_one_sentence_and_the_field_has_the_focus(
    signing_in, token, namespace, sentence, focused
):
    page = await opened(signing_in)
    await sign_in(page, token, namespace)
    await expect(page.locator("#sign-in-problem")).to_contain_text(sentence)
    await expect(page.get_by_role("textbox", name=focused)).to_be_focused()
    await expect(page.locator("main")).to_be_hidden()
    await sign_in(page, "dev", "default")
    await expect(rows(page)).to_have_count(1)


async def test_a_token_that_expires_brings_the_form_and_hides_what_it_showed(signing_in, callers):
    page = await opened(signing_in)
    await sign_in(page, "dev", "default")
    await expect(rows(page)).to_have_count(1)
    del callers.server.rights["dev"]
    callers.access._answers.clear()  # half a minute later
    callers.feeds.update([lane("default", "demo", 2)], [], after(5))
    await expect(page.locator("#sign-in-problem")).to_contain_text("has expired")
    await expect(rows(page)).to_have_count(0)
    await expect(page.get_by_role("textbox", name="Token")).to_be_focused()
    await expect(page.get_by_role("textbox", name="Namespace")).to_have_value("default")


@pytest.mark.parametrize("signing_in", ["light", "dark"], indirect=True)
async def test_the_form_can_be_read_in_light_and_dark(signing_in):
    page = await opened(signing_in)
    await sign_in(page, "expired", "default")
    await expect(page.locator("#sign-in-problem")).to_contain_text("has expired")
    assert [each for each in await page.evaluate(CONTRAST) if each[1] < 4.5] == []
