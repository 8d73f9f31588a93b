"""`octet train` against the same training done here: losses, gradient norm, every tensor.

    python3 check_step.py OCTET [long] [only=NAME ...] [random=SEED ...]

Each case trains a tiny model for a few steps. Compared are, of each attempt, loss, grad_norm and lr of
metrics.jsonl, after the last one every tensor of the checkpoint and its layout, and one more loss if
the case asks for it. `long` runs all cases and 20 random ones, only= a case, random= the one of a seed.
"""
import json
import math
import os
import random
import sys
import tempfile
import time

import data
import dcp
from check import Check
from f32 import bf16_bits, bits
from linear import Counter
from model import flat_of, Model
from step import Trainer
from tools import Octet

# Dims that are no multiples of the block of 32, nor of the 16 lanes.
TINY = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "vocab_size": 50, "hidden_size": 40, "intermediate_size": 36, "moe_intermediate_size": 20,
    "num_hidden_layers": 2, "first_k_dense_replace": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.0,
    "q_lora_rank": None, "kv_lora_rank": 33, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
    "v_head_dim": 12, "max_position_embeddings": 1024, "rms_norm_eps": 1e-6,
    "initializer_range": 0.1, "rope_theta": 10000.0, "rope_scaling": None, "rope_interleave": True,
    "attention_bias": False, "attention_dropout": 0.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "use_cache": False, "torch_dtype": "bfloat16",
}
TRAINING = {
    "train_iters": 4, "seq_length": 18, "global_batch_size": 2, "micro_batch_size": 2,
    "max_grad_norm": 1.0, "reduce_dtype": "float32", "lr": 3e-3, "betas": [0.9, 0.95], "eps": 1e-8,
    "weight_decay": 0.1, "warmup_steps": 0, "decay_ratio": None, "decay_type": "linear",
    "min_lr_factor": 0.0, "bias_update_rate": 0.0,
}
SECTION = {"lr": "optimizer", "betas": "optimizer", "eps": "optimizer", "weight_decay": "optimizer",
           "warmup_steps": "lr_scheduler", "decay_ratio": "lr_scheduler",
           "decay_type": "lr_scheduler", "min_lr_factor": "lr_scheduler",
           "bias_update_rate": "moe"}
LINEAR = ("hyper_models.components.training.low_precision.modules.linear."
          "replace_low_precision_linear")
EXPERTS = ("hyper_models.components.models.adapters.deepseek_v3.low_precision."
           "replace_deepseek_v3_low_precision_experts")
EXPERTS_TYPE = "transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3Experts"
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 2.0,
        "beta_slow": 0.1}

STATE = ("step", "attempt", "samples", "ntokens_seen", "consecutive_skips", "global_batch_size",
         "micro_batch_size", "seq_length", "seed", "shuffle", "format", "tokenizer", "data")


def rule(patterns, module_type, target):
    return {"match": patterns, "when": "low_precision", "module_type": module_type,
            "exact_type": True, "replace_module": {"_target_": target}}


