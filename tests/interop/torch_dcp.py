"""PyTorch's side of the checkpoint tests: reads what octet wrote, writes what octet has to read.

    torch_dcp.py dump DIR               every key as torch loads it, one line each
    torch_dcp.py nested DIR             the same by way of dcp_to_torch_save
    torch_dcp.py reshard RANKS DIR      the same, each tensor loaded as a DTensor cut over RANKS
    torch_dcp.py adamw DIR CONFIG       loads model and AdamW, checks their state, takes a step
    torch_dcp.py again DIR NEW          loads every key and saves it under NEW
    torch_dcp.py write KIND DIR CONFIG [small]
                                        writes a checkpoint of a DeepSeek-V3 (kinds: KINDS below),
                                        small: on at most two ranks

A line is `KEY DTYPE [SHAPE] CRC`, the CRC-32 of the elements as FP32, or `KEY TYPE VALUE`; they come
in the order of their keys' bytes. checkpoint_dump.c prints the same.
"""
import io
import json
import os
import struct
import sys
import tempfile
import traceback
import zlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict,
                                                     get_optimizer_state_dict,
                                                     set_optimizer_state_dict)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

torch.set_num_threads(1)


# --- lines ----------------------------------------------------------------------------------------

def line_of(key, value):
    if isinstance(value, torch.Tensor):
        dtype, shape = str(value.dtype)[6:], list(value.shape)
        if value.dtype not in (torch.float32, torch.bfloat16):
            return f"{key} {dtype} {shape} -"
        elements = value.detach().to(torch.float32).contiguous().numpy().tobytes()
        return f"{key} {dtype} {shape} {zlib.crc32(elements):08x}"
    if isinstance(value, bool):
        return f"{key} bool {int(value)}"
    if isinstance(value, int):
        return f"{key} int {value}"
    if isinstance(value, float):
        return f"{key} float {struct.pack('>d', value).hex()}"
    if isinstance(value, str):
        return f"{key} str {value}"
    return f"{key} object"


def print_lines(state):
    for key in sorted(state, key=str.encode):
        print(line_of(key, state[key]))


def flatten(value, path=()):
    """Leaves of nested dicts and lists, under names as DCP gives them."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list) and any(isinstance(x, (dict, torch.Tensor)) for x in value):
        items = enumerate(value)
    else:
        return {".".join(map(str, path)): value}
    return {k: v for name, item in items for k, v in flatten(item, (*path, name)).items()}


# --- reading --------------------------------------------------------------------------------------

def empty_state(folder, place=lambda tensor: tensor):
    """A flat state dict with room for every key of the checkpoint."""
    entries = FileSystemReader(folder).read_metadata().state_dict_metadata
    return {key: place(torch.full(tuple(entry.size), 7, dtype=entry.properties.dtype))
            if isinstance(entry, TensorStorageMetadata) else None
            for key, entry in entries.items()}


def dump(folder):
    state = empty_state(folder)
    dcp.load(state, storage_reader=FileSystemReader(folder))
    print_lines(state)


def again(folder, new):
    state = empty_state(folder)
    dcp.load(state, storage_reader=FileSystemReader(folder))
    dcp.save(state, storage_writer=FileSystemWriter(new))


def nested(folder):
    with tempfile.TemporaryDirectory() as scratch:
        dcp_to_torch_save(folder, f"{scratch}/all.pt")
        print_lines(flatten(torch.load(f"{scratch}/all.pt", weights_only=False)))


def reshard(rank, ranks, folder):
    mesh = init_device_mesh("cpu", (ranks,))
    state = empty_state(folder, lambda t: distribute_tensor(t, mesh, [Shard(0)]) if t.dim() else t)
    dcp.load(state, storage_reader=FileSystemReader(folder))
    state = {k: v.full_tensor() if isinstance(v, DTensor) else v for k, v in state.items()}
    if rank == 0:
        print_lines(state)


def adamw(folder, config):
    """A model that never saw octet takes weights and moments and goes on."""
    model = make_model(config, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    take_step(model, optimizer)
    state = get_model_state_dict(model) | {"optimizer": get_optimizer_state_dict(model, optimizer)}
    for name, slot in state["optimizer"]["state"].items():
        for key in ("exp_avg", "exp_avg_sq"):  # octet's moments are FP32, AdamW made BF16 ones
            slot[key] = torch.zeros(slot[key].shape)
    dcp.load(state, storage_reader=FileSystemReader(folder),
             planner=DefaultLoadPlanner(allow_partial_load=True))  # octet saves no param_groups
    set_optimizer_state_dict(model, optimizer, state["optimizer"])
    whole = empty_state(folder)
    dcp.load(whole, storage_reader=FileSystemReader(folder))
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        assert torch.equal(parameter, whole[name]), name
        for key in ("exp_avg", "exp_avg_sq"):
            found = optimizer.state[parameter][key]
            assert torch.equal(found, whole[f"optimizer.state.{name}.{key}"].to(found.dtype)), (name, key)
        assert optimizer.state[parameter]["step"] == whole[f"optimizer.state.{name}.step"], name
    take_step(model, optimizer)
    steps = {float(slot["step"]) for slot in optimizer.state.values()}
    print(f"{len(parameters)} parameters, step {steps}")


# --- the model ------------------------------------------------------------------------------------

def shapes_of(config, per_expert=False):
    """Parameters of transformers' DeepseekV3ForCausalLM; per_expert as before its version 5."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    nope, rope, v = (config[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    rank, moe, experts = (config[k] for k in ("kv_lora_rank", "moe_intermediate_size",
                                              "n_routed_experts"))
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], hidden]}

    def mlp(name, width):
        shapes[f"{name}.gate_proj.weight"] = [width, hidden]
        shapes[f"{name}.up_proj.weight"] = [width, hidden]
        shapes[f"{name}.down_proj.weight"] = [hidden, width]

    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        shapes[at + "self_attn.q_proj.weight"] = [heads * (nope + rope), hidden]
        shapes[at + "self_attn.kv_a_proj_with_mqa.weight"] = [rank + rope, hidden]
        shapes[at + "self_attn.kv_a_layernorm.weight"] = [rank]
        shapes[at + "self_attn.kv_b_proj.weight"] = [heads * (nope + v), rank]
        shapes[at + "self_attn.o_proj.weight"] = [hidden, heads * v]
        if i < config["first_k_dense_replace"]:
            mlp(at + "mlp", config["intermediate_size"])
        else:
            if per_expert:
                for e in range(experts):
                    mlp(f"{at}mlp.experts.{e}", moe)
            else:
                shapes[at + "mlp.experts.gate_up_proj"] = [experts, 2 * moe, hidden]
                shapes[at + "mlp.experts.down_proj"] = [experts, hidden, moe]
            shapes[at + "mlp.gate.weight"] = [experts, hidden]
            mlp(at + "mlp.shared_experts", moe * config["n_shared_experts"])
        shapes[at + "input_layernorm.weight"] = [hidden]
        shapes[at + "post_attention_layernorm.weight"] = [hidden]
    shapes["model.norm.weight"] = [hidden]
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [config["vocab_size"], hidden]
    return shapes


