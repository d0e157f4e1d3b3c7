/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code out of Markdown: a table of texts and what must come of them, in the terms
 * of CommonMark's section on fenced code blocks, of textwrap.dedent, and of how
 * models write. And what holds for every text: the result is no longer, not
 * empty, and tidy.
 */
#include "sandbox/tidy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct row {
    const char *what, *text, *tidied; /* tidied NULL: as it was */
    const char *language;             /* NULL: python */
};

static const struct row rows[] = {
    /* fences */
    {"no fence", "print(1)\nprint(2)\n", NULL, NULL},
    {"no line end", "print(1)", NULL, NULL},
    {"backticks", "```\nx = 1\n```\n", "x = 1\n", NULL},
    {"tildes", "~~~\nx = 1\n~~~\n", "x = 1\n", NULL},
    {"two are too few", "``\nx = 1\n``\n", NULL, NULL},
    {"the other mark does not close", "```\na\n~~~\n```\n", "a\n~~~\n", NULL},
    {"the other mark does not close either", "~~~\na\n```\n~~~\n", "a\n```\n", NULL},
    {"a shorter one does not close", "````\na\n```\n`````\nb", "a\n```\n", NULL},
    {"a longer one does", "~~~~\na\n~~~\n~~~~~~~\nb", "a\n~~~\n", NULL},
    {"the end of the text closes", "```\na\n\nb", "a\n\nb", NULL},
    {"opened, and nothing follows", "text\n```python\n \n", NULL, NULL},
    {"nothing in it", "```\n```\n", "\n", NULL},
    {"an empty line in it", "```\n\n\n```\n", "\n\n", NULL},
    {"blanks behind the closing one", "```\na\n``` \t \nb\n", "a\n", NULL},
    {"a closing one has no info string", "```\na\n``` b\n```\n", "a\n``` b\n", NULL},
    {"up to three columns before it", "   ```\n   a\n  ```\n", "a\n", NULL},
    {"four make no fence", "text\n    ```\n    a\n    ```\n", NULL, NULL},
    {"nor do they close one", "```\na\n    ```\n", "a\n    ```\n", NULL},
    {"nor does a tab", "text\n\t```\n\ta\n\t```\n", NULL, NULL},
    {"its own indentation is taken from the lines", "  ```\na\n  b\n    c\n ```\n", "a\nb\n  c\n",
     NULL},
    {"it needs no empty line before or behind", "foo\n```\nbar\n```\nbaz\n", "bar\n", NULL},
    {"backticks in its info string", "``` a`b\nx\n", NULL, NULL},
    {"backticks in that of tildes", "~~~ a`b ~~~\nx\n~~~\n", "x\n", NULL},
    {"code between backticks is none", "```print(1)```\n", NULL, NULL},
    {"a fence in a fence", "````markdown\nSee:\n```python\nx = 1\n```\n````\n", "x = 1\n", NULL},

    /* tags */
    {"a sentence and python", "Here is it:\n\n```python\nprint(1)\n```\nBye.\n", "print(1)\n",
     NULL},
    {"py in tildes", "~~~py\nprint(1)\n~~~\n", "print(1)\n", NULL},
    {"attributes", "```{.python .number-lines}\nprint(1)\n```\n", "print(1)\n", NULL},
    {"an id first", "```{#main .python}\nprint(1)\n```\n```\n2\n```\n", "print(1)\n", NULL},
    {"blanks before it", "```   Python3  \nprint(1)\n```\n```\n2\n```\n", "print(1)\n", NULL},
    {"more words", "```python title=\"x.py\"\nprint(1)\n```\n", "print(1)\n", NULL},
    {"a file name behind it", "```python:x.py\nprint(1)\n```\n```\n2\n```\n", "print(1)\n", NULL},
    {"an unknown tag", "```tool_code\nprint(1)\n```\n", "print(1)\n", NULL},
    {"another language before", "```bash\npip install x\n```\n```python\nimport x\n```\n",
     "import x\n", NULL},
    {"output behind", "```python\nprint(1)\n```\nprints\n```\n1\n```\n", "print(1)\n", NULL},
    {"without a tag before a foreign one", "```json\n{}\n```\n```\n1\n```\n```\n2\n```\n", "1\n",
     NULL},
    {"foreign ones only", "```json\n{}\n```\n```toml\n[a]\n```\n", "{}\n", NULL},
    {"a word that begins alike", "```pythonic\n1\n```\n```\n2\n```\n", "2\n", NULL},
    {"the shell's", "```python\n1\n```\n```Bash\nls\n```\n", "ls\n", "shell"},
    {"javascript's", "```python\n1\n```\n```js\n2\n```\n", "2\n", "javascript"},
    {"pieces keep their distance",
     "First\n```py\na = 1\n```\nthen\n\n```sh\nls\n```\n```python\nb = 2\n```\nend\n",
     "a = 1\n\n\n\n\n\n\n\nb = 2\n", NULL},

    /* lists */
    {"in a list", "1. Do:\n\n   ```python\n   x = 1\n   ```\n", "x = 1\n", NULL},
    {"deep in a list", "- a\n  10. Do:\n\n        ```python\n        x = 1\n        ```\n",
     "x = 1\n", NULL},
    {"behind a list", "- a\n\ntext\n\n    ```\n    x\n    ```\n", NULL, NULL},

    /* what a program writes */
    {"Markdown in a text", "x = \"\"\"\n```sh\nls\n```\n\"\"\"\n", NULL, NULL},
    {"in single quotes", "x = '''a\n~~~\nb\n~~~\n'''\n", NULL, NULL},
    {"behind a string with quotes in it", "y = \"'''\"\nx = '''\n```\n1\n```\n'''\n", NULL, NULL},
    {"behind an escaped quote", "y = '\\'\"\"\"'\nx = '''\n```\n1\n```\n'''\n", NULL, NULL},
    {"behind escaped quotes in it", "x = \"\"\"\\\"\"\"\n```\n1\n```\n\"\"\"\n", NULL, NULL},
    {"behind a comment", "# '''\nx = '''\n```\n1\n```\n'''\n", NULL, NULL},
    {"two texts", "x = '''a'''; y = '''\n```\n1\n```\n'''\n", NULL, NULL},
    {"quotes in prose", "It's \"\"\" that\n```\nx = 1\n```\n", "x = 1\n", NULL},
    {"a text in the fence", "It's:\n```\nx = '''\n~~~\n'''\n```\n", "x = '''\n~~~\n'''\n", NULL},
    {"a here-document", "cat > a.md <<EOF\n```\nls\n```\nEOF\n", NULL, "shell"},
    {"with tabs and quotes", "cat <<- 'E1'\n```\nls\n```\n\t\tE1\necho\n", NULL, "shell"},
    {"two of them", "a <<A - <<B\nA\n```\nls\n```\nB\n", NULL, "shell"},
    {"a here-string is none", "x <<<A\n```\nls\n```\nA\n", "ls\n", "shell"},
    {"it has to end", "echo $((1 << 2))\n```\nls\n```\n", "ls\n", "shell"},
    {"python knows none", "1 <<A\n```\nx\n```\nA\n", "x\n", NULL},
    {"nor others quotes", "'''\n```\nx\n```\n'''\n", "x\n", "javascript"},

    /* indentation */
    {"four spaces", "    if x:\n        y\n\n    z\n", "if x:\n    y\n\nz\n", NULL},
    {"tabs", "\tif x:\n\t\ty\n", "if x:\n\ty\n", NULL},
    {"tabs and spaces have nothing in common", "\tx\n        y\n", NULL, NULL},
    {"what they have in common", "  \tx\n  y\n", "\tx\ny\n", NULL},
    {"the first line less", "  x\n    y\n", "x\n  y\n", NULL},
    {"none", "x\n    y\n   \n", NULL, NULL},
    {"lines of blanks do not count", "    x\n  \n\n      \n    y\n", "x\n\n\n\ny\n", NULL},
    {"blanks only", "   \n  ", NULL, NULL},
    {"in a fence", "```\n    x\n      y\n```\n", "x\n  y\n", NULL},
    {"around a fence", "    ```\n    x\n    ```\n", "x\n", NULL},
    {"the last line", "  x\n  y", "x\ny", NULL},

    /* lines */
    {"CRLF", "a\r\n\r\nb\r\n", "a\n\nb\n", NULL},
    {"CRLF in a fence", "Hi\r\n~~~py\r\nx = 1\r\n~~~\r\n", "x = 1\n", NULL},
    {"CRLF of a closing fence at the end", "```\r\na\r\n```\r", "a\n", NULL},
    {"CR within a line stays", "a\rb\n", NULL, NULL},
    {"CRCRLF", "a\r\r\nb", "a\nb", NULL},
    {"indented with CRLF", "    a\r\n\r\n    b\r\n", "a\n\nb\n", NULL},
    {"a byte order mark", "\xef\xbb\xbfx = 1\n", "x = 1\n", NULL},
    {"before a fence", "\xef\xbb\xbf```\nx = 1\n```\n", "x = 1\n", NULL},
    {"elsewhere it stays", "x = '\xef\xbb\xbf'\n", NULL, NULL},
    {"beyond ASCII", "```\nx = 'é漢🐍'\n```\n", "x = 'é漢🐍'\n", NULL},
};

