/* SPDX-License-Identifier: Apache-2.0 */
/* See prompt.h. A rule is said where the tools are that it is about. */
#include "prompt.h"

#include "base/json.h"

/* The built-in tools. */
enum {
    PYTHON = 1 << 0,
    INTERPRETER = 1 << 1,
    SHELL = 1 << 2,
    READ = 1 << 3,
    WRITE = 1 << 4,
    LIST = 1 << 5,
};
#define CODE (PYTHON | INTERPRETER | SHELL)
#define SESSION (INTERPRETER | SHELL)
#define FILES (READ | WRITE | LIST)

static const char *const tool_names[] = {"python_executor", "code_interpreter", "shell",
                                         "read_file",       "write_file",       "list_files"};

/* What is said where the set has one of some tools; '@' stands for the names of those. */
static const struct rule {
    unsigned tools;
    const char *text;
} rules[] = {
    {CODE,
     "You answer questions by running code, with @.\n\n"
     "How to work:\n"
     "- Whenever an answer takes calculation, counting, sorting, parsing or other work on data, "
     "write code and run it. Do not work it out in your head, and present no result that no run "
     "has shown.\n"
     "- A run is answered by JSON with stdout, stderr, exit_code, timed_out and error_type. Read "
     "stdout and exit_code before you say anything: exit_code 0 and error_type null mean that it "
     "worked.\n"
     "- If it did not, read stderr, error and hint, find the cause, mend the code and run it "
     "again. Never answer as if a run had worked that failed.\n"
     "- Print the final answer, with a label: you see only what is printed.\n"
     "- Nobody types anything in. Write the values into the code.\n"},
    {PYTHON,
     "- Send one complete script in each call of @, with its imports and data: nothing is left "
     "of the calls before.\n"
     "- In @ start no processes and open no connections: code with os, subprocess, socket, eval "
     "or exec is refused before anything of it runs. For files there are open and pathlib.\n"},
    {SESSION,
     "- What runs in @ stays for the whole conversation: variables, functions and files of "
     "earlier calls are there. Send what belongs together in one call. If a result says "
     "state_lost, run again what you need.\n"},
    {INTERPRETER,
     "- In @ each language has variables of its own; files are shared between them.\n"},
    {PYTHON | INTERPRETER,
     "- In Python use the standard library. Other packages may be missing, and none can be "
     "installed.\n"},
    {CODE, "- There is no network. Use no files but those below /tmp and the home directory.\n"
           "- Time, memory and output have limits: print what matters, not everything.\n"},
    {FILES, "- @: text files of the conversation, by paths relative to the home directory.\n"},
    {CODE, "\nWhat to do by error_type:\n"},
    {PYTHON,
     "- validation_error: the code was refused and nothing ran. Write it without the import or "
     "call that stderr names.\n"},
    {CODE,
     "- syntax_error: mend the line that is named, and send the whole code again.\n"
     "- import_error: the module is not there. Do it without, with what is.\n"
     "- timeout: the code was stopped. Take a faster way or less data, or do it in parts.\n"
     "- resource_limit: it took too much memory, disk, output or too many processes. Hold less "
     "at once, or print less.\n"
     "- runtime_error: read the exception and its line, mend the cause, run it again.\n"
     "After three attempts that fail in the same way, take another approach. If there is none, "
     "say that it failed, and why.\n\n"
     "If the user asks for code rather than for a result, show it in a Markdown block that names "
     "its language, and offer to run it.\n"},
};

static unsigned tools_of(const struct tool_set *set)
{
    unsigned tools = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(tool_names); i++)
        tools |= tool_set_find(set, tool_names[i]) ? 1u << i : 0;
    return tools;
}

/* "python_executor, shell". */
static void append_names(struct buf *out, unsigned tools)
{
    const char *comma = "";

    for (size_t i = 0; i < ARRAY_LENGTH(tool_names); i++) {
        if (tools & 1u << i) {
            buf_append_text(out, comma);
            buf_append_text(out, tool_names[i]);
            comma = ", ";
        }
    }
}

static void append_rule(struct buf *out, const char *text, unsigned tools)
{
    for (; *text; text++) {
        if (*text == '@')
            append_names(out, tools);
        else
            buf_append(out, text, 1);
    }
}

int prompt_append(struct buf *out, const struct tool_set *set, const json_t *schema,
                  struct hutch_error *err)
{
    unsigned tools = tools_of(set);

    if (!(tools & CODE))
        buf_append_text(out, "You answer questions.\n");
    for (size_t i = 0; i < ARRAY_LENGTH(rules); i++) {
        if (tools & rules[i].tools)
            append_rule(out, rules[i].text, tools & rules[i].tools);
    }
    if (set->count > 0)
        buf_append_text(out, "Call a tool only with arguments that follow its description. If a "
                             "call is answered by an error, read it and mend the call.\n");
    buf_append_text(out, "Answer briefly, in the language of the question. Where a result can be "
                         "understood in more than one way, say which one you took.\n");
    if (schema) {
        buf_append_text(out, "Your final answer has to be one JSON value and nothing else, no "
                             "Markdown and no text around it. It follows this JSON Schema:\n");
        json_append_value(out, schema);
        buf_append_text(out, "\n");
    }
    return buf_check(out, err);
}
