/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the engine of a command; where its cache is comes from the environment. */
#include "cli.h"

#include "base/quote.h"

#include <limits.h>

/* Appends the cache folder, or nothing when the library's default holds: a
 * relative XDG_CACHE_HOME or HOME is ignored, as the XDG base directory
 * specification asks. */
static int find_cache_dir(const struct settings *settings, struct buf *path,
                          struct problem *problem)
{
    const char *own = settings->hutch_cache_dir;
    const char *xdg = settings->xdg_cache_home;

    if (own && own[0] != '\0' && own[0] != '/')
        return problem_set(problem, HUTCH_ERR_INVALID,
                           "HUTCH_CACHE_DIR: value %s is not an absolute path",
                           quote_text(own).text);
    if (own && own[0] == '/')
        buf_append_text(path, own);
    else if (xdg && xdg[0] == '/')
        buf_appendf(path, "%s/hutch", xdg);
    else if (settings->home && settings->home[0] == '/')
        buf_appendf(path, "%s/.cache/hutch", settings->home);
    return 0;
}

int cli_engine_make(const struct settings *settings, struct hutch_engine_options *options,
                    hutch_engine **ret_engine, struct problem *problem)
{
    struct hutch_error err;
    auto_buf struct buf cache_dir = BUF_MAX(PATH_MAX);

    if (find_cache_dir(settings, &cache_dir, problem) < 0)
        return problem->code;
    if (buf_check(&cache_dir, &err) < 0)
        return problem_take(problem, &err);
    options->cache_dir = cache_dir.data; /* NULL: the library's own default */
    int done = hutch_engine_new(options, ret_engine, &err);
    options->cache_dir = NULL;
    return done < 0 ? problem_take(problem, &err) : 0;
}

int cli_engine_new(const struct settings *settings, hutch_engine **ret_engine,
                   struct problem *problem)
{
    struct hutch_engine_options options;

    hutch_engine_options_init(&options);
    options.warmth = HUTCH_COLD;
    return cli_engine_make(settings, &options, ret_engine, problem);
}
