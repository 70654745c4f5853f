"""Ways to connect, to servers with users and TLS, and what servers refuse.

PLAIN, TLS, MTLS, WS and WSS are URLs; CA and IDENTITIES are what ../identities.sh makes.
"""

import asyncio
import contextlib
import logging
import os
import ssl
from pathlib import Path

import aiohttp
import nats.errors
from nats.aio.client import Client
from nats.js.errors import NotFoundError
from site_under_test import PATIENCE, refused

ANN = {"user": "ann", "password": "secret"}
logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each end of a TLS connection


def _identity(name):
    return Path(os.environ["IDENTITIES"]) / name


def _nkey(name):
    return {"nkeys_seed": str(_identity(name + ".nk"))}


def _tls(ca=None, certificate=None):
    """Trusts the servers' CA unless another one is given."""
    context = ssl.create_default_context(cafile=ca or os.environ["CA"])
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does
    if certificate:
        context.load_cert_chain(_identity(certificate + ".crt"), _identity(certificate + ".key"))
    return {"tls": context}


async def _ignore(_):
    pass


async def _connect(url, error_cb=_ignore, **options):
    nc = Client()
    try:
        await nc.connect(
            os.environ[url], allow_reconnect=False, connect_timeout=PATIENCE, error_cb=error_cb, **options
        )
    except Exception:
        if url in ("WS", "WSS"):
            await nc.close()  # the session of aiohttp; over TLS this would wait forever
        raise
    return nc


async def _works(url, **options):
    """Asks, answers, stores, and is told what it may not publish."""
    errors = asyncio.Queue()
    nc = await _connect(url, error_cb=errors.put, **options)
    assert nc.is_connected

    async def answer(m):
        await m.respond(b"re: " + m.data)

    await nc.subscribe("pyconnect.help", cb=answer)
    assert (await nc.request("pyconnect.help", b"me", timeout=PATIENCE)).data == b"re: me"
    js = nc.jetstream(timeout=PATIENCE)
    with contextlib.suppress(NotFoundError):
        await js.delete_stream("pyconnect")
    await js.add_stream(name="pyconnect", subjects=["pyconnect.stored"])
    ack = await js.publish("pyconnect.stored", b"data")
    assert (await js.get_msg("pyconnect", ack.seq)).data == b"data"
    await nc.publish("denied.stored", b"data")
    await nc.flush(timeout=PATIENCE)
    error = await asyncio.wait_for(errors.get(), PATIENCE)
    assert str(error) == "nats: permissions violation for publish to \"denied.stored\"", error
    assert (await nc.request("pyconnect.help", b"again", timeout=PATIENCE)).data == b"re: again"
    assert await js.delete_stream("pyconnect")
    await nc.close()
    assert errors.empty(), errors.get_nowait()


async def user_and_password(site):
    await _works("PLAIN", **ANN)


async def user_and_password_over_tls(site):
    await _works("TLS", **ANN, **_tls())


async def nkey(site):
    await _works("PLAIN", **_nkey("service"))


async def nkey_over_tls(site):
    await _works("TLS", **_nkey("service"), **_tls())


async def client_certificate(site):
    await _works("MTLS", **_tls(certificate="client"))


async def websocket(site):
    await _works("WS", **ANN)


async def websocket_with_nkey(site):
    await _works("WS", **_nkey("service"))


async def websocket_over_tls(site):
    await _works("WSS", **ANN, **_tls())


async def _unauthorized(**who):
    for url, options in (("PLAIN", {}), ("TLS", _tls()), ("WS", {}), ("WSS", _tls())):
        for _ in range(5):
            try:
                await _connect(url, **who, **options)
            except ConnectionError:
                continue  # nats-server has closed it before the client wrote all, and so it reads nothing
            except nats.errors.Error as err:
                assert str(err) == "nats: 'Authorization Violation'", err
                break
            raise AssertionError(f"no error at {url}")
        else:
            raise AssertionError(f"closed without an error at {url}")


async def wrong_password(site):
    await _unauthorized(user="ann", password="wrong")


async def wrong_nkey(site):
    await _unauthorized(**_nkey("stranger"))


async def nobody(site):
    await _unauthorized()


async def wrong_ca(site):
    other = _tls(ca=_identity("other-ca.crt"))
    with refused(ssl.SSLCertVerificationError):
        await _connect("TLS", **ANN, **other)
    errors = []

    async def keep(err):
        errors.append(err)

    # nats.py tries again if WebSocket can't be opened, and then has no more servers.
    with refused(nats.errors.NoServersError):
        await _connect("WSS", **ANN, **other, error_cb=keep, max_reconnect_attempts=1, reconnect_time_wait=0)
    assert all(isinstance(err, aiohttp.ClientConnectorCertificateError) for err in errors), errors


async def wrong_client_certificate(site):
    # With TLS 1.3 a client is refused behind its handshake: it reads the alert, or writes in vain.
    for certificate in ("stranger", None):
        with refused((ssl.SSLError, ConnectionError)):
            await _connect("MTLS", **_tls(certificate=certificate))
