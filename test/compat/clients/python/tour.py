"""What applications rely on, through nats.py: tour.py nats://127.0.0.1:4222 [nats://second:4222]
or tour.py --connect

Prints one line per story; the exit status is 0 only if all hold. With a second URL of the same
cluster, the stories run between the two nodes. With --connect, they are those of connecting.py.
"""

import asyncio
import inspect
import os
import sys
import traceback

import buckets
import connecting
import consumers
import core
import objects
import queries
import streams
from site_under_test import PATIENCE, Site


def stories(chapters):
    for chapter in chapters:
        for name, story in list(vars(chapter).items()):  # a warning adds its registry meanwhile
            if name[0] != "_" and inspect.iscoroutinefunction(story) and story.__module__ == chapter.__name__:
                yield name, story


async def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    if sys.argv[1] == "--connect":
        site, chapters = None, [connecting]
    else:
        site, chapters = Site(sys.argv[1], sys.argv[-1]), [core, streams, consumers, buckets, objects]
        if os.environ.get("SITE") != "nats-server":
            chapters.append(queries)
    told = failed = 0
    for name, story in stories(chapters):
        told += 1
        try:
            await asyncio.wait_for(story(site), 6 * PATIENCE)
            print("ok  ", name, flush=True)
        except Exception:
            failed += 1
            print("FAIL", name)
            traceback.print_exc(file=sys.stdout)
    print(f"{told - failed} of {told} hold")
    sys.exit(1 if failed else 0)


asyncio.run(main())
