"""The page of `raytide ui` in Chromium: lanes, groups, capacity, marks, explanations, ghosts, keyboard, states, contrast, bad input."""

import re
from dataclasses import replace

import pytest
from playwright.async_api import expect

import machine_speed
from raytide.cli.lane_watch import Problem
from raytide.explain.cluster_capacity import CapacityView, ResourceUse
from raytide.explain.model import Phase, Size, Verdict
from raytide.explain.overview import GroupSize, Resized
from support.stored_workloads import owner_reference, pod_object, put, short_of_cpu, warning
from support.ui_site import NEW, NEW_CLUSTER, NOON, START, TOKEN, after, lane

pytestmark = [pytest.mark.browser, pytest.mark.rule("SC:S21")]

MARKUP = "<img src=x onerror=alert(1)>"
COMPLETE = {"ready": 2, "verdict": Verdict.NOTHING_MISSING}

CONTRAST = """
() => {
  const channels = (text) => { const found = text.match(/[\\d.]+/g).map(Number); return found.length > 3 ? found : [...found, 1]; };
  const luminance = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = channels(getComputedStyle(each).backgroundColor);
      if (color[3] === 1) return color;
    }
    return [255, 255, 255, 1];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const box = element.getBoundingClientRect();
    if (!walker.currentNode.data.trim() || !box.width || element.closest(".hidden, noscript, [hidden]")) continue;
    const style = getComputedStyle(element);
    const isSvg = element instanceof SVGElement;
    const [text, ground] = [channels(isSvg ? style.fill : style.color), isSvg && style.stroke !== "none" ? channels(style.stroke) : behind(element)];
    const [light, dark] = [luminance(text), luminance(ground)].sort((a, b) => b - a);
    found.push([walker.currentNode.data.trim().slice(0, 40), Math.round(((light + 0.05) / (dark + 0.05)) * 100) / 100]);
  }
  return found;
}
"""


def rows(page):
    return page.get_by_role("treeitem").filter(has_text=re.compile("of|wanted"))


async def test_the_page_draws_a_lane_for_each_workload(watched, site):
    site.feed.update([lane("b", **COMPLETE), lane("a", wanted=8, ready=3, reason="MaxReached", message="the group is at its maximum")], [], NOON)  # fmt: skip
    page = await watched.open()
    await expect(rows(page)).to_have_count(2)
    first = rows(page).first
    await expect(first).to_contain_text("default/aRayCluster3 of 8 workers · MaxReached")
    await expect(first).to_have_attribute("aria-label", "default/a, RayCluster: 3 of 8 workers. MaxReached the group is at its maximum")  # fmt: skip
    await expect(page.locator("#connection")).to_have_text("live")
    await expect(page.locator("#verdicts")).to_contain_text("Waiting 1")
    assert page.url.endswith("/"), "the token is not in the address"
    site.feed.update([lane("b", **COMPLETE), lane("a", wanted=8, ready=5, reason="MaxReached")], [], after(30))
    await expect(first).to_contain_text("5 of 8 workers")
    site.feed.update([lane("b", **COMPLETE)], [], after(31))
    await expect(rows(page)).to_have_count(1)


async def test_a_lane_has_filled_outlined_and_hatched_parts_with_the_reason(watched, site):
    site.feed.update([lane(wanted=4, ready=0, reason="WaitingForPods")], [], NOON)
    site.feed.update([lane(wanted=4, ready=2, reason="WaitingForPods")], [], after(30))
    site.feed.update([lane(wanted=4, ready=4)], [], after(50))
    site.feed.update([lane(wanted=4, ready=4)], [], after(60))
    page = await watched.open()
    row = rows(page).first
    await expect(row.locator("rect.missing")).to_have_count(2)
    await expect(row.locator("path.ready")).to_have_count(1)
    await expect(row.locator("path.wanted")).to_have_count(1)
    await expect(row.locator("svg text:not(.scale)")).to_have_text("WaitingForPods")


async def test_filter_sort_and_state(watched, site):
    site.feed.update([lane("b", reason="MaxReached"), lane("a", **COMPLETE), lane("c", verdict=Verdict.CAN_NEVER_RUN)], [], NOON)  # fmt: skip
    page = await watched.open()

    async def names(*expected):
        await expect(page.locator(".row .name")).to_have_count(len(expected))
        sorted_rows = await page.locator(".row").evaluate_all(
            "rows => rows.sort((a, b) => parseInt(a.style.top) - parseInt(b.style.top)).map(row => row.querySelector('.name').firstChild.data)"
        )
        assert sorted_rows == [f"default/{name}" for name in expected]

    await names("c", "b", "a")
    await page.get_by_label("Sort").select_option("name")
    await names("a", "b", "c")
    await page.get_by_label("Filter").fill("maxr RAY")
    await names("b")
    await page.get_by_label("Filter").fill("")
    await page.get_by_text("Nothing missing").click()
    await names("a")
    await page.get_by_label("Filter").fill("zzz")
    await expect(page.locator("#empty")).to_contain_text("No workload matches")


