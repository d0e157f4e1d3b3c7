/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch: run untrusted code in isolated cells.
 *
 * This is the whole public API of libhutch. It includes nothing else of hutch
 * and compiles as C99 and as C++11.
 *
 * In three calls: make an engine, run requests on it, free it.
 *
 *     hutch_engine *engine;
 *     hutch_result *result;
 *     struct hutch_error err;
 *     struct hutch_request request;
 *
 *     if (hutch_engine_new(NULL, &engine, &err) < 0)
 *         ...
 *     hutch_request_init(&request);
 *     request.code = "print(2+2)";
 *     request.code_length = 10;
 *     if (hutch_run(engine, &request, NULL, &result, &err) < 0)
 *         ...                                  // hutch failed: see err
 *     else
 *         fwrite(result->stdout_text.data, 1, result->stdout_text.length, stdout);
 *     hutch_result_free(result);
 *     hutch_engine_free(engine);
 *
 * Two vocabularies, never mixed: a *result* describes what the program did,
 * and a program that fails is a normal result; an *error* says that hutch
 * itself could not do its work. Every fallible call returns 0 (or a count) on
 * success and a negative HUTCH_ERR_* code on failure, fills *err where err is
 * not NULL, and leaves its outputs untouched on failure.
 *
 * Threads: an engine may be used from any number of threads at once. A request
 * is only read. A result belongs to the caller and to no thread in particular.
 * The library keeps no global state, prints nothing, ends no process, changes
 * no signal disposition, and starts its one helper process, hutch-supervisor,
 * by posix_spawn.
 */
#ifndef HUTCH_H
#define HUTCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HUTCH_VERSION "0.1.0"

#if defined(__GNUC__)
#define HUTCH_PUBLIC __attribute__((visibility("default")))
#define HUTCH_MUST_CHECK __attribute__((warn_unused_result))
#else
#define HUTCH_PUBLIC
#define HUTCH_MUST_CHECK
#endif

/* ---- errors ------------------------------------------------------------ */

/* Error codes. docs/errors.md says what each means at every front door; it is
 * made from the same table as the names. The values never change. */
enum hutch_error_code {
    HUTCH_ERR_INVALID = -1,    /* a field of the request or of the options is out of range */
    HUTCH_ERR_NO_MEMORY = -2,  /* memory ran out in the engine, or on the host */
    HUTCH_ERR_SYSTEM = -3,     /* a system call failed; sys_errno says how */
    HUTCH_ERR_HELPER = -4,     /* hutch-supervisor is missing, of another version, or died */
    HUTCH_ERR_ISOLATION = -5,  /* this host cannot isolate a cell at all */
    HUTCH_ERR_LAYER = -6,      /* a required layer is not in force */
    HUTCH_ERR_BACKEND = -7,    /* the requested backend is not available */
    HUTCH_ERR_RUNTIME = -8,    /* the language's interpreter is missing or broken */
    HUTCH_ERR_BUSY = -9,       /* the queue is full, or the wait in it was too long */
    HUTCH_ERR_CANCELLED = -10, /* hutch_cancel_trigger() was called */
    HUTCH_ERR_EXPIRED = -11    /* the session is over */
};

/* An error. A value: copy it freely, nothing in it needs freeing. */
struct hutch_error {
    int32_t code;      /* one of enum hutch_error_code */
    int32_t sys_errno; /* errno of the failed call, 0 where there was none */
    int32_t maybe_ran; /* 0: the code was not started; 1: it may have run */
    char message[244]; /* one line, no full stop, always NUL-terminated */
};

/* Whether the same request may be sent again without running its code twice:
 * true for "not started", false for "outcome unknown". */
HUTCH_PUBLIC bool hutch_error_retry_safe(const struct hutch_error *err);

/* The stable name of a code, e.g. "layer_missing"; "unknown" for other numbers.
 * Static storage. */
HUTCH_PUBLIC const char *hutch_error_name(int code);

/* ---- layers ------------------------------------------------------------ */

/* The layers of isolation, as bits of a mask. The names that
 * hutch_layer_name() gives are fixed. */