static void tidy(const char *text, size_t length, const char *language, struct buf *out)
{
    struct hutch_error err;

    tidy_code(text, length, language, out);
    assert_int_equal(buf_check(out, &err), 0);
}

static void texts_become_what_the_table_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        const struct row *row = &rows[i];
        const char *expected = row->tidied ? row->tidied : row->text;
        auto_buf struct buf out = BUF_MAX(4096);
        tidy(row->text, strlen(row->text), row->language ? row->language : "python", &out);
        if (strcmp(buf_text(&out), expected) != 0)
            fail_msg("%s: gives '%s', not '%s'", row->what, buf_text(&out), expected);
    }
}

static void holds_for_any(const char *text, size_t length, const char *language)
{
    auto_buf struct buf once = BUF_MAX(1 << 20), twice = BUF_MAX(1 << 20);

    tidy(text, length, language, &once);
    assert_in_range(once.length, 1, length);
    tidy(once.data, once.length, language, &twice);
    if (once.length != twice.length || memcmp(once.data, twice.data, once.length) != 0)
        fail_msg("'%.*s' gives '%s', then '%s'", (int)length, text, once.data, twice.data);
}

/* Texts made of the pieces that matter, in an order that repeats from run to run. */
static void tidy_of_tidy_is_tidy(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "```", "~~~",          "````", "\n",     "\n",   "\n",        "\r\n", "\r",
        " ",   "   ",          "\t",   "    ",   "'''",  "\"\"\"",    "'",    "#",
        "\\",  "\xef\xbb\xbf", "x",    "python", "sh",   "1. ",       "- ",   "<<A",
        "A\n", "{.",           "}",    "`",      "\n\n", "    ```\n",
    };
    static const char *const languages[] = {"python", "shell", "javascript"};
    uint64_t number = 1;

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        for (size_t language = 0; language < ARRAY_LENGTH(languages); language++)
            holds_for_any(rows[i].text, strlen(rows[i].text), languages[language]);
    }
    for (int round = 0; round < 30000; round++) {
        auto_buf struct buf text = BUF_MAX(4096);
        size_t count = 1 + (size_t)round % 40;
        for (size_t i = 0; i < count; i++) {
            number = number * 6364136223846793005u + 1442695040888963407u;
            buf_append_text(&text, pieces[(number >> 33) % ARRAY_LENGTH(pieces)]);
        }
        holds_for_any(text.data, text.length, languages[round % 3]);
    }
}

