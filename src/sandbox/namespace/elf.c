/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See elf.h. Everything is fetched with pread into buffers of known size;
 * mapping the file would turn a file that shrinks meanwhile into a SIGBUS.
 */
#include "elf.h"

#include "base/fd.h"

#include <elf.h>
#include <string.h>

#if defined(__x86_64__)
#define ELF_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define ELF_MACHINE EM_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define ELF_MACHINE EM_RISCV
#else
#error "the ELF machine of this processor is not known here"
#endif

/* The file while it is read. */
struct elf_reader {
    int fd;
    Elf64_Ehdr header;
    Elf64_Phdr segments[ELF_SEGMENTS_MAX];
    uint64_t strings;      /* offset of the dynamic string table */
    uint64_t strings_size; /* its bytes */
};

void elf_done(struct elf_object *object)
{
    int saved = errno;
    free(object->loader);
    free(object->rpath);
    free(object->runpath);
    string_list_done(&object->needed);
    *object = (struct elf_object){0};
    errno = saved;
}

static int malformed(struct hutch_error *err, const char *what)
{
    return err_set(err, HUTCH_ERR_RUNTIME, "malformed ELF file: %s", what);
}

/* How many of length bytes the file has at offset; negative on error. */
static ssize_t fetch(int fd, void *data, size_t length, uint64_t offset, struct hutch_error *err)
{
    if (offset > INT64_MAX - length)
        return 0;
    ssize_t count = fd_read_at(fd, data, length, offset);
    return count < 0 ? err_errno(err, HUTCH_ERR_SYSTEM, errno, "read an ELF file") : count;
}

static int fetch_all(int fd, void *data, size_t length, uint64_t offset, struct hutch_error *err)
{
    ssize_t count = fetch(fd, data, length, offset, err);
    if (count < 0)
        return (int)count;
    return (size_t)count == length ? 0 : malformed(err, "it ends too early");
}

/* 1 for a file of this machine, 0 for any other. */
static int read_header(struct elf_reader *reader, struct hutch_error *err)
{
    const Elf64_Ehdr *header = &reader->header;
    ssize_t count = fetch(reader->fd, &reader->header, sizeof(*header), 0, err);
    if (count < 0)
        return (int)count;
    if ((size_t)count < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_machine != ELF_MACHINE || (header->e_type != ET_EXEC && header->e_type != ET_DYN))
        return 0;
    return 1;
}

static int read_segments(struct elf_reader *reader, struct hutch_error *err)
{
    if (reader->header.e_phnum == 0)
        return 0;
    if (reader->header.e_phnum > ELF_SEGMENTS_MAX ||
        reader->header.e_phentsize != sizeof(reader->segments[0]))
        return malformed(err, "bad program headers");
    return fetch_all(reader->fd, reader->segments,
                     reader->header.e_phnum * sizeof(reader->segments[0]), reader->header.e_phoff,
                     err);
}

static const Elf64_Phdr *find_segment(const struct elf_reader *reader, uint32_t type)
{
    for (size_t i = 0; i < reader->header.e_phnum; i++) {
        if (reader->segments[i].p_type == type)
            return &reader->segments[i];
    }
    return NULL;
}

/* Where in the file the byte lies that will be at address in memory. */
static int find_offset(const struct elf_reader *reader, uint64_t address, uint64_t *ret_offset)
{
    for (size_t i = 0; i < reader->header.e_phnum; i++) {
        const Elf64_Phdr *segment = &reader->segments[i];
        if (segment->p_type != PT_LOAD || address < segment->p_vaddr ||
            address - segment->p_vaddr >= segment->p_filesz)
            continue;
        return __builtin_add_overflow(segment->p_offset, address - segment->p_vaddr, ret_offset)
                   ? -1
                   : 0;
    }
    return -1;
}

/* The string of at most room bytes at offset, the NUL included. */
static int read_string(int fd, uint64_t offset, uint64_t room, char **ret_text,
                       struct hutch_error *err)
{
    char text[ELF_STRING_MAX];
    size_t length = room < sizeof(text) ? (size_t)room : sizeof(text);
    ssize_t count = fetch(fd, text, length, offset, err);
    if (count < 0)
        return (int)count;
    if (!memchr(text, '\0', (size_t)count))
        return malformed(err, "a string has no end");
    char *copy = strdup(text);
    if (!copy)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    free(*ret_text);
    *ret_text = copy;
    return 0;
}