class Case:
    """model, training: what differs from TINY and TRAINING. form: None, mxfp8 or hif8."""

    def __init__(self, name, form, steps=1, more_loss=True, model=None, training=None,
                 act="bfloat16", seed=2026, shuffle=False, head=False, extra=None, text=False,
                 validation=0, targets=("linear", "experts")):
        """targets: what computes in 8 bits. steps: updates. more_loss: one more forward pass after them. head: lm_head in 8 bits.
        validation: batches of the validation after each step. extra: more keys."""
        self.name, self.form, self.steps, self.more_loss = name, form, steps, more_loss
        self.model = {**TINY, **(model or {})}
        self.training = {**TRAINING, **(training or {})}
        self.act, self.seed, self.shuffle, self.head = act, seed, shuffle, head
        self.targets = targets
        self.extra, self.text, self.validation = extra or {}, text, validation

    def low(self):
        """Names of the matrices that compute in 8 bits, and the rules that say so."""
        if self.form is None:
            return set(), []
        patterns = ["model.layers.*.self_attn.*_proj", "model.layers.*.self_attn.kv_a_proj_with_mqa"]
        if "linear" not in self.targets:
            experts = {n for n, shape in self.ours.shapes.items() if len(shape) == 3}
            return experts, [rule("model.layers.*.mlp.experts", EXPERTS_TYPE, EXPERTS)]
        dense = self.model["first_k_dense_replace"]
        layers = self.model["num_hidden_layers"]
        patterns += [f"model.layers.{i}.mlp.*_proj" for i in range(min(dense, layers))]
        rules = []
        if dense < layers:
            patterns.append("model.layers.*.mlp.shared_experts.*_proj")
            rules.append(rule("model.layers.*.mlp.experts", EXPERTS_TYPE, EXPERTS))
        if self.head:
            patterns.append("lm_head")
        rules.append(rule(patterns, "torch.nn.Linear", LINEAR))
        high = {"model.embed_tokens.weight"} | (set() if self.head else {"lm_head.weight"})
        names = [n for n, shape in self.ours.shapes.items() if len(shape) > 1 and n not in high
                 and not n.endswith("mlp.gate.weight")]
        return set(names), rules

    def build(self, folder):
        """Our model, and the files that octet reads."""
        self.ours = Model(self.model, None, set(), self.act, self.seed)
        low, rules = self.low()
        self.ours.form, self.ours.low = self.form, low
        self.ours.refresh()
        config = {"seed": self.seed, "plan_overrides": rules,
                  "model": {"config_name_or_path": "model", "torch_dtype": self.act},
                  "dataset": {"path": self._data(folder), "shuffle": self.shuffle},
                  "training": {"stop_at_step": self.steps + self.more_loss},
                  "checkpoint": {"save_steps": self.steps, "keep_latest_k": 0, "async": False}}
        if self.form is not None:
            config["low_precision"] = {
                "enabled": True, "format": {"mxfp8": "mxfp8_e4m3", "hif8": "hif8"}[self.form],
                "scaling": {"mxfp8": "mx_block", "hif8": "current"}[self.form]}
        for key, value in self.training.items():
            config.setdefault(SECTION.get(key, "training"), {})[key] = value
        if self.validation:
            n = self.training["seq_length"]
            ids = [random.Random(n + i).randrange(self.model["vocab_size"]) for i in range(5 * n)]
            data.write_shard(os.path.join(folder, "validation.bin"), ids, 2 ** 16, 2, "tiny")
            self.held_out = data.Dataset([os.path.join(folder, "validation.bin")], n)
            config["dataset"]["validation"] = {"path": "validation.bin", "every": 1,
                                               "steps": self.validation}
        for path, value in self.extra.items():
            section, key = path.split(".")
            config.setdefault(section, {})[key] = value
        os.makedirs(os.path.join(folder, "model"))
        for name, content in (("model/config.json", self.model), ("run.yaml", config)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                json.dump(content, f)

    def _data(self, folder):
        """Writes the dataset; gives dataset.path and sets self.dataset."""
        rng = random.Random(self.name)
        n = self.training["seq_length"]
        vocab = self.model["vocab_size"]
        if self.text:
            entries = ["text/b.txt", "text", "text/*.c", "text/[a-d]*"]
            os.makedirs(os.path.join(folder, "text/deep"))
            os.makedirs(os.path.join(folder, "text/.git"))
            for name in ("b.txt", "a.c", "deep/z.c", "B.c", "deep.c", "deep-er", ".git/x", ".x.c"):
                with open(os.path.join(folder, "text", name), "w", encoding="utf-8") as f:
                    f.write("".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(9, 60))))
            os.symlink("deep.c", os.path.join(folder, "text/link"))
            os.symlink("deep", os.path.join(folder, "text/folder"))
            open(os.path.join(folder, "text/empty"), "wb").close()
        else:
            entries = ["first.bin", "second.bin"]
            for name, width in zip(entries, (2, 4)):
                ids = [rng.choice((rng.randrange(vocab), rng.randrange(5))) for _ in range(4 * n + 7)]
                data.write_shard(os.path.join(folder, name), ids, vocab, width, "tiny")
        here = os.getcwd()
        os.chdir(folder)                                    # paths as octet sees them
        self.dataset = data.Dataset(entries, n)
        os.chdir(here)
        return entries

    def sample(self, position):
        return self.dataset.sample(data.sample_at(position, self.dataset.samples, self.seed,
                                                  self.shuffle))


