/* SPDX-License-Identifier: Apache-2.0 */
/* See environment.h. */
#include "environment.h"

#include "endpoint.h"

#include <stdbool.h>
#include <string.h>

#define OPENAI_URL "https://api.openai.com/v1"
#define OPENROUTER_URL "https://openrouter.ai/api/v1"

const char *environment_get(char *const *environment, const char *name)
{
    size_t length = strlen(name);

    for (; *environment; environment++) {
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
            return (*environment)[length + 1] != '\0' ? *environment + length + 1 : NULL;
    }
    return NULL;
}

void model_settings_done(struct model_settings *settings)
{
    secret_done(&settings->key);
    *settings = MODEL_SETTINGS_NONE;
}

/* The first of two that is there. */
static const char *either(const char *one, const char *other)
{
    return one ? one : other;
}

/* The server of the key that there is. */
static const char *usual_url(char *const *environment)
{
    if (!environment_get(environment, "OPENAI_API_KEY") &&
        environment_get(environment, "OPENROUTER_API_KEY"))
        return OPENROUTER_URL;
    return OPENAI_URL;
}

static int read_key(const struct model_choice *choice, char *const *environment, const char *url,
                    struct secret *ret_key, struct hutch_error *err)
{
    const char *of_openai = environment_get(environment, "OPENAI_BASE_URL");
    const char *of_openrouter = environment_get(environment, "OPENROUTER_BASE_URL");
    const char *names[3] = {"OPENAI_API_KEY", NULL, NULL};

    if (choice->key_file)
        return secret_from_file(choice->key_file, ret_key, err);
    if (endpoint_is_openrouter(url) || (url == of_openrouter && url != of_openai))
        names[0] = "OPENROUTER_API_KEY";
    if (endpoint_is_openrouter(url) && url == of_openai)
        names[1] = "OPENAI_API_KEY";
    return secret_from_environment(environment, names, ret_key, err);
}

int model_settings_read(const struct model_choice *choice, char *const *environment,
                        struct model_settings *ret_settings, struct hutch_error *err)
{
    const char *named = either(environment_get(environment, "OPENAI_BASE_URL"),
                               environment_get(environment, "OPENROUTER_BASE_URL"));
    const char *url = either(either(choice->base_url, named), usual_url(environment));
    struct secret key = SECRET_NONE;

    if (read_key(choice, environment, url, &key, err) < 0)
        return err->code;
    *ret_settings = (struct model_settings){
        .model = either(either(choice->model, environment_get(environment, "HUTCH_MODEL")),
                        endpoint_is_openrouter(url) ? "openai/gpt-4o-mini" : "gpt-4o-mini"),
        .base_url = url,
        .ca_file = either(environment_get(environment, "CURL_CA_BUNDLE"),
                          environment_get(environment, "SSL_CERT_FILE")),
        .key = key,
    };
    return 0;
}
