"""Publish, subscribe, request."""

import asyncio

import nats.errors
from site_under_test import PATIENCE, refused


async def publish_and_subscribe(site):
    a, b = await site.pair()
    sub = await site.subscribed(b, "py.*.x")
    for i in range(100):
        await a.publish(f"py.{i}.x", str(i).encode())
    for i in range(100):
        m = await sub.next_msg(timeout=PATIENCE)
        assert (m.subject, m.data) == (f"py.{i}.x", str(i).encode()), m
    await a.close()
    await b.close()


async def request_and_reply(site):
    a, b = await site.pair()

    async def answer(m):
        await m.respond(b"re: " + m.data)

    await site.subscribed(b, "py.help", queue="q", cb=answer)
    for i in range(20):
        m = await a.request("py.help", str(i).encode(), timeout=PATIENCE)
        assert m.data == b"re: " + str(i).encode(), m
    m = await a.request("py.help", b"old", timeout=PATIENCE, old_style=True)
    assert m.data == b"re: old", m
    await a.close()
    await b.close()


async def nobody_answers(site):
    a, b = await site.pair()
    with refused(nats.errors.NoRespondersError):
        await a.request("py.nobody", b"", timeout=PATIENCE)
    await a.close()
    await b.close()


async def headers(site):
    a, b = await site.pair()
    sub = await site.subscribed(b, "py.headers")
    await a.publish("py.headers", b"data", headers={"Key": "value", "other": "x: y"})
    m = await sub.next_msg(timeout=PATIENCE)
    assert m.headers == {"Key": "value", "other": "x: y"} and m.data == b"data", m
    await a.close()
    await b.close()


async def queue_group(site):
    a, b = await site.pair()
    got = {}

    def member(name):
        async def take(m):
            got.setdefault(name, []).append(m.data)

        return take

    for name, nc in (("one", a), ("two", b), ("three", b)):
        await site.subscribed(nc, "py.queue", queue="q", cb=member(name))
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


async def unsubscribe_after(site):
    a, b = await site.pair()
    sub = await site.subscribed(b, "py.max")
    await sub.unsubscribe(limit=3)
    await b.flush(timeout=PATIENCE)
    for i in range(10):
        await a.publish("py.max", str(i).encode())
    await a.flush(timeout=PATIENCE)
    for i in range(3):
        assert (await sub.next_msg(timeout=PATIENCE)).data == str(i).encode()
    await a.close()
    await b.close()


async def no_echo(site):
    a, b = await site.pair(no_echo=True)
    own, others = await site.subscribed(a, "py.echo"), await site.subscribed(b, "py.echo")
    await a.publish("py.echo", b"from a")
    await a.flush(timeout=PATIENCE)
    assert (await others.next_msg(timeout=PATIENCE)).data == b"from a"
    await b.publish("py.echo", b"from b")
    assert (await own.next_msg(timeout=PATIENCE)).data == b"from b"
    await a.close()
    await b.close()


async def drain(site):
    a, b = await site.pair()
    got = []

    async def take(m):
        await asyncio.sleep(0.001)
        got.append(int(m.data))

    await site.subscribed(b, "py.drain", cb=take)
    for i in range(200):
        await a.publish("py.drain", str(i).encode())
    await site.flush(a)
    if site.first != site.second:
        await asyncio.sleep(0.2)
    await b.drain()
    assert got == list(range(200)), got
    await a.close()


async def large_payload(site):
    a, b = await site.pair()
    sub = await site.subscribed(b, "py.large")
    data = bytes(i * 7 % 251 for i in range(a.max_payload))
    await a.publish("py.large", data)
    assert (await sub.next_msg(timeout=PATIENCE)).data == data
    with refused(nats.errors.MaxPayloadError):
        await a.publish("py.large", data + b"x")
    await a.close()
    await b.close()
