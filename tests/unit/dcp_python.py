"""The other side of the checkpoint tests, with Python's own pickle and zip code.

read DIR    loads a checkpoint that octet wrote, as torch does, and prints its values
write DIR   writes one as torch does: pickle protocol 4, data descriptors, zip64 structures, gaps
"""
import dataclasses, enum, io, pickle, struct, sys, types, zipfile, zlib
from collections import OrderedDict
from typing import Any


def module(name):
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        key = ".".join(parts[:i])
        if key not in sys.modules:
            sys.modules[key] = types.ModuleType(key)
            if i > 1:
                setattr(sys.modules[".".join(parts[: i - 1])], parts[i - 1], sys.modules[key])
    return sys.modules[name]


def put(name):
    def add(obj):
        obj.__module__ = name
        setattr(module(name), obj.__name__, obj)
        return obj
    return add


META = "torch.distributed.checkpoint.metadata"


# Stand-ins with the pickling behaviour of torch's classes.
@put("torch")
class Size(tuple):
    def __reduce__(self):
        return (Size, (tuple(self),))


class Dtype:
    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return self.name


for name in ("float32", "bfloat16"):
    d = Dtype(name)
    d.__module__ = "torch"
    setattr(module("torch"), name, d)
for name in ("FloatStorage", "BFloat16Storage"):
    put("torch")(type(name, (), {}))


@put("torch.serialization")
def _get_layout(name):
    return Layout(name)


class Layout:
    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return (_get_layout, (self.name,))


@put(META)
class _MEM_FORMAT_ENCODING(enum.Enum):
    TORCH_CONTIGUOUS_FORMAT = 0


@put(META)
class TensorProperties:
    def __init__(self, dtype):
        self.dtype, self.layout = dtype, _get_layout("torch.strided")

    def __getstate__(self):
        return (self.dtype, self.layout, False, _MEM_FORMAT_ENCODING(0), False)

    def __setstate__(self, state):
        (self.dtype, self.layout, self.grad, encoding, self.pin) = state
        assert encoding == _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT


@put(META)
@dataclasses.dataclass
class ChunkStorageMetadata:
    offsets: Any
    sizes: Any


@put(META)
@dataclasses.dataclass
class TensorStorageMetadata:
    properties: Any
    size: Any
    chunks: Any


@put(META)
@dataclasses.dataclass
class BytesStorageMetadata:
    pass


@put(META)
@dataclasses.dataclass(frozen=True)
class MetadataIndex:
    fqn: str
    offset: Any = None
    index: Any = dataclasses.field(hash=False, compare=False, default=None)

    def __init__(self, fqn, offset=None, index=None):
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "index", index)
        if offset is not None:
            object.__setattr__(self, "offset", Size(offset))


@put(META)
@dataclasses.dataclass
class StorageMeta:
    checkpoint_id: Any = None
    save_id: Any = None
    load_id: Any = None


@put(META)
@dataclasses.dataclass
class Metadata:
    state_dict_metadata: Any
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: Any = None


@put("torch.distributed.checkpoint.filesystem")
@dataclasses.dataclass
class _StorageInfo:
    relative_path: str
    offset: int
    length: int


@put("torch._utils")
def _rebuild_tensor_v2(storage, offset, size, stride, grad, hooks):
    return (storage, offset, tuple(size), tuple(stride))


module("torch.storage")


class Loader(pickle.Unpickler):
    def __init__(self, archive):
        self.archive = archive
        super().__init__(io.BytesIO(archive.read("archive/data.pkl")))

    def persistent_load(self, pid):
        kind, storage, key, device, numel = pid
        raw = self.archive.read("archive/data/" + key) if numel else b""
        width = 4 if storage.__name__ == "FloatStorage" else 2
        assert kind == "storage" and device == "cpu" and len(raw) == numel * width
        if width == 4:
            return list(struct.unpack("<%df" % numel, raw))
        halves = struct.unpack("<%dH" % numel, raw)
        return [struct.unpack("<f", struct.pack("<I", h << 16))[0] for h in halves]


def read(path):
    with open(path + "/.metadata", "rb") as f:
        metadata = pickle.load(f)
    out = {}
    for key, entry in metadata.state_dict_metadata.items():
        assert ".".join(metadata.planner_data[key]) == key
        is_tensor = isinstance(entry, TensorStorageMetadata)
        chunks = entry.chunks if is_tensor else [None]
        values = []
        for i, chunk in enumerate(chunks):
            index = MetadataIndex(key, chunk.offsets, i) if chunk else MetadataIndex(key)
            info = metadata.storage_data[index]
            with open(path + "/" + info.relative_path, "rb") as f:
                f.seek(info.offset)
                archive = zipfile.ZipFile(io.BytesIO(f.read(info.length)))
            assert archive.testzip() is None
            assert archive.read("archive/version") == b"3\n"
            assert archive.read("archive/byteorder") == b"little"
            value = Loader(archive).load()
            if not is_tensor:
                out[key] = value
                continue
            storage, offset, size, stride = value
            assert offset == 0 and size == tuple(chunk.sizes)
            numel = 1
            for n, s in zip(reversed(size), reversed(stride)):
                assert s == numel
                numel *= n
            assert len(storage) == numel
            values += storage
        if is_tensor:
            out[key] = (entry.properties.dtype.name, tuple(entry.size), values)
    for key in sorted(out):
        print(key, out[key])