def rule(key, shape):
    """Element i: 24 bits of crc32(key) + i * 2654435761 as a fraction, minus a half."""
    count = torch.Size(shape).numel()
    bits = (zlib.crc32(key.encode()) + torch.arange(count, dtype=torch.int64) * 2654435761) & 0xFFFFFFFF
    return ((bits >> 8).to(torch.float32) * 2.0**-24 - 0.5).reshape(shape)


def filled(key, shape, dtype=torch.float32):
    """Small weights and moments; squares of gradients are positive."""
    if key.endswith(".exp_avg"):
        value = rule(key, shape) * 2.0**-10
    elif key.endswith(".exp_avg_sq"):
        value = (rule(key, shape) + 0.5) * 2.0**-20
    else:
        value = rule(key, shape) * 2.0**-4
    return value.to(dtype)


def module_at(root, path):
    for name in path:
        if not hasattr(root, name):
            root.add_module(name, torch.nn.Module())
        root = getattr(root, name)
    return root


def make_model(config, dtype, per_expert=False, place=lambda tensor: tensor):
    """Modules that hold the parameters and buffers and compute nothing."""
    model = torch.nn.Module()
    for key, shape in shapes_of(config, per_expert).items():
        *path, name = key.split(".")
        tensor = place(filled(key, shape, dtype))
        module_at(model, path).register_parameter(name, torch.nn.Parameter(tensor))
        if key.endswith("mlp.gate.weight"):
            bias = filled(key[:-6] + "e_score_correction_bias", shape[:1])
            module_at(model, path).register_buffer("e_score_correction_bias", bias)
    if config["tie_word_embeddings"]:
        module_at(model, ["lm_head"]).register_parameter("weight", model.model.embed_tokens.weight)
    return model


