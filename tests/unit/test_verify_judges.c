/* The judges of octet verify on a small trace made by hand: nothing is wrong with a right one, and
 * each kind of wrong trace is noticed by the judge whose matter it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "temp_dir.h"
#include "verify/judge.h"

enum { RANKS = 2, STEPS = 2, MICRO_STEPS = 2, EXPERTS = 4, MAX_LINES = 512, LINE_BYTES = 700 };

#define DENSE  "model.layers.0.self_attn.q_proj"
#define EXPERT "model.layers.0.mlp.experts.gate_up_proj"
#define MODULE "model.layers.0.mlp.experts"
#define HIF8   "\"format\":\"hif8\""
#define MXFP8  "\"format\":\"mxfp8_e4m3\""

static oct_verify_target targets[2] = {
    {.fqn = DENSE,
     .module = DENSE,
     .weight = DENSE ".weight",
     .experts = 1,
     .rows = 128,
     .cols = 64},
    {.fqn = EXPERT,
     .module = MODULE,
     .weight = EXPERT,
     .grouped = true,
     .experts = EXPERTS,
     .rows = 32,
     .cols = 64},
};

typedef struct script {
    char lines[MAX_LINES][LINE_BYTES];
    int count;
} script;

static script scripts[RANKS];
static oct_verify_facts facts;
static temp_dir files;

/* --- a right trace --------------------------------------------------------------------------- */

static bool hif8(void)
{
    return facts.format == OCT_VERIFY_HIF8;
}

static void put(script *s, const char *event, int step, int micro, const char *fqn,
                const char *rest)
{
    assert_true(s->count < MAX_LINES);
    (void)snprintf(s->lines[s->count++], LINE_BYTES,
                   "{\"schema\":1,\"event\":\"%s\",\"step\":%d,\"micro_step\":%d,\"fqn\":\"%s\"%s}",
                   event, step, micro, fqn, rest);
}

/* A quantization with amax 30 * (1 + group), so that inputs and weights have the scale 2, 4, ... */
static void put_quantize(script *s, int step, int micro, const char *fqn, bool grouped,
                         const char *role, const char *orientation, int first, int count)
{
    char rest[400];
    const bool gradient = strcmp(role, "grad_output") == 0;
    if (!hif8()) {
        (void)snprintf(rest, sizeof rest,
                       ",\"role\":\"%s\"," MXFP8 ",\"orientation\":\"%s\",\"dtype\":"
                       "\"float8_e4m3fn\",\"scale_dtype\":\"float8_e8m0fnu\",\"grouped\":%s",
                       role, orientation, grouped ? "true" : "false");
        put(s, "quantize", step, micro, fqn, rest);
        return;
    }
    for (int g = 0; g < count; g++) {
        (void)snprintf(rest, sizeof rest,
                       ",\"role\":\"%s\"," HIF8 ",\"orientation\":\"%s\",\"dtype\":\"hifloat8\","
                       "\"scale_dtype\":\"float32\",\"grouped\":%s,\"amax\":%d,\"scale\":%d%s%d",
                       role, orientation, grouped ? "true" : "false",
                       (gradient ? 448 : 30) * (1 + first + g), 2 * (1 + first + g),
                       grouped ? ",\"group\":" : ",\"x\":", g);
        put(s, "quantize", step, micro, fqn, rest);
    }
}

static void put_product(script *s, int step, int micro, int t, const char *phase,
                        const char *layout, const char *orientation)
{
    char rest[300];
    (void)snprintf(rest, sizeof rest,
                   ",\"phase\":\"%s\",%s,\"orientation\":\"%s\",\"dtype\":\"bfloat16\","
                   "\"scale_dtype\":\"%s\",\"layout\":\"%s\",\"kernel\":\"block_integer\","
                   "\"grouped\":%s",
                   phase, hif8() ? HIF8 : MXFP8, orientation, hif8() ? "float32" : "float8_e8m0fnu",
                   layout, targets[t].grouped ? "true" : "false");
    put(s, "matmul", step, micro, targets[t].fqn, rest);
}

