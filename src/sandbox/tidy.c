/* SPDX-License-Identifier: Apache-2.0 */
/* See tidy.h. One step does all of it once; steps repeat until one changes nothing. */
#include "tidy.h"

#include "base/attrs.h"
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define STEPS_MAX 8
#define FENCE_MARKS 3   /* the fewest that make one */
#define FENCE_INDENT 3  /* the most before it */
#define FALSE_STARTS 32 /* texts without an end that are looked for before none is any more */
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

struct text {
    const char *data;
    size_t length;
};

static struct text text_of(const struct buf *buf)
{
    return (struct text){buf_text(buf), buf->length};
}

/* ---- lines ---- */

struct line {
    size_t start, end; /* without its end */
    size_t next;       /* where the next one starts */
};

static struct line line_at(struct text text, size_t at)
{
    const char *newline = memchr(text.data + at, '\n', text.length - at);
    size_t end = newline ? (size_t)(newline - text.data) : text.length;

    return (struct line){at, end, newline ? end + 1 : end};
}

static size_t count_of(struct text text, size_t at, size_t end, char mark)
{
    size_t count = 0;

    while (at + count < end && text.data[at + count] == mark)
        count++;
    return count;
}

static size_t skip_blanks(struct text text, size_t at, size_t end)
{
    while (at < end && (text.data[at] == ' ' || text.data[at] == '\t'))
        at++;
    return at;
}

