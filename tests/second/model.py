"""The model: parameters, forward and backward pass: training-step.md, sections 2, 5, 6 and 7."""
import math

import linear
from f32 import add, bf16, div, f32, lanes, mul, sub, sum_from
from functions import cos, hexf, log64, pow64, sigmoid, sin
from layers import (attention, attention_back, choose, cross_entropy, norm_back, norm_rows, rotate,
                    rotate_back, swiglu, swiglu_back)
from linear import bias_gradient, columns, Weight
from rng import normals

LATENT_EPS = 1e-6


def zeros(rows, width):
    return [[0.0] * width for _ in range(rows)]


def add_rows(a, b, r):
    return [[r(add(x, y)) for x, y in zip(p, q)] for p, q in zip(a, b)]


class Model:
    """config: an HF config with every field that the pages name. form: None, "mxfp8", "hif8".

    low: the names of the matrices that compute in 8 bits. Masters are lists of rows (for experts a
    list of matrices, for vectors a list of numbers).
    """

    def __init__(self, config, form, low, act, seed):
        self.c, self.form, self.low = config, form, low
        self.r = bf16 if act == "bfloat16" else lambda x: x
        self.shapes = self._shapes()
        self.master = {name: self._initial(name, shape, seed)
                       for name, shape in self.shapes.items()}
        self.correction = {layer: [0.0] * config["n_routed_experts"]
                           for layer in range(config["num_hidden_layers"]) if self.is_moe(layer)}
        self.inv_freq, self.rope_factor, self.softmax_scale = rope_constants(config)
        self.refresh()

    # ---- section 2 -----------------------------------------------------------------------------

    def is_moe(self, layer):
        return layer >= self.c["first_k_dense_replace"]

    def _shapes(self):
        """Name -> shape in tree order (section 2.1)."""
        c, out = self.c, {}
        h, v, a = c["hidden_size"], c["vocab_size"], c["num_attention_heads"]
        dq = c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
        rank, f, e = c["kv_lora_rank"], c["moe_intermediate_size"], c["n_routed_experts"]
        bias = c["attention_bias"]
        out["model.embed_tokens.weight"] = (v, h)
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            s = at + "self_attn."
            if c["q_lora_rank"] is None:
                out[s + "q_proj.weight"] = (a * dq, h)
            else:
                out[s + "q_a_proj.weight"] = (c["q_lora_rank"], h)
                if bias:
                    out[s + "q_a_proj.bias"] = (c["q_lora_rank"],)
                out[s + "q_a_layernorm.weight"] = (c["q_lora_rank"],)
                out[s + "q_b_proj.weight"] = (a * dq, c["q_lora_rank"])
            width = rank + c["qk_rope_head_dim"]
            out[s + "kv_a_proj_with_mqa.weight"] = (width, h)
            if bias:
                out[s + "kv_a_proj_with_mqa.bias"] = (width,)
            out[s + "kv_a_layernorm.weight"] = (rank,)
            out[s + "kv_b_proj.weight"] = (a * (c["qk_nope_head_dim"] + c["v_head_dim"]), rank)
            out[s + "o_proj.weight"] = (h, a * c["v_head_dim"])
            if bias:
                out[s + "o_proj.bias"] = (h,)
            m = at + "mlp."
            i = c["intermediate_size"]
            if self.is_moe(layer):
                out[m + "experts.gate_up_proj"] = (e, 2 * f, h)
                out[m + "experts.down_proj"] = (e, h, f)
                out[m + "gate.weight"] = (e, h)
                m, i = m + "shared_experts.", f * c["n_shared_experts"]
            out[m + "gate_proj.weight"] = (i, h)
            out[m + "up_proj.weight"] = (i, h)
            out[m + "down_proj.weight"] = (h, i)
            out[at + "input_layernorm.weight"] = (h,)
            out[at + "post_attention_layernorm.weight"] = (h,)
        out["model.norm.weight"] = (h,)
        if not c["tie_word_embeddings"]:
            out["lm_head.weight"] = (v, h)
        return out

    def _initial(self, name, shape, seed):
        if len(shape) == 1:
            return [0.0 if name.endswith(".bias") else 1.0] * shape[0]
        flat = normals(seed, name, math.prod(shape), self.c["initializer_range"])
        pad = self.c.get("pad_token_id")
        if name == "model.embed_tokens.weight" and pad is not None:
            flat[pad * shape[1]:(pad + 1) * shape[1]] = [0.0] * shape[1]
        return shaped(flat, shape)

    def refresh(self):
        """Compute copies of all masters."""
        self.copy = {}
        for name, shape in self.shapes.items():
            master = self.master[name]
            form = self.form if name in self.low else None
            if name.endswith("mlp.gate.weight"):
                self.copy[name] = Weight(None, master, lambda x: x)
            elif len(shape) == 1:
                self.copy[name] = [self.r(x) for x in master]
            elif len(shape) == 3:
                self.copy[name] = [Weight(form, matrix, self.r) for matrix in master]
            else:
                self.copy[name] = Weight(form, master, self.r)

    # ---- one micro-batch -------------------------------------------------------------------------

    def run(self, rows, inverse_n=None, counts=None):
        """(loss sum in FP64, gradients). rows: (inputs, targets) of each sequence.

        Without inverse_n = fl32(1/N) there are no gradients. counts: {layer: tokens of each expert},
        added to.
        """
        self.length = len(rows[0][0])
        ids = [t for inputs, _ in rows for t in inputs]
        targets = [t for _, ys in rows for t in ys]
        self.tables = [self._table(p) for p in range(self.length)]
        self.grads = {}
        table = [[self.r(x) for x in row] for row in self.master["model.embed_tokens.weight"]]
        h = [table[t] for t in ids]
        saved = []
        for layer in range(self.c["num_hidden_layers"]):
            h, kept = self._layer(layer, h, counts)
            saved.append(kept)
        z, rstd = norm_rows(h, self.copy["model.norm.weight"], self.c["rms_norm_eps"], self.r)
        tied = self.c["tie_word_embeddings"]
        head = "model.embed_tokens.weight" if tied else "lm_head.weight"
        r = bf16 if self.form and head in self.low else self.r        # of logits and dlogits (section 6)
        logits = linear.forward(z, self.copy[head], r)
        losses = [cross_entropy(row, y, inverse_n, r) for row, y in zip(logits, targets)]
        total = 0.0
        for loss, _ in losses:
            total += loss
        if inverse_n is None:
            return total, None
        d, dw = linear.backward([dl for _, dl in losses], z, self.copy[head], self.r)
        if not tied:
            self.grads[head] = dw
        d, self.grads["model.norm.weight"] = norm_back(d, h, rstd, self.copy["model.norm.weight"],
                                                       self.r)
        for layer in reversed(range(self.c["num_hidden_layers"])):
            d = self._layer_back(layer, d, saved[layer])
        self._embedding_back(d, ids, dw if tied else None)
        return total, self.grads

    def _table(self, position):
        """(C, S) of a position (section 2.2)."""
        out = []
        for f in self.inv_freq:
            angle = mul(float(position), f)
            out.append((self.r(mul(cos(angle), self.rope_factor)),
                        self.r(mul(sin(angle), self.rope_factor))))
        return out

    def _layer(self, layer, h, counts):
        at, eps = f"model.layers.{layer}.", self.c["rms_norm_eps"]
        n1, rstd1 = norm_rows(h, self.copy[at + "input_layernorm.weight"], eps, self.r)
        a, kept_attention = self._attention(at + "self_attn.", n1)
        m = add_rows(h, a, self.r)
        n2, rstd2 = norm_rows(m, self.copy[at + "post_attention_layernorm.weight"], eps, self.r)
        if self.is_moe(layer):
            b, kept_mlp = self._moe(layer, at + "mlp.", n2, counts)
        else:
            b, kept_mlp = self._mlp(at + "mlp.", n2)
        return add_rows(m, b, self.r), (h, rstd1, kept_attention, m, rstd2, kept_mlp)

    def _layer_back(self, layer, d, saved):
        at = f"model.layers.{layer}."
        h, rstd1, kept_attention, m, rstd2, kept_mlp = saved
        back = self._moe_back if self.is_moe(layer) else self._mlp_back
        for function, kept, x, rstd, place, name in (
                (back, kept_mlp, m, rstd2, "mlp.", "post_attention_layernorm.weight"),
                (self._attention_back, kept_attention, h, rstd1, "self_attn.",
                 "input_layernorm.weight")):
            dy = function(at + place, d, kept)
            dx, self.grads[at + name] = norm_back(dy, x, rstd, self.copy[at + name], self.r)
            d = add_rows(d, dx, self.r)
        return d

    def _forward(self, name, x):
        """A linear layer by its name without `.weight`."""
        return linear.forward(x, self.copy[name + ".weight"], self.r, self.copy.get(name + ".bias"))

    def _backward(self, name, dy, x):
        dx, self.grads[name + ".weight"] = linear.backward(dy, x, self.copy[name + ".weight"], self.r)
        if name + ".bias" in self.copy:
            self.grads[name + ".bias"] = bias_gradient(dy)
        return dx

    # ---- attention -------------------------------------------------------------------------------

    def _attention(self, s, x):
        c, r = self.c, self.r
        heads, dn, dr, dv = (c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"],
                             c["v_head_dim"])
        dq, rank = dn + dr, c["kv_lora_rank"]
        kept = {"x": x}
        if c["q_lora_rank"] is None:
            q = self._forward(s + "q_proj", x)
        else:
            kept["q_a"] = self._forward(s + "q_a_proj", x)
            kept["q_norm"], kept["q_rstd"] = norm_rows(
                kept["q_a"], self.copy[s + "q_a_layernorm.weight"], LATENT_EPS, r)
            q = self._forward(s + "q_b_proj", kept["q_norm"])
        kv_a = self._forward(s + "kv_a_proj_with_mqa", x)
        kept["latent"] = [row[:rank] for row in kv_a]
        kept["kv_norm"], kept["kv_rstd"] = norm_rows(
            kept["latent"], self.copy[s + "kv_a_layernorm.weight"], LATENT_EPS, r)
        kv = self._forward(s + "kv_b_proj", kept["kv_norm"])
        turn = [self._rotate(row[rank:], t) for t, row in enumerate(kv_a)]
        context = zeros(len(x), heads * dv)
        kept["heads"] = {}
        for head in range(heads):
            q_head = [row[head * dq:head * dq + dn] +
                      self._rotate(row[head * dq + dn:(head + 1) * dq], t)
                      for t, row in enumerate(q)]
            at = head * (dn + dv)
            k_head = [row[at:at + dn] + turn[t] for t, row in enumerate(kv)]
            v_head = [row[at + dn:at + dn + dv] for row in kv]
            for first in range(0, len(x), self.length):
                part = slice(first, first + self.length)
                out, lse = attention(q_head[part], k_head[part], v_head[part], self.softmax_scale, r)
                kept["heads"][head, first] = (out, lse, q_head[part], k_head[part], v_head[part])
                for t, row in enumerate(out):
                    context[first + t][head * dv:(head + 1) * dv] = row
        kept["context"] = context
        return self._forward(s + "o_proj", context), kept

    def _rotate(self, x, t):
        return rotate(x, self.tables[t % self.length], self.c["rope_interleave"], self.r)

    def _rotate_back(self, dy, t):
        return rotate_back(dy, self.tables[t % self.length], self.c["rope_interleave"], self.r)

    def _attention_back(self, s, dy, kept):
        c, r = self.c, self.r
        heads, dn, dr, dv = (c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"],
                             c["v_head_dim"])
        dq_width, x = dn + dr, kept["x"]
        dcontext = self._backward(s + "o_proj", dy, kept["context"])
        tokens = len(x)
        dq, dkv = zeros(tokens, heads * dq_width), zeros(tokens, heads * (dn + dv))
        slices = [[] for _ in range(tokens)]            # of each token, dk's end of each head
        for head in range(heads):
            for first in range(0, tokens, self.length):
                out, lse, q, k, v = kept["heads"][head, first]
                part = [row[head * dv:(head + 1) * dv]
                        for row in dcontext[first:first + self.length]]
                dq_head, dk_head, dv_head = attention_back(part, out, lse, q, k, v,
                                                           self.softmax_scale, r)
                for i in range(self.length):
                    t = first + i
                    dq[t][head * dq_width:(head + 1) * dq_width] = \
                        dq_head[i][:dn] + self._rotate_back(dq_head[i][dn:], t)
                    dkv[t][head * (dn + dv):(head + 1) * (dn + dv)] = dk_head[i][:dn] + dv_head[i]
                    slices[t].append(dk_head[i][dn:])
        # kv path
        dnorm = self._backward(s + "kv_b_proj", dkv, kept["kv_norm"])
        name = s + "kv_a_layernorm.weight"
        dlatent, self.grads[name] = norm_back(dnorm, kept["latent"], kept["kv_rstd"],
                                              self.copy[name], r)
        turn = [self._rotate_back([r(sum_from(column)) for column in zip(*slices[t])], t)
                for t in range(tokens)]
        dx_kv = self._backward(s + "kv_a_proj_with_mqa", [a + b for a, b in zip(dlatent, turn)], x)
        # q path
        if c["q_lora_rank"] is None:
            dx_q = self._backward(s + "q_proj", dq, x)
        else:
            dnorm = self._backward(s + "q_b_proj", dq, kept["q_norm"])
            name = s + "q_a_layernorm.weight"
            dq_a, self.grads[name] = norm_back(dnorm, kept["q_a"], kept["q_rstd"], self.copy[name], r)
            dx_q = self._backward(s + "q_a_proj", dq_a, x)
        return add_rows(dx_kv, dx_q, r)

    # ---- mlp -------------------------------------------------------------------------------------

    def _mlp(self, m, x):
        gate, up = self._forward(m + "gate_proj", x), self._forward(m + "up_proj", x)
        act = [swiglu(g, u, self.r) for g, u in zip(gate, up)]
        return self._forward(m + "down_proj", act), (x, gate, up, act)

    def _mlp_back(self, m, dy, kept):
        x, gate, up, act = kept
        dact = self._backward(m + "down_proj", dy, act)
        parts = [swiglu_back(d, g, u, self.r) for d, g, u in zip(dact, gate, up)]
        dx_up = self._backward(m + "up_proj", [du for _, du in parts], x)
        dx_gate = self._backward(m + "gate_proj", [dg for dg, _ in parts], x)
        return add_rows(dx_up, dx_gate, self.r)

    # ---- moe -------------------------------------------------------------------------------------

    def _moe(self, layer, m, x, counts):
        c, r = self.c, self.r
        experts, f = c["n_routed_experts"], c["moe_intermediate_size"]
        logits = linear.multiply(None, x, None, self.copy[m + "gate.weight"].fprop, None, len(x[0]))
        scores = [[sigmoid(v) for v in row] for row in logits]
        slots, weights, sums = [], [], []
        factor = f32(c["routed_scaling_factor"])
        for s in scores:
            chosen = choose(s, self.correction[layer], c["num_experts_per_tok"], c["n_group"],
                            c["topk_group"])
            slots.append(chosen)
            if c["norm_topk_prob"]:
                total = add(sum_from(s[e] for e in chosen), f32(1e-20))
                weights.append([mul(div(s[e], total), factor) for e in chosen])
            else:
                total = 1.0
                weights.append([mul(s[e], factor) for e in chosen])
            sums.append(total)
        out, kept_experts = [{} for _ in x], []
        for e in range(experts):
            tokens = [t for t, chosen in enumerate(slots) if e in chosen]
            rows = [x[t] for t in tokens]
            both = linear.forward(rows, self.copy[m + "experts.gate_up_proj"][e], r)
            act = [swiglu(row[:f], row[f:], r) for row in both]
            y = linear.forward(act, self.copy[m + "experts.down_proj"][e], r)
            for t, row in zip(tokens, y):
                out[t][e] = row
            kept_experts.append((tokens, rows, both, act))
            if counts is not None:
                counts[layer][e] += len(tokens)
        shared, kept_shared = self._mlp(m + "shared_experts.", x)
        y = []
        for t, chosen in enumerate(slots):
            routed = [r(sum_from(mul(out[t][e][i], w) for e, w in zip(chosen, weights[t])))
                      for i in range(len(x[0]))]
            y.append([r(add(a, b)) for a, b in zip(routed, shared[t])])
        return y, (x, scores, slots, weights, sums, out, kept_experts, kept_shared)

    def _moe_back(self, m, dy, kept):
        c, r = self.c, self.r
        x, scores, slots, weights, sums, out, kept_experts, kept_shared = kept
        f, width = c["moe_intermediate_size"], len(x[0])
        dx = self._mlp_back(m + "shared_experts.", dy, kept_shared)
        # experts
        dparts, dup, ddown = [{} for _ in x], [], []
        for e, (tokens, rows, both, act) in enumerate(kept_experts):
            d = []
            for t in tokens:
                w = weights[t][slots[t].index(e)]
                d.append([r(mul(w, v)) for v in dy[t]])
            dact, dw = linear.backward(d, act, self.copy[m + "experts.down_proj"][e], r)
            ddown.append(dw)
            halves = [swiglu_back(a, row[:f], row[f:], r) for a, row in zip(dact, both)]
            d, dw = linear.backward([dg + du for dg, du in halves], rows,
                                    self.copy[m + "experts.gate_up_proj"][e], r)
            dup.append(dw)
            for t, row in zip(tokens, d):
                dparts[t][e] = row
        self.grads[m + "experts.down_proj"], self.grads[m + "experts.gate_up_proj"] = ddown, dup
        part = [[r(sum_from(dparts[t][e][i] for e in slots[t])) for i in range(width)]
                for t in range(len(x))]
        dx = add_rows(dx, part, r)
        # router
        factor, dlogits = f32(c["routed_scaling_factor"]), []
        for t, chosen in enumerate(slots):
            dw = [lanes(out[t][e], dy[t]) for e in chosen]
            q = sum_from((mul(a, w) for a, w in zip(dw, weights[t])), 0.0) \
                if c["norm_topk_prob"] else 0.0
            row = [0.0] * c["n_routed_experts"]
            for e, a in zip(chosen, dw):
                s = scores[t][e]
                ds = div(sub(mul(factor, a), q), sums[t])
                row[e] = mul(ds, mul(s, sub(1.0, s)))
            dlogits.append(row)
        weight = self.copy[m + "gate.weight"]
        dx_router, self.grads[m + "gate.weight"] = linear.backward(dlogits, x, weight, r)
        return add_rows(dx, dx_router, r)

    # ---- embedding -------------------------------------------------------------------------------

    def _embedding_back(self, d, ids, head):
        vocab, width = self.shapes["model.embed_tokens.weight"]
        dw = zeros(vocab, width)
        pad = self.c.get("pad_token_id")
        for t, row in zip(ids, d):
            if t != pad:
                dw[t] = [add(a, b) for a, b in zip(dw[t], row)]
        if head is not None:
            dw = [[add(a, b) for a, b in zip(p, q)] for p, q in zip(head, dw)]
        self.grads["model.embed_tokens.weight"] = dw


