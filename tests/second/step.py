"""One training step: training-step.md, sections 3, 8 and 9."""
import math

from f32 import add, bf16, div, f32, fma, INF, mul, sqrt
from functions import cospi, powi
from model import flat_of, shaped


class Trainer:
    """State between steps: masters, moments, correction biases, number of updates, p0.

    t: a dict of the keys of training, optimizer, lr_scheduler and moe that the pages name, without
    the name of their section.
    """

    def __init__(self, model, t, sample_of):
        """sample_of(position): (inputs, targets)."""
        self.model, self.t, self.sample_of = model, t, sample_of
        self.m = {name: [0.0] * math.prod(shape) for name, shape in model.shapes.items()}
        self.v = {name: [0.0] * math.prod(shape) for name, shape in model.shapes.items()}
        self.updates = self.position = 0

    def _micro_batches(self):
        t = self.t
        for m in range(t["global_batch_size"] // t["micro_batch_size"]):
            first = self.position + m * t["micro_batch_size"]
            yield [self.sample_of(first + i) for i in range(t["micro_batch_size"])]

    def loss(self):
        """The loss of the next step, without doing it."""
        n = self.t["global_batch_size"] * self.t["seq_length"]
        total = 0.0
        for rows in self._micro_batches():
            total += self.model.run(rows)[0]
        return total / n

    def validation(self, held_out, batches):
        """The loss over `batches` global batches of a Dataset, from its first sample on."""
        size, total = self.t["micro_batch_size"], 0.0
        count = batches * self.t["global_batch_size"]
        for first in range(0, count, size):
            total += self.model.run([held_out.sample((first + i) % held_out.samples)
                                     for i in range(size)])[0]
        return total / (count * held_out.n)

    def step(self):
        """(loss, gradient norm, lr). On a non-finite norm only the position changes."""
        t, model = self.t, self.model
        n = t["global_batch_size"] * t["seq_length"]
        counts = {layer: [0] * model.c["n_routed_experts"] for layer in model.correction}
        rho = bf16 if t["reduce_dtype"] == "bfloat16" else lambda x: x
        total, sums = 0.0, None
        for rows in self._micro_batches():
            loss, grads = model.run(rows, f32(1 / n), counts)
            total += loss
            done = {name: [rho(x) for x in flat_of(grads[name])] for name in model.shapes}
            sums = done if sums is None else {
                name: [add(a, b) for a, b in zip(sums[name], done[name])] for name in sums}
        self.position += t["global_batch_size"]
        norm = self._norm(sums)
        lr = self.learning_rate()
        if norm is not None:
            self._balance(counts)
            self._adamw(sums, norm, lr)
            self.updates += 1
            model.refresh()
        return total / n, norm, lr

    def _norm(self, grads):
        """The gradient norm; None if a partial is not finite."""
        total = 0.0
        for name, shape in self.model.shapes.items():
            x = grads[name]
            size = 1 if len(shape) == 1 else math.prod(shape[1:])
            for i in range(0, len(x), size):
                part = partial(x[i:i + size]) if len(shape) > 1 else x[i] * x[i]
                if not abs(part) < INF:
                    return None
                total += part
        return math.sqrt(total)

    def _balance(self, counts):
        rate = f32(self.t["bias_update_rate"])
        if rate > 0:
            for layer, n in counts.items():
                bias, total = self.model.correction[layer], sum(n)
                for e, count in enumerate(n):
                    if total > count * len(n):
                        bias[e] = add(bias[e], rate)
                    elif total < count * len(n):
                        bias[e] = add(bias[e], -rate)

    def learning_rate(self):
        t, s = self.t, self.updates
        x = t["train_iters"]
        w = min(t["warmup_steps"], x)
        d = x - w
        if t["decay_ratio"] is not None:
            d = min(d, round(x * t["decay_ratio"]))
        u = x + 1 - w - d
        if s < w:
            factor = (s + 1) / w
        elif s < w + u or d == 0 or t["decay_type"] == "constant":
            factor = 1.0
        else:
            low = t["min_lr_factor"]
            p = min((s + 1 - w - u) / d, 1.0)
            f = {"linear": lambda: 1 - p, "sqrt": lambda: 1 - math.sqrt(p),
                 "cosine": lambda: 0.5 * (1 + cospi(p))}[t["decay_type"]]()
            factor = low + (1 - low) * f
        return t["lr"] * factor

    def _adamw(self, grads, norm, lr):
        t, step = self.t, self.updates + 1
        clip = 1.0
        if t["max_grad_norm"] != 0 and t["max_grad_norm"] / (norm + 1e-6) < 1:
            clip = f32(t["max_grad_norm"] / (norm + 1e-6))
        beta1, beta2 = t["betas"]
        c1, c2 = 1 - powi(beta1, step), 1 - powi(beta2, step)
        rate, root = f32(lr / c1), f32(math.sqrt(c2))
        decay = f32(1 - lr * t["weight_decay"])
        b1, b2, a1, a2 = f32(beta1), f32(beta2), f32(1 - beta1), f32(1 - beta2)
        eps = f32(t["eps"])
        for name, shape in self.model.shapes.items():
            w, m, v = flat_of(self.model.master[name]), self.m[name], self.v[name]
            w = list(w)
            for i, g in enumerate(grads[name]):
                g = mul(g, clip)
                m[i] = fma(b1, m[i], mul(a1, g))
                v[i] = fma(b2, v[i], mul(mul(a2, g), g))
                w[i] = fma(-rate, div(m[i], add(div(sqrt(v[i]), root), eps)), mul(w[i], decay))
            self.model.master[name] = shaped(w, shape)


def partial(x):
    """The lane sum of squares in FP64."""
    lane = [0.0] * 16
    for i, v in enumerate(x):
        lane[i % 16] += v * v
    for w in (8, 4, 2, 1):
        lane = [lane[j] + lane[j + w] for j in range(w)]
    return lane[0]