static void put_refresh(script *s, int rank, int step, int micro)
{
    for (int t = 0; t < 2; t++) {
        const bool grouped = targets[t].grouped;
        put(s, "refresh", step, micro, targets[t].weight, hif8() ? "," HIF8 : "," MXFP8);
        put_quantize(s, step, micro, targets[t].weight, grouped, "weight_fwd",
                     grouped ? "col" : "row", grouped ? 2 * rank : 0,
                     grouped ? EXPERTS / RANKS : 1);
        put_quantize(s, step, micro, targets[t].weight, grouped, "weight_bwd",
                     grouped ? "row" : "col", grouped ? 2 * rank : 0,
                     grouped ? EXPERTS / RANKS : 1);
    }
}

static void put_gather(script *s, int step, int micro, int t, const char *phase, bool row, bool col)
{
    char rest[600];
    if (hif8() && t == 0)
        (void)snprintf(rest, sizeof rest,
                       ",\"phase\":\"%s\",\"tensors\":[\"data\",\"scale\"],\"physical\":["
                       "{\"name\":\"data\",\"dtype\":\"hifloat8\",\"shard\":[64,64],\"whole\":[128,"
                       "64]},{\"name\":\"scale\",\"dtype\":\"float32\",\"shard\":[1],\"whole\":[2],"
                       "\"values\":[2,2]}]",
                       phase);
    else if (hif8())
        (void)snprintf(rest, sizeof rest,
                       ",\"phase\":\"%s\",\"tensors\":[\"data\",\"scale\"],\"physical\":["
                       "{\"name\":\"data\",\"dtype\":\"hifloat8\",\"shard\":[2,32,64],\"whole\":[4,"
                       "32,64]},{\"name\":\"scale\",\"dtype\":\"float32\",\"shard\":[2],\"whole\":["
                       "4],\"values\":[2,4,6,8]}]",
                       phase);
    else {
        const char *own = t == 0 ? "[64,64]" : "[2,32,64]",
                   *all = t == 0 ? "[128,64]" : "[4,32,64]";
        char row_text[260] = "", col_text[260] = "";
        if (row)
            (void)snprintf(row_text, sizeof row_text,
                           "{\"name\":\"row_data\",\"dtype\":\"float8_e4m3fn\",\"shard\":%s,"
                           "\"whole\":%s},{\"name\":\"row_scale\",\"dtype\":\"float8_e8m0fnu\","
                           "\"shard\":%s,\"whole\":%s}",
                           own, all, t == 0 ? "[64,1,2]" : "[2,32,1,2]",
                           t == 0 ? "[128,1,2]" : "[4,32,1,2]");
        if (col)
            (void)snprintf(col_text, sizeof col_text,
                           "%s{\"name\":\"col_data\",\"dtype\":\"float8_e4m3fn\",\"shard\":%s,"
                           "\"whole\":%s},{\"name\":\"col_scale\",\"dtype\":\"float8_e8m0fnu\","
                           "\"shard\":%s,\"whole\":%s}",
                           row ? "," : "", own, all, t == 0 ? "[1,64,2]" : "[2,1,64,2]",
                           t == 0 ? "[2,64,2]" : "[4,1,64,2]");
        (void)snprintf(rest, sizeof rest, ",\"phase\":\"%s\",\"physical\":[%s%s]", phase, row_text,
                       col_text);
    }
    put(s, "gather", step, micro, targets[t].weight, rest);
}

static void put_forward(script *s, int step, int micro)
{
    for (int t = 0; t < 2; t++) {
        const bool grouped = targets[t].grouped;
        put_quantize(s, step, micro, targets[t].fqn, grouped, "input_fwd", "row", 0,
                     grouped ? EXPERTS : 1);
        put_product(s, step, micro, t, "fprop", grouped ? "NN" : "NT", grouped ? "col" : "row");
    }
    put(s, "matmul", step, micro, "lm_head", ",\"phase\":\"fprop\",\"format\":\"bf16\"");
}

