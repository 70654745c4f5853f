"""Key-value buckets."""

import contextlib

from nats.js.errors import (
    BucketNotFoundError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoKeysError,
    NotFoundError,
)
from site_under_test import PATIENCE, refused


async def _made(site, js, bucket, history, **more):
    with contextlib.suppress(NotFoundError):
        await js.delete_key_value(bucket)
    return await js.create_key_value(
        bucket=bucket, history=history, direct=True, replicas=site.replicas, **more
    )


async def keys_and_values(site):
    a, b = await site.pair()
    await _made(site, a.jetstream(), "pykv", 5)
    kv, other = await a.jetstream().key_value("pykv"), await b.jetstream().key_value("pykv")
    assert await kv.put("key", b"first") == 1
    entry = await other.get("key")
    assert (entry.value, entry.revision) == (b"first", 1), entry
    with refused(KeyWrongLastSequenceError):
        await other.create("key", b"again")
    assert await other.create("other", b"second") == 2
    with refused(KeyWrongLastSequenceError):
        await kv.update("key", b"third", last=9)
    assert await kv.update("key", b"third", last=1) == 3
    assert (await other.get("key")).value == b"third"
    assert (await other.get("key", revision=1)).value == b"first"
    with refused(KeyNotFoundError):
        await kv.get("nothing")
    assert sorted(await other.keys()) == ["key", "other"]
    assert [e.value for e in await other.history("key")] == [b"first", b"third"]
    assert await kv.delete("key")
    with refused(KeyNotFoundError):
        await other.get("key")
    assert await other.keys() == ["other"]
    assert [e.operation for e in await kv.history("key")] == [None, None, "DEL"]
    assert await other.create("key", b"fourth") == 5
    for i in range(10):
        await kv.put("key", str(i).encode())
    assert [e.value for e in await other.history("key")] == [b"5", b"6", b"7", b"8", b"9"]
    assert await kv.purge("key")
    assert [e.operation for e in await other.history("key")] == ["PURGE"]
    status = await other.status()
    assert (status.values, status.history, status.bucket) == (2, 5, "pykv"), status
    assert await kv.purge_deletes(olderthan=0)
    assert (await other.status()).values == 1
    assert await kv.delete("other")
    with refused(NoKeysError):
        await other.keys()
    assert await a.jetstream().delete_key_value("pykv")
    with refused(BucketNotFoundError):
        await b.jetstream().key_value("pykv")
    await a.close()
    await b.close()


async def large_values(site):
    a, b = await site.pair()
    await _made(site, a.jetstream(), "pykvlarge", 1)
    kv, other = await a.jetstream().key_value("pykvlarge"), await b.jetstream().key_value("pykvlarge")
    value = bytes(i * 7 % 251 for i in range(1_000_000))
    for _ in range(3):
        await kv.put("large", value)
    assert (await other.get("large")).value == value
    assert (await other.status()).values == 1
    for i in range(1000):
        await kv.put(f"many.{i}", b"")
    assert len(await other.keys()) == 1001
    assert await a.jetstream().delete_key_value("pykvlarge")
    await a.close()
    await b.close()


async def bounded_bucket(site):
    """What was replaced makes room."""
    a, b = await site.pair()
    await _made(site, a.jetstream(), "pykvbound", 1, max_bytes=2_000_000)
    kv, other = await a.jetstream().key_value("pykvbound"), await b.jetstream().key_value("pykvbound")
    for _ in range(100):
        await kv.put("key", bytes(300_000))
    await other.put("new", b"value")
    state = (await other.status()).stream_info.state
    assert state.messages == 2 and state.bytes < 2_000_000, state
    assert await a.jetstream().delete_key_value("pykvbound")
    await a.close()
    await b.close()


async def watched_keys(site):
    a, b = await site.pair()
    await _made(site, a.jetstream(), "pywatch", 3)
    kv, other = await a.jetstream().key_value("pywatch"), await b.jetstream().key_value("pywatch")
    for value in (b"1", b"2"):
        await kv.put("a.x", value)
    await kv.put("b.x", b"3")

    async def next_of(watcher):
        entry = await watcher.updates(timeout=PATIENCE)
        return entry and (entry.key, entry.value, entry.operation)

    every = await other.watchall()
    assert [await next_of(every) for _ in range(3)] == [("a.x", b"2", None), ("b.x", b"3", None), None]
    some = await other.watch("a.*", include_history=True)
    assert [await next_of(some) for _ in range(3)] == [("a.x", b"1", None), ("a.x", b"2", None), None]
    nothing = await other.watch("c.>")
    assert await next_of(nothing) is None
    await kv.put("a.y", b"4")
    await kv.delete("a.x")
    await kv.purge("b.x")
    await kv.put("c.x", b"5")
    changes = [("a.y", b"4", None), ("a.x", b"", "DEL"), ("b.x", b"", "PURGE"), ("c.x", b"5", None)]
    assert [await next_of(every) for _ in range(4)] == changes
    assert [await next_of(some) for _ in range(2)] == changes[:2]
    assert await next_of(nothing) == changes[3]
    for watcher in (every, some, nothing):
        await watcher.stop()
    assert await a.jetstream().delete_key_value("pywatch")
    await a.close()
    await b.close()
