"""Data of a run: training-step.md, section 2.3, and token-shard.md."""
import glob
import os
import struct

from rng import stream, u64

END = 256


def write_shard(path, ids, vocab, width=2, tokenizer="bytes"):
    """A token shard (token-shard.md)."""
    with open(path, "wb") as f:
        f.write(b"OCTETTOK" + struct.pack("<IIQQ", 1, width, len(ids), vocab))
        f.write(tokenizer.encode().ljust(80, b"\0") + bytes(16))
        f.write(struct.pack(f"<{len(ids)}{'H' if width == 2 else 'I'}", *ids))


def read_file(path):
    with open(path, "rb") as f:
        content = f.read()
    if not path.endswith(".bin"):
        return list(content) + [END]
    assert content[:8] == b"OCTETTOK", path
    version, width, count, _ = struct.unpack_from("<IIQQ", content, 8)
    assert version == 1 and len(content) == 128 + count * width, path
    return list(struct.unpack_from(f"<{count}{'H' if width == 2 else 'I'}", content, 128))


def files(entry):
    """The files of one entry of dataset.path, sorted by the bytes of their path."""
    found = []
    for path in glob.glob(entry) if any(c in entry for c in "*?[") else [entry]:
        if not os.path.isdir(path):
            found.append(path)
        for folder, below, names in os.walk(path):
            below[:] = [name for name in below if not name.startswith(".")]
            found += [os.path.join(folder, name) for name in names if not name.startswith(".")]
    return sorted(found, key=os.fsencode)


class Dataset:
    """The tokens of all files end to end, cut into samples of n inputs."""

    def __init__(self, entries, n):
        self.n = n
        self.tokens = [t for entry in entries for path in files(entry) for t in read_file(path)]
        self.samples = (len(self.tokens) - 1) // n

    def sample(self, s):
        """(inputs, targets) of sample s."""
        part = self.tokens[s * self.n:s * self.n + self.n + 1]
        return part[:-1], part[1:]


def sample_at(position, samples, seed, shuffle):
    """The sample at a position of the run."""
    if not shuffle or samples == 1:
        return position % samples
    epoch, x = divmod(position, samples)
    key = stream(u64(stream(seed, "sampler"), epoch), "sampler epoch")
    h = next((h for h in range(1, 33) if 4 ** h >= samples), 32)
    size = 1 << h
    while True:
        left, right = x >> h, x % size
        for i in range(8):
            left, right = right, left ^ u64(key, i * 2 ** 32 + right) % size
        x = left * size + right
        if x < samples:
            return x
