/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel says of the load of a host: numbers stay in their bounds, what is
 * not said leaves things as they are, and what can be written is read again.
 *
 * Input: eight bytes for each of three numbers, then the text.
 */
#include "fuzz.h"

#include "base/limits.h"
#include "sandbox/load.h"
#include "sandbox/load_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define UNTOUCHED 77

static void check_text(const char *text)
{
    uint64_t bytes = UNTOUCHED;
    uint32_t threads = UNTOUCHED, pressure = UNTOUCHED;

    if (load_text_memory(text, "MemTotal", &bytes))
        assert(bytes <= UINT64_C(1) << 50 && strstr(text, "MemTotal:"));
    else
        assert(bytes == UNTOUCHED);
    if (load_text_runnable(text, &threads))
        assert(strchr(text, '/'));
    else
        assert(threads == UNTOUCHED);
    if (load_text_pressure(text, &pressure))
        assert(pressure <= 10000 && strstr(text, "some avg10="));
    else
        assert(pressure == UNTOUCHED);
}

/* As the kernel writes them, with anything in front that ends in a line feed. */
static void check_numbers(const char *text, uint32_t first, uint32_t second)
{
    auto_buf struct buf written = BUF_MAX(LIMIT_PROC_FILE_BYTES);
    uint64_t bytes;
    uint32_t threads, pressure;

    buf_appendf(&written, "0.50 11.25 0.00 %" PRIu32 "/124 7992\n", first);
    assert(load_text_runnable(written.data, &threads) && threads == first);
    buf_clear(&written);
    buf_appendf(&written, "some avg10=%u.%02u avg60=%.100s\n", second % 100, first % 100, text);
    assert(load_text_pressure(written.data, &pressure));
    assert(pressure == second % 100 * 100 + first % 100);
    buf_clear(&written);
    if (strstr(text, "MemTotal"))
        return;
    buf_appendf(&written, "%.1000s\nMemTotal: %" PRIu32 " kB\n", text, first);
    assert(load_text_memory(written.data, "MemTotal", &bytes) && bytes == KIB(first));
}

static void check_arithmetic(uint64_t limit, uint64_t usage, uint64_t inactive)
{
    uint64_t headroom = load_headroom(limit, usage, inactive);

    assert(headroom <= limit);
    assert(headroom >= load_headroom(limit, usage, 0));
    assert(load_reserve(limit) <= limit / 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    uint64_t limit = input_number(&input, 8);
    uint64_t usage = input_number(&input, 8);
    uint64_t inactive = input_number(&input, 8);
    auto_free char *text = input_text(&input);

    check_arithmetic(limit, usage, inactive);
    check_text(text);
    check_numbers(text, (uint32_t)limit, (uint32_t)usage);
    return 0;
}
