/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How runs are judged: a table of ends, each with the fields of the result that
 * it must give.
 */
#include "sandbox/outcome.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "sandbox/wire.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define EXITED(code) ((code) << 8)
#define KILLED(number) (number)

struct end {
    const char *what;
    enum hutch_language language;
    enum cell_end end;
    int wait_status;
    uint64_t oom_kills, process_limit_hits;
    /* the claim; none where type and message are NULL */
    const char *type, *message;
    uint32_t line;
    int sys_errno;
    bool compile, import;
    bool refusal;            /* it is the gate's word instead */
    const char *stderr_text; /* NULL: empty */
    /* what must come out */
    int exit_code;
    const char *exit_signal, *error_type, *error_class;
    uint32_t error_line;
    const char *contains; /* in error_message; NULL: there is no message */
};

static const struct end ends[] = {
    /* ends of the program's own */
    {.what = "success"},
    {.what = "success in spite of a claim", .type = "ValueError", .message = "x", .line = 3},
    {.what = "success in spite of a claim that it did not parse",
     .type = "SyntaxError",
     .message = "x",
     .compile = true},
    {.what = "success in spite of killed children and refused processes",
     .oom_kills = 2,
     .process_limit_hits = 9},
    {.what = "shell success with complaints on stderr",
     .language = HUTCH_SHELL,
     .stderr_text = "/run/main.sh: line 3: syntax error near unexpected token `fi'\n"},
    {.what = "exit code without a claim",
     .wait_status = EXITED(42),
     .exit_code = 42,
     .error_type = "runtime_error"},
    {.what = "exit code 255 is not the -1 of a timeout",
     .wait_status = EXITED(255),
     .exit_code = 255,
     .error_type = "runtime_error"},
    {.what = "SystemExit",
     .wait_status = EXITED(1),
     .type = "SystemExit",
     .message = "reason",
     .exit_code = 1,
     .error_type = "runtime_error",
     .error_class = "SystemExit",
     .contains = "reason"},
    {.what = "an exception",
     .wait_status = EXITED(1),
     .type = "ZeroDivisionError",
     .message = "division by zero",
     .line = 3,
     .exit_code = 1,
     .error_type = "runtime_error",
     .error_class = "ZeroDivisionError",
     .error_line = 3,
     .contains = "division by zero"},
    {.what = "an exception without a message or a line",
     .wait_status = EXITED(1),
     .type = "ValueError",
     .message = "",
     .exit_code = 1,
     .error_type = "runtime_error",
     .error_class = "ValueError",
     .contains = ""},
    {.what = "a claim without a type",
     .wait_status = EXITED(1),
     .type = "",
     .message = "text",
     .exit_code = 1,
     .error_type = "runtime_error",
     .contains = "text"},
    {.what = "code that does not parse",
     .wait_status = EXITED(1),
     .type = "SyntaxError",
     .message = "'(' was never closed",
     .line = 2,
     .compile = true,
     .exit_code = 1,
     .error_type = "syntax_error",
     .error_class = "SyntaxError",
     .error_line = 2,
     .contains = "'(' was never closed"},
    {.what = "code nested too deeply for the compiler is no matter of memory_mb",
     .wait_status = EXITED(1),
     .type = "MemoryError",
     .message = "",
     .compile = true,
     .exit_code = 1,
     .error_type = "syntax_error",
     .error_class = "MemoryError",
     .contains = ""},
    {.what = "SyntaxError of a later eval is an exception like others",
     .wait_status = EXITED(1),
     .type = "SyntaxError",
     .message = "invalid syntax",
     .line = 9,
     .exit_code = 1,
     .error_type = "runtime_error",
     .error_class = "SyntaxError",
     .error_line = 9,
     .contains = "invalid syntax"},
    {.what = "a module that does not exist",
     .wait_status = EXITED(1),
     .type = "ModuleNotFoundError",
     .message = "No module named 'nosuch'",
     .line = 1,
     .exit_code = 1,
     .error_type = "import_error",
     .error_class = "ModuleNotFoundError",
     .error_line = 1,
     .contains = "No module named 'nosuch'"},
    {.what = "a package that does not exist, by an error without a type of its own",
     .language = HUTCH_JAVASCRIPT,
     .wait_status = EXITED(1),
     .type = "Error",
     .message = "Cannot find package 'nosuch'",
     .line = 1,
     .import = true,
     .exit_code = 1,
     .error_type = "import_error",
     .error_class = "Error",
     .error_line = 1,
     .contains = "Cannot find package 'nosuch'"},
    {.what = "a name that cannot be imported",
     .wait_status = EXITED(1),
     .type = "ImportError",
     .message = "cannot import name 'x'",
     .exit_code = 1,
     .error_type = "import_error",
     .error_class = "ImportError",
     .contains = "cannot import name"},
    {.what = "an error of another name",
     .wait_status = EXITED(1),
     .type = "MyImportError",
     .message = "",
     .exit_code = 1,
     .error_type = "runtime_error",
     .error_class = "MyImportError",
     .contains = ""},

    /* the gate */
    {.what = "refused",
     .wait_status = EXITED(WIRE_EXIT_REFUSED),
     .refusal = true,
     .type = "",
     .message = "Static analysis rejected code: import of 'os' (line 2)",
     .line = 2,
     .exit_code = -2,
     .error_type = "validation_error",
     .error_line = 2,
     .contains = "Static analysis rejected code: import of 'os' (line 2)"},
    {.what = "a refusal without the runner's exit status",
     .wait_status = EXITED(1),
     .refusal = true,
     .type = "",
     .message = "no",
     .exit_code = 1,
     .error_type = "runtime_error"},
    {.what = "a refusal in a program that ends well", .refusal = true, .type = "", .message = "no"},
    {.what = "a refusal that came too late",
     .end = CELL_END_TIMEOUT,
     .wait_status = EXITED(WIRE_EXIT_REFUSED),
     .refusal = true,
     .type = "",
     .message = "no",
     .exit_code = -1,
     .error_type = "timeout",
     .contains = "time limit"},
    {.what = "the exit status of a refusal, as a claim",
     .wait_status = EXITED(WIRE_EXIT_REFUSED),
     .type = "SystemExit",
     .message = "126",
     .exit_code = 126,
     .error_type = "runtime_error",
     .error_class = "SystemExit",
     .contains = "126"},

    /* ends by the supervisor */
    {.what = "time limit",
     .end = CELL_END_TIMEOUT,
     .wait_status = KILLED(SIGKILL),
     .exit_code = -1,
     .error_type = "timeout",
     .contains = "time limit of 1.5 s exceeded: the program was stopped after 1.502 s"},
    {.what = "time limit, though the program left just then, and claimed",
     .end = CELL_END_TIMEOUT,
     .wait_status = EXITED(0),
     .oom_kills = 1,
     .type = "ValueError",
     .message = "mine",
     .line = 4,
     .exit_code = -1,
     .error_type = "timeout",
     .contains = "raise timeout_seconds (at most 300)"},
    {.what = "memory limit, by the supervisor",
     .end = CELL_END_MEMORY,
     .wait_status = KILLED(SIGKILL),
     .exit_code = 137,
     .exit_signal = "SIGKILL",
     .error_type = "resource_limit",
     .contains = "memory limit of 64 MB exceeded; hold less in memory at once or raise memory_mb"},
    {.what = "hard output limit",
     .end = CELL_END_OUTPUT,
     .wait_status = KILLED(SIGKILL),
     .type = "ValueError",
     .message = "mine",
     .line = 4,
     .exit_code = 137,
     .exit_signal = "SIGKILL",
     .error_type = "resource_limit",
     .contains = "output limit of 64 MiB exceeded"},

    /* memory */
    {.what = "OOM killer",
     .wait_status = KILLED(SIGKILL),
     .oom_kills = 1,
     .exit_code = 137,
     .exit_signal = "SIGKILL",
     .error_type = "resource_limit",
     .contains = "memory limit of 64 MB exceeded"},
    {.what = "OOM killer took a child, the program fails of it",
     .wait_status = EXITED(1),
     .oom_kills = 1,
     .type = "BrokenProcessPool",
     .message = "a process died",
     .line = 7,
     .exit_code = 1,
     .error_type = "resource_limit",
     .error_class = "BrokenProcessPool",
     .error_line = 7,
     .contains = "raise memory_mb (a process died)"},
    {.what = "OOM killer took a shell's child",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(137),
     .oom_kills = 1,
     .stderr_text = "/run/main.sh: line 1:     5 Killed   python3\n",
     .exit_code = 137,
     .error_type = "resource_limit",
     .contains = "memory limit of 64 MB exceeded"},
    {.what = "MemoryError",
     .wait_status = EXITED(1),
     .type = "MemoryError",
     .message = "",
     .line = 1,
     .exit_code = 1,
     .error_type = "resource_limit",
     .error_class = "MemoryError",
     .error_line = 1,
     .contains = "refused memory that it asked for (memory limit of 64 MB); ask for less at once"},
    {.what = "MemoryError of numpy",
     .wait_status = EXITED(1),
     .type = "_ArrayMemoryError",
     .message = "Unable to allocate 8.00 GiB",
     .line = 2,
     .exit_code = 1,
     .error_type = "resource_limit",
     .error_class = "_ArrayMemoryError",
     .error_line = 2,
     .contains = "(Unable to allocate 8.00 GiB)"},
    {.what = "fork without memory",
     .wait_status = EXITED(1),
     .type = "OSError",
     .message = "[Errno 12] Cannot allocate memory",
     .sys_errno = ENOMEM,
     .exit_code = 1,
     .error_type = "resource_limit",
     .error_class = "OSError",
     .contains = "memory limit of 64 MB"},
    {.what = "bash without memory",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(2),
     .stderr_text = "/run/main.sh: xmalloc: cannot allocate 33554433 bytes\n",
     .exit_code = 2,
     .error_type = "resource_limit",
     .contains = "memory limit of 64 MB"},
    {.what = "heap of node is full",
     .language = HUTCH_JAVASCRIPT,
     .wait_status = KILLED(SIGABRT),
     .stderr_text = "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of "
                    "memory\n----- Native stack trace -----\n",
     .exit_code = 134,
     .exit_signal = "SIGABRT",
     .error_type = "resource_limit",
     .contains = "memory limit of 64 MB exceeded"},
    {.what = "what only node says counts for node only",
     .wait_status = KILLED(SIGABRT),
     .process_limit_hits = 1,
     .stderr_text = "JavaScript heap out of memory",
     .exit_code = 134,
     .exit_signal = "SIGABRT",
     .error_type = "runtime_error",
     .contains = "killed by SIGABRT"},
    {.what = "words about a full heap, and another end",
     .language = HUTCH_JAVASCRIPT,
     .wait_status = EXITED(3),
     .stderr_text = "JavaScript heap out of memory",
     .exit_code = 3,
     .error_type = "runtime_error"},
    {.what = "node aborts without a limit",
     .language = HUTCH_JAVASCRIPT,
     .wait_status = KILLED(SIGABRT),
     .stderr_text = "Assertion failed\n",
     .exit_code = 134,
     .exit_signal = "SIGABRT",
     .error_type = "runtime_error",
     .contains = "killed by SIGABRT"},
    {.what = "node can start no thread",
     .language = HUTCH_JAVASCRIPT,
     .wait_status = KILLED(SIGABRT),
     .process_limit_hits = 2,
     .exit_code = 134,
     .exit_signal = "SIGABRT",
     .error_type = "resource_limit",
     .contains = "process limit of 7 reached"},
    {.what = "SIGKILL without a limit",
     .wait_status = KILLED(SIGKILL),
     .exit_code = 137,
     .exit_signal = "SIGKILL",
     .error_type = "runtime_error",
     .contains = "killed by SIGKILL; no limit of the cell was the reason"},

    /* disk */
    {.what = "disk limit",
     .wait_status = EXITED(1),
     .type = "OSError",
     .message = "[Errno 28] No space left on device",
     .line = 5,
     .sys_errno = ENOSPC,
     .exit_code = 1,
     .error_type = "resource_limit",
     .error_class = "OSError",
     .error_line = 5,
     .contains = "disk limit of 9 MB reached; write less, remove files, or raise disk_mb "
                 "([Errno 28] No space left on device)"},
    {.what = "disk quota",
     .wait_status = EXITED(1),
     .type = "OSError",
     .message = "",
     .sys_errno = EDQUOT,
     .exit_code = 1,
     .error_type = "resource_limit",
     .error_class = "OSError",
     .contains = "disk limit of 9 MB"},
    {.what = "file too large",
     .wait_status = EXITED(1),
     .type = "OSError",
     .message = "",
     .sys_errno = EFBIG,
     .exit_code = 1,
     .error_type = "resource_limit",
     .error_class = "OSError",
     .contains = "disk limit of 9 MB"},
    {.what = "another errno",
     .wait_status = EXITED(1),
     .type = "FileNotFoundError",
     .message = "no file",
     .sys_errno = ENOENT,
     .exit_code = 1,
     .error_type = "runtime_error",
     .error_class = "FileNotFoundError",
     .contains = "no file"},
    {.what = "SIGXFSZ",
     .wait_status = KILLED(SIGXFSZ),
     .exit_code = 128 + SIGXFSZ,
     .exit_signal = "SIGXFSZ",
     .error_type = "resource_limit",
     .contains = "disk limit of 9 MB"},
    {.what = "a shell's command on a full disk",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(1),
     .stderr_text = "noise\nhead: write error: No space left on device\n\n",
     .exit_code = 1,
     .error_type = "resource_limit",
     .contains = "disk limit of 9 MB"},
    {.what = "a shell that went on after a full disk",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(1),
     .stderr_text = "head: write error: No space left on device\ngrep: x: No such file\n",
     .exit_code = 1,
     .error_type = "runtime_error"},

    /* processes */
    {.what = "thread that could not start, counted",
     .wait_status = EXITED(1),
     .process_limit_hits = 1,
     .type = "RuntimeError",
     .message = "can't start new thread",
     .line = 6,
     .exit_code = 1,
     .error_type = "resource_limit",
     .error_class = "RuntimeError",
     .error_line = 6,
     .contains = "process limit of 7 reached; start fewer processes and threads at once or raise "
                 "max_processes (at most 4096) (can't start new thread)"},
    {.what = "thread that could not start, not counted",
     .wait_status = EXITED(1),
     .type = "RuntimeError",
     .message = "can't start new thread",
     .exit_code = 1,
     .error_type = "resource_limit",
     .error_class = "RuntimeError",
     .contains = "no further thread could start (process limit of 7, memory limit of 64 MB)"},
    {.what = "another RuntimeError while processes were refused",
     .wait_status = EXITED(1),
     .process_limit_hits = 1,
     .type = "RuntimeError",
     .message = "mine",
     .exit_code = 1,
     .error_type = "runtime_error",
     .error_class = "RuntimeError",
     .contains = "mine"},
    {.what = "fork refused",
     .wait_status = EXITED(1),
     .process_limit_hits = 1,
     .type = "BlockingIOError",
     .message = "[Errno 11] Resource temporarily unavailable",
     .sys_errno = EAGAIN,
     .exit_code = 1,
     .error_type = "resource_limit",
     .error_class = "BlockingIOError",
     .contains = "process limit of 7 reached"},
    {.what = "EAGAIN of a socket",
     .wait_status = EXITED(1),
     .type = "BlockingIOError",
     .message = "[Errno 11] Resource temporarily unavailable",
     .sys_errno = EAGAIN,
     .exit_code = 1,
     .error_type = "runtime_error",
     .error_class = "BlockingIOError",
     .contains = "[Errno 11]"},
    {.what = "a shell's fork refused",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(254),
     .process_limit_hits = 3,
     .stderr_text = "/run/main.sh: fork: retry: Resource temporarily unavailable\n"
                    "/run/main.sh: fork: Resource temporarily unavailable\n",
     .exit_code = 254,
     .error_type = "resource_limit",
     .contains = "process limit of 7 reached"},
    {.what = "the same words without a refusal",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(1),
     .stderr_text = "nc: Resource temporarily unavailable\n",
     .exit_code = 1,
     .error_type = "runtime_error"},

    /* signals */
    {.what = "CPU time limit",
     .wait_status = KILLED(SIGXCPU),
     .exit_code = 152,
     .exit_signal = "SIGXCPU",
     .error_type = "resource_limit",
     .contains = "CPU time limit of 0.75 s used up (timeout_seconds x cpus)"},
    {.what = "SIGSEGV",
     .wait_status = KILLED(SIGSEGV) | 0x80, /* with a core file */
     .exit_code = 139,
     .exit_signal = "SIGSEGV",
     .error_type = "runtime_error",
     .contains = "killed by SIGSEGV; a likely cause is a stack overflow"},
    {.what = "SIGABRT",
     .wait_status = KILLED(SIGABRT),
     .exit_code = 134,
     .exit_signal = "SIGABRT",
     .error_type = "runtime_error",
     .contains = "killed by SIGABRT"},
    {.what = "SIGTERM after a claim",
     .wait_status = KILLED(SIGTERM),
     .type = "ValueError",
     .message = "earlier",
     .line = 3,
     .exit_code = 143,
     .exit_signal = "SIGTERM",
     .error_type = "runtime_error",
     .contains = "the program was killed by SIGTERM"},
    {.what = "SIGBUS",
     .wait_status = KILLED(SIGBUS),
     .exit_code = 135,
     .exit_signal = "SIGBUS",
     .error_type = "runtime_error",
     .contains = "disk_mb"},
    {.what = "a real-time signal",
     .wait_status = KILLED(40),
     .exit_code = 168,
     .exit_signal = "SIGRTMIN+6",
     .error_type = "runtime_error",
     .contains = "SIGRTMIN+6"},

    /* shell syntax */
    {.what = "fi without if",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(2),
     .stderr_text = "/run/main.sh: line 2: syntax error near unexpected token `fi'\n"
                    "/run/main.sh: line 2: `fi'\n",
     .exit_code = 2,
     .error_type = "syntax_error",
     .error_line = 2,
     .contains = "syntax error near unexpected token `fi'"},
    {.what = "a quote never closed",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(2),
     .stderr_text = "/run/main.sh: line 12: unexpected EOF while looking for matching `\"'\n",
     .exit_code = 2,
     .error_type = "syntax_error",
     .error_line = 12,
     .contains = "unexpected EOF while looking for matching `\"'"},
    {.what = "the same as older versions of bash say it, after output of the program",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(2),
     .stderr_text = "hello\n/run/main.sh: line 1: unexpected EOF while looking for matching `\"'\n"
                    "/run/main.sh: line 2: syntax error: unexpected end of file\n",
     .exit_code = 2,
     .error_type = "syntax_error",
     .error_line = 1,
     .contains = "unexpected EOF"},
    {.what = "if without fi, no newline at the end",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(2),
     .stderr_text = "/run/main.sh: line 3: syntax error: unexpected end of file",
     .exit_code = 2,
     .error_type = "syntax_error",
     .error_line = 3,
     .contains = "syntax error: unexpected end of file"},
    {.what = "two complaints, the last one ended the program",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(2),
     .stderr_text = "/run/main.sh: line 1: syntax error near unexpected token `a'\n"
                    "/run/main.sh: line 1: `a'\nx\n"
                    "/run/main.sh: line 9: syntax error near unexpected token `b'\n"
                    "/run/main.sh: line 9: `b'\n",
     .exit_code = 2,
     .error_type = "syntax_error",
     .error_line = 9,
     .contains = "token `b'"},
    {.what = "syntax error of an eval is not the program's",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(2),
     .stderr_text = "/run/main.sh: eval: line 2: syntax error: unexpected end of file\n",
     .exit_code = 2,
     .error_type = "runtime_error"},
    {.what = "syntax error of another script",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(2),
     .stderr_text = "other.sh: line 2: syntax error: unexpected end of file\n",
     .exit_code = 2,
     .error_type = "runtime_error"},
    {.what = "the complaint with another exit code",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(3),
     .stderr_text = "/run/main.sh: line 2: syntax error: unexpected end of file\n",
     .exit_code = 3,
     .error_type = "runtime_error"},
    {.what = "exit code 2 of a command",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(2),
     .stderr_text = "ls: cannot access 'x': No such file or directory\n",
     .exit_code = 2,
     .error_type = "runtime_error"},
    {.what = "a complaint of python's does not count",
     .wait_status = EXITED(2),
     .stderr_text = "/run/main.sh: line 2: syntax error: unexpected end of file\n",
     .exit_code = 2,
     .error_type = "runtime_error"},
    {.what = "command not found",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(127),
     .stderr_text = "/run/main.sh: line 1: nosuch: command not found\n",
     .exit_code = 127,
     .error_type = "runtime_error"},
    {.what = "command not executable",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(126),
     .stderr_text = "/run/main.sh: line 1: ./x: Permission denied\n",
     .exit_code = 126,
     .error_type = "runtime_error"},
    {.what = "false",
     .language = HUTCH_SHELL,
     .wait_status = EXITED(1),
     .exit_code = 1,
     .error_type = "runtime_error"},
};