static void put_backward(script *s, int step, int micro)
{
    for (int t = 1; t >= 0; t--) {
        const bool grouped = targets[t].grouped;
        const int n = grouped ? EXPERTS : 1;
        put_quantize(s, step, micro, targets[t].fqn, grouped, "input_bwd", "col", 0, n);
        put_quantize(s, step, micro, targets[t].fqn, grouped, "grad_output", "row", 0, n);
        put_quantize(s, step, micro, targets[t].fqn, grouped, "grad_output", "col", 0, n);
        put_product(s, step, micro, t, "dgrad", grouped ? "NT" : "NN", grouped ? "row" : "col");
        put_product(s, step, micro, t, "wgrad", "TN", "col");
        put(s, "reduce", step, micro, targets[t].weight, "");
    }
}

static void make_rank(script *s, int rank)
{
    s->count = 0;
    put(s, "replace", 0, 0, DENSE, ",\"from\":\"torch.nn.Linear\",\"to\":\"LowPrecisionLinear\"");
    put(s, "replace", 0, 0, MODULE,
        ",\"from\":\"x.DeepseekV3Experts\",\"to\":\"DeepseekV3LowPrecisionExperts\"");
    put_refresh(s, rank, 0, 0);
    for (int step = 0; step < STEPS; step++) {
        for (int micro = 0; micro < MICRO_STEPS; micro++) {
            for (int t = 0; t < 2; t++)
                put_gather(s, step, micro, t, "forward", !facts.reshard || t == 0,
                           !facts.reshard || t == 1);
            put_forward(s, step, micro);
            for (int t = 0; t < 2 && facts.reshard; t++)
                put_gather(s, step, micro, t, "backward", true, true);
            if (facts.recompute)
                put_forward(s, step, micro);
            put_backward(s, step, micro);
        }
        put_refresh(s, rank, step, MICRO_STEPS - 1);
    }
}

static void make(oct_verify_format format, bool reshard, bool recompute)
{
    facts = (oct_verify_facts){.name = "run",
                               .format = format,
                               .ranks = RANKS,
                               .reshard = reshard,
                               .recompute = recompute,
                               .accumulation = MICRO_STEPS,
                               .steps = STEPS,
                               .targets = targets,
                               .target_count = 2,
                               .dense_targets = 1,
                               .expert_modules = 1};
    for (int r = 0; r < RANKS; r++)
        make_rank(&scripts[r], r);
}

/* --- what is done to it ---------------------------------------------------------------------- */

/* The n-th line (from 0) of rank 1 that has all of `words` (up to NULL). */
static int line_with(const char *const *words, int n)
{
    for (int i = 0; i < scripts[1].count; i++) {
        bool all = true;
        for (int w = 0; words[w]; w++)
            all = all && strstr(scripts[1].lines[i], words[w]);
        if (all && n-- == 0)
            return i;
    }
    fail_msg("no line has '%s'", words[0]);
    return -1;
}

#define LINE(n, ...) line_with((const char *const[]){__VA_ARGS__, NULL}, n)

static void replace(int line, const char *old, const char *new)
{
    char text[LINE_BYTES];
    char *at = strstr(scripts[1].lines[line], old);
    assert_non_null(at);
    (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - scripts[1].lines[line]),
                   scripts[1].lines[line], new, at + strlen(old));
    (void)snprintf(scripts[1].lines[line], LINE_BYTES, "%s", text);
}

static void drop(int line)
{
    script *s = &scripts[1];
    memmove(s->lines[line], s->lines[line + 1], (size_t)(s->count - line - 1) * LINE_BYTES);
    s->count--;
}

static void copy_to(int line, int to)
{
    char text[LINE_BYTES];
    script *s = &scripts[1];
    memcpy(text, s->lines[line], LINE_BYTES);
    memmove(s->lines[to + 1], s->lines[to], (size_t)(s->count - to) * LINE_BYTES);
    memcpy(s->lines[to], text, LINE_BYTES);
    s->count++;
}