enum hutch_layer {
    HUTCH_LAYER_USER_NS = 1 << 0,
    HUTCH_LAYER_PID_NS = 1 << 1,
    HUTCH_LAYER_MOUNT_NS = 1 << 2,
    HUTCH_LAYER_NET_NS = 1 << 3,
    HUTCH_LAYER_IPC_NS = 1 << 4,
    HUTCH_LAYER_UTS_NS = 1 << 5,
    HUTCH_LAYER_CGROUP_NS = 1 << 6,
    HUTCH_LAYER_DISTINCT_UID = 1 << 7,
    HUTCH_LAYER_NO_CAPS = 1 << 8,
    HUTCH_LAYER_NO_NEW_PRIVS = 1 << 9,
    HUTCH_LAYER_SECCOMP = 1 << 10,
    HUTCH_LAYER_LANDLOCK = 1 << 11,
    HUTCH_LAYER_CGROUP_MEMORY = 1 << 12,
    HUTCH_LAYER_CGROUP_PIDS = 1 << 13,
    HUTCH_LAYER_CGROUP_CPU = 1 << 14,
    HUTCH_LAYER_RLIMITS = 1 << 15,
    HUTCH_LAYER_PRIVATE_ROOT = 1 << 16
};

/* Every layer of the namespace backend. */
#define HUTCH_LAYERS_NAMESPACE 0x1ffffu

/* The name of one layer bit, e.g. "seccomp"; NULL for anything else. */
HUTCH_PUBLIC const char *hutch_layer_name(uint32_t layer);

/* The bit of a layer's name; 0 when the name is unknown. */
HUTCH_PUBLIC uint32_t hutch_layer_from_name(const char *name);

/* ---- engine ------------------------------------------------------------ */

typedef struct hutch_engine hutch_engine;

/* How far an engine prepares cells ahead of requests. The first runs in a language start
 * an interpreter each. The second one begins a zygote of Python, one warm interpreter, from
 * which cells are forked as soon as it is ready (a tenth of a second, or as long as its
 * modules take to load), and the second one of an owner begins that owner's pool of parked
 * cells. A shell is started each time. Cells of one zygote share its address layout and
 * hash seed, those of other owners too: see zygote_per_owner, and SECURITY.md. */
enum hutch_warmth {
    HUTCH_PARKED = 0, /* some cells of Python and JavaScript wait for requests; when none is
                         left, Python is forked and JavaScript started */
    HUTCH_FORKED = 1, /* none wait: Python is forked when the request is there */
    HUTCH_COLD = 2,   /* start an interpreter for each request */
};

/* What an engine is told at its birth. Zero in a field means its default. */
struct hutch_engine_options {
    size_t size;            /* set by hutch_engine_options_init */
    const char *helper_dir; /* folder of hutch-supervisor; default: libexec/hutch found
                               relative to libhutch or to the program */
    const char *cache_dir;  /* absolute; where cell trees are kept; default
                               ~/.cache/hutch of the calling user's passwd entry */
    const char *python;     /* absolute path of the Python interpreter; default /usr/bin/python3 */
    const char *bash;       /* absolute path of bash; default /bin/bash */
    const char *node;       /* absolute path of node, 18 or later; default /usr/bin/node */
    const char *cgroup;     /* path below each cgroup hierarchy that cells are made under;
                               default: the cgroup of this process, or the nearest
                               above it where groups can be made; for an ordinary user
                               on cgroup v2 a scope of the user's systemd */
    uint32_t uid_base;      /* first host uid for cells, as root; default 1879048192 */
    uint32_t uid_count;     /* how many; 1 to 65536; default 4096. Engines of one host share
                               them, and each cell takes one until it is all gone: leave
                               room for twice the runs at once */
    uint32_t warmth;        /* enum hutch_warmth */
    uint32_t parked_cells;  /* how many wait for each owner's requests while they come; 1 to 256,
                               default 4. They go when none came for a minute. In all no more
                               than a quarter of the places for cells, and for the 64 owners
                               who came last; the others' cells are forked */
    const char *preload;    /* modules that Python cells find loaded, names with commas and
                               without blanks, at most 1 KiB; one that cannot be loaded is
                               left out, see hutch_doctor. Where others than the
                               distribution's packages can be imported, each parked cell
                               loads them for itself, never the zygote; a cell that is forked
                               for a request is then without */
    bool zygote_per_owner;  /* owners share no zygote, and so no address layout and hash seed;
                               default false */
    uint32_t max_cells;     /* runs and sessions at once; 1 to 1024. Default, and the most whatever
                               is said here: what the supervisor holds beside parked cells, and a
                               twelfth of the descriptors that this process may open (ulimit -n);
                               hutch_doctor shows it */
    uint32_t queue_size;    /* runs that wait for their turn; 1 to 10000, default 1000; at most a
                               quarter of those descriptors */
    double queue_timeout_seconds; /* how long one waits at most; 0.1 to 3600; default 60 */
};

