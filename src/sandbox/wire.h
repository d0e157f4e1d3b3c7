/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire between the engine and the runner inside a cell: one stream socket,
 * frames of a fixed header and a bounded payload, in native byte order.
 *
 * Engine to runner:  ENV and GATE (both optional), then RUN.
 * Supervisor to a runner that is to be a zygote, before anything else: ZYGOTE.
 *
 * A session: SESSION first of all; then for each exec ENV, GATE, STDIN (all optional) and
 * RUN, all with the number of the exec. The runner answers with VERDICT, RICH, VALUE, ERROR,
 * as below, and DONE, after which nothing more comes of that exec. An exec does not begin
 * before the one before it has its DONE, or the process has died. Whoever takes over from
 * one that died, a copy or a new interpreter, begins with READY.
 *
 * Runner to engine:  VERDICT, when there was a GATE; then RICH, any number; VALUE,
 *                    ERROR, both optional. All but the first are claims of hostile
 *                    code.
 *
 * The runner sends its VERDICT before anything of the program runs. Nobody else
 * is in the cell by then, so as the first frame it is the runner's own word, and
 * at any later place it is a forgery.
 *
 * The runner finds the socket at descriptor WIRE_CHANNEL_FD. It is far above
 * what programs close or overwrite by habit (closerange(3, 256), dup2 on 3). A
 * runner keeps it from the program's children. In node nothing can be done to a
 * descriptor, but node itself makes close-on-exec what it inherits up to 15; so
 * there it is WIRE_CHANNEL_FD_NODE.
 *
 * bash reads no NUL: the runner of a shell session gets texts that end in NUL in place of
 * frames. At the begin "session"; for each exec its number, the number of variables, each of
 * these as NAME=VALUE, stdin in base64, and the code. Its answers are frames.
 */
#pragma once

#include <stdint.h>

/* Raised whenever a frame changes; helpers of another version are refused. */
#define WIRE_VERSION 7

#define WIRE_CHANNEL_FD 1000
#define WIRE_CHANNEL_FD_NODE 15

/* Where a program's text lies in a cell: tracebacks and messages name it. */
#define WIRE_PYTHON_FILE "/run/main.py"
#define WIRE_SHELL_FILE "/run/main.sh"
#define WIRE_NODE_LINK "/run/main" /* to a file in the home directory; the runner makes both */
#define WIRE_NODE_FILE ".main."    /* what the name of that begins with */

/* Where an exec of a session finds its pipes for stdout and stderr: named pipes, whose
 * names end in the number of the exec. hutch-init makes them before the exec begins, and takes
 * the names away after it. Where one is not there, or is no pipe, both streams stay what
 * they were in the exec before. */
#define WIRE_STDOUT_PIPE "/run/.stdout."
#define WIRE_STDERR_PIPE "/run/.stderr."
#define WIRE_PIPES_AHEAD 2 /* made when the exec begins that comes so many before it */

struct wire_header {
    uint32_t length;  /* of the payload that follows */
    uint16_t type;    /* enum wire_type */
    uint16_t flags;   /* of the type; else 0 */
    uint32_t exec_id; /* 1 for a single run */
};

enum wire_type {
    WIRE_TEXT = 0,    /* no frame: bytes for a shell */
    WIRE_ENV = 1,     /* NAME=VALUE strings, each ended by NUL */
    WIRE_RUN = 2,     /* the code, UTF-8, no NUL; nothing follows */
    WIRE_GATE = 3,    /* entries, each a kind byte (WIRE_GATE_*), a name, and NUL */
    WIRE_ZYGOTE = 4,  /* path of the zygote's module, NUL, names of modules with commas */
    WIRE_SESSION = 5, /* path of the zygote's module, NUL, the cell's memory in bytes as a decimal;
                         with the socket for struct wire_copy */
    WIRE_STDIN = 6,   /* what the program reads from 0, then the end of file */