static void same_text(const char *what, const char *field, const char *got, const char *expected)
{
    if (!got != !expected || (got && strcmp(got, expected) != 0))
        fail_msg("%s: %s is %s, not %s", what, field, got ? got : "NULL",
                 expected ? expected : "NULL");
}

static void same_number(const char *what, const char *field, int64_t got, int64_t expected)
{
    if (got != expected)
        fail_msg("%s: %s is %lld, not %lld", what, field, (long long)got, (long long)expected);
}

static void free_result_text(struct hutch_result *result)
{
    free(result->error_class);
    free(result->error_message);
}

static struct hutch_request small_request(enum hutch_language language)
{
    struct hutch_request request;

    hutch_request_init(&request);
    request.language = language;
    request.timeout_seconds = 1.5;
    request.cpus = 0.5;
    request.memory_mb = 64;
    request.disk_mb = 9;
    request.max_processes = 7;
    return request;
}

static void judge(const struct end *row, struct hutch_result *result)
{
    struct hutch_error err;
    struct hutch_request request = small_request(row->language);
    struct cell_exit exit = {.end = row->end,
                             .wait_status = row->wait_status,
                             .duration_ns = 1502987654,
                             .oom_kills = row->oom_kills,
                             .process_limit_hits = row->process_limit_hits};
    struct claim claim = {.present = true,
                          .compile = row->compile,
                          .import = row->import,
                          .type = row->type,
                          .type_length = row->type ? strlen(row->type) : 0,
                          .message = row->message,
                          .message_length = row->message ? strlen(row->message) : 0,
                          .line = row->line,
                          .sys_errno = row->sys_errno};
    char *text = strdup(row->stderr_text ? row->stderr_text : "");
    assert_non_null(text);
    struct hutch_text stderr_text = {text, strlen(text)};
    struct outcome_facts facts = {.exit = &exit,
                                  .request = &request,
                                  .claim = row->type && !row->refusal ? &claim : NULL,
                                  .refusal = row->refusal ? &claim : NULL,
                                  .stderr_text = &stderr_text};
    assert_int_equal(outcome_judge(&facts, result, &err), 0);
    free(text);
}

