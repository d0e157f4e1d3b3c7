/* SPDX-License-Identifier: Apache-2.0 */
/* The ELF reader: what it finds, and files that lie. */
#include "sandbox/namespace/elf.h"

#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#if defined(__x86_64__)
#define THIS_MACHINE EM_X86_64
#define OTHER_MACHINE EM_AARCH64
#elif defined(__aarch64__)
#define THIS_MACHINE EM_AARCH64
#define OTHER_MACHINE EM_X86_64
#else
#define THIS_MACHINE EM_RISCV
#define OTHER_MACHINE EM_X86_64
#endif

#define BASE 0x10000u /* address of the first byte in memory */

/* A small library with a loader, both kinds of search path and two needed
 * names, of which the last ends with the file. */
struct image {
    Elf64_Ehdr header;
    Elf64_Phdr load, dynamic, interp;
    Elf64_Dyn entries[8];
    char loader[16];
    char strings[48];
};

#define STRINGS "\0/rp\0$ORIGIN/run\0liba.so.1\0libbb.so.22"
#define AT_RPATH 1
#define AT_RUNPATH 5
#define AT_LIBA 17
#define AT_LIBB 27

static struct image good_image(void)
{
    struct image image = {
        .header =
            {
                .e_type = ET_DYN,
                .e_machine = THIS_MACHINE,
                .e_phoff = offsetof(struct image, load),
                .e_phentsize = sizeof(Elf64_Phdr),
                .e_phnum = 3,
            },
        .load = {.p_type = PT_LOAD, .p_vaddr = BASE, .p_filesz = sizeof(struct image)},
        .dynamic = {.p_type = PT_DYNAMIC,
                    .p_offset = offsetof(struct image, entries),
                    .p_filesz = sizeof(image.entries)},
        .interp = {.p_type = PT_INTERP,
                   .p_offset = offsetof(struct image, loader),
                   .p_filesz = sizeof(image.loader)},
        .entries = {{DT_NEEDED, {AT_LIBA}},
                    {DT_RPATH, {AT_RPATH}},
                    {DT_STRTAB, {BASE + offsetof(struct image, strings)}},
                    {DT_STRSZ, {sizeof(STRINGS)}},
                    {DT_RUNPATH, {AT_RUNPATH}},
                    {DT_NEEDED, {AT_LIBB}},
                    {DT_NULL, {0}}},
        .loader = "/lib/ld.so",
        .strings = STRINGS,
    };
    memcpy(image.header.e_ident, ELFMAG, SELFMAG);
    image.header.e_ident[EI_CLASS] = ELFCLASS64;
    image.header.e_ident[EI_DATA] = ELFDATA2LSB;
    return image;
}

/* Bytes of the image that carry meaning. */
#define IMAGE_BYTES (offsetof(struct image, strings) + sizeof(STRINGS))

static int read_bytes(const void *data, size_t length, struct elf_object *object,
                      struct hutch_error *err)
{
    auto_close int fd = memfd_create("image", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, length), length);
    return elf_read(fd, object, err);
}

static int result_of(const struct image *image)
{
    auto_elf struct elf_object object = {0};
    struct hutch_error err;
    return read_bytes(image, IMAGE_BYTES, &object, &err);
}

static void finds_what_is_there(void **state)
{
    (void)state;
    auto_elf struct elf_object object = {0};
    struct hutch_error err;
    struct image image = good_image();

    assert_int_equal(read_bytes(&image, IMAGE_BYTES, &object, &err), 1);
    assert_string_equal(object.loader, "/lib/ld.so");
    assert_string_equal(object.rpath, "/rp");
    assert_string_equal(object.runpath, "$ORIGIN/run");
    assert_int_equal(object.needed.count, 2);
    assert_string_equal(object.needed.items[0], "liba.so.1");
    assert_string_equal(object.needed.items[1], "libbb.so.22");
}

static void reads_this_program(void **state)
{
    (void)state;
    auto_elf struct elf_object object = {0};
    struct hutch_error err;
    auto_close int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    assert_int_equal(elf_read(fd, &object, &err), 1);
    assert_true(string_list_has(&object.needed, "libc.so.6"));
    assert_true(string_list_has(&object.needed, "libcmocka.so.0"));
    assert_int_equal(object.loader[0], '/');
}

static void a_static_program_needs_nothing(void **state)
{
    (void)state;
    auto_elf struct elf_object object = {0};
    struct hutch_error err;
    struct image image = good_image();

    image.header.e_phnum = 1;
    assert_int_equal(read_bytes(&image, IMAGE_BYTES, &object, &err), 1);
    assert_null(object.loader);
    assert_int_equal(object.needed.count, 0);
}