/* Appends a text without byte order marks in front and without CR at line ends. */
static void append_plain(struct buf *out, struct text text)
{
    size_t at = 0;

    while (text.length - at >= strlen(BYTE_ORDER_MARK) &&
           memcmp(text.data + at, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0)
        at += strlen(BYTE_ORDER_MARK);
    while (at < text.length) {
        struct line line = line_at(text, at);
        size_t end = line.end;
        while (end > line.start && text.data[end - 1] == '\r')
            end--;
        buf_append(out, text.data + line.start, end - line.start);
        buf_append(out, "\n", line.next - line.end);
        at = line.next;
    }
}

/* The blanks that every line begins with that has more than blanks. */
static struct text margin_of(struct text text)
{
    struct text margin = {NULL, 0};

    for (size_t at = 0; at < text.length;) {
        struct line line = line_at(text, at);
        size_t indent = skip_blanks(text, line.start, line.end) - line.start;
        at = line.next;
        if (line.start + indent == line.end)
            continue;
        if (!margin.data)
            margin = (struct text){text.data + line.start, indent};
        size_t same = 0;
        while (same < margin.length && same < indent &&
               margin.data[same] == text.data[line.start + same])
            same++;
        margin.length = same;
    }
    return margin;
}

/* textwrap.dedent: lines of blanks become empty where anything is taken away. */
static void append_dedented(struct buf *out, struct text text)
{
    size_t margin = margin_of(text).length;

    for (size_t at = 0; at < text.length;) {
        struct line line = line_at(text, at);
        size_t start = line.start + margin;
        if (margin > 0 && skip_blanks(text, line.start, line.end) == line.end)
            start = line.end;
        buf_append(out, text.data + start, line.next - start);
        at = line.next;
    }
}

/* ---- what is no Markdown ---- */

enum syntax { SYNTAX_OTHER, SYNTAX_PYTHON, SYNTAX_SHELL };

struct scan {
    struct text text;
    enum syntax syntax;
    size_t at;
    size_t item;         /* column of the text of the list item that we are in; 0 outside */
    size_t false_starts; /* of texts and here-documents that do not end */
};

static bool is_triple(struct text text, size_t at, char quote)
{
    return text.length - at >= 3 && text.data[at] == quote && text.data[at + 1] == quote &&
           text.data[at + 2] == quote;
}

/* Behind the quotes that end a triple-quoted text; 0 when there are none. */
static size_t triple_end(struct text text, size_t at, char quote)
{
    while (at < text.length) {
        if (text.data[at] == '\\')
            at += 2;
        else if (is_triple(text, at, quote))
            return at + 3;
        else
            at++;
    }
    return 0;
}

/* Behind the Python string at an offset, or at the end of its line. */
static size_t skip_string(struct scan *scan, size_t at)
{
    struct text text = scan->text;
    char quote = text.data[at];

    if (is_triple(text, at, quote)) {
        size_t end = scan->false_starts < FALSE_STARTS ? triple_end(text, at + 3, quote) : 0;
        scan->false_starts += end == 0;
        return end > 0 ? end : at + 3;
    }
    size_t end = line_at(text, at).end;
    for (at++; at < end && text.data[at] != quote; at++) {
        if (text.data[at] == '\\')
            at++;
    }
    return at < end ? at + 1 : end;
}

/* The start of the first line that does not begin inside of a Python string. */
static size_t skip_python(struct scan *scan, struct line line)
{
    size_t at = line.start;

    while (at < scan->text.length) {
        switch (scan->text.data[at]) {
        case '\n':
            return at + 1;
        case '#':
            return line_at(scan->text, at).next;
        case '"':
        case '\'':
            at = skip_string(scan, at);
            break;
        default:
            at++;
        }
    }
    return at;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The start of the line behind a here-document whose lines start at body and
 * whose operator has been read up to an offset; body where it is none. */
static size_t skip_document(struct scan *scan, size_t at, size_t end, size_t body)
{
    struct text text = scan->text;
    bool tabs = at < end && text.data[at] == '-';
    size_t word = skip_blanks(text, at + tabs, end);

    word += count_of(text, word, end, '\'') + count_of(text, word, end, '"') +
            count_of(text, word, end, '\\');
    size_t length = 0;
    while (word + length < end && is_word(text.data[word + length]))
        length++;
    if (length == 0 || scan->false_starts >= FALSE_STARTS)
        return body;
    for (at = body; at < text.length;) {
        struct line line = line_at(text, at);
        size_t start = line.start + (tabs ? count_of(text, line.start, line.end, '\t') : 0);
        if (line.end - start == length && memcmp(text.data + start, text.data + word, length) == 0)
            return line.next;
        at = line.next;
    }
    scan->false_starts++;
    return body;
}

/* The start of the first line that does not begin inside of a here-document. */
static size_t skip_shell(struct scan *scan, struct line line)
{
    size_t next = line.next;

    for (size_t at = line.start; at < line.end;) {
        size_t count = count_of(scan->text, at, line.end, '<');
        at += count > 0 ? count : 1;
        if (count == 2) /* three are a here-string */
            next = skip_document(scan, at, line.end, next);
    }
    return next;
}

static size_t skip_line(struct scan *scan, struct line line)
{
    switch (scan->syntax) {
    case SYNTAX_PYTHON:
        return skip_python(scan, line);
    case SYNTAX_SHELL:
        return skip_shell(scan, line);
    case SYNTAX_OTHER:
        break;
    }
    return line.next;
}

/* ---- fences ---- */

struct fence {
    size_t body, end; /* the lines inside */
    size_t next;      /* the line behind the closing fence */
    size_t indent;
    char mark;
    size_t marks;
    struct text info;
};

/* The bytes of a list item's marker ("-", "12.") and the blanks behind it; 0
 * where there is none. */
static size_t marker_length(struct text text, size_t at, size_t end)
{
    size_t digits = 0;

    while (at + digits < end && text.data[at + digits] >= '0' && text.data[at + digits] <= '9')
        digits++;
    const char *marks = digits > 0 ? ".)" : "-+*";
    if (at + digits >= end || !strchr(marks, text.data[at + digits]))
        return 0;
    size_t blanks = count_of(text, at + digits + 1, end, ' ');
    return blanks > 0 ? digits + 1 + (blanks > 4 ? 1 : blanks) : 0;
}

/* Keeps track of the list item that the next line may belong to. */
static void enter_item(struct scan *scan, struct line line)
{
    size_t indent = count_of(scan->text, line.start, line.end, ' ');

    if (line.start + indent == line.end)
        return;
    size_t marker = marker_length(scan->text, line.start + indent, line.end);
    if (marker > 0 && indent <= scan->item + FENCE_INDENT)
        scan->item = indent + marker;
    else if (indent < scan->item)
        scan->item = indent;
}

/* How many of the same mark a line has behind its indentation; 0 when they make
 * no fence. */
static size_t fence_marks(const struct scan *scan, struct line line, size_t *ret_at)
{
    size_t at = line.start + count_of(scan->text, line.start, line.end, ' ');

    *ret_at = at;
    if (at == line.end || at - line.start > scan->item + FENCE_INDENT)
        return 0;
    char mark = scan->text.data[at];
    size_t count = count_of(scan->text, at, line.end, mark);
    return (mark == '`' || mark == '~') && count >= FENCE_MARKS ? count : 0;
}

static bool is_opening(const struct scan *scan, struct line line, struct fence *ret_fence)
{
    size_t at;
    size_t marks = fence_marks(scan, line, &at);
    size_t info = skip_blanks(scan->text, at + marks, line.end);
    const char *data = scan->text.data;

    if (marks == 0 || (data[at] == '`' && memchr(data + info, '`', line.end - info)))
        return false;
    *ret_fence = (struct fence){
        .body = line.next,
        .indent = at - line.start,
        .mark = data[at],
        .marks = marks,
        .info = {data + info, line.end - info},
    };
    return true;
}

static bool is_closing(const struct scan *scan, struct line line, const struct fence *fence)
{
    size_t at;
    size_t marks = fence_marks(scan, line, &at);

    return marks >= fence->marks && scan->text.data[at] == fence->mark &&
           skip_blanks(scan->text, at + marks, line.end) == line.end;
}

/* Finds where an opened fence ends; false for one that is neither closed nor
 * followed by anything, a stray line of marks. */
static bool close_fence(const struct scan *scan, struct fence *fence)
{
    bool blank = true;

    for (size_t at = fence->body; at < scan->text.length;) {
        struct line line = line_at(scan->text, at);
        if (is_closing(scan, line, fence)) {
            fence->end = line.start;
            fence->next = line.next;
            return true;
        }
        blank = blank && skip_blanks(scan->text, line.start, line.end) == line.end;
        at = line.next;
    }
    fence->end = fence->next = scan->text.length;
    return !blank;
}

/* The next fence behind scan->at; false when there is none. */
static bool next_fence(struct scan *scan, struct fence *ret_fence)
{
    while (scan->at < scan->text.length) {
        struct line line = line_at(scan->text, scan->at);
        if (is_opening(scan, line, ret_fence) && close_fence(scan, ret_fence)) {
            scan->at = ret_fence->next;
            return true;
        }
        enter_item(scan, line);
        scan->at = skip_line(scan, line);
    }
    return false;
}

/* ---- which of them ---- */

enum fit { FIT_NONE, FIT_FOREIGN, FIT_UNTAGGED, FIT_TAGGED };

static bool is_tag(const char *language, struct text tag)
{
    static const struct {
        const char *language, *tag;
    } tags[] = {
        {"python", "python"},
        {"python", "py"},
        {"python", "python3"},
        {"python", "py3"},
        {"python", "ipython"},
        {"python", "ipython3"},
        {"shell", "shell"},
        {"shell", "sh"},
        {"shell", "bash"},
        {"shell", "zsh"},
        {"javascript", "js"},
        {"javascript", "mjs"},
        {"javascript", "javascript"},
        {"javascript", "ts"},
        {"javascript", "typescript"},
    };

    for (size_t i = 0; i < ARRAY_LENGTH(tags); i++) {
        if (strcmp(language, tags[i].language) == 0 && strlen(tags[i].tag) == tag.length &&
            strncasecmp(tags[i].tag, tag.data, tag.length) == 0)
            return true;
    }
    return false;
}

/* The first word of the info string is the tag; within braces any word may be. */
static enum fit fit_of(struct text info, const char *language)
{
    bool braces = info.length > 0 && info.data[0] == '{';
    enum fit fit = FIT_UNTAGGED;

    for (size_t at = 0; at < info.length;) {
        size_t start = at;
        while (at < info.length && !strchr(" \t{}.,:;=", info.data[at]))
            at++;
        if (at == start) {
            at++;
            continue;
        }
        if (is_tag(language, (struct text){info.data + start, at - start}))
            return FIT_TAGGED;
        fit = FIT_FOREIGN;
        if (!braces)
            break;
    }
    return fit;
}

static struct scan scan_new(struct text text, const char *language)
{
    enum syntax syntax = SYNTAX_OTHER;

    if (strcmp(language, "python") == 0)
        syntax = SYNTAX_PYTHON;
    else if (strcmp(language, "shell") == 0)
        syntax = SYNTAX_SHELL;
    return (struct scan){.text = text, .syntax = syntax};
}

static enum fit best_fit(struct text text, const char *language)
{
    struct scan scan = scan_new(text, language);
    struct fence fence;
    enum fit best = FIT_NONE;

    while (best < FIT_TAGGED && next_fence(&scan, &fence)) {
        enum fit fit = fit_of(fence.info, language);
        best = fit > best ? fit : best;
    }
    return best;
}

static void append_body(struct buf *out, struct text text, const struct fence *fence)
{
    for (size_t at = fence->body; at < fence->end;) {
        struct line line = line_at(text, at);
        size_t indent = count_of(text, line.start, line.end, ' ');
        size_t start = line.start + (indent < fence->indent ? indent : fence->indent);
        buf_append(out, text.data + start, line.next - start);
        at = line.next;
    }
}

/* Appends the program that the fences hold; false where there are none. */
static bool append_fenced(struct buf *out, struct text text, const char *language)
{
    struct scan scan = scan_new(text, language);
    enum fit best = best_fit(text, language);
    size_t last_end = 0;
    struct fence fence;

    while (next_fence(&scan, &fence)) {
        if (fit_of(fence.info, language) != best)
            continue;
        for (size_t at = last_end; last_end > 0 && at < fence.body; at = line_at(text, at).next)
            buf_append(out, "\n", 1);
        append_body(out, text, &fence);
        last_end = fence.end;
        if (best != FIT_TAGGED)
            break;
    }
    return best != FIT_NONE;
}

/* ---- the whole ---- */

/* The three texts that a step works with. */
struct bench {
    struct buf from, to, spare;
};

static void bench_done(struct bench *bench)
{
    buf_done(&bench->from);
    buf_done(&bench->to);
    buf_done(&bench->spare);
}

static void swap(struct buf *one, struct buf *other)
{
    struct buf kept = *one;

    *one = *other;
    *other = kept;
}

/* Makes bench->to from a text. */
static void step(struct bench *bench, struct text text, const char *language)
{
    buf_clear(&bench->spare);
    append_plain(&bench->spare, text);
    buf_clear(&bench->to);
    append_dedented(&bench->to, text_of(&bench->spare));
    buf_clear(&bench->spare);
    if (append_fenced(&bench->spare, text_of(&bench->to), language))
        swap(&bench->to, &bench->spare);
    if (bench->to.length == 0)
        buf_append(&bench->to, "\n", 1);
}

void tidy_code(const char *code, size_t length, const char *language, struct buf *out)
{
    struct text text = {code, length};
    __attribute__((cleanup(bench_done))) struct bench bench = {BUF_MAX(length), BUF_MAX(length),
                                                               BUF_MAX(length)};

    for (size_t i = 0; i <= STEPS_MAX; i++) {
        step(&bench, text, language);
        if (bench.to.failure != BUF_OK || bench.spare.failure != BUF_OK) {
            out->failure = BUF_NO_MEMORY;
            return;
        }
        if (bench.to.length == text.length && memcmp(bench.to.data, text.data, text.length) == 0) {
            buf_append(out, text.data, text.length);
            return;
        }
        swap(&bench.from, &bench.to);
        text = text_of(&bench.from);
    }
    buf_append(out, code, length);
}
