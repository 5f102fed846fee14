"""A rank of rdmarun -n N: collective operations on arrays, and messages."""
import array

import numpy

import rdmad
from rdmad import peer

with peer.Context.server() as context, context.run() as group:
    rank, size = group.rank, group.size
    for kind in (numpy.int32, numpy.int64, numpy.uint64, numpy.float32, numpy.float64):
        for count in (1, 1000, 100_000):
            data = numpy.arange(count).astype(kind) + rank
            total = numpy.arange(count).astype(kind) * size + sum(range(size))
            assert numpy.allclose(group.allreduce(data), total), (kind, count)
            assert (group.allreduce(data, peer.MAX) == numpy.arange(count).astype(kind) + size - 1).all()
            group.allreduce_in_place(data)
            assert numpy.allclose(data, total)
            reduced = group.reduce(numpy.ones(count, kind), root=size - 1)
            assert (reduced is None) == (rank != size - 1) and (reduced is None or (reduced == size).all())
    assert group.allgather(numpy.array([rank, -rank])).tolist() == [[each, -each] for each in range(size)]
    assert list(group.allreduce(array.array("q", [rank, 1]))) == [sum(range(size)), size]
    gathered = group.gather(numpy.full((2, 3), rank), root=1)
    assert gathered is None if rank != 1 else gathered.shape == (size, 2, 3) and (gathered[size - 1] == size - 1).all()
    part = numpy.empty(4)
    group.scatter(numpy.repeat(numpy.arange(float(size)), 4) if rank == 0 else None, part)
    assert (part == rank).all()
    assert group.alltoall(numpy.arange(size) + 100 * rank).tolist() == [100 * each + rank for each in range(size)]
    news = numpy.full(70_000, rank)
    group.bcast(news, root=2 % size)
    assert (news == 2 % size).all()
    right, left = (rank + 1) % size, (rank - 1) % size
    for message in (b"", b"hello", b"x" * 300_000):
        if rank % 2 == 0:
            group.send(right, message)
            assert group.recv(left) == message
        else:
            assert group.recv(left) == message
            group.send(right, message)
    group.barrier()
    if rank < 2:
        with group.subset([1, 0]) as pair:
            assert pair.rank == 1 - rank and pair.size == 2
    try:
        group.allreduce(numpy.zeros(3, numpy.complex128))
        raise SystemExit("complex numbers were reduced")
    except TypeError:
        pass
    try:
        group.send(size, b"")
        raise SystemExit("sent to a rank that there is not")
    except ValueError:
        pass
    group.barrier()
    if rank == 0:
        print(f"{size} ranks, rdmad {rdmad.__version__}")
