#!/usr/bin/env python3
"""The record of device-mapper's target log-writes: what a disk had after each write.

replay_writes.py RECORD                      prints how many entries it has, and behind which one the last mark is that is a number
replay_writes.py RECORD DISK COUNT [SEED]    carries out the first COUNT entries on DISK, a file that is as the disk was at the begin, and
                                             prints the last mark among them that is a number, or 0

The record has a write when a flush that came behind it was carried out, so the writes up to one flush are there together, and before it.
With SEED, a number, the flush that would come next was not carried out yet: of the blocks that were written behind the last one, each is
on the disk or not, by chance.

Format, in little endian, see drivers/md/dm-log-writes.c in Linux: a sector with magic, version, entries and bytes of a sector; then the
entries, each a sector with where, how many sectors, flags and bytes of text, a mark's text behind that, and then what was written, if it
is no discard.
"""

import os
import random
import struct
import sys

SUPER = struct.Struct("<QQQI")
ENTRY = struct.Struct("<QQQQ")
MAGIC = 0x6A736677736872
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
KNOWN = 31  # metadata is 16
BLOCK = 4096  # of the file system: less is never torn


def give_up(text):
    sys.exit("replay_writes: " + text)


class Entry:
    """One entry: `where` on the disk, `data` in the record, both in bytes."""

    def __init__(self, fields, sector, at):
        self.number, sectors, self.flags, self.text_len = fields
        self.where, self.length = self.number * sector, sectors * sector
        self.data = at + sector
        self.end = self.data + (0 if self.flags & DISCARD else self.length)
        self.mark = None

    def ends_batch(self):
        """Whatever comes before it in the record is on the disk, and so is it."""
        return self.flags & (FLUSH | FUA)


class Record:
    def __init__(self, path):
        self.file = open(path, "rb")
        self.size = os.fstat(self.file.fileno()).st_size
        magic, version, self.count, self.sector = SUPER.unpack(self.read(0, SUPER.size))
        if magic != MAGIC or version != 1:
            give_up(f"{path} is no record of log-writes, version 1")
        if self.sector not in (512, 1024, 2048, 4096):
            give_up(f"{path}: sectors of {self.sector} bytes")

    def read(self, at, length):
        data = os.pread(self.file.fileno(), length, at)
        if len(data) != length:
            give_up(f"the record ends at {at + len(data)}, within {length} bytes")
        return data

    def entry(self, number, at):
        entry = Entry(ENTRY.unpack(self.read(at, ENTRY.size)), self.sector, at)
        if entry.flags & ~KNOWN or entry.end > self.size:
            give_up(f"entry {number} at byte {at}: flags {entry.flags:#x}, {entry.length} bytes")
        if entry.flags & MARK:
            if entry.length or entry.text_len > self.sector - ENTRY.size:
                give_up(f"entry {number} at byte {at}: a mark of {entry.text_len} bytes")
            text = self.read(at + ENTRY.size, entry.text_len)
            entry.mark = int(text) if text.isdigit() else None
        elif entry.text_len:
            give_up(f"entry {number} at byte {at}: text in a write")
        return entry

    def entries(self, count):
        if count > self.count:
            give_up(f"there are {self.count} entries")
        at = self.sector
        for number in range(count):
            entry = self.entry(number, at)
            at = entry.end
            yield entry


def put(record, disk, size, entry, chance):
    """Blocks of an entry; by `chance` some of them, without one all."""
    if entry.where + entry.length > size:
        give_up(f"a write to byte {entry.where}, {entry.length} long, on a disk of {size}")
    at = 0
    while at < entry.length:
        length = min(BLOCK - (entry.where + at) % BLOCK, entry.length - at)
        if chance is None:
            length = min(entry.length - at, 1 << 20)
        if chance is None or chance.random() < 0.5:
            data = bytes(length) if entry.flags & DISCARD else record.read(entry.data + at, length)
            os.pwrite(disk, data, entry.where + at)
        at += length


def replay(record, path, count, seed):
    entries = list(record.entries(count))
    whole = count
    if seed is not None:
        while whole and not entries[whole - 1].ends_batch():
            whole -= 1
    chance = random.Random(seed)
    disk = os.open(path, os.O_RDWR)
    size = os.fstat(disk).st_size
    for number, entry in enumerate(entries):
        put(record, disk, size, entry, None if number < whole else chance)
    os.close(disk)
    print(max((entry.mark or 0 for entry in entries), default=0))


def survey(record):
    last = 0
    for number, entry in enumerate(record.entries(record.count), 1):
        if entry.mark is not None:
            last = number
    print(record.count, last)


if len(sys.argv) == 2:
    survey(Record(sys.argv[1]))
elif len(sys.argv) in (4, 5):
    replay(Record(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) == 5 else None)
else:
    sys.exit(__doc__)
