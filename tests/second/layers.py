"""The functions of a layer that are no linear layers: training-step.md, sections 5 to 7.

Rows are lists of numbers; r rounds to the activation dtype.
"""
from f32 import add, chain, div, f32, FLT_MAX, fma, lane_sum, lanes, mul, sqrt, sub, sum_from
from functions import exp, log, sigmoid

TILE = 64                                   # keys of one step of the core attention


# ---- norm ----------------------------------------------------------------------------------------

def norm(x, w, eps, r):
    """(y, rstd) of one row."""
    rstd = div(1.0, sqrt(add(div(lanes(x, x), float(len(x))), f32(eps))))
    return [r(mul(r(mul(v, rstd)), g)) for v, g in zip(x, w)], rstd


def norm_rows(x, w, eps, r):
    parts = [norm(row, w, eps, r) for row in x]
    return [y for y, _ in parts], [rstd for _, rstd in parts]


def norm_back(dy, x, rstd, w, r):
    """(dx rows, dw) of all tokens."""
    dx = []
    for dy_t, x_t, s in zip(dy, x, rstd):
        g = [r(mul(a, b)) for a, b in zip(dy_t, w)]
        xh = [mul(v, s) for v in x_t]
        c = div(lanes(g, xh), float(len(x_t)))
        dx.append([r(mul(s, fma(-c, h, a))) for h, a in zip(xh, g)])
    dw = [chain(0.0, [row[i] for row in dy], [r(mul(row[i], s)) for row, s in zip(x, rstd)])
          for i in range(len(w))]
    return dx, dw


# ---- rope ----------------------------------------------------------------------------------------

def places(n, interleave):
    """Where (a, b) of each pair stand."""
    return [(2 * i, 2 * i + 1) if interleave else (i, i + n) for i in range(n)]


def rotate(x, table, interleave, r):
    """A slice of 2n elements; table: (C_i, S_i) of its position."""
    n = len(table)
    y = [0.0] * (2 * n)
    for i, ((c, s), (p, q)) in enumerate(zip(table, places(n, interleave))):
        a, b = x[p], x[q]
        y[i] = r(sub(r(mul(a, c)), r(mul(b, s))))
        y[i + n] = r(add(r(mul(b, c)), r(mul(a, s))))
    return y


def rotate_back(dy, table, interleave, r):
    n = len(table)
    dx = [0.0] * (2 * n)
    for i, ((c, s), (p, q)) in enumerate(zip(table, places(n, interleave))):
        a, b = dy[i], dy[i + n]
        dx[p] = r(sub(r(mul(a, c)), r(mul(b, -s))))
        dx[q] = r(add(r(mul(b, c)), r(mul(a, -s))))
    return dx


# ---- swiglu --------------------------------------------------------------------------------------

def swiglu(gate, up, r):
    return [r(mul(r(mul(g, sigmoid(g))), u)) for g, u in zip(gate, up)]


def swiglu_back(dy, gate, up, r):
    """(dgate, dup)."""
    dgate, dup = [], []
    for d, g, u in zip(dy, gate, up):
        sg = sigmoid(g)
        dup.append(r(mul(d, r(mul(g, sg)))))
        dgate.append(r(mul(r(mul(d, u)), mul(sg, fma(g, sub(1.0, sg), 1.0)))))
    return dgate, dup


# ---- core attention: one head of one row of tokens --------------------------------------------------

def larger(m, values):
    """The largest; a NaN is passed over."""
    for v in values:
        if v > m:
            m = v
    return m


def attention(q, k, v, scale, r):
    """(context rows, lse)."""
    width = len(v[0])
    context, lse = [], []
    for i, q_i in enumerate(q):
        m, l, o = -FLT_MAX, 0.0, [0.0] * width
        for first in range(0, i + 1, TILE):
            keys = range(first, min(first + TILE, i + 1))
            s = [mul(chain(0.0, q_i, k[j]), scale) for j in keys]
            largest = larger(m, s)
            p = [exp(sub(s_j, largest)) for s_j in s]
            a = exp(sub(m, largest))
            l = fma(l, a, sum_from(p, 0.0))
            o = [chain(mul(o_e, a), p, [v[j][e] for j in keys]) for e, o_e in enumerate(o)]
            m = largest
        inverse = div(1.0, l)
        context.append([r(mul(o_e, inverse)) for o_e in o])
        lse.append(add(m, log(l)))
    return context, lse


def attention_back(dcontext, context, lse, q, k, v, scale, r):
    """(dq, dk, dv)."""
    rows, dims, width = len(q), len(q[0]), len(v[0])
    p = [[0.0] * rows for _ in range(rows)]
    ds = [[0.0] * rows for _ in range(rows)]
    for i in range(rows):
        delta = chain(0.0, dcontext[i], context[i])
        for j in range(i + 1):
            s = mul(chain(0.0, q[i], k[j]), scale)
            p[i][j] = exp(sub(s, lse[i]))
            ds[i][j] = mul(p[i][j], sub(chain(0.0, v[j], dcontext[i]), delta))
    dq = [[r(mul(chain(0.0, [k[j][d] for j in range(i + 1)], ds[i][:i + 1]), scale))
           for d in range(dims)] for i in range(rows)]
    dk, dv = [], []
    for j in range(rows):
        ds_j = [ds[i][j] for i in range(j, rows)]
        p_j = [p[i][j] for i in range(j, rows)]
        dk.append([r(mul(chain(0.0, ds_j, [q[i][d] for i in range(j, rows)]), scale))
                   for d in range(dims)])
        dv.append([r(chain(0.0, p_j, [dcontext[i][e] for i in range(j, rows)]))
                   for e in range(width)])
    return dq, dk, dv


# ---- router --------------------------------------------------------------------------------------

def choose(scores, bias, top_k, n_group, topk_group):
    """The chosen experts of a token, ascending."""
    experts = len(scores)
    v = [add(s, b) for s, b in zip(scores, bias)]
    v = [float("inf") if x != x else x for x in v]
    open_experts = list(range(experts))
    if topk_group < n_group:
        size = experts // n_group
        score = []
        for g in range(n_group):
            best = sorted(v[g * size:(g + 1) * size], reverse=True)
            total = add(best[0], best[1])
            score.append(float("inf") if total != total else total)
        groups = sorted(range(n_group), key=lambda g: (-score[g], g))[:topk_group]
        open_experts = [e for e in open_experts if e // size in groups]
    return sorted(sorted(open_experts, key=lambda e: (-v[e], e))[:top_k])


# ---- loss ----------------------------------------------------------------------------------------

def cross_entropy(logits, target, inverse_n, r):
    """(loss, dlogits or None) of one token; inverse_n: fl32(1/N), or None without gradients."""
    largest = larger(-float("inf"), logits)
    e = [exp(sub(x, largest)) for x in logits]
    total = lane_sum(e)
    loss = sub(add(largest, log(total)), logits[target])
    if inverse_n is None:
        return loss, None
    inverse = div(1.0, total)
    d = [mul(x, inverse) for x in e]
    d[target] = sub(d[target], 1.0)
    return loss, [r(mul(x, inverse_n)) for x in d]
