"""in_cluster.py PORT: python3-redis' RedisCluster does as in_cluster.mjs says."""
import signal
import sys
import time

from redis.cluster import RedisCluster

COUNTERS = 100
client = RedisCluster(host="127.0.0.1", port=int(sys.argv[1]))
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
print("began", flush=True)
counted, slowest = 0, 0.0
while not ended:
    counted += 1
    for counter in range(COUNTERS):
        began = time.monotonic()
        answer = client.incr(f"python {counter}")
        if answer != counted:
            sys.exit(f"python {counter} answers {answer} to number {counted}")
        slowest = max(slowest, time.monotonic() - began)
print(f"RedisCluster: {counted * COUNTERS} answers, the slowest after {slowest * 1000:.0f} ms")