static void every_end_is_judged_as_the_table_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(ends); i++) {
        const struct end *row = &ends[i];
        struct hutch_result result = {0};
        judge(row, &result);
        same_number(row->what, "exit_code", result.exit_code, row->exit_code);
        same_text(row->what, "exit_signal", result.exit_signal, row->exit_signal);
        same_number(row->what, "timed_out", result.timed_out, row->end == CELL_END_TIMEOUT);
        same_text(row->what, "error_type", result.error_type, row->error_type);
        same_text(row->what, "error_class", result.error_class, row->error_class);
        same_number(row->what, "error_line", result.error_line, row->error_line);
        if (!row->contains)
            same_text(row->what, "error_message", result.error_message, NULL);
        else if (!result.error_message || !strstr(result.error_message, row->contains))
            fail_msg("%s: error_message is %s", row->what, result.error_message);
        if (row->contains && row->contains[0] == '\0')
            same_text(row->what, "error_message", result.error_message, "");
        free_result_text(&result);
    }
}

static void every_exit_code_passes(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        for (enum hutch_language language = HUTCH_PYTHON; language <= HUTCH_JAVASCRIPT;
             language++) {
            struct end row = {.language = language, .wait_status = EXITED(code)};
            struct hutch_result result = {0};
            judge(&row, &result);
            assert_int_equal(result.exit_code, code);
            same_text("exit code", "error_type", result.error_type, code ? "runtime_error" : NULL);
            assert_null(result.error_message);
            assert_null(result.exit_signal);
        }
    }
}

