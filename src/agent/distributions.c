/* SPDX-License-Identifier: Apache-2.0 */
/* See distributions.h. */
#include "distributions.h"

#include "base/attrs.h"

#include <stdbool.h>
#include <string.h>

static const struct {
    const char *module, *distribution;
} distributions[] = {
    {"Crypto", "pycryptodome"},
    {"Levenshtein", "python-Levenshtein"},
    {"MySQLdb", "mysqlclient"},
    {"OpenSSL", "pyOpenSSL"},
    {"PIL", "Pillow"},
    {"bs4", "beautifulsoup4"},
    {"cv2", "opencv-python"},
    {"dateutil", "python-dateutil"},
    {"docx", "python-docx"},
    {"dotenv", "python-dotenv"},
    {"fitz", "PyMuPDF"},
    {"git", "GitPython"},
    {"jwt", "PyJWT"},
    {"magic", "python-magic"},
    {"pptx", "python-pptx"},
    {"serial", "pyserial"},
    {"skimage", "scikit-image"},
    {"sklearn", "scikit-learn"},
    {"usb", "pyusb"},
    {"yaml", "PyYAML"},
    {"zmq", "pyzmq"},
};

#define BLANKS " \t\r"
#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"

/* The part of a program that is read. */
struct line {
    const char *at, *end;
};

static void skip(struct line *line, const char *characters)
{
    while (line->at < line->end && *line->at && strchr(characters, *line->at))
        line->at++;
}

static struct line take_name(struct line *line)
{
    struct line name = {line->at, line->at};

    skip(line, NAME_CHARACTERS);
    name.end = line->at;
    return name;
}

static bool is(const struct line *name, const char *word)
{
    size_t length = (size_t)(name->end - name->at);

    return length == strlen(word) && memcmp(name->at, word, length) == 0;
}

static void append_module(struct buf *out, const struct line *name, bool *told)
{
    for (size_t i = 0; i < ARRAY_LENGTH(distributions); i++) {
        if (told[i] || !is(name, distributions[i].module))
            continue;
        told[i] = true;
        buf_appendf(out, "%s%s of the distribution %s", out->length > 0 ? ", " : "",
                    distributions[i].module, distributions[i].distribution);
    }
}

/* "import A.B as C, D", or "from A.B import C". */
static void append_line(struct buf *out, struct line line, bool *told)
{
    skip(&line, BLANKS);
    struct line word = take_name(&line);
    bool many = is(&word, "import");

    if (!many && !is(&word, "from"))
        return;
    do {
        skip(&line, BLANKS ",");
        struct line name = take_name(&line);
        append_module(out, &name, told);
        while (line.at < line.end && *line.at != ',')
            line.at++;
    } while (many && line.at < line.end);
}

void distributions_append(struct buf *out, const char *code, size_t length)
{
    bool told[ARRAY_LENGTH(distributions)] = {false};
    const char *end = code + length;

    while (code < end) {
        const char *stop = memchr(code, '\n', (size_t)(end - code));
        const struct line line = {code, stop ? stop : end};
        append_line(out, line, told);
        code = stop ? stop + 1 : end;
    }
}
