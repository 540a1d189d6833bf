"""Chat: streaming, rating, stopping, conversations, and what must not happen."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from playwright.async_api import Page, expect
from sqlmodel import Session, col, select

from app.tables import Message, RatingEvent
from tests.api.conftest import Live, serving, until
from tests.browser import flows
from tests.browser.conftest import PHONE, Open, Watch, address
from tests.fake_server import CANNED


async def stored(live: Live) -> list[Message]:
    query = select(Message).where(Message.role == "assistant").order_by(col(Message.created_at))
    return await live.services.db.read(lambda session: list(session.exec(query)))


async def events(live: Live) -> list[float | None]:
    def query(session: Session) -> list[float | None]:
        return list(session.exec(select(RatingEvent.value).order_by(col(RatingEvent.id))))

    return await live.services.db.read(query)


async def test_the_main_job(live: Live, page: Page) -> None:
    live.server.delay = 0.1
    live.server.text = "one two three **four** five six seven eight nine ten"
    result = await flows.whole(page, address(live))
    assert result["reply"] == "one two three four five six seven eight nine ten"
    assert result["texts"] >= 3  # type: ignore[operator]
    assert result["said"][0] == "counted for member 0 in generation 0; 3 more until the next merge"  # type: ignore[index]
    assert (await events(live))[:4] == [1.0, 0.0, None, 1.0]
    assert result["merges"] == (0, 1)
    assert live.server.merges[0].ratings == 4


async def test_a_reply_says_who_wrote_it_and_waits_to_be_rated(live: Live, page: Page) -> None:
    live.server.delay = 0.3
    reply = await flows.say(page, f"say: one two {'three ' * 100}", wait=False)
    await expect(reply).to_contain_text("one two")
    assert await reply.get_by_role("button").count() == 0
    await expect(page.locator("#stop")).to_be_visible()
    await expect(page.locator("#send")).to_be_hidden()
    live.server.delay = 0
    await expect(reply.locator(".foot")).to_contain_text("gen 0 · member 0")
    await expect(flows.thumb(reply, True)).to_have_attribute("aria-pressed", "false")


async def test_a_conversation_has_its_address_and_title(live: Live, page: Page) -> None:
    await flows.say(page, "Why is the sky\nblue?")
    await expect(page).to_have_url(re.compile(r"/c/[0-9a-f]{32}$"))
    await expect(page).to_have_title("Why is the sky blue? · popserve")
    current = page.locator(".talks [aria-current=page]")
    await expect(current).to_have_text("Why is the sky blue?")
    await page.reload()
    await expect(page.locator(".asked")).to_have_text("Why is the sky blue?")
    await expect(page.locator(".reply strong")).to_have_text("flock")
    await flows.say(page, "and at night?")
    await expect(page.locator(".talks li")).to_have_count(1)
    await page.get_by_role("link", name="New conversation").click()
    await expect(page).to_have_url(address(live))
    await expect(page.locator("#empty")).to_be_visible()
    await page.go_back()
    await expect(page.locator(".turn")).to_have_count(2)
    assert live.server.replies[-1].messages[-3:-1] == [
        {"role": "user", "content": "Why is the sky\nblue?"},
        {"role": "assistant", "content": CANNED},
    ]


async def test_votes_do_not_leak_between_conversations(live: Live, page: Page, open_page: Open) -> None:
    await flows.vote(await flows.say(page, "first"), True)
    first = page.url
    other = await open_page(address(live))
    second = await flows.say(other, "second")
    await expect(flows.thumb(second, True)).to_have_attribute("aria-pressed", "false")
    await flows.vote(second, False)
    for url, up in ((first, True), (other.url, False)):
        await page.goto(url)
        reply = flows.replies(page)
        await expect(reply).to_have_count(1)
        await expect(flows.thumb(reply, up)).to_have_attribute("aria-pressed", "true")
        await expect(flows.thumb(reply, not up)).to_have_attribute("aria-pressed", "false")
    assert [m.reward for m in await stored(live)] == [1.0, 0.0]


async def test_markup_of_user_and_model_is_inert(live: Live, page: Page, open_page: Open) -> None:
    evil = (
        "say: <script>window.hit = 1</script><img src=x onerror='window.hit = 1'> **bold** "
        "[link](javascript:window.hit=1) ![image](http://evil.example/x.png) "
        "<div hx-get='/api/status' hx-trigger='load' hx-on:click='window.hit = 1'>div</div> "
        "<hx-partial hx-target='#status'>gone</hx-partial> </div></article><style>*{display:none}</style>"
    )
    reply = await flows.say(page, evil)
    await expect(reply.locator("strong")).to_have_text("bold")
    for shown in (page, await open_page(page.url)):
        await expect(shown.locator(".asked")).to_have_text(evil)
        assert await shown.evaluate("window.hit") is None
        assert await shown.locator(".log :is(script, img, style, div[hx-get], iframe, [onerror])").count() == 0
        assert await shown.locator(".log a[href^=javascript]").count() == 0
        await expect(shown.locator("#status")).to_contain_text("gen 0")
        await expect(shown.locator(".reply .prose")).to_contain_text("<script>window.hit = 1</script>")


async def test_stop_keeps_the_partial_text(live: Live, page: Page) -> None:
    live.server.delay = 0.2
    reply = await flows.say(page, "say: one two three four five six seven eight nine ten", wait=False)
    await expect(reply).to_contain_text("one two")
    await page.locator("#stop").click()
    await expect(reply.locator(".note")).to_have_text("Stopped.")
    await expect(page.locator("#send")).to_be_visible()
    kept = (await stored(live))[0]
    assert kept.state == "stopped"
    assert kept.content.startswith("one two")
    assert "ten" not in kept.content
    assert live.server.replies[0].left
    await page.reload()
    await expect(page.locator(".reply .prose")).to_have_text(kept.content.strip())
    await flows.vote(flows.replies(page), False)


async def test_stop_before_the_first_word(live: Live, page: Page) -> None:
    live.server.hold = asyncio.Event()
    reply = await flows.say(page, "hello", wait=False)
    await page.keyboard.press("Escape")
    await expect(reply.locator(".note")).to_have_text("Stopped before the first word.")
    live.server.hold = None
    await reply.get_by_role("button", name="Regenerate").click()
    await expect(page.locator(".reply strong")).to_have_text("flock")
    assert await page.locator(".turn").count() == 1


async def test_leaving_stops_the_reply_and_keeps_its_text(live: Live, page: Page) -> None:
    live.server.delay = 0.1
    words = " ".join(str(i) for i in range(200))
    reply = await flows.say(page, f"say: {words}", wait=False)
    await expect(reply).to_contain_text("0 1 2")
    await page.goto(address(live, "/dashboard"))
    await until(lambda: live.server.replies[0].left)
    await page.go_back()
    await expect(page.locator(".reply .prose")).to_contain_text("0 1 2")
    assert (await stored(live))[0].state == "stopped"


async def test_regenerate_asks_another_member_and_keeps_the_first_answer(live: Live, page: Page) -> None:
    reply = await flows.say(page, "say: first")
    live.server.text = "second"
    await reply.get_by_role("button", name="Regenerate").click()
    await expect(page.locator(".foot .who").last).to_have_text("answer 2")
    await expect(page.locator(".turn")).to_have_count(1)
    await expect(page.locator("#content")).to_be_focused()
    rows = await stored(live)
    assert [(m.version, m.content, m.state) for m in rows] == [(0, "first", "done"), (1, "first", "done")]
    assert rows[0].member != rows[1].member
    assert rows[0].parent_id == rows[1].parent_id


async def test_the_composer_keeps_its_draft_and_sends_on_enter(live: Live, page: Page) -> None:
    field = page.locator("#content")
    await expect(field).to_be_focused()
    await page.keyboard.type("first line")
    await page.keyboard.press("Shift+Enter")
    low = await field.evaluate("e => e.clientHeight")
    await page.keyboard.type("second line")
    await page.keyboard.press("Shift+Enter")
    assert await field.evaluate("e => e.clientHeight") > low
    await page.reload()
    await expect(field).to_have_value("first line\nsecond line\n")
    await field.evaluate(
        "e => e.dispatchEvent(new KeyboardEvent('keydown', "
        "{key: 'Enter', isComposing: true, bubbles: true, cancelable: true}))"
    )
    assert await page.locator(".turn").count() == 0
    await field.press("Enter")
    await expect(page.locator(".asked")).to_have_text("first line\nsecond line")
    await expect(field).to_have_value("")
    await page.goto(address(live))
    await expect(field).to_have_value("")
    await field.press("Enter")
    await page.keyboard.type("   ")
    await field.press("Enter")
    assert await page.locator(".turn").count() == 0


async def test_one_message_at_a_time(live: Live, page: Page) -> None:
    live.server.delay = 0.2
    await flows.say(page, "say: one two three four five", wait=False)
    await page.locator("#content").fill("too early")
    await page.keyboard.press("Enter")
    await expect(page.locator(".reply .foot")).to_be_visible()
    await expect(page.locator(".turn")).to_have_count(1)
    await expect(page.locator("#content")).to_have_value("too early")
    await page.keyboard.press("Enter")
    await expect(page.locator(".turn")).to_have_count(2)


async def test_examples_are_asked_with_a_click(live: Live, page: Page) -> None:
    await expect(page.locator("#empty")).to_contain_text("thumbs teach")
    assert await page.locator("[data-prompt]").count() == 3
    await page.locator("[data-prompt]").first.click()
    await expect(page.locator(".reply strong")).to_have_text("flock")
    await expect(page.locator("#empty")).to_be_hidden()


async def test_a_comment_says_why_and_goes_with_a_switched_vote(live: Live, page: Page) -> None:
    reply = await flows.say(page, "hello")
    assert await reply.locator(".why").count() == 0
    await flows.vote(reply, True)
    await reply.locator(".why summary").click()
    await reply.get_by_label("What was good or bad").fill("short & <b>right</b>")
    await page.keyboard.press("Enter")
    await expect(reply.locator(".said")).to_have_text("comment kept")
    await page.reload()
    await expect(reply.locator(".why input")).to_have_value("short & <b>right</b>")
    await flows.vote(reply, False)
    await page.reload()
    await expect(reply.locator(".why input")).to_have_value("")


async def test_a_late_vote_says_so(live: Live, page: Page) -> None:
    reply = await flows.say(page, "hello")
    for i in range(4):
        await live.rate((await live.chat())["id"], i % 2 == 0)
    await expect(page.locator('[data-live="generation"]')).to_have_text("gen 1")
    assert "counted late for member 0 in generation 0" in await flows.vote(reply, True)


async def test_a_merge_is_told_without_a_reload(live: Live, page: Page) -> None:
    ring = page.locator("#ring")
    await expect(page.locator('[data-live="ratings"]')).to_have_text("0/4 ratings")
    for i in range(4):
        await live.rate((await live.chat())["id"], i % 2 == 0)
        if i < 3:
            await expect(page.locator('[data-live="ratings"]')).to_have_text(f"{i + 1}/4 ratings")
            await expect(ring).to_have_attribute("stroke-dasharray", f"{25 * (i + 1)} 100")
    await expect(page.locator(".notice")).to_have_text("Generation 1: merged")
    await expect(page.locator("#status")).to_have_class(re.compile("pulse"))
    for _ in range(4):
        await live.rate((await live.chat())["id"], True)
    await expect(page.locator(".notice").last).to_contain_text("nothing to learn: every reply scored the same")


async def test_the_sheet(live: Live, page: Page, watch: Watch) -> None:
    watch.expected = ("409 (Conflict)",)
    await page.locator("#status").click()
    sheet = page.locator("#sheet")
    await expect(sheet).to_contain_text("4 slightly different copies of fake-model take turns")
    await expect(sheet).to_contain_text("Generation 0 has 0 of the 4 ratings")
    await sheet.get_by_role("button", name="Merge now").click()
    await expect(sheet.get_by_role("alert")).to_have_text("0 of 4 members are rated: half of them must be.")
    for i in range(3):
        await live.rate((await live.chat())["id"], i == 0)
    await expect(sheet).to_contain_text("Generation 0 has 3 of the 4 ratings")
    await sheet.get_by_role("button", name="Merge now").click()
    await expect(sheet).to_contain_text("Generation 1 has 0 of the 4 ratings")
    await sheet.get_by_label("traffic").check()
    await sheet.get_by_role("button", name="Draw a new population").click()
    await expect(page.locator('[data-live="members"]')).to_have_text("16 members")
    await sheet.get_by_label("System prompt").fill("Answer in rhyme.")
    await sheet.get_by_label("Temperature").fill("0.2")
    await sheet.locator("#asking button").click()
    await expect(sheet.locator("#asking [role=alert]")).to_contain_text("Kept.")
    await page.keyboard.press("Escape")
    await expect(sheet).to_be_hidden()
    await flows.say(page, "hello")
    assert live.server.replies[-1].messages[0] == {"role": "system", "content": "Answer in rhyme."}
    assert live.server.replies[-1].sampling.temperature == 0.2


async def test_failures_keep_what_was_written(live: Live, page: Page) -> None:
    reply = await flows.say(page, "fail")
    await expect(reply.locator(".prose")).to_have_text("A flock")
    await expect(reply.locator(".note")).to_have_text("The engine has died; it starts again by itself.")
    assert await reply.get_by_role("button", name="Good reply").count() == 0
    refused = await flows.say(page, "refuse")
    await expect(refused.locator(".note")).to_contain_text("longer than the model can read")
    await expect(refused.get_by_role("button", name="Regenerate")).to_be_visible()


async def test_the_page_says_what_a_starting_engine_waits_for(tmp_path: Path, open_page: Open) -> None:
    gate = asyncio.Event()
    async with serving(tmp_path, ready=False, start_after=gate) as live:
        page = await open_page(address(live))
        await expect(page.locator("#waiting")).to_contain_text("The model is being loaded.")
        await expect(page.locator("#send")).to_be_disabled()
        await expect(page.locator("#status")).to_contain_text("starting")
        await page.locator("#content").fill("hello")
        await page.keyboard.press("Enter")
        gate.set()
        await expect(page.locator("#send")).to_be_enabled()
        await expect(page.locator("#waiting")).to_be_hidden()
        await expect(page.locator("#content")).to_have_value("hello")
        await page.locator("#content").press("Enter")
        await expect(page.locator(".reply strong")).to_have_text("flock")
        await page.close()


async def test_the_page_says_why_an_engine_failed(tmp_path: Path, open_page: Open) -> None:
    async with serving(tmp_path, ready=False, failure="No model at this path: name another one.") as live:
        await until(lambda: live.server.state == "failed")
        page = await open_page(address(live))
        await expect(page.locator("#waiting")).to_contain_text("No model at this path: name another one.")
        await page.locator("#status").click()
        await expect(page.locator("#sheet")).to_contain_text("Conversations and ratings are kept")
        await page.close()


async def test_a_server_that_restarts_underneath(tmp_path: Path, open_page: Open, watch: Watch) -> None:
    watch.expected = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "htmx:sse:error", "Failed to fetch")
    async with serving(tmp_path, delay=0.2) as live:
        port = live.port
        page = await open_page(address(live))
        reply = await flows.say(page, "say: " + " ".join("word" for _ in range(500)), wait=False)
        await expect(reply).to_contain_text("word word word")
    await expect(page.locator("#banner")).to_be_visible()
    await page.locator("#content").fill("still here")
    async with serving(tmp_path, port=port) as live:
        await expect(page.locator("#banner")).to_be_hidden(timeout=15_000)
        await expect(page.locator(".reply .foot")).to_be_visible()
        await expect(page.locator(".reply .prose")).to_contain_text("word word word")
        await expect(page.locator("#content")).to_have_value("still here")
        await live.rate((await live.chat())["id"], True)
        await expect(page.locator('[data-live="ratings"]')).to_have_text("1/4 ratings")
        await page.locator("#content").press("Enter")
        await expect(page.locator(".turn")).to_have_count(2)
        await page.close()


async def test_keyboard_and_screen_reader(live: Live, page: Page) -> None:
    log = page.get_by_role("log")
    await expect(log).to_have_attribute("aria-live", "off")
    reply = await flows.say(page, "hello")
    await expect(page.locator("#said")).to_have_text("Reply: A flock is many birds that move as one.")
    await flows.thumb(reply, True).focus()
    await page.keyboard.press("Enter")
    await expect(flows.thumb(reply, True)).to_have_attribute("aria-pressed", "true")
    await expect(flows.thumb(reply, True)).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(flows.thumb(reply, False)).to_be_focused()
    outline = await flows.thumb(reply, False).evaluate("e => getComputedStyle(e).outlineStyle")
    assert outline == "solid"
    await page.keyboard.press("Space")
    await expect(flows.thumb(reply, False)).to_have_attribute("aria-pressed", "true")


async def test_copy_puts_the_markdown_on_the_clipboard(live: Live, open_page: Open) -> None:
    page = await open_page(address(live), permissions=("clipboard-read", "clipboard-write"))
    reply = await flows.say(page, "hello")
    await reply.get_by_role("button", name="Copy").click()
    assert await page.evaluate("navigator.clipboard.readText()") == CANNED


async def test_scrolling_stays_where_one_reads(live: Live, page: Page) -> None:
    long = "\n\n".join(f"paragraph {i}" for i in range(60))
    await flows.say(page, f"say: {long}")
    at_end = "e => e.scrollHeight - e.scrollTop - e.clientHeight < 40"
    scroll = page.locator("#scroll")
    assert await scroll.evaluate(at_end)
    live.server.delay = 0.05
    reply = await flows.say(page, "say: " + " ".join(["word\n\n"] * 60), wait=False)
    await expect(reply).to_contain_text("word")
    await scroll.evaluate("e => e.scrollTo(0, 100)")
    await expect(reply.locator(".foot")).to_be_attached()
    assert await scroll.evaluate("e => e.scrollTop") == 100


async def test_a_phone(live: Live, open_page: Open) -> None:
    page = await open_page(address(live), size=PHONE)
    await flows.vote(await flows.say(page, "say: " + "x" * 300), True)
    assert await page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
    await expect(page.locator(".talks")).to_be_hidden()
    await page.locator("#talks-toggle").click()
    await expect(page.locator(".talks")).to_be_visible()
    await expect(page.locator("#talks-toggle")).to_have_attribute("aria-expanded", "true")
    await page.locator(".talks a[aria-current]").click()
    await expect(page.locator(".turn")).to_have_count(1)
    await page.locator("#status").click()
    box = await page.locator("#sheet").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE[0]


async def test_the_list_of_conversations_stays_closed(live: Live, page: Page) -> None:
    await page.locator("#talks-toggle").click()
    await expect(page.locator(".talks")).to_be_hidden()
    await page.reload()
    await expect(page.locator(".talks")).to_be_hidden()
    await page.locator("#talks-toggle").click()
    await expect(page.locator(".talks")).to_be_visible()


async def test_a_reply_written_in_another_tab_arrives(live: Live, page: Page, open_page: Open) -> None:
    live.server.delay = 0.3
    await flows.say(page, "say: one two three four five six seven eight", wait=False)
    await expect(page.locator(".reply")).to_contain_text("one two")
    other = await open_page(page.url)
    await expect(other.locator(".reply")).to_contain_text("one two")
    await expect(other.locator(".reply .foot")).to_be_visible()
    await expect(other.locator(".reply .prose")).to_have_text("one two three four five six seven eight")