static void others_are_none(void **state)
{
    (void)state;
    auto_elf struct elf_object object = {0};
    struct hutch_error err;
    const struct image good = good_image();
    struct image image;

    assert_int_equal(read_bytes("", 0, &object, &err), 0);
    assert_int_equal(read_bytes("#!/bin/sh\n", 10, &object, &err), 0);
    image = good;
    image.header.e_ident[EI_CLASS] = ELFCLASS32;
    assert_int_equal(result_of(&image), 0);
    image = good;
    image.header.e_ident[EI_DATA] = ELFDATA2MSB;
    assert_int_equal(result_of(&image), 0);
    image = good;
    image.header.e_machine = OTHER_MACHINE;
    assert_int_equal(result_of(&image), 0);
    image = good;
    image.header.e_type = ET_REL;
    assert_int_equal(result_of(&image), 0);
    image = good;
    image.header.e_ident[0] = 'x';
    assert_int_equal(result_of(&image), 0);
}

/* One number of a good image, replaced by a lie. */
#define LIE(member, value)                                                                         \
    do {                                                                                           \
        image = good_image();                                                                      \
        image.member = (__typeof__(image.member))(value);                                          \
        assert_int_equal(result_of(&image), HUTCH_ERR_RUNTIME);                                    \
    } while (0)

static void lies_are_refused(void **state)
{
    (void)state;
    struct image image;

    LIE(header.e_phoff, UINT64_MAX);
    LIE(header.e_phoff, INT64_MAX);
    LIE(header.e_phoff, sizeof(struct image));
    LIE(header.e_phnum, 0xffff);
    LIE(header.e_phnum, ELF_SEGMENTS_MAX + 1);
    LIE(header.e_phentsize, 8);
    LIE(dynamic.p_offset, UINT64_MAX - 8);
    LIE(dynamic.p_offset, sizeof(struct image));
    LIE(dynamic.p_filesz, UINT64_MAX);
    LIE(dynamic.p_filesz, (ELF_DYNAMIC_MAX + 1) * sizeof(Elf64_Dyn));
    LIE(dynamic.p_filesz, 1);
    LIE(load.p_vaddr, UINT64_MAX);
    LIE(load.p_filesz, 16);
    LIE(load.p_offset, UINT64_MAX - 64);
    LIE(interp.p_offset, UINT64_MAX);
    LIE(interp.p_filesz, 4); /* cuts the NUL */
    LIE(entries[0].d_un.d_val, UINT64_MAX);
    LIE(entries[0].d_un.d_val, sizeof(STRINGS));
    LIE(entries[2].d_un.d_ptr, 0);
    LIE(entries[2].d_un.d_ptr, UINT64_MAX);
    LIE(entries[3].d_un.d_val, 0);
    LIE(entries[3].d_un.d_val, sizeof(STRINGS) - 4); /* cuts the last NUL */
}

static void a_string_without_end_is_refused(void **state)
{
    (void)state;
    static char data[sizeof(struct image) + 2 * ELF_STRING_MAX];
    auto_elf struct elf_object object = {0};
    struct hutch_error err;
    struct image image = good_image();

    image.load.p_filesz = sizeof(data);
    image.entries[0].d_un.d_val = AT_LIBB;
    image.entries[3].d_un.d_val = sizeof(data);
    memset(data, 'x', sizeof(data));
    memcpy(data, &image, offsetof(struct image, strings) + AT_LIBB);
    assert_int_equal(read_bytes(data, sizeof(data), &object, &err), HUTCH_ERR_RUNTIME);
}

static void every_cut_is_noticed(void **state)
{
    (void)state;
    struct image image = good_image();

    for (size_t length = 0; length < IMAGE_BYTES; length++) {
        auto_elf struct elf_object object = {0};
        struct hutch_error err;
        int result = read_bytes(&image, length, &object, &err);
        assert_int_equal(result, length < sizeof(Elf64_Ehdr) ? 0 : HUTCH_ERR_RUNTIME);
    }
}

/* No byte, whatever it becomes, leads to more than a wrong answer; the
 * sanitizers watch. */
static void every_byte_may_change(void **state)
{
    (void)state;
    static const unsigned char changes[] = {0x01, 0x40, 0x80, 0xff};

    for (size_t i = 0; i < IMAGE_BYTES * ARRAY_LENGTH(changes); i++) {
        auto_elf struct elf_object object = {0};
        struct hutch_error err;
        struct image image = good_image();
        unsigned char *byte = (unsigned char *)&image + i / ARRAY_LENGTH(changes);
        *byte ^= changes[i % ARRAY_LENGTH(changes)];
        int result = read_bytes(&image, IMAGE_BYTES, &object, &err);
        assert_true(result == 1 || result == 0 || result == HUTCH_ERR_RUNTIME);
        assert_true(object.needed.count <= 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_is_there),
        cmocka_unit_test(reads_this_program),
        cmocka_unit_test(a_static_program_needs_nothing),
        cmocka_unit_test(others_are_none),
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(a_string_without_end_is_refused),
        cmocka_unit_test(every_cut_is_noticed),
        cmocka_unit_test(every_byte_may_change),
    };
    return cmocka_run_group_tests_name("elf", tests, NULL, NULL);
}
