/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch agent on a terminal: "hutch> ", a question a line, until the end of the input. The
 * terminal edits the line. SIGINT ends the question that is worked on, or throws away what is
 * typed; SIGTERM and SIGHUP end the program.
 */
#include "agent.h"

#include "base/error.h"
#include "base/limits.h"
#include "output.h"
#include "stop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define PROMPT "hutch> "
#define LINE_BYTES KIB(64)
/* Of a line the terminal keeps 4095 bytes and drops the rest without a word. */
#define TERMINAL_LINE_BYTES 4095

/* What was typed and not asked yet. */
struct typed {
    struct buf text;
    bool ended;
};

enum typed_outcome { TYPED_LINE, TYPED_END, TYPED_STOP, TYPED_FAILED };

/* The terminal that the user looks at. */
static int screen(void)
{
    return isatty(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO;
}

static int show(const char *text)
{
    return output_write(screen(), text, strlen(text));
}

/* Takes more of what was typed; false where reading failed. */
static bool take_more(struct typed *typed)
{
    char piece[4096];

    ssize_t count = read(STDIN_FILENO, piece, sizeof(piece));
    if (count < 0)
        return errno == EINTR || errno == EAGAIN;
    buf_append(&typed->text, piece, (size_t)count);
    typed->ended = count == 0;
    return true;
}

/* Waits until there is a whole line, its length then in *ret_length, or the end. */
static enum typed_outcome await_line(struct typed *typed, size_t *ret_length)
{
    for (;;) {
        const char *end = memchr(buf_text(&typed->text), '\n', typed->text.length);
        if (end || (typed->ended && typed->text.length > 0)) {
            *ret_length = end ? (size_t)(end - typed->text.data) : typed->text.length;
            return TYPED_LINE;
        }
        if (typed->ended)
            return TYPED_END;
        struct pollfd wait[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                {.fd = stop_fd(), .events = POLLIN}};
        if (poll(wait, ARRAY_LENGTH(wait), -1) < 0 && errno != EINTR)
            return TYPED_FAILED;
        if (stop_status() != 0)
            return TYPED_STOP;
        if (wait[0].revents && (!take_more(typed) || typed->text.failure != BUF_OK))
            return TYPED_FAILED;
    }
}

/* Says that a line is not asked of which the end may be missing. */
static void refuse_line(void)
{
    struct problem problem;

    problem_set(&problem, HUTCH_ERR_INVALID,
                "the line has more than the %d bytes that a terminal takes, and was not asked; ask "
                "it by a file and 'hutch agent - <FILE'",
                TERMINAL_LINE_BYTES - 1);
    problem_report(&problem, agent_command.name, false);
}

/* Asks the line that was typed. Returns the exit status where the program has to end, else -1. */
static int ask_line(struct agent_desk *desk, struct typed *typed, size_t length)
{
    size_t taken = length < typed->text.length ? length + 1 : length;
    int status = 0;

    if (length >= TERMINAL_LINE_BYTES)
        refuse_line();
    else if (strspn(typed->text.data, " \t\r") < length)
        status = agent_ask(desk, typed->text.data, length, true);
    buf_drop_front(&typed->text, taken);
    if (stop_status() != 0 || status == EXIT_READER_GONE)
        return status;
    return -1;
}

/* After a signal at the prompt. Returns as above. */
static int forget_line(struct agent_desk *desk, struct typed *typed)
{
    struct hutch_error err;
    struct problem problem;

    if (stop_status() != 128 + SIGINT)
        return stop_status();
    buf_clear(&typed->text);
    if (stop_renew(&desk->cancel, &err) < 0) {
        problem_take(&problem, &err);
        return problem_report(&problem, agent_command.name, false);
    }
    desk->view.cancel = desk->cancel;
    return show("\n") != 0 ? EXIT_READER_GONE : -1;
}

static int fail(const struct typed *typed)
{
    struct problem problem;

    if (typed->text.failure == BUF_TOO_LONG)
        problem_set(&problem, HUTCH_ERR_INVALID,
                    "the question is longer than the %llu bytes of a line; ask it by a file and "
                    "'hutch agent -'",
                    (unsigned long long)LINE_BYTES);
    else
        problem_set(&problem, HUTCH_ERR_SYSTEM, "the terminal cannot be read");
    return problem_report(&problem, agent_command.name, false);
}

int agent_prompt(struct agent_desk *desk)
{
    struct typed typed = {.text = BUF_MAX(LINE_BYTES)};
    int status = -1;

    while (status < 0) {
        size_t length = 0;
        int failure = memchr(buf_text(&typed.text), '\n', typed.text.length) ? 0 : show(PROMPT);
        if (failure != 0 && failure != ECANCELED) {
            status = output_status(failure, 0);
            break;
        }
        switch (await_line(&typed, &length)) {
        case TYPED_LINE:
            status = ask_line(desk, &typed, length);
            break;
        case TYPED_END:
            status = output_status(show("\n"), 0);
            break;
        case TYPED_STOP:
            status = forget_line(desk, &typed);
            break;
        case TYPED_FAILED:
            status = fail(&typed);
            break;
        }
    }
    buf_done(&typed.text);
    return status;
}
