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

/* The value of a character; 64 for one that has none. */
static unsigned int value_of(char character)
{
    if (character >= 'A' && character <= 'Z')
        return (unsigned int)(character - 'A');
    if (character >= 'a' && character <= 'z')
        return (unsigned int)(character - 'a') + 26;
    if (character >= '0' && character <= '9')
        return (unsigned int)(character - '0') + 52;
    return character == '+' ? 62 : character == '/' ? 63 : 64;
}

/* Four characters become three bytes, of which the padding takes some away. False for
 * other characters, and for bits that stand for nothing and are set. */
static bool decode_group(const char *group, unsigned int padding, char *data)
{
    unsigned int bits = 0;

    for (unsigned int i = 0; i < 4; i++) {
        unsigned int value = i < 4 - padding ? value_of(group[i]) : 0;
        if (value > 63)
            return false;
        bits = bits << 6 | value;
    }
    if (bits & ((1u << 8 * padding) - 1))
        return false;
    for (unsigned int i = 0; i < 3 - padding; i++)
        data[i] = (char)(bits >> (16 - 8 * i));
    return true;
}

bool base64_decode(const char *text, size_t length, char *ret_data, size_t *ret_length)
{
    size_t used = 0;

    if (length % 4 != 0)
        return false;
    for (size_t at = 0; at < length; at += 4) {
        unsigned int padding = 0;
        if (at + 4 == length)
            padding = text[at + 3] != '=' ? 0 : text[at + 2] != '=' ? 1 : 2;
        if (!decode_group(text + at, padding, ret_data + used))
            return false;
        used += 3 - padding;
    }
    *ret_length = used;
    return true;
}