static void fences_within_fences_have_an_end(void **state)
{
    (void)state;
    auto_buf struct buf text = BUF_MAX(100000), out = BUF_MAX(100000);
    char marks[101];

    memset(marks, '~', sizeof(marks));
    for (int depth = 100; depth >= 3; depth--)
        buf_appendf(&text, "%.*s\n", depth, marks);
    buf_append_text(&text, "x\n");
    tidy(text.data, text.length, "python", &out);
    assert_string_equal(out.data, text.data);
    buf_clear(&out);
    tidy(text.data + text.length - strlen("~~~~~~\n~~~~~\n~~~~\n~~~\nx\n"), 26, "python", &out);
    assert_string_equal(out.data, "x\n");
}

/* Each would take minutes if anything in it were gone through again and again. */
static void hostile_texts_take_no_longer_than_others(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "'",       "\"",  "<<A ", "<<A\n",      "```\n", "~~~a\n```b\n", "\xef\xbb\xbf ",
        "'''\\\n", "1. ", " ",    "\"\"\"\n\\", "\r",    "\n",           "`",
    };
    const size_t length = 1 << 20;
    auto_free char *text = malloc(length);

    assert_non_null(text);
    for (size_t i = 0; i < ARRAY_LENGTH(pieces); i++) {
        for (size_t at = 0; at < length; at++)
            text[at] = pieces[i][at % strlen(pieces[i])];
        holds_for_any(text, length, "python");
        holds_for_any(text, length, "shell");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_become_what_the_table_says),
        cmocka_unit_test(tidy_of_tidy_is_tidy),
        cmocka_unit_test(fences_within_fences_have_an_end),
        cmocka_unit_test(hostile_texts_take_no_longer_than_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
