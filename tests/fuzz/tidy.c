/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code out of what models write: never longer, never empty, without CR at the ends
 * of lines, still UTF-8 where it was, and tidying it again changes nothing.
 *
 * Input: a byte for the language, the code.
 */
#include "fuzz.h"

#include "base/utf8.h"
#include "sandbox/tidy.h"

#include <stdlib.h>
#include <string.h>

/* Code that was touched at all has plain line ends and no byte order mark. */
static void check_plain(const struct hutch_text *code, const struct buf *tidied)
{
    if (tidied->length == code->length && memcmp(tidied->data, code->data, code->length) == 0)
        return;
    assert(!memmem(tidied->data, tidied->length, "\r\n", 2));
    assert(tidied->length < 3 || memcmp(tidied->data, "\xef\xbb\xbf", 3) != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const languages[] = {"python", "shell", "javascript"};
    struct input input = {data, size};
    const char *language = languages[input_number(&input, 1) % ARRAY_LENGTH(languages)];
    struct hutch_text code = input_bytes(&input, SIZE_MAX);

    if (code.length > 0) {
        auto_buf struct buf once = BUF_MAX(code.length);
        auto_buf struct buf twice = BUF_MAX(code.length);
        tidy_code(code.data, code.length, language, &once);
        assert(once.failure == BUF_OK && once.length > 0);
        assert(!utf8_valid(code.data, code.length) || utf8_valid(once.data, once.length));
        check_plain(&code, &once);
        tidy_code(once.data, once.length, language, &twice);
        check_bytes(&twice, once.data, once.length);
    }
    free(code.data);
    return 0;
}
