/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request may say: the rules of hutch.h, each refusal one line that
 * names the field, the value and what is allowed. Every front door comes
 * through here, so each says the same.
 *
 * Environment variables that would steer the dynamic loader, the C library, the
 * interpreter or the runner instead of the program are refused:
 *
 *   loader and libc   LD_*, GLIBC_*, MALLOC_*, GCONV_PATH, LOCPATH, NLSPATH,
 *                     TZDIR, GETCONF_DIR, RES_OPTIONS, LOCALDOMAIN, HOSTALIASES,
 *                     RESOLV_HOST_CONF
 *   OpenSSL           OPENSSL_CONF, OPENSSL_ENGINES, OPENSSL_MODULES: each loads
 *                     code into the interpreter
 *   Python            PYTHON*
 *   node              NODE_*
 *   bash and sh       BASH*, ENV, SHELLOPTS, POSIXLY_CORRECT, IFS, PS4, CDPATH,
 *                     GLOBIGNORE, EXECIGNORE
 *   the cell's own    PATH, HOME, TMPDIR, USER, LOGNAME, SHELL, PWD, OLDPWD
 *
 * All others pass, those that the cell presets among them (LANG, LC_*, TZ,
 * MPLCONFIGDIR, OMP_NUM_THREADS ...): they concern the program alone.
 */
#pragma once

#include "base/attrs.h"
#include "base/error.h"

#include <hutch.h>

/* What this host admits. */
struct request_ceilings {
    uint32_t cpus;
    uint64_t memory_mb;
};

/* Checks every field against the rules and against this host. Reads the request
 * only as far as its size says. Errors: INVALID. */
MUST_CHECK int request_validate(const struct hutch_request *request, struct hutch_error *err);

/* The same against given ceilings. */
MUST_CHECK int request_check(const struct hutch_request *request,
                             const struct request_ceilings *ceilings, struct hutch_error *err);

/* Gives a caller's request as this version knows it, with the defaults of fields
 * that the caller's version did not have. Its size has been checked. */
void request_load(const struct hutch_request *request, struct hutch_request *ret_request);

/* Checks the size that a caller's struct says it has: at least that of the first
 * version, and what lies beyond the known size (a newer caller's fields) is zero.
 * Errors: INVALID. */
MUST_CHECK int request_check_size(const char *what, const void *given, size_t size, size_t first,
                                  size_t known, struct hutch_error *err);

/* The ceilings of this host. */
struct request_ceilings request_ceilings_of_host(void);

/* The whole-number fields, for front doors that read a wider type than the
 * field has: a value must be known to fit before it is stored. */
enum request_number {
    REQUEST_MEMORY_MB,
    REQUEST_MAX_PROCESSES,
    REQUEST_DISK_MB,
    REQUEST_MAX_OUTPUT_BYTES,
};

/* Checks |value| (negative says its sign) as one of them. Errors: INVALID. */
MUST_CHECK int request_check_number(enum request_number number, bool negative, uint64_t value,
                                    enum hutch_language language,
                                    const struct request_ceilings *ceilings,
                                    struct hutch_error *err);

/* The name of a language: "python", "javascript", "shell". Static. */
const char *language_name(enum hutch_language language);

/* Names to values; the message lists what is allowed. "raw" is an alias of
 * shell. Errors: INVALID. */
MUST_CHECK int language_parse(const char *name, enum hutch_language *ret_language,
                              struct hutch_error *err);
MUST_CHECK int encoding_parse(const char *name, enum hutch_encoding *ret_encoding,
                              struct hutch_error *err);

/* A backend that hutch knows and this build has not is BACKEND, not INVALID;
 * likewise LAYER for a layer of such a backend: the request is well-formed and
 * cannot be met here. */
MUST_CHECK int backend_parse(const char *name, enum hutch_backend *ret_backend,
                             struct hutch_error *err);
MUST_CHECK int layer_parse(const char *name, uint32_t *ret_layer, struct hutch_error *err);