async def test_the_filter_finds_a_priority_class(watched, site):
    site.feed.update([lane("a", priority="high"), lane("b")], [], NOON)
    page = await watched.open()
    await page.get_by_label("Filter").fill("high")
    await expect(page.locator(".row .name")).to_have_text(["default/aRayCluster"])


async def test_the_address_is_a_link_to_a_moment(watched, site):
    """Without the token; who opens it sees the same filter, order, explanation and time."""
    site.feed.update([lane("demo", reason="WaitingForPods"), lane("demo-b", **COMPLETE)], [], NOON)
    site.feed.update([lane("demo", ready=0, reason="ImagePullFailed"), lane("demo-b", **COMPLETE)], [], after(60))
    site.feed.update([lane("demo", ready=0, reason="ImagePullFailed"), lane("demo-b", **COMPLETE)], [], after(120))
    page = await watched.open()
    await page.get_by_label("Sort").select_option("name")
    await page.get_by_label("Filter").fill("demo")
    chart = rows(page).filter(has_text="default/demoRay").locator("> svg")
    box = await chart.bounding_box()
    await page.mouse.click(box["x"] + box["width"] * 0.4, box["y"] + 10)
    await expect(page.locator("#panel h2")).to_contain_text("default/demo")
    await expect(page.locator("#moment")).to_contain_text("· default/demo · 1 of 2 workers · WaitingForPods")
    link = page.url
    assert TOKEN not in link
    assert "open=RayCluster/default/demo&" in link
    await page.goto("about:blank")
    await page.goto(link)
    await expect(page.get_by_label("Filter")).to_have_value("demo")
    await expect(page.get_by_label("Sort")).to_have_value("name")
    await expect(page.locator("#panel h2")).to_contain_text("default/demo")
    await expect(page.locator("#moment")).to_contain_text("· default/demo · 1 of 2 workers · WaitingForPods")
    await page.keyboard.press("Escape")
    await expect(page.locator("#moment")).to_be_hidden()
    assert page.url.endswith("#filter=demo&sort=name")


@pytest.mark.parametrize("part", ["open=x&at=never&sort=%3Cb%3E&window=-1", "open=Pod/a/b&at=1e99", "open=RayCluster/%3Cimg%3E/y&filter=%00"])  # fmt: skip
async def test_a_broken_link_is_read_as_far_as_it_goes(watched, site, part):
    watched.expected = ("400", "404")
    site.feed.update([lane()], [], NOON)
    page = await watched.open()
    await page.evaluate("part => { location.hash = part; }", part)
    await expect(page.locator("#connection")).to_have_text("live")
    await expect(page.get_by_label("Sort")).to_have_value("attention")
    await expect(page.locator("#moment")).to_be_hidden()


GANG = lane("gang", wanted=4, ready=0, kind="TrainingJob", reason="InsufficientGPU", size=Size(0, 0, 4, 8))
DONE = lane(
    "done",
    wanted=0,
    ready=0,
    kind="TrainingJob",
    verdict=Verdict.NOTHING_MISSING,
    size=Size(needed=4, phase=Phase.SUCCEEDED, since="2026-01-01T11:30:00Z"),
)
HELD = lane("held", wanted=0, ready=0, reason="Suspended", size=Size(needed=2, phase=Phase.SUSPENDED))


@pytest.mark.rule("FD:UX3-2", "FD:UX3-6")
async def test_what_is_stuck_suspended_or_over_does_not_look_empty(watched, site):
    site.feed.update([GANG, DONE, HELD], [], NOON)
    site.feed.update([GANG, DONE, HELD], [], after(30))
    page = await watched.open()
    items = page.get_by_role("treeitem")
    await expect(items.filter(has_text="gang")).to_contain_text("0 of 4 trainers, up to 8 · InsufficientGPU")
    await expect(items.filter(has_text="held")).to_contain_text("Suspended (2 when resumed)")
    await expect(items.filter(has_text="done")).to_contain_text(re.compile(r"Succeeded \d\d:\d\d · 4 trainers"))
    await expect(items.filter(has_text="gang").locator("rect.missing")).to_have_count(1)
    await expect(items.filter(has_text="gang").locator("line.maximum")).to_have_count(1)
    await expect(items.filter(has_text="gang").locator("text.scale")).to_have_text("8")
    await expect(page.locator("#verdicts")).to_contain_text("Finished 1")
    await page.get_by_text("Finished").click()
    await expect(items).to_have_count(1)
    await page.get_by_text("Nothing missing").click()
    await expect(items).to_have_count(0)


@pytest.fixture
def explained(site):
    site.feed.update([lane(reason="NotReconciled"), lane("other", **COMPLETE)], [], NOON)


async def test_a_click_shows_the_explanation(watched, site, explained):
    page = await watched.open()
    await rows(page).first.click()
    panel = page.get_by_role("complementary")
    await expect(panel.get_by_role("heading", level=2)).to_have_text("Why does default/demo not run?")
    await expect(panel.locator(".steps b")).to_have_text(["demand", "decision", "wanted", "pods", "nodes"])
    await expect(panel.locator(".steps .first .mark")).to_have_text("first blocker: NotReconciled")
    await expect(panel.locator(".blocker dd").first).to_have_text("the operator")
    await expect(panel.locator(".command code").first).to_have_text("raytide why raycluster/demo -n default")
    await expect(rows(page).first).to_have_attribute("aria-selected", "true")
    await panel.get_by_role("button", name="Close").click()
    await expect(panel).to_be_hidden()


