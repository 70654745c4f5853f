"""The servers that the stories run at."""

import asyncio
import contextlib
import os

import nats
import nats.errors
from nats.js.errors import NotFoundError

PATIENCE = 10  # seconds


class Site:
    """Two nodes of a cluster, or twice the same server."""

    def __init__(self, first, second):
        self.first, self.second = first, second
        self.replicas = int(os.environ.get("REPLICAS", "1"))

    async def pair(self, **options):
        return await nats.connect(self.first, **options), await nats.connect(self.second, **options)

    async def flush(self, nc):
        """Returns when the node has what was sent to it."""
        for _ in range(2):  # the PING of a flush overtakes what nats.py has not written yet
            await nc.flush(timeout=PATIENCE)

    async def subscribed(self, nc, *args, **kwargs):
        sub = await nc.subscribe(*args, **kwargs)
        await self.flush(nc)
        if self.first != self.second:
            await asyncio.sleep(0.2)  # interest reaches the other node after the PONG of this one
        return sub

    async def stream(self, js, name, **settings):
        """Makes an empty stream with as many replicas as there are nodes."""
        with contextlib.suppress(NotFoundError):  # one of a run that was ended
            await js.delete_stream(name)
        return await js.add_stream(name=name, num_replicas=self.replicas, **settings)


@contextlib.contextmanager
def refused(error, code=None):
    """Fails unless the body raises such an error, with this error code of JetStream if given."""
    try:
        yield
    except error as err:
        if code is not None and err.err_code != code:
            raise
    else:
        raise AssertionError(f"no {error}")
