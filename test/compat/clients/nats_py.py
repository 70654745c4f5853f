"""What applications rely on, through nats.py: python3 nats_py.py nats://127.0.0.1:4222 [nats://second:4222]

Prints one line per story; the exit status is 0 only if all hold. With a second URL of the same
cluster, the stories run between the two nodes.
"""

import asyncio
import sys
import traceback

import nats
import nats.errors
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

PATIENCE = 10


class Stories:
    def __init__(self, first, second):
        self.first, self.second = first, second

    async def pair(self, **options):
        return await nats.connect(self.first, **options), await nats.connect(self.second, **options)

    async def subscribed(self, nc, *args, **kwargs):
        sub = await nc.subscribe(*args, **kwargs)
        await nc.flush(timeout=PATIENCE)
        if self.first != self.second:
            await asyncio.sleep(0.2)  # interest reaches the other node after the PONG of this one
        return sub

    async def publish_and_subscribe(self):
        a, b = await self.pair()
        sub = await self.subscribed(b, "py.*.x")
        for i in range(100):
            await a.publish(f"py.{i}.x", str(i).encode())
        for i in range(100):
            m = await sub.next_msg(timeout=PATIENCE)
            assert (m.subject, m.data) == (f"py.{i}.x", str(i).encode()), m
        await a.close()
        await b.close()

    async def request_and_reply(self):
        a, b = await self.pair()

        async def answer(m):
            await m.respond(b"re: " + m.data)

        await self.subscribed(b, "py.help", queue="q", cb=answer)
        for i in range(20):
            m = await a.request("py.help", str(i).encode(), timeout=PATIENCE)
            assert m.data == b"re: " + str(i).encode(), m
        m = await a.request("py.help", b"old", timeout=PATIENCE, old_style=True)
        assert m.data == b"re: old", m
        await a.close()
        await b.close()

    async def nobody_answers(self):
        a, b = await self.pair()
        try:
            await a.request("py.nobody", b"", timeout=PATIENCE)
            raise AssertionError("somebody answered")
        except nats.errors.NoRespondersError:
            pass
        await a.close()
        await b.close()

    async def headers(self):
        a, b = await self.pair()
        sub = await self.subscribed(b, "py.headers")
        await a.publish("py.headers", b"data", headers={"Key": "value", "other": "x: y"})
        m = await sub.next_msg(timeout=PATIENCE)
        assert m.headers == {"Key": "value", "other": "x: y"} and m.data == b"data", m
        await a.close()
        await b.close()

    async def queue_group(self):
        a, b = await self.pair()
        got = {}

        def member(name):
            async def take(m):
                got.setdefault(name, []).append(m.data)

            return take

        for name, nc in (("one", a), ("two", b), ("three", b)):
            await self.subscribed(nc, "py.queue", queue="q", cb=member(name))
        for i in range(300):
            await a.publish("py.queue", str(i).encode())
        await a.flush(timeout=PATIENCE)
        for _ in range(200):
            if sum(map(len, got.values())) >= 300:
                break
            await asyncio.sleep(0.02)
        every = sorted(int(d) for name in got for d in got[name])
        assert every == list(range(300)), f"{len(every)} messages"
        await a.close()
        await b.close()

    async def unsubscribe_after(self):
        a, b = await self.pair()
        sub = await self.subscribed(b, "py.max")
        await sub.unsubscribe(limit=3)
        await b.flush(timeout=PATIENCE)
        for i in range(10):
            await a.publish("py.max", str(i).encode())
        await a.flush(timeout=PATIENCE)
        for i in range(3):
            assert (await sub.next_msg(timeout=PATIENCE)).data == str(i).encode()
        await a.close()
        await b.close()

    async def no_echo(self):
        a, b = await self.pair(no_echo=True)
        own, others = await self.subscribed(a, "py.echo"), await self.subscribed(b, "py.echo")
        await a.publish("py.echo", b"from a")
        await a.flush(timeout=PATIENCE)
        assert (await others.next_msg(timeout=PATIENCE)).data == b"from a"
        await b.publish("py.echo", b"from b")
        assert (await own.next_msg(timeout=PATIENCE)).data == b"from b"
        await a.close()
        await b.close()

    async def drain(self):
        a, b = await self.pair()
        got = []

        async def take(m):
            await asyncio.sleep(0.001)
            got.append(int(m.data))

        await self.subscribed(b, "py.drain", cb=take)
        for i in range(200):
            await a.publish("py.drain", str(i).encode())
        await a.flush(timeout=PATIENCE)
        if self.first != self.second:
            await asyncio.sleep(0.2)
        await b.drain()
        assert got == list(range(200)), got
        await a.close()

    async def large_payload(self):
        a, b = await self.pair()
        sub = await self.subscribed(b, "py.large")
        data = bytes(i * 7 % 251 for i in range(a.max_payload))
        await a.publish("py.large", data)
        assert (await sub.next_msg(timeout=PATIENCE)).data == data
        try:
            await a.publish("py.large", data + b"x")
            raise AssertionError("max_payload is not known to the client")
        except nats.errors.MaxPayloadError:
            pass
        await a.close()
        await b.close()

    async def streams(self):
        a, b = await self.pair()
        js, other = a.jetstream(), b.jetstream()
        try:
            await js.delete_stream("py")
        except NotFoundError:
            pass
        info = await js.add_stream(name="py", subjects=["pystream.>"], max_msgs=1000)
        assert (info.config.name, info.state.messages) == ("py", 0), info
        for i in range(10):
            ack = await other.publish("pystream.a", str(i).encode(), headers={"Nats-Msg-Id": str(i)}, timeout=PATIENCE)
            assert ack.seq == i + 1, ack
        ack = await js.publish("pystream.a", b"again", headers={"Nats-Msg-Id": "3"}, timeout=PATIENCE)
        assert ack.duplicate, ack
        assert (await other.get_msg("py", 3)).data == b"2"
        assert (await other.get_last_msg("py", "pystream.a")).data == b"9"
        assert "py" in [s.config.name for s in await other.streams_info()]
        assert (await other.update_stream(name="py", subjects=["pystream.>"], max_msgs=500)).config.max_msgs == 500
        await js.purge_stream("py", keep=2)
        assert (await js.stream_info("py")).state.messages == 2
        assert await js.delete_stream("py")
        await a.close()
        await b.close()

    async def consumers(self):
        a, b = await self.pair()
        js, other = a.jetstream(), b.jetstream()
        try:
            await js.delete_stream("pyc")
        except NotFoundError:
            pass
        await js.add_stream(name="pyc", subjects=["pyc.>"])
        for i in range(10):
            await js.publish("pyc.a", str(i).encode(), timeout=PATIENCE)
        durable = await other.pull_subscribe("pyc.a", "durable")
        got = await durable.fetch(5, timeout=PATIENCE)
        assert [m.data for m in got] == [b"0", b"1", b"2", b"3", b"4"], got
        for m in got[:3]:
            await m.ack()
        await got[3].ack_sync(timeout=PATIENCE)
        await got[4].nak()
        got = []
        while len(got) < 6:  # the one that is to come again may come at any time
            got += await durable.fetch(6 - len(got), timeout=PATIENCE)
        got.sort(key=lambda m: m.data)
        assert [m.data for m in got] == [b"4", b"5", b"6", b"7", b"8", b"9"], got
        assert got[0].metadata.num_delivered == 2, got[0].metadata
        for m in got:
            await m.ack_sync(timeout=PATIENCE)
        try:
            await durable.fetch(1, timeout=0.3)
            raise AssertionError("there is an eleventh message")
        except nats.errors.TimeoutError:
            pass
        info = await durable.consumer_info()
        assert (info.ack_floor.stream_seq, info.num_pending) == (10, 0), info
        passing = await other.pull_subscribe("pyc.>", stream="pyc", config=ConsumerConfig(deliver_policy=DeliverPolicy.NEW))
        await js.publish("pyc.b", b"new", timeout=PATIENCE)
        assert [m.data for m in await passing.fetch(1, timeout=PATIENCE)] == [b"new"]
        assert len(await js.consumers_info("pyc")) == 2
        assert await js.delete_consumer("pyc", "durable") and await js.delete_stream("pyc")
        await a.close()
        await b.close()

    async def push_consumers(self):
        a, b = await self.pair()
        js, other = a.jetstream(), b.jetstream()
        try:
            await js.delete_stream("pyp")
        except NotFoundError:
            pass
        await js.add_stream(name="pyp", subjects=["pyp.>"])
        for i in range(10):
            await js.publish("pyp.a", str(i).encode(), timeout=PATIENCE)
        ten = [str(i).encode() for i in range(10)]

        sub = await other.subscribe("pyp.a")
        for want in ten:
            m = await sub.next_msg(timeout=PATIENCE)
            assert m.data == want, m
            await m.ack_sync(timeout=PATIENCE)
        info = await sub.consumer_info()
        assert info.push_bound and info.ack_floor.stream_seq == 10, info
        await sub.unsubscribe()

        durable = await other.subscribe("pyp.a", durable="durable")
        for want in ten[:5]:
            m = await durable.next_msg(timeout=PATIENCE)
            assert m.data == want, m
            await m.ack_sync(timeout=PATIENCE)
        await b.close()
        while (await js.consumer_info("pyp", "durable")).push_bound:
            await asyncio.sleep(0.01)
        durable = await js.subscribe("pyp.a", durable="durable")
        assert (await durable.consumer_info()).ack_floor.stream_seq == 5
        await js.publish("pyp.a", b"new", timeout=PATIENCE)
        assert (await durable.next_msg(timeout=PATIENCE)).data == b"new"

        got = []

        async def take(m):
            got.append(m.data)
            await m.ack()

        members = [await nats.connect(url) for url in (self.first, self.second, self.second)]
        for nc in members:
            await nc.jetstream().subscribe("pyp.a", queue="workers", cb=take)
        while len(got) < 11:
            await asyncio.sleep(0.01)
        while (await js.consumer_info("pyp", "workers")).ack_floor.stream_seq < 11:
            await asyncio.sleep(0.01)
        assert sorted(got) == sorted(ten + [b"new"]), got

        for i in range(100):
            await js.publish("pyp.large", b"x" * 100_000, timeout=PATIENCE)
        got.clear()

        async def slowly(m):
            got.append(m.metadata.sequence.stream)
            await asyncio.sleep(0.002)

        await js.subscribe("pyp.large", ordered_consumer=True, cb=slowly)
        while len(got) < 100:
            await asyncio.sleep(0.01)
        assert got == list(range(12, 112)), got
        assert await js.delete_stream("pyp")
        for nc in (a, *members):
            await nc.close()


async def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    stories = Stories(sys.argv[1], sys.argv[-1])
    names = [n for n in vars(Stories) if not n.startswith("_") and n not in ("pair", "subscribed")]
    failed = 0
    for name in names:
        try:
            await asyncio.wait_for(getattr(stories, name)(), 6 * PATIENCE)
            print("ok  ", name)
        except Exception:
            failed += 1
            print("FAIL", name)
            traceback.print_exc()
    print(f"{len(names) - failed} of {len(names)} hold")
    sys.exit(1 if failed else 0)


asyncio.run(main())
