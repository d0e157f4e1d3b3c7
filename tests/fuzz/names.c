/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of layers, languages, encodings and backends: one that is taken stands for
 * a value that has this name, or has it as an alias; what is refused is refused by
 * name. And masks of layers, whatever bits they have.
 *
 * Input: four bytes of a mask, the name.
 */
#include "fuzz.h"

#include "base/json.h"
#include "base/utf8.h"
#include "sandbox/layers.h"
#include "sandbox/request.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 1024

static void check_refusal(int code, const struct hutch_error *err)
{
    check_error(code, err);
    assert(utf8_valid(err->message, strlen(err->message)));
}

static void check_layer(const char *name)
{
    struct hutch_error err;
    uint32_t layer = hutch_layer_from_name(name), parsed = 0;
    int code = layer_parse(name, &parsed, &err);

    assert((code == 0) == (layer != 0) && parsed == layer);
    if (code < 0) {
        check_refusal(code, &err);
        assert((code == HUTCH_ERR_LAYER) == layer_is_of_microvm(name));
    } else {
        assert((layer & (layer - 1)) == 0 && (layer & ~HUTCH_LAYERS_NAMESPACE) == 0);
        assert(strcmp(hutch_layer_name(layer), name) == 0);
    }
}

static void check_choices(const char *name)
{
    struct hutch_error err;
    enum hutch_language language;
    enum hutch_encoding encoding;
    enum hutch_backend backend;

    int code = language_parse(name, &language, &err);
    if (code < 0)
        check_refusal(code, &err);
    else
        assert(strcmp(name, language_name(language)) == 0 || strcmp(name, "raw") == 0);
    code = encoding_parse(name, &encoding, &err);
    if (code < 0)
        check_refusal(code, &err);
    else
        assert(encoding == HUTCH_TEXT || encoding == HUTCH_BASE64);
    code = backend_parse(name, &backend, &err);
    if (code < 0)
        check_refusal(code, &err);
    else
        assert(backend == HUTCH_BACKEND_AUTO || backend == HUTCH_BACKEND_NAMESPACE);
}

/* The JSON of a mask names its layers, each once, and nothing else. */
static void check_mask(uint32_t mask)
{
    struct hutch_error err;
    auto_buf struct buf text = BUF_MAX(TEXT_BYTES);
    auto_json json_t *array = NULL;
    uint32_t named = 0;
    size_t i;
    json_t *name;

    layers_append_json(&text, mask);
    assert(text.failure == BUF_OK);
    int code = json_read(text.data, text.length, TEXT_BYTES, &array, &err);
    assert(code == 0 && json_is_array(array));
    json_array_foreach(array, i, name)
    {
        uint32_t layer = hutch_layer_from_name(json_string_value(name));
        assert(layer != 0 && !(named & layer));
        named |= layer;
    }
    assert(named == (mask & HUTCH_LAYERS_NAMESPACE));
    bool single = mask != 0 && (mask & (mask - 1)) == 0;
    assert((hutch_layer_name(mask) != NULL) == (single && named == mask));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};

    check_mask((uint32_t)input_number(&input, 4));
    auto_free char *name = input_text(&input);
    check_layer(name);
    check_choices(name);
    return 0;
}
