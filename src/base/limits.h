/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every maximum in one place: what grows names its bound here.
 */
#pragma once

#include <stdint.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)

/* the request; the numbers of include/hutch.h */
#define LIMIT_CODE_BYTES MIB(1)
#define LIMIT_STDIN_BYTES MIB(16)
#define LIMIT_ENV_COUNT 100
#define LIMIT_ENV_NAME_BYTES 255
#define LIMIT_ENV_VALUE_BYTES KIB(32)
#define LIMIT_TIMEOUT_SECONDS_MIN 0.1
#define LIMIT_TIMEOUT_SECONDS_MAX 300.0
#define LIMIT_MEMORY_MB_MIN 64
#define LIMIT_MEMORY_MB_MIN_SHELL 16
#define LIMIT_CPUS_MIN 0.1
#define LIMIT_PROCESSES_MAX 4096
#define LIMIT_DISK_MB_MAX 65536
#define LIMIT_OUTPUT_BYTES_MIN KIB(1)
#define LIMIT_OUTPUT_BYTES_MAX MIB(16)
#define LIMIT_OWNER_BYTES 64
#define LIMIT_GATE_NAMES 1000 /* in each of its lists */
#define LIMIT_GATE_NAME_BYTES 255
#define LIMIT_REQUEST_JSON_BYTES MIB(8)
#define LIMIT_FILES_BYTES MIB(4) /* contents of files, together: of a request, of a result */
#define LIMIT_FILES 1000         /* of a request */
#define LIMIT_RETURN_FILES 100   /* patterns */
#define LIMIT_TRANSFERS 100      /* uploads, and downloads, of one run */
#define LIMIT_PATH_BYTES 4095
#define LIMIT_NAME_BYTES 255

/* a run */
#define LIMIT_OUTPUT_HARD_BYTES MIB(64) /* printed on one stream: the run is ended */
#define LIMIT_RESULT_JSON_BYTES MIB(320)
#define LIMIT_RESULT_FILES 10000    /* that a result lists */
#define LIMIT_REPORT_BYTES KIB(256) /* of hutch doctor */

/* the queue */
#define LIMIT_QUEUE 10000 /* runs that wait */
#define LIMIT_QUEUE_SECONDS_MIN 0.1
#define LIMIT_QUEUE_SECONDS_MAX 3600.0

/* a session */
#define LIMIT_IDLE_SECONDS_MAX 86400.0
#define LIMIT_LIFETIME_SECONDS_MAX 604800.0
#define LIMIT_SESSION_QUEUE 64 /* execs that wait, and calls for files */
#define LIMIT_FILE_SECONDS_MIN 0.1
#define LIMIT_FILE_SECONDS_MAX 3600.0 /* for a call for files */
#define LIMIT_LATE_BYTES KIB(64)      /* printed by what earlier execs left: so much is kept */
#define LIMIT_OLD_OUTPUTS 8           /* pairs of pipes of earlier execs that are still read */
#define LIMIT_PIPE_BYTES MIB(2)       /* two pipes hold no more */
#define LIMIT_BACKGROUND 64           /* processes that a result lists */
#define LIMIT_COMMAND_BYTES 256       /* of each of them */

/* a model's server */
#define LIMIT_SSE_EVENT_BYTES MIB(8)  /* a line, and an event */
#define LIMIT_REPLY_BYTES MIB(64)     /* a reply as it is sent */
#define LIMIT_REPLY_TEXT_BYTES MIB(8) /* its text: far more than any model's tokens */
#define LIMIT_REPLY_CALLS 64          /* tool calls of a reply */
#define LIMIT_ARGUMENTS_BYTES MIB(4)  /* of one call */
#define LIMIT_CALL_NAME_BYTES 256     /* as it is sent */
#define LIMIT_CALL_ID_BYTES KIB(4)    /* some carry a signature */
#define LIMIT_REPLY_EXTRA_BYTES                                                                    \
    MIB(1)                               /* of members that only its server knows, as JSON: of     \
                                            the message, and of all its calls */
#define LIMIT_MESSAGES 10000             /* of a conversation */
#define LIMIT_CONVERSATION_BYTES MIB(64) /* as JSON */
#define LIMIT_CONVERSATION_END MIB(4)    /* of these are for its last words */
#define LIMIT_TOOLS 128                  /* offered to a model */
#define LIMIT_CALL_ANSWER_BYTES MIB(4)   /* what a tool says of one call */
#define LIMIT_DESCRIPTION_BYTES KIB(16)  /* of a tool */
#define LIMIT_SCHEMA_BYTES KIB(256)      /* of a tool, of an answer; as JSON */
#define LIMIT_SCHEMA_PARTS 4096          /* schemas in a schema */
#define LIMIT_READ_FILE_BYTES MIB(4)     /* that a model may read */
#define LIMIT_SHARED_FILES 1000          /* that the sessions of a conversation share */
#define LIMIT_SHARED_FILE_BYTES MIB(16)  /* each of them */
#define LIMIT_SHARED_BYTES MIB(64)       /* brought from one to another at once */
#define LIMIT_URL_BYTES KIB(2)
#define LIMIT_KEY_BYTES KIB(4)
#define LIMIT_KEY_SECONDS 60.0 /* for a pipe to give it */
#define LIMIT_HEADERS 32       /* that the caller adds */
#define LIMIT_REDIRECTS 5
#define LIMIT_ERROR_BODY_BYTES KIB(64) /* of the answer that says what is wrong */

/* an agent */
#define LIMIT_QUESTION_BYTES MIB(4)
#define LIMIT_PROMPT_BYTES KIB(256) /* of the system */
#define LIMIT_EXTRA_BYTES KIB(256)  /* further members of a request */
#define LIMIT_USAGE_BYTES KIB(64)   /* what a server counts of a reply, as JSON */
#define LIMIT_STEPS 100
#define LIMIT_TOOL_CONCURRENCY 16
#define LIMIT_RUN_SECONDS_MAX 86400.0
#define LIMIT_WAIT_SECONDS_MAX 600.0 /* for a model's server */
#define LIMIT_CALL_CELLS 1000        /* of one call of a tool, that a result lists */
#define LIMIT_IDLE_CLIENTS 16        /* that an agent keeps for its next runs */

/* the host */
#define LIMIT_PROC_FILE_BYTES KIB(256) /* a file of /proc, /sys or a cgroup that we read */
#define LIMIT_PARKED_PART 4            /* of the places for cells: no more hold parked ones */
#define LIMIT_CELLS 1024               /* cells of one supervisor at once */
#define LIMIT_SUPERVISOR_FILES 144     /* descriptors that the supervisor itself needs */
#define LIMIT_CELL_FILES 21            /* and those for a cell, at the most */
#define LIMIT_FILES_OF_TREE 200000     /* files that a cell tree may hold */
#define LIMIT_PARKED_CELLS 256         /* of one pool that wait for requests */
#define LIMIT_POOLS 64                 /* of one supervisor: for a language and an owner each */
#define LIMIT_PRELOAD_BYTES KIB(1)     /* names of modules */
#define LIMIT_RUNNER_BYTES MIB(1)      /* of the source of a runner */
