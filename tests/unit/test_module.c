#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "module/module.h"
#include "module/run.h"

static const oct_module_type box_type = {.name = "box"};
static const oct_module_type small_box_type = {.name = "small box", .base = &box_type};
static const oct_module_type other_type = {.name = "other"};

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        oct_err failure = {0};                                                                     \
        oct_err *err = &failure;                                                                   \
        if ((call) != OCT_OK)                                                                      \
            fail_msg("%s", failure.msg);                                                           \
    } while (0)

/* root { a { w [2,3], inner { w [4] } }, b { w [5,6,7], buffer } }; c is an alias of inner in b. */
typedef struct sample {
    oct_module_tree tree;
    oct_module *root, *a, *inner, *b;
    oct_param *matrix, *vector, *stack;
    oct_buffer *buffer;
} sample;

static void sample_init(sample *s)
{
    oct_module_tree_init(&s->tree);
    assert_ok(oct_module_add(&s->tree, NULL, "", &box_type, 2, &s->root, err));
    assert_ok(oct_module_add(&s->tree, s->root, "a", &box_type, 1, &s->a, err));
    assert_ok(oct_module_add_param(&s->tree, s->a, "w", 2, (int64_t[]){2, 3}, &s->matrix, err));
    assert_ok(oct_module_add(&s->tree, s->a, "inner", &small_box_type, 0, &s->inner, err));
    assert_ok(oct_module_add_param(&s->tree, s->inner, "w", 1, (int64_t[]){4}, &s->vector, err));
    assert_ok(oct_module_add(&s->tree, s->root, "b", &box_type, 1, &s->b, err));
    assert_ok(oct_module_add_param(&s->tree, s->b, "w", 3, (int64_t[]){5, 6, 7}, &s->stack, err));
    assert_ok(oct_module_alias(&s->tree, s->b, s->inner, err));
    assert_ok(oct_module_add_buffer(&s->tree, s->b, "state", 9, true, &s->buffer, err));
}

static void tree__nested_modules__names_and_order_as_built(void **state)
{
    (void)state;
    sample s;
    sample_init(&s);
    assert_string_equal(s.root->fqn, "");
    assert_string_equal(s.inner->fqn, "a.inner");
    assert_string_equal(s.inner->name, "inner");
    assert_int_equal(s.tree.param_count, 3);
    assert_string_equal(s.tree.params[0]->fqn, "a.w");
    assert_string_equal(s.tree.params[1]->fqn, "a.inner.w");
    assert_string_equal(s.tree.params[2]->fqn, "b.w");
    assert_ptr_equal(s.b->params[0], s.stack);
    assert_string_equal(s.b->param_names[0], "w");
    assert_string_equal(s.tree.buffers[0]->fqn, "b.state");
    oct_module_tree_release(&s.tree);
}

static void param__one_to_three_dims__rows_times_cols_is_numel(void **state)
{
    (void)state;
    sample s;
    sample_init(&s);
    assert_int_equal(oct_param_rows(s.vector), 1);
    assert_int_equal(oct_param_cols(s.vector), 4);
    assert_int_equal(oct_param_rows(s.matrix), 2);
    assert_int_equal(oct_param_rows(s.stack), 30);
    assert_int_equal(oct_param_cols(s.stack), 7);
    assert_int_equal(oct_param_numel(s.stack), 210);
    oct_module_tree_release(&s.tree);
}

typedef struct visits {
    char text[256];
    oct_module *replacement;
} visits;

static oct_status note(void *arg, const char *fqn, oct_module **slot, oct_err *err)
{
    visits *v = arg;
    (void)err;
    const size_t length = strlen(v->text);
    snprintf(v->text + length, sizeof v->text - length, "[%s]", fqn);
    if (v->replacement && !strcmp((*slot)->fqn, v->replacement->fqn))
        *slot = v->replacement;
    return OCT_OK;
}

