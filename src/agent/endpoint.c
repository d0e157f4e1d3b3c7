/* SPDX-License-Identifier: Apache-2.0 */
/* See endpoint.h. */
#include "endpoint.h"

#include "base/limits.h"
#include "base/quote.h"

#include <string.h>
#include <strings.h>

#define PATH "/chat/completions"
#define PORT_MAX 65535u

/* The parts of an address that say where it leads. */
struct place {
    bool secure;
    const char *host; /* with brackets around an address of IPv6 */
    size_t host_length;
    const char *port; /* digits; not there: length 0 */
    size_t port_length;
    bool user;        /* there is a user before the host */
    const char *rest; /* from the path on */
};

static bool begins_with(const char *text, const char *word)
{
    return strncasecmp(text, word, strlen(word)) == 0;
}

/* The colon before the port; the end where there is none. */
static const char *port_colon(const char *host, const char *end)
{
    const char *from = *host == '[' ? memchr(host, ']', (size_t)(end - host)) : host;
    const char *colon = from ? memchr(from, ':', (size_t)(end - from)) : NULL;

    return colon ? colon : end;
}

/* A name, an address of IPv4, or one of IPv6 in brackets, perhaps with a zone. */
static bool is_host(const char *host, size_t length)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    bool bracketed = length > 2 && host[0] == '[' && host[length - 1] == ']';

    if (bracketed) {
        host++;
        length -= 2;
    }
    for (size_t i = 0; i < length; i++) {
        if (host[i] == '\0' || (!strchr(letters, host[i]) && !(bracketed && strchr(":%", host[i]))))
            return false;
    }
    return length > 0;
}

/* Nothing behind the colon is the standard port. */
static bool is_port_number(const char *port, size_t length)
{
    unsigned number = 0;

    for (size_t i = 0; i < length; i++) {
        if (port[i] < '0' || port[i] > '9' || number > PORT_MAX)
            return false;
        number = 10 * number + (unsigned)(port[i] - '0');
    }
    return length == 0 || (number >= 1 && number <= PORT_MAX);
}

static bool split(const char *url, struct place *ret_place)
{
    bool secure = begins_with(url, "https://");

    if (!secure && !begins_with(url, "http://"))
        return false;
    const char *host = strchr(url, ':') + strlen("://");
    const char *end = host + strcspn(host, "/?#\\");
    const char *at = memrchr(host, '@', (size_t)(end - host));
    if (at)
        host = at + 1;
    const char *colon = port_colon(host, end);
    *ret_place = (struct place){
        .secure = secure,
        .host = host,
        .host_length = (size_t)(colon - host),
        .port = colon < end ? colon + 1 : end,
        .port_length = colon < end ? (size_t)(end - colon - 1) : 0,
        .user = at != NULL,
        .rest = end,
    };
    return is_host(host, ret_place->host_length) &&
           is_port_number(ret_place->port, ret_place->port_length);
}

static bool has_bad_byte(const char *url)
{
    for (; *url; url++) {
        if ((unsigned char)*url <= ' ' || *url == 0x7f || *url == '\\')
            return true;
    }
    return false;
}

int endpoint_append(struct buf *out, const char *base_url, struct hutch_error *err)
{
    size_t length = strlen(base_url);
    struct place place;

    if (length > LIMIT_URL_BYTES)
        return err_set(err, HUTCH_ERR_INVALID, "base URL: longer than %d bytes",
                       (int)LIMIT_URL_BYTES);
    if (has_bad_byte(base_url) || !split(base_url, &place))
        return err_set(err, HUTCH_ERR_INVALID,
                       "base URL: %s is not an address like https://host/v1",
                       quote_text(base_url).text);
    if (place.user)
        return err_set(err, HUTCH_ERR_INVALID,
                       "base URL: a user or password in it is not allowed; give an API key");
    if (strpbrk(place.rest, "?#"))
        return err_set(err, HUTCH_ERR_INVALID, "base URL: %s has a query or a fragment",
                       quote_text(base_url).text);
    while (base_url[length - 1] == '/')
        length--;
    buf_append(out, base_url, length);
    buf_append_text(out, PATH);
    return buf_check(out, err);
}

static bool same_host(const struct place *one, const struct place *other)
{
    return one->host_length == other->host_length &&
           strncasecmp(one->host, other->host, one->host_length) == 0;
}

static bool is_port(const struct place *place, const char *port)
{
    return place->port_length == strlen(port) && memcmp(place->port, port, place->port_length) == 0;
}

static bool is_standard_port(const struct place *place)
{
    return place->port_length == 0 || is_port(place, place->secure ? "443" : "80");
}

static bool same_port(const struct place *one, const struct place *other)
{
    if (is_standard_port(one) || is_standard_port(other))
        return is_standard_port(one) && is_standard_port(other);
    return one->port_length == other->port_length &&
           memcmp(one->port, other->port, one->port_length) == 0;
}

bool endpoint_may_follow(const char *from_url, const char *to_url)
{
    struct place from, to;

    if (has_bad_byte(to_url) || !split(from_url, &from) || !split(to_url, &to))
        return false;
    if (to.user || !same_host(&from, &to))
        return false;
    return from.secure == to.secure ? same_port(&from, &to) : to.secure;
}

static bool is_on(const char *url, const char *host)
{
    struct place place;

    return split(url, &place) && place.host_length == strlen(host) &&
           strncasecmp(place.host, host, place.host_length) == 0;
}

bool endpoint_is_openrouter(const char *url)
{
    return is_on(url, "openrouter.ai");
}

bool endpoint_wants_key(const char *url)
{
    return is_on(url, "api.openai.com") || endpoint_is_openrouter(url);
}

void endpoint_append_place(struct buf *out, const char *url)
{
    struct place place;

    if (!split(url, &place)) {
        buf_append_text(out, "no address of http");
        return;
    }
    buf_append_text(out, place.secure ? "https://" : "http://");
    buf_append(out, place.host, place.host_length);
    if (place.port_length > 0) {
        buf_append_text(out, ":");
        buf_append(out, place.port, place.port_length);
    }
}