    WIRE_VALUE = 16,   /* text of the last expression's value, UTF-8 */
    WIRE_ERROR = 17,   /* struct wire_error, the type's name, then the message, UTF-8 */
    WIRE_VERDICT = 18, /* empty: passed; else refused, and as WIRE_ERROR without a type */
    WIRE_DONE = 19,    /* struct wire_done: the exec has ended */
    WIRE_READY = 20,   /* empty */
    WIRE_RICH = 21,    /* a MIME type, NUL, the data, in the order of display; empty: one that
                          the runner has left out */
};

/* flags of WIRE_SESSION */
#define WIRE_SESSION_CHECKPOINTS 1 /* a copy of the interpreter shall wait, see session.h */

/* flags of WIRE_RUN */
#define WIRE_RUN_TIDY 1            /* handle !command and %magic lines; mend escaped line ends */
#define WIRE_RUN_AFTER_INTERRUPT 2 /* of a session: SIGINT was sent to an exec before */

/* flags of WIRE_ZYGOTE */
#define WIRE_ZYGOTE_LOAD_IN_CELLS 1 /* the modules, not in the zygote */

/* flags of WIRE_GATE */
#define WIRE_GATE_ALLOWED_ONLY 1 /* nothing may be imported but what WIRE_GATE_ALLOWED names */

/* kinds of WIRE_GATE entries */
#define WIRE_GATE_MODULE 'm'    /* os, urllib.request: not to be imported */
#define WIRE_GATE_CALL 'c'      /* eval: not to be called by this name */
#define WIRE_GATE_ATTRIBUTE 'a' /* os.system, os.*: not to be called */
#define WIRE_GATE_ALLOWED 'i'   /* math: may be imported */

/* The runner's exit status after a refusal, and where it could do nothing. */
#define WIRE_EXIT_REFUSED 126
#define WIRE_EXIT_FAILED 125

/* flags of WIRE_ERROR */
#define WIRE_ERROR_COMPILE 1 /* the code did not parse; nothing ran */
#define WIRE_ERROR_IMPORT 2  /* something to import is not there, where the type does not say so */

struct wire_error {
    uint32_t line;        /* in the user's code, from 1; 0 unknown */
    uint32_t type_length; /* bytes of the type's name */
    int32_t sys_errno;    /* of an OSError, else 0 */
};

/* How an exec ended: as the interpreter's own status would be. */
struct wire_done {
    int32_t exit_code;
    uint32_t interrupted; /* 1: by SIGINT, that is by KeyboardInterrupt and its kin */
};

/* The largest payloads. */
#define WIRE_MAX_STDIN (16u << 20)
#define WIRE_MAX_RUN (1u << 20)
#define WIRE_MAX_ENV (100u * (255u + 1u + 32768u + 1u))
#define WIRE_MAX_GATE (4u * 1000u * (1u + 255u + 1u))
#define WIRE_MAX_ZYGOTE 8192u
#define WIRE_MAX_SESSION 256u
#define WIRE_MAX_VALUE (1u << 20)
#define WIRE_MAX_ERROR (64u << 10)
#define WIRE_MAX_RICH (4u << 20)

/* Of all WIRE_RICH frames of a run: payloads that are not empty, their bytes, and frames
 * that are. */
#define WIRE_MAX_RICH_COUNT 64u
#define WIRE_MAX_RICH_BYTES (8u << 20)
#define WIRE_MAX_RICH_EMPTY 1000u

enum wire_word_type {
    WIRE_WORD_ORPHAN = 1, /* a process that was left to it has died */
    WIRE_WORD_PIPES = 2,  /* of an exec, with the ends to read stdout and stderr; without
                             descriptors: there are none */
};

/* What hutch-init tells the supervisor, once that has asked. */
struct wire_word {
    uint32_t type;    /* enum wire_word_type */
    int32_t pid;      /* ORPHAN: in the cell */
    int32_t status;   /* ORPHAN: as waitpid gives it */
    uint32_t exec_id; /* PIPES */
};