static int read_dynamic_string(const struct elf_reader *reader, uint64_t index, char **ret_text,
                               struct hutch_error *err)
{
    uint64_t offset;
    if (index >= reader->strings_size || __builtin_add_overflow(reader->strings, index, &offset))
        return malformed(err, "a string lies outside its table");
    return read_string(reader->fd, offset, reader->strings_size - index, ret_text, err);
}

/* Fetches the dynamic section into entries, up to its DT_NULL. */
static int read_entries(const struct elf_reader *reader, Elf64_Dyn **ret_entries, size_t *ret_count,
                        struct hutch_error *err)
{
    const Elf64_Phdr *segment = find_segment(reader, PT_DYNAMIC);
    if (!segment)
        return 0;
    size_t count = segment->p_filesz / sizeof(Elf64_Dyn);
    if (segment->p_filesz > ELF_DYNAMIC_MAX * sizeof(Elf64_Dyn) || count == 0)
        return malformed(err, "bad size of the dynamic section");
    auto_free Elf64_Dyn *entries = malloc(count * sizeof(*entries));
    if (!entries)
        return err_set(err, HUTCH_ERR_NO_MEMORY, "out of memory");
    int error = fetch_all(reader->fd, entries, count * sizeof(*entries), segment->p_offset, err);
    if (error < 0)
        return error;

    size_t end = 0;
    while (end < count && entries[end].d_tag != DT_NULL)
        end++;
    *ret_entries = TAKE_POINTER(entries);
    *ret_count = end;
    return 0;
}

static int find_strings(struct elf_reader *reader, const Elf64_Dyn *entries, size_t count,
                        struct hutch_error *err)
{
    uint64_t address = 0;

    for (size_t i = 0; i < count; i++) {
        if (entries[i].d_tag == DT_STRTAB)
            address = entries[i].d_un.d_ptr;
        else if (entries[i].d_tag == DT_STRSZ)
            reader->strings_size = entries[i].d_un.d_val;
    }
    if (find_offset(reader, address, &reader->strings) < 0)
        return malformed(err, "no string table");
    return 0;
}

static int read_dynamic(struct elf_reader *reader, struct elf_object *object,
                        struct hutch_error *err)
{
    auto_free Elf64_Dyn *entries = NULL;
    size_t count = 0;
    int error = read_entries(reader, &entries, &count, err);
    if (error < 0 || count == 0)
        return error;
    error = find_strings(reader, entries, count, err);

    for (size_t i = 0; i < count && error >= 0; i++) {
        auto_free char *name = NULL;
        uint64_t index = entries[i].d_un.d_val;
        if (entries[i].d_tag == DT_RPATH)
            error = read_dynamic_string(reader, index, &object->rpath, err);
        else if (entries[i].d_tag == DT_RUNPATH)
            error = read_dynamic_string(reader, index, &object->runpath, err);
        else if (entries[i].d_tag == DT_NEEDED)
            error = read_dynamic_string(reader, index, &name, err);
        if (name)
            error = string_list_add(&object->needed, name, err);
    }
    return error;
}

int elf_read(int fd, struct elf_object *ret_object, struct hutch_error *err)
{
    auto_elf struct elf_object object = {0};
    struct elf_reader reader = {.fd = fd};

    int found = read_header(&reader, err);
    if (found <= 0)
        return found;
    int error = read_segments(&reader, err);
    if (error < 0)
        return error;
    const Elf64_Phdr *loader = find_segment(&reader, PT_INTERP);
    if (loader) {
        error = read_string(fd, loader->p_offset, loader->p_filesz, &object.loader, err);
        if (error < 0)
            return error;
    }
    error = read_dynamic(&reader, &object, err);
    if (error < 0)
        return error;
    *ret_object = object;
    object = (struct elf_object){0};
    return 1;
}
