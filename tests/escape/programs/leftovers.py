# SPDX-License-Identifier: Apache-2.0
# Core files, and the sockets through which a desktop or a daemon talks.
import resource

soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
report("core-limit", f"{soft}-{hard}")
outcome_of(resource.setrlimit, resource.RLIMIT_CORE, (1 << 20, 1 << 20))
report("core-limit-kept", resource.getrlimit(resource.RLIMIT_CORE) == (soft, hard))
pid = os.fork()
if pid == 0:
    os.abort()
status = os.waitpid(pid, 0)[1]
report("abort", f"{os.WTERMSIG(status)}-{os.WCOREDUMP(status)}")
report("files-after", ",".join(os.listdir()) or "none")
for path in (
    "/tmp/.X11-unix",
    "/tmp/.ICE-unix",
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/dbus/system_bus_socket",
    "/var/run/dbus/system_bus_socket",
    "/run/user",
    "/run/systemd",
    "/run/systemd/private",
    "/run/systemd/journal/socket",
    "/run/udev",
    "/run/lock",
    "/run/hutch",
    "/dev/log",
    "/var/lib/dbus",
    "/var/log",
    "/etc/shadow",
    "/etc/ssh",
    "/root/.ssh",
):
    attempt(f"stat-{path}", os.stat, path)
for name in (
    "SSH_AUTH_SOCK",
    "SSH_CONNECTION",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "XDG_RUNTIME_DIR",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "SUDO_USER",
    "OLDPWD",
    "HUTCH_CACHE_DIR",
):
    report(f"env-{name}", "there" if name in os.environ else "absent")
