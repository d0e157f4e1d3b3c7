/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes docs/errors.md from the tables of errors.
 *
 *     errors_md > docs/errors.md     writes the page
 *     errors_md docs/errors.md       says whether the page is up to date (a test)
 */
#include "base/buf.h"
#include "base/error.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define PAGE_BYTES 65536

static const struct {
    const char *constant;
    struct error_info info;
} rows[] = {
#define ERROR(code, name, http, exit, python, meaning)                                             \
    {#code, {code, name, http, exit, python, meaning}},
#include "base/errors.def"
#undef ERROR
};

static const struct {
    const char *name, *meaning;
} model_rows[] = {
#define MODEL_ERROR(kind, name, meaning) {name, meaning},
#include "agent/model_errors.def"
#undef MODEL_ERROR
};

static void append_model_errors(struct buf *page)
{
    buf_append_text(
        page, "\n"
              "## Of models\n"
              "\n"
              "Where a model gives no reply, the run of an agent has a result all the same. Its\n"
              "`exit_reason` is `model_error`, and its `error_code` (in JSON `error.code`) one of\n"
              "these; beside it are a message of one line that says what to do, the last HTTP\n"
              "status, and `retry_safe`. `hutch agent` then exits with 125.\n"
              "\n"
              "| error_code | meaning |\n"
              "|---|---|\n");
    for (size_t i = 0; i < ARRAY_LENGTH(model_rows); i++)
        buf_appendf(page, "| `%s` | %s |\n", model_rows[i].name, model_rows[i].meaning);
    buf_append_text(page,
                    "\n"
                    "`schema`, with the `exit_reason` of that name, says that the answer does not\n"
                    "follow the schema, and the message where; the status is 1.\n");
}

static void append_page(struct buf *page)
{
    buf_append_text(
        page,
        "# Errors\n"
        "\n"
        "An error says that hutch itself could not do its work; a program that fails is a normal\n"
        "result. Every front door tells the same errors apart by the same names. Beside its name "
        "an\n"
        "error has a message of one line, and `retry_safe`: true when the code was not started, "
        "so\n"
        "that the same request may be sent again; false when it may have run.\n"
        "\n"
        "This page is made from `src/base/errors.def` and `src/agent/model_errors.def` by\n"
        "`errors_md`; a test compares them.\n"
        "\n"
        "| name | C | value | HTTP | `hutch run` exits with | Python | meaning |\n"
        "|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        const struct error_info *info = &rows[i].info;
        buf_appendf(page, "| `%s` | `%s` | %d | %d | %d | `%s` | %s |\n", info->name,
                    rows[i].constant, info->code, info->http_status, info->exit_status,
                    info->python_class, info->meaning);
    }
}

static int compare(const struct buf *page, const char *path)
{
    auto_buf struct buf text = BUF_MAX(PAGE_BYTES);
    struct hutch_error err;

    if (buf_read_file(&text, AT_FDCWD, path, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (strcmp(buf_text(&text), buf_text(page)) != 0) {
        fprintf(stderr,
                "'%s' is not what src/base/errors.def and src/agent/model_errors.def give; make it "
                "anew: errors_md > %s\n",
                path, path);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    auto_buf struct buf page = BUF_MAX(PAGE_BYTES);
    struct hutch_error err;

    append_page(&page);
    append_model_errors(&page);
    if (buf_check(&page, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (argc > 1)
        return compare(&page, argv[1]);
    return fputs(buf_text(&page), stdout) < 0 || fflush(stdout) != 0;
}