def take_step(model, optimizer):
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def make_adamw(model, steps=3):
    """AdamW as it is after `steps` steps, but with weights and moments of the rule again."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    for _ in range(steps):
        take_step(model, optimizer)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            put(parameter, filled(key, parameter.shape, parameter.dtype))
            for name in ("exp_avg", "exp_avg_sq"):
                slot = optimizer.state[parameter][name]
                put(slot, filled(f"{key}.{name}", slot.shape, slot.dtype))
    return optimizer


def put(tensor, value):
    if isinstance(tensor, DTensor):
        value = distribute_tensor(value, tensor.device_mesh, tensor.placements)
    tensor.copy_(value)


# --- writing --------------------------------------------------------------------------------------

def writer(folder, files_of_a_rank=1):
    return FileSystemWriter(folder, thread_count=files_of_a_rank)


def write_weights(rank, ranks, folder, config):
    """BF16 weights alone, as one process saves them."""
    state = make_model(config, torch.bfloat16).state_dict()
    dcp.save(state, storage_writer=writer(folder))


def write_adamw(rank, ranks, folder, config):
    """FP32 model and AdamW, cut over the ranks as FSDP does, two files for each rank."""
    mesh = init_device_mesh("cpu", (ranks,))
    model = make_model(config, torch.float32, place=lambda t: distribute_tensor(t, mesh, [Shard(0)]))
    optimizer = make_adamw(model)
    state = get_model_state_dict(model)
    state["optimizer"] = get_optimizer_state_dict(model, optimizer)
    dcp.save(state, storage_writer=writer(folder, 2))


def write_experts(rank, ranks, folder, config):
    """BF16 model of transformers 4 and flat AdamW below "model" and "optimizer"; async_save; HSDP."""
    mesh = init_device_mesh("cpu", (2, ranks // 2))
    model = make_model(config, torch.bfloat16, per_expert=True,
                       place=lambda t: distribute_tensor(t, mesh, [Replicate(), Shard(0)]))
    optimizer = make_adamw(model)
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    state = {"model": get_model_state_dict(model),
             "optimizer": get_optimizer_state_dict(model, optimizer, options=flat)}
    if "small" in sys.argv:  # eleven settings for each parameter
        state["optimizer"] = {k: v for k, v in state["optimizer"].items() if k.startswith("state.")}
    dcp.async_save(state, storage_writer=writer(folder)).result()


class Evil:
    """Calls a program in whoever unpickles it without care."""

    def __reduce__(self):
        return os.system, ("true",)


def write_odd(rank, ranks, folder, config):
    """What octet lists and does not need: other dtypes and layouts, cuts along dim 1, objects."""
    mesh = init_device_mesh("cpu", (ranks,))
    state = {
        "cut.dim0": distribute_tensor(rule("cut.dim0", [5, 3]), mesh, [Shard(0)]),
        "cut.dim1": distribute_tensor(rule("cut.dim1", [6, 10]), mesh, [Shard(1)]),
        "cut.view": distribute_tensor(rule("cut.view", [8, 6]), mesh, [Shard(0)])[:, :4],
        "few.rows": distribute_tensor(rule("few.rows", [1, 4]), mesh, [Shard(0)]),
        "no.rows": torch.empty(0, 4),
        "scalar": torch.tensor(1.5),
        "view": rule("view", [7, 4])[2:5],
        "transposed": rule("transposed", [3, 5]).t(),
        "cube": rule("cube", [3, 4, 5]).to(torch.bfloat16),
        "every.second": rule("every.second", [8, 4])[::2],
        "half": rule("half", [4]).to(torch.float16),
        "double": rule("double", [4]).to(torch.float64),
        "complex": torch.zeros(2, dtype=torch.complex64),
        "e4m3": torch.zeros(8).to(torch.float8_e4m3fn),
        "count": torch.arange(5),
        "mask": torch.tensor([True, False]),
        "layer._extra_state": torch.frombuffer(bytearray(b"extra"), dtype=torch.uint8),
        "other._extra_state": io.BytesIO(b"bytes of another library"),
        "objects": {"i": -5, "big": 1 << 40, "huge": 1 << 80, "f": 0.1, "t": True, "s": "scale \u00e9",
                    "b": b"\0\xff", "none": None, "list": [1, 2, 3], "size": torch.Size([2, 3]),
                    "dtype": torch.bfloat16},
        "evil": Evil(),
    }
    dcp.save(state, storage_writer=writer(folder, 3))


def write_plain(rank, ranks, folder, config):
    """Without the flattening of nested keys: .metadata then has no planner_data."""
    state = make_model(config, torch.bfloat16).state_dict()
    dcp.save(state, storage_writer=writer(folder),
             planner=DefaultSavePlanner(flatten_state_dict=False))


KINDS = {"weights": (write_weights, 1), "adamw": (write_adamw, 3), "experts": (write_experts, 4),
         "odd": (write_odd, 3), "plain": (write_plain, 1)}


# --- ranks ----------------------------------------------------------------------------------------

def run_rank(rank, ranks, meet, work):
    """The process of one rank, to its end; it shares the modules that are loaded."""
    code = 1
    try:
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=ranks)
        work(rank, ranks)
        dist.barrier()
        dist.destroy_process_group()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def in_ranks(ranks, work):
    """Calls work(rank, ranks) in each of `ranks` processes; all have to end well."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as scratch:
        pids = []
        for rank in range(ranks):
            pids.append(os.fork())
            if pids[-1] == 0:
                run_rank(rank, ranks, f"file://{scratch}/meet", work)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    if any(codes):
        sys.exit(f"ranks ended with {codes}")


def read_config(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def main(words):
    action, *rest = words
    if action == "version":
        print("PyTorch", torch.__version__, "Python", sys.version.split()[0])
    elif action == "dump":
        dump(*rest)
    elif action == "nested":
        nested(*rest)
    elif action == "again":
        again(*rest)
    elif action == "adamw":
        adamw(rest[0], read_config(rest[1]))
    elif action == "reshard":
        in_ranks(int(rest[0]), lambda rank, ranks: reshard(rank, ranks, rest[1]))
    elif action == "write":
        kind, folder, config, *small = rest
        write, ranks = KINDS[kind]
        ranks = 2 if small and ranks > 1 else ranks
        if ranks == 1:
            write(0, 1, folder, read_config(config))
        else:
            in_ranks(ranks, lambda rank, n: write(rank, n, folder, read_config(config)))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
