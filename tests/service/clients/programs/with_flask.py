#!/usr/bin/env python3
"""with_flask.py HOST PORT: Flask-Caching: pages and functions whose results are kept."""
import sys

from flask import Flask
from flask_caching import Cache

app = Flask("with_flask")
app.config.update(
    CACHE_TYPE="RedisCache", CACHE_REDIS_URL=f"redis://{sys.argv[1]}:{sys.argv[2]}/0", CACHE_KEY_PREFIX="flask:", CACHE_DEFAULT_TIMEOUT=100
)
cache = Cache(app)
made = {"page": 0, "sum": 0}


@app.route("/page")
@cache.cached(timeout=60, query_string=True)
def page():
    made["page"] += 1
    return f"page {made['page']}"


@cache.memoize(60)
def total(a, b):
    made["sum"] += 1
    return a + b


client = app.test_client()
assert client.get("/page?a=1").data == b"page 1" and client.get("/page?a=1").data == b"page 1"
assert client.get("/page?a=2").data == b"page 2"
with app.app_context():
    assert total(1, 2) == 3 and total(1, 2) == 3 and made["sum"] == 1
    cache.delete_memoized(total, 1, 2)
    assert total(1, 2) == 3 and made["sum"] == 2
    cache.delete_memoized(total)
    assert total(1, 2) == 3 and made["sum"] == 3
    assert cache.set("k", {"of": [1, 2]}, timeout=50) and cache.get("k") == {"of": [1, 2]} and cache.has("k")
    assert cache.add("k2", 1, timeout=50) and not cache.add("k2", 2)
    cache.set_many({"m1": 1, "m2": b"\0\xff"}, timeout=50)
    assert cache.get_many("m1", "none", "m2") == [1, None, b"\0\xff"] and cache.get_dict("m1") == {"m1": 1}
    backend = cache.cache
    assert backend.inc("n", 3) == 3 and backend.dec("n") == 2
    assert cache.delete_many("m1", "m2") and cache.delete("k") and cache.get("k") is None
    assert backend._read_client.ttl("flask:k2") > 40
    assert cache.unlink("k2") and cache.clear() and not list(backend._read_client.scan_iter("flask:*"))
