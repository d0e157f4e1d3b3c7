/* SPDX-License-Identifier: Apache-2.0 */
/* See rich.h. */
#include "rich.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/utf8.h"
#include "wire.h"

#include <string.h>

void rich_list_done(struct rich_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i].data);
    free(list->items);
    *list = (struct rich_list){0};
}

/* ---- forms ---- */

/* The signature, and the header of an image as the first chunk. */
static bool is_png(const char *data, size_t length)
{
    static const char begin[] = "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR";
    const size_t head = sizeof(begin) - 1;
    uint32_t sizes[2]; /* of no importance in which byte order */

    if (length < head + 13 + 4 || memcmp(data, begin, head) != 0) /* fields, checksum */
        return false;
    memcpy(sizes, data + head, sizeof(sizes));
    return sizes[0] != 0 && sizes[1] != 0;
}

static bool is_any(const char *data, size_t length)
{
    (void)data;
    (void)length;
    return true;
}

static const struct form {
    const char *mime;
    bool text; /* is repaired to valid UTF-8 before it is looked at */
    bool (*is_valid)(const char *data, size_t length);
} forms[] = {
    {"image/png", false, is_png},
    {"image/svg+xml", true, is_any},
    {"text/html", true, is_any},
    {"application/json", true, json_valid},
};

static const struct form *form_of(const char *mime, size_t length)
{
    for (size_t i = 0; i < ARRAY_LENGTH(forms); i++) {
        if (strlen(forms[i].mime) == length && memcmp(forms[i].mime, mime, length) == 0)
            return &forms[i];
    }
    return NULL;
}

/* ---- the list ---- */

/* Appends data in its form. Returns 1 when it is kept, 0 when it is malformed. */
static int keep(struct rich_list *list, const struct form *form, const char *data, size_t length,
                struct hutch_error *err)
{
    auto_buf struct buf kept = BUF_MAX(length * strlen(UTF8_REPLACEMENT));

    if (form->text)
        utf8_repair(&kept, data, length);
    else
        buf_append(&kept, data, length);
    buf_append(&kept, "", 0); /* no data is a string, too */
    if (buf_check(&kept, err) < 0)
        return err->code;
    if (!form->is_valid(kept.data, kept.length))
        return 0;
    if (!list->items)
        list->items = calloc(WIRE_MAX_RICH_COUNT, sizeof(*list->items));
    if (!list->items)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    struct buf taken = TAKE_BUF(kept);
    list->items[list->count++] =
        (struct hutch_rich){.mime = form->mime, .data = taken.data, .length = taken.length};
    return 1;
}

int rich_add(struct rich_list *list, const char *payload, size_t length, struct hutch_error *err)
{
    const char *nul = length > 0 ? memchr(payload, '\0', length) : NULL;
    const struct form *form = nul ? form_of(payload, (size_t)(nul - payload)) : NULL;
    int kept = 0;

    if (form && list->count < WIRE_MAX_RICH_COUNT && length <= WIRE_MAX_RICH_BYTES - list->bytes) {
        kept = keep(list, form, nul + 1, length - (size_t)(nul + 1 - payload), err);
        if (kept < 0)
            return kept;
    }
    if (kept > 0)
        list->bytes += length;
    else
        list->dropped++;
    return 0;
}
