"""Pull, push and ordered consumers."""

import asyncio

import nats
import nats.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError
from site_under_test import PATIENCE, refused


async def consumers(site):
    a, b = await site.pair()
    js, other = a.jetstream(), b.jetstream()
    await site.stream(js, "pyc", subjects=["pyc.>"])
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
    with refused(nats.errors.TimeoutError):
        await durable.fetch(1, timeout=0.3)
    info = await durable.consumer_info()
    assert (info.ack_floor.stream_seq, info.num_pending) == (10, 0), info
    passing = await other.pull_subscribe("pyc.>", stream="pyc", config=ConsumerConfig(deliver_policy=DeliverPolicy.NEW))
    await js.publish("pyc.b", b"new", timeout=PATIENCE)
    assert [m.data for m in await passing.fetch(1, timeout=PATIENCE)] == [b"new"]
    assert len(await js.consumers_info("pyc")) == 2
    assert await js.delete_consumer("pyc", "durable") and await js.delete_stream("pyc")
    await a.close()
    await b.close()


async def push_consumers(site):
    a, b = await site.pair()
    js, other = a.jetstream(), b.jetstream()
    await site.stream(js, "pyp", subjects=["pyp.>"])
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

    members = [await nats.connect(url) for url in (site.first, site.second, site.second)]
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


async def acks(site):
    a, b = await site.pair()
    js, other = a.jetstream(), b.jetstream()
    await site.stream(js, "pyack", subjects=["pyack.>"])
    for i in range(5):
        await js.publish("pyack.a", str(i).encode(), timeout=PATIENCE)
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=1, max_deliver=3)
    pull = await other.pull_subscribe("pyack.>", "acks", config=config)
    first, second, third, fourth, fifth = await pull.fetch(5, timeout=PATIENCE)
    await first.ack_sync(timeout=PATIENCE)
    await second.term()
    await third.nak(delay=0.2)
    await fifth.ack_sync(timeout=PATIENCE)
    again = []
    while len(again) < 2:  # the third was refused, the fourth's time ended
        await fourth.in_progress() if not again else None
        again += await pull.fetch(1, timeout=PATIENCE)
    assert [m.data for m in again] == [b"2", b"3"], again
    assert [m.metadata.num_delivered for m in again] == [2, 2], again
    for m in again:
        await m.ack_sync(timeout=PATIENCE)
    info = await js.consumer_info("pyack", "acks")
    assert (info.ack_floor.stream_seq, info.num_ack_pending) == (5, 0), info
    assert await js.delete_consumer("pyack", "acks")
    with refused(NotFoundError, 10014):
        await other.consumer_info("pyack", "acks")
    assert await js.delete_stream("pyack")
    await a.close()
    await b.close()


async def ordered_consumer(site):
    a, b = await site.pair()
    js, other = a.jetstream(), b.jetstream()
    await site.stream(js, "pyordered", subjects=["pyordered.>"])
    for i in range(300):
        await js.publish(f"pyordered.{i % 3}", str(i).encode(), timeout=PATIENCE)
    sub = await other.subscribe("pyordered.1", ordered_consumer=True)
    for i in range(1, 300, 3):
        m = await sub.next_msg(timeout=PATIENCE)
        assert m.data == str(i).encode(), m
    # A consumer that is gone is made again, from where it was.
    consumer = (await sub.consumer_info()).name
    assert await js.delete_consumer("pyordered", consumer)
    await js.publish("pyordered.1", b"last", timeout=PATIENCE)
    assert (await sub.next_msg(timeout=3 * PATIENCE)).data == b"last"
    assert await js.delete_stream("pyordered")
    await a.close()
    await b.close()