/* What a copy sends to the supervisor, with its wake socket: see namespace/session.h. */
struct wire_copy {
    uint32_t exec_id; /* after which it was made */
};
/*
 * ---- files ----
 *
 * hutch-init's descriptor 0 is its attendant: a SOCK_SEQPACKET socket to the supervisor.
 * Its end is the cell's end. Over it the supervisor sends struct wire_attend; with
 * WIRE_ATTEND_FILES goes one end of a stream socket to the engine, a files socket. There are
 * WIRE_FILE_LINKS of them: what a run or an exec itself needs is on link 0, calls of a
 * session's callers, which may be long and come meanwhile, are on link 1.
 *
 * On each go calls of the engine, one after the other, each with its number as exec_id in
 * every frame of the call and of its answer, up to WIRE_FILE_ANSWER, which is the last. In
 * between there may be WIRE_FILE_DATA (engine to init of a PUT, init to engine of a GET) or
 * WIRE_FILE_ENTRIES (init to engine of LIST and CHANGES). After a failure hutch-init answers
 * at once, and drops what still comes of that call. What it says is the word of a process
 * of the cell: a claim, whose form the engine checks, and which it bounds.
 *
 * Paths are relative to the home directory: 1 to WIRE_MAX_PATH bytes, components of 1 to
 * WIRE_MAX_NAME with one '/' between, none of them "." or "..", no NUL. LIST also takes
 * none at all, which is the home directory. No symbolic link is followed.
 */
enum wire_attend_type {
    WIRE_ATTEND_FILES = 1, /* serve this socket as link, in place of the one before it */
    WIRE_ATTEND_END = 2,   /* the program is dead: kill all others, then serve calls */
    WIRE_ATTEND_TELL = 3,  /* from now on, tell of who dies: WIRE_WORD_ORPHAN */
    WIRE_ATTEND_PIPES = 4, /* make those of the exec: WIRE_WORD_PIPES */
};

struct wire_attend {
    uint32_t type;    /* enum wire_attend_type */
    uint32_t link;    /* FILES: which of WIRE_FILE_LINKS; else 0 */
    uint32_t exec_id; /* PIPES; else 0 */
};

enum wire_file_type {
    WIRE_FILE_PUT = 64,     /* struct wire_put, then the path; data of that size follows */
    WIRE_FILE_GET = 65,     /* struct wire_get, then the path; of regular files with one name */
    WIRE_FILE_LIST = 66,    /* path of a directory, or nothing */
    WIRE_FILE_DELETE = 67,  /* path of anything but a directory that is not empty */
    WIRE_FILE_MARK = 68,    /* empty: CHANGES counts from now on, not what was PUT before */
    WIRE_FILE_CHANGES = 69, /* struct wire_changes, or empty: since the last MARK. Regular files
                               that were made or changed, at any depth */

    WIRE_FILE_DATA = 80,    /* 1 to WIRE_MAX_DATA bytes */
    WIRE_FILE_ENTRIES = 81, /* struct wire_entry and its name, one after the other */
    WIRE_FILE_ANSWER = 82,  /* struct wire_answer: the end of the call */
};

/* flags of WIRE_FILE_PUT */
#define WIRE_PUT_EXECUTABLE 1

struct wire_put {
    uint64_t size; /* of all the data */
};

struct wire_changes {
    int64_t after_ns; /* later than that, as the host's clock of real time has it */
};

struct wire_get {
    uint64_t max_bytes; /* a larger file is EFBIG */
};

/* flags of an entry */
#define WIRE_ENTRY_DIRECTORY 1

struct wire_entry {
    uint64_t size;
    uint16_t name_length; /* LIST: of a name, CHANGES: of a path */
    uint16_t flags;
    uint32_t unused;
};

/* flags of an answer */
#define WIRE_ANSWER_CUT 1 /* LIST, CHANGES: there is more than was told */

struct wire_answer {
    int32_t error; /* errno; 0: done */
    uint32_t flags;
    uint64_t size; /* GET: of the file */
};

#define WIRE_FILE_LINKS 2u
#define WIRE_MAX_PATH 4095u
#define WIRE_MAX_NAME 255u
#define WIRE_MAX_DATA (64u << 10) /* the largest payload on a files socket */
#define WIRE_MAX_DEPTH 64u        /* CHANGES: of directories */
#define WIRE_MAX_ENTRIES 20000u   /* of one call */
#define WIRE_MAX_ENTRY_BYTES (4u << 20)