/* When a run starts. The sum of limits does not count, since few programs come near
 * theirs; what is used does. One more run starts when
 *
 *   - fewer than max_cells are there, idle sessions among them;
 *   - the memory available (of the machine, or in the cgroups of the cells) exceeds a
 *     reserve, 256 MiB or 5 % but at most an eighth, by what the runs of the last second
 *     and the new one are expected to use, judging by those that came before;
 *   - less than 20 % of the last ten seconds was spent waiting for memory, or a quarter
 *     of it is available;
 *   - at most eight threads a processor could run.
 *
 * The last two never hold back the only run of an engine, and slow down rather than stop
 * one of an owner who has fewer active than there are processors. hutch_doctor shows the
 * numbers. An exec of a session is such a run, but for the first of these.
 *
 * Otherwise the run waits. Of the owners (hutch_request.owner; NULL is one of them) the
 * one with the fewest active runs is next, of several the one that has waited longest since
 * its last turn; within an owner it is first come, first served. When the queue is full, the
 * run of an owner with fewer waiting takes the place of the newest of the owner with the most;
 * any other is refused. A run that is refused, or waited too long, ends with HUTCH_ERR_BUSY
 * and has not been started. A token ends the wait as it ends a run. */

/* Fills *options with defaults. Cannot fail. */
HUTCH_PUBLIC void hutch_engine_options_init(struct hutch_engine_options *options);

/* Makes an engine. options may be NULL for the defaults; its strings are
 * copied. The supervisor starts with the first run, not here.
 * Errors: INVALID, NO_MEMORY, HELPER. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_engine_new(const struct hutch_engine_options *options,
                                                   hutch_engine **ret_engine,
                                                   struct hutch_error *err);

/* Ends an engine: kills every cell that is left, waits (at most 5 seconds)
 * until nothing of them remains, and frees the engine. No run may be active
 * in another thread. NULL is ignored. */
HUTCH_PUBLIC void hutch_engine_free(hutch_engine *engine);

/* ---- cancelling -------------------------------------------------------- */

/* A token that ends a run from another thread. */
typedef struct hutch_cancel hutch_cancel;

/* Makes a token. Errors: NO_MEMORY, SYSTEM. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_cancel_new(hutch_cancel **ret_cancel,
                                                   struct hutch_error *err);

/* Cancels every run that was given this token, now or later: the cell is
 * killed and hutch_run returns HUTCH_ERR_CANCELLED. May be called from any
 * thread, from an output callback, from a signal handler, and repeatedly. */
HUTCH_PUBLIC void hutch_cancel_trigger(hutch_cancel *cancel);

/* Frees a token that no active run uses. NULL is ignored. */
HUTCH_PUBLIC void hutch_cancel_free(hutch_cancel *cancel);

/* ---- request ----------------------------------------------------------- */

enum hutch_language { HUTCH_PYTHON = 0, HUTCH_SHELL = 1, HUTCH_JAVASCRIPT = 2 };
enum hutch_backend { HUTCH_BACKEND_AUTO = 0, HUTCH_BACKEND_NAMESPACE = 1 };
enum hutch_encoding { HUTCH_TEXT = 0, HUTCH_BASE64 = 1 };
enum hutch_stream { HUTCH_STDOUT = 1, HUTCH_STDERR = 2 };

/* One environment variable. */
struct hutch_env {
    const char *name;  /* [A-Za-z_][A-Za-z0-9_]*, at most 255 bytes; names that steer the
                          loader or the interpreter are refused */
    const char *value; /* at most 32 KiB of UTF-8 without control characters but tab */
};

/* A file that lies in the cell's home directory before the program runs. Directories on its
 * path are made. */
struct hutch_file_in {
    const char *path; /* relative to the home directory, or below it from the root; at most
                         4095 bytes, names of at most 255; ".." is refused */
    const char *data; /* any bytes */
    size_t length;
    bool executable;
};

/* The gate: a look at a Python program before anything of it runs, with the
 * interpreter's own parser, in the cell. It refuses imports and calls by name, and
 * is advice for whoever wrote the program, not a wall: a program that means to
 * gets around it. The cell is the wall.
 *
 * A list that is NULL has its default, a list of no names refuses nothing:
 *
 *     modules      os subprocess socket urllib requests http
 *     calls        eval exec compile __import__
 *     attributes   os.* subprocess.* socket.*
 *
 * With allowed_imports, nothing else may be imported, and the default of modules
 * and attributes is no names. Names that import or plain assignment give to
 * something are followed ("import os as o", "run = os.system"). A !command line
 * (see tidy) counts as an import of subprocess.
 *
 * A list has at most 1000 names of at most 255 bytes. */