def torch_zip(entries):
    """As PyTorch's writer: no sizes in local headers, descriptors, zip64 at every place."""
    data, central = b"", b""
    for name, payload in entries:
        name = name.encode()
        crc, size, start = zlib.crc32(payload), len(payload), len(data)
        pad = (64 - (start + 30 + len(name) + 4) % 64) % 64
        extra = struct.pack("<HH", 0x4246, pad) + b"Z" * pad
        data += struct.pack("<IHHHHHIIIHH", 0x04034B50, 0, 0x0808, 0, 0, 0, 0, 0, 0, len(name),
                            len(extra)) + name + extra + payload
        data += struct.pack("<IIQQ", 0x08074B50, crc, size, size)
        zip64 = struct.pack("<HHQQQ", 1, 24, size, size, start)
        central += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 0, 0, 0x0808, 0, 0, 0, crc,
                               0xFFFFFFFF, 0xFFFFFFFF, len(name), len(zip64) + 4, 0, 0, 0, 0,
                               0xFFFFFFFF) + name + struct.pack("<HH", 0x9999, 0) + zip64
    at, n = len(data), len(entries)
    end64 = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, n, n, len(central), at)
    locator = struct.pack("<IIQI", 0x07064B50, 0, at + len(central), 1)
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, n, n, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return data + central + end64 + locator + end


class Rebuild:
    def __init__(self, *args):
        self.args = args

    def __reduce__(self):
        return (_rebuild_tensor_v2, self.args)


class Saver(pickle.Pickler):
    def persistent_id(self, obj):
        return obj.pid if isinstance(obj, Storage) else None


class Storage:
    def __init__(self, pid):
        self.pid = pid


def saved_tensor(values, size):
    stride, n = [], 1
    for s in reversed(size):
        stride.insert(0, n)
        n *= s
    buffer = io.BytesIO()
    # Two elements in front: a view into a larger storage.
    pid = ("storage", module("torch").FloatStorage, "0", "cpu", len(values) + 2)
    Saver(buffer, 2).dump(Rebuild(Storage(pid), 2, tuple(size), tuple(stride), False,
                                  OrderedDict()))
    raw = struct.pack("<%df" % (len(values) + 2), 7.0, 7.0, *values)
    return torch_zip([("archive/data.pkl", buffer.getvalue()), ("archive/byteorder", b"little"),
                      ("archive/data/0", raw), ("archive/version", b"3\n"),
                      ("archive/.data/serialization_id", b"0123456789")])


def saved_object(value):
    return torch_zip([("archive/data.pkl", pickle.dumps(value, 2)), ("archive/version", b"3\n")])


def write(path):
    files = {"__0_0.distcp": b"", "__1_0.distcp": b""}
    storage, state = {}, {}

    def append(index, file, data):
        storage[index] = _StorageInfo(file, len(files[file]), len(data))
        files[file] += data + b"\0" * 5

    values = [i * 0.5 for i in range(15)]
    chunks = []
    # Two ranks and a third that owns nothing: torch writes its empty shard.
    for begin, rows, file in ((3, 2, "__1_0.distcp"), (0, 3, "__0_0.distcp")):
        append(MetadataIndex("w", (begin, 0), len(chunks)), file,
               saved_tensor(values[begin * 3:(begin + rows) * 3], (rows, 3)))
        chunks.append(ChunkStorageMetadata(Size((begin, 0)), Size((rows, 3))))
    chunks.append(ChunkStorageMetadata(Size((5, 0)), Size((0, 3))))
    state["w"] = TensorStorageMetadata(TensorProperties(module("torch").float32), Size((5, 3)),
                                       chunks)
    state["ints"] = BytesStorageMetadata()
    append(MetadataIndex("ints"), "__0_0.distcp", saved_object([1, 2, 3]))
    metadata = Metadata(state, {k: (k,) for k in state}, storage, StorageMeta())
    for name, data in files.items():
        with open(path + "/" + name, "wb") as f:
            f.write(data)
    with open(path + "/.metadata", "wb") as f:
        pickle.dump(metadata, f)


module("torch")
{"read": read, "write": write}[sys.argv[1]](sys.argv[2])