def shaped(flat, shape):
    """Nested lists of a flat list."""
    if len(shape) == 1:
        return flat
    size = math.prod(shape[1:])
    return [shaped(flat[i * size:(i + 1) * size], shape[1:]) for i in range(shape[0])]


def flat_of(value):
    if value and isinstance(value[0], list):
        return [x for part in value for x in flat_of(part)]
    return value


def rope_constants(c):
    """(inv_freq, rope_factor, softmax_scale): section 2.2."""
    dr, dq = c["qk_rope_head_dim"], c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
    theta, rope = float(c["rope_theta"]), c.get("rope_scaling")
    f = [pow64(theta, -2.0 * i / dr) for i in range(dr // 2)]
    if rope is None:
        return [f32(x) for x in f], 1.0, f32(1 / math.sqrt(dq))
    factor, original = float(rope["factor"]), rope["original_max_position_embeddings"]

    def d(b):
        return dr * log64(original / (b * hexf("0x1.921fb54442d18p+2"))) / (2 * log64(theta))

    def m(s):
        return 0.1 * s * log64(factor) + 1 if factor > 1 else 1.0

    low, high = d(rope.get("beta_fast", 32.0)), d(rope.get("beta_slow", 1.0))
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dr - 1)
    if low == high:
        high += 0.001
    inv_freq = []
    for i, f_i in enumerate(f):
        ramp = min(max((i - low) / (high - low), 0.0), 1.0)
        inv_freq.append(f32(ramp * (f_i / factor) + (1 - ramp) * f_i))
    given = rope.get("attention_factor")
    scale, all_dim = rope.get("mscale"), rope.get("mscale_all_dim")
    if given:
        rope_factor = f32(given)
    elif scale and all_dim:
        rope_factor = f32(m(scale) / m(all_dim))
    else:
        rope_factor = f32(m(1.0))
    softmax = 1 / math.sqrt(dq)
    if all_dim:
        softmax = softmax * m(all_dim) * m(all_dim)
    return inv_freq, rope_factor, f32(softmax)