struct hutch_gate {
    size_t size;                /* set by hutch_gate_init */
    const char *const *modules; /* "os", "urllib.request": not to be imported, nor what
                                   lies below */
    size_t module_count;
    const char *const *calls; /* "eval": not to be called by this name */
    size_t call_count;
    const char *const *attributes; /* "os.system", or "os.*" for all: not to be called */
    size_t attribute_count;
    const char *const *allowed_imports; /* "math": the only ones, with what lies below */
    size_t allowed_import_count;
};

/* Fills *gate with the default lists. Cannot fail. */
HUTCH_PUBLIC void hutch_gate_init(struct hutch_gate *gate);

/* Called with a piece of the program's output as it arrives, on the thread
 * that called hutch_run, in the order of arrival within each stream. data is
 * raw bytes, valid during the call only, never of length 0. A callback that is
 * slow slows the program that prints, never its time limit. It may call
 * hutch_cancel_trigger and nothing else that concerns the same run; it must
 * not leave by longjmp or an exception. */
typedef void (*hutch_output_fn)(void *user, enum hutch_stream stream, const char *data,
                                size_t length);

/* What to run, and within which limits. Filled by hutch_request_init, which
 * sets every default; the caller then sets at least code and code_length.
 * Pointers are borrowed for the duration of the call. */
struct hutch_request {
    size_t size; /* set by hutch_request_init */

    const char *code;   /* UTF-8 without NUL */
    size_t code_length; /* 1 byte to 1 MiB */
    enum hutch_language language;

    const char *stdin_data; /* any bytes; end of file after them */
    size_t stdin_length;    /* at most 16 MiB */

    const struct hutch_env *env;
    size_t env_count; /* at most 100 */

    double timeout_seconds;    /* 0.1 to 300; default 30; wall clock, from the start of the run */
    uint64_t memory_mb;        /* MiB; 64 (shell 16) to the host's memory; default 512 */
    double cpus;               /* 0.1 to the number of the host's; default 1 */
    uint32_t max_processes;    /* 1 to 4096; default 128 */
    uint64_t disk_mb;          /* MiB; 1 to 65536; default 256; home, /tmp and /dev/shm together */
    uint64_t max_output_bytes; /* 1024 to 16 MiB for each stream; default 1 MiB */

    enum hutch_backend backend;
    uint32_t require;                    /* mask of layers that must be in force */
    enum hutch_encoding output_encoding; /* how hutch_result_to_json gives stdout and stderr */
    const char *owner;                   /* at most 64 bytes; NULL and "" are one owner. Parked
                                            cells, networks that serve again and turns in the
                                            queue are an owner's */

    bool tidy;                     /* take code as models write it; default false, see below */
    const struct hutch_gate *gate; /* for python only; default NULL: no gate */

    const struct hutch_file_in *files; /* placed in this order, on the run's time */
    size_t file_count;                 /* at most 1000; 4 MiB of data together. Larger ones:
                                          see struct hutch_upload */
    const char *const *return_files;   /* of which files the result shall have the data: paths
                                          below the home directory with * and ? for characters
                                          of a name, ** for any part of a path, [a-z] */
    size_t return_file_count;          /* at most 100 */
};

/* What tidy does:
 *
 *   - code in a Markdown fence (``` or ~~~, CommonMark's rules) is taken out of it.
 *     Of several fences all that are tagged with the language count, as one
 *     program; where none is, the first without a tag, else the first. Where there
 *     is no fence, or only one inside of a Python text or a here-document of the
 *     shell, the whole is code;
 *   - what all lines are indented by is taken away, as textwrap.dedent does;
 *   - lines end in LF, without CR; a byte order mark is dropped;
 *   - python: "!command" lines run in the shell; "%time" and "%timeit" run their
 *     statement; "%matplotlib" is dropped, as are other "%magic" lines with a hint
 *     on stderr. Only code that does not parse is touched. One line that does not
 *     parse and holds \n in place of line ends is mended.
 *
 * Lines of errors count from the one below the (first) opening fence; all else
 * keeps its line. */

/* Fills *request with the defaults above and no code. Cannot fail. */
HUTCH_PUBLIC void hutch_request_init(struct hutch_request *request);

/* A file of any size that goes into the cell before the program runs, as those of a request
 * do, and after them. */
struct hutch_upload {
    const char *path; /* in the cell, as that of a hutch_file_in */
    int fd;           /* a regular file that can be read: from its beginning to its end,
                         whatever its offset is. Stays the caller's */
    bool executable;
};

