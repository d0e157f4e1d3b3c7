/* SPDX-License-Identifier: Apache-2.0 */
/* See base64.h. */
#include "base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* One to three bytes become four characters. */
static void encode_group(const unsigned char *data, size_t length, char *group)
{
    unsigned int bits = (unsigned int)data[0] << 16;

    if (length > 1)
        bits |= (unsigned int)data[1] << 8;
    if (length > 2)
        bits |= data[2];
    group[0] = alphabet[bits >> 18];
    group[1] = alphabet[bits >> 12 & 63];
    group[2] = length > 1 ? alphabet[bits >> 6 & 63] : '=';
    group[3] = length > 2 ? alphabet[bits & 63] : '=';
}

void base64_append(struct buf *out, const void *data, size_t length)
{
    const unsigned char *at = data;
    char groups[4 * 256];

    while (length > 0) {
        size_t used = 0;
        while (length > 0 && used < sizeof(groups)) {
            size_t count = length < 3 ? length : 3;
            encode_group(at, count, groups + used);
            used += 4;
            at += count;
            length -= count;
        }
        buf_append(out, groups, used);
    }
}
