"""Reads what octet saves: checkpoint.md."""
import io
import json
import os
import pickle
import pickletools
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


# checkpoint.md, section 3.
OPCODES = set("""PROTO GLOBAL BINPUT BINGET MARK TUPLE EMPTY_TUPLE EMPTY_DICT EMPTY_LIST SETITEMS APPENDS
BINUNICODE BINBYTES BININT1 BININT2 BININT LONG1 BINFLOAT NONE NEWTRUE NEWFALSE NEWOBJ BUILD REDUCE
BINPERSID STOP""".split())


def pickle_faults(content):
    """What is not as section 3 says: protocol 2 and the opcodes of the list."""
    ops = [(op.name, arg) for op, arg, _ in pickletools.genops(content)]
    faults = [f"opcode {name}" for name, _ in ops if name not in OPCODES]
    return faults if ops[0] == ("PROTO", 2) else faults + ["protocol"]


def archive_faults(archive):
    """What is not as section 2 says in one archive: entries, their order and their headers."""
    faults = []
    with zipfile.ZipFile(io.BytesIO(archive)) as z:
        entries = z.infolist()
        content = {entry.filename: z.read(entry) for entry in entries}
    names = [entry.filename for entry in entries]
    order = ["archive/data.pkl", "archive/byteorder", "archive/data/0", "archive/version"]
    if names != [n for n in order if n in names] or len(names) < 3:
        faults.append(f"entries {names}")
    if content["archive/byteorder"] != b"little" or content["archive/version"] != b"3\n":
        faults.append("byteorder or version")
    at = 0
    for entry in entries:
        header = struct.unpack_from("<4sHHHHHIIIHH", archive, at)
        signature, _, flags, method, _, date, crc, packed, size, name_bytes, extra_bytes = header
        start = at + 30 + name_bytes + extra_bytes
        extra = archive[at + 30 + name_bytes:start]
        if entry.header_offset != at or signature != b"PK\3\4":
            faults.append(f"{entry.filename}: place")
        if (flags, method, date, crc, packed, size) != (0x0808, 0, 0x0021, 0, 0, 0):
            faults.append(f"{entry.filename}: local header")
        if start % 64:
            faults.append(f"{entry.filename}: payload at {start}")
        if extra and (struct.unpack_from("<HH", extra) != (0x4246, len(extra) - 4) or
                      extra[4:] != b"Z" * (len(extra) - 4)):
            faults.append(f"{entry.filename}: extra field")
        end = start + entry.file_size
        if struct.unpack_from("<4sIII", archive, end) != (b"PK\7\x08", entry.CRC, entry.file_size,
                                                          entry.file_size):
            faults.append(f"{entry.filename}: data descriptor")
        at = end + 16
    return faults + pickle_faults(content["archive/data.pkl"])


def layout_faults(folder):
    """Section 2 for all archives of a checkpoint, section 3 for its .metadata."""
    with open(os.path.join(folder, ".metadata"), "rb") as f:
        content = f.read()
    faults = pickle_faults(content)
    metadata = _Unpickler(io.BytesIO(content)).load()
    with open(os.path.join(folder, "__0_0.distcp"), "rb") as f:
        data = f.read()
    end = 0
    for info in sorted(metadata.storage_data.values(), key=lambda i: i.offset):
        if info.offset % 4096 or info.offset < end or any(data[end:info.offset]):
            faults.append(f"archive at {info.offset}")
        end = info.offset + info.length
        faults += archive_faults(data[info.offset:end])
    return faults if end == len(data) else faults + ["bytes after the last archive"]


def train_state(folder):
    """The objects of train_state.*."""
    with open(os.path.join(folder, ".metadata"), "rb") as f:
        metadata = _Unpickler(f).load()
    with open(os.path.join(folder, "__0_0.distcp"), "rb") as f:
        data = f.read()
    out = {}
    for index, info in metadata.storage_data.items():
        if index.fqn.startswith("train_state."):
            with zipfile.ZipFile(io.BytesIO(data[info.offset:info.offset + info.length])) as z:
                out[index.fqn[12:]] = pickle.loads(z.read("archive/data.pkl"))
    return out


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
