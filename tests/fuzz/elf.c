/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ELF files of any content: what is read of one are strings within their bounds
 * that stand in the file.
 *
 * Input: the file.
 */
#include "fuzz.h"

#include "sandbox/namespace/elf.h"

#include <string.h>

static void check_string(const char *text, const uint8_t *data, size_t size)
{
    if (!text)
        return;
    assert(strlen(text) < ELF_STRING_MAX);
    assert(memmem(data, size, text, strlen(text) + 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_elf struct elf_object object = {0};
    struct hutch_error err;
    struct input input = {data, size};

    int code = elf_read(input_file(&input), &object, &err);
    if (code < 0) {
        check_error(code, &err);
        assert(code == HUTCH_ERR_RUNTIME);
    }
    if (code <= 0) {
        assert(!object.loader && !object.rpath && !object.runpath && object.needed.count == 0);
        return 0;
    }
    check_string(object.loader, data, size);
    check_string(object.rpath, data, size);
    check_string(object.runpath, data, size);
    assert(object.needed.count <= ELF_DYNAMIC_MAX);
    for (size_t i = 0; i < object.needed.count; i++)
        check_string(object.needed.items[i], data, size);
    return 0;
}
