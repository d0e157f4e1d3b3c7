# SPDX-License-Identifier: Apache-2.0
"""Runs under the filter of cells: imports what Python programs import most and
uses what reaches for unusual system calls."""

import importlib
import importlib.util
import sys
import tempfile

STANDARD = """
    argparse array ast asyncio base64 bisect collections concurrent.futures copy csv ctypes
    dataclasses datetime decimal email enum fcntl fractions functools getpass glob hashlib
    heapq html http.server inspect io itertools json locale logging lzma math mmap
    multiprocessing os pathlib pickle platform queue random re readline resource secrets
    select selectors shutil signal socket sqlite3 ssl statistics string struct subprocess
    sys tarfile tempfile textwrap threading time traceback typing unittest urllib.request
    uuid weakref xml.etree.ElementTree zipfile zlib zoneinfo
""".split()


def installed(name):
    return importlib.util.find_spec(name) is not None


def numpy_product():
    import numpy

    ones = numpy.ones((500, 500))
    assert (ones @ ones)[0, 0] == 500.0


def pandas_sum():
    import pandas

    frame = pandas.DataFrame({"city": ["a", "b", "a"], "price": [1.5, 2.0, 3.5]})
    assert frame.groupby("city")["price"].sum()["a"] == 5.0


def matplotlib_figure():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.plot([1, 3, 2])
    with tempfile.TemporaryFile() as image:
        pyplot.savefig(image, format="png")
        image.seek(0)
        assert image.read(8) == b"\x89PNG\r\n\x1a\n"


for name in STANDARD:
    importlib.import_module(name)

count = len(STANDARD)
for name, use in (
    ("numpy", numpy_product),
    ("pandas", pandas_sum),
    ("matplotlib", matplotlib_figure),
):
    if installed(name):
        use()
        count += 1
    else:
        print(f"{name} is not installed", file=sys.stderr)
print(f"{count} modules")
assert count >= 40