/* A file of any size that comes out of the cell when the program has ended. */
struct hutch_download {
    const char *path;          /* in the cell, likewise */
    int fd;                    /* written to at its offset. Stays the caller's */
    uint64_t max_bytes;        /* a larger file is refused; 0: no limit but the cell's disk */
    struct hutch_error *error; /* set by hutch_run: code 0, or why this file has not come; it
                                  may have come in part. The other files do, and the run has
                                  its result */
};

/* Callbacks, cancelling and files of one run; all members but the size may be zero. */
struct hutch_run_options {
    size_t size; /* sizeof(struct hutch_run_options) */
    hutch_output_fn on_output;
    void *user; /* passed to on_output */
    hutch_cancel *cancel;
    const struct hutch_upload *uploads;
    size_t upload_count; /* at most 100 */
    const struct hutch_download *downloads;
    size_t download_count; /* at most 100 */
};

/* ---- result ------------------------------------------------------------ */

/* Bytes that may hold NUL; data is also NUL-terminated. */
struct hutch_text {
    char *data;
    size_t length;
};

/* A regular file below the cell's home directory that the program made or changed. */
struct hutch_file {
    char *path;             /* relative to the home directory; any bytes but NUL */
    uint64_t size;          /* as the file system says; a sparse file may have less */
    const char *mime;       /* media type, by the ending of the name; static */
    struct hutch_text data; /* of files that return_files names; else data is NULL */
};

/* A rich output: what a notebook would show, such as a figure or a table. The data is
 * NUL-terminated, too.
 *
 *     image/png          bytes that begin as a PNG file does, with the header of an image
 *     image/svg+xml      UTF-8
 *     text/html          UTF-8
 *     application/json   UTF-8, one JSON value as its text
 *
 * No more is checked. It is made by untrusted code: HTML and SVG may hold scripts, and an
 * image may be damaged beyond its header, or claim to be huge. */
struct hutch_rich {
    const char *mime; /* one of the above; static */
    char *data;
    size_t length;
};

/* A process that an exec of a session has left running. */
struct hutch_process {
    int32_t pid;           /* in the cell */
    char *command;         /* its command line, at most 256 bytes of it; what it says of itself;
                              UTF-8 */
    uint64_t memory_bytes; /* resident; what it shares with others counts for each */
};

/* What a program did. exit_code, exit_signal, timed_out, the times, memory and
 * layers come from the kernel and the supervisor. value, results and error come from
 * inside the cell: bounded claims of code that nobody trusts. */
typedef struct hutch_result {
    size_t size;

    struct hutch_text stdout_text; /* what is kept of the bytes: head, marker, tail */
    struct hutch_text stderr_text;
    uint64_t stdout_bytes; /* what the program printed in all */
    uint64_t stderr_bytes;
    bool truncated; /* more was printed than is kept of one of the streams */

    int32_t exit_code;       /* the program's own; 128+n killed by signal n; -1 timeout;
                                -2 refused by the gate, and nothing of it ran */
    const char *exit_signal; /* "SIGKILL" …, or NULL; static */
    bool timed_out;

    const char *error_type; /* NULL on success, else "validation_error" (the gate),
                               "syntax_error", "import_error", "timeout", "resource_limit" or
                               "runtime_error"; static */
    char *error_class;      /* the exception's type name; NULL where there is no error object */
    char *error_message;    /* UTF-8; NULL likewise */
    uint32_t error_line;    /* line in the user's code, from 1; 0 unknown */

    struct hutch_text value; /* the last expression's value as text; data is NULL for none */

    double duration_ms;         /* wall time of the run, measured by the supervisor */
    double queue_ms;            /* wait before the run, for its turn and for its cell */
    double cpu_ms;              /* processor time of all processes of the cell */
    uint64_t peak_memory_bytes; /* of all processes of the cell; 0 where the kernel does not say */

    const char *backend;  /* "namespace"; static */
    const char *language; /* "python" …; static */
    uint32_t layers;      /* mask of the layers that enclosed this run */
    char run_id[33];      /* 32 lower-case hexadecimal digits */
    enum hutch_encoding output_encoding;

    /* Of an exec in a session; see hutch_session_exec. */
    bool in_session;
    bool restored;                   /* the session went on from its checkpoint: what exec before
                                        this one had done is there, but for threads, children,
                                        sockets, file offsets and files */
    const char *const *not_restored; /* these, as texts, where restored; static */
    size_t not_restored_count;
    bool state_lost;             /* the interpreter had to be replaced: files alone are there */
    struct hutch_text late_text; /* what threads and processes of earlier execs have printed
                                    since the result before this one, also while this exec ran;
                                    UTF-8; data is NULL for none */
    struct hutch_process *background; /* what runs in the cell after the exec; the result's */
    size_t background_count;          /* at most 64 */
    /* Made or changed by the program, sorted by path; as its processes left them, which are
     * all dead when the files are read. None where the memory limit ended the cell. What is
     * said of them comes from inside the cell: claims, bounded. */
    struct hutch_file *files;
    size_t file_count;          /* at most 10000 */
    bool files_truncated;       /* there are more, or one that return_files names has not come: the
                                   data would exceed 4 MiB together, or cannot be read */
    struct hutch_rich *results; /* in the order of display; the result's, freed with it */
    size_t result_count;        /* at most 64, of together at most 8 MiB and 4 MiB each, before
                                   bytes that are no UTF-8 become U+FFFD */
    uint32_t results_dropped;   /* rich outputs that were too many, too large or malformed; at
                                   least so many */
} hutch_result;