@pytest.mark.rule("FD:UX3-1")
async def test_a_holder_with_a_row_is_a_button_that_explains_it(watched, site):
    short_of_cpu(site.api)
    site.feed.update([lane(reason="Unschedulable"), lane("rl", **COMPLETE)], [], NOON)
    page = await watched.open()
    await rows(page).first.click()
    panel = page.get_by_role("complementary")
    await expect(panel.locator(".short")).to_have_text(
        "needs 4 cpu; 2 of 8 are free, at most 2 on one node, where a pod needs 4"
    )
    await panel.get_by_role("button", name="default/rl").click()
    await expect(panel.get_by_role("heading", level=2)).to_contain_text("default/rl")


@pytest.mark.rule("FD:UX3-1")
async def test_a_fix_is_shown_with_its_command_and_can_be_tried_in_the_rows(watched, site):
    short_of_cpu(site.api)
    site.feed.update([lane(reason="Unschedulable"), lane("rl", **COMPLETE)], [], NOON)
    page = await watched.open()
    await rows(page).first.click()
    fixes = page.get_by_role("complementary").locator(".fix")
    await expect(fixes.locator("p")).to_have_text(
        [
            "scale RayCluster default/rl from 2 to 1: then default/demo has 1 worker, default/rl 1 instead of 2",
            "add 1 node like n0: then default/demo has 1 worker",
        ]
    )
    await expect(fixes.nth(1).get_by_role("button")).to_have_count(0)
    fix = fixes.first
    await expect(fix.locator("code")).to_have_text("raytide scale raycluster/rl 1 -n default")
    await fix.get_by_role("button", name="Try it").click()
    await expect(page.locator("#next")).to_have_text("With the fix")
    await expect(rows(page).nth(0).locator(".next b")).to_have_text("0 → 1 +1")
    await expect(rows(page).nth(1).locator(".next b")).to_have_text("2 → 1 −1")
    await fix.get_by_role("button", name="Clear").click()
    await expect(rows(page).nth(1).locator(".next b")).to_have_count(0)
    await fix.get_by_role("button", name="Try it").click()
    await page.keyboard.press("Escape")
    await expect(rows(page).nth(1).locator(".next b")).to_have_count(0)


@pytest.mark.parametrize("message", ["no such image", MARKUP])
async def test_the_explanation_has_the_pods_that_are_not_ready_and_the_recent_warnings(
    watched, site, explained, message
):
    waiting = {"name": "ray", "state": {"waiting": {"reason": "ErrImagePull", "message": message}}}
    pod = pod_object("demo-cpu-worker-x", node="n0", phase="Pending", containerStatuses=[waiting])
    pod["metadata"]["ownerReferences"] = [owner_reference(site.api, "demo")]
    put(site.api, pod)
    put(site.api, warning("of-the-cluster", "RayCluster", "demo", f"quota: {message}"))
    put(site.api, warning("of-the-pod", "Pod", "demo-cpu-worker-x", f"pull: {message}"))
    page = await watched.open()
    await rows(page).first.click()
    panel = page.get_by_role("complementary")
    pods = panel.get_by_role("table").filter(has_text="phase").get_by_role("row")
    await expect(pods.nth(1).get_by_role("cell")).to_have_text(
        ["demo-cpu-worker-x", "Pending", "n0", re.compile(re.escape(f"ErrImagePull: {message}"))]
    )
    await expect(panel.get_by_role("listitem").filter(has_text="FailedToCreateWorkerPod")).to_have_text(
        [
            re.compile(re.escape(f"FailedToCreateWorkerPod: quota: {message}")),
            re.compile(re.escape(f"pod demo-cpu-worker-x: FailedToCreateWorkerPod: pull: {message}")),
        ]
    )
    assert await page.locator("img").count() == 0


async def test_an_explanation_that_cannot_be_read_is_a_sentence(watched, site, explained):
    watched.expected = ("404",)
    page = await watched.open()
    await rows(page).nth(1).click()
    await expect(page.locator("#panel .failed")).to_contain_text(
        "there is no RayCluster other in namespace default: there are RayCluster demo"
    )


async def test_the_keyboard_reaches_everything(watched, site, explained):
    page = await watched.open()
    await expect(rows(page)).to_have_count(2)
    await page.keyboard.press("/")
    await expect(page.get_by_label("Filter")).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await expect(rows(page).first).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await expect(rows(page).nth(1)).to_be_focused()
    await page.keyboard.press("Home")
    await page.keyboard.press("Enter")
    await expect(page.locator("#panel-title")).to_have_text("Why does default/demo not run?")
    await expect(page.locator("#panel")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.locator("#panel")).to_be_hidden()
    await expect(rows(page).first).to_be_focused()