def read_metrics(folder, kind):
    with open(os.path.join(folder, "run", "metrics.jsonl"), encoding="utf-8") as f:
        return [row for row in map(json.loads, f) if row["kind"] == kind]


def text(x):
    """A number of metrics.jsonl to the bit; null stands for those that are not finite."""
    return None if x is None or not math.isfinite(x) else float(x).hex()


def compare(check, octet, case):
    case.build(octet.folder)
    octet.run("train", "run.yaml", "--run-dir", "run")
    metrics = read_metrics(octet.folder, "train")
    validations = read_metrics(octet.folder, "validation")
    trainer, attempt = Trainer(case.ours, case.training, case.sample), 0
    while trainer.updates < case.steps:
        before = Counter.fma_routes
        loss, norm, lr = trainer.step()
        where, row = f"{case.name} attempt {attempt + 1}", metrics[attempt]
        check.same("losses", where, text(row["loss"]), text(loss))
        check.same("gradient norms", where, text(row["grad_norm"]), text(norm))
        check.same("skipped", where, row["skipped"], norm is None)
        check.same("learning rates", where, text(row["lr"]), text(lr))
        # octet counts a grouped product once, whatever the number of its experts
        routes, counted = Counter.fma_routes - before, row["fma_matmuls"]
        check.require("FMA routes", f"{where}: found {counted}, ours {routes}",
                      counted == routes or case.ours.correction and 0 < counted < routes)
        if case.validation:
            check.same("losses", f"{where}, validation", text(validations[attempt]["loss"]),
                       text(trainer.validation(case.held_out, case.validation)))
        attempt += 1
    folder = os.path.join(octet.folder, "run", "checkpoints", f"step-{case.steps}")
    commit = dcp.verify(folder)
    check.same("layout of the checkpoint", case.name, dcp.layout_faults(folder)[:3], [])
    state = dcp.train_state(folder)
    model = json.loads(state.pop("model"))
    check.same("train_state", case.name, (model, set(state) - set(STATE)), (commit["model"], set()))
    t = case.training
    for key, value in (
            ("step", trainer.updates), ("attempt", attempt), ("samples", trainer.position),
            ("ntokens_seen", trainer.position * t["seq_length"]), ("consecutive_skips", 0),
            ("global_batch_size", t["global_batch_size"]),
            ("micro_batch_size", t["micro_batch_size"]), ("seq_length", t["seq_length"]),
            ("seed", case.seed), ("shuffle", int(case.shuffle)),
            ("format", {None: case.act, "mxfp8": "mxfp8_e4m3", "hif8": "hif8"}[case.form]),
            ("tokenizer", "bytes" if case.text else "tiny")):
        check.same("train_state", f"{case.name} {key}", state[key], value)
    compare_tensors(check, case, trainer, dcp.load(folder))
    if case.more_loss:
        check.same("losses", f"{case.name}, one more", text(metrics[attempt]["loss"]),
                   text(trainer.loss()))