/* Runs a request to its end, in a cell of its own, on the calling thread.
 * run_options may be NULL. On success *ret_result is the caller's, to be freed
 * by hutch_result_free.
 * Errors: all of enum hutch_error_code; hutch_error_retry_safe tells whether
 * the code may have run. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_run(hutch_engine *engine,
                                            const struct hutch_request *request,
                                            const struct hutch_run_options *run_options,
                                            hutch_result **ret_result, struct hutch_error *err);

/* Frees a result. NULL is ignored. */
HUTCH_PUBLIC void hutch_result_free(hutch_result *result);

/* The result as one JSON object (valid UTF-8, without a line break), with the
 * field names that every front door uses. Of results, data is a string: text as it is
 * (JSON too), image/png as base64. *ret_json is the caller's, to be freed by hutch_free.
 * Errors: NO_MEMORY. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_result_to_json(const hutch_result *result, char **ret_json,
                                                       struct hutch_error *err);

/* ---- sessions ---------------------------------------------------------- */

/* A cell that stays, so that state persists from one exec to the next: variables,
 * imports, functions, the working directory, files; of a shell its variables, functions
 * and options. An exec that fails, exits or does not parse keeps it. One of javascript ends
 * when its loop has nothing left to do.
 *
 * An exec that is over its time is interrupted (SIGINT: in python KeyboardInterrupt; of a
 * shell for the foreground), every quarter of a second while it has not ended, and killed a
 * second later. In javascript no interrupt ends a loop in the callback of a timer or an event.
 * It never reaches a later exec. An interpreter that dies, by this, by its own hand or for
 * its memory, takes its threads and children along, not the session:
 *
 *   python   goes on from a checkpoint, a copy of the interpreter that was forked after
 *            the exec before: `restored`. There is none while the program has other
 *            threads, or holds more than a third of memory_mb.
 *   else     a new interpreter is started in the same cell: `state_lost`. Its files and
 *            what it had in /tmp stay. Of javascript and the shell always: no checkpoints.
 *
 * Environment variables and stdin belong to an exec. Files stay. A session ends when it was idle
 * for too long, is too old, or its cell is lost; then every call is HUTCH_ERR_EXPIRED.
 */
typedef struct hutch_session hutch_session;

/* How a session lives. Zero in a number means its default. */
struct hutch_session_options {
    size_t size;                 /* set by hutch_session_options_init */
    double idle_timeout_seconds; /* without an exec or a call for files; 1 to 86400, default 300 */
    double lifetime_seconds;     /* in all; 1 to 604800, default 86400 */
    bool checkpoints;            /* of python; default true */
    hutch_cancel *cancel;        /* ends the wait for its start; not used afterwards */
};

/* Fills *options with defaults. Cannot fail. */
HUTCH_PUBLIC void hutch_session_options_init(struct hutch_session_options *options);

/* Starts a session. Of the request these count: language, memory_mb, cpus, max_processes,
 * disk_mb, backend, require, owner. options may be NULL. The session is the caller's, to
 * be closed by hutch_session_close before the engine is freed. It may be used by any
 * number of threads at once. A session takes a place for cells (max_cells) as long as it
 * lives; where none gets free in time, the error is BUSY and says how many there are. A token
 * in options ends the wait, and the start, with HUTCH_ERR_CANCELLED.
 * Errors: as hutch_run; always "not started". */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_session_open(hutch_engine *engine,
                                                     const struct hutch_request *request,
                                                     const struct hutch_session_options *options,
                                                     hutch_session **ret_session,
                                                     struct hutch_error *err);

