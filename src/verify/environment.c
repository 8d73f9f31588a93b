/* Where and with what the cases ran. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "verify/process.h"
#include "verify/run.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* The text after ": " of the first line of /proc/cpuinfo that begins with `key`. */
static json_t *cpu_field(const char *key)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char *line = NULL;
    size_t room = 0;
    json_t *found = NULL;
    while (file && !found && getline(&line, &room, file) > 0) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) == 0 && colon)
            found = json_stringn(colon + 2, strcspn(colon + 2, "\n"));
    }
    free(line);
    if (file)
        fclose(file);
    return found ? found : json_string("unknown");
}

/* What the launcher calls itself: the first line that it prints for --version. */
static json_t *launcher(const oct_verify *v)
{
    char path[OCT_PATH_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    oct_process_result result;
    if (v->mpirun[0] == '\0' ||
        oct_path_join(v->out, "mpirun.txt", path, sizeof path, NULL) != OCT_OK ||
        oct_process_run(
            &(oct_process_options){.argv = (const char *[]){v->mpirun, "--version", NULL},
                                   .stdout_path = path,
                                   .timeout_seconds = 60.0},
            &result, NULL) != OCT_OK ||
        oct_file_read_all(&oct_file_table_real, path, 1 << 16, &text, &bytes, NULL) != OCT_OK)
        return json_string("none");
    json_t *name = json_stringn(text, strcspn(text, "\n"));
    free(text);
    return name;
}

json_t *oct_verify_environment(const oct_verify *v)
{
    json_t *about = json_object();
    (void)json_object_set_new(about, "commit", json_string(v->commit));
    (void)json_object_set_new(about, "compiler", json_string(COMPILER));
    (void)json_object_set_new(about, "mpi", launcher(v));
    (void)json_object_set_new(about, "cpu", cpu_field("model name"));
    (void)json_object_set_new(about, "features", cpu_field("flags"));
    (void)json_object_set_new(about, "isa", json_string(oct_isa_name(oct_cpu_isa())));
    (void)json_object_set_new(about, "cores", json_integer(oct_cpu_count()));
    (void)json_object_set_new(about, "ranks", json_integer(v->ranks));
    (void)json_object_set_new(
        about, "model", json_string(v->config ? "own configuration" : oct_verify_models[v->model]));
    (void)json_object_set_new(about, "config", json_string(oct_verify_config(v)));
    (void)json_object_set_new(about, "quick", json_boolean(v->quick));
    return about;
}

void oct_verify_add_configs(oct_verify *v)
{
    json_t *configs = json_object();
    for (int r = 0; r < v->run_count; r++) {
        char path[OCT_PATH_BYTES];
        char *text = NULL;
        size_t bytes = 0;
        if (oct_path_join(v->runs[r]->dir, "config.yaml", path, sizeof path, NULL) == OCT_OK &&
            oct_file_read_all(&oct_file_table_real, path, 1 << 20, &text, &bytes, NULL) == OCT_OK)
            (void)json_object_set_new(configs, v->runs[r]->name, json_string(text));
        free(text);
    }
    (void)json_object_set_new(json_object_get(v->report, "environment"), "configs", configs);
}