def compare_tensors(check, case, trainer, found):
    model = case.ours
    required = {}
    for name, shape in model.shapes.items():
        master = flat_of(model.master[name])
        state = f"optimizer.state.{name}."
        required[name] = ([bf16_bits(x) for x in master], "BFloat16Storage", shape)
        required[state + "master"] = ([bits(x) for x in master], "FloatStorage", shape)
        required[state + "exp_avg"] = ([bits(x) for x in trainer.m[name]], "FloatStorage", shape)
        required[state + "exp_avg_sq"] = ([bits(x) for x in trainer.v[name]], "FloatStorage", shape)
        required[state + "step"] = ([bits(float(trainer.updates))], "FloatStorage", ())
    for layer, bias in model.correction.items():
        required[f"model.layers.{layer}.mlp.gate.e_score_correction_bias"] = (
            [bits(x) for x in bias], "FloatStorage", (len(bias),))
    check.same("keys of the checkpoint", case.name, sorted(found), sorted(required))
    for key, (patterns, dtype, shape) in required.items():
        there, there_dtype, there_shape = found.get(key, ([], None, None))
        check.same("tensors", f"{case.name} {key}", (there_dtype, there_shape), (dtype, shape))
        wrong = [(i, f"{a:x}", f"{b:x}") for i, (a, b) in enumerate(zip(there, patterns)) if a != b]
        check.same("tensors", f"{case.name} {key}: {len(wrong)} of {len(patterns)} elements",
                   wrong[:2], [])


ROUTED = {"num_hidden_layers": 2, "first_k_dense_replace": 0, "n_routed_experts": 8, "n_group": 4,
          "topk_group": 2, "num_experts_per_tok": 3, "n_shared_experts": 2, "norm_topk_prob": False,
          "routed_scaling_factor": 2.5}
SPARSE = {**ROUTED, "norm_topk_prob": True, "num_experts_per_tok": 1}     # experts without rows
LORA = {"q_lora_rank": 35, "attention_bias": True, "rope_scaling": YARN}
TIED = {"tie_word_embeddings": True, "pad_token_id": 3}
DENSE = {"first_k_dense_replace": 2}
NARROW = {**DENSE, "hidden_size": 16}
ACCUMULATE = {"global_batch_size": 3, "micro_batch_size": 1, "bias_update_rate": 0.01}
MSCALE = {**YARN, "mscale": 0.7, "mscale_all_dim": 1.2}

