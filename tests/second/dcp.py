"""Reads what octet saves: checkpoint.md."""
import io
import json
import os
import pickle
import struct
import zipfile
import zlib


class _Any:
    """Stands for any class of torch that a checkpoint names."""

    def __init__(self, *args):
        self.args = args

    def __setstate__(self, state):
        if isinstance(state, dict):             # torch's TensorProperties has a tuple
            self.__dict__.update(state)

    def __hash__(self):
        return hash(repr(sorted(self.__dict__.items(), key=str)))

    def __eq__(self, other):
        return self.__dict__ == other.__dict__


class _Unpickler(pickle.Unpickler):
    """No class is ever looked up: each name gives a stand-in that remembers it."""

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        return type(name, (_Any,), {"where": f"{module}.{name}"})

    def persistent_load(self, pid):
        return pid


def _tensor(archive):
    """Elements (bit patterns), dtype and shape of what torch.save(tensor) wrote."""
    with zipfile.ZipFile(io.BytesIO(archive)) as z:
        assert z.testzip() is None
        made = _Unpickler(io.BytesIO(z.read("archive/data.pkl"))).load()
        (_, storage, _, _, count), _, shape, _, _, _ = made.args
        dtype = storage.where.split(".")[1]
        raw = z.read("archive/data/0") if count else b""
    letter = {"FloatStorage": "I", "BFloat16Storage": "H"}[dtype]
    return list(struct.unpack(f"<{count}{letter}", raw)), dtype, tuple(shape)


def verify(folder):
    """COMMIT.json: its own CRC-32, sizes and CRC-32 of the other files. Gives the object."""
    with open(os.path.join(folder, "COMMIT.json"), "rb") as f:
        text = f.read()
    tail = b', "self_crc32": "%08x"}' % zlib.crc32(text[:-len(', "self_crc32": "00000000"}')])
    assert text.endswith(tail), folder
    commit = json.loads(text)
    for name, (size, crc) in commit["files"].items():
        with open(os.path.join(folder, name), "rb") as f:
            content = f.read()
        assert (len(content), zlib.crc32(content)) == (size, crc), name
    return commit


def load(folder):
    """{key: (bit patterns, storage type, shape)} of all tensors of a checkpoint."""
    with open(os.path.join(folder, ".metadata"), "rb") as f:
        metadata = _Unpickler(f).load()
    out = {}
    for index, info in metadata.storage_data.items():
        with open(os.path.join(folder, info.relative_path), "rb") as f:
            f.seek(info.offset)
            archive = f.read(info.length)
        if "TensorStorageMetadata" in type(metadata.state_dict_metadata[index.fqn]).__name__:
            assert index.fqn not in out, index.fqn          # one chunk: all is below 1 GiB
            out[index.fqn] = _tensor(archive)
    return out
