"""Object stores."""

import contextlib
import io
import random

from nats.js.api import ObjectMeta
from nats.js.errors import APIError, BucketNotFoundError, NotFoundError, ObjectNotFoundError
from site_under_test import PATIENCE, refused


async def _made(site, js, bucket):
    with contextlib.suppress(NotFoundError):
        await js.delete_object_store(bucket)
    return await js.create_object_store(bucket, replicas=site.replicas)


async def object_store(site):
    a, b = await site.pair()
    js = a.jetstream(timeout=PATIENCE)
    store = await _made(site, js, "pyobj")
    other = await b.jetstream(timeout=PATIENCE).object_store("pyobj")
    data = random.Random(1).randbytes(5_000_000)
    info = await store.put("large", data)
    assert (info.size, info.chunks) == (5_000_000, 39), info
    small = await other.put("small", b"a few bytes", meta=ObjectMeta(description="a small one"))
    await store.put("empty", b"")
    assert (await other.get("large")).data == data
    got = await store.get("small")
    assert (got.data, got.info.description) == (b"a few bytes", "a small one"), got
    into = io.BytesIO()
    await other.get("large", writeinto=into)
    assert into.getvalue() == data
    assert not (await other.get("empty")).data
    assert {i.name: i.size for i in await other.list()} == {"large": 5_000_000, "small": 11, "empty": 0}

    changed = await store.put("small", b"other bytes of it")
    assert changed.nuid != small.nuid
    assert (await other.get("small")).data == b"other bytes of it"
    await store.update_meta("small", ObjectMeta(name="small", description="changed"))
    assert (await other.get_info("small")).description == "changed"

    status = await other.status()
    assert (status.stream_info.state.messages, status.sealed) == (39 + 1 + 3, False), status
    await store.delete("large")
    with refused(ObjectNotFoundError):
        await other.get("large")
    assert (await other.get_info("large", show_deleted=True)).deleted
    assert (await other.status()).stream_info.state.messages == 1 + 3
    assert sorted(i.name for i in await other.list(ignore_deletes=True)) == ["empty", "small"]
    assert await js.delete_object_store("pyobj")
    with refused(BucketNotFoundError):
        await b.jetstream().object_store("pyobj")
    await a.close()
    await b.close()


async def watched_objects(site):
    a, b = await site.pair()
    store = await _made(site, a.jetstream(), "pyobjwatch")
    other = await b.jetstream().object_store("pyobjwatch")
    watcher = await other.watch()
    assert await watcher.updates(timeout=PATIENCE) is None
    for change, deleted in ((store.put("one", b"1"), False), (store.delete("one"), True)):
        await change
        seen = await watcher.updates(timeout=PATIENCE)
        assert (seen.name, bool(seen.deleted)) == ("one", deleted), seen
    await watcher.stop()
    assert await a.jetstream().delete_object_store("pyobjwatch")
    await a.close()
    await b.close()


async def sealed_object_store(site):
    a, b = await site.pair()
    store = await _made(site, a.jetstream(), "pyseal")
    await store.put("kept", b"1")
    await store.seal()
    other = await b.jetstream().object_store("pyseal")
    assert (await other.status()).sealed
    with refused(APIError):
        await other.put("more", b"2")
    assert (await other.get("kept")).data == b"1"
    assert await a.jetstream().delete_object_store("pyseal")
    await a.close()
    await b.close()
