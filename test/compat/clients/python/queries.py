"""Live queries, by the class of docs/live-queries-python.md."""

import asyncio
import contextlib
import json
import pathlib
import re
import urllib.parse

import nats

from site_under_test import PATIENCE

PAGE = pathlib.Path(__file__).parents[4] / "docs" / "live-queries-python.md"


def _live_query():
    names = {}
    exec(re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[1], names)
    return names["LiveQuery"]


class _Way:
    """A way to a server that can be cut."""

    def __init__(self, url):
        self.to = urllib.parse.urlsplit(url)
        self.writers = set()
        self.tasks = set()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = "nats://127.0.0.1:%d" % self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()
        self.cut()
        await asyncio.gather(*self.tasks)

    def cut(self):
        for writer in self.writers:
            writer.close()

    async def _serve(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        there, back = await asyncio.open_connection(self.to.hostname, self.to.port)
        self.writers |= {writer, back}
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        self.writers -= {writer, back}

    async def _copy(self, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(64 << 10):
                writer.write(data)
                await writer.drain()
        writer.close()


async def _change(nc, *changes):
    answer = await nc.request("$CARILLON.API.ATTRIBUTES.SET", json.dumps({"changes": changes}).encode(), timeout=PATIENCE)
    answer = json.loads(answer.data)
    assert "error" not in answer and not any("error" in r for r in answer["results"]), answer


def _room(name, *rooms):
    return {"subject": f"py.q.{name}", "set": {"room": rooms[0]}} if rooms else {"subject": f"py.q.{name}", "delete": ["room"]}


async def live_query(site):
    a, b = await site.pair()
    events, ready = asyncio.Queue(), asyncio.Event()

    async def told(event, subject, value):
        if event == "ready":  # after a reconnect it comes before or after what changes meanwhile
            return ready.set()
        await events.put((event, subject, value.data if event == "message" else value))

    async def expect(*wanted):
        got = [await asyncio.wait_for(events.get(), PATIENCE) for _ in wanted]
        assert got == list(wanted), f"{got}, want {wanted}"

    await _change(b, _room("1", "410"), _room("2", "411"), _room("3", "410"))
    await site.flush(a)
    query = _live_query()(told, where='attributes.room == "410"', subjects="py.q.>")
    async with _Way(site.first) as way:
        running = asyncio.create_task(query.run(way.url, reconnect_time_wait=0.05))
        await asyncio.wait_for(ready.wait(), PATIENCE)
        first = sorted(events.get_nowait()[:2] for _ in range(events.qsize()))
        assert first == [("new", "py.q.1"), ("new", "py.q.3")], first
        ready.clear()
        await _change(a, _room("2", "410"))
        await b.publish("py.q.2", b"two")
        await expect(("new", "py.q.2", {"room": "410"}), ("message", "py.q.2", b"two"))
        await _change(a, _room("1", "9"))
        await expect(("del", "py.q.1", None))

        # The connection is lost, and something changes before the query is open again.
        way.server.close()
        way.cut()
        await _change(a, _room("3", "9"), _room("4", "410"))
        way.server = await asyncio.start_server(way._serve, "127.0.0.1", int(way.url.rsplit(":", 1)[1]))
        await expect(("del", "py.q.3", None), ("new", "py.q.4", {"room": "410"}))
        await asyncio.wait_for(ready.wait(), PATIENCE)
        assert query.members.keys() == {"py.q.2", "py.q.4"}, query.members
        await a.publish("py.q.4", b"four")
        await expect(("message", "py.q.4", b"four"))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await _change(a, *(_room(n) for n in "1234"))
    await a.close()
    await b.close()


async def a_live_query_tells_whole_events(site):
    """A program that takes its time for an event is not cancelled when the connection is lost."""
    b = await nats.connect(site.first)
    taking, may_end, events = asyncio.Event(), asyncio.Event(), asyncio.Queue()

    async def told(event, subject, value):
        taking.set()
        await may_end.wait()
        await events.put((event, subject))

    await _change(b, _room("slow", "410"))
    query = _live_query()(told, where='attributes.room == "410"', subjects="py.q.slow")
    async with _Way(site.first) as way:
        running = asyncio.create_task(query.run(way.url, reconnect_time_wait=0.05))
        await asyncio.wait_for(taking.wait(), PATIENCE)
        first = len(way.tasks)
        way.cut()
        for _ in range(100):  # in a cluster it may be back at another broker, and not this way
            if len(way.tasks) == first:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)  # in which it would open the query again
        may_end.set()
        got = [await asyncio.wait_for(events.get(), PATIENCE) for _ in range(2)]
        assert got == [("new", "py.q.slow"), ("ready", None)], got
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await _change(b, _room("slow"))
    await b.close()


async def a_wrong_live_query(site):
    query = _live_query()(None, where="attributes.room = 410")
    try:
        await asyncio.wait_for(query.run(site.first), PATIENCE)
    except RuntimeError as error:
        assert "BadRequest" in str(error), error
    else:
        raise AssertionError("it is open")
