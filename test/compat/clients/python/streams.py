"""Streams, and what publishers ask of them."""

import nats.js.errors
from nats.js.api import Header
from nats.js.errors import BadRequestError, NotFoundError
from site_under_test import PATIENCE, refused


async def streams(site):
    a, b = await site.pair()
    js, other = a.jetstream(), b.jetstream()
    info = await site.stream(js, "py", subjects=["pystream.>"], max_msgs=1000)
    assert (info.config.name, info.state.messages) == ("py", 0), info
    for i in range(10):
        ack = await other.publish("pystream.a", str(i).encode(), headers={"Nats-Msg-Id": str(i)}, timeout=PATIENCE)
        assert ack.seq == i + 1, ack
    ack = await js.publish("pystream.a", b"again", headers={"Nats-Msg-Id": "3"}, timeout=PATIENCE)
    assert ack.duplicate, ack
    assert (await other.get_msg("py", 3)).data == b"2"
    assert (await other.get_last_msg("py", "pystream.a")).data == b"9"
    assert "py" in [s.config.name for s in await other.streams_info()]
    changed = info.config.evolve(max_msgs=500)
    assert (await other.update_stream(changed)).config.max_msgs == 500
    await js.purge_stream("py", keep=2)
    assert (await js.stream_info("py")).state.messages == 2
    assert await js.delete_stream("py")
    await a.close()
    await b.close()


async def deleted_messages(site):
    a, b = await site.pair()
    js, other = a.jetstream(), b.jetstream()
    await site.stream(js, "pydel", subjects=["pydel.>"], max_msgs_per_subject=2)
    for i in range(6):
        await js.publish(f"pydel.{i % 2}", str(i).encode(), timeout=PATIENCE)
    state = (await other.stream_info("pydel")).state
    assert (state.messages, state.first_seq, state.last_seq) == (4, 3, 6), state
    assert await other.delete_msg("pydel", 4)
    with refused(NotFoundError):
        await js.get_msg("pydel", 4)
    m = await other.get_msg("pydel", 4, subject="pydel.0", next=True)
    assert (m.seq, m.data) == (5, b"4"), m
    await js.purge_stream("pydel", subject="pydel.0")
    assert (await other.stream_info("pydel")).state.messages == 1
    assert await js.delete_stream("pydel")
    await a.close()
    await b.close()


async def expectations(site):
    a, b = await site.pair()
    js, other = a.jetstream(), b.jetstream()
    await site.stream(js, "pyexpect", subjects=["pyexpect.>"])

    def publish(who, headers, subject="pyexpect.a"):
        return who.publish(subject, b"data", headers=dict(headers), timeout=PATIENCE)

    assert (await publish(js, {Header.MSG_ID.value: "one"})).seq == 1
    assert (await publish(other, {Header.EXPECTED_LAST_SEQUENCE.value: "1"})).seq == 2
    with refused(BadRequestError, 10071):
        await publish(js, {Header.EXPECTED_LAST_SEQUENCE.value: "1"})
    with refused(BadRequestError, 10070):
        await publish(js, {Header.EXPECTED_LAST_MSG_ID.value: "one"})
    assert (await publish(js, {Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: "0"}, "pyexpect.b")).seq == 3
    with refused(BadRequestError, 10071):
        await publish(other, {Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: "0"}, "pyexpect.b")
    with refused(BadRequestError, 10060):
        await publish(other, {Header.EXPECTED_STREAM.value: "other"})
    assert (await other.publish("pyexpect.a", b"data", stream="pyexpect", timeout=PATIENCE)).seq == 4
    with refused(nats.js.errors.NoStreamResponseError):
        await js.publish("pynostream", b"data", timeout=PATIENCE)
    futures = [await js.publish_async("pyexpect.async", str(i).encode()) for i in range(200)]
    await js.publish_async_completed()
    assert sorted(f.result().seq for f in futures) == list(range(5, 205))
    assert await js.delete_stream("pyexpect")
    await a.close()
    await b.close()