static void walk__alias__visited_under_each_name(void **state)
{
    (void)state;
    sample s;
    sample_init(&s);
    visits v = {0};
    assert_ok(oct_module_walk(&s.tree, note, &v, err));
    assert_string_equal(v.text, "[][a][a.inner][b][b.inner]");
    assert_ptr_equal(oct_module_find(&s.tree, "a.inner"), s.inner);
    assert_ptr_equal(oct_module_find(&s.tree, "b.inner"), s.inner);
    assert_null(oct_module_find(&s.tree, "b.inne"));
    oct_module_tree_release(&s.tree);
}

static void walk__slot_swapped__both_places_hold_the_replacement(void **state)
{
    (void)state;
    sample s;
    sample_init(&s);
    oct_module other = *s.inner;
    other.type = &other_type;
    visits v = {.replacement = &other};
    assert_ok(oct_module_walk(&s.tree, note, &v, err));
    assert_ptr_equal(oct_module_find(&s.tree, "a.inner"), &other);
    assert_ptr_equal(oct_module_find(&s.tree, "b.inner"), &other);
    oct_module_tree_release(&s.tree);
}

static oct_status refuse(void *arg, const char *fqn, oct_module **slot, oct_err *err)
{
    (void)slot;
    ++*(int *)arg;
    return strcmp(fqn, "a") ? OCT_OK : OCT_FAIL(err, OCT_E_PLAN, "no '%s'", fqn);
}

static void walk__visitor_fails__stops_there(void **state)
{
    (void)state;
    sample s;
    sample_init(&s);
    int calls = 0;
    oct_err err = {0};
    assert_int_equal(oct_module_walk(&s.tree, refuse, &calls, &err), OCT_E_PLAN);
    assert_int_equal(calls, 2);
    oct_module_tree_release(&s.tree);
}

static void type_is__derived_type__knows_its_base(void **state)
{
    (void)state;
    assert_true(oct_module_type_is(&small_box_type, &box_type));
    assert_true(oct_module_type_is(&box_type, &box_type));
    assert_false(oct_module_type_is(&box_type, &small_box_type));
    assert_false(oct_module_type_is(&other_type, &box_type));
}

static void share_param__second_module__same_identity_listed_once(void **state)
{
    (void)state;
    sample s;
    sample_init(&s);
    assert_ok(oct_module_share_param(&s.tree, s.inner, "tied", s.matrix, err));
    assert_ptr_equal(s.inner->params[1], s.matrix);
    assert_string_equal(s.inner->params[1]->fqn, "a.w");
    assert_int_equal(s.tree.param_count, 3);
    oct_module_tree_release(&s.tree);
}

static void add__too_much__refused(void **state)
{
    (void)state;
    sample s;
    sample_init(&s);
    oct_err err = {0};
    oct_module *module = NULL;
    oct_param *param = NULL;
    oct_buffer *buffer = NULL;
    assert_int_equal(oct_module_add(&s.tree, s.root, "c", &box_type, 0, &module, &err), OCT_E_API);
    assert_int_equal(oct_module_add(&s.tree, NULL, "r", &box_type, 0, &module, &err), OCT_E_API);
    assert_int_equal(oct_module_alias(&s.tree, s.b, s.a, &err), OCT_E_API);
    assert_int_equal(oct_module_add_buffer(&s.tree, s.b, "again", 1, true, &buffer, &err),
                     OCT_E_API);
    assert_int_equal(
        oct_module_add_param(&s.tree, s.a, "big", 2, (int64_t[]){INT64_MAX, 2}, &param, &err),
        OCT_E_SHAPE);
    assert_int_equal(oct_module_add_param(&s.tree, s.a, "none", 1, (int64_t[]){0}, &param, &err),
                     OCT_E_SHAPE);
    char name[700];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_int_equal(oct_module_add(&s.tree, s.root, name, &box_type, 0, &module, &err),
                     OCT_E_SHAPE);
    oct_module_tree_release(&s.tree);
}

static void materialise_buffers__twice__keeps_what_is_there(void **state)
{
    (void)state;
    sample s;
    sample_init(&s);
    assert_null(s.buffer->data);
    assert_ok(oct_module_materialise_buffers(&s.tree, err));
    for (int i = 0; i < 9; i++)
        assert_true(s.buffer->data[i] == 0.0f);
    s.buffer->data[3] = 2.5f;
    assert_ok(oct_module_materialise_buffers(&s.tree, err));
    assert_true(s.buffer->data[3] == 2.5f);
    oct_module_tree_release(&s.tree);
}

