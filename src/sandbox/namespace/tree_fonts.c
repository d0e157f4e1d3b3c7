/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See tree_fonts.h. matplotlib.font_manager makes a list of all of the host's fonts when it is
 * imported, which may be thousands: its ways to find them are closed while it is, and then
 * lead to the fonts of the tree.
 */
#include "tree_fonts.h"

#include "cjk_font.h"
#include "tree_ask.h"

#include <string.h>

#define NAME_PREFIX "fontlist-"

/* Arguments: folders and files. Prints the list's name, NUL, and the list. */
static const char script[] =
    "import importlib.util, os, pathlib, sys, tempfile\n"
    "if importlib.util.find_spec('matplotlib') is None: sys.exit(99)\n"
    "walk, os.environ['PATH'] = os.walk, '/nonexistent'\n"
    "with tempfile.TemporaryDirectory() as folder:\n"
    "    os.environ.update(HOME=folder, MPLCONFIGDIR=folder, MPLBACKEND='agg')\n"
    "    os.walk = lambda *a, **k: iter(())\n"
    "    from matplotlib import font_manager as fonts\n"
    "    os.walk, find = walk, fonts.findSystemFonts\n"
    "    def find_in_tree(paths=None, fontext='ttf'):\n"
    "        if paths is not None: return find(paths, fontext)\n"
    "        if fontext != 'ttf': return []\n"
    "        found = find([a for a in sys.argv[1:] if os.path.isdir(a)], fontext)\n"
    "        return sorted(found) + [a for a in sys.argv[1:] if os.path.isfile(a)]\n"
    "    fonts.findSystemFonts = find_in_tree\n"
    "    path = pathlib.Path(folder, 'list')\n"
    "    fonts.json_dump(fonts.FontManager(), str(path))\n"
    "    content = path.read_bytes()\n"
    "name = '" NAME_PREFIX "v%s.json' % (fonts.FontManager.__version__,)\n"
    "sys.stdout.buffer.write(name.encode() + b'\\0' + content)\n";

void font_list_done(struct font_list *list)
{
    buf_done(&list->content);
    list->name[0] = '\0';
}

static int parse(const struct buf *output, struct font_list *list, struct hutch_error *err)
{
    size_t at = 0;
    const char *name = "";

    if (!ask_next_fact(output, &at, &name) || strlen(name) >= sizeof(list->name) ||
        strncmp(name, NAME_PREFIX, strlen(NAME_PREFIX)) != 0 || strchr(name, '/') ||
        output->length - at > FONT_LIST_MAX)
        return 0;
    buf_append(&list->content, output->data + at, output->length - at);
    if (buf_check(&list->content, err) < 0)
        return err->code;
    memcpy(list->name, name, strlen(name) + 1);
    return 0;
}

int font_list_make(const char *interpreter, uint64_t deadline_ns, struct font_list *ret_list,
                   struct hutch_error *err)
{
    static const char *const arguments[] = {"-IBc",         script,    TREE_FONTS_DEJAVU,
                                            TREE_FONTS_LYX, CJK_FONTS, NULL};
    const struct question question = {interpreter, arguments, "matplotlib", -1, deadline_ns};
    auto_buf struct buf output = BUF_MAX(ASK_OUTPUT_MAX);
    struct hutch_error why;

    *ret_list = FONT_LIST_NONE;
    if (ask_interpreter(&question, &output, &why) < 0) {
        if (why.code != HUTCH_ERR_NO_MEMORY)
            return 0;
        *err = why;
        return err->code;
    }
    return parse(&output, ret_list, err);
}
