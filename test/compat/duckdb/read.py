"""read.py CARILLON URL FOLDER: publishes messages, has carillon query write them into files of
Parquet in the folder, and compares what DuckDB reads there with what was published. Prints one line
per story; the exit status is 0 only if all hold."""

import datetime
import json
import os
import socket
import subprocess
import sys
import time
from urllib.parse import urlparse

import duckdb

carillon, url, folder = sys.argv[1:]
PATIENCE = 60  # seconds

ORDERS = [
    {"id": n, "region": ["eu", "us", "asia"][n % 3], "total": n * 10 + 0.5, "note": "é\U0001f600" * (n % 4)}
    for n in range(20_000)
]
ODD = [b"no JSON", b"\xff\x00\xfe", b""]


def run(*arguments, expect=0):
    done = subprocess.run([carillon, *arguments, "--server", url], capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != expect:
        raise AssertionError(f"carillon {arguments}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def publish():
    """Publishes all as any client of NATS does. The broker answers the PING once it has read them."""
    messages = []
    for order in ORDERS:
        header = f"NATS/1.0\r\nPriority: {order['id'] % 2}\r\nTag: a\r\nTag: b\r\n\r\n".encode()
        data = json.dumps(order, ensure_ascii=False).encode()
        subject = f"orders.{order['region']}.{order['id'] % 50}"
        messages.append(b"HPUB %s %d %d\r\n%s%s\r\n" % (subject.encode(), len(header), len(header) + len(data), header, data))
    messages += [b"PUB orders.odd %d\r\n%s\r\n" % (len(data), data) for data in ODD]
    address = urlparse(url)
    with socket.create_connection((address.hostname, address.port), PATIENCE) as server:
        server.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n' + b"".join(messages) + b"PING\r\n")
        answers = b""
        while b"PONG\r\n" not in answers:
            more = server.recv(1 << 16)
            if not more:
                raise AssertionError(f"the broker has closed the connection: {answers}")
            answers += more
    deadline = time.monotonic() + PATIENCE
    while json.loads(run("query", "orders", "--aggregate", "count()").stdout or '{"count()":0}')["count()"] < len(ORDERS) + len(ODD):
        if time.monotonic() > deadline:
            raise AssertionError("not all messages were stored")


def written(name, *arguments):
    file = os.path.join(folder, name)
    run("query", "orders", *arguments, "--output-file", file)
    return file


def equals(got, want):
    if got != want:
        raise AssertionError(f"DuckDB says\n{got}\nwant\n{want}")


def read(sql, file):
    return duckdb.execute(sql.replace("FILE", f"'{file}'")).fetchall()


def types(file):
    return [(name, kind) for name, kind, *_ in read("DESCRIBE SELECT * FROM FILE", file)]


def all_messages_are_there():
    file = written("all.parquet")
    equals(types(file), [
        ("shard", "INTEGER"), ("offset", "UBIGINT"), ("time", "TIMESTAMPTZ_NS"), ("subject", "VARCHAR"),
        ("headers", "MAP(VARCHAR, VARCHAR[])"), ("json", "VARCHAR"), ("data", "BLOB"),
    ])
    equals(read("SELECT count(*), count(json), count(data), count(DISTINCT shard), count(DISTINCT (shard, \"offset\")) FROM FILE", file),
           [(len(ORDERS) + len(ODD), len(ORDERS), len(ODD), 3, len(ORDERS) + len(ODD))])
    equals(read("SELECT json->>'region', count(*), sum((json->>'total')::DOUBLE) FROM FILE WHERE json IS NOT NULL GROUP BY 1 ORDER BY 1", file),
           [(region, len(totals), sum(totals)) for region in ("asia", "eu", "us")
            for totals in [[o["total"] for o in ORDERS if o["region"] == region]]])
    equals(sorted(data for data, in read("SELECT data FROM FILE WHERE subject = 'orders.odd'", file)), sorted(ODD))
    texts = read("SELECT json FROM FILE WHERE json IS NOT NULL ORDER BY (json->>'id')::BIGINT", file)
    equals([json.loads(text) for text, in texts], ORDERS)
    equals(read("SELECT headers['Priority'][1], count(*) FROM FILE WHERE cardinality(headers) > 0 GROUP BY 1 ORDER BY 1", file),
           [("0", len(ORDERS) // 2), ("1", len(ORDERS) // 2)])
    equals(read("SELECT DISTINCT headers['Tag'] FROM FILE WHERE json IS NOT NULL", file), [(["a", "b"],)])
    hour = datetime.timedelta(hours=1)
    (first, last), = read("SELECT epoch_ns(min(time)), epoch_ns(max(time)) FROM FILE", file)
    now = datetime.datetime.now(datetime.timezone.utc)
    for at in first, last:
        if abs(datetime.datetime.fromtimestamp(at / 1e9, datetime.timezone.utc) - now) > hour:
            raise AssertionError(f"stored at {at}, and now it is {now}")


def what_matches_is_there():
    file = written("some.parquet", "--where", 'json.total > 100000.0 && json.region == "eu"')
    want = [o["total"] for o in ORDERS if o["total"] > 100000 and o["region"] == "eu"]
    equals(read("SELECT count(*), sum((json->>'total')::DOUBLE), min(subject) >= 'orders.eu.' FROM FILE", file),
           [(len(want), sum(want), True)])
    equals(read("SELECT count(*) FROM FILE", written("none.parquet", "--where", "json.total < 0")), [(0,)])


def results_have_their_types():
    file = written("results.parquet", "--aggregate", "count(), sum(json.total) as total, min(json.note), max(time)",
                   "--by", "json.region, json.id > 9999.0", "--window", "24h")
    equals([kind for _, kind in types(file)],
           ["TIMESTAMPTZ_NS"] * 2 + ["VARCHAR", "BOOLEAN", "UBIGINT", "DOUBLE", "VARCHAR", "TIMESTAMPTZ_NS"])
    want = []
    for region in "asia", "eu", "us":
        for large in False, True:
            totals = [o["total"] for o in ORDERS if o["region"] == region and (o["id"] > 9999) == large]
            want.append((region, large, len(totals), sum(totals)))
    equals(read('SELECT "json.region", "json.id > 9999.0", sum("count()")::BIGINT, sum(total) FROM FILE GROUP BY 1, 2 ORDER BY 1, 2', file), want)


run("topic", "create", "orders", "--shards", "3")
publish()
status = 0
for story in all_messages_are_there, what_matches_is_there, results_have_their_types:
    try:
        story()
        print("ok  ", story.__name__.replace("_", " "))
    except Exception as why:  # the other stories are told, too
        print("FAIL", story.__name__.replace("_", " "), why)
        status = 1
sys.exit(status)
