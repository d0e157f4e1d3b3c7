/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which model, which server, which key: what the caller says, then what the environment of
 * the process says, then what is usual. The environment is given by whoever has it: "NAME=
 * value" strings, ended by NULL. Pure, but for the file of the key.
 */
#pragma once

#include "secret.h"

/* The value of a variable; NULL where it is not there or empty. */
const char *environment_get(char *const *environment, const char *name);

/* What the caller says; NULL: nothing. */
struct model_choice {
    const char *model;
    const char *base_url;
    const char *key_file;
};

/* The strings are those of the choice, of the environment, or static. */
struct model_settings {
    const char *model;    /* choice, HUTCH_MODEL, else openai/gpt-4o-mini on OpenRouter and
                             gpt-4o-mini elsewhere */
    const char *base_url; /* choice, OPENAI_BASE_URL, OPENROUTER_BASE_URL, else the server of
                             the key that there is, OpenAI's first */
    const char *ca_file;  /* CURL_CA_BUNDLE, SSL_CERT_FILE; NULL: the system's */
    struct secret key;    /* choice, else the variable that belongs to the server: at
                             openrouter.ai, or by OPENROUTER_BASE_URL, OPENROUTER_API_KEY, else
                             OPENAI_API_KEY, which also serves openrouter.ai where
                             OPENAI_BASE_URL names that. May be none */
};
#define MODEL_SETTINGS_NONE ((struct model_settings){NULL, NULL, NULL, {NULL}})
void model_settings_done(struct model_settings *settings);

/* Reads them. *ret_settings is the caller's. Errors: INVALID and SYSTEM, of the key;
 * NO_MEMORY. */
MUST_CHECK int model_settings_read(const struct model_choice *choice, char *const *environment,
                                   struct model_settings *ret_settings, struct hutch_error *err);
