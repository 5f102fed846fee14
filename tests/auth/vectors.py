#!/usr/bin/env python3
"""vectors.py: prints vectors.h, what the proofs of a handshake are by hmac and hashlib alone. rdmad-auth(7) has the formulas."""
import base64
import hashlib
import hmac


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def mac(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def kdf(session, number, length):
    """crypto_kdf of libsodium: BLAKE2b, keyed, with the number as salt and the context as person."""
    return hashlib.blake2b(b"", digest_size=length, key=session, salt=number.to_bytes(8, "little") + bytes(8),
                           person=b"rdmad1__" + bytes(8)).digest()


def show(name, value):
    text = ", ".join("0x%02x" % byte for byte in value)
    print(f"static const uint8_t {name}[{len(value)}] = {{\n\t{text}}};")


key = bytes(range(32))
request = bytes((7 * i + 3) % 256 for i in range(56))
accept = bytes((11 * i + 5) % 256 for i in range(64))
shared = bytes((13 * i + 1) % 256 for i in range(32))
print("/* vectors.h: made by vectors.py. */\n/* clang-format off */")
show("vector_key", key)
show("vector_request", request)
show("vector_accept", accept)
show("vector_shared", shared)
for transport in (1, 2):
    th = sha(b"rdmad1 hello", bytes([transport]), request, accept)
    show(f"vector_th_{transport}", th)
    show(f"vector_server_{transport}", mac(key, b"rdmad1 server", th))
    show(f"vector_client_{transport}", mac(key, b"rdmad1 client", th))
    for name, secret in (("plain", b""), ("shared", shared)):
        session = mac(key, b"rdmad1 session", th, secret)
        show(f"vector_{name}_{transport}", b"".join(
            kdf(session, 1 + side, 32) + kdf(session, 3 + side, 16)[:12] + kdf(session, 5 + side, 32) for side in (0, 1)))
show("vector_ticket", mac(key, b"rdmad1 ticket", (0x1122334455667788).to_bytes(8, "little"), (7).to_bytes(4, "little")))
password = base64.urlsafe_b64encode(mac(key, b"rdmad1 resp")).decode().rstrip("=")
print(f'static const char vector_password[] = "{password}";')
checksum = sha(b"rdmad1 line", (300).to_bytes(2, "little"), b"app", key)[:4]
print(f'static const char vector_line[] = "rdmad1:300:app:{base64.b64encode(key + checksum).decode()}";')
print(f'static const char vector_print[] = "{sha(b"rdmad1 print", key)[:4].hex()}";')
