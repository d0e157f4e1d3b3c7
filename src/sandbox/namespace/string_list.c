/* SPDX-License-Identifier: Apache-2.0 */
/* See string_list.h. */
#include "string_list.h"

#include <string.h>

void string_list_done(struct string_list *list)
{
    int saved = errno;
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct string_list){0};
    errno = saved;
}

int string_list_add(struct string_list *list, const char *text, struct hutch_error *err)
{
    if (list->count >= STRING_LIST_MAX)
        return err_set(err, HUTCH_ERR_INVALID, "more than %d names", STRING_LIST_MAX);
    /* The array doubles whenever its count is a power of two. */
    if ((list->count & (list->count - 1)) == 0) {
        size_t capacity = list->count > 0 ? list->count * 2 : 1;
        char **items = realloc(list->items, capacity * sizeof(*items));
        if (!items)
            return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
        list->items = items;
    }
    char *copy = strdup(text);
    if (!copy)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    list->items[list->count++] = copy;
    return 0;
}

bool string_list_has(const struct string_list *list, const char *text)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i], text) == 0)
            return true;
    }
    return false;
}