/* Runs code in a session, on the calling thread. Of the request these count: code, stdin,
 * env, timeout_seconds, max_output_bytes, output_encoding, tidy, gate, files, return_files;
 * its language must be the session's. Files and uploads are placed when its turn has come,
 * before its time begins. Execs run one after the other, in the order of the calls; at most 64
 * wait. Each waits for its turn among all runs, too: BUSY says that it waited too long, was not
 * started, and that the session goes on. A token ends the wait, or interrupts the exec and, a
 * quarter of a second later, kills its interpreter; the call then ends with HUTCH_ERR_CANCELLED,
 * and the session goes on.
 *
 * Of the result, cpu_ms is of the interpreter's own process, and peak_memory_bytes 0,
 * where that has not died. Its files are those that were made or changed below the home
 * directory while the exec ran, by whatever process, and are still there; what
 * hutch_session_put placed before is not, what it placed meanwhile is. Others may still be
 * changing when what the exec left is running on. Looking for them takes time that grows
 * with the number of files that are there (one or two microseconds for each), and is not part of
 * duration_ms.
 * Errors: all; EXPIRED says why the session is over. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_session_exec(hutch_session *session,
                                                     const struct hutch_request *request,
                                                     const struct hutch_run_options *run_options,
                                                     hutch_result **ret_result,
                                                     struct hutch_error *err);

/* Calls for the files of a session. They come from any thread, at any time, and do not wait
 * for execs, nor execs for them; those of one session are served one after the other, in the
 * order of the calls. Served they are not by the program but beside it, with its rights: so a
 * program that hangs or has died holds none up, and one that closes its files to itself
 * (chmod) closes them to these calls.
 *
 * A path is relative to the home directory, or below it from the root, as that of a struct
 * hutch_file_in. No symbolic link is followed. What is put appears under its name, in place
 * of what was there, when all of it has come. After an error nothing has changed but that
 * directories on its path may be there, except where the error says maybe_ran: then the last
 * of it was on its way when the answer was lost.
 *
 * Memory does not grow with the size of a file: it goes by pieces of at most 64 KiB.
 *
 * Errors: INVALID for what the caller can mend, sys_errno says what (ENOENT: nothing there;
 * ENOSPC: disk_mb is used up; EFBIG; EACCES: the program has closed it ...); EXPIRED says why
 * the session is over; BUSY where the turn, and CANCELLED where the end, had not come in time;
 * HELPER, NO_MEMORY, SYSTEM. */

/* How a call for files is made. Zero in a number means its default. */
struct hutch_file_options {
    size_t size;            /* set by hutch_file_options_init */
    hutch_cancel *cancel;   /* ends the call, with HUTCH_ERR_CANCELLED; default NULL */
    double timeout_seconds; /* for all of the call, the wait for its turn too; 0.1 to 3600,
                               default 300. Within it, 30 for a piece that the cell
                               does not take or give */
    uint64_t max_bytes;     /* of a get: a larger file is refused; default what disk_mb says */
    bool executable;        /* of a put; default false */
};

/* Fills *options with defaults. Cannot fail. */
HUTCH_PUBLIC void hutch_file_options_init(struct hutch_file_options *options);

/* Gives the next length bytes of what is put, all of them; length is 1 to 65536. Returns 0;
 * anything else ends the call with HUTCH_ERR_CANCELLED. Called on the thread of the call, as
 * hutch_write_fn is. While it takes its time, neither time-out nor token end the call, and
 * other calls for files of this session wait. */
typedef int (*hutch_read_fn)(void *user, char *data, size_t length);

/* Takes the next length bytes of what is got; likewise. */
typedef int (*hutch_write_fn)(void *user, const char *data, size_t length);

/* Puts a file of length bytes; directories on its path are made. options may be NULL. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_session_put(hutch_session *session, const char *path,
                                                    uint64_t length, hutch_read_fn read, void *user,
                                                    const struct hutch_file_options *options,
                                                    struct hutch_error *err);

/* Gets a regular file that has one name. What write has taken before an error is a part of
 * it. options may be NULL. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_session_get(hutch_session *session, const char *path,
                                                    hutch_write_fn write, void *user,
                                                    const struct hutch_file_options *options,
                                                    struct hutch_error *err);

/* An entry of a directory. */
struct hutch_entry {
    char *name;    /* any bytes but NUL and '/' */
    uint64_t size; /* as the file system says */
    bool is_directory;
};

/* What is in a directory, sorted by name, byte by byte: claims, bounded. */
typedef struct hutch_listing {
    size_t size;
    struct hutch_entry *entries;
    size_t count;   /* at most 20000 */
    bool truncated; /* there are more */
} hutch_listing;

