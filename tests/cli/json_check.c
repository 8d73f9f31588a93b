/* json_check PATH=VALUE ... < JSON: every line of stdin is a JSON value (or all of it is one), and
 * in each of them every path has the value. A path is made of member names and list indices with
 * dots between; "#" at its end is a length; "PATH=*" asks only that it exists; "PATH>N" and
 * "PATH<N" compare numbers. Exit 0, or 1 with a message. */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const json_t *step_into(const json_t *value, const char *name)
{
    return json_is_array(value) ? json_array_get(value, (size_t)strtoul(name, NULL, 10))
                                : json_object_get(value, name);
}

static bool holds(const json_t *found, char relation, const char *wanted)
{
    if (relation == '>')
        return json_is_number(found) && json_number_value(found) > strtod(wanted, NULL);
    if (relation == '<')
        return json_is_number(found) && json_number_value(found) < strtod(wanted, NULL);
    if (strcmp(wanted, "*") == 0)
        return found != NULL;
    if (json_is_string(found))
        return strcmp(json_string_value(found), wanted) == 0;
    json_t *value = json_loads(wanted, JSON_DECODE_ANY, NULL);
    const bool same = value && found && json_equal(value, found);
    json_decref(value);
    return same;
}

static bool check(const json_t *root, const char *argument)
{
    char path[512];
    const size_t length = strcspn(argument, "=<>");
    if (length >= sizeof path || argument[length] == '\0') {
        printf("not PATH=VALUE: %s\n", argument);
        return false;
    }
    memcpy(path, argument, length);
    path[length] = '\0';
    const json_t *value = root;
    json_t *size = NULL;
    char *rest = NULL;
    for (char *name = strtok_r(path, ".", &rest); name; name = strtok_r(NULL, ".", &rest)) {
        if (strcmp(name, "#") == 0)
            value = size = json_integer((json_int_t)json_array_size(value));
        else
            value = step_into(value, name);
    }
    const bool good = holds(value, argument[length], argument + length + 1);
    if (!good) {
        char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        printf("found %.200s, required %s\n", text ? text : "nothing", argument);
        free(text);
    }
    json_decref(size);
    return good;
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t room = 0;
    int lines = 0;
    while (getline(&line, &room, stdin) > 0) {
        json_error_t error;
        json_t *root = json_loads(line, JSON_REJECT_DUPLICATES, &error);
        if (!root) {
            printf("line %d is no JSON: %s\n", lines + 1, error.text);
            return 1;
        }
        for (int i = 1; i < argc; i++)
            if (!check(root, argv[i]))
                return 1;
        json_decref(root);
        lines++;
    }
    free(line);
    if (lines == 0)
        puts("nothing to check");
    return lines == 0;
}
