/* Version, names, contexts and versioned structures. */
#include "api_fixture.h"

static const char init[] = "octet_context_init";

static void version__library__is_that_of_the_headers(void **state)
{
    (void)state;
    char text[32];
    (void)snprintf(text, sizeof text, "%d.%d.%d", OCTET_VERSION_MAJOR, OCTET_VERSION_MINOR,
                   OCTET_VERSION_PATCH);
    assert_string_equal(octet_version(), text);
    assert_int_equal(octet_version_number(), OCTET_VERSION_NUMBER);
}

static void names__every_number__word(void **state)
{
    (void)state;
    const struct {
        const char *found, *wanted;
    } names[] = {
        {octet_status_name(OCTET_OK), "ok"},
        {octet_status_name(OCTET_E_ARGUMENT), "argument"},
        {octet_status_name(OCTET_E_WORKSPACE), "workspace"},
        {octet_status_name(OCTET_E_ENVIRONMENT), "environment"},
        {octet_status_name(OCTET_E_SHAPE), "shape"},
        {octet_status_name(OCTET_E_UNSUPPORTED), "unsupported"},
        {octet_status_name(OCTET_E_INTERNAL), "internal"},
        {octet_status_name((octet_status)-99), "unknown"},
        {octet_isa_name(OCTET_ISA_AUTO), "auto"},
        {octet_isa_name(OCTET_ISA_REF), "ref"},
        {octet_isa_name(OCTET_ISA_AVX2), "avx2"},
        {octet_isa_name(OCTET_ISA_AVX512), "avx512"},
        {octet_isa_name((octet_isa)4), "unknown"},
        {octet_format_name(OCTET_FORMAT_MXFP8), "mxfp8"},
        {octet_format_name(OCTET_FORMAT_HIF8), "hif8"},
        {octet_format_name((octet_format)2), "unknown"},
        {octet_layout_name(OCTET_LAYOUT_NN), "NN"},
        {octet_layout_name(OCTET_LAYOUT_NT), "NT"},
        {octet_layout_name(OCTET_LAYOUT_TN), "TN"},
        {octet_layout_name((octet_layout)3), "unknown"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_string_equal(names[i].found, names[i].wanted);
}

static octet_features features_of(const octet_context *context)
{
    octet_features features = OCTET_FEATURES_INIT;
    assert_int_equal(octet_context_features(context, &features, NULL), OCTET_OK);
    return features;
}

static void context__explicit_settings__in_use(void **state)
{
    (void)state;
    test_context test;
    assert_true(open_context(&test, OCTET_ISA_REF, 3));
    const octet_features features = features_of(test.context);
    assert_int_equal(features.struct_bytes, sizeof features);
    assert_int_equal(features.isa, OCTET_ISA_REF);
    assert_int_equal(features.threads, 3);
    assert_true(features.cores >= 1);
    assert_true(features.highest_isa >= OCTET_ISA_REF);
    assert_int_equal(features.formats, 3);
    assert_int_equal(features.elements, 15);
}

static void context__unaligned_memory_of_just_the_size__works(void **state)
{
    (void)state;
    const size_t bytes = octet_context_bytes();
    for (size_t offset = 0; offset < 64; offset += 7) {
        unsigned char *memory = take(bytes + offset);
        octet_context *context = NULL;
        assert_int_equal(octet_context_init(memory + offset, bytes, NULL, &context, NULL),
                         OCTET_OK);
        assert_int_equal(memory[bytes + offset], GUARD);
        assert_true(features_of(context).threads >= 1);
        free(memory);
    }
}

static void context__environment__lowers_auto_only(void **state)
{
    (void)state;
    test_context test;
    octet_error error = {0};
    const char *before = getenv("OCTET_ISA");
    char *kept = before ? strdup(before) : NULL;
    assert_int_equal(setenv("OCTET_ISA", "ref", 1), 0);
    assert_true(open_context(&test, OCTET_ISA_AUTO, 1));
    assert_int_equal(features_of(test.context).isa, OCTET_ISA_REF);
    assert_int_equal(setenv("OCTET_ISA", "sse9", 1), 0);
    assert_true(open_context(&test, OCTET_ISA_REF, 1));
    const octet_status s =
        octet_context_init(test.memory, sizeof test.memory, NULL, &test.context, &error);
    check_refused(s, OCTET_E_ENVIRONMENT, &error, init, "sse9");
    assert_int_equal(unsetenv("OCTET_ISA"), 0);
    assert_true(open_context(&test, OCTET_ISA_AUTO, 1));
    const octet_features features = features_of(test.context);
    assert_int_equal(features.isa, features.highest_isa);
    if (kept)
        assert_int_equal(setenv("OCTET_ISA", kept, 1), 0);
    free(kept);
}

static void context_init__wrong_arguments__are_named(void **state)
{
    (void)state;
    octet_error error = {0};
    test_context t;
    octet_context_settings settings = OCTET_CONTEXT_SETTINGS_INIT;
    octet_status s = octet_context_init(NULL, sizeof t.memory, NULL, &t.context, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, init, "memory is NULL");
    s = octet_context_init(t.memory, sizeof t.memory, NULL, NULL, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, init, "context is NULL");
    s = octet_context_init(t.memory, octet_context_bytes() - 1, NULL, &t.context, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, init, "memory_bytes");
    settings.threads = -1;
    s = octet_context_init(t.memory, sizeof t.memory, &settings, &t.context, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, init, "settings->threads is -1");
    settings.threads = 1025;
    s = octet_context_init(t.memory, sizeof t.memory, &settings, &t.context, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, init, "settings->threads is 1025");
    settings.threads = 1;
    settings.isa = (octet_isa)7;
    s = octet_context_init(t.memory, sizeof t.memory, &settings, &t.context, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, init, "settings->isa is 7");
    settings.isa = OCTET_ISA_REF;
    settings.struct_bytes = 0;
    s = octet_context_init(t.memory, sizeof t.memory, &settings, &t.context, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, init, "settings->struct_bytes is 0");
    settings.struct_bytes = SIZE_MAX;
    s = octet_context_init(t.memory, sizeof t.memory, &settings, &t.context, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, init, "settings->struct_bytes");
}

static void context_init__structure_of_a_newer_caller__only_zeros_are_taken(void **state)
{
    (void)state;
    octet_error error = {0};
    test_context t;
    struct {
        octet_context_settings settings;
        uint64_t later;
    } newer = {{sizeof newer, OCTET_ISA_REF, 2}, 0};
    assert_int_equal(
        octet_context_init(t.memory, sizeof t.memory, &newer.settings, &t.context, &error),
        OCTET_OK);
    assert_int_equal(features_of(t.context).threads, 2);
    newer.later = 1;
    const octet_status s =
        octet_context_init(t.memory, sizeof t.memory, &newer.settings, &t.context, &error);
    check_refused(s, OCTET_E_UNSUPPORTED, &error, init, "settings has byte 16 set");
}

static void context_features__no_context__is_refused(void **state)
{
    (void)state;
    octet_error error = {0};
    octet_features features = OCTET_FEATURES_INIT;
    test_context test, copy;
    assert_true(open_context(&test, OCTET_ISA_REF, 1));
    octet_status s = octet_context_features(NULL, &features, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_context_features", "context is NULL");
    s = octet_context_features(test.context, NULL, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_context_features", "features is NULL");
    features.struct_bytes = 8;
    s = octet_context_features(test.context, &features, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_context_features", "struct_bytes is 8");
    features.struct_bytes = sizeof features;
    memcpy(copy.memory, test.memory, sizeof test.memory);
    const octet_context *moved = (const octet_context *)(const void *)copy.memory;
    s = octet_context_features(moved, &features, &error);
    check_refused(s, OCTET_E_ARGUMENT, &error, "octet_context_features", "context is no context");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version__library__is_that_of_the_headers),
        cmocka_unit_test(names__every_number__word),
        cmocka_unit_test(context__explicit_settings__in_use),
        cmocka_unit_test(context__unaligned_memory_of_just_the_size__works),
        cmocka_unit_test(context__environment__lowers_auto_only),
        cmocka_unit_test(context_init__wrong_arguments__are_named),
        cmocka_unit_test(context_init__structure_of_a_newer_caller__only_zeros_are_taken),
        cmocka_unit_test(context_features__no_context__is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