SHORT = [
    Case("bf16", None),
    Case("mxfp8", "mxfp8"),
    Case("hif8", "hif8"),
    Case("float32, q lora, biases, yarn with mscale", None, act="float32",
         model={**LORA, "rope_scaling": MSCALE}),
    Case("groups of experts, accumulation in bf16, balance", "mxfp8", model=ROUTED,
         training={**ACCUMULATE, "reduce_dtype": "bfloat16", "seq_length": 8}),
    Case("experts without rows", "hif8", steps=2, model=SPARSE,
         training={"seq_length": 3, "micro_batch_size": 1, "bias_update_rate": 0.1}),
    Case("tied, padding, halves rotated, no clipping", None, model={
        **TIED, **DENSE, "rope_interleave": False}, training={
        "max_grad_norm": 0.0, "weight_decay": 0.0, "eps": 1e-3, "betas": [0.0, 0.5]}),
    Case("more than a tile of keys", None, act="float32", model={**NARROW, "num_hidden_layers": 1,
                                                                 "first_k_dense_replace": 1},
         training={"seq_length": 67, "global_batch_size": 1, "micro_batch_size": 1}),
    Case("text, shuffled, warmup, cosine", "mxfp8", steps=4, shuffle=True, text=True, seed=7,
         model={**NARROW, "vocab_size": 257}, training={
             "seq_length": 3, "warmup_steps": 2, "decay_type": "cosine", "min_lr_factor": 0.1},
         more_loss=False),
]
LONG = SHORT + [
    Case("dense, q lora, biases, yarn", "mxfp8", model={**LORA, **DENSE}),
    Case("biases without q lora, yarn with attention_factor", "hif8", act="float32", model={
        "attention_bias": True,
        "rope_scaling": {**YARN, "attention_factor": 1.3, "truncate": False}}),
    Case("groups of experts, bf16", None, steps=2, model=ROUTED, training=ACCUMULATE),
    Case("groups of experts, hif8", "hif8", steps=2, model=ROUTED, training=ACCUMULATE),
    Case("experts without rows, mx", "mxfp8", steps=2, model=SPARSE,
         training={"seq_length": 3, "micro_batch_size": 1, "bias_update_rate": 0.1}),
    Case("tied, hif8", "hif8", model=TIED, training={"reduce_dtype": "bfloat16",
                                                     "micro_batch_size": 1}),
    Case("one token", "hif8", training={
        "seq_length": 1, "global_batch_size": 1, "micro_batch_size": 1}),
    Case("more than a chunk of 2048", "mxfp8", model={
        "hidden_size": 2100, "vocab_size": 5, "intermediate_size": 3, "moe_intermediate_size": 3,
        "kv_lora_rank": 4, "num_attention_heads": 1, "num_key_value_heads": 1}, training={
        "seq_length": 2}),
    Case("least dims", "mxfp8", model={
        "hidden_size": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "qk_nope_head_dim": 1,
        "qk_rope_head_dim": 2, "v_head_dim": 1, "kv_lora_rank": 1, "q_lora_rank": 1,
        "intermediate_size": 1, "moe_intermediate_size": 1, "n_routed_experts": 2,
        "num_experts_per_tok": 1}),
    Case("all experts", "hif8", act="float32", model={"num_experts_per_tok": 4}),
    Case("only experts in 8 bits", "mxfp8", act="float32", targets=("experts",)),
    Case("head in 8 bits, mx", "mxfp8", head=True),
    Case("head in 8 bits, hif8", "hif8", head=True),
    Case("head in 8 bits, float32", "mxfp8", act="float32", head=True),
    Case("large weights, mx", "mxfp8", model={"initializer_range": 0.7}),
    Case("large weights, hif8", "hif8", model={"initializer_range": 0.7}),
    Case("subnormal weights", "mxfp8", model={"initializer_range": 3e-39}),
    Case("equal scores", "hif8", model={"initializer_range": 0.0}),
    Case("skips, bf16", None, steps=3, more_loss=False, model={
        **NARROW, "initializer_range": 5e18}, training={
        "seq_length": 4, "global_batch_size": 1, "micro_batch_size": 1},
         extra={"training.max_consecutive_skips": 100}),
    Case("validation", "hif8", steps=2, model=DENSE, training={
        "seq_length": 5, "global_batch_size": 3, "micro_batch_size": 1}, validation=3),
    Case("linear decay after a plateau", None, steps=7, shuffle=True, seed=9007199254740992,
         model=NARROW, training={"seq_length": 3, "train_iters": 9, "warmup_steps": 1,
                                 "decay_ratio": 0.5, "min_lr_factor": 0.3}, more_loss=False),
    Case("square root", "hif8", steps=3, model=NARROW, training={
        "seq_length": 3, "train_iters": 3, "decay_type": "sqrt"}, more_loss=False),
    Case("only warmup", None, steps=3, model=NARROW, training={
        "seq_length": 3, "train_iters": 3, "warmup_steps": 3, "decay_type": "sqrt"},
        more_loss=False),
    Case("constant rate", None, steps=3, model=NARROW, training={
        "seq_length": 3, "train_iters": 3, "decay_ratio": 1.0, "decay_type": "constant"},
        more_loss=False),
    Case("recomputation", "mxfp8", extra={"gradient_checkpointing.activation_checkpoint": "full"},
         training={"bias_update_rate": 0.01}),
]


