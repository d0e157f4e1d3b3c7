/* SPDX-License-Identifier: Apache-2.0 */
/* See cell_copy.h. */
#include "cell_copy.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Numbers, flags and static texts are copied with the struct; of what is allocated each copy
 * notes whether there was memory for it. */

static char *copy_bytes(const char *data, size_t length, bool *good)
{
    char *copy = data ? malloc(length + 1) : NULL;

    if (copy) {
        memcpy(copy, data, length);
        copy[length] = '\0';
    }
    *good = *good && (copy || !data);
    return copy;
}

static char *copy_string(const char *text, bool *good)
{
    return copy_bytes(text, text ? strlen(text) : 0, good);
}

static void copy_text(struct hutch_text *text, bool *good)
{
    text->data = copy_bytes(text->data, text->length, good);
}

static void *copy_array(const void *items, size_t count, size_t size, bool *good)
{
    void *copy = count > 0 ? calloc(count, size) : NULL;

    if (copy)
        memcpy(copy, items, count * size);
    *good = *good && (copy || count == 0);
    return copy;
}

static void copy_files(hutch_result *copy, bool *good)
{
    copy->files = copy_array(copy->files, copy->file_count, sizeof(*copy->files), good);
    copy->file_count = copy->files ? copy->file_count : 0;
    for (size_t i = 0; i < copy->file_count; i++) {
        copy->files[i].path = copy_string(copy->files[i].path, good);
        copy_text(&copy->files[i].data, good);
    }
}

static void copy_results(hutch_result *copy, bool *good)
{
    copy->results = copy_array(copy->results, copy->result_count, sizeof(*copy->results), good);
    copy->result_count = copy->results ? copy->result_count : 0;
    for (size_t i = 0; i < copy->result_count; i++)
        copy->results[i].data = copy_bytes(copy->results[i].data, copy->results[i].length, good);
}

static void copy_background(hutch_result *copy, bool *good)
{
    copy->background =
        copy_array(copy->background, copy->background_count, sizeof(*copy->background), good);
    copy->background_count = copy->background ? copy->background_count : 0;
    for (size_t i = 0; i < copy->background_count; i++)
        copy->background[i].command = copy_string(copy->background[i].command, good);
}

int cell_copy(const hutch_result *result, hutch_result **ret_copy, struct hutch_error *err)
{
    hutch_result *copy = malloc(sizeof(*copy));
    bool good = copy != NULL;

    if (copy) {
        *copy = *result;
        copy_text(&copy->stdout_text, &good);
        copy_text(&copy->stderr_text, &good);
        copy->error_class = copy_string(copy->error_class, &good);
        copy->error_message = copy_string(copy->error_message, &good);
        copy_text(&copy->value, &good);
        copy_text(&copy->late_text, &good);
        copy_files(copy, &good);
        copy_results(copy, &good);
        copy_background(copy, &good);
    }
    if (!good) {
        hutch_result_free(copy);
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    }
    *ret_copy = copy;
    return 0;
}
