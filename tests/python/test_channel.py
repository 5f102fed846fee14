"""Both ends of a channel in one program, by each transport that needs no device."""
import threading

import pytest

import rdmad
from rdmad import channel


@pytest.mark.parametrize("url", ["shm://rdmad-python-test", "unix:///{}/c", "tcp://127.0.0.1:0/c"])
def test_stream(url, tmp_path):
    with channel.Listener(url.format(tmp_path), 65536) as listener:
        ends = []
        accepting = threading.Thread(target=lambda: ends.append(listener.accept(60)))
        accepting.start()
        with channel.open(listener.url, 65536) as client:
            accepting.join()
            with ends[0] as server:
                client.put(b"hello")
                client.flush()
                assert server.get(5) == b"hello"
                server.put(bytearray(b"0123456789"))
                server.flush()
                while client.available() < 10:
                    client.progress()
                assert client.peek(4) == b"0123" and client.try_get(3) == b"012"
                space = bytearray(7)
                client.get_into(space)
                assert space == b"3456789" and client.try_get(5) == b""
                with pytest.raises(rdmad.TimeoutError):
                    client.get(1, timeout=0.01)
                assert not client.try_put(bytes(65537)) and client.try_put(b"x")
                assert client.room() < 65536 and client.fileno() >= 0 and client.arm() in (True, False)
                long = bytes(range(256)) * 4000
                putting = threading.Thread(target=lambda: (server.put(long), server.flush()))
                putting.start()
                assert client.get(len(long)) == long
                putting.join()
                info = client.info()
                assert info.capacity == 65536 and info.bytes_got == len(long) + 10 and not info.relayed
                client.flush()
                assert server.get(1) == b"x"
            with pytest.raises(rdmad.Gone):
                client.get(1)
        with pytest.raises(ValueError):
            client.get(1)


def test_refused():
    with pytest.raises(rdmad.Error):
        channel.Listener("nonsense", 100)
    with pytest.raises(rdmad.Error):
        channel.open("shm://nobody-listens-here", 4096, connect_timeout=0.1)


def test_names(address):
    assert channel.names(address) == []
    with channel.Listener(f"meet://{address.split('//')[-1]}/python", 4096) if address.startswith("tcp") else channel.Listener(
            "shm://rdmad-python-names", 4096):
        found = channel.names(address)
        assert [each.name for each in found] == ([b"python"] if address.startswith("tcp") else [])
