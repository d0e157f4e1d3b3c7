# SPDX-License-Identifier: Apache-2.0
"""Who starts hutch: this process's own user, or an ordinary one.

For an ordinary user the programs are copied to a folder that everybody can
read, as an installation lays them out, because a build folder often lies below
one that is closed to others.
"""

import os
import pathlib
import pwd
import re
import shutil
import subprocess


class Account:
    """The user of this process: nothing has to be done."""

    command = []  # in front of a command that the account shall run
    environment = {}

    def install(self, program):
        """Where the account finds a program."""
        return program

    def own(self, path):
        """Gives the account a file or a folder."""


class OrdinaryUser(Account):
    """Another user than root, by name or by number."""

    def __init__(self, name, folder):
        """folder: an empty one, for the programs and the user's home."""
        if os.geteuid() != 0:
            raise PermissionError("only root can start hutch as another user")
        self.uid, self.gid = (int(name),) * 2 if name.isdigit() else pwd.getpwnam(name)[2:4]
        if self.uid == 0:
            raise ValueError("an ordinary user is needed")
        self.command = ["/usr/bin/setpriv", "--clear-groups"]
        self.command += ["--reuid", str(self.uid), "--regid", str(self.gid), "--"]
        self.folder = pathlib.Path(folder)
        self.folder.chmod(0o755)
        for place in ("bin", "lib", "libexec", "home"):
            (self.folder / place).mkdir()
        home = self.folder / "home"
        self.own(home)
        self.environment = {"HOME": str(home), "LD_LIBRARY_PATH": str(self.folder / "lib")}

    def own(self, path):
        os.chown(path, self.uid, self.gid)

    def install(self, program):
        """Copies a program with its library, and the helpers that it looks for."""
        for place in (program.parent, program.parent.parent):
            if (place / "libexec" / "hutch").is_dir():
                helpers = self.folder / "libexec" / "hutch"
                shutil.copytree(
                    place / "libexec" / "hutch",
                    helpers,
                    ignore=shutil.ignore_patterns("*.p"),
                    dirs_exist_ok=True,
                )
        libraries = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
        for library in re.findall(r"=> (\S.*/libhutch\.so\S*) \(", libraries.stdout):
            shutil.copy(library, self.folder / "lib")
        return pathlib.Path(shutil.copy(program, self.folder / "bin"))


def choose(name, folder):
    """The account of that name; without a name, our own."""
    return OrdinaryUser(name, folder) if name else Account()


def cache_for(account, cache_dir, folder):
    """The cache that was named, or a new one of the account's own in a folder."""
    if cache_dir:
        return cache_dir
    cache = pathlib.Path(folder) / "cache"
    cache.mkdir()
    account.own(cache)
    return cache
