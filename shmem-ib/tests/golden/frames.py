#!/usr/bin/env python3
"""Golden RoCEv2 frames, one of each opcode, made without any code of this crate.

Writes what soft/src/wire/tests/golden.txt holds; run it from shmem-ib as

    python3 tests/golden/frames.py > soft/src/wire/tests/golden.txt

Layouts are those of the InfiniBand Architecture Specification, volume 1, chapter 9 and annexes A14
(XRC) and A17 (RoCEv2). The CRC is zlib's, the IP and UDP headers are written out in full as they are
on the wire, and then masked as annex A17 says.
"""

import ipaddress
import struct
import zlib

QPN, PSN, SRQN, SRC_QPN = 0x0A0B0C, 0xFFFF00, 0x0D0E0F, 0x000B17
VA, RKEY, DMALEN = 0x1122334455667788, 0x99AABBCC, 0x00010005
SWAP, COMPARE, OLD = 0x0102030405060708, 0xF1F2F3F4F5F6F7F8, 0xCAFEBABE00C0FFEE
IMM, QKEY, MSN = 0xD00DFEED, 0x01234567, 0x00BEEF

RETH = struct.pack(">QII", VA, RKEY, DMALEN)
ATOMIC = struct.pack(">QIQQ", VA, RKEY, SWAP, COMPARE)
AETH = struct.pack(">I", 0x1F << 24 | MSN)
DETH = struct.pack(">II", QKEY, SRC_QPN)
XRCETH = struct.pack(">I", SRQN)
IMMDT = struct.pack(">I", IMM)

FULL, SHORT, NONE = 256, 5, 0

# name, code, extended headers, bytes of payload, whether the responder gets it
RC = [
    ("SendFirst", 0, b"", FULL, True),
    ("SendMiddle", 1, b"", FULL, True),
    ("SendLast", 2, b"", SHORT, True),
    ("SendLastImm", 3, IMMDT, SHORT, True),
    ("SendOnly", 4, b"", SHORT, True),
    ("SendOnlyImm", 5, IMMDT, SHORT, True),
    ("WriteFirst", 6, RETH, FULL, True),
    ("WriteMiddle", 7, b"", FULL, True),
    ("WriteLast", 8, b"", SHORT, True),
    ("WriteLastImm", 9, IMMDT, SHORT, True),
    ("WriteOnly", 10, RETH, SHORT, True),
    ("WriteOnlyImm", 11, RETH + IMMDT, SHORT, True),
    ("ReadRequest", 12, RETH, NONE, True),
    ("ReadFirst", 13, AETH, FULL, False),
    ("ReadMiddle", 14, b"", FULL, False),
    ("ReadLast", 15, AETH, SHORT, False),
    ("ReadOnly", 16, AETH, SHORT, False),
    ("Ack", 17, AETH, NONE, False),
    ("AtomicAck", 18, AETH + struct.pack(">Q", OLD), NONE, False),
    ("CompareSwap", 19, ATOMIC, NONE, True),
    ("FetchAdd", 20, ATOMIC, NONE, True),
]
UD = [("UdSendOnly", 100, DETH, SHORT), ("UdSendOnlyImm", 101, DETH + IMMDT, SHORT)]

V4 = ("10.1.2.3", "10.3.2.1")
V6 = ("fd00:1::2:3", "fe80::a:b")


def ipv4(src, dst, ident, length, tos, ttl):
    header = struct.pack(
        ">BBHHHBBH4s4s", 0x45, tos, length, ident, 0x4000, ttl, 17, 0,
        ipaddress.ip_address(src).packed, ipaddress.ip_address(dst).packed)
    total = sum(struct.unpack(">10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return header[:10] + struct.pack(">H", total ^ 0xFFFF) + header[12:]


def icrc(ip, udp, packet):
    """Annex A17.3.3: what may change on the way counts as ones."""
    ip, udp, packet = bytearray(ip), bytearray(udp), bytearray(packet)
    if ip[0] >> 4 == 4:
        ip[1] = ip[8] = ip[10] = ip[11] = 0xFF  # type of service, time to live, checksum
    else:
        ip[0] |= 0x0F
        ip[1] = ip[2] = ip[3] = ip[7] = 0xFF  # traffic class, flow label, hop limit
    udp[6] = udp[7] = 0xFF  # checksum
    packet[4] = 0xFF  # FECN, BECN, reserved
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(ip + udp + packet)))


def frame(name, code, ext, payload_len, addresses, sport, ident, flags=0x40, byte4=0):
    payload = bytes((7 * i + code) & 0xFF for i in range(payload_len))
    pad = -payload_len % 4
    bth = struct.pack(">BBHII", code, flags | pad << 4, 0xFFFF, byte4 << 24 | QPN,
                      (code & 1) << 31 | (PSN + code) & 0xFFFFFF)
    packet = bth + ext + payload + b"\0" * pad
    udp_len = 8 + len(packet) + 4
    udp = struct.pack(">HHHH", sport, 4791, udp_len, 0)
    src, dst = addresses
    if addresses is V4:
        ip = ipv4(src, dst, ident, 20 + udp_len, 0x02, 63)
    else:
        ip = struct.pack(">IHBB16s16s", 0x6 << 28 | 0x2 << 20 | 0x12345, udp_len, 17, 63,
                         ipaddress.ip_address(src).packed, ipaddress.ip_address(dst).packed)
    packet += icrc(ip, udp, packet)
    print(name, src, sport, dst, ident, packet.hex())


print("# name, source address and port, destination, IPv4 identification, UDP payload")
print("# made by tests/golden/frames.py")
for name, code, ext, n, _ in RC:
    frame(name, code, ext, n, V4, 4791, 0)
for name, code, ext, n in UD:
    frame(name, code, ext, n, V4, 4791, 0)
frame("Cnp", 0x81, b"\0" * 16, NONE, V4, 4791, 0, byte4=0x40)
for name, code, ext, n, request in RC:
    frame("Xrc" + name, 0xA0 | code, (XRCETH if request else b"") + ext, n, V4, 4791, 0)
# What only another device sends: a numbered packet from another port; and IPv6.
for ident in (1, 0x718C, 0xFFFF):
    frame("WriteOnly", 10, RETH, SHORT, V4, 0xC123, ident)
    frame("ReadMiddle", 14, b"", FULL, V4, 0xC123, ident)
for name, code, ext, n, _ in RC:
    frame(name, code, ext, n, V6, 0xC456, 0)
for name, code, ext, n in UD:
    frame(name, code, ext, n, V6, 0xC456, 0)