@pytest.mark.rule("PF:PAGE")
async def test_a_thousand_workloads_are_drawn_at_once(watched, site):
    for at in range(0, 600, 60):
        site.feed.update([lane(f"n{number:04d}", 9, (at // 60 + number) % 9) for number in range(1000)], [], after(at))
    page = await watched.open()
    await expect(page.locator("#verdicts")).to_contain_text("All 1000")
    assert await page.locator(".row").count() < 40
    took_ms = await page.evaluate("performance.getEntriesByName('lanes').at(-1).duration")
    assert took_ms < 200 * machine_speed.slowness()
    await page.locator(".row").first.focus()
    await page.keyboard.press("End")
    await expect(page.get_by_role("treeitem").filter(has_text="default/n0999")).to_be_focused()
    assert await page.locator(".row").count() < 40
    await expect(page.get_by_role("treeitem").filter(has_text="default/n0999")).to_have_attribute(
        "aria-posinset", "1000"
    )


# --- capacity ----------------------------------------------------------------------------------------------------------------

GPU = "nvidia.com/gpu"
CAPACITY = CapacityView(
    (
        ResourceUse("cpu", 24_000, (9500, 8000, 500), free=4000, unusable=2000, unscheduled=6000),
        ResourceUse(GPU, 4, (0, 4, 0), free=0, unusable=0, unscheduled=0),
        ResourceUse("memory", 96 * 2**30, (20 * 2**30, 0, 2**30), free=75 * 2**30, unusable=0, unscheduled=0),
    ),
    nodes=3,
)


async def test_a_bar_for_each_resource_has_its_parts_in_words(watched, site):
    site.feed.update([lane()], [], NOON, CAPACITY)
    page = await watched.open()
    bars = page.get_by_role("region", name="Capacity of the cluster").get_by_role("img")
    await expect(bars).to_have_count(3)
    labels = await bars.evaluate_all("bars => bars.map(bar => bar.getAttribute('aria-label'))")
    assert labels == [
        "CPU: 24 on 3 nodes: 9.5 RayClusters, 8 TrainingJobs, 0.5 other pods, 2 on cordoned or unready nodes, 4 free, 6 waiting for a node",
        "GPU: 4 on 3 nodes: 4 TrainingJobs, 0 free",
        "Memory: 96 GiB on 3 nodes: 20 GiB RayClusters, 1 GiB other pods, 75 GiB free",
    ]
    widths = await bars.first.locator("rect").evaluate_all(
        "rects => rects.map(rect => rect.getBoundingClientRect().width)"
    )
    whole = (await bars.first.bounding_box())["width"]
    assert [round(width / whole * 24, 1) for width in widths] == [9.5, 8, 0.5, 2]
    await expect(page.locator("#resources li").first).to_contain_text("9.5 RayClusters8 TrainingJobs0.5 other pods")
    site.feed.update([lane()], [], after(1), CapacityView(CAPACITY.resources[1:2], nodes=1))
    await expect(bars).to_have_count(1)
    await expect(bars).to_have_attribute("aria-label", "GPU: 4 on 1 node: 4 TrainingJobs, 0 free")


async def test_without_the_right_the_capacity_is_one_line(watched, site):
    error = f'cannot list nodes: User "{MARKUP}" cannot list resource "nodes" at the cluster scope'
    site.feed.update([lane()], [], NOON, CapacityView(problem=error))
    page = await watched.open()
    note = page.locator("#capacity-note")
    await expect(note).to_have_text(f"Capacity is not shown, because that needs the right to list and watch nodes and pods in all namespaces: {error}")  # fmt: skip
    await expect(page.locator("#notices")).to_be_empty()
    await expect(rows(page)).to_have_count(1)


async def test_resources_with_equal_names_keep_their_domains(watched, site):
    resources = tuple(ResourceUse(name, 1, (0, 0, 0), 1, 0, 0) for name in (GPU, "amd.com/gpu", f"x/{MARKUP}"))
    site.feed.update([lane()], [], NOON, CapacityView(resources, nodes=1))
    page = await watched.open()
    await expect(page.locator("#resources .resource")).to_have_text([GPU, "amd.com/gpu", MARKUP.rpartition("/")[2]])
    assert await page.locator("img:not(svg)").count() == 0


# --- worker groups -----------------------------------------------------------------------------------------------------------

GROUPS = (GroupSize("cpu", 4, 2, "WaitingForPods"), GroupSize("gpu", 1, 1), GroupSize(MARKUP, 2, None))


def names(page):
    return page.locator(".row").evaluate_all(
        "rows => rows.sort((a, b) => parseInt(a.style.top) - parseInt(b.style.top)).map(row => row.querySelector('.name').firstChild.data)"
    )


@pytest.fixture
def with_groups(site):
    for at in (0, 60):
        groups = (GROUPS[0]._replace(ready=at // 30), *GROUPS[1:])
        site.feed.update([lane("demo", groups=groups), lane("other", **COMPLETE)], [], after(at))


async def test_a_lane_is_unfolded_into_its_groups(watched, site, with_groups):
    page = await watched.open()
    first = rows(page).filter(has_text="default/demo")
    button = page.get_by_role("button", name="worker groups of default/demo")
    await expect(page.get_by_role("button", name="worker groups of")).to_have_count(1)
    await expect(button).to_have_attribute("aria-expanded", "false")
    await button.click()
    await expect(first).to_have_attribute("aria-expanded", "true")
    assert await names(page) == ["default/demo", "cpu", "gpu", MARKUP, "default/other"]
    cpu = page.locator(".row.group").first
    await expect(cpu).to_contain_text("cpuworker group2 of 4 workers · WaitingForPods")
    await expect(cpu).to_have_attribute(
        "aria-label", "cpu of default/demo, worker group: 2 of 4 workers. WaitingForPods "
    )
    await expect(cpu.locator("rect.missing")).to_have_count(2)
    await expect(page.locator(".row.group").last).to_contain_text("wants 2 workers")
    places = await page.locator(".row").evaluate_all("rows => rows.map(row => ['level', 'posinset', 'setsize'].map(name => row.getAttribute(`aria-${name}`)).join(' '))")  # fmt: skip
    assert sorted(places) == ["1 1 2", "1 2 2", "2 1 3", "2 2 3", "2 3 3"]
    await expect(page.locator("#panel")).to_be_hidden()
    site.feed.update([lane("demo", groups=(GROUPS[0]._replace(ready=4, reason=""), *GROUPS[1:])), lane("other", **COMPLETE)], [], after(90))  # fmt: skip
    await expect(cpu).to_contain_text("4 of 4 workers")
    await expect(cpu.locator("rect.missing")).to_have_count(2)
    await button.click()
    await expect(page.locator(".row.group")).to_have_count(0)


async def test_the_keyboard_unfolds_and_folds(watched, site, with_groups):
    page = await watched.open()
    demo = rows(page).filter(has_text="default/demo")
    await demo.focus()
    await page.keyboard.press("ArrowRight")
    await expect(demo).to_have_attribute("aria-expanded", "true")
    await expect(demo).to_be_focused()
    await page.keyboard.press("ArrowRight")
    await expect(page.locator(".row.group").first).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.locator("#panel-title")).to_have_text("Why does default/demo not run?")
    await page.keyboard.press("Escape")
    await expect(page.locator(".row.group").nth(1)).to_be_focused()
    await page.keyboard.press("ArrowLeft")
    await expect(demo).to_be_focused()
    await page.keyboard.press("ArrowLeft")
    await expect(page.locator(".row.group")).to_have_count(0)
    await expect(demo).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowRight")
    await expect(rows(page).filter(has_text="default/other")).to_be_focused()
    await expect(page.locator(".row")).to_have_count(2)


async def test_groups_that_are_gone_are_gone_from_the_page(watched, site, with_groups):
    page = await watched.open()
    await page.get_by_role("button", name="worker groups of default/demo").click()
    await expect(page.locator(".row.group")).to_have_count(3)
    site.feed.update([lane("demo", groups=GROUPS[:2]), lane("other", **COMPLETE)], [], after(70))
    await expect(page.locator(".row.group")).to_have_count(2)
    await page.locator("#window").select_option("300")
    await expect(page.locator(".row.group")).to_have_count(2)
    site.feed.update([lane("demo"), lane("other", **COMPLETE)], [], after(80))
    await expect(page.locator(".row.group")).to_have_count(0)
    await expect(page.get_by_role("button", name="worker groups of")).to_have_count(0)


# --- marks -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_marks(site):
    giver = lane("demo", wanted=4, ready=4, resizes=(Resized(START + 60, 8, 4, "", ("uid-gpt", "uid-hidden")),))
    lanes = [giver, lane("gpt", kind="TrainingJob", **COMPLETE)]
    for at in (0, 120):
        site.feed.update(lanes, [], after(at))


GAVE = "gave 4 of 8 trainers to TrainingJob default/gpt and another workload"
RECEIVED = "received capacity of RayCluster default/demo, which gave 4 of 8 trainers"


async def test_giver_and_receiver_have_a_mark_that_the_pointer_and_the_explanation_put_in_words(watched, with_marks):
    page = await watched.open()
    giver, receiver = rows(page).filter(has_text="demo"), rows(page).filter(has_text="gpt")
    await expect(giver.locator("path.mark.gave")).to_have_count(1)
    await expect(receiver.locator("path.mark.received")).to_have_count(1)
    chart = await giver.locator("> svg").bounding_box()
    mark = await giver.locator("path.mark").bounding_box()
    middle = mark["x"] + mark["width"] / 2
    assert abs(middle - chart["x"] - chart["width"] / 2) < 10, "in the middle of 120 s"
    await page.mouse.move(middle, mark["y"] + 4)
    await expect(page.locator("#crosshair")).to_contain_text(GAVE)
    await page.mouse.move(middle + 40, mark["y"] + 4)
    await expect(page.locator("#crosshair")).not_to_contain_text("gave")
    for row, text in ((giver, GAVE), (receiver, RECEIVED)):
        assert text in await row.get_attribute("aria-label")
    await giver.click()
    await expect(page.locator("#panel li").filter(has_text=GAVE)).to_have_count(1)


async def test_marks_that_would_cover_each_other_are_one(watched, site):
    resizes = tuple(Resized(START + at, 8 - at, 7 - at, "", ("uid-x",)) for at in (1, 2, 3))
    for at in (0, 3600):
        site.feed.update([lane("demo", resizes=resizes)], [], after(at))
    page = await watched.open()
    mark = rows(page).first.locator("path.mark")
    await expect(mark).to_have_count(1)
    await mark.hover(position={"x": 5, "y": 4})
    await expect(page.locator("#crosshair")).to_contain_text("gave 1 of 5 trainers to another workload, and 2 more")
    await rows(page).first.click()
    await expect(page.locator("#panel li").filter(has_text="gave 1 of")).to_have_count(3)


async def test_marks_outside_of_the_window_are_not_drawn_and_those_ahead_of_the_clock_are_now(watched, site):
    resizes = tuple(Resized(START + at, 8, 4, "", ("uid-x",)) for at in (-7200, 60, 9000))
    for at in (0, 120):
        site.feed.update([lane("demo", resizes=resizes)], [], after(at))
    page = await watched.open()
    await expect(rows(page).first.locator("path.mark")).to_have_count(2)


# --- bad input ---------------------------------------------------------------------------------------------------------------


async def test_five_thousand_workloads_are_drawn_and_reached(watched, site):
    groups = (GroupSize("cpu", 1, 1), GroupSize("gpu", 1, 1))
    site.feed.update([lane(f"n{number:04d}", groups=groups) for number in range(5000)], [], NOON, CAPACITY)
    page = await watched.open()
    await expect(page.locator("#verdicts")).to_contain_text("All 5000")
    assert await page.locator(".row").count() < 40
    await page.locator(".row").first.focus()
    await page.keyboard.press("End")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowRight")
    await expect(page.locator(".row.group").filter(has_text="cpu")).to_be_focused()
    await expect(rows(page).filter(has_text="default/n4999")).to_have_attribute("aria-posinset", "5000")
    assert await page.locator(".row").count() < 40


@pytest.mark.parametrize("jump", [-3600, 5 * 3600, 24 * 3600])
async def test_a_clock_that_jumps_leaves_lanes_inside_of_the_chart(watched, site, jump):
    mark = (Resized(START + 30, 8, 4, "", ("uid-x",)),)
    for at, ready in ((0, 0), (60, 1), (90, 1)):
        site.feed.update([lane(ready=ready, reason="MaxReached", resizes=mark)], [], after(at))
    page = await watched.open()
    await expect(rows(page)).to_have_count(1)
    for at, ready in ((0, 2), (60, 1)):
        site.feed.update([lane(ready=ready, reason="MaxReached", resizes=mark)], [], after(90 + jump + at))
    await expect(rows(page).first).to_contain_text("1 of 2 workers")
    for _ in ("as it came", "read again"):
        chart = await rows(page).first.locator("> svg").bounding_box()
        parts = (
            await rows(page)
            .first.locator("> svg > :is(path, rect)")
            .evaluate_all("parts => parts.map(part => part.getBoundingClientRect()).map(box => [box.left, box.right])")
        )
        assert parts
        assert all(chart["x"] - 2 <= left <= right <= chart["x"] + chart["width"] + 2 for left, right in parts)
        await page.locator("#window").select_option("3600")
        await expect(rows(page).first).to_contain_text("1 of 2 workers")


# --- what if -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_lane(site):
    site.feed.update([lane(**COMPLETE)], [], NOON)


async def test_a_yaml_shows_what_the_next_pass_would_do(watched, site, with_lane):
    page = await watched.open()
    await page.get_by_role("button", name="What if").click()
    await page.get_by_label("YAML of TrainingJobs and RayClusters").fill(NEW)
    await page.get_by_role("button", name="Show the effect").click()
    await expect(page.locator("#effect li").first).to_have_text("default/new starts with 4 of 2 to 4")
    ghost = page.get_by_role("treeitem").filter(has_text="default/new")
    await expect(ghost.locator(".next b")).to_have_text("0 → 4 +4")
    await page.get_by_role("button", name="Clear").click()
    await expect(ghost).to_have_count(0)
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="What if")).to_be_focused()


DROP = """(text) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([text], "job.yaml"));
  for (const name of ["dragenter", "dragover", "drop"]) document.body.dispatchEvent(new DragEvent(name, { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""


async def test_a_file_can_be_dropped_anywhere(watched, site, with_lane):
    page = await watched.open()
    await expect(rows(page).first).to_be_visible()
    await page.evaluate(DROP, NEW)
    await expect(page.locator("#effect li").first).to_have_text("default/new starts with 4 of 2 to 4")
    await expect(page.locator("#drop")).to_be_hidden()


async def test_a_raycluster_can_be_dropped(watched, site, with_lane):
    """Its ghost has the workers that get a node; the sentences say what the others lack."""
    page = await watched.open()
    await expect(rows(page).first).to_be_visible()
    await page.evaluate(DROP, NEW_CLUSTER)
    await expect(page.locator("#effect li").first).to_have_text(
        "RayCluster default/new gets its head and 1 of 3 workers"
    )
    await expect(page.locator("#effect li").nth(1)).to_contain_text(
        "2 pods of group cpu stay Pending: node n0 comes closest"
    )
    ghost = page.get_by_role("treeitem").filter(has_text="default/new")
    await expect(ghost.locator(".next b")).to_have_text("0 → 1 +1")
    await expect(ghost).to_contain_text("not submitted · 3 workers")
    await expect(ghost).to_contain_text("would start with its head and 1 of 3 workers; not more: Unschedulable")
    await expect(ghost).to_have_attribute(
        "aria-label", re.compile("would get its head and 1 of 3 workers. Unschedulable node n0")
    )


RIGHT_OF_LANE = """(row) => {
  const right = (element) => element.getBoundingClientRect().right;
  return Math.max(...[...row.querySelectorAll(":scope > svg text")].map((text) => right(text) - right(text.ownerSVGElement)));
}"""


@pytest.mark.parametrize("width", [1280, 1600])
async def test_the_words_on_a_ghost_are_not_cut_off(watched, site, with_lane, width):
    page = await watched.open()
    await page.set_viewport_size({"width": width, "height": 800})
    await expect(rows(page).first).to_be_visible()
    await page.evaluate(DROP, NEW_CLUSTER)
    ghost = page.get_by_role("treeitem").filter(has_text="default/new")
    await expect(ghost).to_contain_text("not more: Unschedulable")
    assert await ghost.evaluate(RIGHT_OF_LANE) <= 0


async def test_a_file_that_is_no_workload_is_a_sentence(watched, site, with_lane):
    watched.expected = ("400",)
    page = await watched.open()
    await expect(rows(page).first).to_be_visible()
    await page.evaluate(DROP, f"hello {MARKUP}")
    await expect(page.locator("#effect")).to_have_text("the YAML: document 1: this is text, not a Kubernetes object")
    await page.evaluate(DROP, "#" * 300_000)
    await expect(page.locator("#effect")).to_have_text("job.yaml is larger than 256 KiB")


# --- small windows, many workloads ----------------------------------------------------------------------------------------------


CUT = """() => [...document.querySelectorAll(".row .reason, .row .state b, #verdicts span")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== "inline"
    || each.getBoundingClientRect().right > innerWidth).map((each) => each.textContent)"""


@pytest.mark.rule("FD:UX3-7")
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (900, 700), (640, 450), (400, 800)])
async def test_everything_is_reachable_in_a_small_window_and_at_a_zoom_of_200_percent(watched, site, width, height):
    """At 640 x 450 rows had 35 pixels; at 400 tabs and reasons were cut off."""
    watched.expected = ("404",)  # the lanes are of no objects
    lanes = [lane(f"w{number}", wanted=8, ready=3, reason="Unschedulable", message="no") for number in range(30)]
    site.feed.update(lanes, [], NOON)
    page = await watched.open()
    await page.set_viewport_size({"width": width, "height": height})
    await expect(rows(page).first).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert await page.evaluate("document.getElementById('scroller').clientHeight") >= 280
    assert await page.evaluate(CUT) == []
    await page.locator("#chart").scroll_into_view_if_needed()
    await rows(page).first.click()
    await expect(page.get_by_role("complementary").get_by_role("button", name="Close")).to_be_in_viewport()
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="What if").click()
    await expect(page.get_by_role("textbox", name="YAML")).to_be_in_viewport()


@pytest.mark.rule("FD:UX3-7")
async def test_capacity_and_legend_are_folded_in_a_small_window(watched, site, with_lane):
    page = await watched.open()
    legend = page.locator("footer .key").first
    await expect(legend).to_be_visible()
    await expect(page.get_by_text("Legend", exact=True)).to_be_hidden()
    await page.set_viewport_size({"width": 640, "height": 450})
    await expect(legend).to_be_hidden()
    await page.get_by_text("Legend", exact=True).click()
    await expect(legend).to_be_visible()


@pytest.mark.rule("FD:UX3-9")
async def test_sorted_by_name_each_namespace_has_a_heading_that_folds_its_workloads(watched, site):
    lanes = [replace(lane(name, reason="Unschedulable"), namespace=namespace) for namespace, name in (("ml", "a"), ("ml", "b"), ("web", "c"))]  # fmt: skip
    site.feed.update([*lanes, lane(**COMPLETE)], [], NOON)
    page = await watched.open()
    await expect(rows(page)).to_have_count(4)
    headings = page.locator(".row.heading")
    await expect(headings).to_have_count(0)
    await page.locator("#sort").select_option("name")
    await expect(headings.locator(".name")).to_have_text(["default", "ml", "web"])
    await expect(headings.locator(".state")).to_have_text(["1 workload", "2 workloads · 2 waiting", "1 workload · 1 waiting"])  # fmt: skip
    fold = page.get_by_role("button", name="workloads of namespace ml")
    await expect(fold).to_have_attribute("aria-expanded", "true")
    await fold.click()
    await expect(rows(page)).to_have_count(2)
    await expect(fold).to_have_attribute("aria-expanded", "false")
    await rows(page).first.focus()
    await page.keyboard.press("ArrowDown")
    await expect(rows(page).filter(has_text="web/c")).to_be_focused()


@pytest.mark.rule("FD:UX3-9")
async def test_an_explanation_has_the_commands_for_logs_and_dashboard(watched, site, explained):
    page = await watched.open()
    await rows(page).first.click()
    commands = page.get_by_role("complementary").locator(".command code")
    await expect(commands.last).to_have_text(
        "kubectl port-forward -n default $(kubectl get pod -n default -l ray.io/cluster=demo,ray.io/node-type=head -o name) 8265"
    )
    await expect(commands.nth(-2)).to_have_text(
        "kubectl logs -n default -l ray.io/cluster=demo --all-containers --prefix --tail=100"
    )


# --- states ------------------------------------------------------------------------------------------------------------------


async def test_without_workloads_it_says_so(watched, site):
    site.feed.update([], [], NOON)
    page = await watched.open()
    await expect(page.locator("#empty h2")).to_have_text(
        "There are neither RayClusters nor TrainingJobs in namespace default"
    )


@pytest.mark.parametrize("token", ["", "expired"])
async def test_without_the_token_it_says_where_it_is(watched, site, token):
    watched.expected = ("401",)
    page = await watched.open(token)
    await expect(page.locator("#empty")).to_contain_text("Open the address that `raytide ui` printed")
    await expect(page.locator("#notices")).to_contain_text("the token is missing or wrong")


async def test_a_missing_right_is_named_and_the_other_kind_is_shown(watched, site):
    error = 'cannot list trainingjobs.paddlepaddle.org: User "dev" cannot list resource "trainingjobs"'
    site.feed.update([lane()], [Problem("TrainingJob", error, is_rejected=True)], NOON)
    page = await watched.open()
    await expect(page.locator("#notices")).to_have_text(f"TrainingJobs are not shown:{error}")
    await expect(rows(page)).to_have_count(1)
    await expect(page.locator("#connection")).to_have_text("live")


async def test_a_lost_api_server_has_a_time(watched, site):
    site.feed.update([lane()], [], NOON)
    page = await watched.open()
    await expect(rows(page)).to_have_count(1)
    site.feed.update([lane()], [Problem("RayCluster", "connection refused", is_rejected=False)], after(60))
    time = await page.evaluate(
        "at => new Date(at * 1000).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })",
        START + 60,
    )
    await expect(page.locator("#connection")).to_have_text(f"not connected to the API server since {time}, retrying")
    await expect(rows(page)).to_have_count(1)
    site.feed.update([lane()], [], after(90))
    await expect(page.locator("#connection")).to_have_text("live")


async def test_the_page_reconnects_to_its_server(watched, site):
    watched.expected = ("503",)
    site.feed.update([lane()], [], NOON)
    page = await watched.open()
    await expect(rows(page)).to_have_count(1)
    held = []
    subscribe, site.feed.subscribe = site.feed.subscribe, lambda _drop: held.append(1) or _reject()
    site.feed.close()
    await expect(page.locator("#connection")).to_contain_text("not connected to raytide ui since")
    await expect(rows(page)).to_have_count(1)
    site.feed.subscribe = subscribe
    await expect(page.locator("#connection")).to_have_text("live")


def _reject():
    from raytide.cli.ui.feed import TooManyReadersError

    raise TooManyReadersError


# --- hostile text, contrast ----------------------------------------------------------------------------------------------------


async def test_a_workload_that_shrinks_has_more_than_it_wants(watched, site):
    for at in (0, 60):
        site.feed.update([lane(wanted=1, ready=3)], [], after(at))
    page = await watched.open()
    await expect(rows(page)).to_contain_text("3 workers, 1 wanted")
    await rows(page).hover()
    await expect(page.locator("#crosshair")).to_contain_text("· 3 workers, 1 wanted")


async def test_markup_of_objects_is_shown_as_text(watched, site):
    site.feed.update([lane(reason=MARKUP, message=f'"{MARKUP}'), lane(f"{MARKUP}")], [Problem("TrainingJob", MARKUP, is_rejected=True)], NOON)  # fmt: skip
    site.feed.update([lane(reason=MARKUP), lane(f"{MARKUP}")], [Problem("TrainingJob", MARKUP, is_rejected=True)], after(60))  # fmt: skip
    page = await watched.open()
    await expect(page.get_by_role("treeitem").filter(has_text=MARKUP)).to_have_count(2)
    await expect(page.locator("#notices")).to_contain_text(MARKUP)
    assert await page.locator("img, script:not([src])").count() == 0


@pytest.mark.parametrize("watched", ["light", "dark"], indirect=True)
async def test_all_text_has_contrast(watched, site):
    lanes = [
        lane(wanted=9, reason="NotReconciled"),
        lane("never", verdict=Verdict.CAN_NEVER_RUN, reason="NoFittingGroup", wanted=4, ready=0),
        lane("job", kind="TrainingJob", **COMPLETE),
    ]
    site.feed.update(lanes, [Problem("TrainingJob", "forbidden", is_rejected=True)], NOON)
    site.feed.update(lanes, [Problem("TrainingJob", "forbidden", is_rejected=True)], after(60), CAPACITY)
    page = await watched.open()
    await page.get_by_role("treeitem").filter(has_text="default/demo").click()
    await expect(page.locator(".command").last).to_be_visible()
    found = await page.evaluate(CONTRAST)
    await page.evaluate(DROP, NEW)
    await expect(page.locator("#effect li").first).to_be_visible()
    found += await page.evaluate(CONTRAST)
    assert len(found) > 60
    assert [each for each in found if each[1] < 4.5] == []
