/* NPY files as text, so that cases can be written and read by eye.
 *   npy_text make DESCR SHAPE [HEX...]     to stdout; DESCR and SHAPE as in the header: '<f4' '(2,
 * 3)' npy_text show [FILE]                   DESCR, SHAPE and the elements on three lines An
 * element is its bit pattern in hex, most significant digit first, whatever its byte order; HEX
 * words are concatenated. Independent of src/data/npy.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int digit(int c)
{
    const char *all = "0123456789abcdef";
    const char *at = c ? strchr(all, c) : NULL;
    return at ? (int)(at - all) : -1;
}

static void put_element(const unsigned char *bytes, size_t size, int big)
{
    for (size_t i = 0; i < size; i++)
        putchar(bytes[big ? i : size - 1 - i]);
}

static int make(const char *descr, const char *shape, int count, char **words)
{
    const size_t size = (size_t)strtoul(descr + 2, NULL, 10);
    char header[512];
    int used = snprintf(header, sizeof header,
                        "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    while ((used + 11) % 64 != 0)
        header[used++] = ' ';
    header[used++] = '\n';
    fwrite("\x93NUMPY\x01", 1, 7, stdout);
    putchar(0);
    putchar(used & 255);
    putchar(used >> 8);
    fwrite(header, 1, (size_t)used, stdout);
    unsigned char bytes[8];
    size_t have = 0;
    int high = -1;
    for (int w = 0; w < count; w++)
        for (const char *c = words[w]; *c; c++) {
            const int value = digit(*c);
            if (value < 0 || size == 0 || size > sizeof bytes)
                return 1;
            if (high < 0) {
                high = value;
                continue;
            }
            bytes[have++] = (unsigned char)(high << 4 | value);
            high = -1;
            if (have == size) {
                put_element(bytes, size, descr[0] == '>');
                have = 0;
            }
        }
    return have != 0;
}

static int show(FILE *file)
{
    char header[65536 + 1];
    unsigned char head[10];
    if (!file || fread(head, 1, 10, file) != 10 || memcmp(head, "\x93NUMPY\x01", 7) != 0)
        return 1;
    const size_t length = (size_t)(head[8] | head[9] << 8);
    if (fread(header, 1, length, file) != length)
        return 1;
    header[length] = '\0';
    const char *descr = strstr(header, "'descr': '"), *shape = strchr(header, '(');
    if (!descr || !shape || (length + 10) % 64 != 0)
        return 1;
    descr += 10;
    const size_t size = (size_t)strtoul(descr + 2, NULL, 10);
    printf("%.3s\n%.*s\n", descr, (int)(strchr(shape, ')') - shape + 1), shape);
    unsigned char bytes[8];
    while (size <= sizeof bytes && fread(bytes, 1, size, file) == size)
        for (size_t i = 0; i < size; i++)
            printf("%02x", bytes[descr[0] == '>' ? i : size - 1 - i]);
    putchar('\n');
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 4 && strcmp(argv[1], "make") == 0)
        return make(argv[2], argv[3], argc - 4, argv + 4);
    if (argc >= 2 && strcmp(argv[1], "show") == 0)
        return show(argc > 2 ? fopen(argv[2], "rb") : stdin);
    return 2;
}
