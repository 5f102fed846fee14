#!/usr/bin/env python3
"""with_django.py HOST PORT: django-redis as Django's cache, and Django's sessions in it."""
import sys

import django
from django.conf import settings

URL = f"redis://{sys.argv[1]}:{sys.argv[2]}/0"
settings.configure(
    SECRET_KEY="of a test",
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    CACHES={
        "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": URL, "KEY_PREFIX": "dj"},
        "packed": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": URL,
            "KEY_PREFIX": "packed",
            "OPTIONS": {"COMPRESSOR": "django_redis.compressors.zlib.ZlibCompressor", "SERIALIZER": "django_redis.serializers.json.JSONSerializer"},
        },
    },
)
django.setup()

from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402
from django.core.cache import cache, caches  # noqa: E402

assert cache.set("a", {"of": ["objects", 1, None]}, timeout=100) and cache.get("a") == {"of": ["objects", 1, None]}
assert cache.add("b", 1) and not cache.add("b", 2) and cache.get("b") == 1
assert cache.incr("b", 41) == 42 and cache.decr("b") == 41
try:
    cache.incr("none")
    raise AssertionError("incr of no key")
except ValueError:
    pass
assert 90 < cache.ttl("a") <= 100 and cache.persist("a") and cache.ttl("a") is None
assert cache.expire("a", 50) and cache.pexpire("a", 50000) and 0 < cache.pttl("a") <= 50000
assert cache.touch("a", 70) and 60 < cache.ttl("a") <= 70
cache.set_many({f"many{i}": i for i in range(100)}, timeout=60)
assert cache.get_many([f"many{i}" for i in range(100)]) == {f"many{i}": i for i in range(100)}
assert sorted(cache.iter_keys("many1*"))[0] == "many1" and len(cache.keys("many1*")) == 11
assert cache.delete_many(["many1", "many2"]) == 2 and "many1" not in cache and cache.has_key("many3")
assert cache.delete_pattern("many*") == 98
assert cache.set("v", "one", version=1) and cache.incr_version("v") == 2 and cache.get("v", version=2) == "one"
assert cache.get_or_set("made", lambda: "once", 60) == "once" and cache.get_or_set("made", "twice") == "once"
assert cache.set("n", "x", nx=True) and not cache.set("n", "y", nx=True)
with cache.lock("lock", timeout=60):
    assert not cache.client.get_client().lock(cache.make_key("lock"), timeout=1).acquire(blocking=False)
packed = caches["packed"]
assert packed.set("long", "text " * 10000) and packed.get("long") == "text " * 10000

session = SessionStore()
session["user"] = 7
session.create()
assert SessionStore(session.session_key)["user"] == 7 and session.exists(session.session_key)
old = session.session_key
session.cycle_key()
assert not session.exists(old) and SessionStore(session.session_key)["user"] == 7
session.flush()
cache.clear()
assert cache.get("a") is None