typedef struct verdicts {
    oct_finding replacement, products, high, boundary, scales, refresh, duplicates, table, schema,
        gathered;
} verdicts;

static verdicts judge(void)
{
    verdicts v = {0};
    oct_verify_trace *traces[RANKS] = {NULL};
    const oct_verify_trace *all[RANKS];
    int64_t roles[2][3] = {{0}};
    for (int r = 0; r < RANKS; r++) {
        char path[300];
        oct_err err = {0};
        (void)snprintf(path, sizeof path, "%s/trace-%d.jsonl", files.path, r);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        for (int i = 0; i < scripts[r].count; i++)
            fprintf(file, "%s\n", scripts[r].lines[i]);
        fclose(file);
        if (oct_verify_trace_read(path, &traces[r], &err) != OCT_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(traces[r]->count, scripts[r].count);
        all[r] = traces[r];
        oct_judge_replacement(&facts, traces[r], &v.replacement);
        oct_judge_products(&facts, traces[r], &v.products, roles);
        oct_judge_high_precision(&facts, traces[r], &v.high);
        oct_judge_boundary(&facts, traces[r], &v.boundary);
        oct_judge_scales(&facts, traces[r], &v.scales);
        oct_judge_refresh(&facts, traces[r], &v.refresh);
        oct_judge_duplicates(&facts, traces[r], &v.duplicates);
        oct_judge_gather_table(&facts, traces[r], &v.table);
    }
    oct_judge_gather_schema(&facts, all, &v.schema);
    if (hif8())
        oct_judge_gathered_scales(&facts, all, &v.gathered);
    for (int r = 0; r < RANKS; r++)
        oct_verify_trace_release(traces[r]);
    return v;
}

static void assert_right(const oct_finding *finding)
{
    if (finding->wrong)
        fail_msg("%s", finding->first);
    assert_true(finding->seen > 0);
}

/* --- tests ----------------------------------------------------------------------------------- */

static void right_traces_pass(void **state)
{
    (void)state;
    for (int format = OCT_VERIFY_MXFP8; format <= OCT_VERIFY_HIF8; format++)
        for (int reshard = 0; reshard < 2; reshard++)
            for (int recompute = 0; recompute < 2; recompute++) {
                make((oct_verify_format)format, reshard, recompute);
                const verdicts v = judge();
                assert_right(&v.replacement);
                assert_right(&v.products);
                assert_right(&v.high);
                assert_right(&v.boundary);
                assert_right(&v.scales);
                assert_right(&v.refresh);
                assert_right(&v.duplicates);
                assert_right(&v.table);
                assert_right(&v.schema);
                if (hif8())
                    assert_right(&v.gathered);
            }
}

/* Makes the right trace, does `change` to rank 1 and looks at one verdict. */
#define WRONG(format, verdict, change)                                                             \
    do {                                                                                           \
        make((format), true, false);                                                               \
        change;                                                                                    \
        const verdicts v_ = judge();                                                               \
        assert_true(v_.verdict.wrong > 0);                                                         \
    } while (0)
#define MX OCT_VERIFY_MXFP8
#define HI OCT_VERIFY_HIF8

static void replacement_is_judged(void **state)
{
    (void)state;
    WRONG(MX, replacement, drop(LINE(0, "replace", DENSE)));
    WRONG(MX, replacement, copy_to(0, 0));
    WRONG(MX, replacement, replace(LINE(0, "replace", DENSE), "q_proj", "gate"));
    WRONG(MX, replacement,
          replace(LINE(0, "replace", DENSE), "torch.nn.Linear", "peft.LoraLinear"));
    WRONG(MX, replacement, replace(LINE(0, "replace", MODULE), "LowPrecisionExperts", "Experts"));
}

static void products_are_judged(void **state)
{
    (void)state;
    WRONG(MX, products, replace(LINE(1, DENSE, "dgrad"), "\"col\"", "\"row\"")); /* wrong axis */
    WRONG(MX, products, replace(LINE(1, EXPERT, "fprop"), "\"NN\"", "\"NT\""));
    WRONG(MX, products, drop(LINE(2, DENSE, "wgrad")));
    WRONG(MX, products, copy_to(LINE(0, DENSE, "fprop"), LINE(0, DENSE, "fprop")));
    WRONG(MX, products, replace(LINE(0, DENSE, "fprop"), "e4m3", "e5m2"));
    WRONG(HI, products, replace(LINE(0, DENSE, "wgrad"), "\"float32\"", "\"float8_e8m0fnu\""));
    WRONG(MX, products, replace(LINE(3, EXPERT, "dgrad"), "true", "false"));
    WRONG(MX, products, facts.steps++);
    make(MX, true, false); /* experts of one product took both kernels */
    copy_to(LINE(1, EXPERT, "wgrad"), LINE(1, EXPERT, "wgrad") + 1);
    replace(LINE(2, EXPERT, "wgrad"), "block_integer", "fma");
    assert_int_equal(judge().products.wrong, 0);
    replace(LINE(2, EXPERT, "wgrad"), "fma", "block_integer");
    assert_true(judge().products.wrong > 0);
    WRONG(HI, high,
          replace(LINE(3, DENSE, "wgrad"), "\"scale_dtype\":\"float32\"", "\"x\":\"float32\""));
    WRONG(HI, high, replace(LINE(3, DENSE, "wgrad"), "\"hif8\"", "\"bf16\""));
}

static void boundary_is_judged(void **state)
{
    (void)state;
    WRONG(MX, boundary, replace(LINE(0, "lm_head"), "\"bf16\"", "\"hif8\",\"scale_dtype\":\"x\""));
    WRONG(MX, boundary, replace(LINE(0, "lm_head"), "lm_head", "model.layers.0.mlp.up_proj"));
    WRONG(MX, boundary, replace(LINE(0, "quantize", "input_fwd"), DENSE, "lm_head"));
    make(MX, true, false);
    facts.format = OCT_VERIFY_BF16; /* nothing is quantized there */
    assert_true(judge().boundary.wrong > 0);
    assert_true(judge().refresh.wrong > 0);
    assert_true(judge().replacement.wrong > 0);
}

static void scales_are_judged(void **state)
{
    (void)state;
    WRONG(HI, scales, replace(LINE(0, DENSE, "input_fwd"), "\"scale\":2", "\"scale\":2.0000002"));
    WRONG(HI, scales, replace(LINE(0, DENSE, "grad_output"), "\"amax\":448", "\"amax\":30"));
    WRONG(HI, scales, replace(LINE(0, DENSE, "weight_fwd"), "\"scale\":2", "\"scale\":null"));
    WRONG(HI, scales, replace(LINE(0, DENSE, "weight_fwd"), "\"scale\":2", "\"scale\":0"));
    WRONG(HI, scales, replace(LINE(5, "weight_bwd"), "\"float32\"", "\"bfloat16\""));
    WRONG(MX, scales, replace(LINE(0, DENSE, "input_fwd"), "float8_e8m0fnu", "float32"));
    assert_true(oct_judge_hif8_scale(0.0f, 15.0f) == 1.0f);
    assert_true(oct_judge_hif8_scale(1e-38f, 224.0f) == 1.0f);
    assert_true(oct_judge_hif8_scale(30.0f, 15.0f) == 2.0f);
}

static void refresh_is_judged(void **state)
{
    (void)state;
    /* skipped, on its own, between micro-batches, twice, before the products end */
    WRONG(MX, refresh, drop(LINE(1, "\"refresh\"", DENSE)));
    WRONG(MX, refresh, drop(LINE(1, "weight_bwd", DENSE)));
    WRONG(MX, refresh, copy_to(LINE(0, "weight_fwd", DENSE), LINE(1, "input_fwd", DENSE)));
    WRONG(MX, refresh, copy_to(LINE(1, "\"refresh\"", DENSE), LINE(3, "input_fwd", DENSE)));
    WRONG(MX, refresh, copy_to(LINE(1, "\"refresh\"", DENSE), LINE(1, "\"refresh\"", DENSE)));
    WRONG(MX, refresh, copy_to(LINE(0, DENSE, "wgrad"), scripts[1].count));
    WRONG(HI, refresh, copy_to(LINE(1, "weight_fwd", DENSE), LINE(1, "weight_bwd", DENSE)));
    WRONG(MX, refresh, facts.resumed = true);
    make(MX, true, false); /* from a checkpoint: once more before the first product */
    facts.resumed = true;
    for (int r = 0; r < RANKS; r++) {
        const script one = scripts[r];
        make_rank(&scripts[r], r);
        scripts[r].count = 2;
        put_refresh(&scripts[r], r, 0, 0);
        for (int i = 2; i < one.count; i++)
            memcpy(scripts[r].lines[scripts[r].count++], one.lines[i], LINE_BYTES);
    }
    const verdicts v = judge();
    assert_right(&v.refresh);
}

static void duplicates_are_judged(void **state)
{
    (void)state;
    WRONG(MX, duplicates, copy_to(LINE(0, "input_fwd", DENSE), LINE(0, "input_fwd", DENSE)));
    WRONG(HI, duplicates, copy_to(LINE(6, "grad_output", EXPERT), LINE(6, "grad_output", EXPERT)));
    WRONG(MX, duplicates, copy_to(LINE(0, "\"gather\"", DENSE), LINE(0, "input_bwd")));
    WRONG(MX, duplicates, copy_to(LINE(0, "\"reduce\""), LINE(0, "\"reduce\"")));
    make(MX, true, false);
    facts.recompute = true; /* the second one is due */
    copy_to(LINE(0, "input_fwd", DENSE), LINE(0, "input_fwd", DENSE));
    assert_true(judge().duplicates.wrong == 0);
    copy_to(LINE(0, "input_fwd", DENSE), LINE(0, "input_fwd", DENSE));
    assert_true(judge().duplicates.wrong > 0);
}

static void gathers_are_judged(void **state)
{
    (void)state;
    WRONG(MX, table, replace(LINE(0, "forward", DENSE), "row_data", "col_data"));
    WRONG(MX, table, drop(LINE(1, "backward", EXPERT)));
    WRONG(MX, table, copy_to(LINE(0, "\"forward\"", EXPERT), LINE(0, "\"forward\"", EXPERT)));
    WRONG(MX, table, replace(LINE(0, "forward", DENSE), "float8_e8m0fnu", "float32"));
    WRONG(MX, table,
          replace(LINE(0, "backward", EXPERT), "\"whole\":[4,32,64]", "\"whole\":[4,64,32]"));
    WRONG(HI, table, replace(LINE(0, "backward", DENSE), "hifloat8", "bfloat16"));
    WRONG(MX, table, facts.reshard = false);
    WRONG(MX, table, facts.even = facts.fallback = true; targets[0].rows = 96);
    targets[0].rows = 128;
    WRONG(MX, schema, replace(LINE(0, "forward", DENSE), "\"shard\":[64,64]", "\"shard\":[32,64]"));
    WRONG(MX, schema, replace(LINE(0, "forward", DENSE), DENSE, "model.norm"));
    WRONG(MX, schema, drop(LINE(3, "\"gather\"")));
    WRONG(HI, gathered, replace(LINE(0, "forward", EXPERT), "[2,4,6,8]", "[2,6,4,8]"));
    WRONG(HI, gathered, replace(LINE(1, "weight_fwd", DENSE), "\"scale\":2", "\"scale\":3"));
    make(HI, true, false); /* the gather of rank 0 has another value of rank 1 */
    for (int i = 0; i < scripts[0].count; i++) {
        char *at = strstr(scripts[0].lines[i], "[2,2]}]");
        if (at)
            at[3] = '3';
    }
    for (int i = 0; i < scripts[1].count; i++) {
        char *at = strstr(scripts[1].lines[i], "[2,2]}]");
        if (at)
            at[3] = '3';
    }
    assert_true(judge().gathered.wrong > 0);
    for (int i = 0; i < scripts[1].count; i++) { /* which is the one that rank 1 refreshed to */
        char *line = scripts[1].lines[i], *at = strstr(line, "\"scale\":2");
        if (at && strstr(line, "weight_fwd") && strstr(line, DENSE))
            at[strlen("\"scale\":")] = '3';
    }
    assert_true(judge().gathered.wrong > 0);
}

static void what_is_replicated(void **state)
{
    (void)state;
    make(MX, true, false);
    facts.even = facts.fallback = true;
    facts.ranks = 8;
    oct_verify_target target = {.rows = 512, .cols = 64, .experts = 1};
    assert_false(oct_verify_is_replicated(&facts, &target));
    target.rows = 704; /* 88 rows a rank: no multiple of 64 */
    assert_true(oct_verify_is_replicated(&facts, &target));
    facts.format = HI;
    assert_false(oct_verify_is_replicated(&facts, &target));
    target.rows = 257;
    assert_true(oct_verify_is_replicated(&facts, &target));
    facts.even = false;
    assert_false(oct_verify_is_replicated(&facts, &target));
}

static void a_wrong_file_is_refused(void **state)
{
    (void)state;
    oct_err err = {0};
    oct_verify_trace *trace = NULL;
    char path[300];
    (void)snprintf(path, sizeof path, "%s/nothing", files.path);
    assert_int_equal(oct_verify_trace_read(path, &trace, &err), OCT_E_IO);
    (void)snprintf(path, sizeof path, "%s/bad", files.path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{\"schema\":1,\"event\":\"save\",\"step\":0}\n{\"schema\":1,\"event\":\"sa\n", file);
    fclose(file);
    err = (oct_err){0};
    assert_int_equal(oct_verify_trace_read(path, &trace, &err), OCT_E_DATA);
    assert_non_null(strstr(err.msg, "bad:2"));
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Whether a run of 24 steps with these peaks passes: `early` up to step 8, `middle` up to 20, then
 * `late`, and `end` in the last two. */
static bool holds_its_memory(const char *words, int early, int middle, int late, int end)
{
    json_t *rows = json_array(), *result = json_pack("{s:[]}", "checks");
    for (int step = 1; step <= 24; step++) {
        const int peak = step <= 8 ? early : step <= 20 ? middle : step <= 22 ? late : end;
        (void)json_array_append_new(rows, json_pack("{s:i}", "peak_memory_bytes", peak));
    }
    char key[64];
    (void)snprintf(key, sizeof key, "%s", words);
    oct_judge_growth(&(oct_verify_run){.name = "run", .key = key, .metrics = rows}, result);
    const json_t *check = json_array_get(json_object_get(result, "checks"), 0);
    assert_non_null(check);
    const bool ok = json_is_true(json_object_get(check, "ok"));
    json_decref(rows);
    json_decref(result);
    return ok;
}

static void growth_is_judged(void **state)
{
    (void)state;
    const char *saves = "a.yaml checkpoint.save_steps=20 trace=true";
    assert_true(holds_its_memory("a.yaml", 100, 200, 200, 208));
    assert_false(holds_its_memory("a.yaml", 100, 200, 220, 220));
    assert_true(holds_its_memory(saves, 200, 200, 300, 300)); /* the first save needs memory */
    assert_false(holds_its_memory(saves, 200, 200, 300, 330));
    assert_false(holds_its_memory("checkpoint.save_steps=14", 200, 200, 300, 300));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_traces_pass),     cmocka_unit_test(replacement_is_judged),
        cmocka_unit_test(products_are_judged),   cmocka_unit_test(boundary_is_judged),
        cmocka_unit_test(scales_are_judged),     cmocka_unit_test(refresh_is_judged),
        cmocka_unit_test(duplicates_are_judged), cmocka_unit_test(gathers_are_judged),
        cmocka_unit_test(what_is_replicated),    cmocka_unit_test(a_wrong_file_is_refused),
        cmocka_unit_test(growth_is_judged),
    };
    files = temp_dir_create();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_dir_remove(&files);
    return failed;
}