static void every_signal_has_128_and_its_name(void **state)
{
    (void)state;
    for (int number = 1; number <= 64; number++) {
        struct end row = {.wait_status = KILLED(number)};
        struct hutch_result result = {0};
        judge(&row, &result);
        assert_int_equal(result.exit_code, 128 + number);
        assert_non_null(result.exit_signal);
        assert_int_equal(strncmp(result.exit_signal, "SIG", 3), 0);
        assert_non_null(result.error_type);
        assert_non_null(result.error_message);
        assert_int_equal(result.error_line, 0);
        free_result_text(&result);
    }
}

static void hostile_claims_become_valid_text(void **state)
{
    (void)state;
    struct hutch_error err;
    struct hutch_request request = small_request(HUTCH_PYTHON);
    struct cell_exit exit = {.wait_status = EXITED(1)};
    struct claim claim = {.present = true,
                          .type = "T\0\xff",
                          .type_length = 3,
                          .message = "caf\xe9\0\0\n🐍\xf0\x9f",
                          .message_length = 13,
                          .line = UINT32_MAX};
    struct outcome_facts facts = {.exit = &exit, .request = &request, .claim = &claim};
    struct hutch_result result = {0};

    assert_int_equal(outcome_judge(&facts, &result, &err), 0);
    assert_string_equal(result.error_class, "T" UTF8_REPLACEMENT UTF8_REPLACEMENT);
    assert_string_equal(result.error_message,
                        "caf" UTF8_REPLACEMENT UTF8_REPLACEMENT UTF8_REPLACEMENT
                        "\n🐍" UTF8_REPLACEMENT);
    assert_true(result.error_line == UINT32_MAX);
    free_result_text(&result);
}

static void a_long_complaint_is_cut_between_characters(void **state)
{
    (void)state;
    auto_buf struct buf text = BUF_MAX(100000);

    buf_append_text(&text, "/run/main.sh: line 1: syntax error near x");
    while (text.length < 90000)
        buf_append_text(&text, "漢");
    struct end row = {.language = HUTCH_SHELL, .wait_status = EXITED(2), .stderr_text = text.data};
    struct hutch_result result = {0};
    judge(&row, &result);
    assert_string_equal(result.error_type, "syntax_error");
    size_t length = strlen(result.error_message);
    assert_true(length <= 4096 && length > 4090);
    assert_true(utf8_valid(result.error_message, length));
    free_result_text(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_end_is_judged_as_the_table_says),
        cmocka_unit_test(every_exit_code_passes),
        cmocka_unit_test(every_signal_has_128_and_its_name),
        cmocka_unit_test(hostile_claims_become_valid_text),
        cmocka_unit_test(a_long_complaint_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
