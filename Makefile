# SPDX-License-Identifier: Apache-2.0
#
# Thin: meson builds and tests, the scripts in tools/ do the rest.
#
#   make               builds into build/; the program is build/hutch
#   make demo          installs what is missing, builds, shows what hutch does
#   make check         installs what is missing, runs every test
#   make check-long    the tests that take longer: the five that follow
#   make check-faults  up to 80 fallible calls of each process failing, 200 kills of
#                      cold cells and of warm ones
#   make check-fuzz    each fuzz target for ten seconds
#   make check-user    the command line's conformance as an ordinary user, and javascript
#                      in a parked node
#   make check-fresh   demo and check on a freshly made minimal Debian 12
#   make check-vm      the suites on cgroup v2 under systemd, in a virtual machine
#   make check-model   the agent with a real, small language model; compiles its server
#                      first, for over ten minutes
#   make install       PREFIX=/usr/local DESTDIR=
#   make uninstall     removes what the last install from this build put down
#   make format        rewrites the C sources with clang-format
#   make clean

BUILD = build

# The distribution's tools before any others that the user has in front.
export PATH := /usr/sbin:/usr/bin:/sbin:/bin:$(PATH)
unexport PYTHONHOME PYTHONPATH

.PHONY: all demo check check-long check-faults check-fuzz check-user check-fresh check-vm \
    check-model install uninstall format clean

all: $(BUILD)/build.ninja
	ninja -C '$(BUILD)'

$(BUILD)/build.ninja:
	meson setup '$(BUILD)'

demo:
	@tools/packages.sh build run
	@$(MAKE) --no-print-directory all
	@tools/demo.sh '$(BUILD)/hutch'

check:
	@tools/check.sh

check-long: check-faults check-fuzz check-user check-fresh check-vm

check-faults:
	@tools/check.sh faults

check-fuzz:
	@tools/check.sh fuzz

check-user:
	@tools/check.sh user

check-fresh:
	@tools/check-fresh.sh

check-vm:
	@tools/check-vm.sh

check-model:
	@tools/check-model.sh

install: all
	$(if $(PREFIX),meson configure '$(BUILD)' --prefix='$(PREFIX)')
	meson install -C '$(BUILD)'
	@[ -n '$(DESTDIR)' ] || [ "$$(id -u)" -ne 0 ] || ldconfig

uninstall:
	ninja -C '$(BUILD)' uninstall

format:
	@tools/files.sh . '*.c' '*.h' | xargs -0 clang-format-14 -i

clean:
	rm -rf build build-check build-asan build-fuzz build-model
