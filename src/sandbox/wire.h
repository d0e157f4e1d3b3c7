/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire between the engine and the runner inside a cell: one stream socket,
 * frames of a fixed header and a bounded payload, in native byte order.
 *
 * Engine to runner:  ENV and GATE (both optional), then RUN.
 * Supervisor to a runner that is to be a zygote, before anything else: ZYGOTE.
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
 */
#pragma once

#include <stdint.h>

/* Raised whenever a frame changes; helpers of another version are refused. */
#define WIRE_VERSION 5

#define WIRE_CHANNEL_FD 1000
#define WIRE_CHANNEL_FD_NODE 15

/* Where a program's text lies in a cell: tracebacks and messages name it. */
#define WIRE_PYTHON_FILE "/run/main.py"
#define WIRE_SHELL_FILE "/run/main.sh"
#define WIRE_NODE_LINK "/run/main" /* to a file in the home directory; the runner makes both */

struct wire_header {
    uint32_t length;  /* of the payload that follows */
    uint16_t type;    /* enum wire_type */
    uint16_t flags;   /* of the type; else 0 */
    uint32_t exec_id; /* 1 for a single run */
};

enum wire_type {
    WIRE_ENV = 1,    /* NAME=VALUE strings, each ended by NUL */
    WIRE_RUN = 2,    /* the code, UTF-8, no NUL; nothing follows */
    WIRE_GATE = 3,   /* entries, each a kind byte (WIRE_GATE_*), a name, and NUL */
    WIRE_ZYGOTE = 4, /* path of the zygote's module, NUL, names of modules with commas */

    WIRE_VALUE = 16,   /* text of the last expression's value, UTF-8 */
    WIRE_ERROR = 17,   /* struct wire_error, the type's name, then the message, UTF-8 */
    WIRE_VERDICT = 18, /* empty: passed; else refused, and as WIRE_ERROR without a type */
    WIRE_RICH = 19,    /* a MIME type, NUL, the data, in the order of display; empty: one that
                          the runner has left out */
};

/* flags of WIRE_RUN */
#define WIRE_RUN_TIDY 1 /* handle !command and %magic lines; mend escaped line ends */

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

/* The largest payloads. */
#define WIRE_MAX_RUN (1u << 20)
#define WIRE_MAX_ENV (100u * (255u + 1u + 32768u + 1u))
#define WIRE_MAX_GATE (4u * 1000u * (1u + 255u + 1u))
#define WIRE_MAX_ZYGOTE 8192u
#define WIRE_MAX_VALUE (1u << 20)
#define WIRE_MAX_ERROR (64u << 10)
#define WIRE_MAX_RICH (4u << 20)

/* Of all WIRE_RICH frames of a run: payloads that are not empty, their bytes, and frames
 * that are. */
#define WIRE_MAX_RICH_COUNT 64u
#define WIRE_MAX_RICH_BYTES (8u << 20)
#define WIRE_MAX_RICH_EMPTY 1000u