def random_case(seed):
    """A case with every dim and option drawn at random."""
    rng = random.Random(seed)
    heads, experts = rng.randrange(1, 4), rng.choice((2, 4, 6, 12))
    groups = rng.choice([g for g in (1, 2, 3) if experts % g == 0 and experts // g >= 2])
    opened = rng.randrange(1, groups + 1)
    layers = rng.randrange(1, 3)
    model = {
        "vocab_size": rng.randrange(5, 80), "hidden_size": rng.randrange(1, 75),
        "intermediate_size": rng.randrange(1, 75), "moe_intermediate_size": rng.randrange(1, 40),
        "num_hidden_layers": layers, "first_k_dense_replace": rng.randrange(layers + 1),
        "num_attention_heads": heads, "num_key_value_heads": heads, "n_routed_experts": experts,
        "n_group": groups, "topk_group": opened, "n_shared_experts": rng.randrange(1, 3),
        "num_experts_per_tok": rng.randrange(1, experts // groups * opened + 1),
        "norm_topk_prob": rng.random() < 0.6, "routed_scaling_factor": rng.choice((1.0, 2.5, 0.3)),
        "q_lora_rank": rng.choice((None, rng.randrange(1, 50))), "kv_lora_rank": rng.randrange(1, 70),
        "qk_nope_head_dim": rng.randrange(1, 20), "qk_rope_head_dim": 2 * rng.randrange(1, 9),
        "v_head_dim": rng.randrange(1, 20), "rms_norm_eps": rng.choice((1e-6, 1e-5, 1e-2)),
        "initializer_range": rng.choice((0.02, 0.1, 0.3, 1.0, 5.0, 1e-4, 1e-12, 1e3)),
        "rope_theta": rng.choice((10000.0, 500.0, 5e5)), "rope_interleave": rng.random() < 0.7,
        "attention_bias": rng.random() < 0.4, "tie_word_embeddings": rng.random() < 0.3}
    if rng.random() < 0.3:
        model["pad_token_id"] = rng.randrange(model["vocab_size"])
    if rng.random() < 0.4:
        model["rope_scaling"] = {
            "type": "yarn", "factor": rng.choice((1.0, 1.5, 4, 40.0)),
            "original_max_position_embeddings": rng.choice((8, 64, 4096)),
            "beta_fast": rng.choice((32, 2.0)), "beta_slow": rng.choice((1, 0.1)),
            "mscale": rng.choice((0.7, 1.0, 0.0)), "mscale_all_dim": rng.choice((1.0, 0.5, 0.0)),
            "truncate": rng.random() < 0.7}
    rows = rng.randrange(1, 4)
    training = {
        "seq_length": rng.choice((1, 2, 7, 16, 33, 40)), "micro_batch_size": rows,
        "global_batch_size": rows * rng.randrange(1, 3), "train_iters": rng.randrange(3, 7),
        "max_grad_norm": rng.choice((1.0, 0.0, 0.1, 100.0)),
        "reduce_dtype": rng.choice(("float32", "bfloat16")), "lr": rng.choice((1e-3, 0.1, 3.0)),
        "betas": [rng.choice((0.0, 0.9)), rng.choice((0.95, 0.999, 0.0))],
        "eps": rng.choice((1e-8, 1e-15, 1e-3)), "weight_decay": rng.choice((0.0, 0.1, 1.0)),
        "warmup_steps": rng.randrange(3), "decay_ratio": rng.choice((None, 0.3, 0.5, 1.0)),
        "decay_type": rng.choice(("linear", "sqrt", "cosine", "constant")),
        "min_lr_factor": rng.choice((0.0, 0.1)), "bias_update_rate": rng.choice((0.0, 0.001, 0.1))}
    form = rng.choice((None, "mxfp8", "hif8"))
    act = "float32" if rng.random() < 0.4 else "bfloat16"
    return Case(f"random {seed}", form, steps=rng.randrange(1, 3), model=model, training=training,
                act=act, seed=rng.randrange(2 ** 53), shuffle=rng.random() < 0.5,
                head=form is not None and not model["tie_word_embeddings"] and
                rng.random() < 0.3,
                extra={"training.max_consecutive_skips": 50})


def main():
    check = Check("losses", "gradient norms", "skipped", "learning rates", "FMA routes", "layout of the checkpoint", "train_state",
                  "keys of the checkpoint", "tensors")
    words = sys.argv[2:]
    only = [word[5:] for word in words if word.startswith("only=")]
    seeds = [int(word[7:]) for word in words if word.startswith("random=")]
    cases = [case for case in LONG if case.name in only]
    if not words or "long" in words:
        cases += LONG if words else SHORT
        seeds += range(20) if words else ()
    for case in cases + [random_case(seed) for seed in seeds]:
        start = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            compare(check, Octet(sys.argv[1], folder), case)
        print(f"{case.name}: {time.process_time() - start:.1f} s")
    check.end()


main()
