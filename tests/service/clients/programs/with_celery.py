#!/usr/bin/env python3
"""with_celery.py HOST PORT: Celery's results: a worker stores and publishes them, and callers wait for the message. The broker is in memory."""
import sys

from celery import Celery, group
from celery.contrib.testing.worker import start_worker
from celery.exceptions import TimeoutError as Late
from celery.result import GroupResult

app = Celery("with_celery", broker="memory://", backend=f"redis://{sys.argv[1]}:{sys.argv[2]}/0")
app.conf.update(result_expires=100, worker_hijack_root_logger=False, task_track_started=True, broker_transport_options={"polling_interval": 0.01})


@app.task
def add(a, b):
    return a + b


@app.task
def fails():
    raise ValueError("as it should")


@app.task(bind=True)
def tells(self):
    self.update_state(state="HALF", meta={"done": 50})
    return "x" * 100000


with start_worker(app, pool="solo", perform_ping_check=False, loglevel="ERROR", shutdown_timeout=60):
    result = add.delay(20, 22)
    assert result.get(timeout=100) == 42 and result.successful()
    backend = app.backend
    key = backend.get_key_for_task(result.id)
    assert 0 < backend.client.ttl(key) <= 100
    result.forget()
    assert not backend.client.exists(key)

    bad = fails.delay()
    assert isinstance(bad.get(timeout=100, propagate=False), ValueError) and bad.failed() and "as it should" in bad.traceback
    assert len(tells.delay().get(timeout=100)) == 100000
    assert (add.s(1, 2) | add.s(3) | add.s(4)).delay().get(timeout=100) == 10

    many = group(add.s(i, i) for i in range(20)).delay()
    assert many.get(timeout=100) == [2 * i for i in range(20)]
    many.save()
    assert GroupResult.restore(many.id).completed_count() == 20
    many.delete()
    try:
        add.AsyncResult("of nobody").get(timeout=0.1)
        raise AssertionError("a result of no task")
    except Late:
        pass