/* Lists a directory; "" is the home directory. options may be NULL. The listing is the
 * caller's, to be freed by hutch_listing_free. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_session_list(hutch_session *session, const char *path,
                                                     const struct hutch_file_options *options,
                                                     hutch_listing **ret_listing,
                                                     struct hutch_error *err);

/* NULL is ignored. */
HUTCH_PUBLIC void hutch_listing_free(hutch_listing *listing);

/* Deletes a file, or a directory that is empty. options may be NULL. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_session_delete(hutch_session *session, const char *path,
                                                       const struct hutch_file_options *options,
                                                       struct hutch_error *err);

/* Interrupts the exec that runs, if one does: as SIGINT would from a keyboard, and for a
 * second again every quarter of it while the exec has not ended. From any thread, also from an
 * output callback. */
HUTCH_PUBLIC void hutch_session_interrupt(hutch_session *session);

/* What is known of a session. */
struct hutch_session_info {
    char session_id[33];         /* 32 lower-case hexadecimal digits */
    const char *language;        /* static */
    double idle_timeout_seconds; /* as it was set */
    double lifetime_seconds;
    double expires_in_seconds; /* unless an exec runs meanwhile or comes; 0: it is over */
    uint32_t layers;
};
HUTCH_PUBLIC void hutch_session_get_info(hutch_session *session,
                                         struct hutch_session_info *ret_info);

/* Ends a session: kills whatever is left of it. No call may be active in another thread.
 * NULL is ignored. */
HUTCH_PUBLIC void hutch_session_close(hutch_session *session);

/* ---- requests as JSON -------------------------------------------------- */

/* A request together with the memory that it borrows. */
typedef struct hutch_json_request hutch_json_request;

/* Reads one JSON object of the request's fields (at most 8 MiB). Unknown
 * fields, wrong types and values out of range are refused by name; lone
 * surrogates are read as U+FFFD. *ret_request is the caller's, to be freed by
 * hutch_json_request_free. Errors: INVALID, NO_MEMORY; BACKEND and LAYER for a
 * backend or a layer that hutch knows and this build has not. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_json_request_parse(const char *json, size_t length,
                                                           hutch_json_request **ret_request,
                                                           struct hutch_error *err);

/* The request itself; it lives as long as *request. */
HUTCH_PUBLIC const struct hutch_request *hutch_json_request_get(const hutch_json_request *request);

/* NULL is ignored. */
HUTCH_PUBLIC void hutch_json_request_free(hutch_json_request *request);

/* ---- doctor ------------------------------------------------------------ */

/* Makes a whole cell to see which layers are in force, and gives a report as one
 * JSON object: {"version", "can_run", "reason", "mend", "backends": [{"name",
 * "available", "reason"}], "layers": [{"name", "in_force", "reason", "mend"}],
 * "runtimes": [{"language", "interpreter", "available", "reason", "mend"}],
 * "cgroup": {"layout", "controllers"}, "cells": {"starts": {"cold", "forked", "parked"},
 * "warm": [{"language", "pools", "parked", "zygotes", "zygote_deaths", "log",
 * "zygote_memory", "parked_memory"}]}, "scheduler": {"active", "idle_sessions", "waiting",
 * "max_cells", "queue_size", "memory_available_bytes", "memory_reserve_bytes",
 * "memory_claimed_bytes", "expected_bytes", "memory_pressure", "runnable", "runnable_limit",
 * "held_back_by"}}.
 * A runtime that is available has a reason and a mend, too, where its programs lack something
 * that they can do without. "expected_bytes" is what a run with the default limits is expected to
 * use, "memory_pressure" a percentage, and "held_back_by" what another run would wait for now:
 * "cells", "memory", "pressure", "cpu" or null. "starts" counts runs by how their
 * interpreter came to be; "log" is what was printed last while a zygote or a parked cell
 * got ready, such as why a module could not be loaded. *ret_json is the caller's, to be freed by
 * hutch_free. It succeeds on a host that cannot isolate: the report then says
 * why. Errors: NO_MEMORY, SYSTEM. */
HUTCH_PUBLIC HUTCH_MUST_CHECK int hutch_doctor(hutch_engine *engine, char **ret_json,
                                               struct hutch_error *err);

/* ---- the rest ---------------------------------------------------------- */

/* Frees memory that a call of this library handed out as char *. */
HUTCH_PUBLIC void hutch_free(void *memory);

/* The version of the library that is running, e.g. "0.1.0". Static. */
HUTCH_PUBLIC const char *hutch_version(void);

#ifdef __cplusplus
}
#endif

#endif
