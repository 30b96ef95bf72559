"""Lives of messages as the console's page has them: its JSON, and its words."""

from __future__ import annotations

import html
import re
from functools import partial

import anyio
import msgspec

from trocket.console.rendering import plain_text
from trocket.console.texts import texts_of
from trocket.operations.message_life import GroupOutcome, Life

from .running import Answer, Browser


class PageLives:
    """The seam of the console: the page of a message.

    Args:
      browser: logged in.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    async def life(self, admin: object, message_id: str, *groups: str) -> Life:
        """What the page has as JSON."""
        answer = await self._get("message.json", message_id, *groups)
        return msgspec.convert(answer.tree["life"], Life)

    async def check(self, message_id: str, outcome: GroupOutcome) -> None:
        """Raises: AssertionError: the page does not say it, or not from what it is known."""
        while True:
            words = words_of((await self._get("message", message_id, outcome.group)).text)
            missing = [each for each in said(outcome) if each not in words]
            if not missing:
                return
            life = await self.life(None, message_id, outcome.group)
            now = next(each for each in life.outcomes if each.group == outcome.group)
            # Of a retry more is known a second later.
            assert now != outcome, (missing, words)
            assert now.kind is outcome.kind
            outcome = now

    async def _get(self, page: str, message_id: str, *groups: str) -> Answer:
        query = {"id": message_id, **({"group": groups[0]} if groups else {})}
        answer = await anyio.to_thread.run_sync(partial(self._browser.get, page, **query))
        assert answer.status == 200, answer.text
        return answer


def said(outcome: GroupOutcome) -> list[str]:
    """What a page says of an outcome."""
    kind = text(f"outcome.{outcome.kind.value}")
    found = [f"{outcome.group} {kind}", *outcome.clients, outcome.failure]
    found += [text(f"source.{source.value}") for source in outcome.known_from]
    for refusal in outcome.refusals:
        reason = text(f"refusal.{refusal.reason.value}")
        wanted = refusal.term or refusal.expression
        found.append(f"{refusal.client_id} : {reason} {wanted}")
    if outcome.until_ms is not None:
        found.append(text("outcome_more.until"))
    if outcome.before is not None:
        found.append(text("outcome_more.before", count=outcome.before))
    return found


def words_of(page: str) -> str:
    """The text of a page as a reader sees it."""
    inside = page[page.index("<main") : page.index("</main>")]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", inside)).split())


def text(key: str, **values: object) -> str:
    """A text of the pages in English, as a reader sees it."""
    return plain_text(texts_of("en")(key, **values))