static void release__init_not_taken__is_freed_with_the_tree(void **state)
{
    (void)state;
    sample s;
    sample_init(&s);
    s.matrix->init = malloc(6 * sizeof(float)); /* the leak checker of the asan build sees it */
    oct_module_tree_release(&s.tree);
    assert_int_equal(s.tree.param_count, 0);
}

static void param_grad_open__first_and_later_micro_batches__store_then_fold(void **state)
{
    (void)state;
    float grad[12];
    oct_err err = {0};
    oct_param param = {.ndim = 2, .shape = {4, 3}, .grad = grad};
    oct_run run = {.reduce_dtype = OCT_DTYPE_BF16};
    oct_gemm_out out;
    assert_int_equal(oct_param_grad_open(&param, &run, &out, &err), OCT_OK);
    assert_ptr_equal(out.data, grad);
    assert_int_equal(out.ld, 3);
    assert_int_equal(out.store, OCT_GEMM_STORE);
    assert_true(out.round_bf16);
    assert_int_equal(oct_param_grad_close(&param, &run, &err), OCT_OK);
    param.grad_started = true;
    run.reduce_dtype = OCT_DTYPE_F32;
    assert_int_equal(oct_param_grad_open(&param, &run, &out, &err), OCT_OK);
    assert_int_equal(out.store, OCT_GEMM_FOLD);
    assert_false(out.round_bf16);
}

typedef struct grad_log {
    const oct_param *open, *closed;
} grad_log;

static oct_status log_open(void *arg, const oct_param *param, oct_gemm_out *out, oct_err *err)
{
    (void)err;
    ((grad_log *)arg)->open = param;
    out->data = NULL;
    return OCT_OK;
}

static oct_status log_close(void *arg, const oct_param *param, oct_err *err)
{
    ((grad_log *)arg)->closed = param;
    return OCT_FAIL(err, OCT_E_COMM, "closing '%s'", param->fqn);
}

static void param_grad_open__hooks__say_where_it_goes(void **state)
{
    (void)state;
    float grad[12];
    char fqn[] = "weight";
    oct_err err = {0};
    oct_param param = {.fqn = fqn, .ndim = 2, .shape = {4, 3}, .grad = grad};
    grad_log log = {0};
    const oct_unit_hooks hooks = {.open_grad = log_open, .close_grad = log_close, .arg = &log};
    const oct_run run = {.reduce_dtype = OCT_DTYPE_F32, .hooks = &hooks};
    oct_gemm_out out;
    assert_int_equal(oct_param_grad_open(&param, &run, &out, &err), OCT_OK);
    assert_null(out.data);
    assert_ptr_equal(log.open, &param);
    assert_int_equal(oct_param_grad_close(&param, &run, &err), OCT_E_COMM);
    assert_ptr_equal(log.closed, &param);
    assert_int_equal(oct_run_unit(&run, 0, OCT_UNIT_PRE_FORWARD, &err), OCT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree__nested_modules__names_and_order_as_built),
        cmocka_unit_test(param__one_to_three_dims__rows_times_cols_is_numel),
        cmocka_unit_test(walk__alias__visited_under_each_name),
        cmocka_unit_test(walk__slot_swapped__both_places_hold_the_replacement),
        cmocka_unit_test(walk__visitor_fails__stops_there),
        cmocka_unit_test(type_is__derived_type__knows_its_base),
        cmocka_unit_test(share_param__second_module__same_identity_listed_once),
        cmocka_unit_test(add__too_much__refused),
        cmocka_unit_test(materialise_buffers__twice__keeps_what_is_there),
        cmocka_unit_test(release__init_not_taken__is_freed_with_the_tree),
        cmocka_unit_test(param_grad_open__first_and_later_micro_batches__store_then_fold),
        cmocka_unit_test(param_grad_open__hooks__say_where_it_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
